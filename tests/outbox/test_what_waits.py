"""Messages that wait: read in parts, taken out anywhere, dead letters and journal copies with their content."""

from __future__ import annotations

import json
import random
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from outbox_kit import DAY, NOW, QM, RECEIPTS, A, B, Desk, bodies, read_all
from test_crash import assert_nothing_invisible, next_send

from srmp_spark.errors import StoreDamagedError
from srmp_spark.srmp.codec.encoder import encode
from srmp_spark.srmp.sending.outgoing_effects import (
    DeadLetter,
    EarlierStream,
    Load,
    QueueKey,
    Send,
    SerialRun,
)
from srmp_spark.srmp.sending.outgoing_stream import OutgoingStream
from srmp_spark.store.outbox.limits import DEAD_LETTER_DAYS
from srmp_spark.store.outbox.tables.schema import DATABASE_FILE, FORMAT

STREAM = QueueKey(A, "stream")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "data")


def number_of_groups(desk: Desk) -> tuple[int, int, int]:
    execute = desk.outbox.database.connection.execute
    return tuple(
        execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        for table in ("parts", "groups", "data")
    )  # type: ignore[return-value]  # three


def test_every_column_comes_back_as_a_message_that_can_be_encoded(desk: Desk) -> None:
    row = {
        "body": b"\x00\xff", "destination": "DIRECT=http://A.example/msmq/Private$/Orders", "label": "L & <é>", "priority": 7,
        "correlation_id": bytes(range(20)), "app_specific": 2**32 - 1, "body_type": 30,
        "response_queue": "DIRECT=http://r.example/msmq/q", "admin_queue": "DIRECT=http://r.example/msmq/admin",
        "time_to_reach_queue": NOW + 5, "extension": b"ext", "key": "k", "delivery": "recoverable", "journal": True,
    }  # fmt: skip
    desk.send(
        [row],
        types={"time_to_reach_queue": pa.timestamp("us", tz="UTC"), "app_specific": pa.int64()},
    )
    (stored,) = desk.read(A, "plain")
    message = stored.message
    assert message.destination == "http://A.example/msmq/Private$/Orders", "as it was spelled"
    assert (message.label, message.priority, message.correlation) == (
        "L & <é>",
        7,
        bytes(range(20)),
    )
    assert (message.app_specific, message.body_type, message.body, message.extension) == (
        2**32 - 1,
        30,
        b"\x00\xff",
        b"ext",
    )
    assert (message.response_queue, message.delivery_receipt_to) == (
        row["response_queue"],
        "http://r.example/msmq/admin",
    )
    assert (message.time_to_reach_queue, message.sent_at, message.journal, message.durable) == (
        NOW + 5,
        NOW,
        True,
        True,
    )
    assert (message.lineage, message.source_qm, message.uniquifier, message.id) == (
        QM,
        QM,
        1,
        f"{{{QM}}}\\1",
    )
    encode(message, boundary="b")


def test_the_shortest_row(desk: Desk) -> None:
    desk.send([{"body": b""}])
    (stored,) = desk.read()
    assert (
        stored.message.body,
        stored.message.label,
        stored.message.priority,
        stored.message.body_type,
    ) == (b"", "", 3, 0)
    assert (stored.message.first_in_transaction, stored.message.last_in_transaction) == (True, True)
    encode(stored.message, boundary="b")


def test_a_load_keeps_to_its_limits(desk: Desk) -> None:
    desk.send([{"body": bytes(100), "label": str(n)} for n in range(600)], batch="1")
    desk.send([{"body": bytes(5_000)}, {"body": bytes(10)}], batch="2")
    load = desk.outbox.load
    assert [m.serial for m in load(Load(STREAM, 0, 10**6, 256, 10**6, 1))] == [*range(1, 257)]
    assert [m.serial for m in load(Load(STREAM, 250, 260, 256, 10**6, 1))] == [*range(251, 261)]
    assert [m.serial for m in load(Load(STREAM, 255, 10**6, 256, 350, 1))] == [256, 257, 258], (
        "100 bytes each"
    )
    assert [m.serial for m in load(Load(STREAM, 599, 10**6, 9, 200, 1))] == [600], (
        "the next has 5,000"
    )
    assert [m.serial for m in load(Load(STREAM, 600, 10**6, 9, 200, 1))] == [601], (
        "one may be larger, alone"
    )
    assert load(Load(STREAM, 602, 10**6, 9, 200, 1)) == []
    assert load(Load(QueueKey(B, "stream"), 0, 9, 9, 9, 1)) == []


