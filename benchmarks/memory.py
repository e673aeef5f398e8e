"""What the processes of a queue manager hold in memory while something is measured."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path

SAMPLE_S = 0.05


class Memory:
    """The largest sum of anonymous and shared memory of a process group, looked at every ``sample_s`` seconds.

    Pages of mapped files are left out: the kernel takes them back whenever it wants.
    """

    def __init__(self, group: int, sample_s: float = SAMPLE_S) -> None:
        self.peak_mb = 0.0
        self.samples: list[tuple[float, float]] = []
        """(monotonic time, MB), one a look."""
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
        """What each process holds now, for people."""
        return (
            ", ".join(
                f"{_name(folder)} {_own_kb(folder) / 1024:.0f}" for folder in members(self._group)
            )
            + " MB"
        )


def members(group: int) -> list[Path]:
    """The folders in /proc of the processes of a group."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                if int((folder / "stat").read_text().rsplit(")", 1)[1].split()[2]) == group:
                    found.append(folder)
    return found


def _own_kb(folder: Path) -> int:
    """RssAnon and RssShmem of a process; 0 if it has ended."""
    try:
        lines = (folder / "status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon:", "RssShmem:")))


def _name(folder: Path) -> str:
    """The last words of a process's command line tell the helper processes apart."""
    try:
        words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return "ended"
    modules = [word.rsplit(".", 2)[-2:] for word in words if word.startswith("srmp_spark.")]
    return ".".join(modules[0]) if modules else words[0].rpartition("/")[2]
