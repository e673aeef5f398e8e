"""Copy the WAL into the database: when it is done, and by which thread.

SQLite's own way (``wal_autocheckpoint``) copies inside a COMMIT: one group of messages waits for
the copy every 4 to 16 MB. A copy in another thread alone is worse. While commits go on, the copy
never reaches the end of the WAL. So the WAL never starts again at its beginning and grows without
end (210 MB in 3 s, measured), and each commit must also extend a file. So the copy takes two steps:

1. When :data:`CHECKPOINT_BYTES` were written, a thread with its own connection copies what is
   there. The mode is PASSIVE: the thread and the writer do not wait for each other.
2. The commit thread copies the rest, which was added meanwhile, right after a COMMIT whose
   messages are already answered. Then everything is copied, and the next transaction starts the
   WAL at its beginning. The file stays small and is overwritten in place.

Measured with 32 senders, one message in flight each, 2.3 KB posts, page 8192, medians of two runs
of 3 s. ``autocheckpoint`` 1000 pages: p99 7.8 ms, worst 22 ms. 2000 pages: 3.0 and 28 ms. These two
steps: **3.2 and 11 ms**, and 8 % more messages. Larger steps (8 and 16 MB) cost up to 30 ms at the
worst commit, because the last step syncs the whole database file.

A reader's open snapshot holds back the start of the WAL. Readers therefore keep a snapshot for one
query only (store/stored_rows/log.py).

A failed sync of the database is as final as a failed sync of the WAL. The next attempt may succeed
without having written, and the WAL, which still has the pages, would be overwritten. The
checkpointer retries after one error only, a full disk, because then nothing was synced at all.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from srmp_spark.store.database.schema import PAGE_SIZE_BYTES, connect_writer

CHECKPOINT_BYTES = 4 * 1024 * 1024
"""Bytes written to the WAL after which the WAL is copied into the database.

The module has the measurements behind this number.
"""
COMMIT_OVERHEAD_BYTES = 4 * PAGE_SIZE_BYTES
"""Bytes that a commit writes besides the posts.

They are the table ``head``, the message identifiers of one sender, the stream and the first page of
the group. Identifiers of other senders lie in other pages once there are many senders. The journal
adds those pages; without them the WAL would be three times as long as it seems.
"""


class Checkpointer:
    """Copies the WAL into the database in two steps, which the module explains.

    Step 1 runs in a thread of this object. Step 2 is requested from the journal (:class:`.Journal`)
    with :attr:`finish_due`, because it needs the connection that writes.
    """

    def __init__(self, database: Path, on_error: Callable[[sqlite3.Error], object]) -> None:
        """Open a connection to ``database`` and start the thread.

        On an SQLite error, the thread calls ``on_error`` and ends. Raises the errors of
        :func:`.sqlite_file.connect_writer`.
        """
        self._on_error = on_error
        self._connection = connect_writer(database)
        self._written = 0
        self._running = False
        self._jobs: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self.finish_due = False
        """Whether step 2, the copy of the rest of the WAL, is due.

        The thread sets it when step 1 is done. The journal then calls :meth:`finished`, which
        copies the rest.
        """
        self.wal_bytes = 0
        """Size of the used part of the WAL at the last step, in bytes, for metrics.

        A value far above CHECKPOINT_BYTES means that a reader holds the WAL.
        """
        self._thread = threading.Thread(target=self._run, name="store-checkpoint", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return (
            f"<Checkpointer written={self._written} running={self._running} "
            f"wal_bytes={self.wal_bytes}>"
        )

    def wrote(self, payload_bytes: int) -> None:
        """Count a commit; start step 1 when the total reaches :data:`CHECKPOINT_BYTES`.

        ``payload_bytes`` are the posts and the further pages that the commit wrote into the WAL.
        :data:`COMMIT_OVERHEAD_BYTES` are added for each commit. The method returns at once.
        """
        self._written += payload_bytes + COMMIT_OVERHEAD_BYTES
        if self._written >= CHECKPOINT_BYTES and not self._running and not self.finish_due:
            self._running = True
            self._jobs.put(True)

    def finished(self, connection: sqlite3.Connection) -> None:
        """Copy the rest of the WAL on the journal's connection (step 2), and start to count again.

        Call the method while no transaction is open. Raises :class:`sqlite3.Error` if the copy
        fails. A full disk is no error: the rest is copied with a later step.
        """
        self.wal_bytes = _checkpoint(connection)
        self._written = 0
        self.finish_due = False

    def close(self) -> None:
        """Stop the thread, wait until it has ended, and close its connection.

        SQLite copies the rest of the WAL when the last connection closes.
        """
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
        if "full" in str(error):
            # This is SQLITE_FULL. Before Python 3.11 an error has no error code.
            return 0
        raise
    return max(0, int(frames)) * PAGE_SIZE_BYTES