def test_finished_and_dead_messages_against_an_oracle(desk: Desk) -> None:
    rng = random.Random(7)
    there: dict[int, bytes] = {}
    dead: list[tuple[int, bytes, str]] = []
    journal: list[tuple[int, bytes]] = []
    serial = 0
    for turn in range(60):
        if turn % 3 == 0:
            rows = [
                {"body": b"%d/%d" % (turn, n), "journal": n % 5 == 0}
                for n in range(rng.choice([1, 5, 300, 700]))
            ]
            desk.send(rows, batch=str(turn))
            for row in rows:
                serial += 1
                there[serial] = row["body"]
        finished, letters = [], []
        for _ in range(rng.randrange(4)):
            first = rng.randrange(1, serial + 1)
            run = SerialRun(STREAM, first, min(serial, first + rng.choice([0, 1, 50, 600])))
            gone = [n for n in range(run.first, run.last + 1) if n in there]
            if rng.random() < 0.6:
                finished.append(run)
                journal += [
                    (n, there.pop(n)) for n in gone if int(there[n].split(b"/")[1]) % 5 == 0
                ]
                for n in gone:
                    there.pop(n, None)
            elif not finished:
                letters.append(DeadLetter(run, "dropped", None, True))
                dead += [(n, there.pop(n), "dropped") for n in gone]
        before = desk.sender.changes()
        desk.outbox.write(before._replace(finished=[], dead_letters=letters), NOW + turn)
        desk.outbox.write(
            before._replace(queues=[], finished=finished, dead_letters=[]), NOW + turn
        )
        if rng.random() < 0.2:
            desk.close()
            desk = Desk(desk.directory, first_identifier=desk.next_identifier)
        found = read_all(desk.outbox, STREAM, rng.choice([7, 256]), rng.choice([100, 1 << 20]))
        assert {stored.serial: stored.message.body for stored in found} == there
        assert all(stored.message.uniquifier == stored.serial for stored in found), (
            "one queue: as many identifiers"
        )
        assert_nothing_invisible(desk)
    moved = list(desk.outbox.waiting.moved_groups(0, 10**9))
    told = [
        (m.serial, m.message.body, row.reason, row.fate)
        for row, messages, _ in moved
        for m in messages
    ]
    assert sorted((n, b, r) for n, b, r, fate in told if fate == "dead") == sorted(dead)
    assert sorted((n, b) for n, b, _, fate in told if fate == "journal") == sorted(journal)
    assert len(dead) > 500
    assert len(journal) > 50


def test_when_all_is_finished_nothing_is_left(desk: Desk) -> None:
    desk.send([{"body": b"%d" % n} for n in range(1_000)])
    assert number_of_groups(desk) == (1, 4, 4)
    changes = desk.sender.changes()
    desk.outbox.write(changes._replace(finished=[SerialRun(STREAM, 1, 999)]), NOW)
    assert number_of_groups(desk) == (1, 1, 1)
    desk.outbox.write(changes._replace(finished=[SerialRun(STREAM, 1000, 1000)]), NOW)
    assert number_of_groups(desk) == (0, 0, 0)


