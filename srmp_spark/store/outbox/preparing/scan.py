"""The first pass over a batch: collect a few numbers about each row, for identities and order.

Rows are numbered through all stages in the order (partition, row). About 35 bytes of each row are
kept, and the columns of ``orderBy``. The content of a row is read again when its place is known.
For a large batch these data lie in files (:mod:`.row_numbers`, :mod:`.sorted_runs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from srmp_spark.rows.row_names import row_name
from srmp_spark.srmp.sending.outgoing_effects import QueueKey
from srmp_spark.store.outbox.columns import POSITION, CanonicalDestinations, body_sizes
from srmp_spark.store.outbox.errors import BAD_BATCH, BatchError
from srmp_spark.store.outbox.identity.content_marks import content_marks
from srmp_spark.store.outbox.identity.hashing import CONTENT_BYTES, content_hashes, key_hashes
from srmp_spark.store.outbox.identity.row_hashes import (
    BY_POSITION,
    RowHashes,
    StoredHashes,
    row_hashes,
    whole_positions,
)
from srmp_spark.store.outbox.limits import BATCH_DESTINATIONS_MAX
from srmp_spark.store.outbox.preparing.ordering import sortable
from srmp_spark.store.outbox.preparing.row_numbers import is_large, zeros
from srmp_spark.store.outbox.preparing.sorted_runs import SortedRuns
from srmp_spark.store.outbox.stage_file import Slice, StageFile
from srmp_spark.store.outbox.staging.loops import Loops, SourceLog
from srmp_spark.store.outbox.staging.multiple import expanded

SourceId = Callable[[str, str, str], int]
"""Function that returns a number for (queue_manager, epoch, queue)."""


class StageSlice(NamedTuple):
    """A slice of a stage, and the number of its first row in the batch."""

    first: int
    slice: Slice
    partition: int
    hashes: RowHashes | None = None
    """The identities of the rows, if they were hashed when the stage was checked."""


class Scan:
    """Collects numbers about each row of a batch, in arrays by row number.

    ``queue`` and ``scope`` have indices, ``size`` has bytes, and ``how`` the way in which each row
    is identified (:mod:`.row_hashes`).
    """

    def __init__(
        self,
        stages: Sequence[tuple[int, StageFile]],
        rows: int,
        source_id: SourceId,
        addresses: CanonicalDestinations,
        folder: Path,
        loops: Loops | None = None,
    ) -> None:
        """Begin with zeros for all rows.

        ``stages`` has pairs (partition, file), in the order of the partitions. ``rows`` is the
        number of messages that their rows become. ``folder`` is for the files of a large batch.
        ``loops`` is given the source and the destination of each row. Raises :class:`BatchError` if
        the disk has no room for the files.
        """
        self.folder = folder
        self._loops = loops
        self._stages = stages
        self._source_id = source_id
        self.rows = rows
        self.addresses = addresses
        self.queues: list[QueueKey] = []
        """The outgoing queues of the batch. :attr:`queue` has indices into this list."""
        self.scopes: list[str] = []
        """The destinations of the batch. :attr:`scope` has indices into this list."""
        self._queue_index: dict[QueueKey, int] = {}
        self._scope_index: dict[str, int] = {}
        self.queue = self.zeros(np.uint16)
        self.scope = self.zeros(np.uint16)
        self.size = self.zeros(np.uint32)
        self.how = self.zeros(np.uint8)
        self.high = self.zeros(np.uint64)
        """First half of the hash of a key or digest, or the source of a position."""
        self.low = self.zeros(np.uint64)
        """Second half of the hash of a key or digest, or the sequence of a position.

        The sign bit of the sequence is inverted so that sequences sort as unsigned numbers.
        """
        self.content: np.ndarray | None = None
        """Marks of the contents that the keys belong to (:mod:`.content_marks`).

        ``None`` without keys.
        """
        self.hashed = np.zeros(0, np.uint64)
        """The contents of all rows in the form of earlier versions (:mod:`.key_contents`).

        Empty until :meth:`hash_all` has computed them.
        """
        self.has_positions = False
        """Whether a row has a complete source position. The row may have a key too."""
        self.marks = np.zeros(0, np.uint64)
        """Marks of the contents that the positions belong to (:mod:`.content_marks`).

        Marks need the bodies, which this pass does not read. So the marks are computed when the
        rows are packed (:meth:`mark`), or at once if a known position is used again
        (:meth:`mark_all`).
        """
        self.is_marked = False
        self.transaction: np.ndarray | None = None
        """Hash of each row's ``transaction``, 0 for null; ``None`` without such a column."""
        self.has_journal = False
        self.order_by = stages[0][1].schema.order_by if stages else ()
        self.order: list[list[pa.Array]] = [[] for _ in self.order_by]
        """The columns that the batch is ordered by.

        For a large batch the columns are in :attr:`runs`.
        """
        self.runs = SortedRuns(folder)

    def zeros(self, dtype: type) -> np.ndarray:
        """Return an array with a zero for each row, in a file if the batch is large."""
        return zeros(self.rows, dtype, self.folder)

    @property
    def is_plain(self) -> bool:
        """Return whether nothing but the destinations can change the staged order of the rows.

        This is so without ``orderBy``, without a column ``transaction`` and without source
        positions. The scan of such rows also makes no query to the database.
        """
        return not self.order_by and not any(
            "transaction" in stage.schema.columns or set(POSITION) <= set(stage.schema.columns)
            for _, stage in self._stages
        )

    def forget(self) -> None:
        """Release the arrays that only identities and order need.

        Call this after both are computed.
        """
        self.high = self.low = np.zeros(0, np.uint64)
        self.hashed = np.zeros(0, np.uint64)
        self.how, self.scope, self.content, self.order = (
            np.zeros(0, np.uint8),
            np.zeros(0, np.uint16),
            None,
            [],
        )

    def pieces(self, *, hashed: bool = False) -> Iterator[StageSlice]:
        """Yield all rows as slices of the stages, in the order of their numbers.

        Rows with several destinations are expanded. ``hashed`` adds the stored hashes of the stages
        (:class:`.StoredHashes`), except of a stage with lists of destinations. Raises
        :class:`BatchError` (400) if a stage cannot be read.
        """
        at = 0
        for partition, stage in self._stages:
            # Stored hashes are those of the rows. A message of an expanded row has other content.
            if not hashed or stage.has_lists:
                for rows in stage.slices():
                    piece = expanded(rows, self.addresses) if stage.has_lists else rows
                    yield StageSlice(at, piece, partition)
                    at += piece.rows
                continue
            with closing(StoredHashes(stage.path, stage.bytes)) as hashes:
                for piece in stage.slices():
                    yield StageSlice(at, piece, partition, hashes.of(piece))
                    at += piece.rows

    def name_of(self, number: int) -> str:
        """Return a text that names a row for people (:mod:`srmp_spark.rows.row_names`).

        ``number`` is the row number. The stages are read to find the row.
        """
        for piece in self.pieces():
            if piece.first <= number < piece.first + piece.slice.rows:
                row = number - piece.first
                place = f"partition {piece.partition} row {piece.slice.row_number(row)}"
                name = row_name(piece.slice.columns, row)
                if name is None:
                    return place
                # A batch of one row is made by ``send``, whose users know no partitions.
                return f"{name} ({place})" if self.rows > 1 else name
        raise AssertionError(f"row {number} of {self.rows}")

    def release(self) -> None:
        """Return the memory of the stages' mapped files to the kernel."""
        for _, stage in self._stages:
            stage.release()

    def take(self, piece: StageSlice) -> None:
        """Compute the numbers about the rows of ``piece``, and store them in the arrays.

        Raises :class:`BatchError` (400) if the batch has more than BATCH_DESTINATIONS_MAX
        destinations.
        """
        columns, rows = piece.slice.columns, piece.slice.rows
        span = slice(piece.first, piece.first + rows)
        self._queues(columns, span, rows)
        self.size[span] = np.minimum(body_sizes(columns, rows) + 64, 2**32 - 1)
        self._identities(columns, span, rows, piece.hashes)
        if "transaction" in columns:
            if self.transaction is None:
                self.transaction = self.zeros(np.uint64)
            hashes = key_hashes(columns["transaction"])[:, 0] | np.uint64(1)
            self.transaction[span] = np.where(
                columns["transaction"].is_valid().to_numpy(zero_copy_only=False), hashes, 0
            )
        self.has_journal = self.has_journal or "journal" in columns
        batch = piece.slice.batch
        columns_of_order = [
            sortable(batch.column(batch.schema.get_field_index(name))) for name, _ in self.order_by
        ]
        if is_large(self.rows):
            if columns_of_order:
                self.runs.add(piece.first, [pa.array(self.queue[span]), *columns_of_order])
            return
        for chunks, column in zip(self.order, columns_of_order, strict=True):
            chunks.append(column)

    def mark(self, piece: StageSlice) -> None:
        """Compute the content marks of the rows of ``piece``, into :attr:`marks`.

        Nothing is done if all marks are computed, or if the batch has no source positions.
        """
        if self.is_marked or not self.has_positions:
            return
        if not len(self.marks):
            self.marks = self.zeros(np.uint64)
        rows = piece.slice.rows
        self.marks[piece.first : piece.first + rows] = content_marks(piece.slice.columns, rows)

    def mark_all(self) -> Iterator[None]:
        """Compute the content marks of all rows, in steps, unless that is done (:meth:`mark`)."""
        if not self.is_marked:
            for piece in self.pieces():
                self.mark(piece)
                yield
            self.is_marked = True

    def hash_all(self) -> Iterator[None]:
        """Compute :attr:`hashed`, the content hashes of all rows, in steps, unless that is done."""
        if len(self.hashed):
            return
        hashed = self.zeros(np.uint64)
        for piece in self.pieces():
            rows = piece.slice.rows
            hashed[piece.first : piece.first + rows] = content_hashes(
                piece.slice.columns, rows, CONTENT_BYTES
            )[:, 0]
            yield
        self.hashed = hashed

    def _queues(self, columns: dict[str, pa.Array], span: slice, rows: int) -> None:
        spelled = columns["destination"].dictionary_encode()
        canonical = [self.addresses.canonical(each) for each in spelled.dictionary.to_pylist()]
        scopes = np.array([self._scope(each) for each in canonical], np.uint16)
        indices = spelled.indices.to_numpy(zero_copy_only=False)
        self.scope[span] = scopes[indices]
        if "delivery" in columns:
            delivery = pc.fill_null(columns["delivery"], "transactional")
            plain = pc.not_equal(delivery, "transactional").to_numpy(zero_copy_only=False)
        else:
            plain = np.zeros(rows, bool)
        transports = [self.addresses.transport(each) for each in spelled.dictionary.to_pylist()]
        plain |= np.array([not each.rules.has_streams for each in transports], bool)[indices]
        queue = np.zeros(rows, np.uint16)
        for wanted, mask in (("stream", ~plain), ("plain", plain)):
            if mask.any():
                used = np.unique(indices[mask])
                table = np.zeros(len(canonical), np.uint16)
                for index in used:
                    table[index] = self._queue(QueueKey(canonical[index], wanted))  # type: ignore[arg-type]  # a Kind
                queue[mask] = table[indices[mask]]
        self.queue[span] = queue

    def _scope(self, destination: str) -> int:
        found = self._scope_index.get(destination)
        if found is None:
            if len(self.scopes) >= BATCH_DESTINATIONS_MAX:
                message = (
                    "a batch has more than BATCH_DESTINATIONS_MAX = "
                    f"{BATCH_DESTINATIONS_MAX} destinations"
                )
                raise BatchError(400, BAD_BATCH, message, "send it in parts")
            found = self._scope_index[destination] = len(self.scopes)
            self.scopes.append(destination)
        return found

    def _queue(self, key: QueueKey) -> int:
        found = self._queue_index.get(key)
        if found is None:
            found = self._queue_index[key] = len(self.queues)
            self.queues.append(key)
        return found

    def _identities(
        self, columns: dict[str, pa.Array], span: slice, rows: int, hashes: RowHashes | None
    ) -> None:
        how, high, low, content = row_hashes(columns, rows) if hashes is None else hashes
        positions = whole_positions(columns, rows)
        if positions is not None:
            source, sequence = self._positions(columns, positions, span)
            by_position = how == BY_POSITION
            high, low = np.where(by_position, source, high), np.where(by_position, sequence, low)
            self.has_positions = self.has_positions or bool(positions.any())
        if content is not None:
            if self.content is None:
                self.content = self.zeros(np.uint64)
            self.content[span] = content
        self.how[span], self.high[span], self.low[span] = how, high, low

    def _positions(
        self, columns: dict[str, pa.Array], valid: np.ndarray, span: slice
    ) -> tuple[np.ndarray, np.ndarray]:
        encoded = [columns[name].dictionary_encode() for name in POSITION[:3]]
        dictionaries = [each.dictionary.to_pylist() for each in encoded]
        indices = np.stack(
            [pc.fill_null(each.indices, 0).to_numpy(zero_copy_only=False) for each in encoded],
            axis=1,
        )
        used, inverse = np.unique(indices[valid], axis=0, return_inverse=True)
        sources = [
            SourceLog(*(d[i] for d, i in zip(dictionaries, row, strict=True))) for row in used
        ]
        ids = np.array([self._source_id(*each) for each in sources], np.uint64)
        source = np.zeros(len(valid), np.uint64)
        if len(ids):
            source[valid] = ids[inverse.reshape(-1)]
        if self._loops is not None and sources:
            of = np.full(len(valid), -1, np.int32)
            of[valid] = inverse.reshape(-1)
            self._loops.look(span.start, self.scopes, self.scope[span], sources, of)
        sequence = (
            pc.fill_null(columns["sequence"], 0).to_numpy(zero_copy_only=False).astype(np.int64)
        )
        return source, sequence.view(np.uint64) ^ np.uint64(1 << 63)
