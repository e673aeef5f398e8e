"""Implement WS-ReliableMessaging with advanced flow control ([MS-WSRVCRM]), without I/O.

The engines take bytes and ``now``, and return messages and effects. The package holds both roles
(source and destination) and the codec. It supports WS-ReliableMessaging 1.0 (February 2005) and
1.1/1.2 (200702), SOAP 1.1 and 1.2, and WS-Addressing of August 2004 and August 2005. The caller
passes in sockets' data, time, stored rows and random numbers. Everywhere in the package ``now`` is
in seconds of the monotonic clock, and ``utc`` in microseconds since 1970. A *number* is the number
of a message in its sequence, from 1. "1.0" and "1.1" are versions of WS-ReliableMessaging.
"""
