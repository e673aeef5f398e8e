"""The names under which jobs write a message table: which queues of which queue managers a job may bring.

A name is a Delta transaction identifier, ``srmp-ingest:QUEUE[,QUEUE…][,queue-manager/GUID…]``. Of two jobs whose rows may be
the same ones a table has one living writer; jobs of other queues, or of other queue managers, share it in peace. A name
without a queue manager stands for any: version 0.1 wrote such names only, and its jobs read the queue managers in a new name as
queue names that match nothing, so an older job ends a newer one as before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from srmp_spark.names import is_glob, queue_matches

WRITER_PREFIX = "srmp-ingest:"
_QUEUE_MANAGER = "queue-manager/"
"""Before a GUID. No queue has such a name: a slash follows ``private$`` alone."""


class Writer(NamedTuple):
    """One job, as far as tables know it."""

    queues: tuple[str, ...]
    """Names and globs."""
    queue_managers: frozenset[str] = frozenset()
    """GUIDs; empty: any queue manager."""

    @property
    def name(self) -> str:
        """Return the transaction identifier."""
        queue_managers = [_QUEUE_MANAGER + each for each in sorted(self.queue_managers)]
        return WRITER_PREFIX + ",".join([*sorted(self.queues), *queue_managers])

    @classmethod
    def of(cls, name: str) -> Writer | None:
        """Return the job of a transaction identifier; ``None`` for the identifier of another program."""
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

    def may_meet(self, other: Writer) -> bool:
        """Return whether both may bring the same row."""
        of_one_queue_manager = (
            not self.queue_managers
            or not other.queue_managers
            or bool(self.queue_managers & other.queue_managers)
        )
        return of_one_queue_manager and may_meet(self.queues, other.queues)


def may_meet(ours: Iterable[str], theirs: Iterable[str]) -> bool:
    """Return whether two lists of queue names and globs may name one queue; of two globs nobody can tell, so they may."""
    theirs = list(theirs)
    return any(
        (is_glob(our) and is_glob(their))
        or queue_matches(our, [their])
        or queue_matches(their, [our])
        for our in ours
        for their in theirs
    )
