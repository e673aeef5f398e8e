"""The transaction that functions use when they join the journal's next commit."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable


class Transaction:
    """One transaction, for a function that :meth:`Journal.transact` runs.

    If the function raises, only the changes of this function are undone.
    """

    def __init__(self, connection: sqlite3.Connection, position: int, epoch_id: int) -> None:
        self.connection = connection
        self.position = position
        """Number of the commit to which this transaction will belong."""
        self.epoch_id = epoch_id
        self.written = 0
        """Bytes that the function wrote into the log of the database, if they are many.

        A checkpoint is then due earlier.
        """
        self.after_commit: list[Callable[[], object]] = []
        """Functions that are called in the loop after the COMMIT, before the result is returned.

        These functions may delete files, never write.
        """
        self.when_undone: list[Callable[[], object]] = []
        """Functions that are called when the function raised and its changes are undone, for memory
        that counts on the changes.
        """
        self.queues_opened: dict[str, tuple[int, int]] = {}
        """Queues that accept rows after the commit: name → id and last issued sequence."""
        self.queues_closed: set[str] = set()
