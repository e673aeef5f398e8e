"""Name the writers of a message table: which queues of which queue managers a job may bring.

A name is a Delta transaction identifier, ``srmp-ingest:QUEUE[,QUEUE…][,queue-manager/GUID…]``. Of
two jobs that may bring the same rows, only one can write to a table. Jobs of other queues, or of
other queue managers, share the table. A name without a queue manager stands for every queue
manager. Version 0.1 wrote only such names. Its jobs read the queue managers in a new name as queue
names that match nothing, so an older job ends a newer one as before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from srmp_spark.names import is_glob, queue_matches

WRITER_PREFIX = "srmp-ingest:"
_QUEUE_MANAGER = "queue-manager/"
"""Prefix of a GUID in a name. No queue has such a name: a slash follows only ``private$``."""


class TableWriter(NamedTuple):
    """One job, as tables know it."""

    queues: tuple[str, ...]
    """Names and globs of the queues that the job reads."""
    queue_managers: frozenset[str] = frozenset()
    """GUIDs of the queue managers that the job reads. Empty means any queue manager."""

    @property
    def name(self) -> str:
        """Return the transaction identifier of this job."""
        queue_managers = [_QUEUE_MANAGER + each for each in sorted(self.queue_managers)]
        return WRITER_PREFIX + ",".join([*sorted(self.queues), *queue_managers])

    @classmethod
    def of(cls, name: str) -> TableWriter | None:
        """Return the job of a transaction identifier, or ``None`` if another program made it."""
        if not name.startswith(WRITER_PREFIX):
            return None
        parts = name.removeprefix(WRITER_PREFIX).split(",")
        queues = tuple(part for part in parts if not part.startswith(_QUEUE_MANAGER))
        return cls(
            queues,
            frozenset(
                part.removeprefix(_QUEUE_MANAGER)
                for part in parts
                if part.startswith(_QUEUE_MANAGER)
            ),
        )

    def may_meet(self, other: TableWriter) -> bool:
        """Return whether this job and ``other`` may write rows of the same queue to a table."""
        of_one_queue_manager = (
            not self.queue_managers
            or not other.queue_managers
            or bool(self.queue_managers & other.queue_managers)
        )
        return of_one_queue_manager and may_meet(self.queues, other.queues)


def may_meet(ours: Iterable[str], theirs: Iterable[str]) -> bool:
    """Return whether two lists of queue names and globs may name the same queue.

    Two globs always may, because nothing tells which queues will exist.
    """
    theirs = list(theirs)
    return any(
        (is_glob(our) and is_glob(their))
        or queue_matches(our, [their])
        or queue_matches(their, [our])
        for our in ours
        for their in theirs
    )
