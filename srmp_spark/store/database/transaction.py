"""The transaction that functions use when they join the journal's next commit."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable


class Transaction:
    """One transaction, for a function that :meth:`Journal.transact` runs.

    If the function raises, only the changes of this function are undone, except for an
    :class:`sqlite3.OperationalError`, which ends the process. The function writes through
    ``connection``, and new rows get the epoch with the id ``epoch_id``. Names that it adds to
    ``queues_closed`` are queues that accept no rows after the commit.
    """

    def __init__(self, connection: sqlite3.Connection, position: int, epoch_id: int) -> None:
        self.connection = connection
        self.position = position
        """Number of the commit to which this transaction will belong."""
        self.epoch_id = epoch_id
        self.written = 0
        """Bytes that the function wrote into the WAL, if they are many.

        A checkpoint is then due earlier.
        """
        self.after_commit: list[Callable[[], object]] = []
        """Functions that are called in the loop after the COMMIT, before the result is returned.

        These functions may delete files, never write.
        """
        self.when_undone: list[Callable[[], object]] = []
        """Functions that are called if the function raised and its changes were undone.

        They undo changes in memory that the function made.
        """
        self.queues_opened: dict[str, tuple[int, int]] = {}
        """Queues that accept rows after the commit: name → id and last issued sequence."""
        self.queues_closed: set[str] = set()
