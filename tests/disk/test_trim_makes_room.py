"""A full volume of 64 MiB whose rows were received, without a Delta state: ``queue trim`` opens it again at once."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
from disk_mounts import may_mount
from disk_service import QUEUE, Senders, landed

from srmp_spark.cli import run
from srmp_spark.client.api import QueueManagerClient
from srmp_spark.errors import ApiError
from srmp_spark.store.database.reserve import RESERVE_BYTES, RESERVE_FILE
from srmp_spark.testing.queue_manager import RunningQueueManager

ROUNDS = int(os.environ.get("SRMP_SPARK_ROOM_ROUNDS", "1"))
"""``make room`` does ten."""
BACK_SECONDS = 5.0
"""From the end of the command to the hundredth 200."""
WAIT_SECONDS = 60.0

pytestmark = pytest.mark.skipif(not may_mount, reason="only root may mount a small file system")


def until(running: RunningQueueManager, what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert running.process is not None
        assert running.process.poll() is None, f"it ended: {running.stderr()[-2000:]}"
        assert time.monotonic() < deadline, f"{what}\n{running.stderr()[-3000:]}"
        time.sleep(0.02)


def free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def refused_for(senders: Senders, seconds: float, since: float = 0.0) -> bool:
    """Return whether nothing was accepted in the last ``seconds``, which begin after ``since``."""
    now = time.time()
    last = max((each.at for each in senders.answers if each.status == 200), default=now)
    return now - max(last, since) > seconds


def receive_all(running: RunningQueueManager, client: QueueManagerClient) -> tuple[list[int], int]:
    """Receive what waits; return the numbers of the messages, and the last sequence."""
    found = client.queue(QUEUE)
    numbers = landed(running.api, after=found["received"], to=found["last"])
    mark_all(running, client, found)
    return numbers, found["last"]


def mark_all(
    running: RunningQueueManager, client: QueueManagerClient, found: dict[str, Any]
) -> None:
    client.register(QUEUE, "default", holder="a test", first=found["received"] + 1)
    client.received(QUEUE, "default", epoch=running.epoch, to=found["last"], holder="a test")
    client.release(QUEUE, "default", holder="a test")


@pytest.mark.timeout(180)
def test_trim_opens_a_full_volume_and_senders_go_on(
    volume: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RunningQueueManager(volume / "data", queues=[QUEUE]) as running:
        client = QueueManagerClient(running.api, retry_seconds=0)
        senders = Senders(running, 4, 60_000)
        pid, got, back = running.pid, list[int](), list[float]()
        try:
            for _ in range(ROUNDS):
                until(running, "it is full for good", lambda: refused_for(senders, 1.0))
                numbers, last = receive_all(running, client)
                got += numbers
                begun = time.time()
                until(
                    running,
                    "received rows alone make no room",
                    lambda begun=begun: refused_for(senders, 1.0, begun),
                )
                count = len(senders.accepted)
                with pytest.raises(ApiError) as closed:
                    client.send(QUEUE, [{"label": "no"}])
                assert "srmp-spark queue trim NAME --received" in closed.value.message
                told = int(closed.value.message.split()[1])
                assert abs(told - free(volume)) < 1024 * 1024, "the free bytes of now"
                capsys.readouterr()
                assert run(["queue", "trim", QUEUE, "--received", "--api", running.api]) == 0
                ended = time.time()
                (done,) = map(json.loads, capsys.readouterr().out.splitlines())
                assert done["first"] == last + 1, "every row was received"
                until(
                    running,
                    "it takes messages again",
                    lambda count=count: len(senders.accepted) >= count + 100,
                )
                back.append(time.time() - ended)
        finally:
            senders.stop()
        assert running.pid == pid, "it was never started again"
        numbers, _ = receive_all(running, client)
        assert sorted(got + numbers) == sorted(senders.accepted), "each once, none lost"
        assert {each.status for each in senders.answers} == {200, 503}
        assert max(back) < BACK_SECONDS, back
        # With nobody sending, the room is the volume's again, not only the database's.
        assert run(["queue", "trim", QUEUE, "--received", "--api", running.api]) == 0
        until(running, "the room is given back", lambda: free(volume) > 40 * 1024 * 1024)
        assert "Traceback" not in running.stderr()


@pytest.mark.timeout(120)
def test_trim_on_a_volume_that_another_program_filled_to_the_last_byte(volume: Path) -> None:
    with RunningQueueManager(volume / "data", queues=[QUEUE]) as running:
        client = QueueManagerClient(running.api, retry_seconds=0)
        senders = Senders(running, 2, 60_000)
        until(running, "rows are there", lambda: len(senders.accepted) >= 300)
        senders.stop()
        mark_all(running, client, client.queue(QUEUE))
        reserve = volume / "data" / RESERVE_FILE
        assert reserve.stat().st_blocks * 512 >= RESERVE_BYTES, "it takes room"
        _fill(volume / "ballast")
        until(running, "it is closed", lambda: _reason(running) == "disk-full")
        done = client.trim(QUEUE, received=True)
        assert free(volume) > 8 * 1024 * 1024, (done, running.stderr()[-2000:])
        until(running, "it is open", lambda: _reason(running) is None)
        assert "disk.reserve_used" in running.stderr()
        (volume / "ballast").unlink()
        until(running, "there is a reserve again", reserve.exists)
        _fill(volume / "ballast")
        running.kill9()
        running.restart()
        assert "data_dir.reserve_used" in running.stderr(), "a start has room, too"
        client.trim(QUEUE, before=10**9, force=True)
        assert "Traceback" not in running.stderr()


def _fill(ballast: Path) -> None:
    """Take the volume to the last byte."""
    with ballast.open("ab") as file:
        while left := free(ballast.parent):
            file.write(b"x" * min(left, 1 << 20))
            file.flush()


def _reason(running: RunningQueueManager) -> str | None:
    answer = requests.post(
        f"{running.api}/v1/queues/{QUEUE}/messages", json=[{"label": "a"}], timeout=20
    )
    return None if answer.status_code == 200 else str(answer.json()["error"]["code"])
