"""Sessions under trace, and every state of the disk that a kill or a power loss could have left, judged one by one."""

from __future__ import annotations

import fcntl
import os
import pickle
import random
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from disk_judge import judge
from disk_model import DAMAGES, Change, Disk, World, build, holds
from disk_mounts import may_mount
from disk_trace import Event, Said, SyncBegins, SyncEnds, record

HERE = Path(__file__).resolve().parent
KITS = [HERE, HERE.parent / "store", HERE.parent / "outbox", HERE.parents[1]]


def environment() -> dict[str, str]:
    """Of a session's process: it finds the kits and writes nothing of its own."""
    found = {key: value for key, value in os.environ.items() if not key.startswith("SRMP_SPARK_")}
    path = os.pathsep.join([*map(str, KITS), found.get("PYTHONPATH", "")])
    return found | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


def command(
    kind: str, root: Path, report: Path, messages: int, life: int = 0, sabotage: str = ""
) -> list[str]:
    return [
        sys.executable,
        str(HERE / "disk_session.py"),
        kind,
        str(root),
        str(report),
        str(messages),
        str(life),
        sabotage,
    ]


class Recorded(NamedTuple):
    """A session that was traced."""

    kind: str
    root: Path
    events: list[Event]
    start: Path | None
    """A copy of what was there before it; ``None``: nothing."""
    said: tuple[str, ...]
    """What had been promised before it."""

    def disk(self) -> Disk:
        """The disk before the first call."""
        if self.start is None:
            return Disk(self.root)
        build_copy(self.start, self.root)
        return Disk.holding(self.root)


def build_copy(source: Path, root: Path) -> None:
    shutil.rmtree(root)
    shutil.copytree(source, root)


class Part(NamedTuple):
    """A share of the points of a workload: full runs have several, so that all cores take part (pytest-xdist)."""

    kind: str
    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.kind}-{self.number}-of-{self.of}" if self.of > 1 else self.kind

    def share(self, count: int) -> int:
        """How many of ``count`` things are this part's, all parts together all of them."""
        return count * self.number // self.of - count * (self.number - 1) // self.of


def parts(kinds: Sequence[str], of: int) -> list[Part]:
    """All shares of all workloads; one each where a process cannot have a folder of its own under the name that all use."""
    of = of if may_mount else 1
    return [Part(kind, number, of) for kind in kinds for number in range(1, of + 1)]


def session(kind: str, folder: Path, messages: int, sabotage: str = "") -> Recorded:
    """Run a session from an empty folder to its end. The model must end with what the file system holds."""
    root, report = folder / "root", folder / "report"
    root.mkdir()
    line = command(kind, root, report, messages, sabotage=sabotage)
    events = record(line, root, report, folder / "trace", environment())
    report.unlink()
    recorded = Recorded(kind, root, events, None, ())
    _check_model(recorded)
    return recorded


