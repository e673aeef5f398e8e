"""Make a new data directory from the Delta state, after the disk was lost (docs/adr/0015).

A queue manager is *given up* when its last data directory must not be used again: a Delta commit
states that, and the queue manager ends when it sees the commit
(:mod:`srmp_spark.store.delta.restore_watch`). A message *in doubt* may or may not have been sent. A
queue that is *held* sends nothing until an operator decides. *The state* means the Delta tables
below ``--state``.
"""
