"""The journal: the path of a message to stable storage, and so to an answer of 200.

One SQLite connection is used by two threads strictly in turn. The loop's thread writes: ``BEGIN``
and INSERTs only touch memory. The commit thread runs ``COMMIT``: it waits for the disk, without the
GIL. So the loop never waits for a sync:

    submit(), transact()  →  collected, mostly until the end of this turn of the loop
    flush                 →  fence and position, one row per queue, streams, history,
                             receipts owed, functions of the API
    COMMIT in the thread  →  messages that arrive meanwhile are collected for the next
                             flush: group commit without a timer
    Committed(position)   →  the callback of each message, then the next flush

**When to write.** A commit costs as much as fifteen messages, whatever it contains. An SRMP sender
has one POST in flight, so the senders that were just answered send again at once. So a flush waits
turn by turn until one of three things happens: three quarters of the messages in flight around the
last commit are there again, a turn brought nothing more, or :data:`COLLECT_S_MAX` has passed. The
last quarter is read while the disk works. A lone sender does not wait, because one of one is
enough. (32 senders on one core: 23,400 messages a second against 19,000 when each turn was written
at once, and half the commits.)

The messages of a group for one queue become *one* row, a packed group (rows/group.py), so the cost
per message falls with the load. A message that repeats a stored one needs no commit of its own.
Such a message is answered with the last commit, or after the commit in progress.

**Failures are of two kinds.** After a failed sync the page cache is wrong, and another attempt may
succeed without having written (Rebello et al., ATC 2020). So any error here is final: nothing that
waits is answered, everything later is refused, and ``on_fatal`` ends the process. The process ends
at once, because closing the database would sync again. The next start reads the truth from the
disk. The type of the error tells the two kinds apart. :class:`StoreSyncError`: the disk refused.
:class:`MemoryAheadError`: a bug of srmp-spark left memory ahead of the disk
(:meth:`Journal.abandon`), and the disk needs no inspection. A fault inside one request never
reaches this module.
"""

from __future__ import annotations

import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from srmp_spark.errors import MemoryAheadError, ProcessMustEndError, StoreError, StoreSyncError
from srmp_spark.rows.group import Record, pack_group
from srmp_spark.srmp.receiving.decisions import Undecided
from srmp_spark.srmp.receiving.effects import Changes, Committed, OwedReceipt
from srmp_spark.store.database.checkpointer import Checkpointer
from srmp_spark.store.database.giving_back import can_give_back
from srmp_spark.store.database.schema import PAGE_SIZE_BYTES, assert_durable, row_key
from srmp_spark.store.database.transaction import Transaction
from srmp_spark.store.directory import DataDirectory
from srmp_spark.store.journal_states import TRANSITIONS, JournalEvent, JournalState
from srmp_spark.store.tables import decisions, state
from srmp_spark.store.tables.epochs import ends
from srmp_spark.store.tables.state import StoredReceipt

T = TypeVar("T")

GROUP_BYTES_MAX = 8 * 1024 * 1024
"""Bytes of posts in one group.

A turn with more becomes several groups, because a group is read and decoded as a whole. Two bodies
of the largest size fit.
"""
COLLECT_S_MAX = 0.001
"""Longest time, in seconds, that a message waits for messages in flight.

The time is about one sync of a good disk. After this time the group is written.
"""
DRAIN_LOOK_S = 0.002
"""Interval in seconds at which :meth:`Journal.drain` checks whether the journal is idle.

The journal is not idle while the checkpoint after a commit is in progress.
"""

_log = logging.getLogger(__name__)


class Scheduler(Protocol):
    """The methods of an event loop that the journal needs; tests have a simpler one."""

    def call_soon(self, callback: Callable[..., object], *args: object) -> object:
        """Call ``callback(*args)`` in the loop's thread after the calls that are already due.

        The method returns at once.
        """

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: object) -> object:
        """Call ``callback(*args)`` in the loop's thread soon; any thread may call this method.

        The method returns at once.
        """


