"""A stage: an Arrow IPC stream on disk that one task wrote, read in slices of limited size.

The file is mapped and not read. So Arrow does not load record batches by itself, and a wrong length
in the file cannot make the process allocate memory. Memory that was worked on is returned to the
kernel at once.
"""

from __future__ import annotations

import mmap
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from srmp_spark.rows.row_names import row_name
from srmp_spark.store.database.durable import write_durably
from srmp_spark.store.outbox.columns import (
    ARROW,
    DEAD_LETTER,
    KINDS,
    NAME,
    CanonicalDestinations,
    StageSchema,
    plain_columns,
    read_schema,
)
from srmp_spark.store.outbox.errors import BAD_STAGE, BatchError, RowRefusedError
from srmp_spark.store.outbox.limits import (
    CHUNK_BYTES,
    CHUNK_ROWS,
    RECORD_BATCH_BYTES_MAX,
    STAGE_BYTES_MAX,
    STAGE_ROWS_MAX,
)
from srmp_spark.store.outbox.staging.ipc_budget import check_sizes
from srmp_spark.store.outbox.staging.refusals import Refusals, RowRefusal
from srmp_spark.store.outbox.staging.reliable_rows import only_reliable
from srmp_spark.store.outbox.staging.row_checks import check_rows


class Slice(NamedTuple):
    """Consecutive rows of a stage, at most a chunk (:data:`.CHUNK_BYTES`)."""

    first_row: int
    """Number of the first row in the stage, counted from 0."""
    batch: pa.RecordBatch
    columns: dict[str, pa.Array]
    """The columns in the form of :func:`~.columns.plain_columns`."""
    source: np.ndarray | None = None
    """Index that each row had before rows with several destinations were expanded.

    ``None`` if no row was expanded (:func:`.multiple.expanded`).
    """

    @property
    def rows(self) -> int:
        """Return the number of rows of the slice."""
        return int(self.batch.num_rows)

    def row_number(self, row: int) -> int:
        """Return the number in the stage of the row at index ``row``; both count from 0."""
        return self.first_row + (row if self.source is None else int(self.source[row]))

    def name_of(self, row: int, order_by: Sequence[str] = ()) -> str:
        """Return a text that names the row at index ``row`` for people.

        The text has the row's key, source position or values of ``order_by``, as far as it has
        them, and its number in the stage.
        """
        columns = dict(self.columns)
        for name in order_by:
            columns[name] = self.batch.column(self.batch.schema.get_field_index(name))
        found = row_name(columns, row, order_by)
        place = f"row {self.row_number(row)}"
        return place if found is None else f"{found} ({place})"


