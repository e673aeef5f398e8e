"""BaseHeader, the first 16 bytes of every packet ([MS-MQMQ] 2.2.19.1), and the moment it carries ([MS-MQRR] 2.2.5.1)."""

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
"""``LIOR`` on the wire."""
INFINITE = 0xFFFFFFFF
"""TimeToReachQueue and TimeToBeReceived: never."""
PRIORITY_MAX = 7
PRIORITY_DEFAULT = 3

_SECTION = "[MS-MQMQ] 2.2.19.1"
_LAYOUT = Struct("<BBHIII")
_PR, _IN, _SH, _DH, _TR = 0x0007, 0x0008, 0x0010, 0x0020, 0x0100


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseHeader:
    """What identifies a packet; its size and the two bits that announce headers are the packet's business."""

    priority: int = PRIORITY_DEFAULT
    """0 to 7, 7 first. MUST be 0 in a transactional message, and is ignored there."""
    tracing: bool = False
    """TR; a DebugHeader MUST be there then."""
    time_to_reach_queue: int = INFINITE
    """In a packet of a remote read a **moment**, seconds since 1970, UTC; in one between queue managers seconds from SentTime.
    See :func:`absolute_time_to_reach_queue`."""
    reserved: int = 0
    """Arbitrary when sent: captures show 0x00, 0xC0 and 0x5A."""

    def encode(self, *, packet_size: int, session_header: bool, debug_header: bool) -> bytes:
        """The 16 bytes. Raises :class:`LocalProtocolError` for a number out of its range, and for a packet above 4 MiB."""
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
    """A BaseHeader as read, and what it says of the packet."""

    header: BaseHeader
    packet_size: int
    """Bytes of the packet without the SessionHeader; at most ``PACKET_SIZE_MAX``. Whether they are there is not yet checked."""
    session_header: bool
    debug_header: bool


def parse_base_header(data: bytes, end: int) -> BaseFields:
    """The BaseHeader at the beginning of ``data``.

    Raises :class:`RemoteProtocolError` for another version or signature and for an internal packet (Flags.IN: establishing a
    connection or acknowledging a session; never a UserMessage), :class:`LimitExceededError` above 4 MiB.
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


def absolute_time_to_reach_queue(sent_time: int, seconds: int) -> int:
    """What a server writes ([MS-MQRR] 3.1.4.7): SentTime + TimeToReachQueue.

    Infinite stays infinite, and a sum that does not fit into 32 bits is infinite: wrapped around it would have expired long
    ago.
    """
    return INFINITE if seconds == INFINITE else min(sent_time + seconds, INFINITE)


def relative_time_to_reach_queue(sent_time: int, moment: int) -> int:
    """The seconds that a message had, from the moment in a packet of a remote read. Never below 0: clocks and senders
    differ."""
    return INFINITE if moment == INFINITE else max(moment - sent_time, 0)
