"""What the tests of the packet codec share: the saved packets, and a message with every header that can be there."""

from __future__ import annotations

from pathlib import Path

from srmp_spark.mqrr.packets.base_header import BaseHeader
from srmp_spark.mqrr.packets.debug_header import DebugHeader
from srmp_spark.mqrr.packets.host_address import ip_address
from srmp_spark.mqrr.packets.message_packet import MessagePacket
from srmp_spark.mqrr.packets.message_properties_header import (
    Acknowledgements,
    MessagePropertiesHeader,
)
from srmp_spark.mqrr.packets.multi_queue_format_header import (
    FormatNameElement,
    FormatType,
    MultiQueueFormatHeader,
)
from srmp_spark.mqrr.packets.queue_names import QueueName, QueueNameType, direct_queue
from srmp_spark.mqrr.packets.sections import SectionBuffer, cut_sections
from srmp_spark.mqrr.packets.security_header import SecurityHeader, SenderIdType
from srmp_spark.mqrr.packets.session_header import SessionHeader
from srmp_spark.mqrr.packets.soap_header import SoapHeader
from srmp_spark.mqrr.packets.srmp_headers import CompoundMessageHeader, SRMPEnvelopeHeader
from srmp_spark.mqrr.packets.trailers import DeadLetterHeader, SubqueueHeader, Trailers
from srmp_spark.mqrr.packets.transaction_header import TransactionHeader
from srmp_spark.mqrr.packets.user_header import DeliveryMode, UserHeader, address_overlay

SAMPLES = Path(__file__).resolve().parents[1] / "data" / "msmq"
GUID = "11223344-5566-7788-99aa-bbccddeeff00"
GUID_2 = "a1a2a3a4-b1b2-c1c2-d1d2-d3d4d5d6d7d8"
IPV6 = bytes.fromhex("20010db8000000010000000000000002")
SENT = 1_790_000_000


def sample(name: str) -> bytes:
    """A saved packet."""
    lines = (SAMPLES / f"{name}.hex").read_text().splitlines()
    return bytes.fromhex("".join(line for line in lines if not line.startswith("#")))


def binary(body: bytes = b"hello", **more: object) -> MessagePacket:
    """The smallest binary message: three headers."""
    user = UserHeader(
        source_queue_manager=GUID,
        message_id=7,
        sent_time=SENT,
        destination_queue=direct_queue(r"OS:host\q"),
    )
    fields: dict[str, object] = {
        "base": BaseHeader(), "user": user, "properties": MessagePropertiesHeader(message_body=body), **more,
    }  # fmt: skip
    return MessagePacket(**fields)  # type: ignore[arg-type]


def srmp(data: bytes = b"POST / HTTP/1.1\r\n\r\nhello", **more: object) -> MessagePacket:
    """The smallest SRMP message. Its body is the last five bytes of ``data``."""
    fields: dict[str, object] = {
        "properties": MessagePropertiesHeader(label="a label"),
        "envelope": SRMPEnvelopeHeader(data="<se:Envelope/>"),
        "compound": CompoundMessageHeader(
            data=data, msg_body_offset=len(data) - 5, msg_body_size=5
        ),
        **more,
    }
    return binary(b"", **fields)


def full_binary() -> MessagePacket:
    """Every header that a binary message can have, every field with a value of its own."""
    return MessagePacket(
        base=BaseHeader(priority=0, tracing=True, time_to_reach_queue=SENT + 60, reserved=0x5A),
        user=UserHeader(
            source_queue_manager=GUID, queue_manager_address=address_overlay(ip_address(bytes([192, 0, 2, 1]))),
            time_to_be_received=3600, sent_time=SENT, message_id=0x01020304, hop_count=3,
            delivery_mode=DeliveryMode.RECOVERABLE, negative_journaling=True, positive_journaling=True,
            destination_queue=direct_queue(r"OS:host\private$\orders"),
            admin_queue=QueueName(type=QueueNameType.PRIVATE_ELSEWHERE, guid=GUID_2, private_id=0x21),
            response_queue=QueueName(type=QueueNameType.PUBLIC, guid=GUID), connector_type=GUID_2,
        ),
        transaction=TransactionHeader(
            final_ack=True, first_in_transaction=True, last_in_transaction=True, transaction_id=0xABCDE,
            sequence_id=0x1122334455667788, sequence_number=9, previous_sequence_number=8, connector_queue_manager=GUID_2,
        ),
        security=SecurityHeader(
            sender_id_type=SenderIdType.SID, authenticated=True, authentication_level=5,
            body_encrypted=True, default_provider=True, security_id=b"sid of 13 byt",
            encryption_key=b"k", signature=b"signature!", sender_cert=b"certificate", provider_info=b"\x01\0\0\0p\0\0\0",
        ),
        properties=MessagePropertiesHeader(
            acknowledgements=Acknowledgements.POSITIVE_RECEIVE | Acknowledgements.NEGATIVE_ARRIVAL, message_class=0xC004,
            correlation_id=bytes(range(20)), body_type=8, application_tag=77, allocation_body_size=64, privacy_level=5,
            hash_algorithm=0x800E, encryption_algorithm=0x6610, label="Grüße", extension_data=b"ext", message_body=b"a body",
        ),
        debug=DebugHeader(queue=GUID),
        soap=SoapHeader(header="<h/>", body="<body/>"),
        multi_queue_format=MultiQueueFormatHeader(
            destination=(
                FormatNameElement(type=FormatType.DIRECT, direct=r"OS:a\q"),
                FormatNameElement(type=FormatType.PUBLIC, guid=GUID),
                FormatNameElement(type=FormatType.PRIVATE, guid=GUID_2, private_id=0xFF),
                FormatNameElement(type=FormatType.DISTRIBUTION_LIST, guid=GUID),
            ),
            administration=(FormatNameElement(type=FormatType.DIRECT, direct=r"OS:b\admin"),),
            signature=b"list",
        ),
        session=SessionHeader(
            ack_sequence_number=1, recoverable_msg_ack_seq_number=2, recoverable_msg_ack_flags=3, user_msg_sequence_number=4,
            recoverable_msg_seq_number=5, window_size=6,
        ),
        trailers=Trailers(
            dead_letter_queue_invalid=True,
            subqueue=SubqueueHeader(
                acknowledgement_class=0xC004, abort_counter=1, move_counter=2, last_move_time=3, subqueue_name="poison",
                target_subqueue_name="retry",
            ),
            dead_letter=DeadLetterHeader(path_name=r"DIRECT=OS:c\dead"),
            received_from=ip_address(IPV6, scope=4),
        ),
    )  # fmt: skip


def put(data: bytes, at: int, value: int, size: int) -> bytes:
    """``data`` with another number at ``at``."""
    return data[:at] + value.to_bytes(size, "little") + data[at + size :]


def split_sections(packet: MessagePacket, limit: int) -> tuple[SectionBuffer, ...]:
    """The sections of ``packet`` for a reader that wants ``limit`` bytes of its body."""
    srmp = packet.compound is not None
    return cut_sections(
        packet.encode_pieces(),
        srmp=srmp,
        max_body_size=0 if srmp else limit,
        max_compound_message_size=limit if srmp else 0,
    )
