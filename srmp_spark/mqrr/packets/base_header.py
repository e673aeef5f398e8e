"""BaseHeader, the first 16 bytes of every packet ([MS-MQMQ] 2.2.19.1).

Its TimeToReachQueue is a moment in a remote read and a duration elsewhere ([MS-MQRR] 2.2.5.1); this
module converts between the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from srmp_spark.errors import LimitExceededError, RemoteProtocolError
from srmp_spark.mqrr.packets.limits import PACKET_SIZE_MAX, U8_MAX, U32_MAX
from srmp_spark.mqrr.packets.wire import fits, require

SIZE = 16
VERSION_NUMBER = 0x10
SIGNATURE = 0x524F494C
"""Signature of every packet: ``LIOR`` on the wire."""
INFINITE = 0xFFFFFFFF
"""Value of TimeToReachQueue and TimeToBeReceived that means: the message never expires."""
PRIORITY_MAX = 7
PRIORITY_DEFAULT = 3

_SECTION = "[MS-MQMQ] 2.2.19.1"
_LAYOUT = Struct("<BBHIII")
_PR, _IN, _SH, _DH, _TR = 0x0007, 0x0008, 0x0010, 0x0020, 0x0100


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseHeader:
    """Priority, tracing and expiry of one packet.

    The packet and not this header knows its size and which headers follow.
    """

    priority: int = PRIORITY_DEFAULT
    """0 to 7; 7 is delivered first. MUST be 0 in a transactional message, and is ignored there."""
    tracing: bool = False
    """Flag TR: the message is traced. The packet MUST then have a DebugHeader."""
    time_to_reach_queue: int = INFINITE
    """In a packet of a remote read a **moment**: seconds since 1970, UTC.

    In a packet between queue managers a duration: seconds from SentTime. A server of remote read
    writes the sum of the two ([MS-MQRR] 3.1.4.7).
    """
    reserved: int = 0
    """The reserved byte; senders set it to anything: captures show 0x00, 0xC0 and 0x5A."""

    def encode(self, *, packet_size: int, session_header: bool, debug_header: bool) -> bytes:
        """Encode the 16 bytes of the header.

        ``packet_size`` is PacketSize in bytes. ``session_header`` and ``debug_header`` announce
        these headers. Raises :class:`LocalProtocolError` if a number is out of its range or
        ``packet_size`` is above 4 MiB.
        """
        flags = (
            fits(self.priority, PRIORITY_MAX, "priority")
            | session_header * _SH
            | debug_header * _DH
            | self.tracing * _TR
        )
        fits(packet_size, PACKET_SIZE_MAX, "PacketSize")
        fits(self.time_to_reach_queue, U32_MAX, "TimeToReachQueue")
        fits(self.reserved, U8_MAX, "BaseHeader.Reserved")
        return _LAYOUT.pack(
            VERSION_NUMBER, self.reserved, flags, SIGNATURE, packet_size, self.time_to_reach_queue
        )


class BaseFields(NamedTuple):
    """A BaseHeader as parsed, with the packet's size and the announced headers."""

    header: BaseHeader
    packet_size: int
    """Bytes of the packet without the SessionHeader; at most ``PACKET_SIZE_MAX``.

    Whether so many bytes were received is not yet checked.
    """
    session_header: bool
    debug_header: bool


def parse_base_header(data: bytes, end: int) -> BaseFields:
    """Parse the BaseHeader at the beginning of ``data``, whose bytes end at ``end``.

    Raises :class:`RemoteProtocolError` if the header is cut, if the version or signature is another
    one, or if the packet is internal. An internal packet (Flags.IN) establishes a connection or
    acknowledges a session and is never a UserMessage. Raises :class:`LimitExceededError` if
    PacketSize is above 4 MiB.
    """
    require(0, SIZE, end, "BaseHeader", _SECTION)
    version, reserved, flags, signature, packet_size, time_to_reach_queue = _LAYOUT.unpack_from(
        data
    )
    if version != VERSION_NUMBER or signature != SIGNATURE:
        raise RemoteProtocolError(
            f"no MSMQ packet: version {version:#x}, signature {signature:#x}", section=_SECTION
        )
    if flags & _IN:
        raise RemoteProtocolError(
            "an internal packet (Flags.IN) where a UserMessage was expected", section=_SECTION
        )
    if packet_size > PACKET_SIZE_MAX:
        raise LimitExceededError("PACKET_SIZE_MAX", PACKET_SIZE_MAX, packet_size, section=_SECTION)
    header = BaseHeader(
        priority=flags & _PR,
        tracing=bool(flags & _TR),
        time_to_reach_queue=time_to_reach_queue,
        reserved=reserved,
    )
    return BaseFields(header, packet_size, bool(flags & _SH), bool(flags & _DH))
