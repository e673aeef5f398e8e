"""T5 of the reliability report: the power goes at every sync, and the disk keeps of the rest whatever it likes.

A session is traced with all its bytes; from the trace the disk is built anew as it may have been at that moment, and the real
store opens it. A kill -9 cannot show what is shown here: the page cache outlives the process. Short here; ``make powerloss``
takes 1,000 messages and every sync.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from disk_model import DAMAGES, Bytes, Change, Disk, Entry
from disk_sweep import (
    Part,
    Tally,
    continued,
    parts,
    power_losses,
    recovery,
    session,
    session_of,
    tell,
)
from disk_trace import Created, MadeFolder, Renamed, SyncBegins, SyncEnds, Wrote, needs_strace

FULL = os.environ.get("SRMP_SPARK_POWERLOSS") == "full"
SEED = int(os.environ.get("SRMP_SPARK_POWERLOSS_SEED", "1"))
MESSAGES = 1000 if FULL else 200
POINTS = {"in": 10, "seal": 3, "out": 4}
"""Syncs at which the short version stops."""
HOURS = 4 * 3600
KINDS = ("in", "seal", "out")
PARTS = parts(KINDS, 4 if FULL else 1)
TWICE = [part for part in PARTS if FULL or part.kind != "seal"]
"""Workloads that are struck twice; a session that seals takes longest, and the short version strikes it once."""


@needs_strace
@pytest.mark.timeout(HOURS if FULL else 120)
@pytest.mark.parametrize("part", PARTS, ids=str)
def test_nothing_acknowledged_is_lost_or_doubled(fast_path: Path, common: Path, part: Part) -> None:
    recorded = session_of(part, fast_path, MESSAGES, common)
    syncs = sum(isinstance(event, SyncEnds) for event in recorded.events)
    every = part.of if FULL else max(1, syncs // POINTS[part.kind])
    tally = Tally(f"power loss, {part}")
    power_losses(recorded, tally, every=every, offset=part.number if FULL else SEED, seed=SEED)
    tell(
        f"power loss, {part}, {MESSAGES} messages, seed {SEED}: {syncs} syncs × "
        f"{len(DAMAGES)} damages: {tally}"
    )
    assert tally.faults == [], f"{len(tally.faults)} of {tally.states}"
    assert tally.points >= (syncs // part.of if FULL else POINTS[part.kind])


@needs_strace
@pytest.mark.timeout(HOURS if FULL else 120)
@pytest.mark.parametrize("part", TWICE, ids=str)
def test_nor_by_a_second_power_loss_while_the_first_is_mended(
    fast_path: Path, common: Path, part: Part
) -> None:
    recorded = session_of(part, fast_path, MESSAGES, common)
    syncs = [n for n, event in enumerate(recorded.events) if isinstance(event, SyncEnds)]
    dice = random.Random(f"{SEED} {part}")
    tally = Tally(f"power loss in a recovery, {part}")
    for life, at in enumerate(sorted(dice.sample(syncs, part.share(30) if FULL else 1)), 1):
        disk = Disk(recorded.root)
        for event in recorded.events[:at]:
            disk.feed(event)
        world = disk.after(dice.choice(list(DAMAGES.values()))(disk.pending, dice))
        again = recovery(recorded, world, disk.said, fast_path, life)
        assert any(isinstance(event, SyncEnds) for event in again.events), "a start syncs something"
        power_losses(again, tally, every=1 if FULL else 12, seed=SEED)
    tell(f"power loss in a recovery, {part}, seed {SEED}: {tally}")
    assert tally.faults == []
    assert tally.points > 0


@needs_strace
@pytest.mark.timeout(HOURS if FULL else 120)
@pytest.mark.parametrize("part", TWICE, ids=str)
def test_killed_started_again_and_then_the_power_goes(
    fast_path: Path, common: Path, part: Part
) -> None:
    """What the killed process made and did not sync yet is in nobody's hands after it: whoever goes on must sync it too."""
    recorded = session_of(part, fast_path, MESSAGES, common)
    dice = random.Random(f"{SEED} {part}")
    tally = Tally(f"power loss after a kill, {part}")
    early = range(len(recorded.events) // 4)  # where folders and files are made
    for life, at in enumerate(sorted(dice.sample(early, part.share(20) if FULL else 1)), 1):
        again = continued(recorded, at, fast_path, MESSAGES // 4, life)
        power_losses(again, tally, every=7 if FULL else 50, seed=SEED + life, after=at)
    tell(f"power loss after a kill, {part}, seed {SEED}: {tally}")
    assert tally.faults == []
    assert tally.points > 0


@needs_strace
@pytest.mark.parametrize(
    ("kind", "sabotage"),
    [
        ("in", "synchronous=NORMAL"),
        ("out", "synchronous=NORMAL"),
        ("in", "no sync of folders"),
        ("out", "no sync of folders"),
        *([("seal", "no sync of folders"), ("seal", "no sync of files")] if FULL else []),
        ("in", "answer before sync"),
    ],
)
def test_the_suite_sees_what_is_broken_on_purpose(
    fast_path: Path, kind: str, sabotage: str
) -> None:
    recorded = session(kind, fast_path, 200 if FULL else 80, sabotage)
    tally = Tally()
    power_losses(recorded, tally, every=1 if FULL else 5, first_fault=True)
    tell(f"{kind}, {sabotage}: {tally}\n  {tally.faults}")
    assert tally.faults, "nobody saw it"


# --- the disk itself ------------------------------------------------------------------------------------------------------


def disk_with(*events: object) -> Disk:
    disk = Disk(Path("/r"))
    for event in events:
        disk.feed(event)  # type: ignore[arg-type]
    return disk


def names(disk: Disk, kept: list[Change]) -> dict[str, bytes | None]:
    return dict(disk.after(kept).paths())


WRITTEN = (Created("/r/new"), Wrote("/r/new", 0, b"x" * 10_000))


def test_a_file_that_is_synced_has_its_bytes_and_no_name() -> None:
    disk = disk_with(*WRITTEN, SyncBegins("/r/new", 1), SyncEnds("/r/new", 1))
    assert names(disk, []) == {}
    assert names(disk, disk.pending) == {"new": b"x" * 10_000}
    disk.feed(SyncBegins("/r", 2))
    disk.feed(SyncEnds("/r", 2))
    assert names(disk, []) == {"new": b"x" * 10_000}


def test_a_rename_without_a_sync_of_the_folder_may_be_undone() -> None:
    disk = disk_with(
        *WRITTEN,
        SyncBegins("/r/new", 1),
        SyncEnds("/r/new", 1),
        SyncBegins("/r", 2),
        SyncEnds("/r", 2),
    )
    disk.feed(Renamed("/r/new", "/r/old"))
    assert names(disk, []) == {"new": b"x" * 10_000}
    assert names(disk, disk.pending) == {"old": b"x" * 10_000}


def test_a_folder_without_a_name_takes_all_that_is_in_it_along() -> None:
    made = (MadeFolder("/r/a"), Created("/r/a/f"), Wrote("/r/a/f", None, b"1"))
    disk = disk_with(
        *made,
        SyncBegins("/r/a/f", 1),
        SyncEnds("/r/a/f", 1),
        SyncBegins("/r/a", 2),
        SyncEnds("/r/a", 2),
    )
    assert names(disk, []) == {}
    assert names(disk, [change for change in disk.pending if isinstance(change, Entry)]) == {
        "a": None,
        "a/f": b"1",
    }


def test_what_is_written_while_a_sync_runs_is_not_covered_by_it() -> None:
    disk = disk_with(
        *WRITTEN, SyncBegins("/r/new", 1), Wrote("/r/new", 0, b"late"), SyncEnds("/r/new", 1)
    )
    assert [change.data for change in disk.pending if isinstance(change, Bytes)] == [b"late"]


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_touches_only_what_is_not_synced(name: str) -> None:
    disk = disk_with(*WRITTEN)
    for path, number in (("/r/new", 1), ("/r", 2)):
        disk.feed(SyncBegins(path, number))
        disk.feed(SyncEnds(path, number))
    disk.feed(Wrote("/r/new", 8_000, b"y" * 4_000))
    seen = set()
    for seed in range(40):
        (data,) = names(disk, list(DAMAGES[name](disk.pending, random.Random(seed)))).values()
        assert data is not None
        assert data[:8_000] == b"x" * 8_000
        seen.add(data)
    torn = {
        "torn at 512 bytes": 10,
        "torn at 4 KiB": 3,
        "written in another order": 2,
        "a prefix survives": 2,
    }
    assert len(seen) >= torn.get(name, 1)
