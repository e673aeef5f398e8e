"""A volume of 64 MiB that is filled and emptied under load, Delta state and all: it opens again, each time, by itself."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable
from disk_mounts import may_mount
from disk_service import QUEUE, Senders, landed

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.testing.queue_manager import RunningQueueManager

ROUNDS = int(os.environ.get("SRMP_SPARK_ROOM_ROUNDS", "4"))
"""``make room`` does ten."""
BACK_SECONDS = 5.0
"""From the moment when rows are purged to the hundredth 200. Rows that are received must be published first."""
WAIT_SECONDS = 60.0


class Filling:
    """A queue manager with its data and its Delta state on one small volume, and senders that never rest."""

    def __init__(self, running: RunningQueueManager, volume: Path) -> None:
        self.running = running
        self.volume = volume
        self.client = QueueManagerClient(running.api, retry_seconds=10)
        self.senders = Senders(running, 4, 60_000)
        self.purged = 0
        self.received: list[int] = []
        """Numbers of the messages that were received, in order."""
        self.back: dict[bool, list[float]] = {True: [], False: []}
        """How long it took to take messages again, after rows were received, and purged."""

    def until(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition():
            assert self.running.process is not None
            assert self.running.process.poll() is None, f"it ended: {self.running.stderr()[-2000:]}"
            assert time.monotonic() < deadline, f"{what}\n{self.running.stderr()[-3000:]}"
            time.sleep(0.02)

    def marks(self) -> tuple[int, int]:
        """What is received, and the last row."""
        found = next(each for each in self.client.status()["queues"] if each["name"] == QUEUE)
        return found["received"], found["last"]

    def fill(self) -> None:
        begun = time.time()
        self.until(
            "it is full",
            lambda: any(
                each.status == 503 and each.at > begun for each in self.senders.answers[-8:]
            ),
        )

    def empty(self, *, receive: bool) -> None:
        """All that waits is received, or purged, while the senders go on."""
        if receive:
            received, last = self.marks()
            read = landed(self.running.api, after=received, to=last)
            epoch = self.running.epoch
            self.client.register(QUEUE, "default", epoch=epoch, holder="a test", first=received + 1)
            self.client.received(QUEUE, "default", epoch=epoch, to=last, holder="a test")
            self.client.release(QUEUE, "default", holder="a test")
            self.received += read
        else:
            self.purged += self.client.purge(QUEUE)["purged"]
        emptied = time.time()
        count = len(self.senders.accepted)
        self.until("it takes messages again", lambda: len(self.senders.accepted) >= count + 100)
        self.back[receive].append(time.time() - emptied)


@pytest.mark.skipif(not may_mount, reason="only root may mount a small file system")
@pytest.mark.timeout(120 + 30 * ROUNDS)
def test_a_volume_is_filled_and_emptied_under_load(volume: Path) -> None:
    state = volume / "state"
    with RunningQueueManager(
        volume / "data", queues=[QUEUE], state=state, state_interval=1
    ) as running:
        filling = Filling(running, volume)
        pid = running.pid
        try:
            for turn in range(ROUNDS):
                filling.fill()
                filling.empty(receive=turn % 2 == 1)
        finally:
            filling.senders.stop()
        assert running.pid == pid, "it was never started again"
        accepted = filling.senders.accepted
        mark, last = filling.marks()
        waiting = landed(running.api, after=mark, to=last)
        assert {each.status for each in filling.senders.answers} == {200, 503}
        assert max(filling.back[False]) < BACK_SECONDS, filling.back
        got = Counter(filling.received) + Counter(waiting)
        assert max(got.values()) == 1, "no row is there twice"
        assert set(got) <= accepted, "no row is there that was not accepted"
        assert sum(got.values()) + filling.purged == len(accepted), (
            "each message was received, was purged or waits"
        )
        filling.until("all is published", lambda: published(state) >= last)
        rows = (
            DeltaTable(str(state / "inbox"))
            .to_pyarrow_table(columns=["uniquifier"])["uniquifier"]
            .to_pylist()
        )
        assert len(rows) == len(set(rows))
        assert set(got) <= set(rows) <= accepted, (
            "what was received is deleted after it was published"
        )
        text = running.stderr()
    purged, received = (max(filling.back[which]) for which in (False, True))
    print(
        f"{ROUNDS} rounds, {len(accepted)} messages; again after a purge: {purged:.2f} s "
        f"at most, received: {received:.2f} s"
    )
    assert "Traceback" not in text


def published(state: Path) -> int:
    table = DeltaTable(str(state / "inbox")).to_pyarrow_table(columns=["sequence"])
    return max(table["sequence"].to_pylist(), default=0)
