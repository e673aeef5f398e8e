"""Take the rows that can never be sent out of a stage (option ``onBadRow`` of the sink).

A stage whose rows are all good stays as the client sent it. A stage with a bad row is refused, or,
if its client asked for that, divided into three files before it is registered:

- a stage with the good rows, in their order. Everything after this step knows good rows alone, so
  the rows get the same identities and the same order as if the bad rows had never been there;
- a stage of letters (:mod:`.bad_row_letters`), if bad rows become dead letters;
- a summary that counts the bad rows.

All files are on stable storage before the stage is registered. The client's file is left alone, so
a crash in between repeats the division. Which rows are bad depends on the rows, on the version and
on ``--pgm``, so a batch that is run again is divided in the same way.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from srmp_spark.private_files import replace_private
from srmp_spark.store.database.durable import sync_directory, write_durably
from srmp_spark.store.outbox.columns import (
    DEAD_LETTER_QUEUE,
    ORDER_BY,
    CanonicalDestinations,
    StageSchema,
)
from srmp_spark.store.outbox.errors import (
    BAD_STAGE,
    DEAD_LETTER,
    FAIL,
    BatchError,
    RowRefusedError,
)
from srmp_spark.store.outbox.identity.row_hashes import HashesWriter
from srmp_spark.store.outbox.limits import CHUNK_BYTES
from srmp_spark.store.outbox.stage_file import Slice, StageFile, arrow_errors
from srmp_spark.store.outbox.stage_paths import (
    GOOD_ENDING,
    LETTERS_ENDING,
    SUMMARY_ENDING,
    beside,
    delete_stage,
)
from srmp_spark.store.outbox.staging.bad_row_letters import Letter, Origin, letter_of
from srmp_spark.store.outbox.staging.refusals import RowRefusal

LETTERS_MAX = 250_000
"""Largest number of letters about the rows of one stage.

A letter takes an eighth of a millisecond, and the process that makes them has two minutes for a
stage. More bad rows are a wrong query, and no poison: the stage is refused.
"""
FIRST_LENGTH_MAX = 1_000
"""Largest length of the text about the first bad row, in characters. A longer text is cut.

The text is part of log lines and answers.
"""

Refuse = Callable[[Slice], Mapping[int, RowRefusal]]
"""Function that returns the bad rows of a slice: the refusal of each by its index."""


class BadRows(NamedTuple):
    """Counts the rows that were taken out of a stage or of a batch."""

    rows: int
    first: str
    """Text that names the first of these rows, with its problem and the reason."""

    def plus(self, other: BadRows | None) -> BadRows:
        """Return the rows of both; the first row is that of this object, if it has any."""
        if other is None:
            return self
        return BadRows(self.rows + other.rows, self.first if self.rows else other.first)


NO_BAD_ROWS = BadRows(0, "")


class Checked(NamedTuple):
    """A stage whose rows can all become messages."""

    file: str
    """Name of the file: the client's, or that of the good rows."""
    rows: int
    bytes: int
    schema: StageSchema
    bad: BadRows | None


def check_or_divide(path: Path, origin: Origin, *, multicast: bool, hashes: bool) -> Checked:
    """Check every row of the stage ``path``; take bad rows out if its client asked for that.

    ``multicast`` says whether this queue manager sends multicast. With ``hashes`` the hashes of the
    rows are written beside the stage. Raises :class:`BatchError` (400) if the stage is refused, and
    :class:`OSError` if a file cannot be read or written.
    """
    stage = StageFile(path)
    try:
        return _checked(stage, multicast=multicast, hashes=hashes, bad=None)
    except RowRefusedError:
        if stage.schema.on_bad_row == FAIL:
            raise
    addresses = CanonicalDestinations()

    def refused(piece: Slice) -> dict[int, RowRefusal]:
        found: dict[int, RowRefusal] = {}
        stage.judge(piece, addresses, found.__setitem__, multicast=multicast)
        return found

    good = beside(path, GOOD_ENDING)
    delete_stage(good)
    bad = divide(stage, refused, good, origin)
    return _checked(StageFile(good), multicast=multicast, hashes=hashes, bad=bad)


def _checked(stage: StageFile, *, multicast: bool, hashes: bool, bad: BadRows | None) -> Checked:
    writer = closing(HashesWriter(stage.path, stage.bytes)) if hashes else nullcontext()
    with writer as found:
        judged = {} if found is None else {"judged": found.add}
        rows = stage.check(multicast=multicast, **judged)
    return Checked(stage.path.name, rows, stage.bytes, stage.schema, bad)


