"""Each header of [MS-MQMQ] 2.2.19 and 2.2.20 and of [MS-MQRR] 2.2.5: its layout byte by byte, and what is refused."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from packet_kit import GUID, GUID_2, IPV6, SENT, binary, full_binary, put, srmp

from srmp_spark.errors import LimitExceededError, LocalProtocolError, RemoteProtocolError
from srmp_spark.mqrr.guids import guid_bytes
from srmp_spark.mqrr.message_of_packet import message_of
from srmp_spark.mqrr.packets.base_header import BaseHeader
from srmp_spark.mqrr.packets.debug_header import DebugHeader, parse_debug_header
from srmp_spark.mqrr.packets.host_address import NO_ADDRESS, ip_address
from srmp_spark.mqrr.packets.limits import (
    DIRECT_NAME_WCHARS_MAX,
    FORMAT_NAMES_MAX,
    LABEL_WCHARS_MAX,
    PACKET_SIZE_MAX,
    SENDER_CERT_MAX,
)
from srmp_spark.mqrr.packets.message_packet import MessagePacket, parse_message_packet
from srmp_spark.mqrr.packets.message_properties_header import (
    MessagePropertiesHeader,
    parse_message_properties_header,
)
from srmp_spark.mqrr.packets.multi_queue_format_header import (
    FormatNameElement,
    FormatType,
    MultiQueueFormatHeader,
    parse_multi_queue_format_header,
)
from srmp_spark.mqrr.packets.queue_names import (
    SAME_AS_ADMIN,
    QueueName,
    QueueNameType,
    direct_queue,
)
from srmp_spark.mqrr.packets.security_header import (
    ProviderInfo,
    SecurityHeader,
    parse_security_header,
)
from srmp_spark.mqrr.packets.srmp_headers import CompoundMessageHeader
from srmp_spark.mqrr.packets.trailers import (
    DeadLetterHeader,
    SubqueueHeader,
    Trailers,
    parse_trailers,
)
from srmp_spark.mqrr.packets.transaction_header import TransactionHeader
from srmp_spark.mqrr.packets.user_header import UserHeader, parse_user_header
from tests.kit.remote.forms import REQUIRED_TRAILERS

FULL = full_binary()
WIRE = FULL.encode()


def test_a_packet_with_every_header_is_read_as_it_was_written():
    assert parse_message_packet(WIRE) == FULL
    present = {
        field.name for field in fields(MessagePacket) if getattr(FULL, field.name) is not None
    }
    assert present == {field.name for field in fields(MessagePacket)} - {"envelope", "compound"}


def test_an_srmp_message_with_every_header():
    packet = srmp(
        **{
            name: getattr(FULL, name)
            for name in ("base", "debug", "soap", "multi_queue_format", "session", "trailers")
        }
    )
    assert parse_message_packet(packet.encode()) == packet


def test_base_header():
    assert WIRE[:16] == bytes.fromhex("105a 3001 4c494f52") + (len(WIRE) - 16).to_bytes(
        4, "little"
    ) + (SENT + 60).to_bytes(4, "little")
    assert binary(base=BaseHeader(priority=7)).encode()[2:4] == b"\x07\0"


@pytest.mark.parametrize(("at", "value"), [(0, 0x11), (4, 0x4D)])
def test_another_version_or_signature_is_no_packet(at, value):
    with pytest.raises(RemoteProtocolError, match="no MSMQ packet"):
        parse_message_packet(put(WIRE, at, value, 1))


def test_packet_size_has_a_maximum_and_must_be_there():
    with pytest.raises(LimitExceededError, match="PACKET_SIZE_MAX"):
        parse_message_packet(put(WIRE, 8, PACKET_SIZE_MAX + 1, 4))
    with pytest.raises(RemoteProtocolError, match="of which"):
        parse_message_packet(put(WIRE, 8, len(WIRE) + 1, 4))
    with pytest.raises(RemoteProtocolError, match="headers of a packet of 100 bytes end at"):
        parse_message_packet(put(WIRE, 8, 100 - 16, 4))
    with pytest.raises(LocalProtocolError, match="PacketSize"):
        binary(bytes(PACKET_SIZE_MAX)).encode()


def test_user_header():
    header = WIRE[16 : 16 + 48]
    assert header[:16] == guid_bytes(GUID)
    assert header[16:32] == bytes.fromhex("0400 0100 00000000 c0000201 00000000")
    assert int.from_bytes(header[40:44], "little") == 0x01020304
    flags = int.from_bytes(header[44:48], "little")
    assert flags & 0x1F == 3
    assert flags >> 5 & 3 == 1
    assert (flags >> 10 & 7, flags >> 13 & 7, flags >> 16 & 7) == (7, 6, 5)
    present = 1 << 8 | 1 << 9 | 1 << 19 | 1 << 20 | 1 << 21 | 1 << 22 | 1 << 23 | 1 << 28
    # JN, JP and the seven announcements; no reserved bit, and not AH
    assert flags & ~0x7FC7F == present


@pytest.mark.parametrize(
    ("place", "bits", "kinds"),
    [("destination", 10, {1, 2, 4, 6}), ("admin", 13, {1, 4})],
    ids=["destination", "admin"],
)
def test_a_queue_name_of_a_type_that_may_not_stand_there(place, bits, kinds):
    data = UserHeader().encode(0)
    for kind in range(1, 8):
        changed = put(data, 44, kind << bits, 4) + bytes(40)
        if kind in kinds:
            with pytest.raises(RemoteProtocolError, match=f"type {kind} is not allowed here"):
                parse_user_header(changed, 0, len(changed))
        else:
            header, _, _ = parse_user_header(changed, 0, len(changed))
            assert getattr(header, f"{place}_queue").type == kind
    with pytest.raises(LocalProtocolError, match="may not be of type SAME_AS_ADMIN"):
        UserHeader(**{f"{place}_queue": SAME_AS_ADMIN}).encode(0)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            QueueName(type=QueueNameType.PRIVATE_ON_SOURCE, private_id=0x1F),
            f"PRIVATE={GUID}\\0000001f",
        ),
        (
            QueueName(type=QueueNameType.PRIVATE_ON_DESTINATION, private_id=2),
            f"PRIVATE={GUID_2}\\00000002",
        ),
        (
            QueueName(type=QueueNameType.PRIVATE_ON_ADMIN_HOST, private_id=3),
            f"PRIVATE={GUID}\\00000003",
        ),
        (
            QueueName(type=QueueNameType.PRIVATE_ELSEWHERE, guid=GUID, private_id=4),
            f"PRIVATE={GUID}\\00000004",
        ),
        (QueueName(type=QueueNameType.PUBLIC, guid=GUID), f"PUBLIC={GUID}"),
        (SAME_AS_ADMIN, f"PRIVATE={GUID}\\00000009"),
        (direct_queue("TCP:192.0.2.1\\q"), "DIRECT=TCP:192.0.2.1\\q"),
        (QueueName(type=QueueNameType.NONE), None),
    ],
    ids=lambda value: value.type.name if isinstance(value, QueueName) else "",
)
def test_what_a_queue_name_leaves_out_is_put_back(name, expected):
    header = UserHeader(
        source_queue_manager=GUID,
        queue_manager_address=guid_bytes(GUID_2),
        destination_queue=QueueName(type=QueueNameType.PUBLIC, guid=GUID),
        admin_queue=QueueName(type=QueueNameType.PRIVATE_ELSEWHERE, guid=GUID, private_id=9),
        response_queue=name,
    )
    again, announced, at = parse_user_header(header.encode(0), 0, len(header.encode(0)))
    assert (again, announced, at) == (header, 0, len(header.encode(0)))
    assert again.format_names()[2] == expected


def test_where_a_public_admin_queue_lives_the_packet_does_not_say():
    header = UserHeader(
        admin_queue=QueueName(type=QueueNameType.PUBLIC, guid=GUID),
        response_queue=QueueName(type=QueueNameType.PRIVATE_ON_ADMIN_HOST, private_id=3),
    )
    assert header.format_names() == (None, f"PUBLIC={GUID}", None)


def test_transaction_header():
    at = 16 + len(FULL.user.encode(0))
    assert WIRE[at : at + 20] == bytes.fromhex("efcdab00 8877665544332211 09000000 08000000")
    assert WIRE[at + 20 : at + 36] == guid_bytes(GUID_2)
    with pytest.raises(LocalProtocolError, match="TH needs DM"):
        binary(transaction=FULL.transaction).encode()


def test_security_header_pads_each_part():
    assert FULL.security is not None
    data = FULL.security.encode()
    assert data[:16] == bytes.fromhex("f105 0d00 0100 0a00 0b000000 08000000")
    assert len(data) == 16 + 16 + 4 + 12 + 12 + 8
    assert FULL.security.provider() == ProviderInfo(1, "p")
    assert SecurityHeader().provider() is None
    with pytest.raises(RemoteProtocolError, match="ProviderType"):
        SecurityHeader(provider_info=b"\x01").provider()


def test_a_certificate_has_a_limit():
    data = put(SecurityHeader().encode(), 8, SENDER_CERT_MAX + 1, 4) + bytes(SENDER_CERT_MAX + 4)
    with pytest.raises(LimitExceededError, match="SENDER_CERT_MAX"):
        parse_security_header(data, 0, len(data))
    with pytest.raises(LocalProtocolError, match="SenderCertSize"):
        SecurityHeader(sender_cert=bytes(SENDER_CERT_MAX + 1)).encode()


def test_message_properties_header():
    data = FULL.properties.encode()
    assert data[:4] == bytes.fromhex("06 06 04c0")
    assert data[4:24] == bytes(range(20))
    numbers = [int.from_bytes(data[at : at + 4], "little") for at in range(24, 56, 4)]
    assert numbers == [8, 77, 6, 64, 5, 0x800E, 0x6610, 3]
    assert data[56:] == "Grüße\0".encode("utf-16-le") + b"ext" + b"a body" + bytes(3)


def test_a_label_has_a_limit_on_both_ways():
    longest = MessagePropertiesHeader(label="x" * (LABEL_WCHARS_MAX - 1))
    data = longest.encode()
    assert parse_message_properties_header(data, 0, len(data))[0] == longest
    with pytest.raises(LocalProtocolError, match="LabelLength"):
        MessagePropertiesHeader(label="x" * LABEL_WCHARS_MAX).encode()
    data = put(data, 1, LABEL_WCHARS_MAX + 1, 1) + bytes(8)
    with pytest.raises(LimitExceededError, match="LABEL_WCHARS_MAX"):
        parse_message_properties_header(data, 0, len(data))


def test_half_a_surrogate_pair_in_a_label_is_kept():
    header = MessagePropertiesHeader(label="a\ud83d")
    data = header.encode()
    assert parse_message_properties_header(data, 0, len(data))[0] == header


def test_debug_header():
    assert DebugHeader().encode() == bytes(4)
    assert DebugHeader(queue=GUID).encode() == b"\x01\0\0\0" + guid_bytes(GUID)
    for kind in (2, 3):
        with pytest.raises(RemoteProtocolError, match=f"type {kind}"):
            parse_debug_header(bytes([kind]) + bytes(30), 0, 31)


def test_tracing_needs_a_debug_header():
    with pytest.raises(LocalProtocolError, match="TR needs a DebugHeader"):
        binary(base=BaseHeader(tracing=True)).encode()


def test_a_multi_queue_format_header_has_limits():
    element = FormatNameElement(type=FormatType.DIRECT, direct="a")
    with pytest.raises(LocalProtocolError, match="ElementCount"):
        MultiQueueFormatHeader(destination=(element,) * (FORMAT_NAMES_MAX + 1)).encode()
    data = put(MultiQueueFormatHeader(destination=(element,)).encode(), 8, FORMAT_NAMES_MAX + 1, 4)
    with pytest.raises(LimitExceededError, match="FORMAT_NAMES_MAX"):
        parse_multi_queue_format_header(data, 0, len(data))
    long = MultiQueueFormatHeader(
        destination=(replace(element, direct="x" * DIRECT_NAME_WCHARS_MAX),)
    ).encode()
    with pytest.raises(LimitExceededError, match="DIRECT_NAME_WCHARS_MAX"):
        parse_multi_queue_format_header(long, 0, len(long))


@pytest.mark.parametrize(
    ("size", "count", "error"),
    [(11, 1, "size 11"), (10_000, 1, "MQFAddressHeader needs 10000"), (12, 1, "FormatType needs")],
)
def test_a_list_of_format_names_that_does_not_fit(size, count, error):
    data = MultiQueueFormatHeader(
        destination=(FormatNameElement(type=FormatType.PUBLIC, guid=GUID),)
    ).encode()
    data = put(put(data, 0, size, 4), 8, count, 4)
    with pytest.raises(RemoteProtocolError, match=error):
        parse_multi_queue_format_header(data, 0, len(data))


def test_trailers_of_a_server_are_188_bytes():
    """ "SQ and EA MUST be 1": [MS-MQRR] 2.2.5.2."""
    data = REQUIRED_TRAILERS.encode()
    assert (len(data), data[:12]) == (188, bytes.fromhex("0c000000 b0000000 12 000000"))
    assert parse_trailers(data, 0, 188) == (
        Trailers(subqueue=SubqueueHeader(), received_from=replace(NO_ADDRESS, address=bytes(16))),
        188,
    )


def test_dead_letter_header_counts_its_padding():
    data = Trailers(dead_letter=DeadLetterHeader(path_name="ab")).encode()
    assert data == bytes.fromhex("0c000000 0c000000 01000000 0c000000 6100 6200 0000 0000")


@pytest.mark.parametrize(
    ("at", "value"), [(0, 11), (0, 5000), (4, 5000), (12, 147), (12, 177), (160, 27), (160, 29)]
)
def test_trailers_whose_sizes_do_not_hold_together(at, value):
    data = put(REQUIRED_TRAILERS.encode(), at, value, 4)
    with pytest.raises(RemoteProtocolError):
        parse_trailers(data, 0, len(data))


def test_a_trailer_may_be_larger_than_we_know_it():
    """HeaderSize is there for this: a later version's field behind ours is passed over."""
    data = REQUIRED_TRAILERS.encode()
    grown = put(put(data[:12] + data[12:160] + b"more" + data[160:], 12, 152, 4), 4, 180, 4)
    assert parse_trailers(grown, 0, len(grown)) == (parse_trailers(data, 0, 188)[0], 192)


