"""The jobs: ``ingest``, ``replay`` and ``backfill`` (INTERFACE.md section 5).

``jobs/ingest.py``, ``jobs/replay.py`` and ``jobs/backfill.py`` are scripts for ``python`` and ``spark-submit`` that call what
stands here, as ``srmp-spark replay`` does after an installation. One module a concept. Of those that write a message table:

- :mod:`.ingest`: one streaming query from queues into a table; :mod:`.exactly_once`: each row once, by one writer.

Of those that send:

- :mod:`.selection`: which rows of a table (times, version, queue, label, SQL);
- :mod:`.ranges`: those rows as batches, each a range of sequences of one log, with a fingerprint;
- :mod:`.sending`: a batch becomes outgoing messages by the sink's two steps, stage and commit;
- :mod:`.done`: what was committed, kept so that a job that starts again is fast; correctness never rests on it;
- :mod:`.message_files`: saved bodies and JSON lines as rows;
- :mod:`.pace`: the throttle and the progress bar; :mod:`.running`: what any job does around its work.
"""
