"""The journal: from "taken" to "on stable storage", the only way to an answer of 200.

One SQLite connection, used by two threads strictly in turn. The loop's thread writes (``BEGIN``, INSERTs: they only touch
memory), the commit thread runs ``COMMIT`` (it waits for the disk, without the GIL). So the loop never waits for a sync:

    submit(), transact()  →  collected, mostly until the end of this turn of the loop
    flush                 →  fence and position, one row per queue, streams, history, receipts owed, functions of the API,
    COMMIT in the thread  →  meanwhile what arrives is collected for the next flush: group commit without a timer
    Committed(position)   →  each one's callback, then the next flush

**When to write.** A commit costs as much as fifteen messages, whatever is in it, and an SRMP sender has one POST in flight:
those just answered will be back in a moment. So a flush waits turn by turn until three quarters of what was in flight around
the last commit is there again, or a turn brought nothing more, or :data:`COLLECT_S_MAX` is over. The last quarter is read
while the disk works. A lone sender waits for nobody: one of one is enough. (32 senders on one core: 23,400 messages a second
against 19,000 when each turn was written at once, and half the commits.)

A group's messages for one queue become *one* row, a packed group (rows/group.py): the cost per message falls with the load.
What repeats something stored needs no commit of its own; it is answered with the last one, or rides behind the running one.

**Failure, of two kinds.** After a failed sync the page cache lies, and trying again may succeed without having written
(Rebello et al., ATC 2020). So any error here is final: nothing that waits is answered, everything later is refused,
``on_fatal`` ends the process (at once: closing the database would sync again), and the next start reads from the disk what is
true. The type says which of two it was: :class:`StoreSyncError`, the disk refused, or :class:`MemoryAheadError`, a bug of ours
left memory ahead of the disk (:meth:`Journal.abandon`), and nobody needs to look at the disk. A fault inside one request never
comes here.
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
from srmp_spark.srmp.decisions import Undecided
from srmp_spark.srmp.effects import Changes, Committed, OwedReceipt
from srmp_spark.store import decisions, state
from srmp_spark.store.checkpointer import Checkpointer
from srmp_spark.store.directory import DataDirectory
from srmp_spark.store.epochs import ends
from srmp_spark.store.giving_back import can_give_back
from srmp_spark.store.journal_states import TRANSITIONS, Event, State
from srmp_spark.store.schema import PAGE_SIZE_BYTES, assert_durable, row_key
from srmp_spark.store.state import StoredReceipt
from srmp_spark.store.transaction import Transaction

T = TypeVar("T")

GROUP_BYTES_MAX = 8 * 1024 * 1024
"""A turn with more becomes several groups: a group is read and decoded as a whole. Two bodies of the largest size fit."""
COLLECT_S_MAX = 0.001
"""What a message may wait for those that are on their way: about one sync of a good disk."""
DRAIN_LOOK_S = 0.002
"""How often :meth:`Journal.drain` looks whether the checkpoint that may follow a commit is done."""
WAITING_BYTES_MAX = 64 * 1024 * 1024
"""What may wait for the disk; past this :attr:`Journal.is_full` asks to stop reading. 16 bodies of the largest size."""

_log = logging.getLogger(__name__)


class Scheduler(Protocol):
    """What the journal needs of an event loop; a test drives it with a list."""

    def call_soon(self, callback: Callable[..., object], *args: object) -> object:
        """Call at the end of this turn."""

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: object) -> object:
        """The same, from another thread."""


class Insert(NamedTuple):
    """A row to store."""

    queue: str
    sequence: int
    record: Record


class _Call(NamedTuple):
    function: Callable[[Transaction], Any]
    done: Callable[[Any, BaseException | None], object]


class _Batch:
    """What goes into one transaction."""

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
    """Posts, and the pages of the history that other senders than one have changed."""


class Journal:
    """The writing side of the store. All methods are for the loop's thread."""

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
        """Callbacks, all in the loop's thread.

        ``changes`` is asked in each transaction for streams and history (``Receiver.changes``); ``on_owed`` gets the receipts
        that a commit stored; ``on_fatal`` must end the process; ``on_commit`` gets rows and seconds of each COMMIT (metrics).
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
        """Each is called in every transaction; what it raises fails the transaction, and the process with it."""
        self._state = State.IDLE
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
        """Of pages in the database that the next rows are written into, as of the last transaction."""
        self.used_bytes = 0
        """The length that the file of the database has when the log is copied, as of the last transaction."""
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
        """The number of the last commit that is on stable storage."""
        return self._position

    def proof(self) -> Committed:
        """Proof of what was on stable storage when the last commit came back."""
        return Committed(self._position)

    @property
    def is_full(self) -> bool:
        """More waits for the disk than :data:`WAITING_BYTES_MAX`: stop reading until a callback comes."""
        return self._waiting.bytes > WAITING_BYTES_MAX

    @property
    def wal_bytes(self) -> int:
        """Size of the WAL at the last checkpoint, for metrics."""
        return self._checkpointer.wal_bytes

    # What the loop asks for

    @property
    def collecting(self) -> object:
        """A token of what is being collected: the same as long as a submission would be answered together with the last one."""
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
        """Store ``insert`` (and what the engine says has changed), then call ``callback`` with the proof.

        ``insert`` is None for a message that makes no row: with ``must_commit`` its traces are committed first, without it
        any proof that covers everything submitted so far will do. ``undecided`` is what the row asks to be told of its end.
        ``callback`` is None when that of an earlier submission to
        the same :attr:`collecting` answers for this one too. Raises :class:`ProcessMustEndError` after a failure.
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
        """Commit what the engine says has changed, although no message came: a stream receipt was delivered, say."""
        self._collect().must_commit = True

    def call(
        self,
        function: Callable[[Transaction], T],
        done: Callable[[T | None, BaseException | None], object],
    ) -> None:
        """:meth:`transact` without asyncio: ``done(result, None)`` after the commit, or ``done(None, error)``."""
        self._collect().calls.append(_Call(function, done))

    async def transact(self, function: Callable[[Transaction], T]) -> T:
        """Run ``function`` in the next transaction; returns its result once that is on stable storage.

        The function runs in the loop's thread between two INSERTs: it must be short. What it raises is raised here, and
        only its own changes are undone.
        """
        import asyncio

        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def done(result: T | None, error: BaseException | None) -> None:
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]  # a result without an error is a T

        self.call(function, done)
        return await future

    async def checkpoint(self) -> None:
        """Copy the log into the database, behind a commit of its own; the database's file then ends with its last page.

        A reader that looks at an older state puts the end of the file off. Nobody waits for it.
        """
        self._checkpointer.finish_due = True
        await self.transact(lambda transaction: None)
        await self.transact(lambda transaction: None)  # it begins when the log is copied

    async def drain(self) -> None:
        """Return when everything submitted so far is on stable storage and nothing is under way: :meth:`close` may follow."""
        import asyncio

        await self.transact(lambda transaction: None)
        while self._state not in (State.IDLE, State.FAILED):
            await asyncio.sleep(DRAIN_LOOK_S)

    def close(self) -> None:
        """Stop after :meth:`drain`: ends the threads and notes the position in ``identity``. The directory stays open."""
        self._move(Event.CLOSE)
        self._jobs.put(None)
        self._thread.join()
        self._checkpointer.close()
        if self._failure is None:
            self._directory.note_position(self._position)

    def abandon(self, doing: str, error: Exception) -> ProcessMustEndError:
        """Stop because an engine counts on something that did not get here, as after a failed sync. Return what to raise.

        For a bug that came between an engine's decision and this journal, and for nothing else: a fault before the decision is
        answered 503, and the process goes on.
        """
        if self._state is State.CLOSED:
            return StoreSyncError("the journal is closed")
        self._fail(doing, error, None)
        assert self._failure is not None
        return self._failure

    # One transaction

    def _collect(self) -> _Batch:
        if self._state is State.IDLE:
            self._begin_collecting()
        elif self._failure is not None:
            raise self._failure
        elif self._state is State.CLOSED:
            raise StoreSyncError("the journal is closed")
        return self._waiting

    def _begin_collecting(self) -> None:
        self._move(Event.SUBMITTED)
        self._collected = 0
        self._collect_until = time.perf_counter() + COLLECT_S_MAX
        self._scheduler.call_soon(self._look)

    def _look(self) -> None:
        """Once in each turn of the loop while collecting: write as soon as a turn brought nothing more."""
        if self._state is not State.SCHEDULED:
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
            # Every one of these repeats something that is committed: what was under way at its arrival has come back.
            self._move(Event.NOTHING_TO_WRITE)
            self._answer(batch.callbacks, Committed(self._position))
            return
        try:
            written = self._write(batch)
        except Exception as error:  # the disk, or a bug: the engine counts on what was not stored
            self._fail("write", error, batch)
            return
        self._move(Event.WRITTEN)
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
        """Read both counts, which stand in the first page; only while the loop's thread has the connection."""
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
        except sqlite3.OperationalError:  # full, I/O error: no matter of this function
            raise
        except Exception as error:  # whatever it is, it is for the one who asked
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
                tell(self._committed, written, took, Event.SYNCED)
                continue
            tell(
                self._committed, written, took, Event.SYNCED_CHECKPOINT_FOLLOWS
            )  # the messages are answered meanwhile
            try:
                checkpointer.finished(connection)
            except sqlite3.Error as error:
                tell(self._fail, "checkpoint", error, None)
                return
            tell(self._checkpointed)

    # Back in the loop

    def _committed(self, written: _Written, took: float, event: Event) -> None:
        if self._failure is not None:
            return  # it is stored, but what else is true nobody knows: the next start finds out
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
        if self._state is State.IDLE:
            self._go_on()

    def _checkpointed(self) -> None:
        if self._failure is not None:
            return
        self._move(Event.CHECKPOINTED)
        self._go_on()

    def _go_on(self) -> None:
        waiting = self._waiting
        if waiting.callbacks or waiting.calls or waiting.must_commit:
            self._begin_collecting()

    def _answer(self, callbacks: list[Callable[[Committed], object]], proof: Committed) -> None:
        for callback in callbacks:
            self._guarded(callback, proof)

    def _guarded(self, function: Callable[..., object], *args: object) -> None:
        """One connection's bug must not leave the others without their answer."""
        try:
            function(*args)
        except Exception:
            _log.exception("journal.callback_failed position=%d", self._position)

    def _fail(self, doing: str, error: Exception, batch: _Batch | None) -> None:
        """The end: nobody who waits is told that it worked, nobody later is let in, and no sync is tried again."""
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
        self._move(Event.FAULT)
        _log.critical("journal.failed %s", self._failure)
        for each in (batch, self._waiting):
            for call in each.calls if each else ():
                self._guarded(call.done, None, self._failure)
        if self._on_fatal is not None:
            self._on_fatal(self._failure)

    def _move(self, event: Event) -> None:
        self._state = TRANSITIONS[self._state, event]


def _parts(rows: list[tuple[int, Record]]) -> list[list[tuple[int, Record]]]:
    """The rows of a turn in groups of at most :data:`GROUP_BYTES_MAX`; mostly that is one."""
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
