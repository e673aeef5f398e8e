"""Reads memory and waiting time of a process and its descendants from the kernel."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path


class Patience:
    """A waiting time whose limit is extended by time in which the target had no core.

    The extension at most doubles the limit. The object does not wait; the caller asks it.
    """

    def __init__(self, seconds: float, pid: int = 0) -> None:
        """Begin a waiting time of ``seconds``.

        The processes that count are ``pid`` and its descendants. Without ``pid`` they are this
        process and its descendants, one of which is the target.
        """
        self._seconds = seconds
        self._pid = pid or os.getpid()
        self._began = time.monotonic()
        self._waits = waits_of(self._pid)

    @property
    def spent(self) -> float:
        """Return the seconds since the wait began."""
        return time.monotonic() - self._began

    @property
    def is_over(self) -> bool:
        """Return whether the extended limit is exceeded."""
        spent = self.spent
        if spent < self._seconds:
            return False
        return spent >= self._seconds + min(
            self._seconds, longest(self._waits, waits_of(self._pid))
        )


def memory_of(pid: int) -> int:
    """Return the sum of the resident bytes of a process and all its descendants.

    Memory that processes share counts once for each. A process that has ended counts 0.
    """
    return sum(_resident(each) for each in _family_of(pid))


def waits_of(pid: int) -> dict[int, float]:
    """Return the seconds in which threads could run but had no core, by process id.

    The seconds are since each process began, summed over its threads. The processes are ``pid`` and
    all its descendants.
    """
    return {each: waited_in_turn(each) for each in _family_of(pid)}


def longest(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """Return the longest increase between two results of :func:`waits_of`, in seconds.

    Only processes in both ``before`` and ``after`` count. Return 0 if there is none.
    """
    return max(
        (seconds - before[each] for each, seconds in after.items() if each in before), default=0.0
    )


def waited_in_turn(pid: int) -> float:
    """Return the seconds in which threads of a process could run but had no core, summed.

    Work that one thread passes to another waits for each of the threads, so the times add up.
    """
    return sum(_waited(each / "schedstat") for each in Path(f"/proc/{pid}/task").glob("*"))


def _waited(counters: Path) -> float:
    # Without a value the thread has ended, or this kernel does not count.
    try:
        return int(counters.read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


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
