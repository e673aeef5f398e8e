"""The bad rows of a batch: those that its stages left out, and those that the commit finds.

Most bad rows are taken out when their stage is checked (:mod:`~..staging.bad_rows`). Whether a row
would return to the queue that it was read from is known only at the commit, because the committer
may allow it (``allowLoop``). Such rows are then taken out of the stages in the same way.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path

import numpy as np

from srmp_spark.private_files import FOLDER_MODE
from srmp_spark.store.outbox.errors import DEAD_LETTER, UNKNOWN_STAGE, BatchError
from srmp_spark.store.outbox.preparing.scan import Scan
from srmp_spark.store.outbox.stage_file import Slice, StageFile
from srmp_spark.store.outbox.stage_paths import LETTERS_ENDING, beside
from srmp_spark.store.outbox.staging.bad_row_letters import Origin
from srmp_spark.store.outbox.staging.bad_rows import NO_BAD_ROWS, BadRows, bad_rows_of, divide
from srmp_spark.store.outbox.staging.refusals import WOULD_LOOP, RowRefusal

BAD_ROWS_SCOPE = "bad rows\n"
"""Text in place of a destination in the scope of the letters of an application.

No destination is this text, because an address contains no line break.
"""
_LOOP = RowRefusal(
    WOULD_LOOP,
    "it would return to its own queue",
    "send it elsewhere, or allow it (allowLoop=true) if no query reads it again",
)

Files = Sequence[tuple[int, StageFile]]
"""Stages as pairs (partition, file)."""


class BadRowFiles:
    """Collects the bad rows of one batch, and the files of letters about them."""

    def __init__(self, fate: str) -> None:
        """Begin without bad rows. ``fate`` is one of :data:`.errors.ON_BAD_ROW`."""
        self._fate = fate
        self.bad: BadRows = NO_BAD_ROWS
        self.letters: list[tuple[int, StageFile]] = []
        """Stages of letters, as pairs (partition, file)."""

    def add(self, partition: int, stage: Path) -> None:
        """Add the bad rows that were taken out of ``stage``, if any.

        Raises :class:`BatchError` (404) if a file about them is damaged or gone.
        """
        try:
            bad = bad_rows_of(stage)
            if bad is not None and self._fate == DEAD_LETTER:
                self.letters.append((partition, StageFile(beside(stage, LETTERS_ENDING))))
        except (OSError, ValueError, KeyError, TypeError) as error:
            message = f"the bad rows of a stage cannot be read: {error}"
            raise BatchError(404, UNKNOWN_STAGE, message, "stage its rows again") from error
        self.bad = self.bad.plus(bad)

    def without_loops(
        self, files: Files, scan: Scan, loops: np.ndarray, names: tuple[str, str]
    ) -> Generator[None, None, list[tuple[int, StageFile]]]:
        """Return the stages without the rows that would return to their own queue, in steps.

        ``scan`` has read ``files``. ``loops`` is a mask of these rows by row number, and ``names``
        are those of the application and the batch. Raises :class:`OSError` if a file cannot be
        written.
        """
        found: dict[int, list[np.ndarray]] = {partition: [] for partition, _ in files}
        for piece in scan.pieces():
            mask = loops[piece.first : piece.first + piece.slice.rows]
            rows = [piece.slice.row_number(int(row)) for row in np.flatnonzero(mask)]
            if rows:
                found[piece.partition].append(np.array(rows))
            yield
        scan.folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
        left = []
        for partition, file in files:
            if not found[partition]:
                left.append((partition, file))
                continue
            bad = np.unique(np.concatenate(found[partition]))
            path = scan.folder / f"{partition}.without-loops"
            self.bad = self.bad.plus(
                divide(file, _rows(bad), path, Origin(names[0], names[1], partition))
            )
            if self._fate == DEAD_LETTER:
                self.letters.append((partition, StageFile(beside(path, LETTERS_ENDING))))
            left.append((partition, StageFile(path)))
            yield
        self.letters.sort(key=lambda each: each[0])
        return left


class _rows:  # noqa: N801  # used like a function
    """Returns the bad rows of a slice, given the sorted numbers of all bad rows of its stage."""

    def __init__(self, bad: np.ndarray) -> None:
        self._bad = bad

    def __call__(self, piece: Slice) -> dict[int, RowRefusal]:
        first, last = np.searchsorted(self._bad, [piece.first_row, piece.first_row + piece.rows])
        return {int(number) - piece.first_row: _LOOP for number in self._bad[first:last]}
