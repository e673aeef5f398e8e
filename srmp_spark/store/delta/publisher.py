"""Publish what the queue manager holds in Delta, at most ``--state-interval`` seconds later.

One cycle looks at the log in one read transaction (commit P, the end of each queue, streams). The
cycle appends the rows that ``inbox`` does not have, replaces the tables of current state that
changed, syncs, and reports P. Only reported rows count as synced elsewhere. So retention and
``srmp_state_lag_seconds`` use the report and nothing else. If SQLite states that nothing was
committed since the last look, a cycle compares nothing, except every :data:`WHOLE_LOOK_S`.

``message_id_history`` can have millions of rows, which take half a minute to write. So it may be
older than ``inbox`` (:data:`IDENTIFIERS_REST`): the identifiers of newer rows are in ``inbox``, and
``restore`` adds them. ``message_id_history`` must never be newer than ``inbox``: after a restore an
identifier without its row would turn the sender's repeat into a loss. Messages arrive while the
identifiers are read, page by page. So the file of identifiers is written first, then comes the look
at the log, and the file is committed when ``inbox`` has all rows that it names.

The table itself states where each queue continues: in the application transactions that were
committed together with the rows (``state_table``). A publisher that is killed between any two steps
begins again at the last commit, and neither loses nor doubles a row. See ``data_files`` (order of
syncs) and ``shadow`` (repair) for what a power loss can do to the files.

The publisher runs in a thread of the reader process, reads SQLite read-only, and holds at most one
chunk in memory. An unavailable object store stops nothing: the cycle is tried again, the lag grows,
and the log keeps its rows.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from srmp_spark.errors import StoreDamagedError
from srmp_spark.sequences.sequence_set import SequenceSet
from srmp_spark.store.delta import rows_gone
from srmp_spark.store.delta.log_source import (
    LogRange,
    LogSource,
    Snapshot,
)
from srmp_spark.store.delta.losses import LossTable
from srmp_spark.store.delta.restore_watch import given_up_error
from srmp_spark.store.delta.rows_gone import Gone
from srmp_spark.store.delta.snapshot_rows import IDENTIFIERS, REPLACED, identifier_rows, stamped
from srmp_spark.store.delta.tables import table_specs
from srmp_spark.store.delta.tables.actions import LiveFile, digest_of
from srmp_spark.store.delta.tables.cycles import OlderCopyError, run_cycles
from srmp_spark.store.delta.tables.data_files import DataFile, storage_of
from srmp_spark.store.delta.tables.events import (
    Notify,
    PublisherFailed,
    RowsGone,
    StateCompared,
    StatePublished,
)
from srmp_spark.store.delta.tables.state_folder import state_folder
from srmp_spark.store.delta.tables.state_room import CYCLE_BYTES_MIN, NoRoomError, StateRoom
from srmp_spark.store.delta.tables.state_table import StateTable

CHUNK_ROWS_MAX = 50_000
"""Rows of one commit to ``inbox``. The rest follows in another commit."""
CHUNK_BYTES_MAX = 64 << 20
"""Bytes of one commit to ``inbox`` before compression.

The limit bounds the memory of the publisher, whatever the backlog is.
"""


class ChunkSizes(NamedTuple):
    """Most rows and bytes of one commit to ``inbox``."""

    rows: int = CHUNK_ROWS_MAX
    bytes: int = CHUNK_BYTES_MAX


UNPUBLISHED_TOLD_MAX = 20
"""Largest number of queues that the error of a given-up data directory names with rows.

That is 8 KB of text. The log file names all of them.
"""
INBOX = "inbox"
"""Name of this publisher in its events."""
TABLES_LOOK_S = 60.0
"""Interval in seconds at which the tables of current state are checked for foreign changes.

Other programs may have restored the tables or deleted rows.
"""
IDENTIFIERS_CHEAP_S = 1.0
"""Longest time, in seconds, of a comparison of the identifiers that is made in every cycle.

The time includes the writing of the identifiers.
"""
IDENTIFIERS_REST = 20
"""Factor for the pause after a comparison of identifiers that took longer.

