"""Prepare a batch: from stages to parts, in steps between which others can write.

1. *Scan* the stages: collect numbers about each row (:mod:`.scan`).
2. *Decide* which rows are new (:mod:`.identities`).
3. *Order* the new rows (:mod:`.ordering`).
4. *Pack* the rows into groups (:mod:`.packing`), in a thread that is a few chunks ahead of
   the writing.

If nothing suggests that the order may change or that a row may be known, step 4 is done together
with step 1. If that turns out wrong, step 4 is done again. Steps 2 and 4 write in small
transactions under the batch's number, and what they write does not count yet.
:meth:`Preparation.numbered` then returns what the last transaction (:meth:`.outbox.Outbox.write`)
must write to make all of it count at once. A batch of up to 8 MiB has only this last transaction.
Until then :meth:`Preparation.abort`, or the next open, deletes all of it.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import shutil
import sqlite3
from collections.abc import Callable, Generator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

from srmp_spark.errors import LocalProtocolError
from srmp_spark.srmp.sending.outgoing_effects import Enqueued, QueueKey
from srmp_spark.store.outbox.columns import CanonicalDestinations
from srmp_spark.store.outbox.errors import (
    BAD_BATCH,
    BAD_ROW,
    DEAD_LETTER,
    FAIL,
    NO_ROOM,
    UNKNOWN_STAGE,
    BatchError,
)
from srmp_spark.store.outbox.limits import (
    BATCH_ROWS_MAX,
    BATCH_STAGES_MAX,
    CHUNK_ROWS,
    FILED_ROW_BYTES,
    PART_ROWS_MAX,
)
from srmp_spark.store.outbox.messages.packed_group import BatchPart
from srmp_spark.store.outbox.messages.waiting import WaitingMessages
from srmp_spark.store.outbox.preparing.ahead import ahead
from srmp_spark.store.outbox.preparing.bad_row_files import BAD_ROWS_SCOPE, BadRowFiles, Files
from srmp_spark.store.outbox.preparing.batch_order import BatchOrder
from srmp_spark.store.outbox.preparing.conflicts import REASONS
from srmp_spark.store.outbox.preparing.identities import Identities, source_numbers
from srmp_spark.store.outbox.preparing.leftovers import delete_batch_in_steps, delete_groups
from srmp_spark.store.outbox.preparing.ordering import Buckets, is_in_order
from srmp_spark.store.outbox.preparing.packing import Group, Packer, TransactionMasks, stored_rows
from srmp_spark.store.outbox.preparing.prepared import CommitResult, Numbered
from srmp_spark.store.outbox.preparing.row_numbers import blocks, is_large
from srmp_spark.store.outbox.preparing.scan import Scan, SourceId
from srmp_spark.store.outbox.stage_file import StageFile
from srmp_spark.store.outbox.staging.bad_rows import letters_destination
from srmp_spark.store.outbox.staging.loops import Loops
from srmp_spark.store.outbox.staging.stages import StageRow
from srmp_spark.store.outbox.tables.database import OutboxDatabase
from srmp_spark.store.outbox.tables.schema import FORMAT_MARKED, group_key, raise_format
from srmp_spark.store.outbox.tables.writes import Writes
from srmp_spark.store.tables.state import IDENTIFIER_MAX

T = TypeVar("T")


_OF_QUERY = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:(?=[0-9]+\Z)")


def shown_batch(batch: str) -> str:
    """Return the name of a batch as the state tables show it.

    A batch ``QUERY:NUMBER`` is a micro-batch of an application with a name, and is shown as
    ``NUMBER``. Any other name is shown as it is.
    """
    return _OF_QUERY.sub("", batch, count=1) if _OF_QUERY.match(batch) else batch


def stage_set(stages: Sequence[str]) -> bytes:
    """Return a digest (16 bytes) of these stage identifiers, which is the same in any order."""
    return hashlib.blake2b("\n".join(sorted(stages)).encode(), digest_size=16).digest()


class Preparation:
    """Prepares one batch of a sink for its commit, in the steps that the module explains.

    ``lost`` are stages of the same batch whose attempts did not win. Call :meth:`step` until it
    returns True. Other work may be done between two steps.
    """

    def __init__(
        self,
        database: OutboxDatabase,
        folder: Path,
        application: str,
        batch: str,
        stages: Sequence[StageRow],
        lost: Sequence[StageRow],
        at: int,
        known_since: int,
        waiting: WaitingMessages,
        on_end: Callable[[], object],
        *,
        on_conflict: str = FAIL,
        loops: Loops | None = None,
    ) -> None:
        """Begin a commit of ``stages``; nothing is written before :meth:`step`.

        ``at`` is the wall clock, and ``known_since`` the retention clock, by which identities grow
        old, both in microseconds since 1970, UTC. ``on_end`` is called by :meth:`end`.
        ``on_conflict`` is one of :data:`.errors.ON_CONFLICT`. ``loops`` finds rows that must not be
        sent, or is ``None`` if all may be sent.
        """
        self.application, self.batch = application, batch
        self.stages = stages
        self.lost_stages = lost
        self.at = at
        self._known_since = known_since
        self.parts: list[BatchPart] = []
        """The rows that are sent, as one or more parts for each queue.

        The engine assigns serials for each part: ``enqueue(*part.key, part.rows, at, …)``.
        """
        self.result: CommitResult | None = None
        """The result of the commit, or ``None`` before all steps are done."""
        self._database = database
        self._folder = folder
        self._number = database.next_id("batches")
        self._is_large = Writes.would_be_full(sum(stage.size for stage in stages))
        self._early = False
        self._dead_letter_queue: str | None = None
        self._writes, self._last = Writes(), Writes()
        self._flushed = False
        self._ended = False
        self._deletion: Generator[None] | None = None
        self._on_end = on_end
        self._waiting = waiting
        self._on_conflict = on_conflict
        self._loops = loops
        self._has_marked = False
        self._letters: list[tuple[BatchPart, str]] = []
        """Dead letters, with the reason, as parts that never wait in a queue.

        They are conflicts, and letters about bad rows.
        """
        self._steps = self._prepare()

    @property
    def is_ready(self) -> bool:
        """Return whether all steps are done."""
        return self.result is not None

    def step(self) -> bool:
        """Work on about one chunk of rows; return whether all steps are done.

        Collected statements are written in a transaction of its own once they reach CHUNK_BYTES.
        Raises :class:`BatchError` if the batch is refused; call :meth:`abort` then. Raises
        :class:`StoreSyncError` after a failed write.
        """
        try:
            next(self._steps)
        except StopIteration:
            return True
        if self._writes.is_full:
            self._flush()
            pa.default_memory_pool().release_unused()
        return False

    def run(self) -> Preparation:
        """Call :meth:`step` until all steps are done, and return this object.

        Raises the errors of :meth:`step`.
        """
        while not self.step():
            pass
        return self

    def _flush(self) -> None:
        if not self._flushed:
            self._flushed = True
            self._database.keep_log(is_long=True)
            first = Writes()
            first.add("INSERT INTO batches VALUES (?, ?, ?, ?, 0, 0, ?, 0)", *self._row())
            first.flush(self._database)
        self._writes.flush(self._database)

    def _row(self) -> tuple[int, str, str, bytes, int]:
        return (
            self._number,
            self.application,
            self.batch,
            stage_set([stage.id for stage in self.stages]),
            self._known_since,
        )

    # --- the steps --------------------------------------------------------------------------------

    def _prepare(self) -> Generator[None]:
        self._check_rows(sum(stage.rows for stage in self.stages))
        self._check()
        try:
            files = [
                (stage.partition, StageFile(stage.path))
                for stage in sorted(self.stages, key=lambda each: each.partition)
            ]
        except FileNotFoundError as error:
            raise BatchError(
                404,
                UNKNOWN_STAGE,
                f"a stage was deleted meanwhile: {error}",
                "stage its rows again",
            ) from error
        self._dead_letter_queue = _only(
            [file.schema.dead_letter_queue for _, file in files], "dead_letter_queue"
        )
        fate = _only([file.schema.on_bad_row for _, file in files], "on_bad_row") or FAIL
        bad = self._bad_rows(files, fate)
        sources = source_numbers(self._database, self._last)
        wants_letters = self._on_conflict == DEAD_LETTER
        scan, identities = yield from self._new_scan(files, sources, wants_letters=wants_letters)
        if self._loops is not None and fate != FAIL:
            self._loops.keep(scan.zeros(bool))
        early = yield from self._scan(scan, identities)
        if self._loops is not None and self._loops.are_found:
            if fate == FAIL:
                self._loops.refuse(scan.name_of)
            names = self.application, self.batch
            files = yield from bad.without_loops(files, scan, self._loops.rows, names)
            self._loops = None
            scan, identities = yield from self._new_scan(
                files, sources, wants_letters=wants_letters
            )
            early = yield from self._scan(scan, identities)
        batch_order = BatchOrder(scan)
        yield from batch_order.work()
        yield from identities.decide(scan, batch_order.rank)
        if self._on_conflict == FAIL:
            identities.conflicts.refuse(scan, scan.name_of)
        self._has_marked = identities.has_marked
        known, conflicts = (
            int(np.count_nonzero(mask)) for mask in (identities.known, identities.conflicts.mask)
        )
        yield from self._pack_letters(scan, identities, batch_order)
        new = identities.new(scan)
        keeping = identities.store()
        if early is not None and len(scan.queues) == 1 and new.all():
            self.parts = [early]
        else:
            if early is not None:
                yield from self._discard(early)
            order = yield from batch_order.of(new)
            scan.forget()
            yield
            self._make_parts(scan, new)
            with closing(self._beside(self._pack(scan, new, order, self.parts))) as chunks:
                for groups in chunks:
                    self._store(groups)
                    # Store one chunk of identities for each chunk of rows. Meanwhile the other
                    # thread packs the next rows.
                    next(keeping, None)
                    yield
        for _ in itertools.chain(keeping, identities.store_contents(scan)):
            yield
        yield from self._pack_bad_rows(bad, sources)
        self.result = CommitResult(scan.rows - known - conflicts, known, conflicts, *bad.bad)

    def _bad_rows(self, files: Files, fate: str) -> BadRowFiles:
        """Return the bad rows that were taken out of the stages, and check the room for letters."""
        bad = BadRowFiles(fate)
        for partition, file in files:
            bad.add(partition, file.path)
        size = sum(file.bytes for _, file in bad.letters)
        self._database.check_room(size, size, "the letters about bad rows of this commit")
        return bad

    def _new_scan(
        self, files: Files, sources: SourceId, *, wants_letters: bool
    ) -> Generator[None, None, tuple[Scan, Identities]]:
        """Count the messages of the stages, and return the objects that collect their numbers."""
        addresses, rows = CanonicalDestinations(), 0
        for _, file in files:
            rows += file.messages(addresses)
            yield
        self._check_rows(rows)
        scan = Scan(files, rows, sources, addresses, self._folder, self._loops)
        identities = Identities(
            self._database,
            self.application,
            self.batch,
            self._number,
            self._known_since,
            self._writes,
            self._last,
            wants_letters=wants_letters,
        )
        return scan, identities

    def _pack_bad_rows(self, bad: BadRowFiles, sources: SourceId) -> Generator[None]:
        """Pack the letters about bad rows that are no dead letters yet, in the order of the batch.

        A letter is a row of its own, and has an identity of its own. So a batch that is run again
        makes no second letter, and a corrected row with the same key is new.
        """
        if not bad.letters:
            return
        assert self._dead_letter_queue is not None, "a stage with letters names their queue"
        self._loops = None
        scan, identities = yield from self._new_scan(bad.letters, sources, wants_letters=False)
        for piece in scan.pieces():
            scan.take(piece)
            yield
        scan.scopes[:] = [BAD_ROWS_SCOPE]
        batch_order = BatchOrder(scan)
        yield from batch_order.work()
        yield from identities.decide(scan, batch_order.rank)
        self._has_marked = self._has_marked or identities.has_marked
        new = identities.new(scan)
        keeping = identities.store()
        order = yield from batch_order.of(new)
        key = QueueKey(letters_destination(self._dead_letter_queue), "stream")
        parts = self._parts_of(key, int(np.count_nonzero(new)), journal=False)
        self._letters += [(part, BAD_ROW) for part in parts]
        with closing(self._pack(scan, new, order, parts, alone=True)) as chunks:
            for groups in chunks:
                self._store(groups)
                yield
        for _ in keeping:
            yield

    @staticmethod
    def _check_rows(rows: int) -> None:
        if rows > BATCH_ROWS_MAX:
            message = f"a batch has at most BATCH_ROWS_MAX = {BATCH_ROWS_MAX} rows, this one {rows}"
            raise BatchError(400, BAD_BATCH, message, "write it in parts")

    def _check(self) -> None:
        if len(self.stages) > BATCH_STAGES_MAX:
            message = (
                f"a batch has at most BATCH_STAGES_MAX = {BATCH_STAGES_MAX} stages, "
                f"this one {len(self.stages)}"
            )
            raise BatchError(400, BAD_BATCH, message, "coalesce into fewer tasks")
        partitions = [stage.partition for stage in self.stages]
        if len(set(partitions)) < len(partitions):
            twice = next(each for each in sorted(partitions) if partitions.count(each) > 1)
            message = f"two stages of partition {twice}"
            raise BatchError(400, BAD_BATCH, message, "name the stage of the attempt that won")
        # The rows are written once to the WAL or the buckets, and once to the database.
        size = sum(stage.size for stage in self.stages)
        rows = sum(stage.rows for stage in self.stages)
        filed = rows * FILED_ROW_BYTES if is_large(rows) else 0
        self._database.check_room(size + filed, size, "this commit")
        _only([stage.order_by for stage in self.stages], "order_by")
        _only([stage.dead_letter for stage in self.stages], "dead_letter")

    def _beside(self, chunks: Generator[list[Group]]) -> Generator[list[Group]]:
        """Return a generator of the chunks, which another thread makes for a large batch.

        Large is at least CHUNK_BYTES. The chunks of a small batch are made in this thread. See
        :func:`.ahead`.
        """
        return ahead(chunks, "packing") if self._is_large else chunks

    def _scan(self, scan: Scan, identities: Identities) -> Generator[None, None, BatchPart | None]:
        """Collect the numbers about every row; return the part that was packed early, or ``None``.

        A large batch that can probably be sent in its staged order is packed and written during the
        scan, as if all rows were new and for one queue. :meth:`_prepare` finds out whether this was
        right.
        """
        self._early = self._is_large and scan.is_plain and scan.rows <= PART_ROWS_MAX
        part = self._database.next_id("parts")
        early: BatchPart | None = None
        chunks = self._take(scan, part)
        with closing(self._beside(chunks) if self._early else chunks) as made:
            for groups in made:
                if groups and self._early and early is None:
                    # A batch that is committed again has only known rows.
                    if identities.seen(scan, groups[-1].last + 1):
                        self._early = False
                    else:
                        early = self._add_part(part, scan.queues[0], scan.rows, journal=False)
                if early is not None:
                    self._store(groups)
                yield
        if early is not None and scan.has_journal:
            self._writes.add("UPDATE parts SET journal = 1 WHERE id = ?", part)
        return early

    def _take(self, scan: Scan, part: int) -> Generator[list[Group]]:
        """Collect the numbers about each row, and yield the groups for :meth:`_scan`.

        If groups are made, this generator runs in another thread.
        """
        packer: Packer | None = None
        for piece in scan.pieces(hashed=True):
            scan.take(piece)
            if self._early and len(scan.queues) == 1:
                packer = packer or Packer([self._part(part, scan.queues[0], scan.rows)])
                yield packer.pack(
                    stored_rows(piece, np.ones(piece.slice.rows, bool), scan.addresses, None)
                )
            else:
                yield []

    def _discard(self, part: BatchPart) -> Generator[None]:
        """Delete the part that was packed early, in steps, because the assumption was wrong."""
        self._flush()
        while delete_groups(self._database, part.number):
            yield

    def _part(self, number: int, key: QueueKey, rows: int) -> BatchPart:
        if key.kind != "stream":
            return BatchPart(number, key, rows, final=False)
        return BatchPart(
            number,
            key,
            rows,
            bool(self.stages) and self.stages[0].dead_letter,
            self._dead_letter_queue,
        )

    def _add_part(self, number: int, key: QueueKey, rows: int, *, journal: bool) -> BatchPart:
        part = self._part(number, key, rows)
        self._writes.add(
            "INSERT INTO parts(id, batch_no, rows, final, journal, dead_letter_queue) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            part.number,
            self._number,
            part.rows,
            part.final,
            journal,
            part.dead_letter_queue,
        )
        return part

    def _make_parts(self, scan: Scan, new: np.ndarray) -> None:
        counts = np.zeros(len(scan.queues), np.int64)
        for span in blocks(scan.rows):
            counts += np.bincount(scan.queue[span][new[span]], minlength=len(scan.queues))
        self.parts = [
            part
            for key, count in zip(scan.queues, counts.tolist(), strict=True)
            for part in self._parts_of(key, count, journal=scan.has_journal)
        ]

    def _parts_of(self, key: QueueKey, count: int, *, journal: bool) -> list[BatchPart]:
        return [
            self._add_part(
                self._database.next_id("parts"),
                key,
                min(PART_ROWS_MAX, count - before),
                journal=journal,
            )
            for before in range(0, count, PART_ROWS_MAX)
        ]

    def _pack_letters(
        self, scan: Scan, identities: Identities, batch_order: BatchOrder
    ) -> Generator[None]:
        """Pack the conflicts that become dead letters, grouped by queue and reason."""
        if self._on_conflict != DEAD_LETTER or not identities.conflicts.count:
            return
        rows = np.flatnonzero(identities.letters).astype(np.uint32)
        if not len(rows):
            return
        hows = sorted(REASONS)
        kinds = [(key, REASONS[how]) for key in scan.queues for how in hows]
        of = scan.queue[rows] * np.uint16(len(hows)) + np.searchsorted(hows, scan.how[rows]).astype(
            np.uint16
        )
        order = rows[np.lexsort((batch_order.rank(rows), of))]
        counts = np.bincount(of, minlength=len(kinds)).tolist()
        self._letters = [
            (part, reason)
            for (key, reason), count in zip(kinds, counts, strict=True)
            for part in self._parts_of(key, count, journal=False)
        ]
        parts = [part for part, _ in self._letters]
        with closing(self._pack(scan, identities.letters, order, parts, alone=True)) as chunks:
            for groups in chunks:
                self._store(groups)
                yield

    def _pack(
        self,
        scan: Scan,
        new: np.ndarray,
        order: np.ndarray,
        parts: Sequence[BatchPart],
        *,
        alone: bool = False,
    ) -> Generator[list[Group]]:
        """Yield packed groups of the rows in ``order``, one chunk of groups at a time.

        ``new`` is a mask of the same rows. With ``alone`` no transactions are marked. This
        generator may run in another thread, so it must not use the database.
        """
        transactions = None
        if scan.transaction is not None and not alone:
            is_stream = [key.kind == "stream" for key in scan.queues]
            transactions = TransactionMasks(
                order, scan.queue, scan.transaction, is_stream, self._folder
            )
        packer = Packer(parts)
        if is_in_order(order):
            for piece in scan.pieces():
                mask = new[piece.first : piece.first + piece.slice.rows]
                if mask.any():
                    scan.mark(piece)
                    yield packer.pack(stored_rows(piece, mask, scan.addresses, transactions))
            return
        buckets = Buckets(self._folder, order, scan.size, scan.rows)
        try:
            for piece in scan.pieces():
                mask = new[piece.first : piece.first + piece.slice.rows]
                if mask.any():
                    scan.mark(piece)
                    numbers = np.flatnonzero(mask) + piece.first
                    if buckets.add(numbers, stored_rows(piece, mask, scan.addresses, transactions)):
                        scan.release()
                        pa.default_memory_pool().release_unused()
                        yield []
            buckets.deal()
            for batch in buckets.in_order():
                rows = max(
                    1, CHUNK_ROWS * batch.num_rows // max(batch.num_rows, batch.nbytes // 2048, 1)
                )
                for start in range(0, batch.num_rows, rows):
                    yield packer.pack(batch.slice(start, rows))
        finally:
            buckets.close()

    def _store(self, groups: Sequence[Group]) -> None:
        if not groups:
            return
        numbers = [self._database.next_id("data") for _ in groups]
        self._writes.rows(
            "INSERT INTO groups VALUES",
            [
                (group_key(group.part, group.last), group.first, group.size, number, None)
                for number, group in zip(numbers, groups, strict=True)
            ],
            100 * len(groups),
        )
        self._writes.rows(
            "INSERT INTO data VALUES",
            [(number, *group.packed) for number, group in zip(numbers, groups, strict=True)],
            sum(group.packed.data.size for group in groups),
        )

    # --- the end ----------------------------------------------------------------------------------

    def numbered(
        self, ids_first: int, enqueued: Sequence[Enqueued], unsent: AbstractSet[int] = frozenset()
    ) -> Numbered:
        """Return the batch with its serials and message identifiers, for :meth:`.Outbox.write`.

        ``ids_first`` is the first reserved message identifier; as many identifiers are reserved as
        :attr:`identifiers` says. ``enqueued`` has the engine's answer for each of :attr:`parts`, in
        that order. ``unsent`` has the numbers of parts that found no room.

        Raises :class:`LocalProtocolError` if the numbers do not fit the parts, or the batch is not
        ready.
        """
        if self.result is None or self._ended:
            raise LocalProtocolError("a batch is numbered once, when it is ready")
        if [(part.key, part.rows) for part in self.parts] != [
            (each.key, each.last - each.first + 1) for each in enqueued
        ]:
            raise LocalProtocolError(
                f"serials were given out for other rows: {enqueued!r} for {self.parts!r}"
            )
        if not 1 <= ids_first <= IDENTIFIER_MAX - self.identifiers + 1:
            raise LocalProtocolError(
                f"message identifiers lie between 1 and {IDENTIFIER_MAX}, these begin "
                f"with {ids_first}"
            )
        return Numbered(self, ids_first, tuple(enqueued), unsent)

    def write_last(
        self, connection: sqlite3.Connection, numbered: Numbered, queue_ids: Mapping[QueueKey, int]
    ) -> None:
        """Write what makes the batch count, in the caller's transaction (:meth:`.Outbox.write`).

        See :meth:`Prepared.write_last`. The conflicts become dead letters, and so do the rows of
        parts that found no room. The rows of the table ``stages`` for this batch and its lost
        attempts are deleted.
        """
        assert self.result is not None, "numbered() has seen it"
        if self._has_marked:
            # The format is raised with the rest of the transaction or not at all.
            raise_format(connection, FORMAT_MARKED)
        if self._flushed:
            connection.execute("DELETE FROM batches WHERE no = ?", (self._number,))
        self._writes.execute(connection)
        self._last.execute(connection)
        new, known, conflicts, bad, first_bad = self.result
        number, application, batch, stages, known_since = self._row()
        connection.execute(
            "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?, 1)",
            (number, application, batch, stages, new, known, known_since),
        )
        ids_first, position, shown = (
            numbered.ids_first,
            self._database.position + 1,
            shown_batch(batch),
        )
        for part, given in zip(self.parts, numbered.enqueued, strict=True):
            if part.number in numbered.unsent:
                self._waiting.bury_unsent(
                    part, ids_first, application, shown, self.at, position, NO_ROOM, given.first
                )
            else:
                connection.execute(
                    "UPDATE parts SET queue_id = ?, first = ?, last = ?, ids_first = ?, "
                    "application = ?, batch = ?, "
                    "enqueued_at = ? WHERE id = ?",
                    (
                        queue_ids[part.key],
                        given.first,
                        given.last,
                        ids_first,
                        application,
                        shown,
                        self.at,
                        part.number,
                    ),
                )
            ids_first += part.rows
        if conflicts:
            connection.execute("INSERT INTO batch_conflicts VALUES (?, ?)", (number, conflicts))
        if bad:
            connection.execute(
                "INSERT INTO batch_bad_rows VALUES (?, ?, ?)", (number, bad, first_bad)
            )
        for part, reason in self._letters:
            self._waiting.bury_unsent(
                part, ids_first, application, shown, self.at, position, reason
            )
            ids_first += part.rows
        connection.executemany(
            "DELETE FROM stages WHERE id = ?",
            [(stage.id,) for stage in [*self.stages, *self.lost_stages]],
        )

    def abort(self) -> None:
        """Delete what the batch wrote before it counted. The stages stay.

        After the batch was committed, or after an earlier call, the method does nothing.
        """
        while not self.abort_step():
            pass

    def abort_step(self) -> bool:
        """Do one step of :meth:`abort`, at most one transaction; return whether it was the last."""
        if not self._ended:
            self.end()
            self._deletion = (
                delete_batch_in_steps(self._database, self._number) if self._flushed else None
            )
        if self._deletion is None:
            return True
        try:
            next(self._deletion)
        except StopIteration:
            self._deletion = None
            return True
        return False

    def end(self) -> None:
        """Release files and memory, because the batch counts now or never will.

        The files below ``sorting`` are deleted. Rows in the database are not.
        """
        if self._flushed and not self._ended:
            self._database.keep_log(is_long=False)
        self._ended = True
        self._steps.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._on_end()

    @property
    def letters(self) -> int:
        """Return how many dead letters the commit makes: of conflicts, and about bad rows."""
        return sum(part.rows for part, _ in self._letters)

    @property
    def identifiers(self) -> int:
        """Return how many message identifiers the batch needs.

        Each new row and each dead letter needs one identifier.
        """
        assert self.result is not None, "all steps are done"
        return self.result.new + self.letters

    @property
    def unwritten_bytes(self) -> int:
        """Return about how many bytes the last transaction must write."""
        return self._writes.bytes + self._last.bytes

    def __repr__(self) -> str:
        return (
            f"<Preparation {self.application}/{self.batch} stages={len(self.stages)} "
            f"result={self.result}>"
        )


def _only(values: Sequence[T], what: str) -> T | None:
    """Return the one value that all stages have, or ``None`` without stages.

    Raises :class:`BatchError` if the stages have several values. ``what`` names the value in the
    error's text.
    """
    if len(set(values)) > 1:
        message = (
            f"the stages differ in srmp.{what}: "
            f"{' and '.join(sorted({str(value) for value in values}))}"
        )
        raise BatchError(400, BAD_BATCH, message, "stage all with one option")
    return values[0] if values else None
