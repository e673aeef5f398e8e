"""The outbox keeps the rows that a sink staged until the peers have received them (ADR 0010).

Begin with :mod:`.outbox`. Most modules of this package need Arrow. The sender process loads them,
and it alone writes the outbox. The reader process reads the outbox for the Delta state. The main
process imports only :mod:`.limits` and :mod:`.schema`, which do not need Arrow.
"""
