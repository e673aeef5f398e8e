"""The Delta state: what the queue manager holds, published as tables that Spark and others read. Begin at ``publisher``.

``publisher`` runs the cycles; ``log_source`` says what it needs of a log and ``stored_log`` is that over a data directory;
``table_specs`` lists the tables and their columns; ``state_table`` appends, replaces and tidies one of them; ``data_files``
writes Parquet durably, locally or to an object store; ``actions`` are what a commit is made of; ``shadow`` keeps copies of
the newest commits and mends the table's log with them. Only the reader process loads these: they import Arrow and deltalake
(``state_folder``, which reads what ``--state`` names, does not).
"""
