"""Messages of WS-ReliableMessaging as rows: before and after sealing, with what SRMP stored beside them."""

from __future__ import annotations

import pytest
from rows_kit import varied

from srmp_spark.errors import StoreDamagedError
from srmp_spark.message import Arrival
from srmp_spark.rows.decode import decode, rows_of
from srmp_spark.rows.group import Form, Record, pack_group, unpack_group
from srmp_spark.rows.segment import encode_segment, read_segment, records_of
from srmp_spark.wsrm.codec.elements import EndpointReference, Sequence, SoapMessage
from srmp_spark.wsrm.codec.encoder import encode
from srmp_spark.wsrm.codec.namespaces import AddressingVersion, RmVersion, SoapVersion

HEAD = (
    b"POST /wsrm/q HTTP/1.1\r\nHost: h\r\nContent-Type: "
    b"application/soap+xml\r\nContent-Length: 1\r\n\r\n"
)


def record(number: int, body: bytes = b"<x/>", **more: object) -> Record:
    soap = SoapMessage(
        soap=SoapVersion.V1_2, addressing=AddressingVersion.V2005_08, rm=RmVersion.V1_1, action="urn:a", to="http://h/wsrm/q",
        sequence=Sequence("urn:uuid:s", number), body=body, **more,
    )  # fmt: skip
    return Record(
        Arrival(1_000_000, "wsrm", "192.0.2.1:5"), HEAD + encode(soap), len(HEAD), Form.WSRM
    )


def test_the_columns() -> None:
    away = EndpointReference("http://client.example/replies")
    pairs = [(1, record(1)), (2, record(2, b"\xc3\xbc", reply_to=away))]
    first, second = rows_of("qm", "e", "q", pairs, envelope=True).to_pylist()
    assert (first["wsrm_sequence"], first["wsrm_number"], first["soap_action"]) == (
        "urn:uuid:s",
        1,
        "urn:a",
    )
    assert (first["body"], first["transport"], first["delivery"]) == (
        b"<x/>",
        "wsrm",
        "recoverable",
    )
    assert (first["destination"], first["response_queue"]) == ("DIRECT=http://h/wsrm/q", None)
    assert first["envelope"].encode() == pairs[0][1].content
    assert (second["wsrm_number"], second["body_text"], second["response_queue"]) == (
        2,
        "ü",
        away.address,
    )
    assert (first["message_id"], first["lineage"], first["uniquifier"]) == (None, None, None), (
        "it has no identifier of MSMQ"
    )
    assert (first["soap_body"], first["stream_id"], first["sent_at"]) == (None, None, None)


def test_a_group_and_a_segment_keep_them() -> None:
    pairs = [(sequence, record(sequence, b"<y>%d</y>" % sequence)) for sequence in (7, 8)]
    assert list(unpack_group(pack_group(7, [each for _, each in pairs]))) == pairs
    decoded = decode("q", pairs)
    assert [each and each.number for each in decoded.numbered] == [7, 8]


def test_a_segment_gives_back_rows_and_posts_also_beside_srmp() -> None:
    mixed = [
        *varied(6),
        *((sequence, record(sequence, b"<y>%d</y>" % sequence)) for sequence in (90, 91)),
    ]
    for pairs in (mixed, mixed[-2:]):
        files = encode_segment(decode("q", pairs))
        for envelope in (False, True):
            read = read_segment(files.columns, "qm", "e", "q", files.posts if envelope else None)
            assert read.equals(rows_of("qm", "e", "q", pairs, envelope))
        assert list(records_of(files.columns, files.posts)) == pairs


def test_a_stored_message_that_cannot_be_read_is_damage() -> None:
    broken = record(1)._replace(post=HEAD + b"<x/>")
    with pytest.raises(StoreDamagedError, match="row 3 of q is stored but cannot be decoded"):
        rows_of("qm", "e", "q", [(3, broken)])
