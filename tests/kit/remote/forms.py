"""Forms in which a remote queue manager may hand a message out: whole, in two sections, or so that it cannot be read."""

from __future__ import annotations

from random import Random

from srmp_spark.mqrr.packets.message_packet import MessagePacket, parse_message_packet
from srmp_spark.mqrr.packets.sections import SectionBuffer, SectionType
from srmp_spark.mqrr.packets.trailers import REQUIRED_TRAILERS

READABLE_FORMS = ("whole", "two")
"""A reader makes a row of these."""
UNREADABLE_FORMS = ("first", "short", "octets", "none")
"""A reader leaves these where they are: the second section missing, a size that is wrong, no packet, no section."""


def sections_in(form: str, packet: bytes) -> tuple[SectionBuffer, ...]:
    """Return ``packet`` as an answer has it in ``form``."""
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
    """Return the whole body in a first section, which is no packet, and the headers behind it in a second one."""
    found = parse_message_packet(packet)
    encoded = MessagePacket(
        base=found.base, user=found.user, properties=found.properties, trailers=REQUIRED_TRAILERS
    ).encode_pieces()
    first = encoded.head + encoded.counted
    return (
        SectionBuffer(SectionType.BINARY_FIRST, len(first), first),
        SectionBuffer(SectionType.BINARY_SECOND, len(encoded.tail), encoded.tail),
    )
