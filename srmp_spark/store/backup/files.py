"""Copy files with their checksums."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from srmp_spark.private_files import create_private

PIECE_BYTES = 1 << 20
"""Bytes that are read at once. The progress is reported after each piece."""

OnBytes = Callable[[int], object]
"""Function that is called with the number of bytes that were copied or read since its last call."""


class Sums(NamedTuple):
    """Length and checksums of the bytes of a file."""

    bytes: int
    crc: int
    sha256: str


def copy_file(source: Path, target: Path, on_bytes: OnBytes) -> Sums:
    """Copy ``source`` into the new private file ``target``, sync it, and return the sums.

    The sums are those of the bytes that were read. A file that cannot be copied leaves no target.
    Raises :class:`FileNotFoundError` if ``source`` does not exist, and :class:`OSError`.
    """
    with source.open("rb", buffering=0) as read:
        descriptor = create_private(target)
        try:
            with os.fdopen(descriptor, "wb", buffering=0) as written:
                sums = _sums(_copied(read.read, written.write, on_bytes))
                os.fsync(written.fileno())
        except BaseException:
            target.unlink(missing_ok=True)
            raise
    return sums


def sums_of(path: Path, on_bytes: OnBytes) -> Sums:
    """Read a file from the disk, as far as the kernel allows, and return its sums.

    Raises :class:`OSError` if the file cannot be read.
    """
    with path.open("rb", buffering=0) as file:
        # The bytes in memory are those that were written. The disk must have them, too.
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return _sums(_copied(file.read, None, on_bytes))


def _copied(
    read: Callable[[int], bytes | None],
    write: Callable[[bytes], int | None] | None,
    on_bytes: OnBytes,
) -> Iterator[bytes]:
    while piece := read(PIECE_BYTES):
        left = memoryview(piece)
        while write is not None and left:
            left = left[write(left) or 0 :]  # type: ignore[arg-type]  # a raw file takes any buffer
        on_bytes(len(piece))
        yield piece


def _sums(pieces: Iterator[bytes]) -> Sums:
    length, crc, digest = 0, 0, hashlib.sha256()
    for piece in pieces:
        length += len(piece)
        crc = zlib.crc32(piece, crc)
        digest.update(piece)
    return Sums(length, crc, digest.hexdigest())
