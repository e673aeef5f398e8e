"""Rows of all forms and transports, with every column that a sender can fill."""

from __future__ import annotations

from dataclasses import replace
from struct import Struct

from rows_kit import ARRIVED, SENDER, SENT, STREAM_RECEIPT, message, record_of

from srmp_spark.message import Arrival, Message, Receipt, StreamId, StreamPosition
from srmp_spark.mqrr.packet_of_message import PacketOrigin, packet_of
from srmp_spark.mqrr.packets.multi_queue_format_header import (
    FormatNameElement,
    FormatType,
    MultiQueueFormatHeader,
)
from srmp_spark.mqrr.packets.soap_header import SoapHeader
from srmp_spark.rows.group import Form, Record
from srmp_spark.srmp.codec.encoder import http_head
from srmp_spark.wsrm.codec.elements import EndpointReference, Sequence, SoapMessage
from srmp_spark.wsrm.codec.encoder import encode
from srmp_spark.wsrm.codec.namespaces import AddressingVersion, RmVersion, SoapVersion

ADMIN, RESPONSE = "DIRECT=HTTP://a/msmq/private$/admin", "DIRECT=HTTP://a/msmq/private$/response"
FULL: dict[str, object] = {
    "action": "MSMQ:Größe & <mehr>\n", "priority": 6, "durable": True, "message_class": 0x8001, "body": b"\x00\xff\r\n{}",
    "body_type": 17, "extension": b"\x00ext", "correlation": bytes(range(20)), "app_specific": 2**32 - 1,
    "response_queue": RESPONSE, "commitment_receipt_to": ADMIN, "commitment_positive": True, "commitment_negative": True,
    "delivery_receipt_to": ADMIN, "journal": True, "dead_letter": True, "trace": True, "connector_type": SENDER,
    "provider_name": "a provider", "provider_type": 2**63 + 1, "hash_algorithm": 32_780,
    "destination_list": ("DIRECT=OS:a\\private$\\b", "PUBLIC=" + SENDER), "admin_list": (ADMIN,), "response_list": (RESPONSE,),
}  # fmt: skip


def as_packet(lookup_id: int, **fields: object) -> Record:
    """A message that a subscription read, with what a packet says in headers of its own."""
    packet = packet_of(message(77, **fields), PacketOrigin())
    lists = MultiQueueFormatHeader(
        destination=(FormatNameElement(type=FormatType.DIRECT, direct="OS:a\\private$\\c"),)
    )
    data = replace(
        packet, multi_queue_format=lists, soap=SoapHeader(header="<h/>", body="<b>ü</b>")
    ).encode()
    place = Struct("<Q").pack(lookup_id)
    return Record(
        Arrival(ARRIVED, "mqrr", "192.0.2.9:1801", "DOMAIN\\reader"),
        place + data,
        len(place),
        Form.PACKET,
    )


def as_soap() -> Record:
    """A message of WS-ReliableMessaging."""
    soap = SoapMessage(
        soap=SoapVersion.V1_2, addressing=AddressingVersion.V2005_08, rm=RmVersion.V1_1, action="urn:act", to="http://a/wsrm/q",
        sequence=Sequence("urn:uuid:sequence", 2**63 - 1), body=b"<x xmlns='urn:x'>1</x>",
        reply_to=EndpointReference("http://client.example/replies"),
    )  # fmt: skip
    content = encode(soap)
    head = http_head("/wsrm/q", "a", b"application/soap+xml", len(content))
    return Record(Arrival(ARRIVED, "wsrm", "192.0.2.8:5"), head + content, len(head), Form.WSRM)


def every_kind() -> list[Record]:
    """By SRMP, signed and not, by the API, by multicast, by a subscription and by WS-ReliableMessaging."""
    api = Arrival(ARRIVED, "api", "")
    pgm = Arrival(ARRIVED, "pgm", "192.0.2.7:1")
    stream = StreamPosition(StreamId(SENDER, 2**63 + 7), 9, 7)
    signed = record_of(message(8))
    return [
        record_of(message(1, **FULL)),
        record_of(message(2**64 - 1, action="no prefix", expires_at=None, body=b"")),
        record_of(
            message(
                3,
                durable=True,
                priority=0,
                stream=stream,
                first_in_transaction=True,
                connector_qm=SENDER,
            )
        ),
        record_of(message(4, receipt=STREAM_RECEIPT, body=b"", message_class=0xFF)),
        record_of(
            message(5, receipt=Receipt("commitment", SENDER, 2**64 - 2, SENT, "negative"), body=b"")
        ),
        record_of(message(6, body="text in UTF-16".encode("utf-16-le"), body_type=8), api),
        record_of(message(7, destination="MSMQ:MULTICAST=239.1.2.3:4711"), pgm),
        Record(signed.arrival, signed.post, signed.head_length, Form.SRMP_VALID),
        record_of(Message("http://m/msmq/q", body=b"without <Msmq>")),
        as_packet(2**64 - 1, **FULL),
        as_packet(5, stream=stream, durable=True, priority=0, last_in_transaction=True),
        as_soap(),
    ]
