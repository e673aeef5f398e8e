"""Where the documents mislead, contradict themselves or were exploited: one test for each trap of the packets."""

from __future__ import annotations

from dataclasses import replace

import pytest
from packet_kit import GUID, GUID_2, IPV6, binary, full_binary, put, sample, srmp

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.mqrr import lookup_identifier
from srmp_spark.mqrr.guids import guid_bytes
from srmp_spark.mqrr.packets.base_header import (
    BaseHeader,
)
from srmp_spark.mqrr.packets.debug_header import DebugHeader
from srmp_spark.mqrr.packets.host_address import ip_address
from srmp_spark.mqrr.packets.message_packet import parse_message_packet
from srmp_spark.mqrr.packets.message_properties_header import MessagePropertiesHeader
from srmp_spark.mqrr.packets.multi_queue_format_header import (
    FormatNameElement,
    FormatType,
    MultiQueueFormatHeader,
    parse_multi_queue_format_header,
)
from srmp_spark.mqrr.packets.queue_names import QueueName, QueueNameType, direct_queue
from srmp_spark.mqrr.packets.session_header import SessionHeader
from srmp_spark.mqrr.packets.soap_header import SoapHeader
from srmp_spark.mqrr.packets.srmp_headers import CompoundMessageHeader
from srmp_spark.mqrr.packets.trailers import (
    SubqueueHeader,
    Trailers,
    parse_trailers,
)
from srmp_spark.mqrr.packets.user_header import UserHeader, address_overlay
from tests.kit.remote.forms import REQUIRED_TRAILERS

PROPERTIES_AT = 16 + 48 + 24  # behind BaseHeader and the UserHeader of a message to OS:host\q


def test_t2_sixteen_bytes_are_an_address_beside_a_direct_name_and_a_guid_beside_any_other():
    overlay = address_overlay(ip_address(IPV6, scope=9))
    header = UserHeader(queue_manager_address=overlay, destination_queue=direct_queue("OS:a\\q"))
    assert header.destination_queue_manager == "00000000-0000-0000-0000-000000000000"
    address = header.received_from
    assert address is not None
    assert (address.length, address.type, address.scope, address.address) == (16, 6, 9, IPV6[:8])
    assert address.text is None  # half an address is none
    other = replace(
        header,
        queue_manager_address=guid_bytes(GUID),
        destination_queue=QueueName(type=QueueNameType.PUBLIC, guid=GUID_2),
    )
    assert (other.destination_queue_manager, other.received_from) == (GUID, None)


def test_t3_a_sequence_id_lacks_the_priority():
    assert lookup_identifier.rebuilt(5, priority=7) == 5
    assert lookup_identifier.rebuilt(5, priority=3) == 4 << 56 | 5
    assert lookup_identifier.rebuilt(5, priority=3, transactional=True) == 7 << 56 | 5
    assert lookup_identifier.sequence_of(4 << 56 | 5) == 5


def test_t4_a_client_finds_out_which_reading_a_server_follows():
    assert lookup_identifier.candidates(5, priority=3) == (4 << 56 | 5, 5)
    assert lookup_identifier.candidates(5, priority=7) == (5,)


def test_t5_some_counts_are_wchars_and_some_are_bytes():
    label = binary(properties=MessagePropertiesHeader(label="four")).encode()
    assert label[PROPERTIES_AT + 1] == 5  # WCHARs, with the NUL
    assert int.from_bytes(label[16 + 48 : 16 + 50], "little") == 2 * len(
        "OS:host\\q\0"
    )  # bytes, with the NUL
    packet = srmp()
    assert packet.envelope is not None
    assert packet.compound is not None
    assert int.from_bytes(packet.envelope.encode()[4:8], "little") == len(
        "<se:Envelope/>\0"
    )  # WCHARs
    assert int.from_bytes(packet.compound.encode()[4:8], "little") == len(
        packet.compound.data
    )  # bytes


def test_t5_the_packet_that_was_seen_counts_wchars_in_its_envelope():
    data = sample("msf_queuejumper_v2_srmp_generated")
    at = data.index("<se:Envelope".encode("utf-16-le"))
    assert int.from_bytes(data[at - 4 : at], "little") == 539
    assert data[at + 2 * 539 - 2 : at + 2 * 539] == b"\0\0"


def test_cve_2023_21554_a_count_that_was_small_once_doubled_in_32_bits():
    """QueueJumper: DataLength + 0x80000000 doubled is the true length, modulo 2³². Here nothing wraps."""
    data = sample("msf_queuejumper_v2_srmp_generated")
    at = data.index("<se:Envelope".encode("utf-16-le")) - 4
    with pytest.raises(RemoteProtocolError, match="the envelope needs 4294968374 bytes"):
        parse_message_packet(put(data, at, 0x80000000 + 539, 4))


@pytest.mark.parametrize("offset", [4, 8, 12], ids=["HTTPBodySize", "MsgBodySize", "MsgBodyOffset"])
@pytest.mark.parametrize("value", [0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2000])
def test_lengths_of_a_compound_message_do_not_reach_out_of_it(offset, value):
    data = sample("msf_queuejumper_v2_srmp_generated")
    at = data.index(b"POST /msmq") - 16
    with pytest.raises(RemoteProtocolError, match="compound message"):
        parse_message_packet(put(data, at + offset, value, 4))


