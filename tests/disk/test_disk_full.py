"""T7 of the reliability report: no room at any write, and a small file system that fills up under load.

Our own trouble is 503 or no answer at all: 400 would make the sender delete its copy, 200 would be a lie.
"""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from disk_judge import judge
from disk_mounts import may_mount
from disk_service import QUEUE, Sender, Senders, failing, landed, stop
from disk_sweep import command, environment
from disk_trace import needs_strace

from srmp_spark.testing.queue_manager import RunningQueueManager

FULL = os.environ.get("SRMP_SPARK_CRASH") == "full"
ROUNDS = 30 if FULL else 2
SIZE_MIB = 64
BACK_SECONDS = 5.0
"""From the moment when there is room again to the next 200."""


needs_mount = pytest.mark.skipif(not may_mount, reason="only root may mount a small file system")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m", "srmp-spark-test", str(folder)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@needs_mount
@pytest.mark.timeout(3600 if FULL else 120)
def test_a_small_disk_fills_up_and_is_emptied(small_disk: Path) -> None:
    """Load fills it; what came is refused with 503, what is there is read; then somebody makes room. No restart."""
    ballast = small_disk / "ballast"
    with RunningQueueManager(small_disk / "data", queues=[QUEUE]) as running:
        senders = Senders(running, 4, 60_000)
        pid = running.pid
        try:
            for turn in range(ROUNDS):
                until(
                    lambda: takes_the_room(ballast, 14 * 1024 * 1024),
                    running,
                    "the ballast is there",
                )
                until(
                    lambda: senders.answers[-1].status == 503 if senders.answers else False,
                    running,
                    "it is refused",
                )
                numbers = landed(running.api)
                assert len(numbers) == len(set(numbers)), "reading goes on"
                time.sleep(0.3)
                refused = [answer for answer in senders.answers if answer.status != 200]
                assert {answer.status for answer in refused} == {503}, (
                    f"round {turn}: {running.stderr()[-2000:]}"
                )
                ballast.unlink()
                room = time.time()
                until(
                    lambda room=room: accepted_after(senders, room), running, "it is accepted again"
                )
                assert accepted_after(senders, room) - room < BACK_SECONDS
                if free(small_disk) < 32 * 1024 * 1024:
                    break  # full of messages
        finally:
            senders.stop()
        assert running.pid == pid
        assert running.process is not None
        assert running.process.poll() is None, "it was never started again"
        assert sorted(landed(running.api)) == sorted(senders.accepted), (
            "nothing lost, nothing doubled, nothing unexpected"
        )
        text = running.stderr()
    assert "disk.full" in text
    assert "Traceback" not in text


def takes_the_room(ballast: Path, left: int) -> bool:
    """All but ``left`` bytes, at once: the senders go on meanwhile, and may have taken more than that before it is done."""
    try:
        with ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, free(ballast.parent) - left)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        ballast.unlink()
        return False
    return True


def free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def accepted_after(senders: Senders, at: float) -> float:
    return next(
        (answer.at for answer in senders.answers if answer.status == 200 and answer.at > at), 0.0
    )


def until(condition: object, running: RunningQueueManager, what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():  # type: ignore[operator]
        assert running.process is not None
        assert running.process.poll() is None, f"it ended: {running.stderr()[-2000:]}"
        assert time.monotonic() < deadline, f"{what}\n{running.stderr()[-2000:]}"
        time.sleep(0.02)


@needs_strace
@pytest.mark.parametrize("when", ["125+"])  # a first start makes 101 of these calls in one thread
def test_no_room_in_the_middle_of_a_commit_is_answered_by_nobody(tmp_path: Path, when: str) -> None:
    """Somebody else was faster than the free-space gate: the process ends, and the next start has all that was answered."""
    data, log = tmp_path / "data", tmp_path / "trace"
    running = RunningQueueManager(
        data, queues=[QUEUE], prefix=failing(log, data / "store.db-wal", "pwrite64", when, "ENOSPC")
    )
    running.start()
    sender = Sender(running)
    refused = sender.send_until_refused(range(1, 200))
    assert sender.answers[-1].status in (None, 503)
    stop(running)
    with RunningQueueManager(data, queues=[QUEUE]) as again:
        sender = Sender(again)
        assert set(range(1, refused)) <= set(landed(again.api))
        assert [sender.send(number) for number in range(1, refused + 2)] == [200] * (refused + 1)
        assert sorted(landed(again.api)) == list(range(1, refused + 2))


@needs_strace
@pytest.mark.timeout(4 * 3600 if FULL else 120)
@pytest.mark.parametrize("kind", ["in", "seal", "out"] if FULL else ["in"])
def test_no_room_at_any_write(tmp_path: Path, kind: str) -> None:
    """The nth write of a thread fails, once and for ever: whatever the session makes of it, the next start is right."""
    states = 0
    faults = []
    for call, numbers in (
        ("pwrite64", range(1, 2_000, 1 if FULL else 197)),
        ("write", range(1, 200, 1 if FULL else 67)),
    ):
        for number in numbers:
            when = f"{number}{'+' if number % 2 else ''}"
            folder = tmp_path / f"{call}-{number}"
            (folder / "root").mkdir(parents=True)
            said, failed = session_without_room(kind, folder, call, when)
            if not failed:
                break  # no thread writes so often
            states += 1
            fault = judge(kind, folder / "root", said)
            if fault:
                faults.append(f"{kind} {call} {when}: {fault}")
    print(f"ENOSPC, {kind}: {states} sessions, {len(faults)} faults")
    assert faults == []
    assert states >= 2


def session_without_room(kind: str, folder: Path, call: str, when: str) -> tuple[list[str], bool]:
    """The promises made, and whether the call failed. The report may itself have had no room: then nothing was promised."""
    report, log = folder / "report", folder / "trace"
    line = [
        "strace",
        "-f",
        "-qqq",
        "-o",
        str(log),
        "-e",
        f"trace={call}",
        "-e",
        f"inject={call}:error=ENOSPC:when={when}",
    ]
    subprocess.run(
        [*line, *command(kind, folder / "root", report, 100)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    said = report.read_text().splitlines() if report.exists() else []
    return said, "(INJECTED)" in log.read_text()
