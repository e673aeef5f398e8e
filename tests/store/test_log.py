"""Reading the log: bounds, where a batch ends, and pieces that stay right while others seal and delete."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_kit import NOW, QUEUE, Store, record, srmp_record

from srmp_spark.errors import StoreDamagedError
from srmp_spark.rows.group import unpack_group
from srmp_spark.sequences.ranges import gaps
from srmp_spark.sequences.sequence_set import SequenceSet
from srmp_spark.store.database import sweeper
from srmp_spark.store.stored_rows import log as log_module
from srmp_spark.store.stored_rows import reading, retention, sealing
from srmp_spark.store.stored_rows.log import (
    GroupChunk,
    Log,
    PastTheEndError,
    QueueNotInLogError,
    SegmentChunk,
    TrimmedError,
    UnknownEpochError,
)
from srmp_spark.store.tables import queues, state
from tests.kit.offline_purge import purge


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "data")
    yield opened
    opened.close()


@pytest.fixture
def log(store: Store) -> Iterator[Log]:
    with Log(store.directory.database, store.directory.segments) as opened:
        yield opened


def seal(store: Store, log: Log) -> sealing.Sealed:
    plan = sealing.plan(log, QUEUE, NOW + 10**12)
    assert plan is not None
    sealed = sealing.write_segment(log, plan, store.directory.segments)
    assert store.call(
        lambda t: sealing.commit_segment(
            t, sealing.Sealed.from_json(sealed.to_json()), store.directory.segments
        )
    )
    return sealed


def sweep(store: Store) -> None:
    while store.call(sweeper.sweep):
        pass


def sequences(log: Log, after: int, to: int) -> list[int]:
    return [sequence for sequence, _ in reading.records(log, QUEUE, None, after, to)]


def received(
    store: Store, to: int, name: str = "default", ahead: list[tuple[int, int]] | None = None
) -> None:
    consumer = state.StoredConsumer(QUEUE, name, to, SequenceSet(ahead or []), None, None, None)
    store.call(lambda t: state.save_consumer(t.connection, store.queue_id, consumer))


def test_an_empty_queue(store: Store, log: Log) -> None:
    bounds = log.bounds(QUEUE)
    assert (bounds.epoch, bounds.first, bounds.end, bounds.next_epoch) == (
        store.directory.epoch,
        1,
        0,
        None,
    )
    assert log.end_for(QUEUE, None, 0, 10, 10) == 0
    assert list(log.chunks(QUEUE, None, 0, 0)) == []


def test_wrong_questions(store: Store, log: Log) -> None:
    store.put(3)
    with pytest.raises(QueueNotInLogError):
        log.bounds("private$/nobody")
    with pytest.raises(UnknownEpochError, match=store.directory.epoch):
        log.bounds(QUEUE, "another")
    with pytest.raises(PastTheEndError) as past:
        log.end_for(QUEUE, None, 4)
    assert past.value.end == 3
    with pytest.raises(PastTheEndError):
        list(log.chunks(QUEUE, None, 0, 4))


def test_a_commit_is_seen_at_once(store: Store, log: Log) -> None:
    for end in range(1, 4):
        store.put(1)
        assert log.bounds(QUEUE).end == end


def test_row_limits(store: Store, log: Log) -> None:
    store.put(25, together=10)
    assert [log.end_for(QUEUE, None, after, 10) for after in (0, 3, 20, 25)] == [10, 13, 25, 25]
    assert log.end_for(QUEUE, None, 0, 0) == 1, (
        "a limit below one row is one row: a batch must go on"
    )


def test_byte_limits_are_refined_to_rows(store: Store, log: Log) -> None:
    store.put(20, together=7, size=800, make=srmp_record)
    size = len(srmp_record(10, 800).post)
    for sealed in (False, True):
        assert log.end_for(QUEUE, None, 0, None, 5 * size) == 5
        assert log.end_for(QUEUE, None, 6, None, 5 * size) == 11
        assert log.end_for(QUEUE, None, 6, 3, 5 * size) == 9
        assert log.end_for(QUEUE, None, 0, None, 1) == 1
        assert log.end_for(QUEUE, None, 13, None, 10**9) == 20
        if not sealed:
            seal(store, log)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=12),
    st.integers(0, 11),
    st.integers(1, 20),
    st.integers(1, 8000),
)
def test_a_batch_is_as_long_as_its_limits_allow(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], after: int, rows: int, size: int
) -> None:
    store = Store(tmp_path_factory.mktemp("store") / "data")
    for n, each in enumerate(sizes):
        store.put(1 + n % 3, together=3, size=8 * each)
    end = store.sequence
    after = min(after, end)
    lengths = {n: len(r.post) for n, r in _all(store)}
    with Log(store.directory.database, store.directory.segments) as log:
        found = log.end_for(QUEUE, None, after, rows, size)
    wanted = after
    while (
        wanted < end
        and wanted - after < rows
        and sum(lengths[n] for n in range(after + 1, wanted + 2)) <= size
    ):
        wanted += 1
    assert found == (wanted if wanted > after else min(after + 1, end))
    store.close()


def _all(store: Store) -> list[tuple[int, Any]]:
    blobs = store.directory.writer.execute("SELECT data FROM groups ORDER BY id").fetchall()
    return [pair for (blob,) in blobs for pair in unpack_group(blob)]


def test_groups_come_as_they_are_stored(store: Store, log: Log) -> None:
    store.put(10, together=4)
    chunks = list(log.chunks(QUEUE, None, 2, 9))
    assert [(chunk.first, chunk.last, chunk.keep) for chunk in chunks] == [
        (1, 4, ((3, 4),)),
        (5, 8, ((5, 8),)),
        (9, 10, ((9, 9),)),
    ]
    assert all(isinstance(chunk, GroupChunk) for chunk in chunks)
    assert list(unpack_group(chunks[1].blob)) == [(n, record(n)) for n in range(5, 9)]


def test_pieces_are_fetched_in_bounded_numbers(
    store: Store, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "GROUPS_MAX", 3)
    store.put(10)
    assert sequences(log, 0, 10) == list(range(1, 11))


def test_sealed_and_unsealed_rows_are_one_log(store: Store, log: Log) -> None:
    store.put(30, together=7, make=srmp_record)
    seal(store, log)
    store.put(5, make=srmp_record)
    chunks = list(log.chunks(QUEUE, None, 10, 33))
    assert [type(chunk) for chunk in chunks[:2]] == [SegmentChunk, GroupChunk]
    assert (chunks[0].first, chunks[0].last, chunks[0].keep) == (1, 30, ((11, 30),))
    for after, to in ((0, 35), (29, 31), (30, 30), (34, 35)):
        assert sequences(log, after, to) == list(range(after + 1, to + 1))
        rows = [
            n
            for b in reading.batches(log, "qm", QUEUE, None, after, to)
            for n in b.column("sequence").to_pylist()
        ]
        assert rows == list(range(after + 1, to + 1))


def test_a_group_may_be_sealed_and_deleted_between_two_pieces(
    store: Store, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "GROUPS_MAX", 2)
    store.put(10, make=srmp_record)
    with Log(store.directory.database, store.directory.segments) as other:
        chunks = other.chunks(QUEUE, None, 0, 10)
        seen = [next(chunks), next(chunks)]
        seal(store, log)
        sweep(store)
        seen += list(chunks)
    assert [(type(chunk).__name__, chunk.keep) for chunk in seen] == [
        ("GroupChunk", ((1, 1),)), ("GroupChunk", ((2, 2),)), ("SegmentChunk", ((3, 10),)),
    ]  # fmt: skip


def test_rows_may_be_trimmed_between_two_pieces(
    store: Store, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "GROUPS_MAX", 1)
    store.put(10)
    received(store, 10)
    chunks = log.chunks(QUEUE, None, 0, 10)
    next(chunks)
    store.call(lambda t: retention.trim(t, QUEUE, 5, store.directory.segments))
    with pytest.raises(TrimmedError) as trimmed:
        list(chunks)
    assert trimmed.value.first == 6
    with pytest.raises(TrimmedError):
        log.end_for(QUEUE, None, 4)
    assert log.end_for(QUEUE, None, 5) == 10


def test_a_segment_that_is_trimmed_while_it_is_handed_out(store: Store, log: Log) -> None:
    store.put(10, make=srmp_record)
    sealed = seal(store, log)
    received(store, 10)
    sweep(store)
    (chunk,) = log.chunks(QUEUE, None, 0, 10)
    store.call(lambda t: retention.trim(t, QUEUE, 10, store.directory.segments))
    assert isinstance(chunk, SegmentChunk)
    with pytest.raises(FileNotFoundError):
        chunk.read_columns()
    assert not (store.directory.segments / (sealed.file + ".columns.arrow")).exists()


def test_holes_are_left_out_and_counted(store: Store, log: Log) -> None:
    store.put(20, together=4)
    received(store, 6)
    assert store.call(lambda t: purge(t, QUEUE, store.directory.segments)) == 14
    store.put(3)
    assert log.holes(QUEUE, 0, 23) == [(7, 20)]
    assert log.holes(QUEUE, 10, 12) == [(11, 12)]
    assert sequences(log, 0, 23) == [1, 2, 3, 4, 5, 6, 21, 22, 23]
    sweep(store)
    assert sequences(log, 0, 23) == [1, 2, 3, 4, 5, 6, 21, 22, 23]
    assert sequences(log, 8, 12) == []
    assert log.end_for(QUEUE, None, 6, None, 1) == 21, "a hole costs no bytes"


def test_a_missing_row_is_damage_not_a_gap(store: Store, log: Log) -> None:
    store.put(6, together=2)
    store.directory.writer.execute("DELETE FROM groups WHERE first = 3")
    with pytest.raises(StoreDamagedError, match=r"rows 3 to 3 of private\$/orders"):
        sequences(log, 0, 6)


def test_a_torn_group_is_damage_with_queue_and_sequence(store: Store, log: Log) -> None:
    store.put(6, together=2)
    (blob,) = store.directory.writer.execute("SELECT data FROM groups WHERE first = 3").fetchone()
    for broken in (blob[:-1], blob[:-10] + b"\0" * 10, b"", blob[:4] + b"XXXX" + blob[8:]):
        store.directory.writer.execute("UPDATE groups SET data = ? WHERE first = 3", (broken,))
        with pytest.raises(StoreDamagedError, match=r"rows 3 to 4 of private\$/orders"):
            sequences(log, 0, 6)
        assert sequences(log, 4, 6) == [5, 6], "what is whole can be read"


def test_damaged_rows_can_be_given_up(store: Store, log: Log) -> None:
    store.put(6, together=2)
    store.directory.writer.execute("UPDATE groups SET data = x'00' WHERE first = 3")
    assert store.call(lambda t: queues.give_up(t, QUEUE, 3, 4, store.directory.segments)) == 2
    assert sequences(log, 0, 6) == [1, 2, 5, 6]
    assert log.holes(QUEUE, 0, 6) == [(3, 4)]
    with pytest.raises(Exception, match="holds 1 to 6"):
        store.call(lambda t: queues.give_up(t, QUEUE, 5, 7, store.directory.segments))


def test_a_damaged_segment_is_an_error(store: Store, log: Log) -> None:
    store.put(10, make=srmp_record)
    sealed = seal(store, log)
    path = store.directory.segments / (sealed.file + ".columns.arrow")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreDamagedError, match=r"rows 1 to 10 of private\$/orders"):
        list(reading.batches(log, "qm", QUEUE, None, 0, 10))
    path.unlink()
    with pytest.raises(StoreDamagedError, match="is gone"):
        list(log.chunks(QUEUE, None, 0, 10))


def test_a_damaged_row_names_the_command_that_gives_it_up(store: Store, log: Log) -> None:
    """The command is there: cli parses what the error says."""
    import shlex

    from srmp_spark.cli import parser

    store.put(6, together=2)
    store.directory.writer.execute("UPDATE groups SET data = x'00' WHERE first = 3")
    with pytest.raises(StoreDamagedError) as told:
        sequences(log, 0, 6)
    said = str(told.value)
    line = shlex.split(said[said.index("srmp-spark give-up") : said.index(" (docs/")])
    parsed = parser().parse_args(line[1:])
    assert (parsed.command, parsed.queue, parsed.first, parsed.last) == ("give-up", QUEUE, 3, 4)


def test_a_queue_that_comes_back_goes_on_counting(store: Store, log: Log) -> None:
    store.put(5)
    store.call(lambda t: queues.delete(t, QUEUE, store.directory.segments, NOW))
    with pytest.raises(QueueNotInLogError):
        log.bounds(QUEUE)
    with pytest.raises(KeyError):
        store.journal.submit((QUEUE, 6, record(6)), lambda proof: None)
    again = store.call(lambda t: queues.create(t, QUEUE, transactional=True))
    assert (again.end, again.transactional, again.received) == (5, True, 0)
    store.put(2)
    assert log.bounds(QUEUE)[1:3] == (6, 7)
    sweep(store)
    assert sequences(log, 5, 7) == [6, 7]


def test_the_ranges_kept() -> None:
    assert gaps(1, 10, []) == ((1, 10),)
    assert gaps(1, 10, [(3, 4), (7, 7)]) == ((1, 2), (5, 6), (8, 10))
    assert gaps(3, 5, [(1, 3), (5, 9)]) == ((4, 4),)
    assert gaps(3, 5, [(2, 6)]) == ()
    assert gaps(1, 10, [(5, 20), (2, 3)]) == ((1, 1), (4, 4))
