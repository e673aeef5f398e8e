"""Collect what is known of each queue.

The sources are the table ``queues``, and rows of ``inbox`` that are newer than that table.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any

from srmp_spark.errors import StoreDamagedError
from srmp_spark.interface import DEFAULT_CONSUMER
from srmp_spark.sequences.as_json import set_from_json
from srmp_spark.sequences.ranges import Range
from srmp_spark.sequences.sequence_set import SequenceSet
from srmp_spark.store.tables import marks


@dataclass(slots=True)
class KnownQueue:
    """The facts that the Delta tables have about one queue of the lost data directory.

    ``holes`` are triples (first, last, reason). ``consumers`` are triples: name, mark, and the set
    of sequences received beyond the mark.
    """

    name: str
    transactional: bool = False
    paused: bool = False
    options: str = "{}"
    trimmed_to: int = 0
    """The last sequence that retention had deleted."""
    deleted_at: int | None = None
    epochs: dict[str, int] = field(default_factory=dict)
    """First sequence of each epoch, oldest first."""
    holes: list[tuple[int, int, str]] = field(default_factory=list)
    consumers: list[tuple[str, int, SequenceSet]] = field(default_factory=list)
    covered: list[Range] = field(default_factory=list)
    """Ranges of sequences whose rows are restored."""
    ends: dict[str, int] = field(default_factory=dict)
    """Last sequence per epoch that the tables have."""
    last_arrived: datetime | None = None
    """Time at which the newest row arrived that the tables have; ``None`` if they have none."""
    listed: bool = False
    """Whether the queue stood in the table ``queues``; otherwise it is known from its rows only."""

    @property
    def end(self) -> int:
        """Return the last sequence that the queue issued, as far as the tables show.

        Rows, holes, epochs and the marks of consumers count. A sequence that a consumer has
        received was issued, even if ``inbox`` is gone or far behind. A row with a sequence below a
        mark would count as received, and would never be read.
        """
        known = [last for _, last, _ in self.holes] + [first - 1 for first in self.epochs.values()]
        return max([self.trimmed_to, self.received, *self.ends.values(), *known])

    @property
    def received(self) -> int:
        """Return the highest sequence that any consumer has received; 0 if none has."""
        return max(
            [
                0,
                *(mark for _, mark, _ in self.consumers),
                *(ahead.last for _, _, ahead in self.consumers if ahead),
            ]
        )

    @property
    def waiting(self) -> int:
        """Return how many restored rows the default consumer had not received, at least.

        A row that it received ahead of its mark may have been deleted, and counts nevertheless.
        """
        mark, ahead = next(
            ((mark, ahead) for name, mark, ahead in self.consumers if name == DEFAULT_CONSUMER),
            (0, SequenceSet()),
        )
        rows = sum(last - max(first, mark + 1) + 1 for first, last in self.covered if last > mark)
        return max(0, rows - len(ahead))

    def saw(self, epoch: str, first: int, last: int) -> None:
        """Record that ``inbox`` has rows of ``epoch``, from ``first`` to ``last`` (both included).

        The table ``queues``, which is written later, may not list the queue with this epoch yet. It
        may also show the queue as deleted although it was created again: a row above ``trimmed_to``
        reveals that.
        """
        # A deletion removes all rows. A row after them means that the queue was created again and
        # continued counting.
        if last > self.trimmed_to:
            self.deleted_at = None
        if epoch not in self.epochs:
            self.epochs[epoch] = first
        self.ends[epoch] = max(last, self.ends.get(epoch, 0))

    def epoch_of(self, sequence: int) -> str:
        """Return the epoch that issued ``sequence``, or the oldest one for a lower sequence.

        The queue must have an epoch.
        """
        found = [epoch for epoch, first in self.epochs.items() if first <= sequence]
        return found[-1] if found else next(iter(self.epochs))


def read_queues(rows: Iterable[Mapping[str, Any]]) -> dict[str, KnownQueue]:
    """Return the queues of the table ``queues`` by name.

    Raises :class:`StoreDamagedError` if a row cannot be read.
    """
    found = {}
    for row in rows:
        try:
            queue = KnownQueue(
                row["queue"],
                row["transactional"],
                row["paused"],
                row["options"],
                row["trimmed_to"],
                micros(row["deleted_at"]),
                {epoch: int(first) for epoch, first in json.loads(row["epochs"])},
                [
                    (int(first), int(last), str(reason))
                    for first, last, reason in json.loads(row["holes"])
                ],
                [
                    (str(name), int(to), set_from_json(ahead))
                    for name, to, ahead in json.loads(row["consumers"])
                ],
                listed=True,
            )
        except (ValueError, TypeError) as error:
            raise _unreadable(row["queue"], repr(error)) from error
        if queue.end > marks.RECEIVED_MAX:
            raise _unreadable(queue.name, f"no queue gives out sequence {queue.end}")
        found[queue.name] = queue
    return found


def _unreadable(queue: str, why: str) -> StoreDamagedError:
    return StoreDamagedError(f"the table queues has a row for {queue} that cannot be read: {why}")


def epochs_in_order(queues: Iterable[KnownQueue]) -> list[str]:
    """Return the epochs of all queues, oldest first.

    Raises :class:`StoreDamagedError` if two queues list epochs in different orders.

    Each queue lists the epochs since its creation, so the order follows from all queues together.
    """
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for queue in queues:
        epochs = list(queue.epochs)
        for epoch in epochs:
            sorter.add(epoch)
        for before, after in pairwise(epochs):
            sorter.add(after, before)
    try:
        return list(sorter.static_order())
    except CycleError as error:
        raise StoreDamagedError(
            f"the table queues has epochs in two orders: {error.args[1]}"
        ) from error


def write_queues(
    db: sqlite3.Connection, queues: Sequence[KnownQueue], epochs: Sequence[str], at: int
) -> dict[str, int]:
    """Insert the epochs, the queues and the marks of their consumers into the new database.

    ``epochs`` are all epochs, oldest first. The function runs in the caller's transaction. Return
    the id of each queue by name. ``at`` is in microseconds since 1970, UTC.
    """
    numbers = {epoch: number for number, epoch in enumerate(epochs, 1)}
    db.executemany(
        "INSERT INTO epochs VALUES (?, ?, ?, 'of the lost data directory')",
        [(numbers[epoch], epoch, at) for epoch in epochs],
    )
    for statement in marks.DDL:
        db.execute(statement)
    ids = {}
    for number, queue in enumerate(queues, 1):
        ids[queue.name] = number
        db.execute(
            "INSERT INTO queues VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                number,
                queue.name,
                queue.transactional,
                queue.paused,
                queue.options,
                queue.trimmed_to,
                queue.deleted_at,
            ),
        )
        db.executemany(
            "INSERT INTO queue_epochs VALUES (?, ?, ?)",
            [(number, numbers[epoch], first) for epoch, first in queue.epochs.items()],
        )
        db.executemany(
            "INSERT INTO consumers(queue_id, name, received) VALUES (?, ?, ?)",
            [(number, name, received) for name, received, _ in queue.consumers],
        )
        for name, received, ahead in queue.consumers:
            marks.save(db, number, name, received, marks.StoredMarks(list(ahead.pieces()), []))
    return ids


def micros(at: datetime | None) -> int | None:
    """Return the time in microseconds since 1970, UTC; ``None`` for ``None``."""
    return None if at is None else round(at.timestamp() * 1_000_000)
