"""Delete what a batch that does not count has written, at open or after a refusal.

These are its groups, its parts, the hashes of its rows, and its own row.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Generator
from pathlib import Path

from srmp_spark.store.outbox.identity.hashing import HASH_BYTES
from srmp_spark.store.outbox.tables.database import OutboxDatabase
from srmp_spark.store.outbox.tables.schema import OFFSET_BITS

GROUPS_AT_ONCE = 64
"""Groups that one transaction deletes: 16 MB, as much as two chunks."""

CONTENTS_AT_ONCE = 256
"""Records of contents that one transaction deletes: 8 MB at most."""


def delete_leftovers(database: OutboxDatabase, sorting: Path) -> int:
    """Delete the rows that uncommitted batches wrote, and the folder ``sorting``.

    The work is done in several transactions before the function returns. Return the number of these
    batches.
    """
    shutil.rmtree(sorting, ignore_errors=True)
    numbers = database.connection.execute("SELECT no FROM batches WHERE NOT committed").fetchall()
    for (number,) in numbers:
        for _ in delete_batch_in_steps(database, number):
            pass
    return len(numbers)


def delete_batch_in_steps(database: OutboxDatabase, number: int) -> Generator[None]:
    """Delete the rows that batch ``number`` wrote before it counted, and at last its own row.

    Each step is a small transaction. Iterate over the generator until it ends.
    """
    connection = database.connection
    parts = connection.execute(
        "SELECT id FROM parts WHERE batch_no = ? AND queue_id IS NULL", (number,)
    ).fetchall()
    for (part,) in parts:
        while delete_groups(database, part):
            yield
    while forget_identities(database, number):
        yield
    while forget_contents(database, number):
        yield
    with database.transaction():
        connection.execute("DELETE FROM scopes WHERE batch_no = ?", (number,))
        connection.execute("DELETE FROM batches WHERE no = ?", (number,))


def delete_groups(database: OutboxDatabase, part: int) -> bool:
    """Delete up to GROUPS_AT_ONCE groups of a part; return whether the part may have more.

    The part is one of an uncommitted batch, and is itself deleted with the last groups.
    """
    low, high = part << OFFSET_BITS, (part + 1) << OFFSET_BITS
    groups = database.connection.execute(
        "SELECT id, data_id FROM groups WHERE id >= ? AND id < ? LIMIT ?",
        (low, high, GROUPS_AT_ONCE),
    ).fetchall()
    more = len(groups) == GROUPS_AT_ONCE
    with database.transaction() as connection:
        connection.executemany("DELETE FROM data WHERE id = ?", [(data,) for _, data in groups])
        connection.executemany("DELETE FROM groups WHERE id = ?", [(group,) for group, _ in groups])
        if not more:
            connection.execute("DELETE FROM parts WHERE id = ?", (part,))
    return more


def forget_contents(database: OutboxDatabase, number: int) -> bool:
    """Delete up to CONTENTS_AT_ONCE records of contents that batch ``number`` stored.

    The contents are those of source positions (:mod:`.positions`). They are deleted in a
    transaction of its own. Return whether there may be more.
    """
    rows = database.connection.execute(
        "SELECT scope_id, source_id, block, batch_no FROM position_contents WHERE "
        "batch_no = ? LIMIT ?",
        (number, CONTENTS_AT_ONCE),
    ).fetchall()
    if rows:
        with database.transaction(unsynced_bytes=CONTENTS_AT_ONCE << 15) as connection:
            connection.executemany(
                "DELETE FROM position_contents WHERE scope_id = ? AND source_id = ? AND "
                "block = ? AND batch_no = ?",
                rows,
            )
    return len(rows) == CONTENTS_AT_ONCE


def forget_identities(database: OutboxDatabase, number: int) -> bool:
    """Delete one chunk of the keys and digests that batch ``number`` stored.

    They are deleted in a transaction of its own, with their scope if it is empty then. Return
    whether there was a chunk to delete.
    """
    connection = database.connection
    row = connection.execute(
        "SELECT id, scope_id, hashes FROM identity_log WHERE batch_no = ? ORDER BY id LIMIT 1",
        (number,),
    ).fetchone()
    if row is None:
        return False
    log, scope, hashes = row
    with database.transaction(unsynced_bytes=len(hashes) * 8):
        connection.executemany(
            "DELETE FROM identities WHERE scope_id = ? AND hash = ? AND batch_no = ?",
            [
                (scope, hashes[at : at + HASH_BYTES], number)
                for at in range(0, len(hashes), HASH_BYTES)
            ],
        )
        connection.execute("DELETE FROM identity_log WHERE id = ?", (log,))
        forget_scope(connection, scope)
    return True


def forget_scope(connection: sqlite3.Connection, scope: int) -> None:
    """Delete a scope (:mod:`.identities`) if it has no more identities and positions.

    The function runs in the caller's transaction. Scopes must not pile up, because each batch write
    of Spark may have an application of its own.
    """
    connection.execute(
        "DELETE FROM scopes WHERE id = :id AND NOT EXISTS (SELECT 1 FROM identities WHERE "
        "scope_id = :id) "
        "AND NOT EXISTS (SELECT 1 FROM positions WHERE scope_id = :id)",
        {"id": scope},
    )
