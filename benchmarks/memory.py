"""Measure how much memory the processes of a queue manager hold during a benchmark."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path

SAMPLE_S = 0.05


class Memory:
    """Records the memory of a process group every ``sample_s`` seconds, and the largest value.

    The memory is the sum of anonymous and shared memory. Pages of mapped files are left out,
    because the kernel takes them back whenever it wants.
    """

    def __init__(self, group: int, sample_s: float = SAMPLE_S) -> None:
        self.peak_mb = 0.0
        self.samples: list[tuple[float, float]] = []
        """Pairs (monotonic time, MB), one for each sample."""
        self._group = group
        self._sample_s = sample_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        found = members(self._group)
        looks = 0
        while True:
            looks += 1
            if looks % 20 == 0:
                found = members(self._group)
            now_mb = sum(map(_own_kb, found)) / 1024
            self.samples.append((time.monotonic(), now_mb))
            self.peak_mb = max(self.peak_mb, now_mb)
            if self._over.wait(self._sample_s):
                return

    def by_process(self) -> str:
        """Return the present memory of each process as text for people."""
        return (
            ", ".join(
                f"{_name(folder)} {_own_kb(folder) / 1024:.0f}" for folder in members(self._group)
            )
            + " MB"
        )


def members(group: int) -> list[Path]:
    """Return the folders in /proc of the processes of a group."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                if int((folder / "stat").read_text().rsplit(")", 1)[1].split()[2]) == group:
                    found.append(folder)
    return found


def _own_kb(folder: Path) -> int:
    """Return RssAnon and RssShmem of a process in KB; 0 if it has ended."""
    try:
        lines = (folder / "status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon:", "RssShmem:")))


def _name(folder: Path) -> str:
    """Return the last words of a process's command line, which name the helper processes."""
    try:
        words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return "ended"
    modules = [word.rsplit(".", 2)[-2:] for word in words if word.startswith("srmp_spark.")]
    return ".".join(modules[0]) if modules else words[0].rpartition("/")[2]
