"""Find rows that would return to the queue that they were read from, and be sent again and again.

A row of the source names its queue manager and its queue, and its destination is a URL. If the URL
leads to this queue manager and to the row's own queue, the batch is refused unless its writer
allows loops. A row without a source position does not say where it was read. A way back through
another queue manager is not detected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from srmp_spark.names import LocalHosts, parse_queue_url
from srmp_spark.store.outbox.errors import LOOP, BatchError
from srmp_spark.transports import transport_of


class SourceLog(NamedTuple):
    """The log that a row was read from: one epoch of one queue of a queue manager."""

    queue_manager: str
    epoch: str
    queue: str


@dataclass(frozen=True, slots=True)
class OwnQueues:
    """Maps destinations to the queues of this queue manager that they lead to."""

    queue_manager: str = ""
    """GUID of this queue manager. If it is empty, no destination counts as local."""
    hosts: LocalHosts = field(default_factory=LocalHosts)

    def queue_of(self, destination: str) -> str | None:
        """Return the name of the local queue that a canonical destination leads to.

        Return ``None`` for all other destinations.
        """
        if not self.queue_manager or not transport_of(destination).rules.leads_to_queue:
            return None
        try:
            return (
                parse_queue_url(destination).queue
                if self.hosts.is_target_here(destination)
                else None
            )
        except ValueError:
            return None


class Loops:
    """Finds the rows of one batch that would return to the queue that they were read from.

    Call :meth:`look` for all rows, then :meth:`refuse`.
    """

    def __init__(self, own: OwnQueues) -> None:
        self._own = own
        self._looked = 0
        """Number of the batch's destinations that were checked so far."""
        self._destinations: dict[str, list[int]] = {}
        """Indices of the destinations that lead to a local queue, by the name of the queue."""
        self._first: tuple[int, str] | None = None
        self._count = 0
        self._mask: np.ndarray | None = None

    @property
    def are_found(self) -> bool:
        """Return whether :meth:`look` has recorded a row."""
        return self._count > 0

    def keep(self, mask: np.ndarray) -> None:
        """Let :meth:`look` set the value of each row that it records in ``mask``, by row number."""
        self._mask = mask

    @property
    def rows(self) -> np.ndarray:
        """Return the mask of the recorded rows; call :meth:`keep` before the rows are looked at."""
        assert self._mask is not None, "keep() was called"
        return self._mask

    def look(
        self,
        first: int,
        destinations: Sequence[str],
        scope: np.ndarray,
        sources: Sequence[SourceLog],
        of: np.ndarray,
    ) -> None:
        """Record the rows from number ``first`` on that would return to their own queue.

        ``destinations`` are all canonical destinations of the batch so far. For each row, ``scope``
        has an index into ``destinations``. ``of`` has an index into ``sources``, or -1 for a row
        without a source position. Nothing is raised: :meth:`refuse` reports the rows.
        """
        for number in range(self._looked, len(destinations)):
            queue = self._own.queue_of(destinations[number])
            if queue is not None:
                self._destinations.setdefault(queue, []).append(number)
        self._looked = len(destinations)
        for index, source in enumerate(sources):
            if source.queue_manager.lower() != self._own.queue_manager.lower():
                continue
            for destination in self._destinations.get(source.queue.lower(), ()):
                rows = np.flatnonzero((of == index) & (scope == destination))
                self._count += len(rows)
                if self._mask is not None:
                    self._mask[first + rows] = True
                if len(rows) and (self._first is None or first + int(rows[0]) < self._first[0]):
                    self._first = first + int(rows[0]), destinations[destination]

    def refuse(self, name: Callable[[int], str]) -> None:
        """Raise :class:`BatchError` (400) if :meth:`look` has recorded a row.

        ``name`` returns a text that names a row by its number.
        """
        if self._first is None:
            return
        row, destination = self._first
        message = f"{name(row)} would return to its own queue, {destination}"
        if self._count > 1:
            message += f", as {self._count} rows of the batch would"
        raise BatchError(
            400,
            LOOP,
            message,
            "send it elsewhere, or allow it (allowLoop=true) if no query reads it again",
        )
