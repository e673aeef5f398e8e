"""kill -9 of the queue manager, and of its sender process alone, at random moments, while rows go out and receipts come in.

Short in CI; ``make kill-out SECONDS=300`` is the long version. A failure prints the seed: SRMP_SPARK_KILL_SEED=… injects the
same faults again (the moments of the kills depend on the machine and are only similar).
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
import requests
from kit import acknowledged, arrow, bodies, post, rows_to, sender_of
from kit import until as wait_until

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.testing.foreign.faults import Faults
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.foreign.destination import Destination
from tests.long_samples import lengths

SECONDS = lengths("SRMP_SPARK_KILL_SECONDS", short=6.0, long=15.0)
LONGEST = float(os.environ.get("SRMP_SPARK_KILL_SECONDS", "15"))
SEED = int(os.environ.get("SRMP_SPARK_KILL_SEED", str(random.randrange(10**6))))
QUEUE = "private$/in"
FAILED, HELD = "private$/failed", "private$/held"
"""Where dead letters go, those of one batch after the other in turns; HELD is paused until the end."""
REFUSED_OF = 7
"""The second peer refuses one row of so many."""
FAULTS = (
    "drop-before=0.005,drop-after=0.01,drop-middle=0.005,503=0.01,500=0.005,receipt-t"
    "wice=0.2,receipt-late=0.2:0.2"
)
BATCH = 40
AHEAD = 20 * BATCH
"""Rows the driver may be ahead of a destination: one row in thirty meets a fault and waits for the resend table, so that a fast
machine would commit in twenty seconds what takes minutes to send."""
PROGRESS_S = 10.0
PEER_S = 0.5
"""The driver looks so often whether it is over."""
DRAIN_S = 120.0
KILLS_MIN = 3
"""Fewer would prove little: a slow machine takes longer than :data:`SECONDS` for so many."""


@pytest.mark.parametrize("seconds", SECONDS)
@pytest.mark.timeout(LONGEST + 3 * DRAIN_S + 60)
def test_every_committed_row_arrives_once_and_in_order_whatever_is_killed(
    tmp_path: Path, seconds: float
) -> None:
    """What one peer refuses is once a row of the queue that its batch names for dead letters; a paused one holds its own."""
    dice = random.Random(SEED)
    peers = [
        Destination(
            queues={QUEUE: True}, faults=Faults.parse(FAULTS, SEED + n), receipt_wait=0.1, repeat_receipts=True,
            refuse=(lambda message: is_refused(message.body)) if n else None,
            allow={"after-400"} if n else (),  # a kill before the refusal was stored
        )
        for n in range(2)
    ]  # fmt: skip
    with peers[0], peers[1]:
        urls = [peer.url(QUEUE) for peer in peers]
        queues = [f"{name}:transactional" for name in (FAILED, HELD)]
        running = RunningQueueManager(
            tmp_path / "qm", queues=queues, resend_table="0.1,0.1,0.5", retransmission_timeout=0.2
        )
        with running:
            post(f"{running.api}/v1/queues/private%24%2Fheld/pause")
            until = time.monotonic() + seconds
            writer = Writer(running.api, peers)
            writer.start()
            kills = {"all": 0, "sender": 0}
            while sum(kills.values()) < KILLS_MIN or time.monotonic() < until:
                writer.wait_for_progress()
                time.sleep(dice.uniform(0.0, 1.5))
                if dice.random() < 0.3:
                    pid = sender_of(running)
                    if pid is not None:
                        os.kill(pid, signal.SIGKILL)
                        kills["sender"] += 1
                else:
                    running.kill9()
                    running.restart()
                    kills["all"] += 1
            writer.finish()
            assert writer.failure is None, f"seed {SEED}: {writer.failure}"
            print(f"seed {SEED}: {kills} kills, {writer.batches} batches of {BATCH}")
            for n, (peer, url) in enumerate(zip(peers, urls, strict=True)):
                acknowledged(running, url, DRAIN_S)
                wanted = [
                    row for row in bodies(0, writer.batches * BATCH) if not (n and is_refused(row))
                ]
                verdict = peer.verdict({QUEUE: wanted})
                assert verdict.ok, f"seed {SEED}: {verdict.complaint()}"
            for turn, name in enumerate((FAILED, HELD)):
                batches = range(turn, writer.batches, 2)
                refused = [
                    row
                    for batch in batches
                    for row in bodies(batch * BATCH, (batch + 1) * BATCH)
                    if is_refused(row)
                ]
                if name == HELD:
                    assert letters(running, HELD) == []
                    post(f"{running.api}/v1/queues/private%24%2Fheld/resume")
                wait_until(
                    lambda name=name, refused=refused: len(letters(running, name)) >= len(refused),
                    f"{name}: all",
                )
                assert letters(running, name) == refused, f"seed {SEED}: each once, in order"
            assert running.stop() == 0


def is_refused(body: bytes) -> bool:
    return int(body.split()[1]) % REFUSED_OF == 3


def letters(running: RunningQueueManager, name: str) -> list[bytes]:
    """What is in a queue of dead letters."""
    client = QueueManagerClient(running.api, retry_seconds=10)
    bounds = client.range(name)
    stream = client.rows(name, epoch=bounds.epoch, after=0, to=bounds.end)
    found: list[bytes] = pa.ipc.open_stream(stream.read()).read_all().column("body").to_pylist()
    return found


class Writer(threading.Thread):
    """A driver that commits one batch after another to all destinations, and repeats whatever broke off."""

    def __init__(self, api: str, peers: list[Destination]) -> None:
        super().__init__(daemon=True)
        self.api = api
        self.peers = peers
        self._over = threading.Event()
        self.batches = 0
        self.failure: str | None = None

    def wait_for_progress(self) -> None:
        """Kills in a row would prove little: a batch must have come through, or not for a while."""
        before, end = self.batches, time.monotonic() + PROGRESS_S
        while self.batches == before and time.monotonic() < end and self.failure is None:
            time.sleep(0.02)

    def finish(self) -> None:
        """Let it end with the batch that it is at."""
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.is_set():
            start = self.batches * BATCH
            for peer in self.peers:
                while not (self._over.is_set() or peer.wait(start - AHEAD, PEER_S)):
                    pass
            rows = [
                row
                for peer in self.peers
                for row in rows_to(peer.url(QUEUE), bodies(start, start + BATCH))
            ]
            content = arrow(rows, {"srmp.dead_letter_queue": (FAILED, HELD)[self.batches % 2]})
            if not self._commit(content, len(rows)):
                return
            self.batches += 1

    def _commit(self, content: bytes, count: int) -> bool:
        base = f"{self.api}/v1/outbox/app/{self.batches}"
        end = time.monotonic() + DRAIN_S
        while True:
            try:
                staged = requests.post(
                    f"{base}/stage?partition=0&attempt={random.random()}", data=content, timeout=30
                )
                if staged.status_code == 200:
                    answer = requests.post(
                        f"{base}/commit", json={"stages": [staged.json()["stage"]]}, timeout=30
                    )
                    if answer.status_code == 200:
                        told = answer.json()
                        if (told["new"], told["known"]) in ((count, 0), (0, count)):
                            return True
                        self.failure = f"batch {self.batches}: {told}"
                        return False
                    staged = answer
                if staged.status_code not in (503, 404):
                    self.failure = f"batch {self.batches}: {staged.status_code} {staged.text}"
                    return False
            except requests.RequestException:
                pass  # it was killed
            if time.monotonic() > end:
                self.failure = f"batch {self.batches} could not be committed in {DRAIN_S} s"
                return False
            time.sleep(0.1)
