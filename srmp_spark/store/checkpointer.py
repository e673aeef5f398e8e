"""When the WAL is copied into the database, and by whom.

SQLite's own way (``wal_autocheckpoint``) copies inside a COMMIT: every 4 to 16 MB one group of messages waits for it. Doing it
all in another thread is worse: while commits go on, the copy never meets the end of the WAL, so the WAL is never begun anew,
grows without end (210 MB in 3 s, measured) and each commit then also has to extend a file. So it is done in two steps:

1. Past :data:`CHECKPOINT_BYTES` a thread with a connection of its own copies what is there (PASSIVE: it waits for nobody and
   nobody waits for it).
2. The commit thread copies the little that was added meanwhile, right after a COMMIT whose messages are already answered.
   Now all is copied, and the next transaction begins the WAL at its start: the file stays small and is overwritten in place.

Measured, 32 senders with one message in flight, 2.3 KB posts, page 8192, medians of two runs of 3 s:
autocheckpoint 1000 pages p99 7.8 ms, worst 22 ms; 2000 pages 3.0 and 28 ms; these two steps **3.2 and 11 ms**, and 8 % more
messages. Larger steps (8 and 16 MB) cost up to 30 ms at the worst commit, because the last step syncs all of the database file.

A reader's open snapshot holds the start of the WAL back; readers therefore keep theirs for one query (store/log.py).

A failed sync of the database is as final as one of the WAL: the next attempt may succeed without having written, and the WAL,
which still has the pages, would be begun anew over them. Only a full disk is waited for: then nothing was synced at all.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from srmp_spark.store.schema import PAGE_SIZE_BYTES, connect_writer

CHECKPOINT_BYTES = 4 * 1024 * 1024
"""The WAL is copied when about so much was written to it: see the measurements above."""
COMMIT_OVERHEAD_BYTES = 4 * PAGE_SIZE_BYTES
"""What a commit writes besides the posts: head, history of one sender, stream and the group's first page. Identifiers of other
senders lie in other pages, once there are many: the journal adds them, or the WAL would be three times as long as it seems."""


class Checkpointer:
    """Step 1, in a thread of its own; step 2 is asked for by :attr:`finish_due` and done by the journal."""

    def __init__(self, database: Path, on_error: Callable[[sqlite3.Error], object]) -> None:
        """``on_error`` is called in the thread, which then ends."""
        self._on_error = on_error
        self._connection = connect_writer(database)
        self._written = 0
        self._running = False
        self._jobs: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self.finish_due = False
        """Set by the thread when the bulk is copied; the journal then copies the rest and calls :meth:`finished`."""
        self.wal_bytes = 0
        """Size of the WAL's used part at the last step, for metrics: far above CHECKPOINT_BYTES, a reader holds it."""
        self._thread = threading.Thread(target=self._run, name="store-checkpoint", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return (
            f"<Checkpointer written={self._written} running={self._running} "
            f"wal_bytes={self.wal_bytes}>"
        )

    def wrote(self, payload_bytes: int) -> None:
        """A commit with so many bytes, of posts and of further pages, went into the WAL."""
        self._written += payload_bytes + COMMIT_OVERHEAD_BYTES
        if self._written >= CHECKPOINT_BYTES and not self._running and not self.finish_due:
            self._running = True
            self._jobs.put(True)

    def finished(self, connection: sqlite3.Connection) -> None:
        """Step 2, on the journal's connection while no transaction is open."""
        self.wal_bytes = _checkpoint(connection)
        self._written = 0
        self.finish_due = False

    def close(self) -> None:
        """Stop the thread. The last connection to close copies what is left."""
        self._jobs.put(False)
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        while self._jobs.get():
            try:
                self.wal_bytes = _checkpoint(self._connection)
            except sqlite3.Error as error:
                self._on_error(error)
                return
            self.finish_due = True
            self._running = False


def _checkpoint(connection: sqlite3.Connection) -> int:
    try:
        _, frames, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    except sqlite3.OperationalError as error:
        if "full" in str(error):  # SQLITE_FULL; before Python 3.11 an error has no number
            return 0
        raise
    return max(0, int(frames)) * PAGE_SIZE_BYTES
