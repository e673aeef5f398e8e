"""The publisher: what the queue manager holds, at most ``--state-interval`` seconds later in Delta.

One cycle: look at the log in one read transaction (commit P, the end of each queue, streams); append the rows that
``inbox`` does not have; replace the tables of current state that changed; sync; report P. Only what
was reported counts as synced elsewhere, so retention and ``srmp_state_lag_seconds`` go by the report and by nothing else.
A cycle in which SQLite says that nothing was committed since the last look compares nothing, but every :data:`WHOLE_LOOK_S`.

``message_id_history`` can have millions of rows, which take half a minute to write. It may therefore be behind ``inbox``
(:data:`IDENTIFIERS_REST`): the identifiers of newer rows are in ``inbox``, and ``restore`` adds them. It must never be ahead of
it: after a restore an identifier without its row would turn the sender's repeat into a loss. Messages come while it is read,
page by page; so it is written first, then comes the look at the log, and it is committed when ``inbox`` has all that it names.

Where each queue goes on is read from the table itself: from the application transactions that were committed together with
the rows (``state_table``). A publisher that is killed between any two steps begins again at the last commit and neither loses
nor doubles a row. What a power loss can do to the files is in ``data_files`` (order of syncs) and ``shadow`` (repair).

The publisher runs in a thread of the reader process, reads SQLite read-only, and holds at most one chunk in memory. An object
store that is away stops nothing: the cycle is tried again, the lag grows, the log keeps its rows.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from srmp_spark.errors import StoreDamagedError
from srmp_spark.sequences.sequence_set import SequenceSet
from srmp_spark.store.delta import rows_gone, table_specs
from srmp_spark.store.delta.actions import LiveFile, digest_of
from srmp_spark.store.delta.cycles import Notify, OlderCopyError, run_cycles
from srmp_spark.store.delta.data_files import DataFile, storage_of
from srmp_spark.store.delta.log_source import (
    CounterRow,
    HistoryRow,
    LogRange,
    LogSource,
    QueueRow,
    SequenceRow,
    Snapshot,
    StreamRow,
)
from srmp_spark.store.delta.losses import LossTable
from srmp_spark.store.delta.restore_watch import given_up_error
from srmp_spark.store.delta.rows_gone import Gone
from srmp_spark.store.delta.state_folder import state_folder
from srmp_spark.store.delta.state_room import CYCLE_BYTES_MIN, NoRoomError, StateRoom
from srmp_spark.store.delta.state_table import StateTable

CHUNK_ROWS_MAX = 50_000
"""Rows of one commit to ``inbox``."""
CHUNK_BYTES_MAX = 64 << 20
"""Bytes of one commit to ``inbox`` before compression; with it the publisher's memory is bounded whatever the backlog."""
UNPUBLISHED_TOLD_MAX = 20
"""Queues that the error of a data directory that was given up names with their rows, 8 KB; the log names all of them."""
INBOX = "inbox"
"""What this publisher is called in its events."""
TABLES_LOOK_S = 60.0
"""How often the tables of current state are compared with what was written: others may have restored or deleted them."""
IDENTIFIERS_CHEAP_S = 1.0
"""What takes no longer to compare and write is done in every cycle …"""
IDENTIFIERS_REST = 20
"""… and what does rests so many times as long: a twentieth of a core is what the largest history may cost."""
WHOLE_LOOK_S = 600.0
"""Everything is compared that often although nothing was committed: a thousandth of a core with 10,000 queues and 100,000
streams. The comparison must find nothing; what it finds is published and logged (``delta.missed``)."""
_log = logging.getLogger(__name__)


