"""What is lost of multicast messages, until the Delta table ``pgm_loss`` has it (INTERFACE.md section 4, "State tables").

PGM repairs what it can; the rest nobody sends again, and a row here is what remains of it. Without ``--state`` the newest
:data:`LOSSES_KEPT` are kept. A restore brings none back: they are in the Delta table.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from srmp_spark.store.transaction import Transaction

DDL = """
CREATE TABLE IF NOT EXISTS pgm_loss(
    number INTEGER PRIMARY KEY AUTOINCREMENT, epoch_id INTEGER NOT NULL, position INTEGER NOT NULL, queue TEXT NOT NULL,
    address TEXT NOT NULL, source TEXT NOT NULL, tsi TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
    packets INTEGER NOT NULL, reason TEXT NOT NULL, detail TEXT, lost_at INTEGER NOT NULL
)
"""
"""New in 0.2, made at every open. An older version does not know it."""

LOSSES_KEPT = 10_000
"""Rows that no Delta table has yet: whoever forges losses must not fill the disk."""


class Loss(NamedTuple):
    """Packets of one session that make no row of a queue."""

    queue: str
    address: str
    """``IP:PORT`` of the group."""
    source: str
    """Where they came from."""
    tsi: str
    """The session: global source identifier and source port."""
    first: int
    last: int
    """Sequence numbers of PGM, 32 bits; ``last`` may be less than ``first``, they wrap."""
    packets: int
    """How many of them; less than the range has if several losses are told by one row."""
    reason: str
    detail: str | None
    lost_at: int
    """Microseconds since 1970, UTC."""


_OF_LOSS = ", ".join(f"pgm_loss.{name}" for name in Loss._fields)


class StoredLoss(NamedTuple):
    """A row, as the publisher reads it."""

    epoch: str
    number: int
    """Counts in the data directory, from 1."""
    loss: Loss


def store(transaction: Transaction, losses: Sequence[Loss]) -> None:
    """Write them down; what is beyond :data:`LOSSES_KEPT` goes, the oldest first."""
    transaction.connection.executemany(
        f"INSERT INTO pgm_loss(epoch_id, position, {', '.join(Loss._fields)}) VALUES (?, "  # noqa: S608  # our own names
        f"?{', ?' * len(Loss._fields)})",
        [(transaction.epoch_id, transaction.position, *loss) for loss in losses],
    )
    transaction.connection.execute(
        "DELETE FROM pgm_loss WHERE number <= (SELECT max(number) FROM pgm_loss) - ?",
        (LOSSES_KEPT,),
    )


def forget(transaction: Transaction, position: int) -> None:
    """The Delta table has all that was stored up to commit ``position``."""
    transaction.connection.execute("DELETE FROM pgm_loss WHERE position <= ?", (position,))


def load(connection: sqlite3.Connection) -> list[StoredLoss]:
    """All that are kept, in order."""
    found = connection.execute(
        f"SELECT epoch, number, {_OF_LOSS} FROM pgm_loss JOIN epochs ON epochs.id = "  # noqa: S608  # our own names
        "epoch_id ORDER BY number"
    )
    return [StoredLoss(epoch, number, Loss(*rest)) for epoch, number, *rest in found]
