"""Delete, in slices, the rows that are past their time.

Such rows are stages, identities, the results of their commits, source positions, and dead letters.

Identities and dead letters grow old by the *retention clock*, which cannot be set ahead
(:mod:`srmp_spark.srmp.receiving.history_clock`), because an identity that is forgotten too early
causes a duplicate message. Stages grow old by the wall clock, because their writer can stage them
again.
"""

from __future__ import annotations

import sqlite3

from srmp_spark.store.outbox.limits import DEAD_LETTER_DAYS, IDENTITY_DAYS, SWEEP_ROWS
from srmp_spark.store.outbox.preparing.leftovers import (
    GROUPS_AT_ONCE,
    forget_identities,
    forget_scope,
)
from srmp_spark.store.outbox.staging.stages import Stages
from srmp_spark.store.outbox.tables.database import OutboxDatabase

CLOCK_NOTED_US = 3_600_000_000
"""How far the retention clock moves, in microseconds, before it is stored again."""

_CLOCK = "retention_clock"
_DAY_US = 86_400_000_000


def newest(connection: sqlite3.Connection) -> int | None:
    """Return the latest time that the outbox shows, or ``None`` in a new outbox.

    That is the later one of the stored retention clock and the time of the newest committed batch,
    in microseconds since 1970, UTC.
    """
    (noted,) = connection.execute(
        "SELECT max(CAST(value AS INTEGER)) FROM meta WHERE key = ?", (_CLOCK,)
    ).fetchone()
    (committed,) = connection.execute("SELECT max(at) FROM batches WHERE committed").fetchone()
    return max((at for at in (noted, committed) if at is not None), default=None)


def note_clock(database: OutboxDatabase, at: int) -> None:
    """Store ``at``, the time of the retention clock, if an hour has passed since it was stored.

    ``at`` is in microseconds since 1970, UTC. The next process continues from the stored time.
    """
    row = database.connection.execute("SELECT value FROM meta WHERE key = ?", (_CLOCK,)).fetchone()
    if row is None or at - int(row[0]) >= CLOCK_NOTED_US:
        with database.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (_CLOCK, str(at)))


def sweep(database: OutboxDatabase, stages: Stages, wall: int, at: int) -> bool:
    """Delete one slice of what is past its time; return whether there may be more.

    ``wall`` is the wall clock and ``at`` the retention clock, both in microseconds since 1970, UTC.
    """
    note_clock(database, at)
    if _batch(database, at) or _positions(database, at) or _moved(database, min(wall, at)):
        return True
    stages.drop_old(wall)
    stages.sweep_files()
    return False


def _batch(database: OutboxDatabase, at: int) -> bool:
    """Delete one chunk of identities of the oldest batch, or its row, if it is past its time.

    While the row of the batch exists, a repeated commit of the batch gets its result. Return
    whether anything was deleted.
    """
    row = database.connection.execute(
        "SELECT no, at FROM batches WHERE committed ORDER BY no LIMIT 1"
    ).fetchone()
    if row is None or row[1] >= at - IDENTITY_DAYS * _DAY_US:
        return False
    if forget_identities(database, row[0]):
        return True
    with database.transaction() as connection:
        connection.execute("DELETE FROM batches WHERE no = ?", (row[0],))
        connection.execute("DELETE FROM batch_conflicts WHERE batch_no = ?", (row[0],))
        connection.execute("DELETE FROM batch_bad_rows WHERE batch_no = ?", (row[0],))
    return True


def _positions(database: OutboxDatabase, at: int) -> bool:
    rows = database.connection.execute(
        "SELECT scope_id, source_id, block FROM positions WHERE at < ? LIMIT ?",
        (at - IDENTITY_DAYS * _DAY_US, SWEEP_ROWS),
    ).fetchall()
    if rows:
        with database.transaction() as connection:
            connection.executemany(
                "DELETE FROM positions WHERE scope_id = ? AND source_id = ? AND block = ?", rows
            )
            connection.executemany(
                "DELETE FROM position_contents WHERE scope_id = ? AND source_id = ? AND block = ?",
                rows,
            )
            for scope in {row[0] for row in rows}:
                forget_scope(connection, scope)
    return len(rows) == SWEEP_ROWS


def _moved(database: OutboxDatabase, at: int) -> bool:
    rows = database.connection.execute(
        "SELECT id, data_id FROM moved WHERE moved_at < ? ORDER BY moved_at LIMIT ?",
        (at - DEAD_LETTER_DAYS * _DAY_US, GROUPS_AT_ONCE),
    ).fetchall()
    if rows:
        with database.transaction() as connection:
            connection.executemany("DELETE FROM data WHERE id = ?", [(data,) for _, data in rows])
            connection.executemany(
                "DELETE FROM moved WHERE id = ?", [(number,) for number, _ in rows]
            )
    return len(rows) == GROUPS_AT_ONCE
