"""The order of a batch: values of ``orderBy`` (nulls first, as in Spark), then partition, then row.

The places are worked out from the columns of ``orderBy``. The rows are then moved to their places
without being in memory all at once. The rows are read in the order in which they were staged, and
distributed to buckets. A bucket is a file of neighbouring places, and is put in order by itself. A
batch that is in order already, or fits into one bucket, is not written again.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from srmp_spark.private_files import FOLDER_MODE, create_private
from srmp_spark.store.outbox.limits import BUCKET_BYTES, BUCKETS_MAX
from srmp_spark.store.outbox.preparing.row_numbers import blocks, zeros

DEAL_BYTES = 2 * BUCKET_BYTES
"""Bytes that are distributed to the buckets at once. More bytes make longer pieces in each bucket.
"""
PLACE = "__place"
_SIGN = np.int64(-(2**63))


def sortable(array: pa.Array) -> pa.Array:
    """Return an array that Arrow sorts in the order in which Spark sorts ``array``.

    Floats become int64 keys, in whose order -0.0 equals 0.0 and NaN exceeds every number. A
    dictionary is decoded, a column of type null becomes int8 nulls, and any other column is copied.
    Nulls stay null.
    """
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_floating(array.type):
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        values = pc.fill_null(array.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False) + 0.0
        values[np.isnan(values)] = np.nan
        bits = values.view(np.int64)
        bits = np.where(bits < 0, ~bits ^ _SIGN, bits)
        return pa.array(bits, mask=~valid)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), pa.int8())
    # The copy is needed because the memory of the mapped file is returned to the kernel.
    return array.take(pa.array(np.arange(len(array), dtype=np.int32)))


def places(queue: np.ndarray, order: Sequence[Sequence[pa.Array]], new: np.ndarray) -> np.ndarray:
    """Return the row numbers that the mask ``new`` selects, in the order of sending.

    Rows are sorted by ``queue`` (indices of queues), then by the columns ``order``, with nulls
    first, then by row number. ``order`` has the pieces of each column.
    """
    keys = [pa.array(queue)] if queue.any() else []
    for chunks in order:
        column = pa.chunked_array(chunks).combine_chunks() if chunks else pa.nulls(0)
        if column.null_count:
            # Validity is the first key, so nulls come first. Arrow's own option has changed its
            # form.
            keys.append(column.is_valid())
        if column.null_count < len(column):
            keys.append(column)
    if not keys:
        return np.flatnonzero(new).astype(np.uint32)
    names = [str(n) for n in range(len(keys))]
    table = pa.table(keys, names=names)
    indices = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in names])
    rows: np.ndarray = indices.to_numpy(zero_copy_only=False).astype(np.uint32)
    wanted: np.ndarray = rows[new[rows]]
    return wanted


def is_in_order(rows: np.ndarray) -> bool:
    """Return whether the row numbers ``rows`` ascend.

    Then the order of sending is the order in which the rows were staged.
    """
    return all(
        bool((rows[span][1:] > rows[span][:-1]).all()) for span in blocks(len(rows))
    ) and all(rows[span.start - 1] < rows[span.start] for span in blocks(len(rows)) if span.start)


class Buckets:
    """Puts the rows of a batch in order with buckets: files of rows with neighbouring places.

    ``rows`` is the result of :func:`places`, ``size`` has the bytes of each row of the batch, and
    ``total`` is the number of all rows. The length of the object is the number of buckets.
    """

    def __init__(self, folder: Path, rows: np.ndarray, size: np.ndarray, total: int) -> None:
        self._folder = folder
        self._place = zeros(total, np.uint32, folder)
        bytes_in_all = sum(int(size[rows[span]].sum(dtype=np.int64)) for span in blocks(len(rows)))
        bytes_each = max(BUCKET_BYTES, bytes_in_all // BUCKETS_MAX + 1)
        firsts, end, last = [np.zeros(0, np.uint32)], 0, -1
        for span in blocks(len(rows)):
            self._place[rows[span]] = np.arange(span.start, span.stop, dtype=np.uint32)
            ends = np.cumsum(size[rows[span]], dtype=np.int64) + end
            numbers = ends // bytes_each
            firsts.append(
                (np.flatnonzero(np.diff(numbers, prepend=last)) + span.start).astype(np.uint32)
            )
            end, last = int(ends[-1]), int(numbers[-1])
        self._firsts = np.concatenate(firsts)
        self._schema: pa.Schema | None = None
        self._files: dict[int, tuple[pa.OSFile, pa.RecordBatchStreamWriter]] = {}
        self._waiting: list[tuple[np.ndarray, pa.RecordBatch]] = []
        self._waiting_bytes = 0
        self._parts: dict[int, list[pa.RecordBatch]] = {}

    def __len__(self) -> int:
        return len(self._firsts)

    def add(self, numbers: np.ndarray, batch: pa.RecordBatch) -> bool:
        """Add the rows of ``batch``, whose row numbers are ``numbers``.

        Rows are collected up to DEAL_BYTES and then written (:meth:`deal`). Return whether all
        added rows are written now. Raises :class:`OSError` if a file cannot be written.
        """
        self._waiting.append((self._place[numbers], batch))
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes < DEAL_BYTES:
            return False
        self.deal()
        return True

    def deal(self) -> None:
        """Write the rows that were added and are not written yet, each to its bucket."""
        if not self._waiting:
            return
        place = np.concatenate([place for place, _ in self._waiting])
        batch = pa.concat_batches([batch for _, batch in self._waiting])
        self._waiting, self._waiting_bytes = [], 0
        order = np.argsort(place)
        place = place[order]
        taken = batch.take(pa.array(order)).append_column(PLACE, pa.array(place))
        bucket = np.searchsorted(self._firsts, place, side="right") - 1
        cuts = [0, *(np.flatnonzero(np.diff(bucket)) + 1).tolist(), len(place)]
        for start, end in itertools.pairwise(cuts):
            self._write(int(bucket[start]), taken.slice(start, end - start))

    def _write(self, bucket: int, part: pa.RecordBatch) -> None:
        if len(self) == 1:
            self._parts.setdefault(bucket, []).append(part)
            return
        if bucket not in self._files:
            self._folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
            os.close(create_private(self._folder / str(bucket)))
            file = pa.OSFile(str(self._folder / str(bucket)), "wb")
            self._files[bucket] = file, pa.ipc.new_stream(file, part.schema)
        self._files[bucket][1].write_batch(part)

    def in_order(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows in the order of sending, one record batch for each bucket.

        Call :meth:`deal` before. The file of each bucket is deleted after it was read.
        """
        for file, writer in self._files.values():
            writer.close()
            file.close()
        for bucket in range(len(self)):
            if bucket in self._files:
                path = self._folder / str(bucket)
                with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as reader:
                    table = reader.read_all()
                path.unlink()
            else:
                table = pa.Table.from_batches(self._parts.pop(bucket))
            order = pc.sort_indices(table.column(PLACE))
            yield table.take(order).drop_columns(PLACE).combine_chunks().to_batches()[0]

    def close(self) -> None:
        """Delete the files of all buckets."""
        for file, writer in self._files.values():
            if not file.closed:
                writer.close()
                file.close()
        self._files.clear()
        shutil.rmtree(self._folder, ignore_errors=True)
