"""Put rows in the order of some columns, without all of these columns in memory.

The columns are sorted one section at a time. Each section becomes a *run*: a file with the sorted
columns and the numbers of the rows. Then the runs are merged by blocks, with one block of each run
in memory. The rows up to the first row that ends a block precede all rows that were not read yet.
These rows are found by bisecting the blocks, and only these rows are sorted together. Otherwise
each row would be sorted once for each run.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from srmp_spark.private_files import FOLDER_MODE, create_private
from srmp_spark.store.outbox.limits import MERGE_BYTES, ORDER_BYTES, ROWS_AT_ONCE

_ROW = "row"


class SortedRuns:
    """Sorts the columns that a batch is ordered by.

    Rows with equal values stay in the order of their numbers.
    """

    def __init__(self, folder: Path) -> None:
        """Begin without rows.

        ``folder`` is made when the first run is written. :meth:`close` deletes the files in it.
        """
        self._folder = folder
        self._sections: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._paths: list[Path] = []

    def add(self, first: int, columns: Sequence[pa.Array]) -> None:
        """Add the values of consecutive rows, of which the first has the row number ``first``.

        ``columns`` are the columns to sort by, the most important one first.
        """
        keys: list[pa.Array] = []
        for column in columns:
            # Validity is the first key, so nulls come first, as in Spark.
            keys += [column.is_valid(), column]
        rows = pa.array(np.arange(first, first + len(columns[0]), dtype=np.uint32))
        section = pa.RecordBatch.from_arrays(
            [*keys, rows], names=[*map(str, range(len(keys))), _ROW]
        )
        self._sections.append(section)
        self._rows += section.num_rows
        self._bytes += section.nbytes
        if self._rows >= ROWS_AT_ONCE or self._bytes >= ORDER_BYTES:
            self._write()

    def _write(self) -> None:
        if not self._sections:
            return
        table = _sorted(pa.Table.from_batches(self._sections))
        self._sections, self._rows, self._bytes = [], 0, 0
        self._folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
        path = self._folder / f"run-{len(self._paths)}"
        os.close(create_private(path))
        self._paths.append(path)
        rows = max(1, table.num_rows * MERGE_BYTES // max(table.nbytes, 1))
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table.combine_chunks(), max_chunksize=rows)

    def merged(self) -> Generator[np.ndarray]:
        """Yield the row numbers of all added rows in sorted order, as arrays.

        Each array has at most about ROWS_AT_ONCE numbers.
        """
        self._write()
        files = [pa.OSFile(str(path)) for path in self._paths]
        try:
            readers = [pa.ipc.open_stream(file) for file in files]
            held: list[pa.Table] = [pa.table([]) for _ in readers]
            at_end = [False] * len(readers)
            while True:
                for number, reader in enumerate(readers):
                    if not held[number].num_rows and not at_end[number]:
                        try:
                            held[number] = pa.Table.from_batches([reader.read_next_batch()])
                        except StopIteration:
                            at_end[number] = True
                there = [number for number, table in enumerate(held) if table.num_rows]
                if not there:
                    return
                yield _first_of(held, there, at_end)
        finally:
            for file in files:
                file.close()

    def close(self) -> None:
        """Delete the files of all runs."""
        for path in self._paths:
            path.unlink(missing_ok=True)
        self._paths = []
        self._sections = []


def _first_of(held: list[pa.Table], there: Sequence[int], at_end: Sequence[bool]) -> np.ndarray:
    """Remove the next rows in sorted order from the blocks in ``held``; return their numbers.

    ``there`` has the indices of blocks that have rows, and ``at_end`` says which runs are read to
    their end. The numbers are row numbers of the batch. The removed rows precede every row that is
    left or not read yet. At most about ROWS_AT_ONCE rows are removed.
    """
    most = max(1, ROWS_AT_ONCE // len(there))
    counts = _counts([held[number] for number in there], [at_end[number] for number in there], most)
    together = pa.concat_tables(
        [held[number].slice(0, count) for number, count in zip(there, counts, strict=True)]
    )
    for number, count in zip(there, counts, strict=True):
        held[number] = held[number].slice(count)
    rows: np.ndarray = together.column(_ROW).to_numpy()[_indices(together)]
    return rows


def _counts(blocks: Sequence[pa.Table], at_end: Sequence[bool], most: int) -> list[int]:
    """Return for each block how many of its first rows can be put out now, at most ``most``.

    These rows precede, in sorted order, every row that is left in a block or not read yet. Each
    block is the sorted part of one run that is in memory. ``at_end`` says of each block whether its
    run is read to its end.
    """
    high = [min(block.num_rows, most) for block in blocks]
    open_ended = [n for n, block in enumerate(blocks) if not at_end[n] or high[n] < block.num_rows]
    if not open_ended:
        return high
    lasts = pa.concat_tables([blocks[n].slice(high[n] - 1, 1) for n in open_ended])
    first_last = open_ended[int(_indices(lasts)[0])]
    bound = blocks[first_last].slice(high[first_last] - 1, 1)
    low = [high[n] if n == first_last else 0 for n in range(len(blocks))]
    # Bisect all blocks at once.
    while searched := [n for n in range(len(blocks)) if low[n] < high[n]]:
        middles = [(low[n] + high[n]) // 2 for n in searched]
        probes = pa.concat_tables(
            [bound, *(blocks[n].slice(at, 1) for n, at in zip(searched, middles, strict=True))]
        )
        place = np.empty(len(searched) + 1, np.int64)
        place[_indices(probes)] = np.arange(len(searched) + 1)
        for n, at, is_before in zip(
            searched, middles, (place[1:] < place[0]).tolist(), strict=True
        ):
            low[n], high[n] = (at + 1, high[n]) if is_before else (low[n], at)
    return low


def _sorted(table: pa.Table) -> pa.Table:
    return table.take(pa.array(_indices(table)))


def _indices(table: pa.Table) -> np.ndarray:
    keys = [
        (name, "ascending")
        for name in table.schema.names
        if not pa.types.is_null(table.schema.field(name).type)
    ]
    indices: np.ndarray = pc.sort_indices(table, sort_keys=keys).to_numpy(zero_copy_only=False)
    return indices
