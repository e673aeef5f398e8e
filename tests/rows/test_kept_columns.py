"""A row of which only the columns are left: as a record, moved, sealed again, and as the message that they describe."""

from __future__ import annotations

from dataclasses import replace
from struct import Struct

import pyarrow as pa
import pytest
from rows_kit import ARRIVED, SENDER, SENT, STREAM_RECEIPT, message, record_of, varied

from srmp_spark.errors import StoreDamagedError
from srmp_spark.message import Arrival, Message, Receipt, StreamId, StreamPosition
from srmp_spark.mqrr.packet_of_message import Origin, packet_of
from srmp_spark.mqrr.packets.multi_queue_format_header import FormatNameElement, FormatType, MultiQueueFormatHeader
from srmp_spark.mqrr.packets.soap_header import SoapHeader
from srmp_spark.rows import segment
from srmp_spark.rows.decode import decode, rows_of
from srmp_spark.rows.group import Form, Record, pack_group, unpack_group
from srmp_spark.srmp.encoder import http_head
from srmp_spark.wsrm.elements import EndpointReference, Sequence, SoapMessage
from srmp_spark.wsrm.encoder import encode
from srmp_spark.wsrm.namespaces import AddressingVersion, RmVersion, SoapVersion

QM, EPOCH, QUEUE = "qm", "ab12", "private$/orders"
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
    packet = packet_of(message(77, **fields), Origin())
    lists = MultiQueueFormatHeader(destination=(FormatNameElement(type=FormatType.DIRECT, direct="OS:a\\private$\\c"),))
    data = replace(packet, multi_queue_format=lists, soap=SoapHeader(header="<h/>", body="<b>ü</b>")).encode()
    place = Struct("<Q").pack(lookup_id)
    return Record(Arrival(ARRIVED, "mqrr", "192.0.2.9:1801", "DOMAIN\\reader"), place + data, len(place), Form.PACKET)


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


def every_kind() -> list[tuple[int, Record]]:
    """Rows of all forms and transports, with every column that a sender can fill."""
    api = Arrival(ARRIVED, "api", "")
    pgm = Arrival(ARRIVED, "pgm", "192.0.2.7:1")
    stream = StreamPosition(StreamId(SENDER, 2**63 + 7), 9, 7)
    signed = record_of(message(8))
    records = [
        record_of(message(1, **FULL)),
        record_of(message(2**64 - 1, action="no prefix", expires_at=None, body=b"")),
        record_of(message(3, durable=True, priority=0, stream=stream, first_in_transaction=True, connector_qm=SENDER)),
        record_of(message(4, receipt=STREAM_RECEIPT, body=b"", message_class=0xFF)),
        record_of(message(5, receipt=Receipt("commitment", SENDER, 2**64 - 2, SENT, "negative"), body=b"")),
        record_of(message(6, body="text in UTF-16".encode("utf-16-le"), body_type=8), api),
        record_of(message(7, destination="MSMQ:MULTICAST=239.1.2.3:4711"), pgm),
        Record(signed.arrival, signed.post, signed.head_length, Form.SRMP_VALID),
        record_of(Message("http://m/msmq/q", body=b"without <Msmq>")),
        as_packet(2**64 - 1, **FULL),
        as_packet(5, stream=stream, durable=True, priority=0, last_in_transaction=True),
        as_soap(),
        *(record for _, record in varied(30)),
    ]
    return list(enumerate(records, 1))


def restored(pairs: list[tuple[int, Record]]) -> list[tuple[int, Record]]:
    """What a restore makes of the rows, read as records."""
    files = segment.segment_of_rows(rows_of(QM, EPOCH, QUEUE, pairs))
    return list(segment.records_of(files.columns, files.posts))


def test_every_column_is_as_it_was() -> None:
    pairs = every_kind()
    before = rows_of(QM, EPOCH, QUEUE, pairs)
    null = [name for name in before.schema.names if before[name].null_count == len(pairs) and name != "envelope"]
    assert null == [], "each column is in the test"
    found = restored(pairs)
    assert [record.form for _, record in found] == [Form.COLUMNS] * len(pairs)
    assert rows_of(QM, EPOCH, QUEUE, found).equals(before)
    moved = [pair for n, record in found for pair in unpack_group(pack_group(n, [record]))]
    assert moved == found
    assert rows_of(QM, EPOCH, QUEUE, moved, envelope=True).equals(before), "no envelope is invented"
    for names in (("body",), ("message_id", "sequence"), ("body_text", "lookup_id"), ("arrived_at", "peer")):
        assert rows_of(QM, EPOCH, QUEUE, found, names=names).equals(before.select(names))


