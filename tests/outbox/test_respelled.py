"""An outbox of a version that kept IPv6 addresses as they were written: one queue keeps one stream, and its keys are known."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from outbox_kit import A, Desk

from srmp_spark.srmp.outgoing_effects import QueueKey
from srmp_spark.store.outbox.schema import DATABASE_FILE

OLD = "http://[2001:db8:0:0::1]/msmq/private$/q"
NEW = "http://[2001:db8::1]/msmq/private$/q"
OF_A_STRANGER = "http://[not an address]/msmq/private$/q"


def respelled(folder: Path, *spellings: str) -> None:
    """As the older version left it: these in place of today's spelling."""
    with sqlite3.connect(folder / DATABASE_FILE) as connection:
        for table in ("queues", "scopes"):
            for spelling in spellings:
                connection.execute(f"UPDATE {table} SET destination = ? WHERE destination = ?", (spelling, NEW))
    connection.close()


def test_what_waits_goes_on_under_today_s_spelling(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "data")
    desk.send([{"body": b"1", "destination": NEW, "key": "k1"}, {"body": b"a", "destination": A}], batch="1")
    desk.close()
    respelled(tmp_path / "data", OLD)

    again = Desk(tmp_path / "data", first_identifier=10)
    assert {queue.key.destination for queue in again.sender} == {NEW, A}
    before = again.sender.get(NEW, "stream")
    assert before is not None
    assert before.end == 1
    again.send([{"body": b"1", "destination": NEW, "key": "k1"}, {"body": b"2", "destination": NEW, "key": "k2"}], batch="2")
    assert before.end == 2, "k1 is known"
    again.close()


def test_what_is_there_under_both_spellings_stays_and_what_is_no_url_too(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "data")
    for batch, url in enumerate((NEW, A)):
        desk.send([{"body": b"1", "destination": url}], batch=str(batch))
    desk.close()
    with sqlite3.connect(tmp_path / "data" / DATABASE_FILE) as connection:
        for number, spelling in enumerate((OLD, OF_A_STRANGER)):
            connection.execute(
                "INSERT INTO queues(destination, kind, stream_ordinal, base, end, acknowledged_to, released_to, receipts_url, "
                "resend_interval_index, paused, started_at, last_acknowledged_at) "
                "VALUES (?, 'stream', ?, 0, 0, 0, 0, '', 0, 0, 0, 0)", (spelling, str(77 + number)),
            )  # fmt: skip
    connection.close()
    again = Desk(tmp_path / "data")
    assert [queue.key for queue in again.sender] == [QueueKey(url, "stream") for url in (NEW, A, OLD, OF_A_STRANGER)]
    again.close()