def test_a_subqueue_name_fits_its_field():
    assert len(SubqueueHeader(subqueue_name="x" * 31).encode()) == 148
    with pytest.raises(LocalProtocolError, match="at most 31 characters"):
        SubqueueHeader(subqueue_name="x" * 32).encode()


def test_the_names_of_a_subqueue_header_fill_their_fields_with_zeros():
    """2.2.5.3: 64 bytes each, and nothing in the second one unless a move in a transaction names a target."""
    names = [
        SubqueueHeader(subqueue_name=one, target_subqueue_name=other).encode()[20:]
        for one, other in (("", ""), ("re", ""), ("", "po"), ("re", "po"))
    ]
    nothing, re, po = (each.ljust(64, b"\0") for each in (b"", b"r\0e", b"p\0o"))
    assert names == [nothing * 2, re + nothing, nothing + po, re + po]


def test_a_subqueue_header_without_a_name_says_nothing():
    """2.2.5.3: it is to be ignored then, whatever it counts."""
    counted = Trailers(
        subqueue=SubqueueHeader(abort_counter=7, move_counter=3, last_move_time=99),
        received_from=NO_ADDRESS,
    )
    said = [
        message_of(parse_message_packet(binary(trailers=each).encode()))
        for each in (counted, REQUIRED_TRAILERS)
    ]
    assert said[0] == said[1]


