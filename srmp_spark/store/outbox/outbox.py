"""The outbox: the calls with which the sender process stages, commits and loads (ADR 0010).

    outbox = Outbox.open(data_dir, queue_manager=GUID, epoch=EPOCH, at=now_us)
    sender = Sender.load(…, outbox.queue_rows(), outbox.proof(), finals=outbox.finals(),
                         last_stream_ordinal=outbox.last_stream_ordinal,
                         serials_after=outbox.serials_after)

    staged = outbox.stages.add(application, batch, partition, attempt, file, at)
    outcome = outbox.prepare(application, batch, stage_ids, at)
    # A CommitResult if the reply was lost, else a Preparation.
    while not outcome.step(): …                # a chunk at a time; load and write in between
    enqueued = [sender.enqueue(*part.key, part.rows, at, receipts_url=…,
                               final_receipts=part.final) for part in outcome.parts]
    changes = sender.changes()
    numbered = outcome.numbered(first_identifier, enqueued)
    proof = outbox.write(changes, at, batches=[numbered])
    sender.committed(changes, proof)

    sender.loaded(load, outbox.load(load))     # for each Load that poll() gives
    while outbox.sweep(at): …                  # now and then: delete what is past its time

Only one thread at a time may use the outbox. No call waits. Except for the steps of a large batch,
no call takes longer than a few milliseconds and one sync. One batch is prepared at a time.
:class:`StoreSyncError` from any call is final: end the process, and do not close the outbox.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from srmp_spark.errors import LocalProtocolError, StoreDamagedError
from srmp_spark.private_files import FOLDER_MODE
from srmp_spark.srmp.receiving.effects import Committed
from srmp_spark.srmp.receiving.history_clock import HistoryClock
from srmp_spark.srmp.sending.outgoing_effects import (
    Load,
    OutgoingChanges,
    OutgoingQueueRow,
    QueueKey,
    SerialRun,
    StoredMessage,
)
from srmp_spark.srmp.sending.serial_runs import SerialRuns
from srmp_spark.store.database.durable import sync_directory
from srmp_spark.store.database.set_aside import SetAside
from srmp_spark.store.database.sqlite_file import readable
from srmp_spark.store.outbox import retention
from srmp_spark.store.outbox.errors import FAIL
from srmp_spark.store.outbox.limits import LOCK_WAIT_S, STAGES_DIRECTORY
from srmp_spark.store.outbox.messages.dead_letter_counts import DeadLetterCounts
from srmp_spark.store.outbox.messages.live import SentRun
from srmp_spark.store.outbox.messages.waiting import UnreadableRowsError, WaitingMessages
from srmp_spark.store.outbox.preparing.leftovers import delete_leftovers
from srmp_spark.store.outbox.preparing.preparation import Preparation, stage_set
from srmp_spark.store.outbox.preparing.prepared import CommitResult, Numbered
from srmp_spark.store.outbox.preparing.respelled import respell
from srmp_spark.store.outbox.stage_file import write_rows
from srmp_spark.store.outbox.staging.loops import Loops, OwnQueues
from srmp_spark.store.outbox.staging.stages import Stages
from srmp_spark.store.outbox.tables import released_queues, unreadable
from srmp_spark.store.outbox.tables.copies import begin_anew
from srmp_spark.store.outbox.tables.damage import Damage
from srmp_spark.store.outbox.tables.database import OutboxDatabase
from srmp_spark.store.outbox.tables.incarnations import begin_incarnation
from srmp_spark.store.outbox.tables.queue_rows import load_queues, save_queue
from srmp_spark.store.outbox.tables.schema import OUTBOX, raise_format
from srmp_spark.store.outbox.tables.sessions import (
    SessionRow,
    load_sessions,
    runs_of,
    save_session,
    serials_of,
)

SORTING_DIRECTORY = "sorting"
"""Folder below ``stages`` with the buckets of the batch that is put in order."""

_RESULT = (
    "SELECT new, known, coalesce(conflicts, 0), coalesce(rows, 0), coalesce(first, '') "
    "FROM batches LEFT JOIN batch_conflicts AS c ON c.batch_no = no "
    "LEFT JOIN batch_bad_rows AS b ON b.batch_no = no "
    "WHERE committed AND application = ? AND batch = ?"
)
"""Statement for the result of a batch, as the fields of :class:`.CommitResult`."""

_log = logging.getLogger(__name__)


class Outbox:
    """Stores the messages of sinks and the state of sending. This process owns the files.

    The module explains the order of the calls. ``at`` is the wall clock in microseconds since 1970,
    UTC. Every call that writes may raise :class:`StoreSyncError`, after which the process must end.
    """

    def __init__(
        self,
        database: OutboxDatabase,
        directory: Path,
        queue_manager: str,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.database = database
        self._monotonic = monotonic
        self._retention_clock = HistoryClock(retention.newest(database.connection))
        self.queue_manager = queue_manager
        self.held: list[QueueKey] = []
        """Outgoing queues that are held because the data directory or the outbox is a copy.

        The original may have sent the messages that wait in these queues.
        """
        self.set_aside: list[SetAside] = []
        """Database rows that cannot be read, also of earlier starts (:mod:`.unreadable`)."""
        self.last_stream_ordinal = 0
        self.serials_after = 0
        """The highest serial of a queue that was forgotten, or that was not made for lack of room.

        No queue assigns serials up to this one again, because dead letters still have them.
        """
        self._folder = directory / STAGES_DIRECTORY
        self.stages = Stages(database, self._folder)
        self.waiting = WaitingMessages(
            database.connection, queue_manager, lambda: database.next_id("data")
        )
        self.dead_letters = DeadLetterCounts(database.connection)
        self._connection: sqlite3.Connection = database.connection
        self._queue_ids: dict[QueueKey, int] = {}
        self._preparation: Preparation | None = None

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        queue_manager: str,
        epoch: str,
        at: int,
        lock_wait_s: float = LOCK_WAIT_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> Outbox:
        """Open the outbox in the data directory ``directory`` as its owner, and prepare its tables.

        An outbox that does not exist is created. Rows that uncommitted batches wrote are deleted.
        Database rows that cannot be read are set aside (:mod:`.unreadable`). The ``epoch`` of the
        data directory is stored. If it differs from that of the last open, or if this database is a
        copy, the queues with waiting messages are held (:attr:`held`) and all streams begin anew
        (:mod:`.copies`). ``monotonic`` returns seconds of the monotonic clock. Raises the same
        errors as :meth:`OutboxDatabase.open`, and :class:`StoreDamagedError` if another queue
        manager made the outbox.
        """
        database = OutboxDatabase.open(directory, lock_wait_s=lock_wait_s)
        try:
            folder = directory / STAGES_DIRECTORY
            if not folder.exists():
                folder.mkdir(mode=FOLDER_MODE)
                sync_directory(directory)
            with readable(database.path, OUTBOX.restore_hint):
                database.assert_durable()
                database.belongs_to(queue_manager)
                with database.transaction() as rows:
                    set_aside = unreadable.set_unreadable_aside(rows, at)
                    respell(rows)
                outbox = cls(database, directory, queue_manager, monotonic)
                outbox.set_aside = set_aside
                outbox._begin(epoch, at)
                database.note_position()
                outbox._retention_at(at)
        except BaseException:
            database.close()
            raise
        return outbox

    def _begin(self, epoch: str, at: int) -> None:
        left = delete_leftovers(self.database, self._folder / SORTING_DIRECTORY)
        if left:
            _log.info("outbox.leftovers_deleted batches=%d", left)
        facts = dict(self._connection.execute("SELECT key, value FROM meta"))
        self.last_stream_ordinal = int(facts.get("last_stream_ordinal", "0"))
        self.serials_after = int(facts.get("serials_after", "0"))
        is_copy = facts.get("epoch", epoch) != epoch or self.database.foreign is not None
        with self.database.transaction() as connection:
            if "incarnation" not in facts or is_copy:
                begin_incarnation(connection)
            if is_copy:
                if self.database.foreign is not None:
                    _log.warning("outbox.foreign because=%s", self.database.foreign)
                self.held, self.last_stream_ordinal = begin_anew(
                    connection, self.last_stream_ordinal, at
                )
            connection.executemany(
                "INSERT OR REPLACE INTO meta VALUES (?, ?)",
                [("queue_manager", self.queue_manager), ("epoch", epoch)],
            )
            self.dead_letters.count(connection)
        self._queue_ids = {
            QueueKey(destination, kind): number
            for number, destination, kind in self._connection.execute(
                "SELECT id, destination, kind FROM queues"
            )
        }
        self.stages.sweep_files()

    def look_for_set_aside(self) -> None:
        """Read again which database rows are set aside, into :attr:`set_aside`."""
        self.set_aside = unreadable.rows_set_aside(self._connection)

    def released(self) -> set[QueueKey]:
        """Return the outgoing queues that an operator has released, if this is a held copy."""
        return released_queues.load(self._connection)

    def store_released(self, released: Collection[QueueKey]) -> None:
        """Store the outgoing queues that an operator has released. Raises :class:`StoreError`."""
        with self.database.transaction() as connection:
            released_queues.store(connection, released)

    # --- for the engine's start -------------------------------------------------------------------

    @property
    def damage(self) -> Damage:
        """Return the object that keeps the notes about rows that cannot be read, by queue."""
        return self.waiting.damage

    def queue_rows(self) -> list[OutgoingQueueRow]:
        """Return the stored state of each outgoing queue, for the sending engine.

        In a reliable session (WS-ReliableMessaging) a message without a number was never sent. So
        ``released_to``, the serial up to which messages may have been sent, may be lower than
        stored. Raises :class:`StoreDamagedError` if a database row cannot be read.
        """
        sessions = load_sessions(self._connection)

        def row_of(row: OutgoingQueueRow) -> OutgoingQueueRow:
            key = QueueKey(row.destination, row.kind)
            session = sessions.get(key)
            if not key.transport.rules.numbers_in_session or (session is None and row.paused):
                return row
            return row._replace(
                released_to=max(
                    row.acknowledged_to, session.last_serial if session is not None else 0
                )
            )

        return [row_of(row) for row in load_queues(self._connection)]

    def sessions(self) -> dict[QueueKey, SessionRow]:
        """Return the stored sessions of WS-ReliableMessaging, by outgoing queue.

        Messages that were finished after a session was saved are left out of its numbers. Raises
        :class:`StoreDamagedError` if a database row cannot be read.
        """
        return {
            key: row._replace(numbers=runs_of(self._unfinished(self._queue_ids[key], row)))
            for key, row in load_sessions(self._connection).items()
        }

    def _unfinished(self, queue_id: int, row: SessionRow) -> dict[int, int]:
        numbers = serials_of(row.numbers)
        waiting = SerialRuns(
            self.waiting.runs(
                queue_id, final=False, low=min(numbers.values(), default=0), high=row.last_serial
            )
        )
        return {number: serial for number, serial in numbers.items() if serial in waiting}

    def finals(self) -> dict[QueueKey, list[tuple[int, int]]]:
        """Return the serials that wait for a final stream receipt, by outgoing queue.

        The serials are closed ranges, ascending. Queues without such messages are left out.
        """
        return {
            key: runs
            for key, number in self._queue_ids.items()
            if key.kind == "stream" and (runs := self.waiting.runs(number, final=True))
        }

    def proof(self) -> Committed:
        """Return the proof (:class:`.Committed`) that names the last commit on stable storage."""
        return self.database.proof()

    # --- batches ----------------------------------------------------------------------------------

    def prepare(
        self,
        application: str,
        batch: str,
        stages: Sequence[str],
        at: int,
        *,
        on_conflict: str = FAIL,
        own: OwnQueues | None = None,
    ) -> Preparation | CommitResult:
        """Begin a commit of ``stages``, or return its result if it was made before.

        A result is returned only if exactly these stages were committed as this batch. Otherwise
        nothing is written yet: the caller calls :meth:`.Preparation.step` until it is done, and
        then :meth:`write`. ``on_conflict`` is one of :data:`.errors.ON_CONFLICT`: the fate of rows
        that have the key or position of other content. ``own`` names the queues of this queue
        manager, to which their own rows must not return. ``None`` allows such loops.

        Raises :class:`BatchError` (404) if a stage does not exist, and :class:`LocalProtocolError`
        while another batch is prepared.
        """
        row = self._connection.execute(
            f"{_RESULT} AND stages = ?", (application, batch, stage_set(stages))
        ).fetchone()
        if row is not None:
            return CommitResult(*row)
        if self._preparation is not None:
            raise LocalProtocolError(f"one batch at a time: {self._preparation!r} comes first")
        rows = self.stages.get(application, batch, stages)
        preparation = Preparation(
            self.database,
            self._folder / SORTING_DIRECTORY,
            application,
            batch,
            rows,
            self.stages.lost_attempts(rows),
            at,
            self._retention_at(at),
            self.waiting,
            self._ended,
            on_conflict=on_conflict,
            loops=None if own is None else Loops(own),
        )
        self._preparation = preparation
        return preparation

    def result(self, application: str, batch: str) -> CommitResult | None:
        """Return the result of the last commit of a batch.

        Return ``None`` if the batch was not committed, or so long ago that it is forgotten.
        """
        row = self._connection.execute(
            f"{_RESULT} ORDER BY no DESC LIMIT 1", (application, batch)
        ).fetchone()
        return None if row is None else CommitResult(*row)

    def prepare_rows(
        self,
        application: str,
        batch: str,
        rows: Sequence[Mapping[str, Any]],
        at: int,
        *,
        dead_letter: bool = False,
    ) -> Preparation | CommitResult:
        """Write a few rows of srmp-spark's own as a stage, and begin the commit of the stage.

        Each row is a mapping of the sink's columns. With ``dead_letter`` final stream receipts
        finish the messages. The result is that of :meth:`prepare`. Raises the errors of
        :meth:`.Stages.add` and of :meth:`prepare`, and :class:`OSError` if the stage cannot be
        written.
        """
        file = write_rows(self._folder, rows, dead_letter=dead_letter)
        staged = self.stages.add(application, batch, 0, "0", file, at)
        return self.prepare(application, batch, [staged.stage_id], at)

    def _ended(self) -> None:
        self._preparation = None

    # --- the one way to write ---------------------------------------------------------------------

    def write(
        self,
        changes: OutgoingChanges | None,
        at: int,
        *,
        batches: Sequence[Numbered] = (),
        sent: Mapping[SerialRun, Sequence[SentRun]] | None = None,
        sessions: Mapping[QueueKey, SessionRow | None] | None = None,
    ) -> Committed:
        """Write the engine's changes, batches and sessions in one transaction.

        The serials of the batches are among the changes. ``sent`` says how often and when the
        messages were sent that are finished or dead now. This history is kept with the moved
        messages. A session that is ``None`` is deleted. After the commit the files of the batches'
        stages are deleted.

        Return the proof for :meth:`Sender.committed`. Every error is final
        (:class:`StoreSyncError`), because the engine already relies on the changes, which were not
        stored.
        """
        try:
            size = sum(numbered.preparation.unwritten_bytes for numbered in batches)
            with self.database.transaction(unsynced_bytes=size) as connection:
                if changes is not None:
                    anew = {QueueKey(row.destination, row.kind) for row in changes.queues}
                    # These queues are deleted here and made anew below.
                    self._forget(connection, [key for key in changes.forgotten if key in anew])
                    for row in changes.queues:
                        key = QueueKey(row.destination, row.kind)
                        known = self._queue_ids.get(key)
                        if known is None:
                            raise_format(connection, key.transport.rules.outbox_format)
                        self._queue_ids[key] = save_queue(connection, row, known)
                for numbered in batches:
                    numbered.preparation.write_last(connection, numbered, self._queue_ids)
                    self._note_serials(connection, numbered.unsent_to)
                for key, session in (sessions or {}).items():
                    if (number := self._queue_ids.get(key)) is not None:
                        save_session(connection, number, session)
                if changes is not None:
                    self._save_ends(connection, changes, at, sent or {})
                self.dead_letters.count(connection)
        except Exception as error:
            raise self.database.fail("a write", error) from error
        for numbered in batches:
            numbered.preparation.end()
            self.stages.unlink(
                [
                    stage.file
                    for stage in [*numbered.preparation.stages, *numbered.preparation.lost_stages]
                ]
            )
        return self.database.proof()

    def _save_ends(
        self,
        connection: sqlite3.Connection,
        changes: OutgoingChanges,
        at: int,
        sent: Mapping[SerialRun, Sequence[SentRun]],
    ) -> None:
        position = self.database.position + 1
        for run in changes.finished:
            number = self._queue_ids.get(run.key)
            if number is not None:
                self.waiting.finish(
                    run, number, self._stream_of(number), at, position, sent.get(run, ())
                )
        for letter in changes.dead_letters:
            number = self._queue_ids.get(letter.run.key)
            if number is not None:
                self.waiting.bury(
                    letter, number, self._stream_of(number), at, position, sent.get(letter.run, ())
                )
        anew = {QueueKey(row.destination, row.kind) for row in changes.queues}
        self._forget(connection, [key for key in changes.forgotten if key not in anew])
        if changes.last_stream_ordinal != self.last_stream_ordinal:
            self.last_stream_ordinal = changes.last_stream_ordinal
            connection.execute(
                "INSERT OR REPLACE INTO meta VALUES ('last_stream_ordinal', ?)",
                (str(changes.last_stream_ordinal),),
            )

    def _forget(self, connection: sqlite3.Connection, keys: Sequence[QueueKey]) -> None:
        for key in keys:
            number = self._queue_ids.pop(key, None)
            if number is not None:
                if (
                    connection.execute(
                        "SELECT 1 FROM parts WHERE queue_id = ? LIMIT 1", (number,)
                    ).fetchone()
                    is not None
                ):
                    raise StoreDamagedError(f"{key} was to be forgotten and has messages")
                (end,) = connection.execute(
                    "SELECT end FROM queues WHERE id = ?", (number,)
                ).fetchone()
                self._note_serials(connection, end)
                connection.execute("DELETE FROM queues WHERE id = ?", (number,))
                save_session(connection, number, None)
                self.damage.forget(key)
                self.set_aside = unreadable.forget(connection, key)

    def _note_serials(self, connection: sqlite3.Connection, to: int) -> None:
        if to > self.serials_after:
            self.serials_after = to
            connection.execute(
                "INSERT OR REPLACE INTO meta VALUES ('serials_after', ?)", (str(to),)
            )

    def _stream_of(self, number: int) -> tuple[str, int]:
        row = self._connection.execute(
            "SELECT stream_ordinal, base FROM queues WHERE id = ?", (number,)
        ).fetchone()
        return str(row[0]), int(row[1])

    # --- reading ----------------------------------------------------------------------------------

    def load(self, load: Load) -> list[StoredMessage]:
        """Return the waiting messages that the sending engine asks for with ``load``.

        A message is ready to send except for its place in the stream. The list is empty for an
        unknown queue. Raises :class:`StoreDamagedError` if the next row cannot be read, and stores
        a note about the row in :attr:`damage`. The note is deleted once the row can be read.
        """
        number = self._queue_ids.get(load.key)
        if number is None:
            return []
        try:
            found = self.waiting.load(load, number)
        except UnreadableRowsError as error:
            with self.database.transaction():
                self.damage.note(load.key, "waiting", error.rows, error.serials, error.reason)
            raise
        if found and self.damage.waits(load.key):
            with self.database.transaction():
                self.damage.readable(load.key)
        return found

    # --- housekeeping -----------------------------------------------------------------------------

    def sweep(self, at: int) -> bool:
        """Delete one slice of what is past its time; return whether there may be more to do.

        Old stages, identities and dead letters are deleted (:mod:`.retention`), then free pages are
        given back to the disk, and at last the number of the last commit is noted
        (:meth:`OutboxDatabase.note_position`). While a batch is prepared, nothing is done and the
        result is False.
        """
        if self._preparation is not None:
            return False
        more = retention.sweep(self.database, self.stages, at, self._retention_at(at))
        if not more and self.database.give_back():
            return True
        if not more:
            self.database.note_position()
        return more

    def _retention_at(self, wall: int) -> int:
        return self._retention_clock.read(wall, self._monotonic())

    def close(self) -> None:
        """Abort the batch in preparation, close the database and release the lock.

        The number of the last commit is noted before. Do not call this after a
        :class:`StoreSyncError`.
        """
        if self._preparation is not None:
            self._preparation.abort()
        self.database.note_position()
        self.database.close()

    def __repr__(self) -> str:
        return (
            f"<Outbox {self.database!r} queues={len(self._queue_ids)} "
            f"preparing={self._preparation}>"
        )
