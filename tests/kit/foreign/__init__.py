"""Foreign senders that inject faults and keep a ledger, and the judge of a run.

The messages and the receiving side are in :mod:`srmp_spark.testing.foreign`, which explains why the
product shares no codec with them. The sender keeps its own outgoing queue, timers and stream
numbers (``senders``, ``stream_sender``). It drives its socket itself (``http``), and records each
action when the action happens (``ledger``). ``signature`` signs messages, with keys for tests.
``destination`` runs the receiving side as a process of its own. ``verdict`` judges a run.
"""
