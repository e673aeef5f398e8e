"""What a function that joins the journal's next commit works with."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable


class Transaction:
    """What a function given to :meth:`Journal.transact` works with. It may raise: only its own changes are undone."""

    def __init__(self, connection: sqlite3.Connection, position: int, epoch_id: int) -> None:
        self.connection = connection
        self.position = position
        """The number of the commit that this will be part of."""
        self.epoch_id = epoch_id
        self.written = 0
        """Bytes that the function put into the log of the database, if they are many: a checkpoint is due earlier."""
        self.after_commit: list[Callable[[], object]] = []
        """Called in the loop after the COMMIT, before the result is handed out: to unlink files, never to write."""
        self.when_undone: list[Callable[[], object]] = []
        """Called when what the function wrote is undone, because it raised: memory may count on it."""
        self.queues_opened: dict[str, tuple[int, int]] = {}
        """Queues that take rows from now on: name → id and last sequence given out."""
        self.queues_closed: set[str] = set()
