"""The outbox: rows that a sink staged, until the peers have them (ADR 0009). Only the sender process imports it.

It needs Arrow. Begin with :mod:`.outbox`.
"""
