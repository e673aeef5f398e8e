"""The outbox: rows that a sink staged, until the peers have them (ADR 0010). Begin with :mod:`.outbox`.

Most of it needs Arrow: the sender process loads it and alone writes, the reader process reads it for the Delta state. The main
process knows :mod:`.limits` and :mod:`.schema`, which need none.
"""
