"""Dead letters into a queue of the application ([MC-MQSRM] 3.1.5.2.1.2): which it is, decided once; handed over in order."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from outbox_kit import NOW, A, B, Desk, bodies

from srmp_spark.srmp.sending.outgoing_effects import DeadLetter, Kind, QueueKey, SerialRun
from srmp_spark.store.outbox.errors import BatchError
from srmp_spark.store.outbox.messages.ends import class_of_end
from srmp_spark.store.outbox.tables import letter_cursors
from srmp_spark.store.outbox.tables.letter_cursors import LetterCursors
from srmp_spark.store.outbox.tables.schema import DATABASE_FILE

FAILED = "private$/failed"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path / "data")
    made.outbox.waiting.takes_dead_letters = lambda queue: queue == FAILED
    return made


def bury(desk: Desk, first: int, last: int, destination: str = A, kind: Kind = "stream") -> None:
    """These become dead letters because the peer refused them."""
    run = SerialRun(QueueKey(destination, kind), first, last)
    outbox = desk.outbox
    with outbox.database.transaction():
        outbox.waiting.bury(
            DeadLetter(run, "refused", 400, False), outbox._queue_ids[run.key], ("7", 0), NOW, 9
        )


def targets(desk: Desk) -> list[tuple[str, int]]:
    return desk.outbox.database.connection.execute(
        "SELECT target, rows FROM moved ORDER BY id"
    ).fetchall()


@pytest.mark.parametrize(("first", "last"), [(1, 300), (2, 2), (200, 300)])
def test_it_is_the_target_of_the_batch_s_stream_messages(desk: Desk, first: int, last: int) -> None:
    """Whether a group dies as a whole or in part."""
    desk.send([{"body": b"%d" % n} for n in range(1, 301)], dead_letter_queue="Private$\\Failed")
    bury(desk, first, last)
    assert {target for target, _ in targets(desk)} == {FAILED}
    assert sum(rows for _, rows in targets(desk)) == last - first + 1


def test_others_go_where_they_always_went(desk: Desk) -> None:
    desk.send([{"body": b"1"}], batch="1")
    desk.send([{"body": b"2", "delivery": "recoverable"}], batch="2", dead_letter_queue=FAILED)
    desk.send(
        [{"body": b"3", "destination": B}], batch="3", dead_letter_queue="private$/no_such_queue"
    )
    bury(desk, 1, 1)
    bury(desk, 1, 1, kind="plain")
    bury(desk, 1, 1, destination=B)
    assert targets(desk) == [("deadxact$", 1), ("deadletter$", 1), ("deadxact$", 1)]
    assert LetterCursors(desk.outbox.database, desk.outbox.waiting.letters_for).queues("") == []


def test_it_survives_a_restart_and_what_waits_in_one_queue_may_have_different_ones(
    desk: Desk, tmp_path: Path
) -> None:
    desk.send([{"body": b"1"}, {"body": b"2"}], batch="1", dead_letter_queue=FAILED)
    desk.send([{"body": b"3"}], batch="2")
    desk.close()
    again = Desk(tmp_path / "data")
    again.outbox.waiting.takes_dead_letters = lambda queue: True
    bury(again, 1, 3)
    assert targets(again) == [(FAILED, 2), ("deadxact$", 1)]


def test_they_are_handed_over_in_the_order_in_which_they_died(desk: Desk) -> None:
    desk.send([{"body": b"%d" % n} for n in range(1, 6)], dead_letter_queue=FAILED)
    desk.send([{"body": b"9"}], batch="2")
    bury(desk, 3, 4)
    bury(desk, 6, 6)
    bury(desk, 1, 1)
    found, cursors = [], LetterCursors(desk.outbox.database, desk.outbox.waiting.letters_for)
    while (number := cursors.next(FAILED)) is not None:
        moved = next(desk.outbox.waiting.moved_groups(number - 1, 1))
        assert (moved.row.target, class_of_end(moved.row)) == (FAILED, None)
        found.append(bodies(moved.messages or []))
        cursors.handed(FAILED, number)
    assert found == [[b"3", b"4"], [b"1"]]


def test_each_queue_has_a_cursor_of_its_own(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is handed over of one queue says nothing about another, after a restart too; then one number stands for all."""
    monkeypatch.setattr(letter_cursors, "QUEUES_MAX", 2)
    names = [FAILED, "private$/g", "private$/h"]
    desk.outbox.waiting.takes_dead_letters = lambda queue: True
    for batch, name in enumerate((*names, FAILED), 1):
        desk.send([{"body": b"%d" % batch}], batch=str(batch), dead_letter_queue=name)
        bury(desk, batch, batch)
    cursors = LetterCursors(desk.outbox.database, desk.outbox.waiting.letters_for)
    assert (cursors.queues(""), cursors.queues(names[1]), cursors.queues(names[2])) == (
        names[:2],
        names[2:],
        [],
    )
    cursors.handed("private$/h", 3)
    cursors.handed(FAILED, 4)
    desk.close()

    again = Desk(tmp_path / "data")
    cursors = LetterCursors(again.outbox.database, again.outbox.waiting.letters_for)
    assert (cursors.queues(""), cursors.next("private$/g")) == (["private$/g"], 2)
    assert kept(again) == ([(FAILED, 4), ("private$/h", 3)], [])
    cursors.handed("private$/g", 2)
    cursors.handed("private$/g", 1)
    assert cursors.queues("") == []
    assert kept(again) == ([], [("4",)])
    assert LetterCursors(again.outbox.database, again.outbox.waiting.letters_for).queues("") == []
    again.close()