class Insert(NamedTuple):
    """One message that the journal is to store as row ``sequence`` of ``queue``.

    The sequence must be the one after the last sequence that was submitted for the queue.
    """

    queue: str
    sequence: int
    record: Record


class _Call(NamedTuple):
    function: Callable[[Transaction], Any]
    done: Callable[[Any, BaseException | None], object]


class _Batch:
    """The messages, receipts and functions that one transaction will hold."""

    __slots__ = (
        "bytes",
        "callbacks",
        "calls",
        "must_commit",
        "owed",
        "rows",
        "rows_count",
        "submissions",
        "undecided",
    )

    def __init__(self) -> None:
        self.rows: dict[str, list[tuple[int, Record]]] = {}
        self.rows_count = 0
        self.submissions = 0
        self.bytes = 0
        self.owed: list[OwedReceipt] = []
        self.undecided: list[Undecided] = []
        self.callbacks: list[Callable[[Committed], object]] = []
        self.calls: list[_Call] = []
        self.must_commit = False


class _Written(NamedTuple):
    """A transaction between its last INSERT and the end of its COMMIT."""

    batch: _Batch
    position: int
    transaction: Transaction
    results: list[tuple[Any, BaseException | None]]
    owed: list[StoredReceipt]
    bytes: int
    """Bytes that the transaction wrote, for the checkpointer.

    They are the posts, the pages of message identifiers of all changed senders but one, and
    :attr:`.Transaction.written`.
    """


