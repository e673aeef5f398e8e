"""The jobs ``ingest``, ``replay`` and ``backfill`` (INTERFACE.md section 5).

``jobs/ingest.py``, ``jobs/replay.py`` and ``jobs/backfill.py`` are scripts for ``python`` and
``spark-submit``. They call this package, as ``srmp-spark replay`` does after an installation. Each
module holds one concept.

Modules of the job that writes a message table:

- :mod:`.ingest`: one streaming query from queues into a table;
- :mod:`.exactly_once`: append each row once, by one writer;
- :mod:`.table_writers`: the names under which jobs write a table.

Modules of the jobs that send:

- :mod:`.selection`: choose rows of a table by time, version, queue, label or SQL;
- :mod:`.ranges`: split the rows into batches, each a range of sequences of one log;
- :mod:`.sending`: stage and commit a batch, the two steps of the sink;
- :mod:`.done`: record committed batches, so that a restarted job is fast; correctness never
  depends on the record;
- :mod:`.message_files`: read saved bodies and JSON lines as rows;
- :mod:`.remote_messages`: read a queue of another queue manager over RPC;
- :mod:`.sign_in_flags`: flags of the account that reads it;
- :mod:`.pace`: limit the rate and draw the progress bar;
- :mod:`.running`: flags, signals and the last line of output of every job.
"""
