"""A file system of a process' own, under a name that several use at once."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

CAP_SYS_ADMIN = 21
CLONE_NEWNS = 0x20000

SIZE_MIB = 64
"""Size of a small volume."""
may_mount = any(
    line.startswith("CapEff:") and int(line.split()[1], 16) >> CAP_SYS_ADMIN & 1
    for line in Path("/proc/self/status").read_text().splitlines()
)
"""Whether this process may mount file systems: root may."""


def mount_for_this_thread_alone(folder: Path) -> None:
    """An empty file system in memory at ``folder``, seen by this thread and the processes that it starts, and gone with them.

    Files hold the full names of others, so parts of one trace need the same name, and each its own content.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), f"unshare: {os.strerror(ctypes.get_errno())}")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "srmp-spark-test", str(folder)], check=True)
