"""A row of which only the columns are left: as a record, moved, sealed again, and as the message that they describe."""

from __future__ import annotations

import pyarrow as pa
import pytest
from every_kind import every_kind
from rows_kit import ARRIVED, SENDER, message, record_of, varied

from srmp_spark.errors import StoreDamagedError
from srmp_spark.message import Arrival, StreamId, StreamPosition
from srmp_spark.mqrr.packet_of_message import PacketOrigin, packet_of
from srmp_spark.rows import segment
from srmp_spark.rows.decode import decode, rows_of
from srmp_spark.rows.group import Form, Record, pack_group, unpack_group

QM, EPOCH, QUEUE = "qm", "ab12", "private$/orders"


def every_row() -> list[tuple[int, Record]]:
    return list(enumerate([*every_kind(), *(record for _, record in varied(30))], 1))


def restored(pairs: list[tuple[int, Record]]) -> list[tuple[int, Record]]:
    """What a restore makes of the rows, read as records."""
    files = segment.segment_of_rows(rows_of(QM, EPOCH, QUEUE, pairs))
    return list(segment.records_of(files.columns, files.posts))


def test_every_column_is_as_it_was() -> None:
    pairs = every_row()
    before = rows_of(QM, EPOCH, QUEUE, pairs)
    null = [
        name
        for name in before.schema.names
        if before[name].null_count == len(pairs) and name != "envelope"
    ]
    assert null == [], "each column is in the test"
    found = restored(pairs)
    assert [record.form for _, record in found] == [Form.COLUMNS] * len(pairs)
    assert rows_of(QM, EPOCH, QUEUE, found).equals(before)
    moved = [pair for n, record in found for pair in unpack_group(pack_group(n, [record]))]
    assert moved == found
    assert rows_of(QM, EPOCH, QUEUE, moved, envelope=True).equals(before), "no envelope is invented"
    for names in (
        ("body",),
        ("message_id", "sequence"),
        ("body_text", "lookup_id"),
        ("arrived_at", "peer"),
    ):
        assert rows_of(QM, EPOCH, QUEUE, found, names=names).equals(before.select(names))


@pytest.mark.parametrize(
    "which", [lambda n: True, lambda n: n % 3 == 0], ids=["all", "every third"]
)
def test_they_are_sealed_alone_and_among_others_and_stored_once(which) -> None:
    pairs = every_row()
    mixed = [
        left if which(n) else pair
        for n, (pair, left) in enumerate(zip(pairs, restored(pairs), strict=True))
    ]
    files = segment.encode_segment(decode(QUEUE, mixed))
    assert segment.read_segment(files.columns, QM, EPOCH, QUEUE).equals(
        rows_of(QM, EPOCH, QUEUE, pairs)
    )
    assert list(segment.records_of(files.columns, files.posts)) == mixed
    assert list(segment.records_of(files.columns, files.posts, ((3, 4), (13, 13)))) == [
        mixed[2],
        mixed[3],
        mixed[12],
    ]
    unsealed = rows_of(QM, EPOCH, QUEUE, mixed, envelope=True)
    again = segment.read_segment(files.columns, QM, EPOCH, QUEUE, files.posts)["envelope"]
    assert again.equals(unsealed["envelope"]), "sealing changes no value"
    assert [each is None for each in again.to_pylist()] == [
        record.form is Form.COLUMNS for _, record in mixed
    ]


def test_a_row_that_is_sealed_again_takes_no_room_for_a_post() -> None:
    pairs = [(n, record_of(message(n, body=bytes(range(256)) * 40))) for n in range(1, 300)]
    once = segment.segment_of_rows(rows_of(QM, EPOCH, QUEUE, pairs))
    again = segment.encode_segment(decode(QUEUE, segment.records_of(once.columns, once.posts)))
    assert len(again.columns) == len(once.columns)
    assert len(again.posts) < 10_000


def test_a_segment_of_the_first_versions_is_read() -> None:
    """They wrote form 0 for a row without a post."""
    pairs = every_row()
    files = segment.segment_of_rows(rows_of(QM, EPOCH, QUEUE, pairs))
    posts = segment._posts_of(files.posts)
    forms = pa.array([0] * len(pairs), pa.uint8())
    columns = {name: forms if name == "form" else posts[name] for name in posts.schema.names}
    assert list(segment.records_of(files.columns, segment._file(columns, {}, "zstd"))) == restored(
        pairs
    )


def test_the_message_says_in_a_packet_what_the_one_that_came_said() -> None:
    pairs = every_row()
    before, after = decode(QUEUE, pairs), decode(QUEUE, restored(pairs))
    for (n, _), came, left in zip(pairs, before.messages, after.messages, strict=True):
        assert (
            packet_of(left, PacketOrigin()).encode() == packet_of(came, PacketOrigin()).encode()
        ), f"row {n}"


@pytest.mark.parametrize(
    "head", [b"", b"[]", b"{", b'{"unknown":1}', b'{"extension":7}', b'{"lookup_id":"x"}']
)
def test_a_damaged_record_names_queue_and_sequence(head: bytes) -> None:
    broken = Record(Arrival(ARRIVED, "http", ""), head + b"body", len(head), Form.COLUMNS)
    with pytest.raises(
        StoreDamagedError,
        match=r"row 7 of private\$/orders is stored but its columns cannot be read",
    ):
        rows_of(QM, EPOCH, QUEUE, [(7, broken)])


def test_a_stream_whose_name_cannot_be_read_costs_no_message() -> None:
    stream = StreamPosition(StreamId(SENDER, 7), 3, 2)
    batch = rows_of(
        QM, EPOCH, QUEUE, [(1, record_of(message(1, durable=True, priority=0, stream=stream)))]
    )
    at = batch.schema.get_field_index("stream_id")
    files = segment.segment_of_rows(batch.set_column(at, "stream_id", pa.array(["nonsense"])))
    (found,) = decode(QUEUE, segment.records_of(files.columns, files.posts)).messages
    assert found.stream == StreamPosition(StreamId("nonsense", 0), 3, 2)
    assert packet_of(found, PacketOrigin()).transaction is not None
