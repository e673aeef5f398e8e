"""The sender process, seen from both sides: the process sends the messages of the outbox.

Sending is apart from the loop that accepts messages (ADR 0010). ``link`` is the main process's
side, and so is ``dead_letters``. ``crossing`` defines the commands, answers and events between both
sides. In the child, ``process`` is the entry, ``commands`` answers commands, and ``send_commands``
answers the commands of ``srmp-spark send``. ``dispatcher`` ties engine, outbox and transports
together. The transports are the packages ``http``, ``multicast`` and ``reliable``;
``sending_transport`` is what the dispatcher expects of each, and ``sending_transports`` is their
table. ``receipts`` reads the receipts that arrived in this queue manager's order queue
(``private$/order_queue$``). ``reporting`` makes what others see of the queues. The main process
loads ``link``, ``dead_letters`` and ``crossing`` only, because the rest needs Arrow. Code that
sender process and reader process share is in ``queue_manager/child``.

Words of this package: an *outgoing queue* holds the messages for one destination and one kind, and
a :class:`~srmp_spark.srmp.sending.outgoing_effects.QueueKey` names such a queue. A *serial* is the
number of a message in its outgoing queue; serials ascend and never start again. The *engine* is
:class:`srmp_spark.srmp.sending.sender.Sender`. Times that are called ``at`` or ``utc`` are in
microseconds since 1970 (UTC). Times that are called ``now`` are in seconds of the monotonic clock.
"""
