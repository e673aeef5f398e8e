"""Store losses of multicast messages until the Delta table ``pgm_loss`` has them.

See INTERFACE.md section 4, "State tables". PGM repairs what it can. The rest is never sent again,
and a row here is all that remains of it. Without ``--state`` the newest :data:`LOSSES_KEPT` rows
are kept. A restore brings none of these rows back, because they are in the Delta table.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from srmp_spark.store.database.transaction import Transaction

DDL = """
CREATE TABLE IF NOT EXISTS pgm_loss(
    number INTEGER PRIMARY KEY AUTOINCREMENT, epoch_id INTEGER NOT NULL, \
position INTEGER NOT NULL, queue TEXT NOT NULL,
    address TEXT NOT NULL, source TEXT NOT NULL, tsi TEXT NOT NULL, first INTEGER NOT NULL, \
last INTEGER NOT NULL,
    packets INTEGER NOT NULL, reason TEXT NOT NULL, detail TEXT, lost_at INTEGER NOT NULL
)
"""
"""Table that is new in 0.2, created at every open. An older version does not know the table."""

LOSSES_KEPT = 10_000
"""Largest number of stored losses that no Delta table has yet.

Beyond this limit the oldest losses are deleted, because forged losses must not fill the disk.
"""


class Loss(NamedTuple):
    """Lost multicast packets of one session (PGM), which make no row of a queue.

    ``first`` is the sequence number of the first packet. ``reason`` and ``detail`` explain the
    loss.
    """

    queue: str
    address: str
    """``IP:PORT`` of the multicast group."""
    source: str
    """Address from which the packets were sent."""
    tsi: str
    """Session of the packets: global source identifier and source port."""
    first: int
    last: int
    """Sequence number of the last packet (PGM, 32 bits).

    Sequence numbers wrap, so ``last`` may be less than ``first``.
    """
    packets: int
    """Number of lost packets.

    The number is smaller than the length of the range if one row reports several losses.
    """
    reason: str
    detail: str | None
    lost_at: int
    """Time of the loss, in microseconds since 1970, UTC."""


_OF_LOSS = ", ".join(f"pgm_loss.{name}" for name in Loss._fields)


class StoredLoss(NamedTuple):
    """One row of the table, as the publisher reads it."""

    epoch: str
    number: int
    """Number of the loss in the data directory, counted from 1."""
    loss: Loss


def store(transaction: Transaction, losses: Sequence[Loss]) -> None:
    """Store the losses, and delete the oldest stored losses beyond :data:`LOSSES_KEPT`.

    Each loss gets the next number, and the position of the commit.
    """
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
    """Delete the losses that were stored up to commit ``position``.

    Call the function when the Delta table has these losses.
    """
    transaction.connection.execute("DELETE FROM pgm_loss WHERE position <= ?", (position,))


def load(connection: sqlite3.Connection) -> list[StoredLoss]:
    """Return all stored losses, in the order in which they were stored."""
    found = connection.execute(
        f"SELECT epoch, number, {_OF_LOSS} FROM pgm_loss JOIN epochs ON epochs.id = "  # noqa: S608  # our own names
        "epoch_id ORDER BY number"
    )
    return [StoredLoss(epoch, number, Loss(*rest)) for epoch, number, *rest in found]
