"""Read the rows of copied messages from the store, in a thread.

There may be hundreds of thousands of them, and the loop accepts messages meanwhile. A connection of
its own reads them, in the order of their lookup identifiers, one by one. What is returned is a set
of sequences for each answer, which takes a bit for each row.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from srmp_spark.queue_manager.puller.gateway_side.pulled import PulledKey
from srmp_spark.sequences.sequence_set import SequenceSet
from srmp_spark.store.database.schema import connect_reader, readable
from srmp_spark.store.directory import DATABASE_FILE
from srmp_spark.store.tables import cutovers
from srmp_spark.store.tables.cutovers import CopiedRow, CutoverRow

SEQUENCES_AT_ONCE = 10_000
"""Sequences that are added to a set at once."""


@dataclass(slots=True)
class CopiedRows:
    """The rows of the copied messages of one subscription."""

    there: SequenceSet = field(default_factory=SequenceSet)
    """Rows of messages that are not decided: their originals were there at the last look."""
    received_there: SequenceSet = field(default_factory=SequenceSet)
    """Rows of messages that other readers received in the remote queue."""
    unplaced: int = 0
    """Number of messages that were received there and whose rows are not known."""


async def read_copied_rows(directory: Path, subscription: str) -> CopiedRows:
    """Read the rows of all copied messages of a subscription from the store.

    Raises :class:`StoreError` if the store cannot be read.
    """
    return await asyncio.to_thread(_read, directory, subscription)


async def read_rowless(directory: Path, subscription: str, holes: SequenceSet) -> list[PulledKey]:
    """Return the undecided copied messages whose rows do not exist, because ``holes`` has them.

    Raises :class:`StoreError` if the store cannot be read.
    """
    return await asyncio.to_thread(_read_rowless, directory, subscription, holes)


async def read_cutover(directory: Path, subscription: str) -> CutoverRow | None:
    """Return the stored cut-over of a subscription, or ``None`` if there is none.

    Raises :class:`StoreError` if the store cannot be read.
    """

    def read() -> CutoverRow | None:
        with _connected(directory) as connection:
            return cutovers.load(connection, subscription)

    return await asyncio.to_thread(read)


async def read_received_there(
    directory: Path, subscription: str, after: PulledKey | None
) -> list[CopiedRow]:
    """Return the next messages that were received there, at most ``cutovers.PAGE_ROWS``.

    ``after`` is the key of the last message of the page before. Raises :class:`StoreError` if the
    store cannot be read.
    """

    def read() -> list[CopiedRow]:
        with _connected(directory) as connection:
            return cutovers.received_there(connection, subscription, after)

    return await asyncio.to_thread(read)


def _read(directory: Path, subscription: str) -> CopiedRows:
    found = CopiedRows()
    some: tuple[list[int], list[int]] = ([], [])
    sets = (found.there, found.received_there)
    for row in _rows(directory, subscription):
        if row.sequence is None:
            found.unplaced += row.gone_at is not None
            continue
        which = row.gone_at is not None
        some[which].append(row.sequence)
        if len(some[which]) >= SEQUENCES_AT_ONCE:
            sets[which].add_each(some[which])
            some[which].clear()
    for sequences, into in zip(some, sets, strict=True):
        into.add_each(sequences)
    return found


def _read_rowless(directory: Path, subscription: str, holes: SequenceSet) -> list[PulledKey]:
    return [
        PulledKey(row.lookup_id, row.message_id)
        for row in _rows(directory, subscription)
        if row.gone_at is None and row.sequence is not None and row.sequence in holes
    ]


def _rows(directory: Path, subscription: str) -> Iterator[CopiedRow]:
    with _connected(directory) as connection:
        yield from cutovers.rows_of(connection, subscription)


@contextmanager
def _connected(directory: Path) -> Iterator[sqlite3.Connection]:
    path = directory / DATABASE_FILE
    with readable(path), closing(connect_reader(path)) as connection:
        yield connection
