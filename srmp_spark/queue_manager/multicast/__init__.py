"""PGM over sockets: the groups that queues listen on, and the sockets that the sender process multicasts by.

**Theory of operation.** Whoever can send a datagram to a group makes its listener work, and nothing in PGM proves
who that is. Therefore the listener has a process of its own (:mod:`srmp_spark.queue_manager.gateway`)::

    sources              gateway process                                main process
    ─ packets ─▶  sockets, sessions, windows, APDUs ── whole messages ──▶  signature, writer, queue, row
    ◀─ NAKs ────  decoding of messages              ◀─ what is settled ──  losses, counters, status

The modules, by the process that runs them:

    both       settings, crossing, interfaces, sockets, kernel_filter (the sender process uses all but crossing)
    gateway    gateway: the process; listener: one group; groups: its sockets; reading: an APDU becomes a message
    main       ports: the link to the gateway; heard: what is known of one group; inbox: a message becomes a row;
               losses: a message that makes no row is told

**When a message counts as received.** PGM has no word for it: a source is never answered. A message that crossed is
stored by one transaction of the main process, or told as a loss. A message that did not cross is still in the
session of its source: the main process knows the next number of each session, and the next gateway asks the source
for everything from there. So the death of a gateway loses what its source no longer keeps, and that is told.
"""
