"""Record for which stored messages R_EndReceive was sent. The record survives kill -9.

Theory of operation. "End" is the call R_EndReceive, which removes a locked message from its remote
queue. A stored message whose original is gone at a look-up belongs to this queue manager if its End
was sent. It belongs to another reader if not (:mod:`srmp_spark.mqrr.pulled_states`). A process that
is killed would lose that knowledge, so a mark is written before each End. A sync for each mark
would cost more than everything else. So marks are written and **not** synced: the kernel keeps them
when the process is killed. After a restart of the machine the kernel has another boot identifier.
Then the file is not used, and every stored message counts as sent. In that case a message that
another reader took may become a row too, and no message is lost.

A full disk may accept only a part of a write. Then no End is sent, and the part is cut off again.
If that fails too, the file is written anew before the next End. At a start, the whole file must be
complete marks with correct checksums, to the last byte. Otherwise no mark of the file is used,
because one misplaced mark hides all marks after it.

    boot identifier, 36 bytes · "2" · line feed · for each message 16 bytes
    · their CRC-32, 4 bytes, little-endian
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
from srmp_spark.queue_manager.puller.gateway_side.pulled import PulledKey

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
FORGET_BYTES = 1024 * 1024
"""Size in bytes above which the file is begun anew as soon as no message is stored."""
_BOOT_SIZE = 36
_HEADER_END = b"2\n"
"""End of the header.

Builds without checksums wrote a line feed alone, so neither build uses a file of the other.
"""
_HEADER_SIZE = _BOOT_SIZE + len(_HEADER_END)
_MARK_SIZE = 16
_CHECKED_SIZE = _MARK_SIZE + 4


class SentMarks:
    """The file of marks of one subscription. :meth:`open` creates an instance."""

    def __init__(self, path: Path, boot_id: str | None) -> None:
        self._path = path
        self._boot_id = boot_id
        self._file = -1
        self._size = 0
        """Bytes of the file's header and of all whole marks."""
        self._is_torn = False
        """Whether the file may have a part of a mark after ``_size``."""
        self.sent: frozenset[bytes] | None = None
        """Digests of the messages for which the last process may have sent End. ``None``: unknown.
        """

    @classmethod
    def open(
        cls,
        path: Path,
        kept: Collection[PulledKey],
        *,
        unchanged: bool = True,
        boot_id: Path = BOOT_ID,
    ) -> SentMarks:
        """Read the marks of the last process, begin a new file, and return its instance.

        ``kept`` are the keys of the stored messages; marks of others are dropped. The old marks are
        used only if ``unchanged`` is set, because the data directory is the one that the last
        process used, and if the machine has not restarted since. ``boot_id`` is the file with the
        machine's boot identifier. Without usable marks every stored message counts as sent
        (:meth:`was_sent`). Raises :class:`OSError` if the file cannot be read or written.
        """
        try:
            boot = boot_id.read_text(encoding="ascii").strip()
        except OSError:
            # Other systems than Linux have no boot identifier, so no file is used.
            boot = None
        marks = cls(path, boot)
        if unchanged and boot is not None:
            marks.sent = _read(path, boot)
        # An unknown message counts as sent for the next process, too.
        marks._begin([key for key in kept if marks.was_sent(key)])
        return marks

    def was_sent(self, key: PulledKey) -> bool:
        """Return whether the last process may have sent End for this message.

        The result is True if that is unknown.
        """
        return self.sent is None or _digest(key) in self.sent

    def sending(self, keys: Iterable[PulledKey]) -> None:
        """Append marks that End of these messages is about to be sent. The marks are not synced.

        Raises :class:`OSError` if that fails. Then End must not be sent.
        """
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
        """Cut off the part of the marks that was written, because their Ends are not sent.

        If that fails, the file counts as torn, and the next :meth:`sending` writes it anew.
        """
        self._is_torn = True
        with suppress(OSError):
            os.ftruncate(self._file, self._size)
            self._is_torn = False

    def nothing_is_kept(self) -> None:
        """Begin the file anew without marks if the file is longer than FORGET_BYTES.

        Call this only while no message is stored. Raises :class:`OSError` if that fails.
        """
        if self._size > FORGET_BYTES:
            self._begin(())

    def close(self) -> None:
        """Close the file. No mark may be written, and so no End be sent, afterwards."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _begin(self, keys: Iterable[PulledKey]) -> None:
        self._replace(_header(self._boot_id or "") + b"".join(map(_mark, keys)))

    def _replace(self, data: bytes) -> None:
        """Replace the file by one that holds ``data``.

        If that fails, the old file stays. Raises :class:`OSError`.
        """
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
    """Write all of ``data`` to the file descriptor. Raises :class:`OSError` if that fails.

    A disk that is almost full accepts a part, and reports the error at the next write.
    """
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
    """Return the digests of all marks in the file ``path`` as a set.

    Return ``None`` if there is no file, it is of another boot than ``boot_id``, or it is damaged.
    Raises :class:`OSError` if it cannot be read.
    """
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
