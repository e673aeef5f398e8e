"""Cursors: up to which dead letter each ``deadLetterQueue`` was handed to the main process.

An application may name a local queue of its own for its dead letters (``deadLetterQueue``). The
sender process *hands over* such letters: the main process stores them as rows of that queue. Each
queue has a cursor of its own. So a queue that accepts no message now holds back its own letters and
no others. A cursor is the number of the last row of ``moved`` that was stored in that queue. The
number under :data:`ALL_HANDED_TO` counts for every queue. Version 0.1 has only this number, for all
queues together. As soon as no queue has letters left, the number is raised and the cursors are
deleted. So the table has no more rows than there are queues with letters since then.

The queues that have letters left are kept in memory. The first search of a process reads the names
of all queues that have had letters. Later searches read only the letters of queues that have some,
because a search follows every dead letter.
"""

from __future__ import annotations

from collections.abc import Iterator

from srmp_spark.store.outbox.tables.database import OutboxDatabase

ALL_HANDED_TO = "dead_letters_handed_to"
"""Key in the table ``meta``: id of ``moved`` up to which all letters are handed over.

The id counts for every queue.
"""
QUEUES_MAX = 1_000
"""Largest number of queues that one call of :meth:`LetterCursors.queues` returns.

The queues are one answer to the main process. The caller asks for the next queues with another
call.
"""

_FOR_APPLICATIONS = "fate = 'dead' AND target NOT IN ('deadletter$', 'deadxact$')"
"""The condition of the index ``moved_for_applications``.

With this condition a query never reads the dead letters of the system.
"""


class LetterCursors:
    """Keeps the cursors of all queues, which the module explains, and stores their changes.

    Only the thread of the outbox may use the object.
    """

    def __init__(self, database: OutboxDatabase, died: set[str]) -> None:
        """Read the stored cursors.

        ``died`` has the queues for which letters were moved
        (:attr:`.waiting.WaitingMessages.letters_for`). Each call of :meth:`queues` empties
        ``died``.
        """
        self._database = database
        self._died = died
        row = database.connection.execute(
            "SELECT value FROM meta WHERE key = ?", (ALL_HANDED_TO,)
        ).fetchone()
        self._all = 0 if row is None else int(row[0])
        self._of: dict[str, int] = dict(
            database.connection.execute("SELECT queue, handed_to FROM letter_cursors")
        )
        self._left: set[str] | None = None
        """Queues that may have letters left; ``None`` before the first call of :meth:`queues`."""

    def __repr__(self) -> str:
        return f"<LetterCursors all={self._all} queues={len(self._of)}>"

    def handed(self, queue: str, to: int) -> None:
        """Store that the letters of ``queue`` up to id ``to`` of ``moved`` are handed over.

        A transaction of its own stores the cursor. A cursor never goes back: a lower id changes
        nothing.
        """
        if to <= self._after(queue):
            return
        with self._database.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO letter_cursors VALUES (?, ?)", (queue, to))
        self._of[queue] = to

    def next(self, queue: str) -> int | None:
        """Return the id in ``moved`` of the first letters of ``queue`` that are not handed over.

        Return ``None`` if the queue has no such letters.
        """
        row = self._database.connection.execute(
            f"SELECT id FROM moved WHERE {_FOR_APPLICATIONS} AND target = ? AND id > ? "  # noqa: S608  # our own text
            "ORDER BY id LIMIT 1",
            (queue, self._after(queue)),
        ).fetchone()
        return None if row is None else int(row[0])

    def queues(self, after: str) -> list[str]:
        """Return the names above ``after`` of queues with letters to hand over, sorted.

        At most :data:`QUEUES_MAX` names are returned. An empty list means that no queue after
        ``after`` has letters left. If no queue at all has letters left, the call replaces the
        stored cursors by one number, in a transaction of its own.
        """
        left = self._look()
        found: list[str] = []
        for name in sorted(each for each in left if each > after):
            if self.next(name) is None:
                left.remove(name)
            else:
                found.append(name)
                if len(found) == QUEUES_MAX:
                    break
        if not left:
            self._nothing_left()
        return found

    def _look(self) -> set[str]:
        """Return the set of queues that may have letters left, and empty ``died``.

        The caller may remove names from the set.
        """
        if self._left is None:
            self._left = set(self._named())
        self._left |= self._died
        self._died.clear()
        return self._left

    def _named(self) -> Iterator[str]:
        """Yield the names of all queues that have letters, handed over or not."""
        at = ""
        while True:
            (name,) = self._database.connection.execute(
                f"SELECT min(target) FROM moved WHERE {_FOR_APPLICATIONS} AND target > ?",  # noqa: S608  # our own text
                (at,),
            ).fetchone()
            if name is None:
                return
            yield name
            at = name

    def _after(self, queue: str) -> int:
        return max(self._of.get(queue, 0), self._all)

    def _nothing_left(self) -> None:
        """Replace the stored cursors of all queues by one number, in a transaction of its own.

        Call the method when no queue has letters left.
        """
        if not self._of:
            return
        everything = max(self._all, *self._of.values())
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO meta VALUES (?, ?)", (ALL_HANDED_TO, str(everything))
            )
            connection.execute("DELETE FROM letter_cursors")
        self._all = everything
        self._of.clear()
