"""How far the dead letters of each ``deadLetterQueue`` were handed to the main process.

Each queue has a cursor of its own, so a queue that takes nothing now holds its own letters and no others. A cursor is the
number of the last row of ``moved`` that was stored in that queue. The number under :data:`ALL_HANDED_TO` counts for every
queue: version 0.1 has that one alone, for all queues together. It is raised, and the cursors are deleted, as soon as nothing
is left for any queue, so the table holds no more rows than there are queues with letters since then.

Which queues have letters left is kept in memory. The first question of a process walks through the names of all queues that
have had letters; later ones read nothing but the letters of queues that have some, for there is a question after every dead
letter.
"""

from __future__ import annotations

from collections.abc import Iterator

from srmp_spark.store.outbox.database import OutboxDatabase

ALL_HANDED_TO = "dead_letters_handed_to"
"""Key in the table ``meta``: rows of ``moved`` up to this number are handed over, for whichever queue they are."""
QUEUES_MAX = 1_000
"""Queues that one call of :meth:`LetterCursors.queues` names: one answer to the main process. The caller asks for the next."""

_FOR_APPLICATIONS = "fate = 'dead' AND target NOT IN ('deadletter$', 'deadxact$')"
"""As the index ``moved_for_applications`` has it, so that the dead letters of the system are never walked through."""


class LetterCursors:
    """The cursors of all queues. For the thread of the outbox."""

    def __init__(self, database: OutboxDatabase, died: set[str]) -> None:
        """``died``: queues for which letters were moved (:attr:`.waiting.Waiting.letters_for`); each look empties it."""
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
        """Queues that may have letters left; ``None``: nobody has looked yet."""

    def __repr__(self) -> str:
        return f"<LetterCursors all={self._all} queues={len(self._of)}>"

    def handed(self, queue: str, to: int) -> None:
        """Store that letters of ``queue`` up to number ``to`` are rows of it."""
        if to <= self._after(queue):
            return
        with self._database.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO letter_cursors VALUES (?, ?)", (queue, to))
        self._of[queue] = to

    def next(self, queue: str) -> int | None:
        """Return the number of the first letters of ``queue`` that are not handed over, ``None`` if there are none."""
        row = self._database.connection.execute(
            f"SELECT id FROM moved WHERE {_FOR_APPLICATIONS} AND target = ? AND id > ? "  # noqa: S608  # our own text
            "ORDER BY id LIMIT 1",
            (queue, self._after(queue)),
        ).fetchone()
        return None if row is None else int(row[0])

    def queues(self, after: str) -> list[str]:
        """Return the queues with letters that are not handed over and a name beyond ``after``, by name.

        At most :data:`QUEUES_MAX`; none is left beyond ``after`` if the list is empty.
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
        """Return the queues that may have letters left."""
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
        """Let one number stand for the cursors of all queues."""
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
