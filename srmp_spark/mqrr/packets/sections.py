"""Packets in one or two sections: a reader may limit the body ([MS-MQRR] 2.2.6, 2.2.7, 3.1.4.7).

In a binary message the limit counts the bytes of the body. In an SRMP message the limit counts the
bytes of the whole CompoundMessageHeader, including the 16 bytes before its data. If there is more,
the first section ends with the last byte that the limit allows, and a second section holds what
follows the body. All sizes inside state how large everything *would* be, so the joined sections are
not a packet. The document does not mention padding after a body that was cut: none is written, and
up to three bytes are accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.mqrr.packets.message_packet import (
    EncodedPacket,
    MessagePacket,
    parse_head,
    parse_message_packet,
    parse_second_section,
)
from srmp_spark.mqrr.packets.wire import pad

ALL = 0xFFFFFFFF
"""dwMaxBodySize and dwMaxCompoundMessageSize of a reader that wants the whole message.

0 is allowed too and requests the headers alone.
"""

_SECTION = "[MS-MQRR] 2.2.6"


class SectionType(IntEnum):
    """Type of a section ([MS-MQRR] 2.2.7)."""

    FULL_PACKET = 0
    BINARY_FIRST = 1
    BINARY_SECOND = 2
    SRMP_FIRST = 3
    SRMP_SECOND = 4


_T = SectionType
_SECOND_OF = {_T.BINARY_FIRST: _T.BINARY_SECOND, _T.SRMP_FIRST: _T.SRMP_SECOND}


class SectionBuffer(NamedTuple):
    """One section of a packet. SectionSize is the length of ``data``."""

    type: int
    size_alloc: int
    """Bytes that the section would have with the whole body in it.

    SectionSize counts the bytes that are present, although the prose of 3.1.4.7 says otherwise.
    """
    data: bytes


def cut_sections(
    encoded: EncodedPacket, *, srmp: bool, max_body_size: int, max_compound_message_size: int
) -> tuple[SectionBuffer, ...]:
    """Return the sections for a reader's limits, from the bytes of a packet alone.

    If ``srmp`` is set, the message was sent over HTTP and ``max_compound_message_size`` applies.
    Otherwise ``max_body_size`` applies. The limits are in bytes.
    """
    limit = max_compound_message_size if srmp else max_body_size
    if limit >= len(encoded.counted):
        data = encoded.joined()
        return (SectionBuffer(_T.FULL_PACKET, len(data), data),)
    kind = _T.SRMP_FIRST if srmp else _T.BINARY_FIRST
    first = SectionBuffer(
        kind, len(encoded.head) + len(encoded.counted), encoded.head + encoded.counted[:limit]
    )
    if not encoded.tail:
        return (first,)
    return first, SectionBuffer(_SECOND_OF[kind], len(encoded.tail), encoded.tail)


def whole_packet(sections: Sequence[SectionBuffer]) -> tuple[bytes, MessagePacket]:
    """Return the bytes of a packet that was read completely, and the parsed packet.

    A server may send a whole body in a first section. The section alone is not a packet, so the
    joined bytes are parsed again. Raises :class:`RemoteProtocolError` as :func:`join_sections`
    does, and if the sections do not make a whole packet.
    """
    packet = join_sections(sections)
    if len(sections) == 1 and sections[0].type == _T.FULL_PACKET:
        return sections[0].data, packet
    if packet.missing:
        raise RemoteProtocolError(
            f"{packet.missing} bytes of {packet.id} were not sent, although the whole body was "
            "requested",
            section=_SECTION,
        )
    first, *second = sections
    data = pad(first.data) + (second[0].data if second else b"")
    return data, parse_message_packet(data)


def join_sections(sections: Sequence[SectionBuffer]) -> MessagePacket:
    """Parse the packet from the sections that a read returned.

    The bytes of the body that the reader did not ask for are counted in ``missing`` of the packet.
    Raises :class:`RemoteProtocolError` if the sections do not belong together, or if the packet is
    broken or cut elsewhere.
    """
    kinds = tuple(section.type for section in sections)
    if kinds == (_T.FULL_PACKET,):
        if sections[0].size_alloc != len(sections[0].data):
            raise RemoteProtocolError("a full packet whose two sizes differ", section=_SECTION)
        return parse_message_packet(sections[0].data)
    if (
        not kinds
        or kinds[0] not in _SECOND_OF
        or kinds[1:] not in ((), (_SECOND_OF[_T(kinds[0])],))
    ):
        raise RemoteProtocolError(
            f"sections of the types {kinds} make no packet", section="[MS-MQRR] 2.2.7"
        )
    first = sections[0]
    missing = first.size_alloc - len(first.data)
    # Up to three bytes of padding after the cut are in SectionSize and not in SectionSizeAlloc.
    extra = max(-missing, 0)
    if extra > 3:
        raise RemoteProtocolError(
            f"a section of {len(first.data)} bytes whose SectionSizeAlloc is {first.size_alloc}",
            section=_SECTION,
        )
    head = parse_head(first.data, max(missing, 0))
    if (head.compound is not None) != (kinds[0] == _T.SRMP_FIRST):
        raise RemoteProtocolError(
            f"a section of type {kinds[0]} that holds the other kind of message",
            section="[MS-MQRR] 2.2.7",
        )
    if len(first.data) - head.at > 3:
        raise RemoteProtocolError(
            f"{len(first.data) - head.at} bytes after the body of a first section",
            section=_SECTION,
        )
    if len(sections) == 2 and sections[1].size_alloc != len(sections[1].data):
        raise RemoteProtocolError("a second section whose two sizes differ", section=_SECTION)
    return parse_second_section(head, sections[1].data if len(sections) == 2 else b"")
