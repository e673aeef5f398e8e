"""A stage: an Arrow IPC stream on disk that one task wrote, read in slices so that its size does not matter.

The file is mapped and not read: Arrow then loads no record batch of its own accord, and a length in it that lies cannot make us
allocate. What was worked on is handed back to the kernel at once, so it counts for our memory no longer.
"""

from __future__ import annotations

import mmap
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from srmp_spark.store.durable import write_durably
from srmp_spark.store.outbox.columns import (
    ARROW,
    DEAD_LETTER,
    KINDS,
    NAME,
    Addresses,
    StageSchema,
    plain_columns,
    read_schema,
)
from srmp_spark.store.outbox.errors import BAD_STAGE, BatchError
from srmp_spark.store.outbox.ipc_budget import check_sizes
from srmp_spark.store.outbox.limits import (
    CHUNK_BYTES,
    CHUNK_ROWS,
    RECORD_BATCH_BYTES_MAX,
    STAGE_BYTES_MAX,
    STAGE_ROWS_MAX,
)
from srmp_spark.store.outbox.reliable_rows import only_reliable
from srmp_spark.store.outbox.row_checks import check_rows


class Slice(NamedTuple):
    """Some rows of a stage."""

    first_row: int
    """In the stage, counted from 0."""
    batch: pa.RecordBatch
    columns: dict[str, pa.Array]
    """:func:`~.columns.plain_columns`."""
    source: np.ndarray | None = None
    """Where the rows stood in the slice before those with several destinations became several."""

    @property
    def rows(self) -> int:
        """How many."""
        return int(self.batch.num_rows)

    def row_number(self, row: int) -> int:
        """The number in the stage, counted from 0, of a row here."""
        return self.first_row + (row if self.source is None else int(self.source[row]))


class StageFile:
    """One stage. Raises :class:`BatchError` for whatever is no Arrow stream of the columns of a sink."""

    def __init__(self, path: Path) -> None:
        self.path = path
        size = path.stat().st_size
        if not 0 < size <= STAGE_BYTES_MAX:
            hint = "repartition into more tasks" if size else "send an Arrow IPC stream"
            raise BatchError(
                400,
                BAD_STAGE,
                f"a stage has 1 to STAGE_BYTES_MAX = {STAGE_BYTES_MAX} bytes, got {size}",
                hint,
            )
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        self.bytes = size
        self.has_lists = True
        """Whether a row may be several messages; :meth:`messages` finds out."""
        with _arrow():
            self.schema: StageSchema = read_schema(self._open().schema)

    def _open(self) -> pa.RecordBatchStreamReader:
        return pa.ipc.open_stream(pa.BufferReader(pa.py_buffer(self._map)))

    def slices(self, *, validate: bool = False) -> Iterator[Slice]:
        """The rows, at most :data:`CHUNK_ROWS` at once and about :data:`CHUNK_BYTES`.

        ``validate``: look into every offset and every character first; once is enough.
        """
        row = 0
        with _arrow():
            reader = self._open()
        while True:
            with _arrow():
                try:
                    batch = reader.read_next_batch()
                except StopIteration:
                    break
                if validate:
                    batch.validate(
                        full=True
                    )  # before anything else: even a size is computed by the offsets
                if batch.nbytes > RECORD_BATCH_BYTES_MAX:
                    message = (
                        f"a record batch has {batch.nbytes} bytes, RECORD_BATCH_BYTES_MAX "
                        f"is {RECORD_BATCH_BYTES_MAX}"
                    )
                    raise BatchError(400, BAD_STAGE, message, "write smaller record batches")
            rows = max(1, min(CHUNK_ROWS, batch.num_rows * CHUNK_BYTES // max(batch.nbytes, 1)))
            for start in range(0, batch.num_rows, rows):
                part = batch.slice(start, rows)
                with _arrow():
                    columns = only_reliable(plain_columns(part, self.schema.columns))
                yield Slice(row, part, columns)
                row += part.num_rows
            del batch
            self.release()

    def check(
        self, *, multicast: bool = False, judged: Callable[[Slice], object] = lambda piece: None
    ) -> int:
        """Judge every row; how many there are. ``multicast``: whether it is spoken here. ``judged`` is called with the rows
        that can become messages, slice by slice.

        What Arrow makes of hostile bytes may end the process: a helper process calls this first (``queue_manager/sender``).
        """
        with _arrow():
            check_sizes(
                lambda: pa.ipc.MessageReader.open_stream(pa.BufferReader(pa.py_buffer(self._map)))
            )
        self.release()
        rows, addresses = 0, Addresses()
        for piece in self.slices(validate=True):
            with _arrow():
                check_rows(
                    piece.columns, piece.rows, addresses, piece.first_row, multicast=multicast
                )
            rows += piece.rows
            if rows > STAGE_ROWS_MAX:
                message = f"a stage has more than STAGE_ROWS_MAX = {STAGE_ROWS_MAX} rows"
                raise BatchError(400, BAD_STAGE, message, "repartition into more tasks")
            judged(piece)
        return rows

    def messages(self, addresses: Addresses) -> int:
        """How many messages the rows make: more than there are rows where a destination names several queues."""
        count = rows = 0
        with _arrow():
            reader = self._open()
            index = reader.schema.get_field_index("destination")
            for batch in reader:
                count += addresses.messages_in(batch.column(index))
                rows += batch.num_rows
        self.release()
        self.has_lists = count > rows
        return count

    def release(self) -> None:
        """Let the kernel take back what was read."""
        self._map.madvise(mmap.MADV_DONTNEED)


class _arrow:  # noqa: N801  # used like a function
    """Arrow's errors as ours: the file is the client's."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if isinstance(error, (pa.ArrowException, OSError, UnicodeDecodeError)):
            raise BatchError(
                400, BAD_STAGE, f"not an Arrow IPC stream: {error}", "stage again"
            ) from error


def write_rows(folder: Path, rows: Sequence[Mapping[str, Any]], *, dead_letter: bool) -> str:
    """A stage of our own making, synced; its name in ``folder``. Raises :class:`BatchError` for a value of a wrong type."""
    names = [
        name
        for name in KINDS
        if any(row.get(name) is not None for row in rows) or name in ("body", "destination")
    ]
    types = {name: pa.string() if KINDS[name] == NAME else ARROW[KINDS[name]] for name in names}
    try:
        arrays = [pa.array([row.get(name) for row in rows], types[name]) for name in names]
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise BatchError(
            400,
            BAD_STAGE,
            f"a value has the wrong type: {error}",
            "see INTERFACE.md section 4, Sink",
        ) from error
    metadata = {DEAD_LETTER: b"true" if dead_letter else b"false"}
    batch = pa.RecordBatch.from_arrays(
        arrays, schema=pa.schema(list(types.items()), metadata=metadata)
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    path = folder / f"{secrets.token_hex(16)}.arrow"
    write_durably(path, sink.getvalue().to_pybytes())
    return path.name
