"""The packets that others printed, captured or built: each field where the document puts it, and the same bytes again."""

from __future__ import annotations

import pytest
from packet_kit import SAMPLES, sample

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.mqrr.packets.base_header import INFINITE
from srmp_spark.mqrr.packets.message_packet import parse_message_packet
from srmp_spark.mqrr.packets.message_properties_header import Acknowledgements
from srmp_spark.mqrr.packets.security_header import SenderIdType
from srmp_spark.mqrr.packets.trailers import Trailers

BINARY = sample("mqqb_f7_usermessage_completed")
SRMP = sample("msf_queuejumper_v2_srmp_generated")


@pytest.mark.parametrize("data", [BINARY, SRMP], ids=["binary", "srmp"])
def test_parsed_and_written_again_the_same_bytes_come_out(data):
    assert parse_message_packet(data).encode() == data


def test_the_user_message_that_ms_mqqb_prints():
    packet = parse_message_packet(BINARY)
    assert (packet.priority, packet.base.time_to_reach_queue, packet.base.reserved) == (
        3,
        0x00054600,
        0,
    )
    assert packet.id == r"{557358d1-9150-9595-4997-b6e611ea26c6}" + "\\2286"
    assert packet.user.time_to_be_received == INFINITE
    assert packet.user.format_names() == (r"DIRECT=OS:a04bm02\q", None, None)
    assert (packet.delivery, packet.user.hop_count) == ("express", 0)
    assert packet.security is not None
    assert packet.security.sender_id_type == SenderIdType.SID
    assert packet.security.security_id[:8] == bytes.fromhex("0105000000000005")  # S-1-5-…
    properties = packet.properties
    assert properties.acknowledgements == sum(Acknowledgements)
    assert (properties.label, properties.body_type, properties.hash_algorithm) == (
        "mqsender label",
        8,
        0x8004,
    )
    assert properties.encryption_algorithm == 0x6801
    assert packet.body == "a".encode("utf-16-le") * 1000
    # It came from one queue manager to another, and not by a remote read
    assert packet.trailers is None


def test_the_srmp_message_of_an_independent_builder():
    packet = parse_message_packet(SRMP)
    assert packet.envelope is not None
    assert packet.envelope.header_id == 0
    assert packet.envelope.data.startswith("<se:Envelope xmlns:se=")
    assert packet.envelope.data.endswith("</se:Envelope>\r\n\r\n")
    assert packet.compound is not None
    assert packet.compound.header_id == 500
    assert packet.compound.data.startswith(b"POST /msmq HTTP/1.1\r\n")
    assert packet.body == b"Message"
    assert packet.properties.label == "poc"
    assert packet.user.hop_count == 1
    assert packet.user.format_names()[0] == "DIRECT=http://192.168.10.100/msmq/private$/queuejumper"
    assert packet.trailers == Trailers()


def test_the_printed_packet_is_cut_and_says_so():
    with pytest.raises(RemoteProtocolError, match="MessageBody needs 2000 bytes and 1428 are left"):
        parse_message_packet(sample("mqqb_f7_usermessage_truncated"))


@pytest.mark.parametrize(
    "name",
    sorted(
        path.stem
        for path in SAMPLES.glob("*.hex")
        if "usermessage" not in path.stem and "srmp" not in path.stem
    ),
)
def test_what_is_no_user_message_is_refused(name):
    with pytest.raises(RemoteProtocolError, match=r"no MSMQ packet|an internal packet"):
        parse_message_packet(sample(name))


def test_every_sample_is_used():
    assert len(list(SAMPLES.glob("*.hex"))) == 11
