"""The sender process, seen from both sides: the process sends the messages of the outbox.

Sending is apart from the loop that accepts messages (ADR 0010). ``link`` is the main process's
side. In the child, ``process`` is the entry, ``commands`` answers commands, and ``send_commands``
answers the commands of ``srmp-spark send``. ``dispatcher`` ties engine, outbox and connections
together; ``connections`` posts, ``addresses`` looks hosts up. ``receipts`` reads the receipts that
arrived in our order queue, and ``snapshot`` makes the entries of ``status``. The main process loads
``link`` only, because the rest needs Arrow. Code that sender process and reader process share is in
``queue_manager/child``.
"""
