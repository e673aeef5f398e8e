"""Of which stored messages R_EndReceive was sent: what tells "ours" from "another reader's" after kill -9.

Theory of operation. A message that is gone when it is looked up is ours if its End was sent, and another reader's if it was not
(:mod:`srmp_spark.mqrr.pulled_states`). A process that is killed takes that knowledge along, unless it is written down before
each End. A sync for each would cost more than all else. So it is written and **not** synced: the kernel keeps it when the
process is killed. When the machine went down, the kernel has another boot identifier, the file is not believed, and everything
that is stored counts as sent: then a message that another reader took may be a row too, and none is lost.

    boot identifier, 36 bytes · line feed · 16 bytes for each message
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Collection, Iterable
from pathlib import Path

from srmp_spark.queue_manager.puller.pulled import PulledKey

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
FORGET_BYTES = 1024 * 1024
"""A file that is longer begins anew as soon as nothing is stored."""
_HEADER_SIZE = 37
_MARK_SIZE = 16


class SentMarks:
    """Of one subscription, from :meth:`open` on."""

    def __init__(self, path: Path, boot_id: str | None) -> None:
        self._path = path
        self._boot_id = boot_id
        self._file = -1
        self._size = 0
        self.sent: frozenset[bytes] | None = None
        """What the last process sent; ``None``: nobody knows."""

    @classmethod
    def open(cls, path: Path, kept: Collection[PulledKey], *, unchanged: bool = True, boot_id: Path = BOOT_ID) -> SentMarks:
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
        return self.sent is None or _mark(key) in self.sent

    def sending(self, keys: Iterable[PulledKey]) -> None:
        """Before End of each is sent. Raises OSError, and then it must not be."""
        data = b"".join(map(_mark, keys))
        if os.write(self._file, data) != len(data):
            raise OSError(f"{self._path}: a short write")
        self._size += len(data)

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
        self.close()
        data = (self._boot_id or "").ljust(_HEADER_SIZE - 1).encode() + b"\n" + b"".join(map(_mark, keys))
        new = self._path.with_name(f".{self._path.name}.{uuid.uuid4().hex}")
        new.write_bytes(data)
        new.replace(self._path)
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        self._size = len(data)


def _mark(key: PulledKey) -> bytes:
    return hashlib.blake2b(f"{key.lookup_id} {key.message_id}".encode(), digest_size=_MARK_SIZE).digest()


def _read(path: Path, boot_id: str) -> frozenset[bytes] | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    if data[:_HEADER_SIZE] != boot_id.ljust(_HEADER_SIZE - 1).encode() + b"\n":
        return None
    return frozenset(data[at : at + _MARK_SIZE] for at in range(_HEADER_SIZE, len(data) - _MARK_SIZE + 1, _MARK_SIZE))
