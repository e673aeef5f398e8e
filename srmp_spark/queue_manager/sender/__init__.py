"""The sender process, seen from both sides: what waits in the outbox goes out, apart from the loop that accepts (ADR 0010).

``link`` is the main process's side. In the child, ``process`` is the entry and answers commands; ``dispatcher`` ties engine,
outbox and connections together; ``connections`` posts, ``addresses`` looks hosts up; ``receipts`` reads the receipts that
came to our order queue; ``snapshot`` says what ``status`` shows. The main process loads ``link`` only: the rest needs Arrow.
"""