def divide(stage: StageFile, refused: Refuse, good: Path, origin: Origin) -> BadRows:
    """Write the files of the division of ``stage``, which the module explains, and return a count.

    ``good`` is the path for the good rows; the other files are beside it. Raises
    :class:`BatchError` (400) if the rows cannot be read, and :class:`OSError` if a file cannot be
    written.
    """
    schema = stage.schema
    order_by = [name for name, _ in schema.order_by]
    rows, first = 0, ""
    letters = _Letters(stage, beside(good, LETTERS_ENDING), origin)
    with _Stream(good, stage.arrow_schema) as kept, letters:
        # The check of the stage ended with the first bad row, so the rest was not validated.
        for piece in stage.slices(validate=True):
            found = refused(piece)
            if found and not rows:
                row = min(found)
                name = f"partition {origin.partition}: {piece.name_of(row, order_by)}"
                first = f"{name}: {found[row].message} ({found[row].reason})"
            rows += len(found)
            if rows > LETTERS_MAX and stage.schema.on_bad_row == DEAD_LETTER:
                message = f"more than LETTERS_MAX = {LETTERS_MAX} rows can never be sent: {first}"
                raise BatchError(400, BAD_STAGE, message, "correct the query, or use onBadRow=skip")
            letters.write(piece, found)
            kept.write(_without(piece.batch, found))
    # The text has values of the row, and is written to log lines.
    shown = "".join(each if each.isprintable() else "\ufffd" for each in first[:FIRST_LENGTH_MAX])
    bad = BadRows(rows, shown)
    summary = json.dumps(bad._asdict()).encode()
    write_durably(beside(good, SUMMARY_ENDING), summary, sync_folder=False)
    sync_directory(good.parent)
    return bad


def bad_rows_of(stage: Path) -> BadRows | None:
    """Return the count of the bad rows that were taken out of a stage, or ``None``.

    Raises :class:`OSError` and :class:`ValueError` if the summary cannot be read.
    """
    try:
        found = json.loads(beside(stage, SUMMARY_ENDING).read_bytes())
    except FileNotFoundError:
        return None
    return BadRows(int(found["rows"]), str(found["first"]))


def letters_destination(queue: str) -> str:
    """Return the destination of letters: their queue of this queue manager.

    The letters are not sent there. The main process stores them in the queue.
    """
    return f"http://localhost/msmq/{queue}"


def _without(batch: pa.RecordBatch, bad: Mapping[int, object]) -> pa.RecordBatch:
    if not bad:
        return batch
    good = np.ones(batch.num_rows, bool)
    good[list(bad)] = False
    with arrow_errors():
        return batch.filter(pa.array(good))


class _Stream:
    """Writes an Arrow IPC stream to a file, which is synced at the end of a ``with`` block."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path, self._schema = path, schema

    def __enter__(self) -> _Stream:
        # Raw writes may be short, and Arrow does not look at their result.
        self._file = os.fdopen(replace_private(self._path), "wb")
        self._writer = pa.ipc.new_stream(self._file, self._schema)
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of ``batch``, if it has any."""
        if batch.num_rows:
            self._writer.write_batch(batch)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._writer.close()
                self._file.flush()
                os.fsync(self._file.fileno())
        finally:
            self._file.close()


class _Letters:
    """Writes the letters about the bad rows of one stage, as a stage, if there are to be letters.

    The columns of ``orderBy`` go along under other names, so that letters have the order of the
    rows.
    """

    def __init__(self, stage: StageFile, path: Path, origin: Origin) -> None:
        self._origin = origin
        self._stream: _Stream | None = None
        queue = stage.schema.dead_letter_queue
        if stage.schema.on_bad_row != DEAD_LETTER or queue is None:
            return
        self._destination = letters_destination(queue)
        schema = stage.arrow_schema
        self._order = [schema.get_field_index(name) for name, _ in stage.schema.order_by]
        names = [f"order {number}" for number in range(len(self._order))]
        fields: list[Any] = [
            ("body", pa.binary()),
            ("label", pa.string()),
            ("destination", pa.string()),
            ("key", pa.binary()),
        ]
        fields += [
            (name, schema.field(index).type) for name, index in zip(names, self._order, strict=True)
        ]
        metadata = {ORDER_BY: json.dumps(names), DEAD_LETTER_QUEUE: queue}
        self._schema = pa.schema(fields, metadata=metadata)
        self._stream = _Stream(path, self._schema)

    def __enter__(self) -> _Letters:
        if self._stream is not None:
            self._stream.__enter__()
        return self

    def write(self, piece: Slice, bad: Mapping[int, RowRefusal]) -> None:
        """Write a letter about each row of ``piece`` in ``bad``, in the order of the rows."""
        rows: list[int] = []
        letters: list[Letter] = []
        size = 0
        for row in sorted(bad) if self._stream is not None else ():
            letter = letter_of(piece, row, bad[row], self._origin)
            if letters and size + len(letter.body) > CHUNK_BYTES:
                self._write(piece, rows, letters)
                rows, letters, size = [], [], 0
            rows.append(row)
            letters.append(letter)
            size += len(letter.body)
        if letters:
            self._write(piece, rows, letters)

    def _write(self, piece: Slice, rows: list[int], letters: list[Letter]) -> None:
        assert self._stream is not None, "there are to be letters"
        arrays = [
            pa.array([letter.body for letter in letters], pa.binary()),
            pa.array([letter.label for letter in letters], pa.string()),
            pa.repeat(self._destination, len(letters)),
            pa.array([letter.key for letter in letters], pa.binary()),
            *[piece.batch.column(index).take(pa.array(rows)) for index in self._order],
        ]
        self._stream.write(pa.RecordBatch.from_arrays(arrays, schema=self._schema))

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._stream is not None:
            self._stream.__exit__(kind)