def test_t6_the_body_of_an_srmp_message_lies_in_the_post():
    packet = parse_message_packet(sample("msf_queuejumper_v2_srmp_generated"))
    assert packet.properties.message_size == 0
    assert packet.body == b"Message"


def test_t6_a_body_that_is_in_the_properties_alone():
    """[MS-MQDMPR] 3.1.7.1.32 puts every body there, and no packet that was seen has it in both places."""
    post = CompoundMessageHeader(data=b"POST", msg_body_offset=0, msg_body_size=0)
    packet = srmp(properties=MessagePropertiesHeader(message_body=b"here"), compound=post)
    assert parse_message_packet(packet.encode()).body == b"here"
    both = srmp(properties=MessagePropertiesHeader(message_body=b"here"))
    assert parse_message_packet(both.encode()).body == b"hello"


def test_t6_an_empty_body_may_lie_anywhere():
    data = srmp(
        compound=CompoundMessageHeader(data=b"POST", msg_body_offset=99, msg_body_size=0)
    ).encode()
    assert parse_message_packet(data).body == b""


@pytest.mark.parametrize("name", ["q", "qq"])
def test_t7_direct_names_are_padded_and_no_others(name):
    header = UserHeader(
        destination_queue=direct_queue(name),
        admin_queue=QueueName(type=QueueNameType.PRIVATE_ON_SOURCE, private_id=0x11111111),
        response_queue=direct_queue(name),
    )
    data = header.encode(0)
    assert len(data) % 4 == 0
    assert data.index(b"\x11\x11\x11\x11") % 4 == 0
    assert len(data) == 48 + 8 + 4 + 8


def test_t8_security_data_is_where_its_sizes_say_whatever_the_flag_says():
    packet = parse_message_packet(sample("mqqb_f7_usermessage_completed"))
    assert packet.security is not None
    assert not packet.security.security_data_announced
    assert len(packet.security.security_id) == 28


@pytest.mark.parametrize("header", ["h", "hh"])
@pytest.mark.parametrize("body", ["b", "bb"])
@pytest.mark.parametrize("inner", [0, 2])
@pytest.mark.parametrize("outer", [0, 2])
@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize("session", [False, True])
def test_t9_texts_of_a_soap_header_with_and_without_padding(
    header, body, inner, outer, names, session
):
    """Only where the text leaves an odd pair of bytes is there anything to pad."""
    soap = SoapHeader(header=header, body=body)
    packet = binary(
        soap=soap,
        multi_queue_format=full_binary().multi_queue_format if names else None,
        session=SessionHeader() if session else None,
        trailers=REQUIRED_TRAILERS if session else None,
    )
    encoded = packet.encode_pieces()
    data = soap.encode()
    cut = data.index(b"\x84\x03\0\0")
    first, second = data[:cut], data[cut:]
    first += b"\xaa" * (inner if len(first) % 4 else 0)
    padded = first + second
    padded += b"\xaa" * (outer if len(padded) % 4 else 0)
    whole = encoded._replace(tail=encoded.tail.replace(data, padded)).joined()
    size = len(whole) - (16 if session else 0)
    again = parse_message_packet(put(whole, 8, size, 4))
    assert (again.soap, again.multi_queue_format, again.session) == (
        soap,
        packet.multi_queue_format,
        packet.session,
    )
    assert (again.trailers is None) == (not session)


def test_t10_a_public_name_in_a_list_aligned_or_not():
    aligned = MultiQueueFormatHeader(
        destination=(FormatNameElement(type=FormatType.PUBLIC, guid=GUID),)
    )
    data = aligned.encode()
    assert data[12:16] == b"\x01\0\0\0"
    assert parse_multi_queue_format_header(data, 0, len(data))[0] == aligned
    tight = put(data[:14] + data[16:32] + bytes(2) + data[32:], 0, 12 + 2 + 16, 4)
    assert parse_multi_queue_format_header(tight, 0, len(tight))[0] == aligned


def test_t10_private_names_and_lists_begin_at_a_multiple_of_four():
    header = MultiQueueFormatHeader(
        destination=(
            FormatNameElement(type=FormatType.DIRECT, direct="ab"),
            FormatNameElement(type=FormatType.PRIVATE, guid=GUID, private_id=1),
            FormatNameElement(type=FormatType.DIRECT, direct="a"),
            FormatNameElement(type=FormatType.DISTRIBUTION_LIST, guid=GUID_2),
        )
    )
    data = header.encode()
    assert data.index(guid_bytes(GUID)) % 4 == 0
    assert data.index(guid_bytes(GUID_2)) % 4 == 0
    assert parse_multi_queue_format_header(data, 0, len(data))[0] == header


