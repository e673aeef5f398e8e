"""A packet as a message: the table of [MS-MQDMPR] 3.1.7.1.31, and what makes a row of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from packet_kit import GUID, GUID_2, SENT, binary, full_binary, sample, split_sections, srmp

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.message import Message, StreamId, StreamPosition
from srmp_spark.mqrr.message_of_packet import message_of
from srmp_spark.mqrr.packets.message_packet import parse_message_packet
from srmp_spark.mqrr.packets.message_properties_header import MessagePropertiesHeader
from srmp_spark.mqrr.packets.queue_names import QueueName, QueueNameType
from srmp_spark.mqrr.packets.sections import join_sections
from srmp_spark.mqrr.packets.security_header import SecurityHeader
from srmp_spark.mqrr.packets.user_header import UserHeader
from srmp_spark.rows.made_columns import format_name


def test_every_property_of_a_message():
    full = full_binary()
    assert message_of(full) == Message(
        destination=r"OS:host\private$\orders",
        action="MSMQ:Grüße",
        lineage=GUID,
        uniquifier=0x01020304,
        has_msmq=True,
        message_class=0xC004,
        priority=0,
        durable=True,
        stream=StreamPosition(StreamId(GUID, 0x1122334455667788), 9, 8),
        sent_at=SENT * 1_000_000,
        expires_at=(SENT + 3600) * 1_000_000,
        time_to_reach_queue=(SENT + 60) * 1_000_000,
        body=b"a body",
        body_type=8,
        extension=b"ext",
        correlation=bytes(range(20)),
        app_specific=77,
        hash_algorithm=0x800E,
        response_queue=f"PUBLIC={GUID}",
        delivery_receipt_to=None,  # NEGATIVE_ARRIVAL alone
        commitment_receipt_to=f"PRIVATE={GUID_2}\\00000021",
        commitment_positive=True,
        commitment_negative=False,
        journal=True,
        dead_letter=True,
        trace=True,
        first_in_transaction=True,
        last_in_transaction=True,
        connector_type=GUID_2,
        connector_qm=GUID_2,
        provider_type=1,
        provider_name="p",
        source_qm=GUID,
        destination_list=(
            r"DIRECT=OS:a\q",
            f"PUBLIC={GUID}",
            f"PRIVATE={GUID_2}\\000000ff",
            f"DL={GUID}",
        ),
        admin_list=(r"DIRECT=OS:b\admin",),
        signature="unverified",
        soap_body="<body/>",
    )


def test_what_a_sender_did_not_say():
    message = message_of(binary(b"x"))
    assert (
        message.expires_at,
        message.time_to_reach_queue,
        message.extension,
        message.correlation,
    ) == (None,) * 4
    assert (message.label, message.delivery, message.priority, message.signature) == (
        "",
        "express",
        3,
        "none",
    )
    assert (
        message.stream,
        message.response_queue,
        message.commitment_receipt_to,
        message.receipt,
    ) == (None,) * 4


def test_the_packets_that_others_made():
    message = message_of(parse_message_packet(sample("mqqb_f7_usermessage_completed")))
    assert (message.label, message.destination, len(message.body)) == (
        "mqsender label",
        r"OS:a04bm02\q",
        2000,
    )
    message = message_of(parse_message_packet(sample("msf_queuejumper_v2_srmp_generated")))
    assert (message.label, message.body) == ("poc", b"Message")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            QueueName(type=QueueNameType.DIRECT, direct="http://host/msmq/q"),
            "DIRECT=http://host/msmq/q",
        ),
        (QueueName(type=QueueNameType.DIRECT, direct="OS:host\\q"), "DIRECT=OS:host\\q"),
        (QueueName(type=QueueNameType.PUBLIC, guid=GUID), f"PUBLIC={GUID}"),
    ],
)
def test_a_destination_becomes_its_format_name_in_a_row(name, expected):
    message = message_of(binary(user=UserHeader(destination_queue=name)))
    assert format_name(message.destination) == expected


def test_a_message_without_a_destination_or_with_half_a_letter_is_a_row_all_the_same():
    properties = MessagePropertiesHeader(label="a\ud83d", message_body=b"x")
    packet = binary(
        user=UserHeader(), properties=properties, security=SecurityHeader(provider_info=b"\x01")
    )
    message = message_of(packet)
    assert (message.label, message.provider_type) == ("a\ufffd", None)
    assert format_name(message.destination) == ""


def test_the_first_message_of_a_sequence_starts_its_stream():
    full = full_binary()
    first = replace(
        full, transaction=replace(full.transaction, sequence_number=1, previous_sequence_number=0)
    )
    assert message_of(first).stream == StreamPosition(
        StreamId(GUID, 0x1122334455667788), 1, 0, start=True
    )


@pytest.mark.parametrize("packet", [binary(b"0123456789"), srmp()], ids=["binary", "srmp"])
def test_a_message_of_which_a_part_is_missing_is_none(packet):
    sections = split_sections(packet, 3)
    with pytest.raises(RemoteProtocolError, match="were not sent; read it again"):
        message_of(join_sections(sections))
