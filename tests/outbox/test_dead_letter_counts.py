"""How many messages became dead letters, by reason: counted with what moves them, whatever retention deletes."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from outbox_kit import A, B, Desk

from srmp_spark.store.outbox.messages.dead_letter_counts import COUNTED
from srmp_spark.store.outbox.tables.schema import DATABASE_FILE


def test_counts_survive_restarts_retention_and_an_older_version(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "data")
    assert desk.outbox.dead_letters.rows == {}
    desk.send(
        [{"body": b"%d" % n, "destination": url, "key": f"{n}"} for n in range(5) for url in (A, B)]
    )
    desk.sender.drop(A, "stream", desk.at)
    desk.save()
    assert desk.outbox.dead_letters.rows == {"dropped": 5}
    conflict = {"body": b"another", "destination": B, "key": "1"}
    desk.send([conflict], batch="2", on_conflict="dead-letter")
    assert desk.outbox.dead_letters.rows == {"dropped": 5, "key-conflict": 1}
    desk.close()

    with sqlite3.connect(tmp_path / "data" / DATABASE_FILE) as connection:
        connection.execute("UPDATE moved SET moved_at = 0 WHERE reason = 'dropped'")
        connection.execute("DELETE FROM moved WHERE reason = 'dropped'")
    connection.close()
    again = Desk(tmp_path / "data", first_identifier=100)
    assert again.outbox.dead_letters.rows == {"dropped": 5, "key-conflict": 1}
    again.sender.drop(B, "stream", again.at)
    again.save()
    again.close()

    with sqlite3.connect(
        tmp_path / "data" / DATABASE_FILE
    ) as connection:  # as version 0.1 leaves it, or as if it were damaged
        connection.execute("UPDATE meta SET value = 'nonsense' WHERE key = ?", (COUNTED,))
    connection.close()
    last = Desk(tmp_path / "data", first_identifier=200)
    assert last.outbox.dead_letters.rows == {"dropped": 5, "key-conflict": 1}, (
        "what is there is counted"
    )
    last.close()
