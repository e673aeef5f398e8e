"""An outbox of a version that kept IPv6 addresses as they were written: one queue keeps one stream, and its keys are known."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from outbox_kit import A, Desk

from srmp_spark.srmp.sending.outgoing_effects import QueueKey
from srmp_spark.store.outbox.errors import BatchError
from srmp_spark.store.outbox.tables.schema import DATABASE_FILE

OLD = "http://[2001:db8:0:0::1]/msmq/private$/q"
NEW = "http://[2001:db8::1]/msmq/private$/q"
OTHER_QM, DAY = "2744e4e1-2b48-43e8-b441-42745f280d53", 86_400_000_000
KNOWN = ("scopes", "identities", "identity_log", "positions", "position_contents")
OF_A_STRANGER = "http://[not an address]/msmq/private$/q"


def respelled(folder: Path, *spellings: str) -> None:
    """As the older version left it: these in place of today's spelling."""
    with sqlite3.connect(folder / DATABASE_FILE) as connection:
        for table in ("queues", "scopes"):
            for spelling in spellings:
                connection.execute(
                    f"UPDATE {table} SET destination = ? WHERE destination = ?", (spelling, NEW)
                )
    connection.close()


def test_what_waits_goes_on_under_today_s_spelling(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "data")
    desk.send(
        [{"body": b"1", "destination": NEW, "key": "k1"}, {"body": b"a", "destination": A}],
        batch="1",
    )
    desk.close()
    respelled(tmp_path / "data", OLD)

    again = Desk(tmp_path / "data", first_identifier=10)
    assert {queue.key.destination for queue in again.sender} == {NEW, A}
    before = again.sender.get(NEW, "stream")
    assert before is not None
    assert before.end == 1
    again.send(
        [
            {"body": b"1", "destination": NEW, "key": "k1"},
            {"body": b"2", "destination": NEW, "key": "k2"},
        ],
        batch="2",
    )
    assert before.end == 2, "k1 is known"
    again.close()


def test_what_is_known_under_both_spellings_is_put_together(tmp_path: Path) -> None:
    """An older version knew the keys and positions of each spelling apart: a row that comes again is sent once."""
    position = {"queue_manager": OTHER_QM, "epoch": "e", "queue": "private$/in"}
    desk = Desk(tmp_path / "data")

    def rows(*numbers: int) -> list[dict[str, object]]:
        return [{"body": b"%d" % n, "destination": NEW, "sequence": n, **position} for n in numbers]

    def keys(*names: str) -> list[dict[str, object]]:
        return [{"body": name.encode(), "destination": NEW, "key": name} for name in names]

    desk.send([*rows(1, 2, 4_200), *keys("a", "b")], batch="1")
    desk.close()
    respelled(tmp_path / "data", OLD)
    with sqlite3.connect(
        tmp_path / "data" / DATABASE_FILE
    ) as connection:  # before today's version opens it
        connection.execute("UPDATE queues SET destination = 'http://[2001:db8::2]/msmq/private$/q'")
        connection.execute(
            "UPDATE scopes SET destination = destination || '#'"
        )  # no URL: it stays for this open
    connection.close()
    desk = Desk(tmp_path / "data", first_identifier=10)
    desk.send([*rows(2, 3), *keys("b", "c")], batch="2")
    desk.close()
    with sqlite3.connect(tmp_path / "data" / DATABASE_FILE) as connection:
        connection.execute("UPDATE scopes SET destination = rtrim(destination, '#')")
        assert {
            spelling for (spelling,) in connection.execute("SELECT destination FROM scopes")
        } == {OLD, NEW}
    connection.close()

    again = Desk(tmp_path / "data", first_identifier=20)
    result = again.send([*rows(1, 2, 3, 4, 4_200), *keys("a", "b", "c", "d")], batch="3")
    assert result[:3] == (2, 7, 0)
    with pytest.raises(BatchError, match="with another content"):
        again.send([{"body": b"another", "destination": NEW, "sequence": 1, **position}], batch="4")
    again.at += 31 * DAY
    while again.outbox.sweep(again.at):
        pass
    left = {
        name: again.outbox.database.connection.execute(f"SELECT count(*) FROM {name}").fetchone()
        for name in KNOWN
    }
    assert set(left.values()) == {(0,)}, "what was put together ends as all else"
    again.close()


def test_what_is_there_under_both_spellings_stays_and_what_is_no_url_too(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "data")
    for batch, url in enumerate((NEW, A)):
        desk.send([{"body": b"1", "destination": url}], batch=str(batch))
    desk.close()
    with sqlite3.connect(tmp_path / "data" / DATABASE_FILE) as connection:
        for number, spelling in enumerate((OLD, OF_A_STRANGER)):
            connection.execute(
                "INSERT INTO queues(destination, kind, stream_ordinal, base, end, "
"acknowledged_to, released_to, receipts_url, "
                "resend_interval_index, paused, started_at, last_acknowledged_at) "
                "VALUES (?, 'stream', ?, 0, 0, 0, 0, '', 0, 0, 0, 0)", (spelling, str(77 + number)),
            )  # fmt: skip
    connection.close()
    again = Desk(tmp_path / "data")
    assert [queue.key for queue in again.sender] == [
        QueueKey(url, "stream") for url in (NEW, A, OLD, OF_A_STRANGER)
    ]
    again.close()
