"""Count how many rows of a queue manager its table must have, to detect rows that others took out.

``RESTORE TABLE`` and ``DELETE`` leave the application transactions unchanged, so a table claims to
hold rows that it does not hold. Therefore each commit of the queue manager notes, besides its
positions, how many rows it leaves (:data:`ROWS_KEY`). A compaction by any program changes no count.
A table without such a commit, for example of version 0.1, is counted when it is opened.
"""

from __future__ import annotations

from collections.abc import Callable

from deltalake import DeltaTable

ROWS_KEY = "srmp.rows"
"""Key in the information of a commit: rows of its queue manager in the table from then on."""
LOOKBACK = 50
"""Number of newest commits that are searched for the note under ROWS_KEY.

If there is no note in them, the rows that exist are taken as correct.
"""


class RowCount:
    """Compares the number of rows of one queue manager in one table with the expected number."""

    def __init__(
        self,
        table: DeltaTable,
        is_own: Callable[[dict[str, object]], bool],
        count: Callable[[], int],
    ) -> None:
        """Read the expected count of ``table``.

        ``is_own`` returns whether a commit is of this queue manager, by the information of the
        commit. ``count`` returns the number of its rows in the table.
        """
        self._table = table
        self._is_own = is_own
        self._count = count
        self._looked_at = -1
        """Version of the table at which no row was missing; −1 before the first :meth:`lacks`."""
        noted = self._noted()
        self.expected = count() if noted is None else noted
        """Number of rows that the newest commit of this queue manager left."""
        self.found = self.expected
        """Number of rows that existed when they were counted last."""

    def __repr__(self) -> str:
        return f"<RowCount expected={self.expected} found={self.found}>"

    def committed(self, rows: int | None, before: int) -> None:
        """Record that a commit of this queue manager left ``rows`` of its rows in the table.

        ``None`` means that the commit changed no row. ``before`` is the version of the table on
        which the commit was made.
        """
        if rows is not None:
            self.expected = rows
        if self._looked_at == before and self._table.version() == before + 1:
            self._looked_at = before + 1

    def lacks(self) -> bool:
        """Return whether rows are missing because others took them out, and update the counts.

        After a commit of others, and while rows are missing, this costs a listing of the files;
        otherwise nothing.
        """
        version = self._table.version()
        if version == self._looked_at:
            return False
        self.found = self._count()
        if self.found != self.expected:
            # An earlier publisher of this queue manager may have committed, so read the note again.
            noted = self._noted()
            self.expected = self.expected if noted is None else noted
        if self.found < self.expected:
            return True
        self.expected = self.found
        self._looked_at = version
        return False

    def _noted(self) -> int | None:
        for entry in self._table.history(LOOKBACK):
            if ROWS_KEY in entry and self._is_own(entry):
                return int(entry[ROWS_KEY])
        return None