class Publisher:
    """Writes the state tables below ``state_uri`` for the queue manager that owns ``data_dir``.

    ``run`` reports with JSON-ready dictionaries:

    - ``{"event": "compared"}``: once, before the first cycle: the tables are not ahead of the log.
    - ``{"event": "published", "uri", "position", "as_of", "sequences": {epoch: {queue: last}}, "damaged": {queue: error}}``:
      the tables hold, durably, all that was committed up to ``position``, and each queue up to ``sequences``; ``as_of`` is
      when the log was read (seconds since 1970). Position and ``as_of`` stay where they are while a queue is damaged.
    - ``{"event": "failed", "of", "error", "remedy", "fatal"}``: a cycle failed, or one queue of it, which ``"queue"`` names.
      Fatal ones (:class:`StoreDamagedError`) end ``run``; with ``"older_copy": true`` the log is an older copy, and nothing
      more may be accepted into it.
    - ``{"event": "rows_gone", "of", "ranges", "further"}``: others took rows out of ``inbox`` that the log does not have any
      more: ``[epoch, queue, first, last]`` each, and how many ranges are not named.
    - ``{"event": "recovered", "of"}``: a cycle went well after one that failed.
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
        chunk_rows: int = CHUNK_ROWS_MAX,
        chunk_bytes: int = CHUNK_BYTES_MAX,
        others_as_of: Callable[[], float] | None = None,
    ) -> None:
        """``others_as_of``: of when the tables are that another publisher writes; nothing younger is reported."""
        self._data_dir = Path(data_dir)
        self._uri = state_uri
        self._queue_manager = queue_manager
        self._interval_s = interval_s
        self._given_source = source
        self._options = dict(storage_options or {})
        self._chunk_rows = chunk_rows
        self._chunk_bytes = chunk_bytes
        self._others_as_of = others_as_of
        self._room = StateRoom(self._data_dir, state_folder(state_uri))
        self._tables: dict[str, StateTable] = {}
        self._losses = LossTable(self._open_table)
        self._digests: dict[str, str | None] = {}
        self._identifiers_at: int | None = None
        """The commit of which ``message_id_history`` is at least."""
        self._no_room: NoRoomError | None = None
        """Why the last cycle ended before all was published."""
        self._gone: list[Gone] = []
        """What the last look found to be gone for good."""
        self._told_gone: set[Gone] = set()
        """What was told of it before, while damage keeps other rows out."""
        self._kept_out: dict[str, str] = {}
        """Queues of which rows that others took out cannot be published again for now, and what is damaged."""
        self._again_at = 0.0
        """When that is tried next, on the monotonic clock: it reads three columns of the whole table."""
        self._look_at = 0.0
        """When the tables of current state are looked at next, on the monotonic clock."""
        self._identifiers_due = 0.0
        """When it is written next, on the monotonic clock."""
        self._told_alone: set[LogRange] = set()
        """What was named of the rows that a data directory that was given up has alone."""
        self._source: LogSource | None = source
        self._began_at = time.time()
        self._complete: tuple[int, float] | None = None
        """Commit and time up to which no queue lacks a row."""
        self._shown: _Shown | None = None
        """What the tables are known to show; ``None``: everything is compared."""
        self._changed: set[str] = set()
        """The tables that others have changed, by the last look of this cycle."""
        self._written: list[str] = []
        """The tables that the last comparison has written."""
        self._believes_stamps = True
        """False after a comparison that found what no stamp had told: every cycle compares everything then."""

    def __repr__(self) -> str:
        return f"<Publisher {self._queue_manager} to {self._uri} every {self._interval_s} s>"

    def run(self, stop: threading.Event, notify: Notify) -> None:
        """Publish every ``interval_s`` seconds until ``stop`` is set; then once more, so that a clean end leaves no lag."""
        compared = False

        def cycle() -> bool:
            nonlocal compared
            self._open()
            if not compared:
                compared = True
                notify({"event": "compared"})
            try:
                report = self._publish()
            except NoRoomError:
                self._vacuum()
                raise
            notify(report)
            if self._gone:
                gone, self._gone = self._gone, []
                ranges = [list(each) for each in gone[: rows_gone.RANGES_MAX]]
                notify(
                    {
                        "event": "rows_gone",
                        "of": INBOX,
                        "ranges": ranges,
                        "further": len(gone) - len(ranges),
                    }
                )
            if (
                self._no_room is not None
            ):  # what was published counts: it may be deleted, which makes room
                self._vacuum()
                raise self._no_room
            for queue, error in report["damaged"].items():
                told = f"queue {queue} is not published: {error}"
                notify(
                    {
                        "event": "failed",
                        "of": INBOX,
                        "error": told,
                        "remedy": "",
                        "fatal": False,
                        "queue": queue,
                    }
                )
            self._maintain()
            return True

        run_cycles(INBOX, cycle, self._close, self._interval_s, stop, notify)

    def publish_once(self) -> dict[str, Any]:
        """One cycle; the report. Raises what the store raises, and then nothing of this cycle may be believed."""
        report = self._publish()
        self._maintain()
        return report

    def _maintain(self) -> None:
        """Compaction and the like, after the report: what is published may be deleted meanwhile."""
        if self._no_room is None:
            now = time.monotonic()
            for table in self._open_tables():
                table.maintain(now)

    def _vacuum(self) -> None:
        """Delete what no version names any more: without room for a publication it may be all the room that there can be."""
        now = time.monotonic()
        for table in self._open_tables():
            table.vacuum(now)

    def _open_tables(self) -> Iterator[StateTable]:
        return filter(None, (*self._tables.values(), self._losses.table))

    def _publish(self) -> dict[str, Any]:
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
            if (
                missed and source.stamp() == stamp
            ):  # else it was committed meanwhile, and the next cycle would have seen it
                self._believes_stamps = False
                _log.error(
                    "delta.missed tables=%s: published now, and every cycle compares "
                    "everything now",
                    missed,
                )
        if not shown.damaged and self._no_room is None:
            self._complete = shown.position, as_of
            if self._identifiers_at == shown.position:
                self._shown = shown
        position, as_of = self._complete or (0, self._began_at)
        if self._others_as_of is not None:
            as_of = min(as_of, self._others_as_of())
        return {
            "event": "published",
            "uri": self._uri,
            "position": position,
            "as_of": as_of,
            "sequences": shown.sequences,
            "damaged": shown.damaged,
        }

    def _others_published(self) -> bool:
        """Whether others have changed what is ours in ``inbox`` since the last cycle: a restore, who took rows out.

        What other queue managers append there is no matter of ours.
        """
        inbox = self._tables["inbox"]
        version, moves = inbox.version, inbox.moves
        inbox.refresh()
        return inbox.version != version and (inbox.moves != moves or inbox.lacks_rows())

    def _publish_all(self, source: LogSource, stamp: object) -> _Shown:
        """Compare everything with the tables, and write what differs."""
        compare_at = time.monotonic() + WHOLE_LOOK_S
        self._written = []
        snapshot = source.snapshot()
        identifiers = self._write_identifiers(source, snapshot.position)
        if identifiers is not None:
            snapshot = source.snapshot()
        inbox = self._tables["inbox"]
        with self._tables[_IDENTIFIERS].discarding(identifiers and identifiers.file):
            inbox.refresh()
            self._check_not_restored(inbox, snapshot)
            if (
                _ahead(inbox, snapshot) is not None
            ):  # or a publisher of before us has been faster than our look: look again
                _check_not_ahead(inbox, source.snapshot(), self._uri)
            damaged = self._publish_again(inbox, source, snapshot)
            damaged |= self._append(inbox, source, snapshot)
            if self._no_room is not None and identifiers is not None:
                self._tables[_IDENTIFIERS].discard([identifiers.file] if identifiers.file else [])
            elif identifiers is not None:
                self._commit_identifiers(identifiers)
        if self._no_room is None:
            self._look_at_tables()
            for name, rows in _REPLACED.items():
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
                name: tables[name].written_digest() for name in (_IDENTIFIERS, *_REPLACED)
            }
            self._identifiers_at, self._identifiers_due = None, 0.0
            self._tables = tables
        return self._source

    def _check_not_restored(self, inbox: StateTable, snapshot: Snapshot) -> None:
        """Raise :class:`GivenUpError` if the queue manager was restored elsewhere. What this log alone has is named."""
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
        """Forget all handles: the next cycle opens and repairs as a start does."""
        self._tables = {}
        self._losses = LossTable(self._open_table)
        self._source, self._shown = self._given_source, None

    def _restore(
        self, inbox: StateTable, lost: LiveFile, source: LogSource, snapshot: Snapshot
    ) -> None:
        """Publish again, in its place, what a lost data file held."""
        present: dict[tuple[str, str], set[int]] = {}
        for table in inbox.sequences_left(lost):
            for row in table.to_pylist():
                present.setdefault((row["epoch"], row["queue"]), set()).add(row["sequence"])
        restored = inbox.restore_rows(lost, self._missing(inbox, lost, present, source, snapshot))
        log = _log.warning if restored == lost.rows else _log.error
        log(
            "delta.restored file=%s rows=%d of %d: the rest is not in the log any more",
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
                    yield _stamp(batch.filter(keep), snapshot.position)
            except (
                StoreDamagedError
            ) as error:  # what of the log is damaged cannot be restored from it
                _log.error(
                    "delta.not_restored queue=%s: %s", span.queue, error
                )  # the message says it all

    # What others changed

    def _publish_again(
        self, inbox: StateTable, source: LogSource, snapshot: Snapshot
    ) -> dict[str, str]:
        """Publish again what others took out of ``inbox`` (RESTORE, DELETE), and tell what the log does not have any more.

        Return the queues of which a damaged row keeps rows out, and what they say: they are tried again once a minute.
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
                _log.error(
                    "delta.not_published_again queue=%s: %s", span.queue, error
                )  # the message says it all
                self._kept_out[span.queue] = str(error)
            again += inbox.append_again(chunk.joined())
        if again < gone and not self._kept_out:
            inbox.accept_count()
        _log.warning(
            "delta.changed_by_others table=inbox rows=%d: others took them out; %d are "
            "published again",
            gone,
            again,
        )
        self._gone = [each for each in told if each not in self._told_gone]
        self._told_gone = set(told) if self._kept_out else set()
        for each in self._gone[: rows_gone.RANGES_MAX]:
            _log.error(
                "delta.rows_gone epoch=%s queue=%s first=%d last=%d: the log does not "
                "have them any more",
                *each,
            )
        return dict(self._kept_out)

    def _look_at_tables(self) -> bool:
        """Find tables of current state that others changed, once a minute: each look is a question to the store.

        Return whether there is one: it is to be written again.
        """
        now = time.monotonic()
        if now < self._look_at:
            return False
        self._look_at = now + TABLES_LOOK_S
        for name in (_IDENTIFIERS, *_REPLACED):
            table = self._tables[name]
            table.refresh()
            if not table.is_as_put():
                _log.warning("delta.changed_by_others table=%s: it is written again", name)
                self._digests[name] = None
                if name == _IDENTIFIERS:
                    self._identifiers_at, self._identifiers_due = None, 0.0
                self._changed.add(name)
        return bool(self._changed)

    # inbox

    def _append(self, inbox: StateTable, source: LogSource, snapshot: Snapshot) -> dict[str, str]:
        """All new rows, in chunks; one chunk may hold the ends of many queues. Returns the damaged queues and what they say."""
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
                    "delta.gap queue=%s: %d to %d left the log unpublished",
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
            except StoreDamagedError as error:  # stops its own queue and no other
                damaged[span.queue] = str(error)
                continue
            if key in chunk.positions:
                chunk.positions[key] = span.end  # what follows the last row is purged
        self._append_chunk(inbox, chunk, snapshot.restores)

    def _new_chunk(self) -> _Chunk:
        """Begin a chunk for which there is room: compressed it takes less. Raises :class:`NoRoomError`."""
        return _Chunk(self._chunk_rows, self._chunk_bytes_now())

    def _chunk_bytes_now(self) -> int:
        return min(self._chunk_bytes, self._room.check(CYCLE_BYTES_MIN))

    def _append_chunk(self, inbox: StateTable, chunk: _Chunk, restores: int) -> None:
        if inbox.append_unless_restored(chunk.joined(), chunk.positions, restores):
            self._written.append(inbox.spec.name)

    def _pieces(
        self, source: LogSource, span: LogRange, after: int, position: int
    ) -> Iterator[pa.Table]:
        """Rows of one queue in pieces of at most a chunk."""
        for batch in source.batches(span.epoch, span.queue, after, span.end):
            if not batch.num_rows:
                continue
            bytes_per_row = max(1, batch.nbytes // batch.num_rows)
            step = max(1, min(self._chunk_rows, self._chunk_bytes_now() // bytes_per_row))
            for start in range(0, batch.num_rows, step):
                yield _stamp(batch.slice(start, step), position)

    # The tables of current state

    def _write_identifiers(self, source: LogSource, position: int) -> _Identifiers | None:
        """All runs that there were at ``position``, in a file that no commit names yet; ``None`` if there is nothing to do."""
        began = time.monotonic()
        if began < self._identifiers_due or position == self._identifiers_at:
            return None
        rows = partial(_identifier_rows, source, position)
        digest = digest_of(rows(), ignore=("position", "written_at"))
        found = None
        if digest != self._digests[_IDENTIFIERS]:
            found = _Identifiers(self._tables[_IDENTIFIERS].write(rows()), position, digest)
        took = time.monotonic() - began
        if found is None:
            self._identifiers_at = position
        self._identifiers_due = (
            0.0 if took <= IDENTIFIERS_CHEAP_S else began + took * IDENTIFIERS_REST
        )
        return found

    def _commit_identifiers(self, identifiers: _Identifiers) -> None:
        table = self._tables[_IDENTIFIERS]
        table.refresh()
        table.put(*identifiers)
        self._written.append(_IDENTIFIERS)
        self._digests[_IDENTIFIERS] = identifiers.digest
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
    """What a cycle has made the tables show, and how to see that nothing was committed since."""

    stamp: object
    """Of the source, taken before the look at it (:meth:`.LogSource.stamp`)."""
    position: int
    sequences: dict[str, dict[str, int]]
    damaged: dict[str, str]
    compare_at: float
    """When everything is compared all the same, on the monotonic clock."""


class _Identifiers(NamedTuple):
    """``message_id_history`` as it will be."""

    file: DataFile | None
    position: int
    digest: str


class _Chunk:
    """The rows of the next commit, and how far each queue has come with them."""

    def __init__(self, rows_max: int, bytes_max: int) -> None:
        self.tables: list[pa.Table] = []
        self.positions: dict[tuple[str, str], int] = {}
        self._rows = rows_max
        self._bytes = bytes_max

    def has_room(self, table: pa.Table) -> bool:
        """A chunk takes at least one piece; pieces are cut to the limits beforehand."""
        return not self.tables or (table.num_rows <= self._rows and table.nbytes <= self._bytes)

    def joined(self) -> Iterator[pa.Table]:
        """Return the pieces as one table: each table is a row group, and a row group of a row or two costs kilobytes a row."""
        return iter([pa.concat_tables(self.tables)] if self.tables else [])

    def add(self, table: pa.Table, key: tuple[str, str]) -> None:
        """Take the next piece of queue ``key``."""
        self.tables.append(table)
        self.positions[key] = table["sequence"][-1].as_py()
        self._rows -= table.num_rows
        self._bytes -= table.nbytes


def _ahead(inbox: StateTable, snapshot: Snapshot) -> LogRange | None:
    """A queue of which the table holds more than the log ever gave out."""
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
    """Yield what the log holds and the table does not: accepted, and on this disk alone."""
    for span in snapshot.ranges:
        first = max(inbox.published(span.epoch, span.queue) + 1, span.first)
        if first <= span.end:
            yield span._replace(first=first)


def _stamp(batch: pa.RecordBatch, position: int) -> pa.Table:
    """A batch of source columns as rows of ``inbox``."""
    spec = table_specs.inbox()
    now = pa.scalar(datetime.now(timezone.utc), pa.timestamp("us", tz="UTC"))
    table = pa.Table.from_batches([batch])
    table = table.append_column(
        "position", pa.repeat(pa.scalar(position, pa.int64()), table.num_rows)
    )
    table = table.append_column("written_at", pa.repeat(now, table.num_rows))
    return table.select(spec.file_schema.names).cast(spec.file_schema)


def _identifier_rows(source: LogSource, position: int) -> Iterator[pa.Table]:
    spec = table_specs.message_id_history()
    return (_state_table(spec, HistoryRow._fields, page, position) for page in source.identifiers())


def _stream_rows(snapshot: Snapshot) -> Iterator[pa.Table]:
    if snapshot.streams:
        yield _state_table(
            table_specs.incoming_streams(), StreamRow._fields, snapshot.streams, snapshot.position
        )


def _queue_rows(snapshot: Snapshot) -> Iterator[pa.Table]:
    if snapshot.queues:
        yield _state_table(
            table_specs.queues(), QueueRow._fields, snapshot.queues, snapshot.position
        )


def _counter_rows(snapshot: Snapshot) -> Iterator[pa.Table]:
    if snapshot.counters:
        yield _state_table(
            table_specs.counters(), CounterRow._fields, snapshot.counters, snapshot.position
        )


def _sequence_rows(snapshot: Snapshot) -> Iterator[pa.Table]:
    if snapshot.sequences:
        yield _state_table(
            table_specs.wsrm_sequences(), SequenceRow._fields, snapshot.sequences, snapshot.position
        )


_IDENTIFIERS = "message_id_history"
_REPLACED: dict[str, Callable[[Snapshot], Iterator[pa.Table]]] = {
    "incoming_streams": _stream_rows,
    "queues": _queue_rows,
    "counters": _counter_rows,
    "wsrm_sequences": _sequence_rows,
}
"""The tables that are replaced when they changed, in every cycle."""


def _state_table(
    spec: table_specs.TableSpec,
    fields: Sequence[str],
    rows: Sequence[tuple[Any, ...]],
    position: int,
) -> pa.Table:
    """Rows (``fields`` are their columns of the table) with what each table carries."""
    columns: dict[str, Sequence[Any]] = dict(zip(fields, zip(*rows, strict=True), strict=True))
    columns["position"] = [position] * len(rows)
    columns["written_at"] = [datetime.now(timezone.utc)] * len(rows)
    schema = spec.file_schema
    return pa.Table.from_arrays(
        [pa.array(columns[field.name], field.type) for field in schema], schema=schema
    )
