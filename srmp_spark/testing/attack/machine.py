"""What the kernel says of a process and of everything that it started: memory, and time without a core."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path


def memory_of(pid: int) -> int:
    """Return the resident bytes of a process and of everything that it started."""
    return sum(_resident(each) for each in _family_of(pid))


def waits_of(pid: int) -> dict[int, float]:
    """Return, for a process and all that it started, the seconds in which its main thread could run and had no core."""
    return {each: waited(each) for each in _family_of(pid)}


def longest(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """Return the longest time without a core of one process between two answers of :func:`waits_of`."""
    return max((seconds - before[each] for each, seconds in after.items() if each in before), default=0.0)


def waited(pid: int) -> float:
    """Return the seconds in which the main thread of a process could run and had no core."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0  # it has ended, or this kernel does not count


def _family_of(pid: int) -> Iterator[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
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
