"""A row of the outbox that cannot be read is set aside with its bytes: its destination is held, and all others go on."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from outbox_kit import NOW, A, B, Desk, bodies

from srmp_spark.srmp.sending.outgoing_effects import (
    DeadLetter,
    EarlierStream,
    Kind,
    OutgoingChanges,
    OutgoingQueueRow,
    QueueKey,
    SerialRun,
)
from srmp_spark.store.outbox.tables.forward_place import ForwardPlace, held_because, read_to
from srmp_spark.store.outbox.tables.queue_rows import COLUMNS, add_columns, load_queues, save_queue
from srmp_spark.store.outbox.tables.schema import DDL
from srmp_spark.store.outbox.tables.sessions import (
    NumberRun,
    SessionRow,
    load_sessions,
    save_session,
)
from srmp_spark.wsrm.codec.versions import Versions

STREAM = QueueKey(A, "stream")
RELIABLE = "http://c.example/wsrm/private$/orders"

HOLDS = {
    "a destination's numbers": ("queues", "UPDATE queues SET end = 'many' WHERE destination = ?"),
    "a destination's stream": (
        "queues",
        "UPDATE queues SET stream_ordinal = 'none' WHERE destination = ?",
    ),
    "a destination's earlier streams": (
        "queues",
        "UPDATE queues SET earlier = '{' WHERE destination = ?",
    ),
    "a destination that acknowledged the future": (
        "queues",
        "UPDATE queues SET acknowledged_to = 99 WHERE destination = ?",
    ),
    "a part's number": (
        "parts",
        "UPDATE parts SET ids_first = 'x' WHERE id = (SELECT min(id) FROM parts) AND ? = ?1",
    ),
    "a group's data": (
        "groups",
        "UPDATE groups SET data_id = x'00' WHERE id = (SELECT min(id) FROM groups) AND ? = ?1",
    ),
}
"""Damage to what is stored of destination A → the table whose row is set aside, and how it is done."""
OTHERS = {
    "a stage": ("stages", "UPDATE stages SET rows = 'x'"),
    "a batch": ("batches", "UPDATE batches SET stages = 7"),
    "a batch's number in parts": (
        "parts",
        "UPDATE parts SET batch_no = 'x' WHERE queue_id IS NULL",
    ),
    "a scope": ("scopes", "UPDATE scopes SET batch_no = x''"),
    "a note of identities": ("identity_log", "UPDATE identity_log SET hashes = 3"),
    "how many rows a dead letter has": ("moved", "UPDATE moved SET rows = x'ff'"),
    "a dead letter": ("moved", "UPDATE moved SET serials = x'01'"),
    "a note of damage": ("meta", "INSERT INTO meta VALUES ('damaged stream http://x', '[1]')"),
    "how far receipts were read": ("meta", "INSERT INTO meta VALUES ('order_queue_read_to', 'x')"),
    "how far dead letters were handed over": (
        "meta",
        "INSERT INTO meta VALUES ('dead_letters_handed_to', x'ff')",
    ),
    "how far those of one queue were handed over": (
        "letter_cursors",
        "INSERT INTO letter_cursors VALUES ('private$/f', 'x')",
    ),
    "the retention clock": (
        "meta",
        "INSERT OR REPLACE INTO meta VALUES ('retention_clock', 'noon')",
    ),
    "an incarnation": ("meta", "UPDATE meta SET value = 'x' WHERE key GLOB 'incarnation:*'"),
    "the last stream": ("meta", "INSERT OR REPLACE INTO meta VALUES ('last_stream_ordinal', 'x')"),
    "the serials of forgotten queues": (
        "meta",
        "INSERT OR REPLACE INTO meta VALUES ('serials_after', 'x')",
    ),
}
"""Damage to what belongs to no destination."""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path / "data")
    for batch in ("1", "2"):
        desk.send([{"body": batch.encode()}], batch=batch)
    desk.send([{"body": b"b", "destination": B}], batch="3")
    yield desk
    desk.close()


def reopened(desk: Desk, *damage: str, of: str = A) -> Desk:
    desk.close()
    with sqlite3.connect(desk.directory / "outbox.db") as connection:
        for each in damage:
            assert connection.execute(each, (of,) * ("?" in each)).rowcount > 0, each
    connection.close()
    return Desk(desk.directory, first_identifier=desk.next_identifier, at=desk.at)


def rows(desk: Desk) -> dict[QueueKey, OutgoingQueueRow]:
    return {QueueKey(row.destination, row.kind): row for row in desk.outbox.queue_rows()}


@pytest.mark.parametrize("what", HOLDS)
def test_it_holds_its_own_destination(
    desk: Desk, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    table, damage = HOLDS[what]
    stream = rows(desk)[STREAM].stream_ordinal
    desk = reopened(desk, damage)
    (told,) = desk.outbox.set_aside
    assert told.table == table
    assert f"store.set_aside table={table}" in caplog.text
    found = rows(desk)
    held = found[STREAM]
    assert held.paused
    assert held.released_to == held.end >= 2, "all that waits counts as in doubt"
    if table == "queues":
        assert held.stream_ordinal > stream, (
            "its stream is begun anew: nobody knows how far the old one went"
        )
        assert bodies(desk.read(A)) == [b"1", b"2"], "nothing of it is lost"
    else:
        assert bodies(desk.read(A)) == [b"2"]
    other = found[QueueKey(B, "stream")]
    assert (bool(other.paused), bodies(desk.read(B))) == (False, [b"b"])
    again = reopened(desk)
    assert again.outbox.set_aside == [told], "it is told until the destination is forgotten"
    again.send([{"body": b"3", "destination": A}, {"body": b"4", "destination": B}], batch="4")
    assert bodies(again.read(B)) == [b"b", b"4"]
    serials = [stored.serial for stored in again.read(A)]
    assert serials == sorted(set(serials)), "no serial is given out twice"


@pytest.mark.parametrize("what", OTHERS)
def test_what_belongs_to_no_destination_holds_none(desk: Desk, what: str) -> None:
    table, damage = OTHERS[what]
    desk.stage([{"body": b"staged"}], batch="9")
    run = SerialRun(QueueKey(B, "stream"), 1, 1)
    desk.outbox.write(
        OutgoingChanges([], [], [DeadLetter(run, "dropped", None, False, None)], [], 0, 1), NOW
    )
    if "parts" in what:  # what a process that was killed left of a batch
        with desk.outbox.database.transaction() as connection:
            connection.execute(
                "INSERT INTO parts(id, batch_no, rows, final, journal) VALUES (900, 900, 1, 0, 0)"
            )
    before = rows(desk)
    desk = reopened(desk, damage)
    assert {each.table for each in desk.outbox.set_aside} == {table}
    found = rows(desk)
    assert found == before
    assert bodies(desk.read(A)) == [b"1", b"2"]
    desk.send([{"body": b"3"}], batch="7")
    assert bodies(desk.read(A)) == [b"1", b"2", b"3"]
    streams = [each.stream_ordinal for each in rows(desk).values()]
    assert len(set(streams)) == len(streams)


def test_a_session_that_cannot_be_read_holds_its_destination(desk: Desk) -> None:
    desk.send([{"body": b"r", "destination": RELIABLE}], batch="r")
    desk.save()
    with desk.outbox.database.transaction() as connection:
        (number,) = connection.execute(
            "SELECT id FROM queues WHERE destination = ?", (RELIABLE,)
        ).fetchone()
        save_session(
            connection, number, SessionRow("c", "s", Versions().dump(), 0, (), begun_at=NOW)
        )
    desk = reopened(desk, "UPDATE reliable_sessions SET versions = 'RM 9.9'")
    assert [each.table for each in desk.outbox.set_aside] == ["reliable_sessions"]
    assert desk.outbox.sessions() == {}
    assert {key.destination for key, row in rows(desk).items() if row.paused} == {RELIABLE}


def test_its_bytes_are_kept(desk: Desk) -> None:
    desk = reopened(desk, "UPDATE queues SET receipts_url = x'00ff' WHERE destination = ?")
    ((content, destination),) = desk.outbox.database.connection.execute(
        "SELECT content, destination FROM set_aside"
    ).fetchall()
    assert destination == A
    kept = json.loads(content)
    assert kept["receipts_url"] == {"base64": "AP8="}
    assert set(kept) >= {*COLUMNS.split(", "), "id"}


def test_it_is_forgotten_with_its_destination(desk: Desk) -> None:
    desk = reopened(desk, "UPDATE queues SET end = 'many' WHERE destination = ?")
    letter = DeadLetter(SerialRun(STREAM, 1, 2), "dropped", None, False, None)
    desk.outbox.write(
        OutgoingChanges([], [], [letter], [STREAM], desk.outbox.last_stream_ordinal, 1), NOW
    )
    assert desk.outbox.set_aside == []
    assert reopened(desk).outbox.set_aside == []


def test_streams_never_begin_with_an_ordinal_that_was_used(desk: Desk) -> None:
    """Two rows at once: the queue whose stream it was, and the counter that knew it."""
    stream = rows(desk)[STREAM].stream_ordinal
    desk = reopened(desk, HOLDS["a destination's numbers"][1], OTHERS["the last stream"][1])
    assert len(desk.outbox.set_aside) == 2
    assert rows(desk)[STREAM].stream_ordinal > stream
    assert (
        desk.outbox.last_stream_ordinal >= rows(desk)[STREAM].stream_ordinal >> 32
        or desk.outbox.last_stream_ordinal > 0
    )


def test_without_its_place_forwarding_is_held_until_nothing_waits(desk: Desk) -> None:
    desk = reopened(desk, "INSERT INTO meta VALUES ('forward_read_to', '[3]')")
    database, end = desk.outbox.database, ForwardPlace("e1", 7)
    assert read_to(database) is None
    why = held_because(database, end, 4)
    assert why is not None
    assert "4 messages wait in private$/forward$" in why
    assert "srmp-spark purge --queue private$/forward$" in why
    desk = reopened(desk)
    assert held_because(desk.outbox.database, end, 4) is not None, "a restart changes nothing"
    assert held_because(desk.outbox.database, end, 0) is None
    assert read_to(desk.outbox.database) == end
    assert held_because(desk.outbox.database, end, 4) is None


_TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
_NUMBERS = st.integers(0, 2**53)
_EARLIER = st.builds(EarlierStream, _NUMBERS, _NUMBERS, _NUMBERS, _TEXTS)


@st.composite
def queue_rows(draw: st.DrawFn) -> OutgoingQueueRow:
    end = draw(_NUMBERS)
    up_to = st.integers(0, end)
    acknowledged_to = draw(up_to)
    return OutgoingQueueRow(
        destination=draw(_TEXTS.filter(bool)), kind=draw(st.sampled_from(get_args(Kind))),
        stream_ordinal=draw(st.integers(0, 2**64 - 1)), base=draw(up_to), end=end, acknowledged_to=acknowledged_to,
        released_to=draw(up_to), receipts_url=draw(_TEXTS), resend_interval_index=draw(st.integers(0, 40)),
        paused=draw(st.booleans()), started_at=draw(_NUMBERS), last_acknowledged_at=draw(_NUMBERS),
        begun_after=draw(st.integers(0, acknowledged_to)),
        finals_since=draw(_NUMBERS), finals_to=draw(st.integers(0, acknowledged_to)),
        earlier=tuple(draw(st.lists(_EARLIER, unique_by=lambda each: each.ordinal))),
    )  # fmt: skip


@given(queue_rows(), st.builds(
    SessionRow, create_id=_TEXTS, identifier=_TEXTS, versions=st.sampled_from(["", Versions().dump()]), assigned=_NUMBERS,
    numbers=st.lists(st.builds(NumberRun, _NUMBERS, st.integers(1, 2**53), st.integers(1, 99))).map(tuple),
    buffer_remaining=_NUMBERS, ending=st.booleans(), lost=_TEXTS, begun_at=_NUMBERS,
))  # fmt: skip
def test_what_is_written_is_read(row: OutgoingQueueRow, session: Any) -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(DDL)
    add_columns(connection)
    number = save_queue(connection, row, None)
    save_session(connection, number, session)
    assert load_queues(connection) == [row]
    assert load_sessions(connection) == {QueueKey(row.destination, row.kind): session}
    connection.close()
