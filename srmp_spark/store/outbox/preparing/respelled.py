"""Respell destinations that an older version stored: version 0.1 kept IPv6 addresses as written.

An operator could no longer name a queue under such a spelling, and new messages to the same queue
would begin a second stream. So at each open the outgoing queues, and the scopes of known keys and
positions, get today's canonical spelling.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator

from srmp_spark.canonical_url import canonical_outgoing
from srmp_spark.errors import ConfigurationError
from srmp_spark.store.outbox.identity.positions import decode, encode

_log = logging.getLogger(__name__)


def respell(connection: sqlite3.Connection) -> None:
    """Give each destination its canonical spelling of today, in the caller's transaction.

    Each changed or kept queue is logged. An outgoing queue that is stored under both spellings
    keeps both, because their messages have their places in two streams. Known keys and positions of
    both spellings are merged, because a repeated row names its destination in today's spelling.
    """
    for number, destination, spelled in _spelled_otherwise(connection, "queues"):
        done = connection.execute(
            "UPDATE OR IGNORE queues SET destination = ? WHERE id = ?", (spelled, number)
        )
        outcome = (
            "respelled"
            if done.rowcount
            else "kept alongside the other spelling, which has messages of its own"
        )
        _log.warning("outbox.respelled destination=%s to=%s: %s", destination, spelled, outcome)
    for number, _, spelled in _spelled_otherwise(connection, "scopes"):
        done = connection.execute(
            "UPDATE OR IGNORE scopes SET destination = ? WHERE id = ?", (spelled, number)
        )
        if not done.rowcount:
            (other,) = connection.execute(
                "SELECT other.id FROM scopes JOIN scopes AS other USING (application, batch) "
                "WHERE scopes.id = ? AND other.destination = ?",
                (number, spelled),
            ).fetchone()
            _put_together(connection, number, other)


def _spelled_otherwise(
    connection: sqlite3.Connection, table: str
) -> Iterator[tuple[int, str, str]]:
    """Yield the rows of ``table`` whose IPv6 destination has another canonical spelling today.

    Each is a triple of number, stored destination and today's spelling.
    """
    rows = connection.execute(
        f"SELECT id, destination FROM {table} WHERE destination LIKE '%://[%'"  # noqa: S608  # our own names
    ).fetchall()
    for number, destination in rows:
        try:
            spelled = canonical_outgoing(destination)
        except ConfigurationError:
            # The row stays as it is, because no message can be sent to such a destination.
            continue
        if spelled != destination:
            yield number, destination, spelled


def _put_together(connection: sqlite3.Connection, scope: int, into: int) -> None:
    """Move the known keys and positions of ``scope`` to the scope ``into``; delete ``scope``.

    If both scopes know an identity, the entry of ``into`` stays.
    """
    blocks = connection.execute(
        "SELECT source_id, block, old.known, new.known, old.at, new.at FROM positions AS old "
        "JOIN positions AS new USING (source_id, block) WHERE old.scope_id = ? AND "
        "new.scope_id = ?",
        (scope, into),
    ).fetchall()
    for source, block, old, new, *times in blocks:
        known = encode(decode(old) | decode(new))
        connection.execute(
            "UPDATE positions SET known = ?, at = ? WHERE scope_id = ? AND source_id = ? "
            "AND block = ?",
            (known, max(times), into, source, block),
        )
    for table in ("identities", "positions", "position_contents"):
        connection.execute(
            f"UPDATE OR IGNORE {table} SET scope_id = ? WHERE scope_id = ?",  # noqa: S608  # our own names
            (into, scope),
        )
        connection.execute(f"DELETE FROM {table} WHERE scope_id = ?", (scope,))  # noqa: S608  # our own names
    connection.execute("UPDATE identity_log SET scope_id = ? WHERE scope_id = ?", (into, scope))
    connection.execute("DELETE FROM scopes WHERE id = ?", (scope,))
