"""PGM over sockets: groups that queues listen on, and the sockets of the sender process.

**Theory of operation.** Anybody who can send a datagram to a group makes its listener work, and PGM
does not authenticate the source. Therefore the listener has a process of its own
(:mod:`srmp_spark.queue_manager.gateway`)::

    sources          gateway process                            main process
    ─ packets ─▶  sockets, sessions, windows ── messages ────▶  signature, writer, queue, row
    ◀─ NAKs ────  APDUs, decoding            ◀─ settled ──────  losses, counters, status

The modules, by the process that runs them:

    both       settings, crossing, interfaces, sockets, kernel_filter
               (the sender process uses all of them except crossing)
    gateway    gateway: the process; listener: one group; groups: its sockets;
               reading: an APDU becomes a message
    main       ports: the link to the gateway; heard: the state of one group;
               inbox: a message becomes a row; losses: a message without a row is recorded

**When a message counts as received.** PGM has no acknowledgement: a source is never answered. A
message that crossed from the gateway to the main process is stored by one transaction of the main
process, or recorded as a loss. A message that did not cross is still in the session of its source.
The main process knows the next number of each session, and the next gateway asks the source for
everything from that number on. If a gateway dies, only messages that the source no longer keeps are
lost, and these losses are recorded.

Words of this package. A *group* is a multicast address that one queue listens on; the two processes
name it by its index. A *source* is a sender of packets, and a *session* is the numbered packets of
one source to one group, identified by its transport session identifier (TSI). A *number* is a PGM
sequence number. An *APDU* is one unit of data of a source, which is one message. A *NAK* asks a
source to repeat packets. An APDU is *settled* when its message is stored or refused, so that it no
longer waits for a commit. An *inlet* receives packets, an *outlet* sends packets. A group is *deaf*
while its packets cannot be received.
"""
