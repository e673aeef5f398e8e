"""The reader process, seen from both sides: decoding, sealing and publishing, away from the loop that accepts.

``link`` is the main process's side; ``process`` is the child, ``answer`` and ``events`` what only this child answers and tells;
``dense_rows`` frames stored pieces for Spark. What it shares with the sender process is in ``queue_manager/child``.
The main process loads ``link`` only: the rest imports Arrow.
"""
