"""Every limit of the codec, with its reason. Tests import these names and go past each of them on purpose.

What an operator may choose is in :mod:`.settings`.
"""

from __future__ import annotations

TPDU_MAX = 65_515
"""Octets of a packet: the largest IPv4 datagram without its header."""

OPTIONS_MAX = 16
"""RFC 3208 9: "There is a limit of 16 options per packet". OPT_LENGTH is one of them."""

NAK_LIST_MAX = 62
"""RFC 3208 9.3: "limited to 62 listed NAK entries", beside the one in the header."""

TXW_SQNS_MAX = 2**31 - 1
"""RFC 3208 3.3: a transmit window is "no greater than half the PGM sequence number space less one"."""

APDU_MAX = 65_536
"""Octets of an APDU that is taken: "limit the size of application data packets (APDUs) to 64 kilobytes"
([MC-MQSRM] 2.1.3.1)."""

APDU_SENT_MAX = 65_535
"""Octets of an APDU that is sent: one less, because OpenPGM counts 64 kilobytes so, and says that Windows does."""

RESET_ERROR_MAX = 63
"""The error code of OPT_RST has 6 bits (RFC 3208 9.8.4)."""
