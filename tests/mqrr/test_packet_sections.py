"""Packets in two sections, because the reader asked for the first bytes only ([MS-MQRR] 2.2.6, 3.1.4.7)."""

from __future__ import annotations

import pytest
from packet_kit import binary, full_binary, split_sections, srmp

from srmp_spark.client.walking import shown
from srmp_spark.errors import LocalProtocolError, RemoteProtocolError
from srmp_spark.mqrr.ndr.receive import StartReceiveResponse
from srmp_spark.mqrr.packets.debug_header import DebugHeader
from srmp_spark.mqrr.packets.message_packet import MessagePacket, parse_message_packet
from srmp_spark.mqrr.packets.sections import (
    ALL,
    SectionBuffer,
    SectionType,
    join_sections,
    whole_packet,
)
from tests.kit.remote.forms import REQUIRED_TRAILERS

WITH_TRAILERS = binary(b"0123456789", trailers=REQUIRED_TRAILERS, debug=DebugHeader())


@pytest.mark.parametrize(
    "packet",
    [WITH_TRAILERS, srmp(trailers=REQUIRED_TRAILERS), full_binary()],
    ids=["binary", "srmp", "full"],
)
@pytest.mark.parametrize("limit", [ALL, None])
def test_a_limit_that_is_large_enough_gives_the_full_packet(packet, limit):
    (section,) = split_sections(
        packet, len(packet.encode_pieces().counted) if limit is None else limit
    )
    assert section == SectionBuffer(SectionType.FULL_PACKET, len(packet.encode()), packet.encode())
    assert join_sections([section]).encode() == packet.encode()


@pytest.mark.parametrize("limit", range(10))
def test_t24_a_smaller_limit_gives_the_first_bytes_of_the_body_and_all_that_follows(limit):
    first, second = split_sections(WITH_TRAILERS, limit)
    assert (first.type, second.type) == (SectionType.BINARY_FIRST, SectionType.BINARY_SECOND)
    # "the size of the message body that was not transferred"
    assert first.size_alloc - len(first.data) == 10 - limit
    assert second.size_alloc == len(second.data)
    packet = join_sections([first, second])
    assert (packet.body, packet.missing) == (b"0123456789"[:limit], 10 - limit)
    assert packet.properties.message_size == 10  # sizes inside say how large everything would be
    assert packet.debug == DebugHeader()
    assert packet.trailers is not None
    assert packet.id == WITH_TRAILERS.id


def test_t24_without_trailers_there_is_no_second_section():
    (first,) = split_sections(binary(b"0123456789"), 4)
    assert first.type == SectionType.BINARY_FIRST
    assert join_sections([first]).missing == 6


@pytest.mark.parametrize("extra", [1, 2, 3])
def test_t24_padding_behind_a_cut_body_is_accepted(extra):
    """Nobody says whether it is sent; SectionSizeAlloc counts it or not."""
    first, second = split_sections(WITH_TRAILERS, 5)
    counted = first._replace(data=first.data + b"\xaa" * extra, size_alloc=first.size_alloc + extra)
    packet = join_sections([counted, second])
    assert (packet.body, packet.missing) == (b"01234", 5)
    assert (
        join_sections([first._replace(data=first.data + b"\xaa" * extra), second]).missing
        == 5 - extra
    )


def test_t25_the_bytes_present_are_section_size():
    first, _ = split_sections(WITH_TRAILERS, 5)
    assert first.size_alloc > len(first.data)


@pytest.mark.parametrize("limit", [0, 1, 15, 16, 17, 30])
def test_t26_the_limit_of_an_srmp_message_counts_its_compound_header_whole(limit):
    whole = srmp(data=b"POST /msmq HTTP/1.1\r\n\r\nhello", trailers=REQUIRED_TRAILERS)
    first, second = split_sections(whole, limit)
    assert (first.type, second.type) == (SectionType.SRMP_FIRST, SectionType.SRMP_SECOND)
    assert first.size_alloc - len(first.data) == whole.compound.size - limit
    packet = join_sections([first, second])
    assert packet.compound is not None
    assert packet.compound.data == whole.compound.data[: max(limit - 16, 0)]
    assert packet.missing == whole.compound.size - limit
    assert packet.envelope == whole.envelope


