"""Of which stored messages R_EndReceive was sent: what tells "ours" from "another reader's" after kill -9.

Theory of operation. A message that is gone when it is looked up is ours if its End was sent, and another reader's if it was not
(:mod:`srmp_spark.mqrr.pulled_states`). A process that is killed takes that knowledge along, unless it is written down before
each End. A sync for each would cost more than all else. So it is written and **not** synced: the kernel keeps it when the
process is killed. When the machine went down, the kernel has another boot identifier, the file is not believed, and everything
that is stored counts as sent: then a message that another reader took may be a row too, and none is lost.

A full disk takes a part of what is written. Then no End leaves, the part is cut off again, and if even that is refused the file
is made anew before the next End. Whatever is found at a start that is not mark after mark, each with its checksum, to the last
byte, is not believed either, none of it: one mark in the wrong place hides all that come after it.

    boot identifier, 36 bytes · "2" · line feed · for each message 16 bytes · their CRC-32, 4 bytes, little-endian
"""

from __future__ import annotations

import errno
import hashlib
import os
import uuid
import zlib
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from srmp_spark.private_files import create_private
from srmp_spark.queue_manager.puller.pulled import PulledKey

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
FORGET_BYTES = 1024 * 1024
"""A file that is longer begins anew as soon as nothing is stored."""
_BOOT_SIZE = 36
_HEADER_END = b"2\n"
"""Builds that wrote marks without a checksum had a line feed alone: neither believes a file of the other."""
_HEADER_SIZE = _BOOT_SIZE + len(_HEADER_END)
_MARK_SIZE = 16
_CHECKED_SIZE = _MARK_SIZE + 4


class SentMarks:
    """Of one subscription, from :meth:`open` on."""

    def __init__(self, path: Path, boot_id: str | None) -> None:
        self._path = path
        self._boot_id = boot_id
        self._file = -1
        self._size = 0
        """Bytes of whole marks, and the header."""
        self._is_torn = False
        """Behind ``_size`` there may be a part of a mark."""
        self.sent: frozenset[bytes] | None = None
        """What the last process sent; ``None``: nobody knows."""

    @classmethod
    def open(
        cls,
        path: Path,
        kept: Collection[PulledKey],
        *,
        unchanged: bool = True,
        boot_id: Path = BOOT_ID,
    ) -> SentMarks:
        """``kept``: what is stored. ``unchanged``: the data directory is the one that the last process had. Raises OSError."""
        try:
            boot = boot_id.read_text(encoding="ascii").strip()
        except OSError:  # no Linux: nothing is believed
            boot = None
        marks = cls(path, boot)
        if unchanged and boot is not None:
            marks.sent = _read(path, boot)
        # What nobody knows counts as sent for the process after us, too.
        marks._begin([key for key in kept if marks.was_sent(key)])
        return marks

    def was_sent(self, key: PulledKey) -> bool:
        """Whether End may have been sent by the last process."""
        return self.sent is None or _digest(key) in self.sent

    def sending(self, keys: Iterable[PulledKey]) -> None:
        """Before End of each is sent. Raises OSError, and then it must not be."""
        marks = b"".join(map(_mark, keys))
        if self._is_torn:
            self._replace(self._path.read_bytes()[: self._size] + marks)
            return
        try:
            _write(self._file, marks)
        except OSError:
            self._cut_off()
            raise
        self._size += len(marks)

    def _cut_off(self) -> None:
        """What was written of marks whose Ends are not sent."""
        self._is_torn = True
        with suppress(OSError):
            os.ftruncate(self._file, self._size)
            self._is_torn = False

    def nothing_is_kept(self) -> None:
        """Forget them, now and then."""
        if self._size > FORGET_BYTES:
            self._begin(())

    def close(self) -> None:
        """No End is sent any more."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _begin(self, keys: Iterable[PulledKey]) -> None:
        self._replace(_header(self._boot_id or "") + b"".join(map(_mark, keys)))

    def _replace(self, data: bytes) -> None:
        """Another file in place of the one that is there, which stays if this fails."""
        new = self._path.with_name(f".{self._path.name}.{uuid.uuid4().hex}")
        try:
            with os.fdopen(create_private(new), "wb") as whole:
                whole.write(data)
            file = os.open(new, os.O_WRONLY | os.O_APPEND)
        except OSError:
            with suppress(OSError):
                new.unlink()
            raise
        try:
            new.replace(self._path)
        except OSError:
            os.close(file)
            with suppress(OSError):
                new.unlink()
            raise
        self.close()
        self._file, self._size, self._is_torn = file, len(data), False


def _write(file: int, data: bytes) -> None:
    """All of it: a disk that is about to be full takes a part, and says so at the next write. Raises OSError."""
    while data:
        written = os.write(file, data)
        if not written:
            raise OSError(errno.ENOSPC, "nothing more is written")
        data = data[written:]


def _header(boot_id: str) -> bytes:
    return boot_id.ljust(_BOOT_SIZE).encode() + _HEADER_END


def _digest(key: PulledKey) -> bytes:
    return hashlib.blake2b(
        f"{key.lookup_id} {key.message_id}".encode(), digest_size=_MARK_SIZE
    ).digest()


def _checked(digest: bytes) -> bytes:
    return digest + zlib.crc32(digest).to_bytes(4, "little")


def _mark(key: PulledKey) -> bytes:
    return _checked(_digest(key))


def _read(path: Path, boot_id: str) -> frozenset[bytes] | None:
    """The digests of a file that is whole; ``None``: there is none."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    if data[:_HEADER_SIZE] != _header(boot_id) or (len(data) - _HEADER_SIZE) % _CHECKED_SIZE:
        return None
    marks = [data[at : at + _CHECKED_SIZE] for at in range(_HEADER_SIZE, len(data), _CHECKED_SIZE)]
    if any(mark != _checked(mark[:_MARK_SIZE]) for mark in marks):
        return None
    return frozenset(mark[:_MARK_SIZE] for mark in marks)
