"""MSMQ remote read ([MS-MQRR]): one machine reads a queue of another machine over DCE/RPC.

This package does no I/O: its functions take bytes and ``now`` and return events.

- ``packets``: the message packet that a read returns, with every header of [MS-MQMQ] 2.2.19,
  2.2.20 and [MS-MQRR] 2.2.5
- ``ndr``: requests and responses of the 15 methods in both transfer syntaxes, NDR and NDR64
- ``rpc``: connection-oriented DCE/RPC with PDUs, binding, fragments, associations, context
  handles and faults
- ``client``: the steps and calls of a program that reads a remote queue
- ``server``: the queues that remote readers read
- ``message_of_packet``: turns a packet into the message type that all transports share;
  ``packet_of_message`` does the reverse
- ``queue_format``: names the queue to open, by format names and by the names that users write
- ``lookup_identifier``: the 64-bit number of a message in its queue; a read returns seven of its
  eight bytes
"""