def test_a_dead_letter_queue_that_is_not_named_is_not_invalid():
    """DI beside no DeadLetterHeader is to be ignored."""
    user = replace(binary().user, negative_journaling=True)
    said = [
        message_of(
            parse_message_packet(
                binary(
                    user=user, trailers=replace(REQUIRED_TRAILERS, dead_letter_queue_invalid=each)
                ).encode()
            )
        )
        for each in (True, False)
    ]
    assert said[0] == said[1]
    assert said[0].dead_letter


def test_an_address_as_text():
    assert ip_address(bytes([192, 0, 2, 1])).text == "192.0.2.1"
    assert ip_address(IPV6).text == "2001:db8:0:1:0:0:0:2"
    assert NO_ADDRESS.text is None
    assert replace(NO_ADDRESS, address=bytes(16)).text is None, "as it is read"


@pytest.mark.parametrize(
    ("address", "written"),
    [
        (NO_ADDRESS, "0000 0000 00000000" + 16 * "00"),
        (ip_address(bytes([192, 0, 2, 1])), "0400 0100 00000000 c0000201" + 12 * "00"),
        (ip_address(IPV6, scope=4), "1000 0600 04000000" + IPV6.hex()),
    ],
    ids=["none", "IPv4", "IPv6"],
)
def test_an_extended_address_header(address, written):
    """2.2.5.5: AddressLength is that of the address, and not that of its field."""
    data = Trailers(received_from=address).encode()
    assert data[12:] == bytes.fromhex("1c000000" + written)
    read = parse_trailers(data, 0, len(data))[0].received_from
    assert read == replace(address, address=address.address.ljust(16, b"\0"))
    assert read is not None
    assert read.text == address.text


def test_bytes_behind_the_last_header_are_no_packet():
    data = binary().encode()
    assert parse_message_packet(data + bytes(3)) == binary()
    for extra in (4, 11):
        with pytest.raises(RemoteProtocolError, match=f"{extra} bytes after the last header"):
            parse_message_packet(data + bytes(extra))


def test_envelope_and_compound_message_come_together():
    with pytest.raises(LocalProtocolError, match="both"):
        binary(
            compound=CompoundMessageHeader(data=b"", msg_body_offset=0, msg_body_size=0)
        ).encode()


def test_a_transactional_message_is_written_with_priority_0():
    user = UserHeader(delivery_mode=1)
    transaction = TransactionHeader(sequence_id=1, sequence_number=1, previous_sequence_number=0)
    data = binary(base=BaseHeader(priority=5), user=user, transaction=transaction).encode()
    assert data[2] & 7 == 0
