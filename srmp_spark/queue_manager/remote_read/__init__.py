"""Remote read of our queues, ``--rpc`` ([MS-MQRR] 3.1): the sockets, and what the server without I/O asks of a queue manager.

    endpoint    connections: bytes to calls, answers to bytes
    service     does what :mod:`srmp_spark.mqrr.server` says: opens, reads, stores
    queue       one queue that is open: what came, what has left, messages read ahead
    taking      received messages, stored together

All MQRR clients together are one receiver of a queue (docs/INTERFACE.md section 1): they hold the lease of its consumer
``default`` as long as one of them may receive. Messages come from the reader process as packets; nothing is decoded here.
"""