def kept(desk: Desk) -> tuple[list[tuple[str, int]], list[tuple[str]]]:
    connection = desk.outbox.database.connection
    cursors = connection.execute(
        "SELECT queue, handed_to FROM letter_cursors ORDER BY queue"
    ).fetchall()
    return cursors, connection.execute(
        "SELECT value FROM meta WHERE key = 'dead_letters_handed_to'"
    ).fetchall()


def test_the_letters_of_the_system_are_not_walked_through(desk: Desk) -> None:
    """There may be millions of them, and they are asked past at every look."""
    plans = [
        desk.outbox.database.connection.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()
        for sql, values in (
            (
                (
                    f"SELECT min(target) FROM moved WHERE {letter_cursors._FOR_APPLICATIONS} "
                    "AND target > ?"
                ),
                ("",),
            ),
            (
                (
                    f"SELECT id FROM moved WHERE {letter_cursors._FOR_APPLICATIONS} AND "
                    "target = ? AND id > ? ORDER BY id"
                ),
                ("", 0),
            ),
        )
    ]
    told = [step[3] for plan in plans for step in plan]
    assert len(told) == len(plans)
    assert all("SEARCH moved USING" in step and "moved_for_applications" in step for step in told)


def test_a_letter_costs_no_look_at_queues_whose_letters_are_handed_over(desk: Desk) -> None:
    """There is a look after every dead letter, and thousands of queues may have had some within 30 days."""
    desk.outbox.waiting.takes_dead_letters = lambda queue: True
    cursors = LetterCursors(desk.outbox.database, desk.outbox.waiting.letters_for)
    names = [f"private$/q{number:02}" for number in range(50)]
    for number, name in enumerate(names, 1):
        desk.send([{"body": b"1"}], batch=str(number), dead_letter_queue=name)
        bury(desk, number, number)
        assert cursors.queues("") == [name]
        cursors.handed(name, number)
    assert cursors.queues("") == []
    desk.send([{"body": b"2"}], batch="last", dead_letter_queue=names[7])
    bury(desk, 51, 51)
    asked: list[str] = []
    desk.outbox.database.connection.set_trace_callback(asked.append)
    assert cursors.queues("") == [names[7]]
    assert cursors.queues(names[7]) == []
    desk.outbox.database.connection.set_trace_callback(None)
    assert len(asked) <= 2, "and no other queue was asked for"


def test_an_outbox_that_an_older_version_made_gets_the_column(tmp_path: Path) -> None:
    Desk(tmp_path / "data").close()
    with sqlite3.connect(tmp_path / "data" / DATABASE_FILE) as connection:
        connection.execute("ALTER TABLE parts DROP COLUMN dead_letter_queue")
        connection.execute("DROP TABLE letter_cursors")
        connection.execute("DROP INDEX moved_for_applications")
        connection.execute("ALTER TABLE queues DROP COLUMN earlier")
        connection.execute("ALTER TABLE queues DROP COLUMN earlier_receipts")
    desk = Desk(tmp_path / "data")
    desk.outbox.waiting.takes_dead_letters = lambda queue: True
    desk.send([{"body": b"1"}], dead_letter_queue=FAILED)
    bury(desk, 1, 1)
    assert targets(desk) == [(FAILED, 1)]
    assert LetterCursors(desk.outbox.database, desk.outbox.waiting.letters_for).queues("") == [
        FAILED
    ]


@pytest.mark.parametrize(
    "name",
    ["", "private$/a/b", "private$/order_queue$", "private$/forward$", "private$/orders;journal"],
)
def test_a_name_that_can_never_take_them_is_refused_when_it_is_staged(
    desk: Desk, name: str
) -> None:
    with pytest.raises(BatchError) as refused:
        desk.send([{"body": b"1"}], dead_letter_queue=name)
    assert refused.value.status == 400


def test_the_stages_of_a_batch_agree(desk: Desk) -> None:
    stages = [
        desk.stage([{"body": b"1"}]),
        desk.stage([{"body": b"2"}], partition=1, dead_letter_queue=FAILED),
    ]
    with pytest.raises(
        BatchError, match=r"the stages differ in srmp\.dead_letter_queue: None and private\$/failed"
    ):
        desk.commit(stages)
