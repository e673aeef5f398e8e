"""The hashes that identify rows, and the file of hashes that is made when a stage is checked.

A hash takes a call for each row, and each call holds Python's global lock. So a commit that hashes
its rows would use one core. The process that checks a stage
(``queue_manager/sender/staging/stage_reader.py``) reads every row before the stage is answered, and
two stages at the same time have a process each. This process also hashes the rows, and writes the
hashes next to the stage. The commit then reads 24 bytes for each row in place of the row.

The file is optional. If the file does not exist, ends early or does not match, the commit hashes
the rows itself. The file is not synced. The head of the file names the stage, and each block has a
checksum, so damage by a crash or a broken disk is detected. A small stage has no file, because
hashing its rows takes less time than making a file.
"""

from __future__ import annotations

import logging
import os
import struct
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from io import FileIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from srmp_spark.private_files import replace_private
from srmp_spark.store.outbox.columns import POSITION
from srmp_spark.store.outbox.identity.content_marks import content_marks
from srmp_spark.store.outbox.identity.hashing import HASH_BYTES, content_hashes, key_hashes
from srmp_spark.store.outbox.stage_file import Slice
from srmp_spark.store.outbox.stage_paths import HASHES_ENDING, beside

BY_KEY, BY_POSITION, BY_DIGEST = 0, 1, 2
"""Ways in which a row is identified: by its key, its source position or its content."""

HASHED_ROWS_MIN = 4_096
"""Number of rows from which on a stage has a file of hashes.

A commit hashes fewer rows in 5 milliseconds.
"""
HASHED_ROWS_MAX = 4_000_000
"""Largest number of rows of a stage whose hashes are written to the file, about 100 MB.

The commit hashes the rest.
"""
HASHING_SECONDS_MAX = 30.0
"""Longest time for which the rows of one stage are hashed, in seconds.

This is a quarter of the time that the stage's reader has for all of its work
(``READ_SECONDS_MAX``). Most stages take a second. The commit hashes the rest.
"""
_FORM = "srmp row hashes 1"
"""Name of the form of the blocks in the file.

Another form gets another number. A stage that an earlier version checked is then hashed at its
commit.
"""
_HEAD_BYTES = 32
_BLOCK = struct.Struct("<QIII")
"""Head of a block: first row, number of rows, whether it has contents, and the checksum."""
_WORD = 8

_log = logging.getLogger(__name__)


class RowHashes(NamedTuple):
    """The identities of some rows.

    The numbers of source positions are assigned by the database, and are not included.
    """

    how: np.ndarray
    """:data:`BY_KEY`, :data:`BY_POSITION` or :data:`BY_DIGEST`, for each row."""
    high: np.ndarray
    """First half of the hash of a key or digest; 0 for a position."""
    low: np.ndarray
    """Second half of the hash of a key or digest; 0 for a position."""
    content: np.ndarray | None
    """Marks of the contents that the keys belong to (:mod:`.content_marks`).

    ``None`` without a column ``key``.
    """


def whole_positions(columns: Mapping[str, pa.Array], rows: int) -> np.ndarray | None:
    """Return a mask that is True for each row whose source position has no null.

    Return ``None`` if a column of the position (:data:`.POSITION`) is missing.
    """
    if not all(name in columns for name in POSITION):
        return None
    valid = np.ones(rows, bool)
    for name in POSITION:
        valid &= _is_valid(columns[name])
    return valid


def row_hashes(columns: Mapping[str, pa.Array], rows: int) -> RowHashes:
    """Return the identities of ``rows`` rows (:class:`RowHashes`), computed from their columns.

    ``columns`` are those of :func:`.plain_columns`.
    """
    how = _how(columns, rows)
    high, low, content = np.zeros(rows, np.uint64), np.zeros(rows, np.uint64), None
    if "key" in columns:
        hashes = key_hashes(columns["key"])
        _put(hashes, how == BY_KEY, high, low)
        content = content_marks(columns, rows)
    by_digest = how == BY_DIGEST
    if by_digest.any():
        _put(content_hashes(columns, rows, HASH_BYTES), by_digest, high, low)
    return RowHashes(how, high, low, content)


def _how(columns: Mapping[str, pa.Array], rows: int) -> np.ndarray:
    how = np.full(rows, BY_DIGEST, np.uint8)
    positions = whole_positions(columns, rows)
    if positions is not None:
        how[positions] = BY_POSITION
    if "key" in columns:
        how[_is_valid(columns["key"])] = BY_KEY
    return how


def _put(hashes: np.ndarray, mask: np.ndarray, high: np.ndarray, low: np.ndarray) -> None:
    np.copyto(high, hashes[:, 0], where=mask)
    np.copyto(low, hashes[:, 1], where=mask)


def _is_valid(column: pa.Array) -> np.ndarray:
    valid: np.ndarray = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def hashes_of(stage: Path) -> Path:
    """Return the path of the file of hashes of a stage, whether or not the file exists."""
    return beside(stage, HASHES_ENDING)


