"""MSMQ remote read ([MS-MQRR]): one machine reads another's queue over DCE/RPC. Sans-IO: bytes and ``now`` in, events out.

===========================  ===================================================================================================
``packets``                  the message packet that a read returns: every header of [MS-MQMQ] 2.2.19, 2.2.20, [MS-MQRR] 2.2.5
``ndr``                      requests and responses of the 15 methods in both transfer syntaxes, NDR and NDR64
``rpc``                      connection-oriented DCE/RPC: PDUs, binding, fragments, associations, context handles, faults
``message_of_packet``        a packet as the message that all transports share; ``packet_of_message``, the other way
``queue_format``             which queue is opened: format names, and what users write
``lookup_identifier``        the 64-bit name of a message in its queue, of which a read returns seven bytes
===========================  ===================================================================================================
"""
