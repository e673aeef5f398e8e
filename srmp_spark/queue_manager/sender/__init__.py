"""The sender process, seen from both sides: what waits in the outbox goes out, apart from the loop that accepts (ADR 0010).

``link`` is the main process's side. In the child, ``process`` is the entry, ``commands`` answers commands (``send_commands``
those of ``srmp-spark send``); ``dispatcher`` ties engine, outbox and connections together; ``connections`` posts, ``addresses``
looks hosts up; ``receipts`` reads the receipts that came to our order queue; ``snapshot`` says what ``status`` shows. The main
process loads ``link`` only: the rest needs Arrow. What it shares with the reader process is in ``queue_manager/child``.
"""
