"""The Delta state: what the queue manager holds, published as tables for other programs.

Start reading at ``publisher``, which runs the cycles. ``log_source`` states what the publisher
needs of a log, and ``stored_log`` provides that from a data directory. ``table_specs`` lists the
tables and their columns. ``state_table`` appends to, replaces and maintains one table.
``data_files`` writes Parquet durably, locally or to an object store. ``actions`` makes the parts of
a commit. ``shadow`` keeps copies of the newest commits and repairs the table's log with them. Only
the reader process loads these modules, because they import Arrow and deltalake. The exceptions
are ``state_folder``, which interprets the value of ``--state``, and ``events``, the events that the
publishers report.

These words have one meaning in the package:

- A *cycle* publishes once all that has changed. A *look* reads the present state of the log, of the
  outbox or of a table, without changing it.
- A *position* of a row is the number of a commit of the queue manager's database. A Delta commit
  has a *version*.
- An *application transaction* is Delta's pair of an application's name and a version, committed
  with the rows. The version of the application of a queue is its last published sequence.
- The *tables of current state* are replaced as a whole when they change (:data:`.REPLACED`).
- A data directory is *given up* when its queue manager was restored elsewhere.
"""
