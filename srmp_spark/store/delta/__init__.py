"""The Delta state: what the queue manager holds, published as tables for Spark and other readers.

Start reading at ``publisher``, which runs the cycles. ``log_source`` states what the publisher
needs of a log, and ``stored_log`` provides that from a data directory. ``table_specs`` lists the
tables and their columns. ``state_table`` appends to, replaces and maintains one table.
``data_files`` writes Parquet durably, locally or to an object store. ``actions`` makes the parts of
a commit. ``shadow`` keeps copies of the newest commits and repairs the table's log with them. Only
the reader process loads these modules, because they import Arrow and deltalake. The exceptions
are ``state_folder``, which interprets the value of ``--state``, and ``events``, the events that the
publishers report.
"""
