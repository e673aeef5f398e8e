"""Lock a file for one process.

A second process waits for a while, or gets an error that names the first one.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from pathlib import Path
from typing import IO

from srmp_spark.errors import StoreInUseError
from srmp_spark.private_files import append_private

LOCK_NOTE_WAIT_S = 1.0
"""Longest wait for the owner's note, in seconds.

The owner writes its process id right after taking the lock. A second process that finds no note in
this time reports "an unknown host".
"""
_LOOK_S = 0.01


def take_lock(file: Path, wait_s: float = 0.0) -> IO[str]:
    """Lock ``file``, write process id and host into it, and return the open file.

    The file is created if it is missing. The lock is held until the returned file is closed or the
    process ends, even by kill -9. ``wait_s`` is how long the call waits, in seconds, for a process
    that is about to end. Raises :class:`StoreInUseError`, which names the holder, if another
    process still holds the lock then. Raises :class:`OSError` if the file cannot be opened.
    """
    # The descriptor is not inherited: a child process must not keep the directory locked.
    lock = os.fdopen(append_private(file), "a+", encoding="utf-8")
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() < deadline:
                time.sleep(_LOOK_S)
                continue
            pid, host = _holder_of(file)
            lock.close()
            raise StoreInUseError(str(file.parent), pid, host) from None
    lock.truncate(0)
    lock.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}) + "\n")
    lock.flush()
    return lock


def owner_of(file: Path, locks: Path = Path("/proc/locks")) -> tuple[int, str] | None:
    """Return process id and host of the process that has locked ``file``; ``None`` if none has.

    The kernel's list is read, and the lock is not tried, so no other process can notice the call.
    The list has processes of this host and this process namespace alone. Raises :class:`OSError` if
    the list cannot be read.
    """
    try:
        note = json.loads(file.read_text())
        inode = file.stat().st_ino
        pid, host = int(note["pid"]), str(note["host"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    for line in locks.read_text().splitlines():
        # 1: FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF. The device differs from that of stat on
        # some file systems, so process and inode decide.
        fields = line.split()
        if (
            len(fields) > 5
            and fields[1] == "FLOCK"
            and fields[4] == str(pid)
            and fields[5].rpartition(":")[2] == str(inode)
        ):
            return pid, host
    return None


def _holder_of(file: Path) -> tuple[int, str]:
    deadline = time.monotonic() + LOCK_NOTE_WAIT_S
    while True:
        text = file.read_text()
        if text.endswith("\n"):
            note = json.loads(text)
            return note["pid"], note["host"]
        if time.monotonic() > deadline:
            return 0, "an unknown host"
        time.sleep(_LOOK_S)