def test_a_dead_letter_says_why_when_and_what(desk: Desk) -> None:
    desk.send([{"body": b"a", "key": "k1", "label": "x"}, {"body": b"b", "key": "k2"}])
    send = next_send(desk)
    desk.sender.answered(send, 400, 0.0, NOW)
    desk.at += 7
    (outcome,) = desk.save()
    assert outcome.letter.run == SerialRun(STREAM, 1, 1)
    ((row, messages, keys),) = desk.outbox.waiting.moved_groups(0, 100)
    assert (row.fate, row.reason, row.status, row.target, row.moved_at, row.rows) == (
        "dead",
        "refused",
        400,
        "deadxact$",
        NOW + 7,
        1,
    )
    assert (row.application, row.batch, row.enqueued_at, keys) == ("app", "1", NOW, ["k1"])
    assert (row.position, row.stream_ordinal) == (
        desk.outbox.database.position,
        str(send.message.stream.id.ordinal),
    )  # type: ignore[union-attr]  # a stream
    (dead,) = messages
    assert dead.message._replace(stream=send.message.stream) == send.message._replace(priority=3)
    assert dead.serial - row.base == send.message.stream.current  # type: ignore[union-attr]  # a stream
    assert bodies(desk.read()) == [b"b"]
    assert desk.send([{"body": b"a", "key": "k1", "label": "x"}], batch="2").known == 1, (
        "dead, but known"
    )
    desk.at += DEAD_LETTER_DAYS * DAY + 1
    while desk.outbox.sweep(desk.at):
        pass
    assert list(desk.outbox.waiting.moved_groups(0, 100)) == []
    assert_nothing_invisible(desk)


def test_a_large_run_dies_without_being_copied(desk: Desk) -> None:
    desk.send([{"body": b"%d" % n} for n in range(2_000)])
    before = {n for (n,) in desk.outbox.database.connection.execute("SELECT id FROM data")}
    desk.sender.drop(A, "stream", NOW)
    desk.save()
    after = {n for (n,) in desk.outbox.database.connection.execute("SELECT id FROM data")}
    assert before == after
    assert [
        m.message.body for _, ms, _ in desk.outbox.waiting.moved_groups(0, 10**6) for m in ms
    ] == [b"%d" % n for n in range(2_000)]
    assert desk.sender.forget(A, "stream")
    desk.save()
    assert desk.outbox.queue_rows() == []
    desk.send([{"body": b"again"}], batch="2")
    assert [m.serial for m in desk.read()] == [2001], "its dead letters have the serials before"


def test_finals_are_loaded_as_runs(desk: Desk) -> None:
    desk.send([{"body": b"%d" % n} for n in range(10)], batch="1", dead_letter=True)
    desk.send([{"body": b"x"}] * 3, batch="2")
    desk.send([{"body": b"%d" % n} for n in range(300)], batch="3", dead_letter=True)
    assert [m.message.dead_letter for m in desk.read()] == [True] * 10 + [False] * 3 + [True] * 300
    changes = desk.sender.changes()
    desk.outbox.write(
        changes._replace(finished=[SerialRun(STREAM, 3, 4), SerialRun(STREAM, 13, 14)]), NOW
    )
    assert desk.outbox.finals() == {STREAM: [(1, 2), (5, 10), (15, 313)]}


def test_the_engine_s_rows_come_back_as_they_were(desk: Desk) -> None:
    desk.send([{"body": b"a"}])
    desk.send([{"body": b"a", "delivery": "express"}], batch="2")
    desk.sender.pause(A, "plain")
    desk.save()
    rows, last = desk.outbox.queue_rows(), desk.sender.changes().last_stream_ordinal
    assert [row.paused for row in rows] == [False, True]
    assert rows[0].receipts_url == RECEIPTS
    assert rows[0].stream_ordinal == last > 1 << 60
    desk.close()
    again = Desk(desk.directory)
    assert again.outbox.queue_rows() == rows == [queue.row() for queue in again.sender]
    assert again.outbox.last_stream_ordinal == last


def test_an_earlier_stream_comes_back_with_its_address_and_as_an_older_version_left_it(
    desk: Desk,
) -> None:
    """The address has a column of its own: an older version reads the other one, and goes on to write it."""
    desk.send([{"body": b"%d" % n} for n in range(3)], dead_letter=True)
    (stream,) = desk.sender
    assert isinstance(stream, OutgoingStream)
    old = EarlierStream(stream.ordinal, 0, 2, f"{RECEIPTS}?SenderStream=old")
    stream.earlier, stream.receipts_url = (old,), f"{RECEIPTS}?SenderStream=new"
    stream.touch()
    desk.save()
    desk.close()
    with sqlite3.connect(desk.directory / DATABASE_FILE) as connection:
        ((kept,),) = connection.execute("SELECT earlier FROM queues")
        assert json.loads(kept) == [[stream.ordinal, 0, 2]]
    again = Desk(desk.directory)
    assert again.outbox.queue_rows()[0].earlier == (old,)
    again.close()
    with sqlite3.connect(desk.directory / DATABASE_FILE) as connection:
        connection.execute("ALTER TABLE queues DROP COLUMN earlier_receipts")
    older = Desk(desk.directory)
    assert older.outbox.queue_rows()[0].earlier == (old._replace(receipts_url=""),)
    (found,) = older.sender
    assert isinstance(found, OutgoingStream)
    assert found.earlier == (old._replace(receipts_url=stream.receipts_url),), (
        "a version with one secret told all the same"
    )


