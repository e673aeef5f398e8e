"""The first half of the demo: SRMP messages over real HTTP into a Delta table, while what carries them is killed.

A sender written from the document alone sends regular, durable and stream messages, and loses replies, repeats, reorders and
sends late copies on the way. The queue manager is killed with -9 and restarted twice, the Spark query once. At the end the
sender's ledger is held against the Delta table; nothing else knows how many rows there should be.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import requests

from srmp_spark.testing.foreign.messages import Dialect, ForeignReceipt
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.demo.console import Console
from tests.kit.demo.query import Query
from tests.kit.demo.results import InResult
from tests.kit.foreign.http import ReceiptsServer
from tests.kit.foreign.ledger import Ledger
from tests.kit.foreign.senders import Faults, ForeignQueueManager, MessageSender
from tests.kit.foreign.stream_sender import StreamSender
from tests.kit.foreign.verdict import judge

ORDERS, PAYMENTS, SHIPMENTS = "private$/orders", "private$/payments", "private$/shipments"
QUEUES = (ORDERS, f"{PAYMENTS}:transactional", f"{SHIPMENTS}:transactional")
FAULTS = Faults(lost_reply=0.03, duplicate=0.05, reorder=0.02, ghost=0.03)
STREAM_WINDOW = 25
"""Messages of a stream that are under way at once."""
MESSAGES_A_SECOND = 30.0
"""Regular and durable ones; the streams go as fast as their receipts come."""
FIRST_SHARE = 0.05
"""So much is sent before the first rows have landed: a query that was never seen to work proves nothing when it is killed."""
SPARK_START_MAX = 180.0
"""Seconds until the query must hold its lease, and until the first rows must be in the table: 12 and 10 on a quiet machine."""
TRAFFIC_MAX = 180.0
"""Seconds until every message must be acknowledged: 35 on a quiet machine."""
LANDING_STALL_MAX = 180.0
"""Seconds without a new row, while rows are missing, after which nothing more is expected."""
PLAN = ((0.2, "queue manager"), (0.45, "Spark query"), (0.7, "queue manager"))
"""At which share of acknowledged messages each is killed: always with traffic before it and after it."""


class WayIn:
    """One run, with a queue manager that runs and a query that does not yet."""

    def __init__(
        self,
        directory: Path,
        queue_manager: RunningQueueManager,
        query: Query,
        *,
        messages: int,
        seed: int,
        console: Console,
    ) -> None:
        self.messages = messages
        self.seed = seed
        self.console = console
        self.say = console.say
        self.ledger = Ledger(path=directory / "ledger.jsonl")
        self.queue_manager = queue_manager
        self.query = query
        self.kills: list[str] = []

    def run(self) -> InResult:
        """Start the query, send, kill, wait, judge."""
        try:
            self.query.start()
            self.console.wait_for(self.query_state)
            self.wait_for_query()
            asyncio.run(self.traffic())
            self.wait_for_landing()
            return InResult(
                self.messages,
                self.ledger,
                self.kills,
                len(PLAN),
                judge(self.ledger, self.query.rows()),
            )
        finally:
            self.console.wait_for("the Spark query ends")
            self.ledger.close()

    def status(self) -> dict[str, dict[str, Any]]:
        """``GET /v1/status``, the queues by name."""
        answer = requests.get(f"{self.queue_manager.api}/v1/status", timeout=5)
        answer.raise_for_status()
        return {queue["name"]: queue for queue in answer.json()["queues"]}

    def holders(self) -> int:
        """How many queues have a receiver: the query is ready when all three do."""
        return sum(
            any(consumer["holder"] for consumer in queue["consumers"])
            for queue in self.status().values()
        )

    def query_state(self) -> str:
        """Say what the Spark query does now, for whoever waits for it."""
        name = f"the Spark query (start {self.query.starts})"
        try:
            reads = self.holders() == len(QUEUES)
        except requests.RequestException:
            return f"{name}, while the queue manager starts"
        if not reads:
            return f"{name} is starting: a JVM and a Spark session, 12 s on a quiet machine"
        return (
            f"{name} runs, {self.query.batches()} batches committed; a batch takes 10 "
            "s on a quiet machine"
        )

    def wait_for_query(self) -> None:
        """Until it is the receiver of every queue."""
        deadline = time.monotonic() + SPARK_START_MAX
        while self.holders() < len(QUEUES):
            self.query.check()
            if time.monotonic() > deadline:
                raise SystemExit(
                    f"the Spark query did not start within {SPARK_START_MAX:.0f} s: see "
                    f"{self.query.log}"
                )
            time.sleep(0.25)
        self.say("Spark query: reads all three queues")

    async def traffic(self) -> None:
        """Every sender, and whoever kills."""
        async with ReceiptsServer() as receipts:
            managers = [
                ForeignQueueManager(
                    endpoint=lambda: self.queue_manager.endpoint,
                    ledger=self.ledger,
                    receipts_url=receipts.url(),
                    seed=self.seed + number,
                    reply_timeout=5.0,
                )
                for number in range(2)
            ]

            def everybody(receipt: ForeignReceipt) -> None:
                for manager in managers:
                    manager.on_receipt(receipt)

            receipts.on_receipt = everybody
            orders = MessageSender(managers[0], ORDERS, faults=FAULTS, delivery_receipts=0.1)
            streams = [
                StreamSender(
                    manager, queue, faults=FAULTS, dialect=dialect, window=STREAM_WINDOW, gap=0.02
                )
                for manager, dialect in zip(managers, (Dialect.EXAMPLES, Dialect.TEXT), strict=True)
                for queue in (PAYMENTS, SHIPMENTS)
            ]
            in_streams = self.messages // 2
            first = int(self.messages * FIRST_SHARE)
            bodies = self.bodies(self.messages - in_streams)
            await orders.run(itertools.islice(bodies, first), rate=MESSAGES_A_SECOND)
            await self.first_landing()
            for number in range(in_streams):
                streams[number % len(streams)].enqueue(f"stream message {number}".encode())
            for stream in streams:
                stream.close()
            work = asyncio.gather(
                orders.run(bodies, rate=MESSAGES_A_SECOND), *(stream.run() for stream in streams)
            )
            killer = asyncio.create_task(self.kill())
            progress = asyncio.create_task(self.progress())
            try:
                await asyncio.wait_for(work, TRAFFIC_MAX)
                await asyncio.wait_for(killer, TRAFFIC_MAX)
            finally:
                progress.cancel()
                killer.cancel()
            if receipts.faults:
                self.ledger.violation(f"at the order queue: {receipts.faults[:3]}")

    def bodies(self, count: int) -> Iterator[tuple[bytes, bool]]:
        """Bodies of 20 bytes to 20 KB; every other message is durable."""
        dice = random.Random(self.seed)
        for number in range(count):
            yield (
                f"order {number:06d}; ".encode() * dice.choice((1, 10, 100, 1400)),
                number % 2 == 0,
            )

    async def first_landing(self) -> None:
        """Until the query is known to work."""
        deadline = time.monotonic() + SPARK_START_MAX
        while not await asyncio.to_thread(self.query.rows):
            self.query.check()
            if time.monotonic() > deadline:
                raise SystemExit(
                    f"nothing landed within {SPARK_START_MAX:.0f} s: see {self.query.log}"
                )
            await asyncio.sleep(0.25)
        self.say("the first rows are in the table; now everything at once")

    async def until(self, share: float) -> None:
        """Until this share of the messages is acknowledged."""
        while self.ledger.count("acknowledged_at") < share * self.messages:
            await asyncio.sleep(0.05)

    async def kill(self) -> None:
        """The three kills, in the order of their shares."""
        for share, victim in PLAN:
            await self.until(share)
            before = self.ledger.sent
            if victim == "queue manager":
                await asyncio.to_thread(self.queue_manager.kill9)
                self.say("kill -9: queue manager")
                begun = time.monotonic()
                await asyncio.to_thread(self.queue_manager.restart)
                self.say(f"queue manager: back after {time.monotonic() - begun:.1f} s")
            else:
                await asyncio.to_thread(self.query.kill9)
                self.say("kill -9: Spark query")
                self.query.start()
            if 0 < before < self.messages:  # with all of them sent it would prove nothing
                self.kills.append(victim)

    async def progress(self) -> None:
        """A line every few seconds, until it is cancelled."""
        while True:
            await asyncio.sleep(3)
            landed = len(await asyncio.to_thread(self.query.rows))
            self.say(
                f"sent {self.ledger.sent}, acknowledged "
                f"{self.ledger.count('acknowledged_at')}, landed {landed}"
            )

    def wait_for_landing(self) -> None:
        """Until the table holds, queue by queue, as many sequences as the queue manager counted."""
        self.say("the senders are done; waiting for the table")
        known, since = 0, time.monotonic()
        while time.monotonic() - since < LANDING_STALL_MAX:
            self.query.check()
            rows = self.query.rows()
            if len(rows) > known:
                known, since = len(rows), time.monotonic()
                self.say(f"landed {known} of {self.ledger.count('acknowledged_at')} acknowledged")
            there = {
                name: max((row.sequence for row in rows if row.queue == name), default=0)
                for name in self.status()
            }
            if there == {name: queue["last"] for name, queue in self.status().items()}:
                return
            time.sleep(0.5)
        self.say(f"no new row for {LANDING_STALL_MAX:.0f} s, and rows are missing")
