"""WS-ReliableMessaging with advanced flow control ([MS-WSRVCRM]): bytes and ``now`` in, messages and effects out.

Both roles and the codec for WS-ReliableMessaging 1.0 (February 2005) and 1.1/1.2 (200702), SOAP 1.1 and 1.2, WS-Addressing of
August 2004 and August 2005. No socket, no clock, no disk, no random numbers: whoever uses it hands them in.
"""