def test_a_copied_data_directory_holds_what_waits(desk: Desk) -> None:
    desk.send([{"body": b"a", "destination": A}, {"body": b"b", "destination": B}])
    changes = desk.sender.changes()
    desk.outbox.write(changes._replace(finished=[SerialRun(QueueKey(B, "stream"), 1, 1)]), NOW)
    desk.close()
    same = Desk(desk.directory)
    assert same.outbox.held == []
    same.close()
    copy = Desk(desk.directory, epoch="e2")
    assert copy.outbox.held == [STREAM]
    assert {row.destination: row.paused for row in copy.outbox.queue_rows()} == {A: True, B: False}
    copy.close()
    assert Desk(desk.directory, epoch="e2").outbox.held == []


def test_another_queue_manager_s_outbox_is_refused(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.close()
    monkeypatch.setattr("outbox_kit.QM", "00000000-1111-0000-0000-000000000000")
    with pytest.raises(StoreDamagedError, match="mixed up"):
        Desk(desk.directory)


def test_a_newer_format_is_refused(desk: Desk) -> None:
    desk.outbox.database.connection.execute(f"PRAGMA user_version = {FORMAT + 1}")
    desk.close()
    with pytest.raises(StoreDamagedError, match="start the newer version"):
        Desk(desk.directory)


def test_a_damaged_group_is_an_error_and_never_a_message(desk: Desk) -> None:
    desk.send([{"body": b"a" * 100}])
    execute = desk.outbox.database.connection.execute
    (data,) = execute("SELECT data FROM data").fetchone()
    execute("UPDATE data SET data = ?", (data.replace(b"aaaa", b"aaba", 1),))
    with pytest.raises(StoreDamagedError, match="checksum"):
        desk.read()


def test_rows_of_our_own(desk: Desk) -> None:
    rows: list[dict[str, Any]] = [
        {"body": b"a", "destination": A, "key": "k", "app_specific": 5},
        {"body": "é", "destination": A},
    ]
    prepared: Any = desk.outbox.prepare_rows("send", "1", rows, NOW)
    desk.write(prepared.run())
    assert [(m.message.body, m.message.app_specific) for m in desk.read()] == [
        (b"a", 5),
        ("é".encode(), 0),
    ]
    assert list(desk.outbox.stages.folder.iterdir()) == []


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("kind", ["stream", "plain"])
def test_serials_of_a_forgotten_queue_are_not_given_out_again(
    desk: Desk, kind: str, restart: bool
) -> None:
    """Its dead letters are found by them for weeks."""
    more = {"delivery": "transactional" if kind == "stream" else "express"}
    key = QueueKey(A, kind)  # type: ignore[arg-type]  # a Kind
    desk.send([{"body": b"a", **more}, {"body": b"b", **more}])
    desk.sender.drop(*key, NOW)
    desk.save()
    assert desk.sender.forget(*key)
    desk.save()
    assert desk.outbox.queue_rows() == []
    if restart:
        desk.close()
        desk = Desk(desk.directory, first_identifier=desk.next_identifier)
    desk.send([{"body": b"c", **more}], batch="2")
    assert [stored.serial for stored in desk.read(A, kind)] == [3]
    sends = [each for _ in range(4) for each in step(desk)]
    assert [send.serial for send in sends] == [3]
    if kind == "stream":
        assert sends[0].message.stream.current == 1, "a new stream begins with 1"


def step(desk: Desk) -> list[Send]:
    found = desk.sender.poll(0.0, NOW)
    for each in found:
        if isinstance(each, Load):
            desk.sender.loaded(each, desk.outbox.load(each))
    if desk.sender.has_changes:
        desk.save()
    return [each for each in found if isinstance(each, Send)]
