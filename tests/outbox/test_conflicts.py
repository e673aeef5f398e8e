"""Rows that have the key or the source position of another content: refused in words, left out, or dead letters."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from outbox_kit import DAY, NOW, A, B, Desk, bodies

from srmp_spark.store.outbox import stage_file
from srmp_spark.store.outbox.errors import BatchError
from srmp_spark.store.outbox.messages.waiting import DEADLETTER, DEADXACT
from srmp_spark.store.outbox.preparing.prepared import CommitResult
from srmp_spark.store.outbox.tables import writes
from srmp_spark.store.outbox.tables.schema import DATABASE_FILE


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path / "data")
    yield desk
    desk.close()


@pytest.fixture(params=["one transaction", "many"])
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "many":
        monkeypatch.setattr(writes, "CHUNK_BYTES", 1)
        monkeypatch.setattr(stage_file, "CHUNK_ROWS", 2)
        monkeypatch.setattr("srmp_spark.store.outbox.preparing.identities.CHUNK_ROWS", 2)


POSITION = {"queue_manager": "q", "epoch": "e", "queue": "private$/in"}


def at(sequence: int, body: bytes, **more: Any) -> dict[str, Any]:
    """A row made of the message ``sequence`` of a source."""
    return {"body": body, "destination": A, **POSITION, "sequence": sequence, **more}


def keyed(key: str, body: bytes, **more: Any) -> dict[str, Any]:
    return {"body": body, "destination": A, "key": key, **more}


def dead(desk: Desk) -> list[tuple[str, str, bytes, int]]:
    """Reason, target, body and message identifier of each dead letter."""
    return [
        (moved.row.reason, moved.row.target, stored.message.body, stored.message.uniquifier)
        for moved in desk.outbox.waiting.moved_groups(0, 100_000)
        for stored in moved.messages or []
    ]


def test_two_sinks_of_one_query_are_refused_in_words(desk: Desk, sizes: None) -> None:
    """An acknowledgement and a notification for each row: 40 rows, of which 20 would have been repeats."""
    assert desk.send([at(n, b"ack %d" % n) for n in range(20)]) == CommitResult(20, 0)
    with pytest.raises(BatchError) as caught:
        desk.send([at(n, b"note %d" % n) for n in range(20)])
    assert (caught.value.status, caught.value.code) == (409, "position-conflict")
    said = str(caught.value)
    assert (
        f"private$/in 0 of epoch e (partition 0 row 0) was sent before with another content, to {A}; "
        "20 rows of the batch" in said
    )
    assert "an application of its own" in said
    assert bodies(desk.read()) == [b"ack %d" % n for n in range(20)], "nothing of the second batch"
    assert desk.send(
        [at(n, b"note %d" % n) for n in range(20)], application="notes"
    ) == CommitResult(20, 0)
    assert desk.send([at(n, b"note %d" % n, key=f"note {n}") for n in range(20)]) == CommitResult(
        20, 0
    )


def test_a_batch_that_is_run_again_is_known(desk: Desk, sizes: None) -> None:
    rows = [at(n, b"%d" % n, label="l", priority=n % 3) for n in range(30)]
    desk.send(rows)
    assert desk.send(rows[::-1], batch="2") == CommitResult(0, 30)
    assert desk.send([*rows, at(30, b"30")], batch="3") == CommitResult(1, 30)


@pytest.mark.parametrize(
    "change",
    [{"label": "x"}, {"priority": 5}, {"body": b""}, {"extension": b"x"}, {"journal": True}],
)
def test_everything_that_is_sent_is_content(desk: Desk, change: dict[str, Any]) -> None:
    desk.send([at(1, b"1")])
    with pytest.raises(BatchError, match="another content"):
        desk.send([at(1, b"1") | change], batch="2")
    assert desk.send(
        [at(1, b"1", label="", priority=3, delivery="transactional")], batch="3"
    ) == CommitResult(0, 1), "defaults"


def test_two_rows_of_one_batch_with_one_position_and_two_contents(desk: Desk) -> None:
    told = r"one source position and differ in content: private\$/in 1 .* and private\$/in 1"
    with pytest.raises(BatchError, match=told) as caught:
        desk.send([at(0, b"0"), at(1, b"a"), at(1, b"b")])
    assert (caught.value.status, caught.value.code) == (409, "position-conflict")
    assert desk.read() == []


@pytest.mark.parametrize("name", ["key", "position"])
def test_ignored_the_first_content_stays(desk: Desk, sizes: None, name: str) -> None:
    row = (lambda n, body: keyed(str(n), body)) if name == "key" else at
    desk.send([row(n, b"first") for n in range(3)])
    second = [row(n, b"second") for n in range(2, 6)] + [row(5, b"third"), row(4, b"second")]
    for batch in ("2", "3"):
        result = desk.send(second, batch=batch, on_conflict="ignore")
        assert result == (CommitResult(3, 1, 2) if batch == "2" else CommitResult(0, 4, 2)), (
            "row 2, and the third of 5"
        )
    assert bodies(desk.read()) == [b"first"] * 3 + [b"second"] * 3
    assert dead(desk) == []


@pytest.mark.parametrize("name", ["key", "position"])
def test_a_dead_letter_once_however_often_the_batch_is_run(
    desk: Desk, sizes: None, name: str
) -> None:
    row = (lambda n, body: keyed(str(n), body)) if name == "key" else at
    desk.send([row(n, b"first") for n in range(3)])
    second = [row(n, b"second") for n in range(6)] + [
        row(5, b"third"),
        row(5, b"third"),
        row(0, b"second"),
    ]
    stage = desk.stage(second, batch="2")
    assert desk.commit([stage], batch="2", on_conflict="dead-letter") == CommitResult(3, 0, 6)
    assert desk.commit([stage], batch="2", on_conflict="dead-letter") == CommitResult(3, 0, 6), (
        "the same answer again"
    )
    letters = dead(desk)
    assert [(reason, target) for reason, target, _, _ in letters] == [
        (f"{name}-conflict", DEADXACT)
    ] * 4
    assert [body for _, _, body, _ in letters] == [b"second"] * 3 + [b"third"]
    desk.close()
    desk.__init__(desk.directory, first_identifier=desk.next_identifier)  # type: ignore[misc]  # the process is started again
    assert desk.send(second[::-1], batch="2", on_conflict="dead-letter") == CommitResult(0, 3, 6), (
        "staged anew"
    )
    assert dead(desk) == letters
    everything = [number for _, _, _, number in letters] + [
        stored.message.uniquifier for stored in desk.read()
    ]
    assert len(set(everything)) == len(everything) == 10, "each has an identifier of its own"
    assert bodies(desk.read()) == [b"first"] * 3 + [b"second"] * 3


def test_dead_letters_of_several_queues_and_reasons(desk: Desk, sizes: None) -> None:
    desk.outbox.waiting.takes_dead_letters = lambda queue: queue == "private$/failed"
    first = [
        at(1, b"1"),
        at(1, b"1", destination=B),
        keyed("k", b"k"),
        at(2, b"2", delivery="express"),
    ]
    desk.send(first, types=None)
    second = [row | {"body": b"new"} for row in first]
    result = desk.send(
        second, batch="2", on_conflict="dead-letter", dead_letter_queue="private$/failed"
    )
    assert result == CommitResult(0, 0, 4)
    found = sorted((moved.row.destination, moved.row.kind, moved.row.reason, moved.row.target, moved.keys)
                   for moved in desk.outbox.waiting.moved_groups(0, 100))  # fmt: skip
    assert found == [
        (A, "plain", "position-conflict", DEADLETTER, [None]),
        (A, "stream", "key-conflict", "private$/failed", ["k"]),
        (A, "stream", "position-conflict", "private$/failed", [None]),
        (B, "stream", "position-conflict", "private$/failed", [None]),
    ]


def test_a_refused_batch_leaves_nothing(desk: Desk, sizes: None) -> None:
    desk.send([at(1, b"1")])
    before = {
        name: count(desk, name)
        for name in ("position_contents", "identities", "moved", "parts", "data")
    }
    with pytest.raises(BatchError):
        desk.send([at(n, b"new") for n in range(1, 9000, 700)], batch="2")
    assert {name: count(desk, name) for name in before} == before


def test_a_position_that_version_0_1_stored_is_known_whatever_it_contains(desk: Desk) -> None:
    """It has no content there, and what it had cannot be found out."""
    desk.send([at(n, b"old") for n in range(3)])
    connection = desk.outbox.database.connection
    connection.execute("DELETE FROM position_contents")
    assert desk.send([at(2, b"new"), at(3, b"new")], batch="2") == CommitResult(1, 1)
    assert desk.send([at(2, b"newer")], batch="3") == CommitResult(0, 1)
    with pytest.raises(BatchError, match=r"private\$/in 3 .* another content"):
        desk.send([at(2, b"newer"), at(3, b"newer")], batch="4")


def test_contents_are_forgotten_with_their_positions(desk: Desk) -> None:
    desk.send([at(n * 4096, b"x") for n in range(3)], application="other")
    desk.send([at(n * 4096, b"x") for n in range(3)], batch="2", on_conflict="ignore")
    desk.send([at(0, b"y")], batch="3", on_conflict="ignore")
    desk.at = NOW + 31 * DAY
    while desk.outbox.sweep(desk.at):
        pass
    for name in ("position_contents", "positions", "batch_conflicts", "batches", "scopes"):
        assert count(desk, name) == 0, name
    assert desk.send([at(0, b"y")], batch="4") == CommitResult(1, 0)


def test_a_damaged_record_of_contents_costs_the_comparison_alone(desk: Desk) -> None:
    desk.send([at(n, b"old") for n in range(3)])
    desk.outbox.database.connection.execute("UPDATE position_contents SET contents = x'00'")
    assert desk.send([at(2, b"new")], batch="2") == CommitResult(0, 1)


def test_a_batch_number_that_is_in_use_by_contents_is_not_given_out_again(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "data")
    desk.send([at(0, b"x")], batch="1")
    desk.close()
    with sqlite3.connect(tmp_path / "data" / DATABASE_FILE) as connection:
        connection.execute("DELETE FROM batches")  # its time is over before that of its positions
        for table in ("parts", "groups", "data"):  # all was delivered
            connection.execute(f"DELETE FROM {table}")  # our own names
    desk = Desk(tmp_path / "data", first_identifier=100)
    desk.send([at(1, b"y")], batch="2")
    with pytest.raises(BatchError, match="2 rows"):
        desk.send([at(0, b"other"), at(1, b"other")], batch="3")
    desk.close()


def count(desk: Desk, table: str) -> int:
    found: int = desk.outbox.database.connection.execute(
        f"SELECT count(*) FROM {table}"
    ).fetchone()[0]  # our own names
    return found


def test_a_number_of_a_batch_with_conflicts_is_not_used_again(tmp_path: Path) -> None:
    """Version 0.1 forgets batches and not how many conflicts they had; a row of batches that is damaged is set aside alone."""
    desk = Desk(tmp_path)
    desk.send([keyed("k", b"one")])
    assert desk.send([keyed("k", b"two")], batch="2", on_conflict="ignore") == CommitResult(0, 0, 1)
    connection = desk.outbox.database.connection
    connection.execute("DELETE FROM batches WHERE no = 2")
    desk.close()
    desk = Desk(tmp_path, first_identifier=100)
    stage = desk.stage([keyed("new", b"three")], batch="3")
    for _ in range(2):
        assert desk.commit([stage], batch="3") == CommitResult(1, 0, 0), (
            "the answer of a lost reply is the same"
        )
    desk.outbox.database.connection.execute("DELETE FROM batches WHERE no >= 2")
    desk.close()
    desk = Desk(tmp_path, first_identifier=200)
    assert desk.send([keyed("k", b"four")], batch="4", on_conflict="ignore") == CommitResult(
        0, 0, 1
    )
    desk.close()