class StageFile:
    """Reads one stage from its file.

    Opening it raises :class:`BatchError` (400) if the file is empty or too large, or is no Arrow
    stream with the columns of a sink, and :class:`FileNotFoundError` if it is missing.
    """

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
        """Whether a row may become several messages. :meth:`messages` finds out whether one does.
        """
        with arrow_errors():
            self.schema: StageSchema = read_schema(self._open().schema)

    @property
    def arrow_schema(self) -> pa.Schema:
        """Return the schema as the client wrote it, with its metadata."""
        with arrow_errors():
            return self._open().schema

    def _open(self) -> pa.RecordBatchStreamReader:
        return pa.ipc.open_stream(pa.BufferReader(pa.py_buffer(self._map)))

    def slices(self, *, validate: bool = False) -> Iterator[Slice]:
        """Yield slices of the rows, each of at most CHUNK_ROWS rows and about CHUNK_BYTES bytes.

        ``validate`` checks every offset and every character first. One validation of a file is
        enough. Raises :class:`BatchError` (400) if a record batch is too large or cannot be read.
        """
        row = 0
        with arrow_errors():
            reader = self._open()
        while True:
            with arrow_errors():
                try:
                    batch = reader.read_next_batch()
                except StopIteration:
                    break
                if validate:
                    # Validate before anything else, because even ``nbytes`` depends on the offsets.
                    batch.validate(full=True)
                if batch.nbytes > RECORD_BATCH_BYTES_MAX:
                    message = (
                        f"a record batch has {batch.nbytes} bytes, RECORD_BATCH_BYTES_MAX "
                        f"is {RECORD_BATCH_BYTES_MAX}"
                    )
                    raise BatchError(400, BAD_STAGE, message, "write smaller record batches")
            rows = max(1, min(CHUNK_ROWS, batch.num_rows * CHUNK_BYTES // max(batch.nbytes, 1)))
            for start in range(0, batch.num_rows, rows):
                part = batch.slice(start, rows)
                with arrow_errors():
                    columns = only_reliable(plain_columns(part, self.schema.columns))
                yield Slice(row, part, columns)
                row += part.num_rows
            del batch
            self.release()

    def check(
        self, *, multicast: bool = False, judged: Callable[[Slice], object] = lambda piece: None
    ) -> int:
        """Check every row of the stage, and return the number of rows.

        ``multicast`` says whether this queue manager sends multicast. ``judged`` is called with
        each slice, after all of its rows were found good. Raises :class:`RowRefusedError` for the
        first row that cannot become a message, and :class:`BatchError` (400) for other problems.

        Hostile bytes may crash Arrow and with it the process. So a helper process calls this method
        first (``queue_manager/sender``).
        """
        with arrow_errors():
            check_sizes(
                lambda: pa.ipc.MessageReader.open_stream(pa.BufferReader(pa.py_buffer(self._map)))
            )
        self.release()
        rows, addresses = 0, CanonicalDestinations()
        for piece in self.slices(validate=True):
            self.judge(piece, addresses, partial(self._refuse, piece), multicast=multicast)
            rows += piece.rows
            if rows > STAGE_ROWS_MAX:
                message = f"a stage has more than STAGE_ROWS_MAX = {STAGE_ROWS_MAX} rows"
                raise BatchError(400, BAD_STAGE, message, "repartition into more tasks")
            judged(piece)
        return rows

    def judge(
        self,
        piece: Slice,
        addresses: CanonicalDestinations,
        on_refused: Callable[[int, RowRefusal], object],
        *,
        multicast: bool,
    ) -> Refusals:
        """Check each row of ``piece``, and return which rows are good.

        ``on_refused`` is called for each row that can never become a message (:class:`.Refusals`).
        Raises :class:`BatchError` (400) if Arrow cannot read the rows.
        """
        with arrow_errors():
            refusals = Refusals(piece.rows, on_refused)
            check_rows(piece.columns, piece.rows, addresses, refusals, multicast=multicast)
        return refusals

    def _refuse(self, piece: Slice, row: int, refusal: RowRefusal) -> None:
        name = piece.name_of(row, [name for name, _ in self.schema.order_by])
        raise RowRefusedError(f"{name}: {refusal.message}", refusal.hint)

    def messages(self, addresses: CanonicalDestinations) -> int:
        """Return how many messages the rows become, and set :attr:`has_lists`.

        A row becomes several messages if its destination names several queues. Raises
        :class:`BatchError` (400) if a destination cannot be sent to.
        """
        count = rows = 0
        with arrow_errors():
            reader = self._open()
            index = reader.schema.get_field_index("destination")
            for batch in reader:
                count += addresses.messages_in(batch.column(index))
                rows += batch.num_rows
        self.release()
        self.has_lists = count > rows
        return count

    def release(self) -> None:
        """Return the memory of the mapped file to the kernel.

        Later reads load it from the disk again.
        """
        self._map.madvise(mmap.MADV_DONTNEED)


class arrow_errors:  # noqa: N801  # used like a function
    """Raises Arrow's errors of a ``with`` block as :class:`BatchError`.

    A client made the file, so the errors are the client's.
    """

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
    """Write ``rows`` as a stage, sync the file, and return its name in ``folder``.

    Each row is a mapping of the sink's columns. With ``dead_letter`` final stream receipts finish
    the messages. The rows are not checked. Raises :class:`BatchError` (400) if a value has the
    wrong type, and :class:`OSError` if the file cannot be written.
    """
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
