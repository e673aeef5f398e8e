"""T15 of the reliability report, live: a real ``serve`` whose wall clock is set again and again while messages come and wait.

The machine's clock is left alone: every Python process of the service reads ``time.time`` through a file that says how far it
is off. ``SRMP_SPARK_CLOCK_JUMPS=200`` is the long version (``make proof``).
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import requests

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.foreign.http import ReceiptsServer
from tests.kit.foreign.ledger import Ledger
from tests.kit.foreign.senders import ForeignQueueManager
from tests.kit.foreign.stream_sender import StreamSender

JUMPS = int(os.environ.get("SRMP_SPARK_CLOCK_JUMPS", "2"))
SEED = int(os.environ.get("SRMP_SPARK_CLOCK_SEED", "1"))
STEP_SECONDS = 0.3
YEAR_S = 365 * 86_400
KINDS_S = (1, -1, 3600, -3600, 86_400, -86_400, 10 * YEAR_S, -10 * YEAR_S)
RECEIPT_EARLIEST, RECEIPT_LATEST = 0.5 - 0.05, 10.0 + 0.5
"""[MC-MQSRM] 3.1.2.3, as the sender measures it: with its own clock and a busy machine in between."""
QUEUE = "private$/payments"
PATCH = """
import os, time
_path, _time, _time_ns = os.environ["CLOCK_IS_OFF_BY"], time.time, time.time_ns
def _off():
    try:
        with open(_path) as file:
            return float(file.read() or 0)
    except OSError:
        return 0.0
time.time = lambda: _time() + _off()
time.time_ns = lambda: _time_ns() + int(_off() * 1e9)
"""
ROOT = Path(__file__).resolve().parents[2]


class WallClock:
    """Of the service's processes."""

    def __init__(self, folder: Path) -> None:
        (folder / "patch").mkdir()
        (folder / "patch" / "sitecustomize.py").write_text(PATCH)
        self._file = folder / "off"
        self.environment = {
            "PYTHONPATH": f"{folder / 'patch'}:{ROOT}",
            "CLOCK_IS_OFF_BY": str(self._file),
        }
        self.set(0)

    def set(self, off: float) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(str(off))
        new.rename(self._file)


@pytest.fixture
def clock(tmp_path: Path) -> WallClock:
    return WallClock(tmp_path)


@pytest.fixture
def running(tmp_path: Path, clock: WallClock) -> Iterator[RunningQueueManager]:
    with RunningQueueManager(
        tmp_path / "data", queues=[f"{QUEUE}:transactional"], allow_url=["http://127.0.0.1:*"],
        environment=clock.environment, expired="refuse",
    ) as queue_manager:  # fmt: skip
        yield queue_manager


def offsets(dice: random.Random) -> Iterator[float]:
    yield 2**31 - 1 - time.time()  # 2038-01-19T03:14:07Z comes a moment later
    yield 0
    for _ in range(JUMPS):
        yield dice.choice(KINDS_S)
    yield 0


@pytest.mark.timeout(120 + JUMPS * 2)
def test_stream_receipts_keep_their_times_and_every_message_is_a_row(
    running: RunningQueueManager, clock: WallClock
) -> None:
    dice = random.Random(SEED)

    async def run() -> tuple[StreamSender, Ledger]:
        ledger = Ledger()
        async with ReceiptsServer() as receipts:
            manager = ForeignQueueManager(
                lambda: running.endpoint, ledger, receipts_url=receipts.url(), resend_table=(30.0,)
            )
            receipts.on_receipt = manager.on_receipt
            sender = StreamSender(manager, QUEUE, window=1000)
            sending = asyncio.create_task(sender.run())
            for number, off in enumerate(offsets(dice)):
                sender.enqueue(b"before %d" % number)
                await asyncio.sleep(STEP_SECONDS * dice.random())
                clock.set(off)
                sender.enqueue(b"after %d" % number)
                await asyncio.sleep(STEP_SECONDS + dice.random())
            sender.close()
            await asyncio.wait_for(sending, 30)
        return sender, ledger

    sender, ledger = asyncio.run(run())
    assert ledger.violations == []
    new = [receipt for receipt in sender.seen if receipt.oldest_acknowledged_at is not None]
    assert len(new) >= 3
    for receipt in new:
        assert RECEIPT_EARLIEST <= receipt.at - receipt.oldest_acknowledged_at <= RECEIPT_LATEST
        if receipt.at - receipt.oldest_acknowledged_at < 9.9:
            assert receipt.at - receipt.last_sent_at >= RECEIPT_EARLIEST
    [entry] = [each for each in QueueManagerClient(running.api).queues() if each["name"] == QUEUE]
    assert entry["last"] == ledger.sent == ledger.count("receipted_at")
    print(
        f"{JUMPS + 2} jumps, seed {SEED}: {ledger.sent} messages, {len(new)} receipts in their time"
    )


def waiting(api: str) -> int:
    found = QueueManagerClient(api).status()["outgoing"]
    return sum(each["queued"] + each["awaiting_stream_receipt"] for each in found)


def test_what_waits_to_be_sent_does_not_expire_by_a_slip_of_the_clock(
    running: RunningQueueManager, clock: WallClock
) -> None:
    """Set ahead by years, a message with an hour to live waits on, an alarm is told, and set right again it is as before."""
    with socket.socket() as nobody:  # a port that refuses
        nobody.bind(("127.0.0.1", 0))
        destination = f"http://127.0.0.1:{nobody.getsockname()[1]}/msmq/private$/in"
        base = f"{running.api}/v1/outbox/clock/1"
        live_until = pa.scalar(int((time.time() + 3600) * 1e6), pa.timestamp("us", "UTC"))
        rows = pa.table(
            {
                "body": [b"1", b"2"],
                "destination": [destination] * 2,
                "time_to_reach_queue": [live_until] * 2,
            }
        )
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        staged = requests.post(
            f"{base}/stage?partition=0&attempt=0", data=sink.getvalue().to_pybytes(), timeout=30
        ).json()
        assert requests.post(
            f"{base}/commit", json={"stages": [staged["stage"]]}, timeout=30
        ).json() == {"new": 2, "known": 0}
        assert waiting(running.api) == 2
        clock.set(10 * YEAR_S)
        deadline = time.monotonic() + 30
        while "expiry.paused" not in running.stderr():
            requests.post(
                f"{running.api}/v1/outgoing/{requests.utils.quote(destination, safe='')}/pause",
                timeout=30,
            )
            requests.post(
                f"{running.api}/v1/outgoing/{requests.utils.quote(destination, safe='')}/resume",
                timeout=30,
            )
            assert time.monotonic() < deadline, running.stderr()[-2000:]
            time.sleep(0.1)
        assert waiting(running.api) == 2
        clock.set(0)
        time.sleep(1.0)
        assert waiting(running.api) == 2
    assert "sender.dead" not in running.stderr()
