"""What the kernel says of a process and of everything that it started: memory, and time without a core."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path


class Patience:
    """A time that somebody waits for the target. Time without a core is none of it, and at most doubles it."""

    def __init__(self, seconds: float, pid: int = 0) -> None:
        """``pid``: whose processes count; without it this process's, of which the target is one."""
        self._seconds = seconds
        self._pid = pid or os.getpid()
        self._began = time.monotonic()
        self._waits = waits_of(self._pid)

    @property
    def spent(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._began

    @property
    def is_over(self) -> bool:
        """Whether it is at an end."""
        spent = self.spent
        if spent < self._seconds:
            return False
        return spent >= self._seconds + min(
            self._seconds, longest(self._waits, waits_of(self._pid))
        )


def memory_of(pid: int) -> int:
    """Return the resident bytes of a process and of everything that it started."""
    return sum(_resident(each) for each in _family_of(pid))


def waits_of(pid: int) -> dict[int, float]:
    """Return, for a process and all that it started, the seconds in which its threads could run and had no core."""
    return {each: waited_in_turn(each) for each in _family_of(pid)}


def longest(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """Return the longest time without a core of one process between two answers of :func:`waits_of`."""
    return max(
        (seconds - before[each] for each, seconds in after.items() if each in before), default=0.0
    )


def waited_in_turn(pid: int) -> float:
    """Return the same seconds for all threads of a process together: what is handed from one to another waits for each."""
    return sum(_waited(each / "schedstat") for each in Path(f"/proc/{pid}/task").glob("*"))


def _waited(counters: Path) -> float:
    try:
        return int(counters.read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0  # it has ended, or this kernel does not count


def _family_of(pid: int) -> Iterator[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int(
                    (entry / "stat").read_text().rpartition(")")[2].split()[1]
                )
            except (OSError, IndexError):
                continue
    return _family(pid, parents)


def _family(pid: int, parents: dict[int, int]) -> Iterator[int]:
    yield pid
    for child, parent in parents.items():
        if parent == pid:
            yield from _family(child, parents)


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
    except OSError:
        return 0
