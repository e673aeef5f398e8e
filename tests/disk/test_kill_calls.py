"""T4 of the reliability report: kill -9 at every call that changes a file, and again at every such call of the start after it.

What a kill leaves is what the calls up to it made of the files. So a session is traced once with all its bytes, and each of its
prefixes is built and opened: every call, at the price of milliseconds. That this is what a kill leaves is shown by real ones:
strace sends SIGKILL at the nth call of a kind, counted for each thread. A sync changes nothing that a kill could take, so the
state before it and after it is one. Short here; ``make crash`` takes 1,000 messages and every call.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
from pathlib import Path

import pytest
from disk_judge import judge
from disk_sweep import Part, Tally, command, environment, kills, parts, recovery, session_of, tell
from disk_trace import Said, SyncBegins, SyncEnds, needs_strace

FULL = os.environ.get("SRMP_SPARK_CRASH") == "full"
SEED = int(os.environ.get("SRMP_SPARK_CRASH_SEED", "1"))
MESSAGES = 1000 if FULL else 200
POINTS = {"in": 60, "seal": 10, "out": 25}
"""Calls at which the short version stops."""
HOURS = 4 * 3600
KINDS = ("in", "seal", "out")
PARTS = parts(KINDS, 8 if FULL else 1)
STARTS = 40 if FULL else 1
"""Killed sessions of a workload whose next start is killed too, at each of its calls."""


@needs_strace
@pytest.mark.timeout(HOURS if FULL else 120)
@pytest.mark.parametrize("part", PARTS, ids=str)
def test_killed_at_every_call_and_again_while_it_starts(
    fast_path: Path, common: Path, part: Part
) -> None:
    recorded = session_of(part, fast_path, MESSAGES, common)
    changes = sum(not isinstance(event, Said | SyncBegins | SyncEnds) for event in recorded.events)
    every = part.of if FULL else max(1, changes // POINTS[part.kind])
    first, second = Tally(f"kill -9, {part}"), Tally(f"kill -9 in a start, {part}")
    states = [
        (disk.now.copy(), tuple(disk.said))
        for disk in kills(recorded, first, every=every, offset=part.number if FULL else SEED)
    ]
    tell(
        f"kill -9, {part}, {MESSAGES} messages: {changes} calls change a file, every "
        f"{every}. of them: {first}"
    )
    assert first.faults == []
    dice = random.Random(f"{SEED} {part}")
    for life, (world, said) in enumerate(
        dice.sample(states, min(len(states), part.share(STARTS))), 1
    ):
        again = recovery(recorded, world, said, fast_path, life)
        for _ in kills(again, second, every=1 if FULL else 8):
            pass
    tell(f"kill -9 in a start, {part}: {second}")
    assert second.faults == []
    assert first.points >= (changes // part.of if FULL else POINTS[part.kind])
    assert second.points > 0


CALLS = ("pwrite64", "write", "fdatasync", "fsync", "rename", "unlink", "ftruncate")


@needs_strace
@pytest.mark.timeout(HOURS if FULL else 120)
@pytest.mark.parametrize("kind", ["in", pytest.param("seal", marks=pytest.mark.long), "out"])
def test_really_killed_at_calls_of_every_kind(tmp_path: Path, kind: str) -> None:
    """The file system, the locks and the shared memory are real here; what was promised is in the report."""
    dice = random.Random(f"{SEED} {kind}")
    killed = 0
    faults = []
    for call in CALLS if FULL else dice.sample(CALLS, 4):
        numbers = range(1, 10_000) if FULL else dice.sample(range(1, 12), 1)
        for number in numbers:
            folder = tmp_path / f"{call}-{number}"
            (folder / "root").mkdir(parents=True)
            if not kill_at(kind, folder, call, number):
                break  # no thread has so many
            killed += 1
            said = (
                (folder / "report").read_text().splitlines() if (folder / "report").exists() else []
            )
            fault = judge(kind, folder / "root", [line for line in said if line])
            if fault:
                faults.append(f"{kind} {call} {number}: {fault}")
    tell(f"real kill -9, {kind}: {killed} kills, {len(faults)} faults")
    assert faults == []
    assert killed >= 2


def kill_at(kind: str, folder: Path, call: str, number: int) -> bool:
    """Run a session that is killed when a thread makes its ``number``-th ``call``; whether that came to pass."""
    inject = f"inject={call}:signal=KILL:when={number}"
    line = ["strace", "-f", "-qqq", "-o", os.devnull, "-e", f"trace={call}", "-e", inject]
    done = subprocess.run(
        [*line, *command(kind, folder / "root", folder / "report", MESSAGES)],
        env=environment(), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    if done.returncode == 0:
        return False
    assert done.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL), done.stderr[-2000:]
    return True