@pytest.mark.parametrize("which", [lambda n: True, lambda n: n % 3 == 0], ids=["all", "every third"])
def test_they_are_sealed_alone_and_among_others_and_stored_once(which) -> None:
    pairs = every_kind()
    mixed = [left if which(n) else pair for n, (pair, left) in enumerate(zip(pairs, restored(pairs), strict=True))]
    files = segment.encode_segment(decode(QUEUE, mixed))
    assert segment.read_segment(files.columns, QM, EPOCH, QUEUE).equals(rows_of(QM, EPOCH, QUEUE, pairs))
    assert list(segment.records_of(files.columns, files.posts)) == mixed
    assert list(segment.records_of(files.columns, files.posts, ((3, 4), (13, 13)))) == [mixed[2], mixed[3], mixed[12]]
    again = segment.read_segment(files.columns, QM, EPOCH, QUEUE, files.posts)["envelope"]
    assert [each is None for each in again.to_pylist()] == [
        record.form in (Form.COLUMNS, Form.PACKET) for _, record in mixed
    ]


def test_a_row_that_is_sealed_again_takes_no_room_for_a_post() -> None:
    pairs = [(n, record_of(message(n, body=bytes(range(256)) * 40))) for n in range(1, 300)]
    once = segment.segment_of_rows(rows_of(QM, EPOCH, QUEUE, pairs))
    again = segment.encode_segment(decode(QUEUE, segment.records_of(once.columns, once.posts)))
    assert len(again.columns) == len(once.columns)
    assert len(again.posts) < 10_000


def test_a_segment_of_the_first_versions_is_read() -> None:
    """They wrote form 0 for a row without a post."""
    pairs = every_kind()
    files = segment.segment_of_rows(rows_of(QM, EPOCH, QUEUE, pairs))
    posts = segment._posts_of(files.posts)
    forms = pa.array([0] * len(pairs), pa.uint8())
    columns = {name: forms if name == "form" else posts[name] for name in posts.schema.names}
    assert list(segment.records_of(files.columns, segment._file(columns, {}, "zstd"))) == restored(pairs)


def test_the_message_says_in_a_packet_what_the_one_that_came_said() -> None:
    pairs = every_kind()
    before, after = decode(QUEUE, pairs), decode(QUEUE, restored(pairs))
    for (n, _), came, left in zip(pairs, before.messages, after.messages, strict=True):
        assert packet_of(left, Origin()).encode() == packet_of(came, Origin()).encode(), f"row {n}"


@pytest.mark.parametrize("head", [b"", b"[]", b"{", b'{"unknown":1}', b'{"extension":7}', b'{"lookup_id":"x"}'])
def test_a_damaged_record_names_queue_and_sequence(head: bytes) -> None:
    broken = Record(Arrival(ARRIVED, "http", ""), head + b"body", len(head), Form.COLUMNS)
    with pytest.raises(StoreDamagedError, match=r"row 7 of private\$/orders is stored but its columns cannot be read"):
        rows_of(QM, EPOCH, QUEUE, [(7, broken)])


def test_a_stream_whose_name_cannot_be_read_costs_no_message() -> None:
    stream = StreamPosition(StreamId(SENDER, 7), 3, 2)
    batch = rows_of(QM, EPOCH, QUEUE, [(1, record_of(message(1, durable=True, priority=0, stream=stream)))])
    at = batch.schema.get_field_index("stream_id")
    files = segment.segment_of_rows(batch.set_column(at, "stream_id", pa.array(["nonsense"])))
    (found,) = decode(QUEUE, segment.records_of(files.columns, files.posts)).messages
    assert found.stream == StreamPosition(StreamId("nonsense", 0), 3, 2)
    assert packet_of(found, Origin()).transaction is not None
