"""Let other machines read local queues (``--rpc``, [MS-MQRR] 3.1).

The package has the ports, and carries out on a queue manager the effects of the server without I/O
(:mod:`srmp_spark.mqrr.server`).

    in the gateway process
    gateway     runs the ports; passes whole calls to the main process, and answers back
    endpoint    connections: bytes to calls, answers to bytes
    mapper      states the port of remote read

    crossing    messages between the two processes

    in the main process
    port        starts and ends the gateway
    readers     connections as the main process sees them: handles, answers in flight,
                the gateway's death
    service     carries out the effects of :mod:`srmp_spark.mqrr.server`: opens, reads, stores
    queue       one open queue: new messages, messages that have left, messages read ahead
    taking      marks received messages together
    frames      the form in which the reader process sends messages

All MQRR clients together are one receiver of a queue (docs/INTERFACE.md section 1). They hold the
lease of the queue's consumer ``default`` as long as one of them may receive. The reader process
sends messages as packets. No message is decoded in the main process.

Words of this package. A *reader* is one connection of an MQRR client. A *call* is one RPC request;
its *stub* holds the parameters of the call or of its answer. An *association* is the connections of
one client that share handles. To *run down* handles is to close them without their client, because
its last connection is gone. A reader has *taken* the bytes of its answers that have left the
gateway process, and *untaken* (or *held*) bytes have not. A *row* is a message in the log of a
queue; it has *left* the queue if it was received, purged, discarded or trimmed. A *take* is an
order of the server that messages leave their queues, because a client received, rejected or moved
them. An *End* is the call R_EndReceive, which ends the lock of a message.
:mod:`srmp_spark.queue_manager.queues` explains consumer, mark and lease.
"""
