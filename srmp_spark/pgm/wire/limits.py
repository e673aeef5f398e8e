"""Every limit of the codec (:mod:`.decoder` and :mod:`.encoder`), with its reason.

Tests import these names and exceed each limit on purpose. Settings that an operator may change are
in :mod:`..settings`.
"""

from __future__ import annotations

TPDU_MAX = 65_515
"""Largest packet in octets: the largest IPv4 datagram without its header.

A larger one is refused.
"""

OPTIONS_MAX = 16
"""Most options of a packet, OPT_LENGTH included; a packet with more is refused.

RFC 3208 9: "There is a limit of 16 options per packet".
"""

NAK_LIST_MAX = 62
"""Most numbers of an OPT_NAK_LIST, in addition to the number in the header.

A list with more is refused. RFC 3208 9.3: "limited to 62 listed NAK entries".
"""

TXW_SQNS_MAX = 2**31 - 1
"""Most sequence numbers of a transmit window.

A packet that states a larger window is refused. RFC 3208 3.3: a transmit window is "no greater than
half the PGM sequence number space less one".
"""

APDU_MAX = 65_536
"""Largest APDU in octets that a receiver accepts; a larger APDU is reported as lost.

[MC-MQSRM] 2.1.3.1: "limit the size of application data packets (APDUs) to 64 kilobytes".
"""

APDU_SENT_MAX = 65_535
"""Largest APDU in octets that a source sends; a larger APDU is refused.

The limit is one less than APDU_MAX, because OpenPGM counts 64 kilobytes that way and says that
Windows does too.
"""

RESET_ERROR_MAX = 63
"""Largest error code of OPT_RST, which has 6 bits (RFC 3208 9.8.4)."""
