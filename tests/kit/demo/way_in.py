"""The first half of the demo: SRMP messages over real HTTP into a Delta table.

A sender that was written from the document alone sends regular, durable and stream messages. On the
network the sender loses replies, repeats and reorders messages, and sends late copies. The queue
manager is killed with -9 and restarted twice, the Spark query once. At the end the sender's ledger
is compared with the Delta table. Nothing else knows how many rows are right.
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
"""Messages of a stream that may be in flight at the same time."""
MESSAGES_A_SECOND = 30.0
"""Regular and durable messages a second; the streams are as fast as their receipts."""
FIRST_SHARE = 0.05
"""Share of the messages that are sent before the first rows have landed.

The kill of a query proves nothing if the query never worked before.
"""
SPARK_START_MAX = 180.0
"""Longest time, in seconds, until the query receives, and then until the first rows land.

On a quiet machine these steps take 12 and 10 seconds. At the limit the demo ends with an error.
"""
TRAFFIC_MAX = 180.0
"""Longest time, in seconds, until every message is acknowledged.

The traffic takes 35 s on a quiet machine. At the limit :class:`TimeoutError` ends the demo.
"""
RECEIPTS_MAX = 60.0
"""Longest time, in seconds, until every receipt has come after the last message was acknowledged.

A receipt that was lost with its connection comes again after the first wait of ``--resend-table``.
At the limit the demo goes on, and the closing table counts the receipts that are missing.
"""
LANDING_STALL_MAX = 180.0
"""Seconds without a new row, while rows are missing, after which the demo waits no longer."""
PLAN = ((0.2, "queue manager"), (0.45, "Spark query"), (0.7, "queue manager"))
"""The kills: the share of acknowledged messages at which a process is killed, and its name.

Each kill has traffic before it and after it.
"""


class WayIn:
    """One run of the first half.

    The queue manager runs already, and the query is not started yet.
    """

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
        """Start the query, run traffic and kills, wait for the rows, and return the result."""
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
        """Return the queues of ``GET /v1/status``: name → entry.

        Raises :class:`requests.RequestException` if the queue manager does not answer.
        """
        answer = requests.get(f"{self.queue_manager.api}/v1/status", timeout=5)
        answer.raise_for_status()
        return {queue["name"]: queue for queue in answer.json()["queues"]}

    def holders(self) -> int:
        """Return the number of queues that have a receiver.

        The query is ready when all three queues have one.
        """
        return sum(
            any(consumer["holder"] for consumer in queue["consumers"])
            for queue in self.status().values()
        )

    def query_state(self) -> str:
        """Return a text that says what the Spark query does now."""
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
        """Wait until the query is the receiver of every queue.

        Raises :class:`SystemExit` if the query ends, or after :data:`SPARK_START_MAX` seconds.
        """
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
        """Run every sender until all messages are acknowledged, and kill processes meanwhile."""
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
            await self.receipts()
            if receipts.faults:
                self.ledger.violation(f"at the order queue: {receipts.faults[:3]}")

    async def receipts(self) -> None:
        """Wait until receipts cover every message that asked for one, or :data:`RECEIPTS_MAX`.

        The answer 200 comes first, and the delivery receipt of the same message some milliseconds
        later, on a connection of its own.
        """
        deadline = time.monotonic() + RECEIPTS_MAX
        while self.ledger.unreceipted() and time.monotonic() < deadline:
            await asyncio.sleep(0.05)

    def bodies(self, count: int) -> Iterator[tuple[bytes, bool]]:
        """Yield ``count`` pairs (body of 14 bytes to 20 KB, whether the message is durable)."""
        dice = random.Random(self.seed)
        for number in range(count):
            yield (
                f"order {number:06d}; ".encode() * dice.choice((1, 10, 100, 1400)),
                number % 2 == 0,
            )

    async def first_landing(self) -> None:
        """Wait until the first row is in the table, which shows that the query works.

        Raises :class:`SystemExit` if the query ends, or after :data:`SPARK_START_MAX` seconds.
        """
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
        """Wait until this share of all messages, from 0 to 1, is acknowledged."""
        while self.ledger.count("acknowledged_at") < share * self.messages:
            await asyncio.sleep(0.05)

    async def kill(self) -> None:
        """Kill the processes of :data:`PLAN` one after the other, and start each again at once.

        A kill is recorded in ``kills`` only if messages were still to be sent.
        """
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
            # A kill after all messages were sent would prove nothing.
            if 0 < before < self.messages:
                self.kills.append(victim)

    async def progress(self) -> None:
        """Print a line about the progress every three seconds, until cancelled."""
        while True:
            await asyncio.sleep(3)
            landed = len(await asyncio.to_thread(self.query.rows))
            self.say(
                f"sent {self.ledger.sent}, acknowledged "
                f"{self.ledger.count('acknowledged_at')}, landed {landed}"
            )

    def wait_for_landing(self) -> None:
        """Wait until the table holds the last sequence of each queue.

        The method also returns if no new row arrives for :data:`LANDING_STALL_MAX` seconds. Raises
        :class:`SystemExit` if the query ends.
        """
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
