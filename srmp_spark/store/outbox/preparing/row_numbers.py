"""Arrays with one number for each row of a batch, in memory or in a file.

A batch may have many more rows than fit into memory, and a commit must know about 50 bytes of each
row. Beyond :data:`~.limits.ROWS_AT_ONCE` rows such an array is a mapped file without a name. The
kernel writes the file out when memory is short, and deletes it with the process. The file's blocks
are reserved first, because a write into a mapped file on a full disk would end the process by a
signal.
"""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from srmp_spark.private_files import FOLDER_MODE
from srmp_spark.store.outbox.errors import NO_ROOM, BatchError
from srmp_spark.store.outbox.limits import ROWS_AT_ONCE


def is_large(rows: int) -> bool:
    """Return whether ``rows`` exceeds ROWS_AT_ONCE, so that the batch is worked on in pieces.

    The numbers about each row are then in files.
    """
    return rows > ROWS_AT_ONCE


def zeros(rows: int, dtype: type, folder: Path) -> np.ndarray:
    """Return an array of ``rows`` zeros, in a mapped file below ``folder`` if it is large.

    The file has no name, and is gone with the array. Raises :class:`BatchError` (503) if the disk
    is full.
    """
    if not is_large(rows):
        return np.zeros(rows, dtype)
    size = rows * np.dtype(dtype).itemsize
    folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            message = (
                f"the disk of the outbox has no room for {size} bytes about the "
                f"{rows} rows of a batch"
            )
            raise BatchError(503, NO_ROOM, message, "make room, then commit again") from error
        return np.frombuffer(mmap.mmap(file.fileno(), size), dtype)


def shares(rows: int) -> int:
    """Return the number of shares in which a batch of ``rows`` rows is worked on.

    A share has about :data:`~.limits.ROWS_AT_ONCE` rows.
    """
    return max(1, -(-rows // ROWS_AT_ONCE))


def blocks(rows: int) -> Iterator[slice]:
    """Yield slices of up to ROWS_AT_ONCE row numbers, which cover all ``rows``."""
    for start in range(0, rows, ROWS_AT_ONCE):
        yield slice(start, min(start + ROWS_AT_ONCE, rows))
