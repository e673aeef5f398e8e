"""A queue manager process that lives, and `srmp-spark restore` beside it: nobody acknowledges a message that nobody has."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from peer_kit import Peer  # found through conftest.py

from srmp_spark.store.directory import DATABASE_FILE, SEGMENTS_DIRECTORY
from srmp_spark.store.restore.restore import restore
from srmp_spark.store.stored_rows import reading
from srmp_spark.store.stored_rows.log import Log
from srmp_spark.testing.queue_manager import RunningQueueManager

ORDERS = "private$/orders"


class Original:
    """The queue manager, its sender, and how many messages it has acknowledged."""

    def __init__(self, directory: Path) -> None:
        self.state, self.new = directory / "state", directory / "new"
        self.running = RunningQueueManager(
            directory / "data", queues=[ORDERS], state=self.state, state_interval=0.5
        )
        self.running.start()
        self.peer = Peer(self.running)
        self.acknowledged = 0

    def send(self, count: int) -> None:
        for _ in range(count):
            assert self.try_send()

    def try_send(self) -> bool:
        """Send one message; whether it was acknowledged."""
        try:
            found = self.peer.send(self.peer.message()).status == 200
        except OSError:  # the process is gone
            self.peer.close()
            return False
        self.acknowledged += found
        return found

    def is_idle(self) -> bool:
        """Everything is published, so nothing is written to the state any more."""
        table = self.state / "inbox"
        return (
            table.exists() and len(DeltaTable(str(table)).to_pyarrow_table()) == self.acknowledged
        )

    def command(self, *more: str) -> subprocess.CompletedProcess[str]:
        folders = ["--state", str(self.state), "--data-dir", str(self.new)]
        command = [sys.executable, "-m", "srmp_spark.cli", "restore", *folders, *more]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False
        )  # our own interpreter

    def restored(self) -> list[int]:
        """Sequences in the new data directory."""
        with Log(self.new / DATABASE_FILE, self.new / SEGMENTS_DIRECTORY) as log:
            (epoch, _) = log.epochs(ORDERS)
            end = log.bounds(ORDERS, epoch).end
            batches = list(reading.batches(log, self.running.guid, ORDERS, epoch, 0, end))
        return [row for batch in batches for row in batch["sequence"].to_pylist()]


@pytest.fixture
def original(tmp_path: Path) -> Iterator[Original]:
    made = Original(tmp_path)
    yield made
    made.peer.close()
    made.running.stop()


def test_an_idle_one_is_asked_refuses_and_goes_on_and_a_clean_stop_leaves_nothing_behind(
    original: Original,
) -> None:
    original.send(2)
    until(original.is_idle)
    refused = original.command()
    assert refused.returncode == 2
    assert "is alive: it answered" in refused.stderr
    assert refused.stdout == "", "nothing was restored"
    original.send(3)
    original.running.stop()
    restore(str(original.state), original.new, lambda _: None, answer_seconds=1.0)
    assert original.restored() == [1, 2, 3, 4, 5], "all that it acknowledged"


def test_with_force_it_ends_within_its_interval_and_names_what_it_accepted_meanwhile(
    original: Original,
) -> None:
    original.send(2)
    until(original.is_idle)
    began = time.monotonic()
    assert original.command("--force").returncode == 0
    process = original.running.process
    assert process is not None
    while process.poll() is None:
        original.try_send()
        assert time.monotonic() - began < 30.0, "it goes on beside the restored one"
        time.sleep(0.01)
    assert process.returncode == 6
    assert original.restored() == [1, 2]
    found = rf"state\.unpublished queue={re.escape(ORDERS)} .* first=(\d+) last=(\d+)"
    named = re.findall(found, original.running.stderr())
    # The last one is of when nothing was accepted any more
    first, last = named[-1] if named else (1, 0)
    accounted_for = [1, 2, *range(int(first), int(last) + 1)]
    assert accounted_for == list(range(1, original.acknowledged + 1)), (
        "each is there, or its place is named"
    )


def until(done: Callable[[], object], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)
