"""What an outbox that is a copy must not go on with.

The original may have sent what waits here, and other messages behind it that this copy knows nothing about. So everything
that waits is held until an operator decides, and counts as in doubt. No stream goes on: its next positions may be taken, and a
peer answers a taken position with 200 and keeps nothing.
"""

from __future__ import annotations

import sqlite3

from srmp_spark.srmp.outgoing_effects import QueueKey
from srmp_spark.srmp.outgoing_ledger import OutgoingLedger

ORDINAL_GAP = 1 << 20
"""Streams that the original may have begun meanwhile; beyond that only the seconds in a stream's identifier tell them apart."""

_WAITS = "id IN (SELECT queue_id FROM parts WHERE queue_id IS NOT NULL)"


def begin_anew(
    connection: sqlite3.Connection, last_stream_ordinal: int, at: int
) -> tuple[list[QueueKey], int]:
    """In the caller's transaction; the queues that are held, and the last stream ordinal that is given out now."""
    held = [
        QueueKey(*row)
        for row in connection.execute(f"SELECT destination, kind FROM queues WHERE {_WAITS}")  # noqa: S608  # our own text
    ]
    connection.execute(f"UPDATE queues SET paused = 1, released_to = end WHERE {_WAITS}")  # noqa: S608  # our own text
    connection.execute(
        "DELETE FROM reliable_sessions"
    )  # their next numbers may be other messages at the destination
    ledger = OutgoingLedger(last_stream_ordinal + ORDINAL_GAP)
    live = connection.execute(
        "SELECT id FROM queues WHERE kind = 'stream' AND (acknowledged_to < end OR "  # noqa: S608  # our own text
        f"{_WAITS}) ORDER BY id"
    ).fetchall()
    for (number,) in live:
        connection.execute(
            "UPDATE queues SET stream_ordinal = ?, base = acknowledged_to, "
            "resend_interval_index = 0, started_at = ? "
            "WHERE id = ?",
            (str(ledger.new_stream_ordinal(at)), at, number),
        )
    connection.execute(
        "INSERT OR REPLACE INTO meta VALUES ('last_stream_ordinal', ?)",
        (str(ledger.last_stream_ordinal),),
    )
    return held, ledger.last_stream_ordinal
