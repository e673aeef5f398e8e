"""Foreign senders that inject faults and keep a ledger, and the judge of a run.

*Foreign* means: written from the specification alone, without the codec of srmp-spark. The messages
and the receiving side are in :mod:`srmp_spark.testing.foreign`, which gives the reason and explains
the words stream, position, lineage and uniquifier. The sender keeps its own outgoing queue, timers
and stream numbers (``senders``, ``stream_sender``). It drives its socket itself (``http``), and
records each action when the action happens (``ledger``). ``signature`` signs messages, with keys
for tests. ``destination`` runs the receiving side as a process of its own. ``verdict`` judges a
run.

A receipt *covers* the messages of its stream up to its ``<lastOrdinal>``. *The document* is
[MC-MQSRM].
"""