def _head(stage: Path, size: int) -> bytes:
    return blake2b(f"{_FORM}\n{stage.name}\n{size}".encode(), digest_size=_HEAD_BYTES).digest()


class HashesWriter:
    """Writes the hashes of one stage next to it, while the stage is read for the first time."""

    def __init__(self, stage: Path, size: int) -> None:
        """Begin without a file; :meth:`add` creates the file when it is due.

        ``size`` is the size of the stage in bytes.
        """
        self._path = hashes_of(stage)
        self._rows = 0
        self._waiting: list[bytes] = [_head(stage, size)]
        self._file: FileIO | None = None
        self._is_over = False
        self._seconds = 0.0

    def add(self, piece: Slice) -> None:
        """Hash the next rows of the stage, and write the hashes to the file.

        The file is made only from HASHED_ROWS_MIN rows on. Beyond HASHED_ROWS_MAX rows or
        HASHING_SECONDS_MAX seconds no more rows are hashed. If the file cannot be written, the file
        is deleted and no more rows are hashed.
        """
        self._rows += piece.rows
        if self._is_over or self._rows > HASHED_ROWS_MAX or self._seconds > HASHING_SECONDS_MAX:
            self._is_over = True
            return
        began = time.monotonic()
        self._waiting.append(_packed(piece.first_row, row_hashes(piece.columns, piece.rows)))
        self._seconds += time.monotonic() - began
        if self._rows < HASHED_ROWS_MIN:
            return
        try:
            if self._file is None:
                self._file = FileIO(replace_private(self._path), "wb")
            self._write()
        except OSError as error:
            # The disk may be full. The stage itself is complete.
            _log.warning('outbox.hashes_left_out file=%s reason="%s"', self._path.name, error)
            self._is_over = True
            with suppress(OSError):
                self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        assert self._file is not None, "it was opened before"
        for block in self._waiting:
            if self._file.write(block) != len(block):
                raise OSError(f"{self._path.name} was not written whole")
        self._waiting.clear()

    def close(self) -> None:
        """Close the file, if one was opened."""
        if self._file is not None:
            self._file.close()


def _packed(first_row: int, hashes: RowHashes) -> bytes:
    words = [hashes.high, hashes.low, *([] if hashes.content is None else [hashes.content])]
    body = b"".join(each.astype("<u8").tobytes() for each in words)
    head = (first_row, len(hashes.how), int(hashes.content is not None))
    return _BLOCK.pack(*head, _checksum(head, body)) + body


def _checksum(head: tuple[int, int, int], body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(repr(head).encode()))


class StoredHashes:
    """Reads the stored hashes of one stage, in the order of its slices."""

    def __init__(self, stage: Path, size: int) -> None:
        """Open the file of hashes. ``size`` is the size of the stage in bytes.

        If the file does not exist or is of another stage, there are no hashes.
        """
        self._name = stage.name
        self._file: FileIO | None = None
        try:
            self._file = FileIO(os.open(hashes_of(stage), os.O_RDONLY | os.O_CLOEXEC), "rb")
            is_of_stage = self._file.read(_HEAD_BYTES) == _head(stage, size)
        except FileNotFoundError:
            return
        except OSError as error:
            self._give_up(0, error)
            return
        if not is_of_stage:
            self._give_up(0, "its head is not that of the stage")

    def of(self, piece: Slice) -> RowHashes | None:
        """Return the hashes of the next slice of the stage.

        Return ``None`` if the file does not have them. All later calls then return ``None`` too,
        and the caller hashes the rows. A damaged file is logged. The slices must be given in their
        order.
        """
        if self._file is None:
            return None
        try:
            return self._next(self._file, piece)
        except OSError as error:
            # The rows can be hashed again.
            self._give_up(piece.first_row, error)
            return None

    def _next(self, file: FileIO, piece: Slice) -> RowHashes | None:
        head = file.read(_BLOCK.size)
        if len(head) == _BLOCK.size:
            first_row, rows, has_content, crc = _BLOCK.unpack(head)
            if (first_row, rows, has_content) == (
                piece.first_row,
                piece.rows,
                int("key" in piece.columns),
            ):
                body = file.read((2 + has_content) * _WORD * rows)
                if (
                    len(body) == (2 + has_content) * _WORD * rows
                    and _checksum((first_row, rows, has_content), body) == crc
                ):
                    words = np.frombuffer(body, "<u8").reshape(2 + has_content, rows)
                    content = words[2] if has_content else None
                    return RowHashes(_how(piece.columns, rows), words[0], words[1], content)
        if head:
            self._give_up(piece.first_row, "a block of it is damaged")
        # If the file just ends, its writer had reached a limit.
        self.close()
        return None

    def _give_up(self, row: int, why: object) -> None:
        _log.warning(
            'outbox.hashes_unusable file=%s row=%d reason="%s": its rows are hashed again',
            self._name,
            row,
            why,
        )
        self.close()

    def close(self) -> None:
        """Close the file. No more hashes are read."""
        if self._file is not None:
            self._file.close()
            self._file = None
