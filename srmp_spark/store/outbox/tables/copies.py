"""The first actions of an outbox that is a copy of another outbox.

The original may have sent the waiting messages, and later messages that this copy does not know. So
all waiting messages are held until an operator decides, and count as in doubt. No stream continues:
the peer may already have messages at the stream's next positions, and a peer answers a message at a
used position with 200 and discards it.
"""

from __future__ import annotations

import sqlite3

from srmp_spark.srmp.sending.outgoing_effects import QueueKey
from srmp_spark.srmp.sending.outgoing_ledger import OutgoingLedger
from srmp_spark.store.outbox.tables import released_queues

ORDINAL_GAP = 1 << 20
"""Number of stream ordinals that are skipped, because the original may have used them meanwhile.

If the original began more streams than this, only the seconds in the streams' identifiers
distinguish the streams.
"""

_WAITS = "id IN (SELECT queue_id FROM parts WHERE queue_id IS NOT NULL)"


def begin_anew(
    connection: sqlite3.Connection, last_stream_ordinal: int, at: int
) -> tuple[list[QueueKey], int]:
    """Hold all waiting messages of a copied outbox, and begin new streams for later ones.

    Sequences of WS-ReliableMessaging are deleted. The function runs in the caller's transaction.
    ``last_stream_ordinal`` is the highest stream ordinal that this outbox knows. Return the queues
    that are held, and the highest stream ordinal in use afterwards. ``at`` is the wall clock in
    microseconds since 1970, UTC.
    """
    held = [
        QueueKey(*row)
        for row in connection.execute(f"SELECT destination, kind FROM queues WHERE {_WAITS}")  # noqa: S608  # our own text
    ]
    connection.execute(f"UPDATE queues SET paused = 1, released_to = end WHERE {_WAITS}")  # noqa: S608  # our own text
    released_queues.forget(connection)
    # At the destination the next numbers may already belong to other messages.
    connection.execute("DELETE FROM reliable_sessions")
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
