"""Remote read of our queues, ``--rpc`` ([MS-MQRR] 3.1): the ports, and what the server without I/O asks of a queue manager.

    in the gateway process
    gateway     puts it together; hands whole calls to the main process, and answers back
    endpoint    connections: bytes to calls, answers to bytes
    mapper      says where remote read is

    crossing    what crosses between the two

    in the main process
    port        starts and ends the gateway
    readers     connections as the main process sees them: handles, answers that are not taken, the gateway's death
    service     does what :mod:`srmp_spark.mqrr.server` says: opens, reads, stores
    queue       one queue that is open: what came, what has left, messages read ahead
    taking      received messages, stored together

All MQRR clients together are one receiver of a queue (docs/INTERFACE.md section 1): they hold the lease of its consumer
``default`` as long as one of them may receive. Messages come from the reader process as packets; nothing is decoded here.
"""
