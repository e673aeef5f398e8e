"""Marks beyond a consumer's mark on disk: what is written, read, deleted, taken over and packed."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_kit import NOW, QUEUE, Store

from srmp_spark.sequences.as_json import RUNS_SHOWN_MAX, set_as_json, set_from_json
from srmp_spark.sequences.sequence_set import BLOCK_SEQUENCES, SequenceSet
from srmp_spark.store.database.set_aside import SetAside
from srmp_spark.store.directory import DataDirectory
from srmp_spark.store.tables import marks, queues, state

TEXTS = (
    "[[1", "[[5,3]]", "[[-1,3]]", "{}x", "[5]", f"[[5,{10**30}]]", "[[5,1e30]]", "[[5,Infinity]]", "[" * 2_000, "[[0,3]]",
    f"[[5,{1 << 44}]]", b"\xff",
)  # fmt: skip
SCATTERED = SequenceSet([*((n, n) for n in range(5, 10_000, 2)), (50_000, 90_000)])


def consumer(name: str, received: int, ahead: SequenceSet) -> state.StoredConsumer:
    return state.StoredConsumer(QUEUE, name, received, ahead, None, None, None)


def rows(store: Store) -> list[tuple[str, int]]:
    return store.directory.writer.execute(
        "SELECT consumer, block FROM marks ORDER BY consumer, block"
    ).fetchall()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "data")


def test_what_the_mark_has_passed_is_deleted_a_few_rows_at_a_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks, "PASSED_DELETED_MAX", 2)
    ahead = SequenceSet((n * BLOCK_SEQUENCES + 7, n * BLOCK_SEQUENCES + 7) for n in range(6))
    store.call(
        lambda t: state.save_consumer(t.connection, store.queue_id, consumer("audit", 0, ahead))
    )
    received = 5 * BLOCK_SEQUENCES
    ahead.discard_through(received)
    for left in (4, 2, 1, 1):
        changes = marks.StoredMarks.taken_from(ahead)
        saved = consumer("audit", received, ahead)
        store.call(
            lambda t, saved=saved, changes=changes: state.save_consumer(
                t.connection, store.queue_id, saved, changes
            )
        )
        assert len(rows(store)) == left
        assert marks.load(store.directory.writer, store.queue_id, "audit", received) == ahead
    store.close()


def test_they_go_with_their_consumer_whoever_deletes_it(store: Store) -> None:
    """An earlier version knows nothing of the table: one of the same name would have the marks of the one before."""
    for name in ("audit", "default", ";journal/x"):
        store.call(
            lambda t, name=name: state.save_consumer(
                t.connection, store.queue_id, consumer(name, 3, SCATTERED)
            )
        )
    store.call(lambda t: t.connection.execute("DELETE FROM consumers WHERE name = 'audit'"))
    assert {name for name, _ in rows(store)} == {"default", ";journal/x"}
    saved, changes = consumer("default", 4, SCATTERED), marks.StoredMarks([], [])
    store.call(lambda t: state.save_consumer(t.connection, store.queue_id, saved, changes))
    assert marks.load(store.directory.writer, store.queue_id, "default", 4) == SCATTERED, (
        "a save is no deletion"
    )
    store.call(lambda t: queues.set_journal(t, QUEUE, None))
    assert {name for name, _ in rows(store)} == {"default"}
    store.call(lambda t: queues.delete(t, QUEUE, store.directory.segments, NOW))
    assert rows(store) == []
    store.close()


def test_a_directory_of_an_earlier_version_is_taken_over(tmp_path: Path) -> None:
    """Its runs are in the column ``ahead``; what it wrote after a newer version had the directory is added."""
    store = Store(tmp_path / "data")
    store.close()
    connection = sqlite3.connect(tmp_path / "data" / "store.db")
    with connection:
        connection.execute("DROP TRIGGER marks_of_a_consumer")
        connection.execute("DROP TABLE marks")
        text = json.dumps([list(run) for run in SCATTERED.runs()])
        connection.execute(
            "INSERT INTO consumers(queue_id, name, received, ahead) VALUES (?, 'default', 2, ?)",
            (store.queue_id, text),
        )
    connection.close()
    with DataDirectory.open(tmp_path / "data", now=NOW) as directory:
        (found,) = state.load(directory.writer).consumers
        assert (found.received, found.ahead) == (2, SCATTERED)
        assert directory.writer.execute("SELECT ahead FROM consumers").fetchall() == [("[]",)]
    connection = sqlite3.connect(tmp_path / "data" / "store.db")
    with connection:
        connection.execute("""UPDATE consumers SET received = 6, ahead = '[[200000,200001]]'""")
    connection.close()
    with DataDirectory.open(tmp_path / "data", now=NOW) as directory:
        (found,) = state.load(directory.writer).consumers
        expected = SCATTERED.copy()
        expected.add(200_000, 200_001)
        expected.discard_through(6)
        assert (found.received, found.ahead) == (6, expected)


@pytest.mark.parametrize(
    "row",
    [
        "0, 1, 'text'",
        "-1, 1, x'01'",
        "0, 0, NULL",
        "3, 2, x'01'",
        "3, 1, x''",
        "'x', 1, x'01'",
        f"{1 << 40}, 1, NULL",
        "3, 1.5, NULL",
    ],
)
def test_a_row_that_cannot_be_read_is_set_aside_and_its_rows_come_again(
    store: Store, row: str
) -> None:
    ahead = SequenceSet([(9_000, 9_001)])
    store.call(
        lambda t: state.save_consumer(t.connection, store.queue_id, consumer("default", 0, ahead))
    )
    store.directory.writer.execute(f"INSERT INTO marks VALUES ({store.queue_id}, 'default', {row})")
    found = state.load(store.directory.writer)
    assert [(each.table, each.key.split(" ")[:2]) for each in found.unreadable] == [
        ("marks", [str(store.queue_id), "default"])
    ]
    assert [each.ahead for each in found.consumers] == [ahead]
    assert store.directory.writer.execute("SELECT count(*) FROM marks").fetchone() == (2,), (
        "it keeps its bytes"
    )
    store.close()


def test_a_column_of_an_earlier_version_that_cannot_be_read_stays_and_is_told(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path / "data")
    for number, text in enumerate(TEXTS):
        store.directory.writer.execute(
            "INSERT INTO consumers(queue_id, name, received, ahead) VALUES (?, ?, 2, "
            "CAST(? AS TEXT))",
            (store.queue_id, f"c{number:02}", text),
        )
    store.close()
    with DataDirectory.open(tmp_path / "data", now=NOW) as directory:
        found = state.load(directory.writer)
        expected = [("consumers", f"{QUEUE} c{n:02}") for n in range(len(TEXTS))]
        assert [(each.table, each.key) for each in found.unreadable] == expected
        assert [(each.received, len(each.ahead)) for each in found.consumers] == [(2, 0)] * len(
            TEXTS
        )
        assert directory.writer.execute(
            "SELECT ahead FROM consumers WHERE name = 'c01'"
        ).fetchone() == ("[[5,3]]",)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 30_000), st.integers(1, 300), st.integers(1, 3)), max_size=8)
)
def test_the_delta_state_has_a_few_runs_as_they_are_and_many_packed(
    takes: list[tuple[int, int, int]],
) -> None:
    ahead = SequenceSet()
    for first, count, step in takes:
        ahead.add_each(range(first, first + count * step, step))
    text = json.dumps(set_as_json(ahead))
    assert set_from_json(json.loads(text)) == ahead
    if len(list(ahead.runs())) <= RUNS_SHOWN_MAX:
        assert json.loads(text) == [list(run) for run in ahead.runs()], (
            "as earlier versions have it"
        )


def test_what_is_packed_is_small_and_what_is_none_is_refused() -> None:
    packed = set_as_json(SCATTERED)
    assert isinstance(packed, str)
    assert len(packed) < 400
    assert set_from_json(packed) == SCATTERED
    for broken in (packed[:-8], "AAAA", "?", packed[:40]):
        with pytest.raises(ValueError, match=r"."):
            set_from_json(broken)


def test_what_is_set_aside_of_nothing_is_nothing() -> None:
    assert marks.set_aside_text("q", "c", "[]") is None
    assert isinstance(marks.set_aside_text("q", "c", None), SetAside)
    with pytest.raises(ValueError, match="range"):
        set_from_json([[5, 3]])
