"""PGM (reliable multicast) without I/O: packets and ``now`` in, packets and events out.

The documents are RFC 3208, and [MC-MQSRM] 2.1.3 for the way MSMQ uses it.
"""
