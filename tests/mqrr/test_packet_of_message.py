"""A message of ours as a packet, and the same message out of it again ([MS-MQRR] 2.2.5.1.2, [MS-MQDMPR] 3.1.7.1.32)."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from packet_kit import GUID, GUID_2, SENT

from srmp_spark.errors import LocalProtocolError
from srmp_spark.message import Message, StreamId, StreamPosition
from srmp_spark.mqrr.message_of_packet import message_of
from srmp_spark.mqrr.packet_of_message import ArrivedPost, PacketOrigin, packet_of
from srmp_spark.mqrr.packets.base_header import INFINITE
from srmp_spark.mqrr.packets.host_address import NO_ADDRESS, HostAddress, ip_address
from srmp_spark.mqrr.packets.message_packet import parse_message_packet
from srmp_spark.mqrr.packets.queue_names import NO_QUEUE
from srmp_spark.queue_manager.reader.remote_messages import _address

MESSAGE = Message(
    destination="http://host/msmq/private$/orders", action="MSMQ:a label", lineage=GUID, uniquifier=7, has_msmq=True,
    priority=5, sent_at=SENT * 1_000_000, expires_at=(SENT + 60) * 1_000_000, time_to_reach_queue=(SENT + 30) * 1_000_000,
    body=b"hello", body_type=8, source_qm=GUID, response_queue="DIRECT=OS:back\\q", commitment_receipt_to="DIRECT=OS:admin\\q",
    commitment_positive=True,
)  # fmt: skip
DATA = b"POST /msmq/private$/orders HTTP/1.1\r\nContent-Length: 9\r\n\r\n...hello."
POST = ArrivedPost("<se:Envelope/>", DATA, len(DATA) - 6, 5)


def again(message: Message, origin: PacketOrigin = PacketOrigin()) -> Message:  # noqa: B008  # a frozen value
    return message_of(parse_message_packet(packet_of(message, origin).encode()))


def test_a_message_that_came_over_http_keeps_its_post():
    packet = parse_message_packet(
        packet_of(
            MESSAGE, PacketOrigin(post=POST, received_from=ip_address(bytes([192, 0, 2, 9])))
        ).encode()
    )
    assert packet.envelope is not None
    assert packet.compound is not None
    assert (packet.envelope.data, packet.compound.data, packet.body) == (
        "<se:Envelope/>",
        DATA,
        b"hello",
    )
    assert packet.properties.message_size == 0  # as in the packets that were seen
    assert packet.trailers is not None
    assert packet.trailers.received_from is not None
    assert packet.trailers.received_from.text == "192.0.2.9"
    assert packet.user.received_from is not None
    assert packet.user.received_from.text == "192.0.2.9"
    assert message_of(packet) == MESSAGE


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("192.0.2.9:52000", ip_address(bytes([192, 0, 2, 9]))),
        ("[2001:db8::9]:52000", ip_address(bytes.fromhex("20010db8") + bytes(11) + b"\x09")),
        ("[fe80::9%eth0]:52000", ip_address(b"\xfe\x80" + bytes(13) + b"\x09", scope=0)),
        ("api", NO_ADDRESS),
    ],
)
def test_the_host_of_a_message_is_that_of_its_peer(peer: str, host: HostAddress):
    """[MS-MQRR] 2.2.5.1, 2.2.5.5. The zone of an address is an interface of this machine, and is left out."""
    assert _address(peer) == host


def test_any_other_is_a_binary_message():
    packet = packet_of(MESSAGE, PacketOrigin())
    assert (packet.envelope, packet.compound, packet.properties.message_body) == (
        None,
        None,
        b"hello",
    )
    assert again(MESSAGE) == MESSAGE


def test_trailers_that_must_be_there_are_there():
    trailers = packet_of(MESSAGE, PacketOrigin()).trailers
    assert trailers is not None
    assert trailers.subqueue is not None
    assert trailers.received_from is not None
    assert len(trailers.encode()) == 188


def test_a_body_that_is_not_in_the_post_is_our_own_mistake():
    with pytest.raises(LocalProtocolError, match="does not lie where its POST"):
        packet_of(MESSAGE, PacketOrigin(post=POST._replace(body_offset=0)))


def test_a_transactional_message():
    stream = StreamPosition(StreamId(GUID, 0x1122334455667788), 1, 0, start=True)
    message = MESSAGE._replace(
        stream=stream, first_in_transaction=True, connector_qm=GUID_2, priority=0, durable=True
    )
    assert again(message) == message


def test_what_does_not_fit_is_cut_and_what_cannot_be_named_is_left_out():
    message = MESSAGE._replace(
        uniquifier=2**40 + 7, app_specific=2**33 + 1, message_class=0x1C004, expires_at=2**60, time_to_reach_queue=2**60,
        action="MSMQ:" + "😀" * 200, destination="MSMQ:MULTICAST=234.1.1.1:8001", correlation=b"short",
    )  # fmt: skip
    packet = packet_of(message, PacketOrigin())
    assert (
        packet.user.message_id,
        packet.properties.application_tag,
        packet.properties.message_class,
    ) == (7, 1, 0xC004)
    assert packet.properties.label == "😀" * 124  # two WCHARs each, whole ones
    assert packet.user.time_to_be_received == packet.base.time_to_reach_queue == INFINITE - 1
    assert packet.user.destination_queue == NO_QUEUE
    assert packet.properties.correlation_id == b"short".ljust(20, b"\0")
    parse_message_packet(packet.encode())


guids = st.sampled_from([GUID, GUID_2])
text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
queue = st.sampled_from(
    ["DIRECT=OS:a\\q", "DIRECT=http://a/msmq/q", f"PUBLIC={GUID}", f"PRIVATE={GUID_2}\\0000002a"]
)
seconds = st.integers(SENT, SENT + 10**6).map(lambda moment: moment * 1_000_000)
messages = st.builds(
    Message, destination=st.sampled_from(["OS:a\\q", "http://a/msmq/private$/q", f"MSMQ:PUBLIC={GUID}"]),
    action=text.map("MSMQ:".__add__), lineage=guids, uniquifier=st.integers(0, 2**32 - 1), has_msmq=st.just(True),
    message_class=st.integers(0, 0xFFFF), priority=st.integers(0, 7), durable=st.booleans(), stream=st.none(),
    receipt=st.none(),
    sent_at=st.just(SENT * 1_000_000), expires_at=st.none() | seconds, time_to_reach_queue=st.none() | seconds,
    body=st.binary(max_size=30), body_type=st.integers(0, 2**32 - 1), extension=st.none() | st.binary(min_size=1, max_size=9),
    correlation=st.none() | st.binary(min_size=20, max_size=20).filter(any), app_specific=st.integers(0, 2**32 - 1),
    hash_algorithm=st.none() | st.integers(1, 2**32 - 1), response_queue=st.none() | queue, delivery_receipt_to=st.none(),
    commitment_receipt_to=queue, commitment_positive=st.just(True), commitment_negative=st.booleans(), journal=st.booleans(),
    dead_letter=st.booleans(), trace=st.booleans(), first_in_transaction=st.just(False), last_in_transaction=st.just(False),
    connector_type=st.none() | guids, connector_qm=st.none(), provider_type=st.none(), provider_name=st.none(),
    source_qm=st.none(), destination_list=st.just(()), admin_list=st.just(()), response_list=st.just(()),
    signature=st.just("none"), soap_action=st.none(), soap_body=st.none(),
)  # fmt: skip


@settings(max_examples=50, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
@given(messages)
def test_every_message_comes_out_of_its_packet_again(message):
    assert again(message) == message._replace(source_qm=message.lineage)