@pytest.mark.parametrize(
    ("sent", "name"), [("OS:a\\q", "DIRECT=OS:a\\q"), ("Direct=OS:a\\q", "Direct=OS:a\\q")]
)
def test_a_direct_name_in_a_list_with_and_without_its_prefix(sent, name):
    assert FormatNameElement(type=FormatType.DIRECT, direct=sent).format_name == name


def test_t11_the_acknowledgement_class_lies_across_bytes():
    data = SubqueueHeader(acknowledgement_class=0xC004).encode()
    assert int.from_bytes(data[4:8], "little") == 0xC004 << 1
    noisy = Trailers(subqueue=SubqueueHeader(acknowledgement_class=0xC004)).encode()
    noisy = put(noisy, 16, 0xFFFE0001 | 0xC004 << 1, 4)  # TM and the reserved bits
    assert parse_trailers(noisy, 0, len(noisy))[0].subqueue == SubqueueHeader(
        acknowledgement_class=0xC004
    )


def test_t13_greater_than_the_last_one_loses_messages():
    """Why no reader of ours compares with the last identifier: what comes later may have a lower one."""
    read = lookup_identifier.rebuilt(100, priority=3)
    urgent_and_later = lookup_identifier.rebuilt(101, priority=5)
    assert urgent_and_later < read


def test_t28_trailers_are_counted_by_packet_size_or_not():
    data = binary(trailers=REQUIRED_TRAILERS).encode()
    assert int.from_bytes(data[8:12], "little") == len(data)
    uncounted = put(data, 8, len(data) - 188, 4)
    assert parse_message_packet(uncounted) == parse_message_packet(data)


def test_t29_what_the_document_says_beside_its_dump_is_not_what_the_dump_holds():
    packet = parse_message_packet(sample("mqqb_f7_usermessage_completed"))
    # "LIOR", copied from the signature; the prose says 1141966310
    assert packet.user.sent_time == 0x524F494C
    assert packet.properties.message_size == 2000  # the prose says 20


def test_t30_the_base_header_announces_the_debug_header():
    data = binary(debug=DebugHeader()).encode()
    assert data[2] & 0x20
    plain = binary().encode()
    # UserHeader.Flags know nothing of it
    assert data[16 + 44 : 16 + 48] == plain[16 + 44 : 16 + 48]


def test_t31_the_priority_of_a_transactional_message_is_0():
    data = full_binary().encode()
    assert parse_message_packet(put(data, 2, data[2] | 5, 1)).priority == 0
    assert parse_message_packet(binary(base=BaseHeader(priority=5)).encode()).priority == 5


def test_t39_the_time_of_the_last_move_is_a_number_and_no_moment():
    late = SubqueueHeader(last_move_time=0xFFFFFFFF)
    data = Trailers(subqueue=late).encode()
    assert parse_trailers(data, 0, len(data))[0].subqueue == late


def test_t40_windows_server_2003_sends_no_trailers():
    assert parse_message_packet(binary().encode()).trailers is None


@pytest.mark.parametrize("flags", [0x00, 0x02])
def test_trailers_without_what_must_be_there(flags):
    """Both were seen in packets in the wild: no ExtendedAddressHeader although EA MUST be 1."""
    following = SubqueueHeader().encode() if flags else b""
    data = bytes([12, 0, 0, 0, len(following), 0, 0, 0, flags, 0, 0, 0]) + following
    assert parse_trailers(data, 0, len(data))[0] == Trailers(
        subqueue=SubqueueHeader() if flags else None
    )


def test_padding_and_reserved_bits_are_never_looked_at():
    clean = full_binary()
    data = bytearray(clean.encode())
    data[3] |= 0xF0  # X3 … X0; bit 12 was seen set in a real packet
    data[16 + 47] |= 0xEC  # X3, X4
    at = clean.encode().index(b"a body") + 6
    data[at : at + 3] = b"\xff\xff\xff"
    assert parse_message_packet(bytes(data)) == clean


def test_reserved_fields_of_an_srmp_message_are_never_looked_at():
    """[MS-MQRR] 2.2.5.1.2.1 and 2.2.5.1.2.2: two bytes behind each HeaderId."""
    clean = srmp()
    data = bytearray(clean.encode())
    assert clean.envelope is not None
    assert clean.compound is not None
    for header in (clean.envelope.encode(), clean.compound.encode()):
        at = bytes(data).index(header) + 2
        data[at : at + 2] = b"\xff\xff"
    assert parse_message_packet(bytes(data)) == clean


@pytest.mark.parametrize(
    ("at", "bits"),
    [(8, 0x04), (8, 0x20), (8, 0x40), (8, 0x80), (9, 0xFF), (10, 0xFF), (11, 0xFF)],
    ids=["X2", "X5", "X6", "X7", "Reserved 1", "Reserved 2", "Reserved 3"],
)
def test_reserved_bits_of_the_extension_header_are_never_looked_at(at, bits):
    """[MS-MQRR] 2.2.5.2."""
    clean = REQUIRED_TRAILERS.encode()
    noisy = put(clean, at, clean[at] | bits, 1)
    assert parse_trailers(noisy, 0, len(noisy)) == parse_trailers(clean, 0, len(clean))
