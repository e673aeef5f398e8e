"""A group of rows that cannot be read costs its own queue what it must, is told by destination and rows, and stops nobody."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from outbox_kit import NOW, A, B, Desk, bodies

from srmp_spark.errors import StoreDamagedError
from srmp_spark.srmp.sending.outgoing_effects import (
    DeadLetter,
    Load,
    OutgoingChanges,
    QueueKey,
    SerialRun,
)
from srmp_spark.store.outbox.messages.waiting import UnreadableRowsError
from srmp_spark.store.outbox.tables.damage import noted_damage

STREAM = QueueKey(A, "stream")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "data")


DAMAGES = {
    "a bit is flipped": "UPDATE data SET crc = crc + 1 WHERE id = ?",
    "the rows are gone": "DELETE FROM data WHERE id = ?",
    "no bytes at all": "UPDATE data SET data = 'text', crc = 0 WHERE id = ?",
    "nothing, with its checksum": "UPDATE data SET data = x'', crc = 0 WHERE id = ?",
}


def damage(desk: Desk, number: int, how: str = "a bit is flipped") -> None:
    with desk.outbox.database.transaction() as connection:
        assert connection.execute(DAMAGES[how], (number,)).rowcount == 1


def bury(desk: Desk, destination: str, first: int, last: int) -> None:
    run = SerialRun(QueueKey(destination, "stream"), first, last)
    desk.outbox.write(
        OutgoingChanges([], [], [DeadLetter(run, "dropped", None, False, None)], [], 0, 1), NOW
    )


def finish(desk: Desk, first: int, last: int) -> None:
    desk.outbox.write(OutgoingChanges([], [SerialRun(STREAM, first, last)], [], [], 0, 1), NOW)


@pytest.mark.parametrize("how", DAMAGES)
def test_dead_letters_that_are_damaged_hide_no_others(
    desk: Desk, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    for batch, (destination, rows) in enumerate([(A, 3), (B, 2), (A, 1)]):
        desk.send(
            [{"body": b"%d %d" % (batch, n), "destination": destination} for n in range(rows)],
            batch=str(batch),
        )
    damage(desk, 2, how)
    bury(desk, A, 1, 4)
    bury(desk, B, 1, 2)
    with caplog.at_level(logging.ERROR):
        first, second, third = desk.outbox.waiting.moved_groups(0, 100)
    assert (first.row.destination, [stored.message.body for stored in first.messages or []]) == (
        A,
        [b"0 0", b"0 1", b"0 2"],
    )
    assert (second.row.destination, [stored.message.body for stored in second.messages or []]) == (
        A,
        [b"2 0"],
    )
    assert (third.row.destination, third.row.rows, list(third.row.serials), third.messages) == (
        B,
        2,
        [1, 2],
        None,
    )
    assert f"destination={B} kind=stream what=dead rows=2" in caplog.text
    assert third.keys == [None, None]


@pytest.mark.parametrize("how", DAMAGES)
def test_what_waits_and_is_damaged_is_told_until_it_can_be_read(
    desk: Desk, how: str, tmp_path: Path
) -> None:
    desk.send([{"body": b"first"}], batch="1")
    desk.send([{"body": b"%d" % n} for n in range(5)], batch="2")
    desk.send([{"body": b"other", "destination": B}], batch="3")
    (good,) = desk.outbox.database.connection.execute(
        "SELECT crc, data FROM data WHERE id = 2"
    ).fetchall()
    damage(desk, 2, how)
    assert bodies(desk.outbox.load(Load(STREAM, 0, 99, 99, 10**6, 1))) == [b"first"], (
        "what stands before it goes out"
    )
    assert desk.outbox.damage.text(STREAM) is None
    with pytest.raises(UnreadableRowsError, match=r"5 messages \(serials 2 to 6\) cannot be read"):
        desk.outbox.load(Load(STREAM, 1, 99, 99, 10**6, 1))
    assert issubclass(UnreadableRowsError, StoreDamagedError), "nobody dies of it"
    desk.close()
    desk = Desk(tmp_path / "data")
    text = desk.outbox.damage.text(STREAM)
    assert text is not None
    assert text.startswith(f"5 messages to {A} (serials 2 to 6) wait and cannot be read: ")
    assert text.endswith(
        f"discard all messages that wait there: `srmp-spark streams drop --destination {A}`"
    )
    assert desk.outbox.damage.text(QueueKey(B, "stream")) is None
    assert bodies(desk.read(B)) == [b"other"]
    with desk.outbox.database.transaction() as connection:
        connection.execute(
            "INSERT OR REPLACE INTO data VALUES (2, ?, ?)", good
        )  # a backup was put back
    assert len(desk.read()) == 6
    assert desk.outbox.damage.text(STREAM) is None


def test_a_damaged_group_that_dies_as_a_whole_is_told_too(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.send([{"body": b"%d" % n} for n in range(5)])
    damage(desk, 1)
    with pytest.raises(UnreadableRowsError):
        desk.read()
    with caplog.at_level(logging.ERROR):
        bury(desk, A, 1, 5)
    assert f"destination={A} kind=stream what=dead rows=5 serials=1-5" in caplog.text
    text = desk.outbox.damage.text(STREAM)
    assert text is not None
    assert text.startswith(
        f"5 messages to {A} (serials 1 to 5) became dead letters and their content cannot be read: "
    )
    assert "wait and" not in text


def test_journal_copies_that_are_lost_add_up(desk: Desk) -> None:
    desk.send([{"body": b"%d" % n, "journal": True} for n in range(5)])
    damage(desk, 1)
    finish(desk, 1, 2)
    finish(desk, 3, 3)
    text = desk.outbox.damage.text(STREAM)
    assert text is not None
    assert text.startswith(
        f"3 messages to {A} (serials 1 to 3) arrived and have no journal copy, as they "
        "cannot be read: the "
    )
    assert "(application app, batch 1)" in text
    desk.outbox.write(OutgoingChanges([], [SerialRun(STREAM, 4, 5)], [], [STREAM], 0, 1), NOW)
    assert desk.outbox.damage.text(STREAM) is None, "the queue is forgotten"


@pytest.mark.parametrize("note", ["[]", "3", '"x"', "null", "{", '{"else": [1, [1, 1], ""]}'])
def test_a_note_about_damage_that_is_none_is_refused(note: str) -> None:
    with pytest.raises((TypeError, ValueError)):
        noted_damage(note)
