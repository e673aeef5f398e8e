"""DebugHeader: names the queue for reports about the route of a message ([MS-MQMQ] 2.2.20.8)."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.mqrr.guids import GUID_SIZE, guid_bytes, guid_text
from srmp_spark.mqrr.packets.wire import require

_SECTION = "[MS-MQMQ] 2.2.20.8"
_LAYOUT = Struct("<HH")
_QT = 3
_PUBLIC = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DebugHeader:
    """The report queue of one message. Present if BaseHeader.Flags.DH is set.

    [MS-MQDMPR] 3.1.7.1.30 puts the bit into the UserHeader, which is an erratum.
    """

    queue: str | None = None
    """GUID of the public queue for reports; ``None`` means that no reports are kept."""

    def encode(self) -> bytes:
        """Encode the header: 4 bytes without a queue, 20 bytes with one."""
        return (
            _LAYOUT.pack(0, 0)
            if self.queue is None
            else _LAYOUT.pack(_PUBLIC, 0) + guid_bytes(self.queue)
        )


def parse_debug_header(data: bytes, at: int, end: int) -> tuple[DebugHeader, int]:
    """Parse the header at ``at``; return the header and the offset of the next one.

    Raises :class:`RemoteProtocolError` if the header is cut, or if its queue type (QT) is one
    without a documented layout.
    """
    require(at, _LAYOUT.size, end, "DebugHeader", _SECTION)
    flags, _ = _LAYOUT.unpack_from(data, at)
    at += _LAYOUT.size
    if flags & _QT == 0:
        return DebugHeader(), at
    if flags & _QT != _PUBLIC:
        raise RemoteProtocolError(
            f"a DebugHeader with a queue of type {flags & _QT}", section=_SECTION
        )
    require(at, GUID_SIZE, end, "QueueIdentifier", _SECTION)
    return DebugHeader(queue=guid_text(data[at : at + GUID_SIZE])), at + GUID_SIZE
