"""How many rows of a queue manager its table must have, as its own commits noted it: what others took out is seen by it.

``RESTORE TABLE`` and ``DELETE`` leave the application transactions where they are, so a table says that it holds rows which
it does not. Each commit of ours therefore notes, beside its positions, how many rows it leaves (:data:`ROWS_KEY`). Compaction
by whomever changes no count. A table that no such commit was made to, of version 0.1 say, is counted when it is opened.
"""

from __future__ import annotations

from collections.abc import Callable

from deltalake import DeltaTable

ROWS_KEY = "srmp.rows"
"""In the own information of a commit: rows of its queue manager in the table from then on."""
LOOKBACK = 50
"""Commits that are searched for the note; not found: what is there is believed."""


class RowCount:
    """The count of one table."""

    def __init__(
        self,
        table: DeltaTable,
        is_own: Callable[[dict[str, object]], bool],
        count: Callable[[], int],
    ) -> None:
        """``is_own``: whether a commit is of our queue manager, by its information; ``count``: its rows in the table."""
        self._table = table
        self._is_own = is_own
        self._count = count
        self._looked_at = -1
        """The version of the table at which all was as it should be."""
        noted = self._noted()
        self.expected = count() if noted is None else noted
        """Rows that our newest commit left."""
        self.found = self.expected
        """Rows that were there at the last look."""

    def __repr__(self) -> str:
        return f"<RowCount expected={self.expected} found={self.found}>"

    def committed(self, rows: int | None, before: int) -> None:
        """Note that a commit of ours left so many rows; ``None``: it changed none. ``before`` is the version it was made on."""
        if rows is not None:
            self.expected = rows
        if self._looked_at == before and self._table.version() == before + 1:
            self._looked_at = before + 1

    def lacks(self) -> bool:
        """Return whether rows went without us. Costs a listing of the files after a commit of others, and nothing else."""
        version = self._table.version()
        if version == self._looked_at:
            return False
        self.found = self._count()
        if self.found != self.expected:  # or a publisher of before us has committed
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
