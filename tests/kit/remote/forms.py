"""Forms in which a remote queue manager may encode a message in an answer.

A message is sent whole, in two sections, or in a form that a reader cannot parse.
"""

from __future__ import annotations

from random import Random

from srmp_spark.mqrr.packets.host_address import NO_ADDRESS
from srmp_spark.mqrr.packets.message_packet import MessagePacket, parse_message_packet
from srmp_spark.mqrr.packets.sections import SectionBuffer, SectionType
from srmp_spark.mqrr.packets.trailers import SubqueueHeader, Trailers

REQUIRED_TRAILERS = Trailers(subqueue=SubqueueHeader(), received_from=NO_ADDRESS)
"""Trailers of a message that was never moved and whose peer is unknown: both MUST be present."""

READABLE_FORMS = ("whole", "two")
"""Forms of which a reader makes a row."""
UNREADABLE_FORMS = ("first", "short", "octets", "none")
"""Forms that a reader cannot parse: it leaves these messages in their queue.

``first``: the second section is missing. ``short``: the size of the packet is wrong. ``octets``:
random octets instead of a packet. ``none``: no section at all.
"""


def sections_in(form: str, packet: bytes) -> tuple[SectionBuffer, ...]:
    """Return the sections of an answer that carries ``packet`` in ``form``.

    Any form that :data:`READABLE_FORMS` and :data:`UNREADABLE_FORMS` do not name is ``whole``.
    """
    if form == "none":
        return ()
    if form == "octets":
        octets = Random(packet).randbytes(len(packet))
        return (SectionBuffer(SectionType.FULL_PACKET, len(octets), octets),)
    if form == "short":
        return (
            SectionBuffer(SectionType.BINARY_FIRST, len(packet) - 4 - len(packet) % 60, packet),
        )
    if form == "two":
        return in_two_sections(packet)
    if form == "first":
        return in_two_sections(packet)[:1]
    return (SectionBuffer(SectionType.FULL_PACKET, len(packet), packet),)


def in_two_sections(packet: bytes) -> tuple[SectionBuffer, ...]:
    """Return ``packet`` as two sections.

    The first section holds the start of the packet and the whole body, and is no complete packet.
    The second section holds the headers that follow the body.
    """
    found = parse_message_packet(packet)
    encoded = MessagePacket(
        base=found.base, user=found.user, properties=found.properties, trailers=REQUIRED_TRAILERS
    ).encode_pieces()
    first = encoded.head + encoded.counted
    return (
        SectionBuffer(SectionType.BINARY_FIRST, len(first), first),
        SectionBuffer(SectionType.BINARY_SECOND, len(encoded.tail), encoded.tail),
    )