def session_of(part: Part, folder: Path, messages: int, common: Path) -> Recorded:
    """The same, once for all parts of a workload: who comes first runs it and leaves the trace in ``common``."""
    if part.of == 1:
        return session(part.kind, folder, messages)
    with (common / f"{part.kind}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = common / f"{part.kind}-{messages}.trace"
        if not kept.exists():
            recorded = session(part.kind, folder, messages)
            kept.write_bytes(pickle.dumps((str(recorded.root), recorded.events)))
            return recorded
    there, events = pickle.loads(kept.read_bytes())
    root = folder / "root"
    assert there == str(root), (
        "files name their own folder in full: each process must see its own one under the same name"
    )
    root.mkdir()
    return Recorded(part.kind, root, events, None, ())


def recovery(
    before: Recorded, world: World, said: Sequence[str], folder: Path, life: int
) -> Recorded:
    """What a start does with ``world``, traced."""
    build(world, before.root)
    start = folder / "start"
    if start.exists():
        shutil.rmtree(start)
    shutil.copytree(before.root, start)
    report = folder / "report"
    line = command(before.kind, before.root, report, 0, life)
    events = record(line, before.root, report, folder / "trace", environment())
    report.unlink(missing_ok=True)
    return Recorded(before.kind, before.root, events, start, tuple(said))


def continued(before: Recorded, at: int, folder: Path, messages: int, life: int) -> Recorded:
    """The session was killed before its event ``at``; another one went on with all that the page cache had."""
    disk = before.disk()
    for event in before.events[:at]:
        disk.feed(event)
    build(disk.now, before.root)
    report = folder / "report"
    line = command(before.kind, before.root, report, messages, life)
    events = record(line, before.root, report, folder / "trace", environment())
    report.unlink()
    return Recorded(before.kind, before.root, [*before.events[:at], *events], None, ())


def _check_model(recorded: Recorded) -> None:
    disk = recorded.disk()
    for event in recorded.events:
        disk.feed(event)
    real = holds(recorded.root)
    modelled = {path: content for path, content in disk.now.paths() if not path.endswith("-shm")}
    assert modelled.keys() == real.keys(), (
        "the trace missed a call that made, renamed or removed a file"
    )
    for path, content in modelled.items():
        assert content == real[path], f"the trace missed a call that wrote {path}"


PROGRESS_SECONDS = 60.0
"""A line on stderr so often: a full run takes from minutes to an hour."""


def tell(line: str) -> None:
    """On stderr: what a process of pytest-xdist says on stdout is never seen."""
    print(line, file=sys.stderr, flush=True)


class Tally:
    """How many states were judged, and what was wrong."""

    def __init__(self, name: object = "") -> None:
        self._name = name
        self._next_line = time.monotonic() + PROGRESS_SECONDS
        self.points = 0
        self.states = 0
        self.faults: list[str] = []
        self._begun = time.monotonic()

    def judge(self, recorded: Recorded, world: World, said: Sequence[str], what: str) -> bool:
        """Whether every promise in ``said`` holds in ``world``."""
        build(world, recorded.root)
        self.states += 1
        fault = judge(recorded.kind, recorded.root, said)
        if fault:
            self.faults.append(f"{recorded.kind}: {what}: {fault}")
        if time.monotonic() > self._next_line:
            tell(f"{self._name}: {self} so far")
            self._next_line += PROGRESS_SECONDS
        return not fault

    def __str__(self) -> str:
        took = time.monotonic() - self._begun
        return (
            f"{self.points} points, {self.states} states, {len(self.faults)} faults, {took:.0f} s"
        )


class Stop:
    """Whether a point is among those that are looked at."""

    def __init__(self, every: int, offset: int = 0) -> None:
        self._every = every
        self._count = offset

    def __call__(self) -> bool:
        self._count += 1
        return self._count % self._every == 0


def power_losses(
    recorded: Recorded,
    tally: Tally,
    *,
    every: int = 1,
    offset: int = 0,
    seed: int = 0,
    first_fault: bool = False,
    after: int = 0,
) -> None:
    """At every sync (or every ``every``-th) the power goes, just before it returns: each damage to what is not synced.

    ``after``: the event from which on.
    """
    stop = Stop(every, offset)
    for number, disk in _points(recorded, (SyncEnds,)):
        if number < after or (number < len(recorded.events) and not stop()):
            continue
        tally.points += 1
        told = [*recorded.said, *disk.said]
        for name, damage in DAMAGES.items():
            dice = random.Random(f"{seed} {number} {name}")
            kept: list[Change] = list(damage(disk.pending, dice))
            what = (
                f"before event {number} (seed {seed}, {len(kept)} of "
                f"{len(disk.pending)} survive), {name}"
            )
            if not tally.judge(recorded, disk.after(kept), told, what) and first_fault:
                return
            if not disk.pending:
                break  # nothing to damage


def kills(recorded: Recorded, tally: Tally, *, every: int = 1, offset: int = 0) -> Iterator[Disk]:
    """After every call (or every ``every``-th) the process is gone and the page cache stays; yields the disk after judging."""
    stop = Stop(every, offset)
    changes = tuple(each for each in Event.__args__ if each not in (Said, SyncBegins, SyncEnds))
    for _, disk in _points(recorded, changes):
        if not stop():
            continue
        tally.points += 1
        said = [*recorded.said, *disk.said]
        tally.judge(recorded, disk.now, said, f"killed before change {disk.changes + 1}")
        yield disk


def _points(recorded: Recorded, kinds: tuple[type, ...]) -> Iterator[tuple[int, Disk]]:
    """(number of the event, the disk just before it) for each event of these kinds, and at the end."""
    disk = recorded.disk()
    for number, event in enumerate(recorded.events):
        if isinstance(event, kinds):
            yield number, disk
        disk.feed(event)
    yield len(recorded.events), disk