The pause is this many times as long as the comparison, so the largest history may cost a twentieth
of a core.
"""
WHOLE_LOOK_S = 600.0
"""Interval in seconds at which everything is compared although nothing was committed.

The comparison takes a thousandth of a core with 10,000 queues and 100,000 streams. The comparison
must find nothing. Differences that it finds are published and logged (``delta.missed``).
"""
_log = logging.getLogger(__name__)


class Publisher:
    """Writes the state tables below ``state_uri`` for the queue manager that owns ``data_dir``.

    ``run`` reports with the events of :mod:`.events`. In :class:`.StatePublished` the tables hold,
    durably, all that was committed up to ``position``, and each queue up to ``sequences``. Position
    and ``as_of`` do not advance while a queue is damaged. Fatal failures
    (:class:`StoreDamagedError`) end ``run``.
    """

    def __init__(
        self,
        data_dir: str | Path,
        state_uri: str,
        queue_manager: str,
        interval_s: float,
        *,
        source: LogSource | None = None,
        storage_options: Mapping[str, str] | None = None,
        chunks: ChunkSizes = ChunkSizes(),  # noqa: B008  # it is immutable
        others_as_of: Callable[[], float] | None = None,
    ) -> None:
        """Store the arguments; nothing is opened before the first cycle.

        ``interval_s`` is in seconds. Without ``source`` the log is that of ``data_dir``.
        ``others_as_of`` returns the time of the tables that another publisher writes, in seconds
        since 1970. No later time is reported.
        """
        self._data_dir = Path(data_dir)
        self._uri = state_uri
        self._queue_manager = queue_manager
        self._interval_s = interval_s
        self._given_source = source
        self._options = dict(storage_options or {})
        self._chunks = chunks
        self._others_as_of = others_as_of
        self._room = StateRoom(self._data_dir, state_folder(state_uri))
        self._tables: dict[str, StateTable] = {}
        self._losses = LossTable(self._open_table)
        self._digests: dict[str, str | None] = {}
        self._identifiers_at: int | None = None
        """Number of a commit whose identifiers ``message_id_history`` shows, as far as is known."""
        self._no_room: NoRoomError | None = None
        """Error that kept the last cycle from publishing everything; ``None`` if there was room."""
        self._gone: list[Gone] = []
        """Rows that the last comparison found missing in ``inbox`` and in the log."""
        self._told_gone: set[Gone] = set()
        """Missing rows that were reported before, while damage keeps other rows out."""
        self._kept_out: dict[str, str] = {}
        """Queues with rows that other programs took out and that cannot be published again now,
        with the damage of each queue.
        """
        self._again_at = 0.0
        """Monotonic time of the next attempt to publish these rows, which reads three columns of
        the whole table.
        """
        self._look_at = 0.0
        """Monotonic time of the next comparison of the tables of current state
        (:meth:`_look_at_tables`).
        """
        self._identifiers_due = 0.0
        """Time of the next writing of the identifiers, in seconds of the monotonic clock."""
        self._told_alone: set[LogRange] = set()
        """Rows that only a given-up data directory has, and that were named already."""
        self._source: LogSource | None = source
        self._began_at = time.time()
        self._complete: tuple[int, float] | None = None
        """Commit and time up to which no queue lacks a row."""
        self._shown: _Shown | None = None
        """State that the tables are known to show; ``None``: everything is compared."""
        self._changed: set[str] = set()
        """Names of the tables that other programs have changed, as this cycle found."""
        self._written: list[str] = []
        """Names of the tables that the last comparison has written."""
        self._believes_stamps = True
        """Whether stamps are trusted.

        ``False`` after a comparison that found a difference which no stamp had shown: then every
        cycle compares everything.
        """

    def __repr__(self) -> str:
        return f"<Publisher {self._queue_manager} to {self._uri} every {self._interval_s} s>"

    def run(self, stop: threading.Event, notify: Notify) -> None:
        """Publish every ``interval_s`` seconds until ``stop`` is set, and then once more.

        The last cycle is there so that a clean end leaves no lag. ``notify`` gets the events of the
        class docstring. Failures are notified and not raised. The method returns earlier after
        damage that cannot be repaired.
        """
        compared = False

        def cycle() -> bool:
            nonlocal compared
            self._open()
            if not compared:
                compared = True
                notify(StateCompared())
            try:
                report = self._publish()
            except NoRoomError:
                self._vacuum()
                raise
            notify(report)
            if self._gone:
                gone, self._gone = self._gone, []
                named = gone[: rows_gone.RANGES_MAX]
                notify(RowsGone(INBOX, [(*each,) for each in named], len(gone) - len(named)))
            if self._no_room is not None:
                # Published rows count: they may be deleted, which makes room.
                self._vacuum()
                raise self._no_room
            for queue, error in report.damaged.items():
                told = f"queue {queue} is not published: {error}"
                notify(PublisherFailed(INBOX, told, remedy="", queue=queue))
            self._maintain()
            return True

        run_cycles(INBOX, cycle, self._close, self._interval_s, stop, notify)

    def publish_once(self) -> StatePublished:
        """Run one cycle, and return its report.

        Raises the errors of the store. The rows that the cycle had committed before stay in the
        tables, and a later cycle reports them.
        """
        report = self._publish()
        self._maintain()
        return report

    def _maintain(self) -> None:
        """Run the housekeeping of all open tables, if the cycle had enough room.

        The housekeeping is compaction, checkpoint and vacuum. It follows the report, so published
        rows may be deleted from the log meanwhile.
        """
        if self._no_room is None:
            now = time.monotonic()
            for table in self._open_tables():
                table.maintain(now)

    def _vacuum(self) -> None:
        """Delete files of all open tables that no kept version names, at most once an hour.

        Without room for a publication, these files may be the only room that can be freed.
        """
        now = time.monotonic()
        for table in self._open_tables():
            table.vacuum(now)

    def _open_tables(self) -> Iterator[StateTable]:
        return filter(None, (*self._tables.values(), self._losses.table))

    def _publish(self) -> StatePublished:
        self._room.check(CYCLE_BYTES_MIN)
        source = self._open()
        stamp, as_of = source.stamp(), time.time()
        known, self._shown = self._shown, None
        self._changed.clear()
        if (
            known is None
            or known.stamp != stamp
            or self._others_published()
            or not self._believes_stamps
        ):
            shown = self._publish_all(source, stamp)
        elif time.monotonic() < known.compare_at:
            shown = self._publish_all(source, stamp) if self._look_at_tables() else known
        else:
            shown = self._publish_all(source, stamp)
            missed = [name for name in self._written if name not in self._changed]
            # If the stamp differs, the rows were committed meanwhile, and the next cycle would have
            # seen them.
            if missed and source.stamp() == stamp:
                self._believes_stamps = False
                _log.error(
                    "delta.missed tables=%s: published now; from now on every cycle compares "
                    "everything",
                    missed,
                )
        if not shown.damaged and self._no_room is None:
            self._complete = shown.position, as_of
            if self._identifiers_at == shown.position:
                self._shown = shown
        position, as_of = self._complete or (0, self._began_at)
        if self._others_as_of is not None:
            as_of = min(as_of, self._others_as_of())
        return StatePublished(self._uri, position, as_of, shown.sequences, shown.damaged)

    def _others_published(self) -> bool:
        """Read new commits of ``inbox``, and return whether other programs changed its rows.

        Only rows and application transactions of this queue manager count. Examples are a restore,
        or a program that took rows out. Rows that other queue managers append do not count.
        """
        inbox = self._tables["inbox"]
        version, moves = inbox.version, inbox.moves
        inbox.refresh()
        return inbox.version != version and (inbox.moves != moves or inbox.lacks_rows())

    def _publish_all(self, source: LogSource, stamp: object) -> _Shown:
        """Compare all state with the tables, write what differs, and return what they show.

        Damaged queues and a lack of room are part of the result. Raises the other errors of the
        store.
        """
        compare_at = time.monotonic() + WHOLE_LOOK_S
        self._written = []
        snapshot = source.snapshot()
        identifiers = self._write_identifiers(source, snapshot.position)
        if identifiers is not None:
            snapshot = source.snapshot()
        inbox = self._tables["inbox"]
        with self._tables[IDENTIFIERS].discarding(identifiers and identifiers.file):
            inbox.refresh()
            self._check_not_restored(inbox, snapshot)
            # The table may only be ahead of this look: an earlier publisher may still have been
            # at work. So look again before the error is raised.
            if _ahead(inbox, snapshot) is not None:
                _check_not_ahead(inbox, source.snapshot(), self._uri)
            damaged = self._publish_again(inbox, source, snapshot)
            damaged |= self._append(inbox, source, snapshot)
            if self._no_room is not None and identifiers is not None:
                self._tables[IDENTIFIERS].discard([identifiers.file] if identifiers.file else [])
            elif identifiers is not None:
                self._commit_identifiers(identifiers)
        if self._no_room is None:
            self._look_at_tables()
            for name, rows in REPLACED.items():
                self._replace(name, partial(rows, snapshot), snapshot.position)
            self._losses.publish(snapshot.losses, snapshot.position)
        sequences: dict[str, dict[str, int]] = {}
        for span in snapshot.ranges:
            end = (
                min(span.end, inbox.published(span.epoch, span.queue))
                if span.queue in damaged or self._no_room
                else span.end
            )
            sequences.setdefault(span.epoch, {})[span.queue] = end
        return _Shown(stamp, snapshot.position, sequences, damaged, compare_at)

    # Opening

    def _open(self) -> LogSource:
        if self._source is None:
            from srmp_spark.store.delta.stored_log import StoredLog

            self._source = StoredLog(self._data_dir, self._queue_manager)
        if not self._tables:
            specs = (
                table_specs.inbox(),
                table_specs.message_id_history(),
                table_specs.incoming_streams(),
                table_specs.queues(),
                table_specs.counters(),
                table_specs.wsrm_sequences(),
            )
            tables = {spec.name: self._open_table(spec) for spec in specs}
            snapshot = self._source.snapshot()
            self._check_not_restored(tables["inbox"], snapshot)
            tables["inbox"].note_restores(snapshot.restores)
            _check_not_ahead(tables["inbox"], snapshot, self._uri)
            for lost in tables["inbox"].lost_files():
                self._restore(tables["inbox"], lost, self._source, snapshot)
            self._digests = {
                name: tables[name].written_digest() for name in (IDENTIFIERS, *REPLACED)
            }
            self._identifiers_at, self._identifiers_due = None, 0.0
            self._tables = tables
        return self._source

    def _check_not_restored(self, inbox: StateTable, snapshot: Snapshot) -> None:
        """Raise :class:`GivenUpError` if the queue manager was restored elsewhere.

        The error names the rows that only this log has.
        """
        if inbox.restores <= snapshot.restores:
            return
        alone = list(_unpublished(inbox, snapshot))
        for span in set(alone) - self._told_alone:
            _log.error(
                "state.unpublished queue=%s epoch=%s first=%d last=%d: this data "
                "directory, which was given up, has accepted "
                "these rows, and no table has them",
                span.queue,
                span.epoch,
                span.first,
                span.end,
            )
        self._told_alone = set(alone)
        told = [
            f"{span.queue} {span.first} to {span.end} of epoch {span.epoch}"
            for span in alone[:UNPUBLISHED_TOLD_MAX]
        ]
        more = (
            f" and {len(alone) - len(told)} more queues (state.unpublished in the log)"
            if len(alone) > len(told)
            else ""
        )
        raise given_up_error(self._uri, ", ".join(told) + more)

    def _open_table(self, spec: table_specs.TableSpec) -> StateTable:
        storage = storage_of(self._uri, spec.name, self._options, self._room)
        return StateTable(storage, spec, self._queue_manager, self._data_dir / "delta" / spec.name)

    def _close(self) -> None:
        """Forget all handles, so that the next cycle opens and repairs the tables again."""
        self._tables = {}
        self._losses = LossTable(self._open_table)
        self._source, self._shown = self._given_source, None

    def _restore(
        self, inbox: StateTable, lost: LiveFile, source: LogSource, snapshot: Snapshot
    ) -> None:
        """Replace a lost data file of ``inbox`` by a file with its rows.

        Rows that the log no longer has are missing. The number of restored rows is logged.
        """
        present: dict[tuple[str, str], set[int]] = {}
        for table in inbox.sequences_left(lost):
            for row in table.to_pylist():
                present.setdefault((row["epoch"], row["queue"]), set()).add(row["sequence"])
        restored = inbox.restore_rows(lost, self._missing(inbox, lost, present, source, snapshot))
        log = _log.warning if restored == lost.rows else _log.error
        log(
            "delta.restored file=%s rows=%d of %d: the other rows are no longer in the log",
            lost.path,
            restored,
            lost.rows,
        )

    def _missing(
        self,
        inbox: StateTable,
        lost: LiveFile,
        present: Mapping[tuple[str, str], set[int]],
        source: LogSource,
        snapshot: Snapshot,
    ) -> Iterator[pa.Table]:
        for span in snapshot.ranges:
            least = max(span.first, lost.least.get("sequence") or span.first)
            last = min(
                span.end,
                lost.greatest.get("sequence") or span.end,
                inbox.published(span.epoch, span.queue),
            )
            here = present.get((span.epoch, span.queue), set())
            if least > last:
                continue
            try:
                for batch in source.batches(span.epoch, span.queue, least - 1, last):
                    keep = pc.invert(
                        pc.is_in(batch["sequence"], pa.array(sorted(here), pa.int64()))
                    )
                    yield stamped(batch.filter(keep), snapshot.position)
            except StoreDamagedError as error:
                # Damaged rows of the log cannot be restored from it. The message is complete; a
                # traceback would hide it.
                _log.error("delta.not_restored queue=%s: %s", span.queue, error)

    # Changes of other programs

    def _publish_again(
        self, inbox: StateTable, source: LogSource, snapshot: Snapshot
    ) -> dict[str, str]:
        """Append again the rows that other programs took out of ``inbox`` (RESTORE, DELETE).

        Ranges of rows that the log no longer has are logged as errors. Return the queues in which a
        damaged row keeps rows out, with the text of the error for each; empty if nothing is
        missing. These queues are tried again once a minute.
        """
        if not inbox.lacks_rows():
            self._kept_out = {}
            return {}
        if self._kept_out and time.monotonic() < self._again_at:
            return dict(self._kept_out)
        self._kept_out, self._again_at = {}, time.monotonic() + TABLES_LOOK_S
        gone, told = inbox.rows_gone, list[Gone]()
        present = rows_gone.sequences_of(inbox)
        again = 0
        for span in snapshot.ranges:
            key = span.epoch, span.queue
            here, published = present.get(key, SequenceSet()), inbox.published(*key)
            told += rows_gone.beyond_the_log(snapshot, span, published, here)
            chunk = self._new_chunk()
            try:
                for first, last in rows_gone.in_the_log(span, published, here):
                    for table in self._pieces(
                        source, span._replace(end=last), first - 1, snapshot.position
                    ):
                        if not chunk.has_room(table):
                            again += inbox.append_again(chunk.joined())
                            chunk = self._new_chunk()
                        chunk.add(table, key)
            except StoreDamagedError as error:
                # The message is complete; a traceback would hide it.
                _log.error("delta.not_published_again queue=%s: %s", span.queue, error)
                self._kept_out[span.queue] = str(error)
            again += inbox.append_again(chunk.joined())
        if again < gone and not self._kept_out:
            inbox.accept_count()
        _log.warning(
            "delta.changed_by_others table=inbox rows=%d: other programs removed them; %d "
            "are published again",
            gone,
            again,
        )
        self._gone = [each for each in told if each not in self._told_gone]
        self._told_gone = set(told) if self._kept_out else set()
        for each in self._gone[: rows_gone.RANGES_MAX]:
            _log.error(
                "delta.rows_gone epoch=%s queue=%s first=%d last=%d: the log no longer has "
                "these rows",
                *each,
            )
        return dict(self._kept_out)

    def _look_at_tables(self) -> bool:
        """Find the tables of current state that other programs changed, at most once a minute.

        A changed table is logged, and is written again by the comparison that follows. Each check
        is a request to the store. Return whether there is such a table. Within a minute of the last
        check the result is ``False``.
        """
        now = time.monotonic()
        if now < self._look_at:
            return False
        self._look_at = now + TABLES_LOOK_S
        for name in (IDENTIFIERS, *REPLACED):
            table = self._tables[name]
            table.refresh()
            if not table.is_as_put():
                _log.warning("delta.changed_by_others table=%s: it is written again", name)
                self._digests[name] = None
                if name == IDENTIFIERS:
                    self._identifiers_at, self._identifiers_due = None, 0.0
                self._changed.add(name)
        return bool(self._changed)

    # inbox

    def _append(self, inbox: StateTable, source: LogSource, snapshot: Snapshot) -> dict[str, str]:
        """Append all new rows to ``inbox``, in chunks, as far as there is room.

        One chunk may hold the ends of many queues. Return the damaged queues with the error of
        each. If the room ends, ``_no_room`` is set, and :class:`NoRoomError` is not raised.
        """
        damaged: dict[str, str] = {}
        self._no_room = None
        try:
            self._append_all(inbox, source, snapshot, damaged)
        except NoRoomError as error:
            self._no_room = error
        return damaged

    def _append_all(
        self, inbox: StateTable, source: LogSource, snapshot: Snapshot, damaged: dict[str, str]
    ) -> None:
        chunk = self._new_chunk()
        for span in snapshot.ranges:
            key = span.epoch, span.queue
            after = max(inbox.published(*key), span.start - 1)
            if span.first > span.end or after >= span.end:
                continue
            if span.first > after + 1:
                _log.warning(
                    "delta.gap queue=%s: rows %d to %d were deleted from the log before they "
                    "were published",
                    span.queue,
                    after + 1,
                    span.first - 1,
                )
                after = span.first - 1
            try:
                for table in self._pieces(source, span, after, snapshot.position):
                    if not chunk.has_room(table):
                        self._append_chunk(inbox, chunk, snapshot.restores)
                        chunk = self._new_chunk()
                    chunk.add(table, key)
            except StoreDamagedError as error:
                # Damage stops only its own queue.
                damaged[span.queue] = str(error)
                continue
            if key in chunk.positions:
                # Everything after the last row is purged.
                chunk.positions[key] = span.end
        self._append_chunk(inbox, chunk, snapshot.restores)

    def _new_chunk(self) -> _Chunk:
        """Return an empty chunk whose limit fits into the free room; compressed it takes less.

        Raises :class:`NoRoomError` if there is no room.
        """
        return _Chunk(self._chunks.rows, self._chunk_bytes_now())

    def _chunk_bytes_now(self) -> int:
        return min(self._chunks.bytes, self._room.check(CYCLE_BYTES_MIN))

    def _append_chunk(self, inbox: StateTable, chunk: _Chunk, restores: int) -> None:
        if inbox.append_unless_restored(chunk.joined(), chunk.positions, restores):
            self._written.append(inbox.spec.name)

    def _pieces(
        self, source: LogSource, span: LogRange, after: int, position: int
    ) -> Iterator[pa.Table]:
        """Yield the rows of one queue as tables that each fit into one chunk.

        The rows are those after sequence ``after``. ``position`` is the commit that the rows are
        stamped with.
        """
        for batch in source.batches(span.epoch, span.queue, after, span.end):
            if not batch.num_rows:
                continue
            bytes_per_row = max(1, batch.nbytes // batch.num_rows)
            step = max(1, min(self._chunks.rows, self._chunk_bytes_now() // bytes_per_row))
            for start in range(0, batch.num_rows, step):
                yield stamped(batch.slice(start, step), position)

    # The tables of current state

    def _write_identifiers(self, source: LogSource, position: int) -> _Identifiers | None:
        """Write all runs of identifiers as of ``position``, in a file that no commit names yet.

        Return ``None`` if the time for the next look has not come, or the identifiers have not
        changed. The call also sets the time of the next look: the longer this one took, the later.
        """
        began = time.monotonic()
        if began < self._identifiers_due or position == self._identifiers_at:
            return None
        rows = partial(identifier_rows, source, position)
        digest = digest_of(rows(), ignore=("position", "written_at"))
        found = None
        if digest != self._digests[IDENTIFIERS]:
            found = _Identifiers(self._tables[IDENTIFIERS].write(rows()), position, digest)
        took = time.monotonic() - began
        if found is None:
            self._identifiers_at = position
        self._identifiers_due = (
            0.0 if took <= IDENTIFIERS_CHEAP_S else began + took * IDENTIFIERS_REST
        )
        return found

    def _commit_identifiers(self, identifiers: _Identifiers) -> None:
        table = self._tables[IDENTIFIERS]
        table.refresh()
        table.put(*identifiers)
        self._written.append(IDENTIFIERS)
        self._digests[IDENTIFIERS] = identifiers.digest
        self._identifiers_at = identifiers.position

    def _replace(self, name: str, rows: Callable[[], Iterator[pa.Table]], position: int) -> None:
        digest = digest_of(rows(), ignore=("position", "written_at"))
        if digest == self._digests[name]:
            return
        table = self._tables[name]
        table.refresh()
        table.replace(rows(), position, digest)
        self._digests[name] = digest
        self._written.append(name)


class _Shown(NamedTuple):
    """The state of the log that a cycle has published, as the tables show it now.

    While the stamp of the log stays the same, the next cycles need not compare anything.
    """

    stamp: object
    """Stamp of the source, taken before its state was read (:meth:`.LogSource.stamp`)."""
    position: int
    sequences: dict[str, dict[str, int]]
    damaged: dict[str, str]
    compare_at: float
    """Time at which everything is compared in any case, in seconds of the monotonic clock."""


class _Identifiers(NamedTuple):
    """The new content of ``message_id_history`` (``None``: no row), not committed yet."""

    file: DataFile | None
    position: int
    digest: str


class _Chunk:
    """Collects the rows of the next commit to ``inbox``, and the last sequence of each queue."""

    def __init__(self, rows_max: int, bytes_max: int) -> None:
        self.tables: list[pa.Table] = []
        self.positions: dict[tuple[str, str], int] = {}
        self._rows = rows_max
        self._bytes = bytes_max

    def has_room(self, table: pa.Table) -> bool:
        """Return whether the piece ``table`` fits into the rest of the chunk.

        A chunk takes at least one piece; pieces are cut to the limits beforehand.
        """
        return not self.tables or (table.num_rows <= self._rows and table.nbytes <= self._bytes)

    def joined(self) -> Iterator[pa.Table]:
        """Return an iterator over one table that joins all pieces; empty if there is no piece.

        Each table becomes a row group, and a row group of one or two rows costs kilobytes a row.
        """
        return iter([pa.concat_tables(self.tables)] if self.tables else [])

    def add(self, table: pa.Table, key: tuple[str, str]) -> None:
        """Add the next piece of a queue. ``key`` is (epoch, queue)."""
        self.tables.append(table)
        self.positions[key] = table["sequence"][-1].as_py()
        self._rows -= table.num_rows
        self._bytes -= table.nbytes


def _ahead(inbox: StateTable, snapshot: Snapshot) -> LogRange | None:
    """Return the range of a queue of which the table holds more than the log ever issued.

    Only the present epoch of each queue counts. Return ``None`` if there is no such queue.
    """
    spans = (span for span in snapshot.ranges if span.current)
    return next(
        (span for span in spans if inbox.published(span.epoch, span.queue) > span.end), None
    )


def _check_not_ahead(inbox: StateTable, snapshot: Snapshot, uri: str) -> None:
    span = _ahead(inbox, snapshot)
    if span is not None:
        raise OlderCopyError(
            f"the table {uri}/inbox holds sequence "
            f"{inbox.published(span.epoch, span.queue)} of queue {span.queue} in epoch "
            f"{span.epoch}, the data directory ends at {span.end}: it is an older copy. "
            "Put the newer data directory back, or "
            "start with an empty one"
        )


def _unpublished(inbox: StateTable, snapshot: Snapshot) -> Iterator[LogRange]:
    """Yield the ranges of rows that the log has and the table does not have, by queue.

    Such rows were accepted, and exist on this disk only.
    """
    for span in snapshot.ranges:
        first = max(inbox.published(span.epoch, span.queue) + 1, span.first)
        if first <= span.end:
            yield span._replace(first=first)
