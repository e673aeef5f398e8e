"""Foreign senders that inject faults and keep a ledger, and the judge of a run.

The messages and the receiving side are :mod:`srmp_spark.testing.foreign`, which says why no codec
is shared with the product. The sender keeps its own outgoing queue, timers and stream numbers
(``senders``, ``stream_sender``), drives its socket by hand (``http``), and writes down what it did
as it happens (``ledger``). ``signature`` signs messages, with keys for tests. ``destination`` is
the receiving side as a process of its own.
"""
