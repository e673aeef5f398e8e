"""kill -9 of a store-and-forward queue manager, and of its sender process alone, while a stream goes through it.

The sender loses replies, repeats and reorders; the destination loses answers. Every message arrives once and in order: the log
of what is forwarded and the outbox are two databases, and the cursor between them is what this attacks. A failure prints the
seed: SRMP_SPARK_KILL_SEED=… injects the same faults again; SRMP_SPARK_KILL_SECONDS=300 makes it long.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import time
from pathlib import Path

import pytest
from forwarding_kit import ELSEWHERE, LOOPBACK, Relayed, forward_queue
from kit import acknowledged, sender_of, until

from srmp_spark.store.outbox.tables.schema import DATABASE_FILE
from srmp_spark.testing.foreign.faults import Faults as PeerFaults
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.foreign.destination import Destination
from tests.kit.foreign.http import ReceiptsServer
from tests.kit.foreign.ledger import Ledger
from tests.kit.foreign.senders import Faults, ForeignQueueManager
from tests.kit.foreign.stream_sender import StreamSender
from tests.long_samples import lengths

SECONDS = lengths("SRMP_SPARK_KILL_SECONDS", short=6.0, long=15.0)
LONGEST = float(os.environ.get("SRMP_SPARK_KILL_SECONDS", "15"))
SEED = int(os.environ.get("SRMP_SPARK_KILL_SEED", str(random.randrange(10**6))))
QUEUES = ("private$/in", "private$/other")
AT_SENDER = Faults(lost_reply=0.03, duplicate=0.03, reorder=0.02)
AT_PEER = "drop-before=0.005,drop-after=0.01,503=0.01,receipt-twice=0.1"
DRAIN_S = 120.0
PROGRESS_S = 10.0
KILLS_MIN = 3
"""Fewer would prove little: a slow machine takes longer than :data:`SECONDS` for so many."""
BACKLOG_MAX = 200
"""Messages of a stream that wait for a receipt: on a busy machine it is down more than up, and what gathers in minutes would
not drain in time."""


async def application(sender: StreamSender, dice: random.Random, over: asyncio.Event) -> int:
    """Bursts, with pauses in which a stream may end; how many messages."""
    count = 0
    while not over.is_set():
        if sender.unreceipted > BACKLOG_MAX:
            await asyncio.sleep(0.1)
            continue
        for _ in range(dice.randrange(1, 20)):
            sender.enqueue(b"%s %06d" % (sender.queue.encode(), count))
            count += 1
        await asyncio.sleep(dice.uniform(0.05, 1.0))
    sender.close()
    return count


async def killer(
    running: RunningQueueManager,
    peer: Destination,
    dice: random.Random,
    seconds: float,
    over: asyncio.Event,
) -> dict[str, int]:
    """Kill it again and again, but not before something was forwarded: else nothing that counts is ever interrupted."""
    kills = {"all": 0, "sender": 0}
    until_ = time.monotonic() + seconds
    while sum(kills.values()) < KILLS_MIN or time.monotonic() < until_:
        arrived = sum(map(len, peer.queues.values()))
        await asyncio.to_thread(peer.wait, arrived + 1, PROGRESS_S)
        await asyncio.sleep(dice.choice((0.0, 0.05, 0.5)) * dice.uniform(0.5, 1.5))
        pid = sender_of(running) if dice.random() < 0.4 else None
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            kills["sender"] += 1
            continue
        await asyncio.to_thread(running.kill9)
        await asyncio.to_thread(running.restart)
        kills["all"] += 1
    over.set()
    return kills


async def drive(
    running: RunningQueueManager, peer: Destination, seconds: float
) -> tuple[Ledger, list[int], dict[str, int]]:
    """Two streams of one sender, while things die; returns when receipts of ours cover all of them."""
    dice, ledger, over = random.Random(SEED), Ledger(), asyncio.Event()
    async with ReceiptsServer() as receipts:
        manager: ForeignQueueManager = Relayed(
            endpoint=lambda: running.endpoint,
            ledger=ledger,
            receipts_url=receipts.url(),
            seed=SEED,
            to=peer.url,
        )
        receipts.on_receipt = manager.on_receipt
        senders = [StreamSender(manager, queue, faults=AT_SENDER) for queue in QUEUES]
        sending = [asyncio.create_task(sender.run()) for sender in senders]
        *counts, kills = await asyncio.gather(
            *(
                application(sender, random.Random(f"{SEED} {sender.queue}"), over)
                for sender in senders
            ),
            killer(running, peer, dice, seconds, over),
        )
        await asyncio.wait_for(asyncio.gather(*sending), DRAIN_S)
    return ledger, counts, kills  # type: ignore[return-value]  # the last one is the killer's


@pytest.mark.parametrize("seconds", SECONDS)
@pytest.mark.timeout(LONGEST + 3 * DRAIN_S + 60)
def test_every_message_that_is_forwarded_arrives_once_and_in_order_whatever_is_killed(
    tmp_path: Path, seconds: float
) -> None:
    with Destination(
        host=ELSEWHERE, queues=dict.fromkeys(QUEUES, True), faults=PeerFaults.parse(AT_PEER, SEED), receipt_wait=0.1,
        repeat_receipts=True, allow=["stream-guid"], record=tmp_path / "peer.jsonl",
    ) as peer:  # fmt: skip
        options = {
            "resend_table": "0.1,0.1,0.5",
            "retransmission_timeout": 0.2,
            "store_and_forward": "true",
        }
        allow = [LOOPBACK, f"http://{ELSEWHERE}:*"]
        with RunningQueueManager(tmp_path / "qm", allow_url=allow, **options) as running:  # type: ignore[arg-type]
            ledger, counts, kills = asyncio.run(drive(running, peer, seconds))
            assert ledger.violations == [], f"seed {SEED}"
            for queue in QUEUES:
                until(
                    lambda: forward_queue(running).get("waiting") == 0,
                    "all that was taken is outgoing",
                    DRAIN_S,
                )
                acknowledged(running, peer.url(queue), DRAIN_S)
            verdict = peer.verdict({
                queue: [b"%s %06d" % (queue.encode(), number) for number in range(count)]
                for queue, count in zip(QUEUES, counts, strict=True)
            })  # fmt: skip
            print(f"seed {SEED}: {kills} kills, {counts} messages, {dict(verdict.faults)}")
            assert verdict.ok, (
                f"seed {SEED}: {verdict.complaint()}\n{running.log.read_text()[-20_000:]}"
            )
            assert forward_queue(running)["last"] == sum(counts), "each was taken once"
            assert running.stop() == 0
            outbox = sqlite3.connect(tmp_path / "qm" / DATABASE_FILE)
            given_out = outbox.execute("SELECT destination, end FROM queues").fetchall()
            wanted = {peer.url(queue): count for queue, count in zip(QUEUES, counts, strict=True)}
            assert dict(given_out) == wanted, (
                "each became outgoing once; the peer would know a second one by its identifier"
            )