class Journal:
    """Writes to the data directory: stores messages and state, in groups, one commit at a time.

    All methods are for the loop's thread. The module explains the path of a message. An *owed*
    receipt is one that this queue manager must send for a message (:class:`.OwedReceipt`).
    """

    def __init__(
        self,
        directory: DataDirectory,
        scheduler: Scheduler,
        *,
        changes: Callable[[], Changes] | None = None,
        on_owed: Callable[[list[StoredReceipt]], object] | None = None,
        on_fatal: Callable[[ProcessMustEndError], object] | None = None,
        on_commit: Callable[[int, float], object] | None = None,
    ) -> None:
        """Start the commit thread and the checkpointer. All callbacks run in the loop's thread.

        ``changes`` is called in each transaction and returns the changed streams and message
        identifiers (``Receiver.changes``). ``on_owed`` gets the owed receipts that a commit stored.
        ``on_fatal`` must end the process. ``on_commit`` gets the number of rows and the seconds of
        each COMMIT, for metrics. Raises :class:`StoreError` unless the settings of the database
        make commits durable.
        """
        self._directory = directory
        self._connection = directory.writer
        assert_durable(self._connection)
        self._scheduler = scheduler
        self._changes = changes
        self._on_owed = on_owed
        self._on_fatal = on_fatal
        self._on_commit = on_commit
        self.savers: list[Callable[[sqlite3.Connection], object]] = []
        """Functions that are called in every transaction, with the connection that writes.

        An error in one of them fails the transaction, and so ends the process.
        """
        self._state = JournalState.IDLE
        self._failure: ProcessMustEndError | None = None
        self._waiting = _Batch()
        self._collected = 0
        self._collect_until = 0.0
        self._enough = 1
        self._position: int = self._connection.execute("SELECT position FROM head").fetchone()[0]
        end_of_each = ends(self._connection)
        self._queues: dict[str, list[int]] = {
            name: [queue_id, end_of_each[queue_id]]
            for queue_id, name in self._connection.execute(
                "SELECT id, name FROM queues WHERE deleted_at IS NULL"
            ).fetchall()
        }
        self._owed_id = state.last_owed_id(self._connection)
        self.free_bytes = 0
        """Bytes of free pages in the database, as of the last transaction.

        The next rows are written into them.
        """
        self.used_bytes = 0
        """Length in bytes of the database file once the WAL is copied, as of the last transaction.
        """
        self._page_bytes: int = self._connection.execute("PRAGMA page_size").fetchone()[0]
        self.can_give_back = can_give_back(self._connection)
        """Whether :func:`.giving_back.give_back` can make the file shorter."""
        self._count_free_pages()
        self._checkpointer = Checkpointer(
            directory.database,
            lambda error: scheduler.call_soon_threadsafe(self._fail, "checkpoint", error, None),
        )
        self._jobs: queue.SimpleQueue[_Written | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="store-commit", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return (
            f"<Journal {self._state.value} position={self._position} "
            f"waiting={self._waiting.rows_count}>"
        )

    @property
    def position(self) -> int:
        """Return the number of the last commit that is on stable storage."""
        return self._position

    def proof(self) -> Committed:
        """Return the proof (:class:`.Committed`) that names the last commit on stable storage."""
        return Committed(self._position)

    @property
    def wal_bytes(self) -> int:
        """Return the size of the WAL in bytes at the last checkpoint, for metrics."""
        return self._checkpointer.wal_bytes

    # Functions that the loop calls.

    @property
    def collecting(self) -> object:
        """Return an object that stands for the messages that are collected for the next commit.

        While the property returns the same object, a submission is answered together with the one
        before it. The object is for comparisons with ``is`` only.
        """
        return self._waiting

    def submit(
        self,
        insert: Insert | tuple[str, int, Record] | None,
        callback: Callable[[Committed], object] | None,
        *,
        owed: Sequence[OwedReceipt] = (),
        undecided: Undecided | None = None,
        must_commit: bool = False,
    ) -> None:
        """Store ``insert`` with the next commit, then call ``callback`` with its proof.

        The proof is a :class:`.Committed`. The commit also has the engine's changes of streams and
        message identifiers. The method returns at once. ``insert`` is ``None`` for a message that
        makes no row. With ``must_commit`` the changes of such a message are committed before the
        callback. Without it, the proof of any commit that covers everything submitted so far is
        enough. ``owed`` are receipts that the message causes. ``undecided`` states which receipts
        about its end the row requests (:mod:`.decisions`).

        ``callback`` is ``None`` if the callback of an earlier submission to the same
        :attr:`collecting` answers for this one, too. Raises :class:`ProcessMustEndError` after a
        failure.
        """
        batch = self._collect()
        batch.submissions += 1
        if insert is not None:
            name, sequence, record = insert
            end = self._queues[name]
            assert sequence == end[1] + 1, f"sequence {sequence} of {name} follows {end[1]}"
            end[1] = sequence
            rows = batch.rows.get(name)
            if rows is None:
                rows = batch.rows[name] = []
            rows.append((sequence, record))
            batch.rows_count += 1
            batch.bytes += len(record.post)
        if owed:
            batch.owed += owed
        if undecided is not None:
            batch.undecided.append(undecided)
        if must_commit:
            batch.must_commit = True
        if callback is not None:
            batch.callbacks.append(callback)

    def touch(self) -> None:
        """Request a commit of the engine's changes, without a message.

        An example is a stream receipt that was delivered. The method returns before the commit.
        Raises :class:`ProcessMustEndError` after a failure.
        """
        self._collect().must_commit = True

    def call(
        self,
        function: Callable[[Transaction], T],
        done: Callable[[T | None, BaseException | None], object],
    ) -> None:
        """Run ``function`` in the next transaction: :meth:`transact` without asyncio.

        The method returns at once. The journal calls ``done(result, None)`` after the commit, or
        ``done(None, error)`` if the function or the journal failed. Raises
        :class:`ProcessMustEndError` after an earlier failure.
        """
        self._collect().calls.append(_Call(function, done))

    async def transact(self, function: Callable[[Transaction], T]) -> T:
        """Run ``function`` in the next transaction, and return its result after the commit.

        The result is then on stable storage. The function runs in the loop's thread between two
        INSERTs, so it must be short. An error of the function is raised here, and only the
        function's own changes are undone. The exception is :class:`sqlite3.OperationalError`: a
        full disk or an I/O error fails the journal. Raises :class:`ProcessMustEndError` if the
        journal has failed or fails.
        """
        import asyncio

        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def done(result: T | None, error: BaseException | None) -> None:
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                # A result without an error is of type T.
                future.set_result(result)  # type: ignore[arg-type]

        self.call(function, done)
        return await future

    async def checkpoint(self) -> None:
        """Make a commit, and wait until the WAL was copied into the database.

        The database's file then ends with its last page. A reader that looks at an older state
        delays this shortening; this call does not wait for it. A full disk is no error here: then
        the WAL is not copied. Raises :class:`ProcessMustEndError` if the journal fails.
        """
        self._checkpointer.finish_due = True
        await self.transact(lambda transaction: None)
        # This transaction begins only after the log is copied.
        await self.transact(lambda transaction: None)

    async def drain(self) -> None:
        """Wait until everything submitted so far is stored and no commit is in progress.

        There is no time-out. Afterwards :meth:`close` may be called. Raises
        :class:`ProcessMustEndError` if the journal fails before everything is stored. A failure of
        the checkpoint that follows only ends the wait.
        """
        import asyncio

        await self.transact(lambda transaction: None)
        while self._state not in (JournalState.IDLE, JournalState.FAILED):
            await asyncio.sleep(DRAIN_LOOK_S)

    def close(self) -> None:
        """End both threads, and note the number of the last commit in the file ``identity``.

        Call :meth:`drain` before. After a failure nothing is noted. The data directory stays open.
        Raises :class:`OSError` if the file cannot be written.
        """
        self._move(JournalEvent.CLOSE)
        self._jobs.put(None)
        self._thread.join()
        self._checkpointer.close()
        if self._failure is None:
            self._directory.note_position(self._position)

    def abandon(self, doing: str, error: Exception) -> ProcessMustEndError:
        """Stop the journal because memory is ahead of the disk, as after a failed sync.

        Return the error that the caller must raise. ``doing`` names the activity, for its text.
        Call this function only for a bug between an engine's decision and this journal. A fault
        before the decision is answered with 503, and the process goes on. Nothing happens if the
        journal is closed.
        """
        if self._state is JournalState.CLOSED:
            return StoreSyncError("the journal is closed")
        self._fail(doing, error, None)
        assert self._failure is not None
        return self._failure

    # One transaction

    def _collect(self) -> _Batch:
        if self._state is JournalState.IDLE:
            self._begin_collecting()
        elif self._failure is not None:
            raise self._failure
        elif self._state is JournalState.CLOSED:
            raise StoreSyncError("the journal is closed")
        return self._waiting

    def _begin_collecting(self) -> None:
        self._move(JournalEvent.SUBMITTED)
        self._collected = 0
        self._collect_until = time.perf_counter() + COLLECT_S_MAX
        self._scheduler.call_soon(self._look)

    def _look(self) -> None:
        """Write the collected messages, or wait for one more turn of the loop.

        The journal writes when a turn brought nothing more, when three quarters of the messages in
        flight are there, or after :data:`COLLECT_S_MAX` seconds.
        """
        if self._state is not JournalState.SCHEDULED:
            return
        count = self._waiting.submissions
        if self._collected != count < self._enough and time.perf_counter() < self._collect_until:
            self._collected = count
            self._scheduler.call_soon(self._look)
        else:
            self._flush()

    def _flush(self) -> None:
        batch, self._waiting = self._waiting, _Batch()
        if not batch.rows and not batch.calls and not batch.must_commit:
            # Each of these messages repeats a committed one. The commit that was in progress when
            # the message arrived has returned.
            self._move(JournalEvent.NOTHING_TO_WRITE)
            self._answer(batch.callbacks, Committed(self._position))
            return
        try:
            written = self._write(batch)
        except Exception as error:
            # The disk refused, or there is a bug. Either way the engine counts on something that
            # was not stored.
            self._fail("write", error, batch)
            return
        self._move(JournalEvent.WRITTEN)
        self._jobs.put(written)

    def _write(self, batch: _Batch) -> _Written:
        connection, position, epoch_id = (
            self._connection,
            self._position + 1,
            self._directory.epoch_id,
        )
        execute = connection.execute
        execute("BEGIN IMMEDIATE")
        moved = execute(
            "UPDATE head SET position = ? WHERE only_row = 1 AND fence = ? AND position = ?",
            (position, self._directory.fence, position - 1),
        )
        if moved.rowcount != 1:
            raise StoreError(
                "another queue manager has taken over this data directory: this one must "
                "not write any more"
            )
        for name, rows in batch.rows.items():
            queue_id = self._queues[name][0]
            for part in _parts(rows):
                first, last = part[0][0], part[-1][0]
                records = [record for _, record in part]
                size = sum(len(record.post) for record in records)
                execute(
                    "INSERT INTO groups VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        row_key(queue_id, last),
                        queue_id,
                        epoch_id,
                        first,
                        last,
                        position,
                        size,
                        records[0].arrival.at,
                        records[-1].arrival.at,
                        pack_group(first, records),
                    ),
                )
        written = batch.bytes
        if self._changes is not None:
            changes = self._changes()
            if changes:
                state.save_changes(connection, changes)
                written += PAGE_SIZE_BYTES * max(
                    0, len({run.lineage for run in changes.history.upserts}) - 1
                )
        for save in self.savers:
            save(connection)
        owed = self._store_owed(batch.owed) if batch.owed else []
        if batch.undecided:
            decisions.save_undecided(
                connection, [(self._queues[row.queue][0], row) for row in batch.undecided]
            )
        transaction = Transaction(connection, position, epoch_id)
        results = [self._call(call, transaction) for call in batch.calls]
        self._count_free_pages()
        return _Written(batch, position, transaction, results, owed, written + transaction.written)

    def _count_free_pages(self) -> None:
        """Read :attr:`free_bytes` and :attr:`used_bytes` from the first page of the database.

        Call the method only while the loop's thread has the connection.
        """
        execute, page = self._connection.execute, self._page_bytes
        self.free_bytes = execute("PRAGMA freelist_count").fetchone()[0] * page
        self.used_bytes = execute("PRAGMA page_count").fetchone()[0] * page

    def _store_owed(self, receipts: list[OwedReceipt]) -> list[StoredReceipt]:
        stored = [
            StoredReceipt(self._owed_id + n, receipt) for n, receipt in enumerate(receipts, 1)
        ]
        self._owed_id += len(stored)
        state.save_owed(self._connection, stored)
        return stored

    def _call(self, call: _Call, transaction: Transaction) -> tuple[Any, BaseException | None]:
        execute = self._connection.execute
        after, undone = len(transaction.after_commit), len(transaction.when_undone)
        opened, closed = dict(transaction.queues_opened), set(transaction.queues_closed)
        execute("SAVEPOINT call")
        try:
            result = call.function(transaction)
        except sqlite3.OperationalError:
            # A full disk or an I/O error is not the fault of this function.
            raise
        except Exception as error:
            # Any other error goes to the caller of the function.
            execute("ROLLBACK TO call")
            execute("RELEASE call")
            for undo in transaction.when_undone[undone:]:
                undo()
            del transaction.after_commit[after:], transaction.when_undone[undone:]
            transaction.queues_opened, transaction.queues_closed = opened, closed
            return None, error
        execute("RELEASE call")
        return result, None

    # The commit thread

    def _run(self) -> None:
        connection, checkpointer, tell = (
            self._connection,
            self._checkpointer,
            self._scheduler.call_soon_threadsafe,
        )
        while (written := self._jobs.get()) is not None:
            started = time.perf_counter()
            try:
                connection.execute("COMMIT")
            except sqlite3.Error as error:
                tell(self._fail, "commit", error, written.batch)
                return
            took = time.perf_counter() - started
            if not checkpointer.finish_due:
                tell(self._committed, written, took, JournalEvent.SYNCED)
                continue
            # The messages are answered while the checkpoint runs.
            tell(self._committed, written, took, JournalEvent.SYNCED_CHECKPOINT_FOLLOWS)
            try:
                checkpointer.finished(connection)
            except sqlite3.Error as error:
                tell(self._fail, "checkpoint", error, None)
                return
            tell(self._checkpointed)

    # Back in the loop

    def _committed(self, written: _Written, took: float, event: JournalEvent) -> None:
        if self._failure is not None:
            # The batch is stored, but the rest of the state is uncertain: the next start reads it
            # from the disk.
            return
        batch, transaction = written.batch, written.transaction
        self._position = written.position
        self._enough = (batch.submissions + self._waiting.submissions) * 3 // 4
        for name, (queue_id, end) in transaction.queues_opened.items():
            self._queues[name] = [queue_id, end]
        for name in transaction.queues_closed:
            self._queues.pop(name, None)
        self._checkpointer.wrote(written.bytes)
        self._move(event)
        self._answer(batch.callbacks, Committed(written.position))
        for function in transaction.after_commit:
            self._guarded(function)
        for call, (result, error) in zip(batch.calls, written.results, strict=True):
            self._guarded(call.done, result, error)
        if written.owed and self._on_owed is not None:
            self._guarded(self._on_owed, written.owed)
        if self._on_commit is not None:
            self._guarded(self._on_commit, batch.rows_count, took)
        if self._state is JournalState.IDLE:
            self._go_on()

    def _checkpointed(self) -> None:
        if self._failure is not None:
            return
        self._move(JournalEvent.CHECKPOINTED)
        self._go_on()

    def _go_on(self) -> None:
        waiting = self._waiting
        if waiting.callbacks or waiting.calls or waiting.must_commit:
            self._begin_collecting()

    def _answer(self, callbacks: list[Callable[[Committed], object]], proof: Committed) -> None:
        for callback in callbacks:
            self._guarded(callback, proof)

    def _guarded(self, function: Callable[..., object], *args: object) -> None:
        """Call ``function``; log an error of it instead of raising it.

        So one bug does not stop other answers.
        """
        try:
            function(*args)
        except Exception:
            _log.exception("journal.callback_failed position=%d", self._position)

    def _fail(self, doing: str, error: Exception, batch: _Batch | None) -> None:
        """Stop the journal for good, and let ``on_fatal`` end the process.

        ``doing`` names the activity, for the text of the error. No waiting message is answered, the
        waiting functions of :meth:`call` are notified of the error, later messages are refused, and
        no sync is tried again.
        """
        if self._failure is not None:
            return
        where = f"after commit {self._position}: {error!s}; nothing later was acknowledged"
        if isinstance(error, sqlite3.Error | OSError | StoreError) and not isinstance(
            error, MemoryAheadError
        ):
            self._failure = StoreSyncError(f"{doing} failed {where}")
        else:
            self._failure = MemoryAheadError(f"{doing} met a bug of srmp-spark {where}")
        self._failure.__cause__ = error
        self._move(JournalEvent.FAULT)
        _log.critical("journal.failed %s", self._failure)
        for each in (batch, self._waiting):
            for call in each.calls if each else ():
                self._guarded(call.done, None, self._failure)
        if self._on_fatal is not None:
            self._on_fatal(self._failure)

    def _move(self, event: JournalEvent) -> None:
        self._state = TRANSITIONS[self._state, event]


def _parts(rows: list[tuple[int, Record]]) -> list[list[tuple[int, Record]]]:
    """Split rows of one queue into groups of at most :data:`GROUP_BYTES_MAX` bytes of posts.

    The rows belong to one commit. Mostly there is one group. A row that is larger is a group of its
    own.
    """
    parts: list[list[tuple[int, Record]]] = [[]]
    size = 0
    for row in rows:
        length = len(row[1].post)
        if size + length > GROUP_BYTES_MAX and parts[-1]:
            parts.append([])
            size = 0
        parts[-1].append(row)
        size += length
    return parts