def test_t27_a_limit_of_0_is_a_way_to_count():
    assert join_sections(split_sections(binary(b"0123456789"), 0)).body == b""


def test_what_is_missing_is_never_written():
    packet = join_sections(split_sections(WITH_TRAILERS, 5))
    with pytest.raises(LocalProtocolError, match=r"5 bytes of \{.*\}\\7 are missing"):
        packet.encode()


FIRST, SECOND = split_sections(WITH_TRAILERS, 5)
SRMP_FIRST, SRMP_SECOND = split_sections(srmp(trailers=REQUIRED_TRAILERS), 5)
FULL = split_sections(WITH_TRAILERS, ALL)[0]


@pytest.mark.parametrize(
    ("sections", "error"),
    [
        ([], "make no packet"),
        ([SECOND], "make no packet"),
        ([FIRST, FIRST], "make no packet"),
        ([FIRST, SRMP_SECOND], "make no packet"),
        ([FULL, SECOND], "make no packet"),
        ([FIRST, SECOND, SECOND], "make no packet"),
        ([FIRST._replace(type=7)], "make no packet"),
        ([FULL._replace(size_alloc=FULL.size_alloc + 1)], "two sizes differ"),
        ([FULL._replace(data=FULL.data[:-1], size_alloc=FULL.size_alloc - 1)], "of which"),
        ([FIRST, SECOND._replace(size_alloc=1)], "two sizes differ"),
        ([FIRST._replace(size_alloc=len(FIRST.data) - 4), SECOND], "SectionSizeAlloc is"),
        (
            [FIRST._replace(size_alloc=len(FIRST.data) + 11), SECOND],
            "of a body of 10 were not sent",
        ),
        ([FIRST._replace(size_alloc=0xFFFFFFFF), SECOND], "were not sent"),
        (
            [FIRST._replace(data=FIRST.data + bytes(9)), SECOND],
            "SectionSizeAlloc is|after the body",
        ),
        ([FIRST._replace(type=SectionType.SRMP_FIRST), SRMP_SECOND], "holds the other kind"),
        (
            [SRMP_FIRST._replace(type=SectionType.BINARY_FIRST), SECOND],
            "holds the other kind|BINARY|needs",
        ),
        (
            [SRMP_FIRST._replace(size_alloc=len(SRMP_FIRST.data) + 10), SRMP_SECOND],
            "less than a CompoundMessageHeader",
        ),
    ],
)
def test_sections_that_do_not_belong_together(sections, error):
    with pytest.raises(RemoteProtocolError, match=error):
        join_sections(sections)


@pytest.mark.parametrize(
    "packet", [WITH_TRAILERS, binary(b"012"), full_binary()], ids=["trailers", "odd", "full"]
)
def test_a_body_that_is_whole_in_a_first_section_is_stored_as_a_packet_that_can_be_read(
    packet: MessagePacket,
):
    """The first section alone is none, and joined they were checked: what is stored is what was read once more."""
    encoded = packet.encode_pieces()
    first = encoded.head + encoded.counted
    sections = [SectionBuffer(SectionType.BINARY_FIRST, len(first), first)]
    if encoded.tail:
        sections.append(SectionBuffer(SectionType.BINARY_SECOND, len(encoded.tail), encoded.tail))
    raw, _ = whole_packet(sections)
    assert raw == packet.encode()
    answer = StartReceiveResponse(1_790_000_000, 1, tuple(sections), 0)
    assert parse_message_packet(shown(answer).raw).id == packet.id
    if encoded.tail:
        with pytest.raises(RemoteProtocolError):
            whole_packet(sections[:1])
        with pytest.raises(RemoteProtocolError):
            shown(answer._replace(sections=answer.sections[:1]))
