"""What became of each message, told to whoever asked: a foreign sender, and kill -9 in between."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import itertools
import os
import random
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
from harness import command

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.testing.foreign.messages import ForeignMessage, ForeignReceipt, ForeignStream, post
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.foreign.http import ReceiptsServer

SOURCE = "aaaaaaaa-0000-4000-8000-00000000000d"
ORDERS, PAYMENTS = "private$/orders", "private$/payments"
SEED = int(os.environ.get("SRMP_SPARK_KILL_SEED", str(random.randrange(10**6))))
ROUNDS = int(os.environ.get("SRMP_SPARK_DECISION_ROUNDS", "6"))
PER_ROUND = 25
QUICK = {"resend_table": "0.5,0.5,1", "retransmission_timeout": 0.3}


class Sender:
    """One that asks for both kinds of receipts and repeats each POST until it is answered 200."""

    def __init__(self, running: RunningQueueManager, receipts: ReceiptsServer) -> None:
        self._running = running
        self._receipts = receipts
        self._numbers = itertools.count(1)
        self.sent: dict[str, list[int]] = {ORDERS: [], PAYMENTS: []}
        """Queue → identifiers in the order of their sequences."""

    def send(self, queue: str) -> None:
        number, sent = next(self._numbers), self.sent[queue]
        host, port = self._running.endpoint
        stream = None
        if queue == PAYMENTS:
            current = len(sent) + 1
            stream = ForeignStream(
                guid=SOURCE, ordinal=7, current=current, previous=current - 1,
                receipts_to=self._receipts.url() if current == 1 else None,
            )  # fmt: skip
        message = ForeignMessage(
            to=f"http://{host}:{port}/msmq/{queue}", lineage=SOURCE, uniquifier=number, sent_at=1_790_000_000,
            body=b"body %d" % number, durable=True, stream=stream, priority=0, dead_letter=stream is not None,
            commitment_receipt_to=self._receipts.url("private$/admin"), positive_only=True, negative_only=True,
        )  # fmt: skip
        written = post(message)
        headers = {"Content-Type": written.content_type, "SOAPAction": '"MSMQMessage"'}
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection(*self._running.endpoint, timeout=10)
                try:
                    connection.request("POST", written.target, written.content, headers)
                    if connection.getresponse().status == 200:
                        break
                finally:
                    connection.close()
            time.sleep(0.05)
        sent.append(number)


class Application:
    """Receives and purges; each decision is repeated until it is answered, so what was decided is known."""

    def __init__(self, running: RunningQueueManager) -> None:
        self._running = running
        self.decided: dict[str, list[str]] = {ORDERS: [], PAYMENTS: []}

    def _until_answered(self, act: Callable[[QueueManagerClient], Any]) -> Any:
        while True:
            with contextlib.suppress(Exception):  # it was killed, or starts
                return act(QueueManagerClient(self._running.api, retry_seconds=0.2))
            time.sleep(0.05)

    def receive(self, queue: str, to: int) -> None:
        def act(client: QueueManagerClient) -> None:
            epoch = client.range(queue).epoch
            client.register(queue, "default", epoch=epoch, first=None, holder="application")
            client.received(queue, "default", epoch=epoch, to=to, holder="application")

        self._until_answered(act)
        self.decided[queue] += ["positive"] * (to - len(self.decided[queue]))

    def purge(self, queue: str, end: int) -> None:
        self._until_answered(lambda client: client.purge(queue))
        self.decided[queue] += ["negative"] * (end - len(self.decided[queue]))


def told(receipts: list[ForeignReceipt]) -> dict[tuple[str, int], set[tuple[str, int, str]]]:
    """(kind, message) → what was said of it: decision, class, identifier of the receipt."""
    found: dict[tuple[str, int], set[tuple[str, int, str]]] = defaultdict(set)
    for each in receipts:
        if each.decision is None or each.commitment_of is None:
            continue
        number, _, lineage = each.commitment_of.removeprefix("uuid:").partition("@")
        assert lineage == SOURCE
        kind = "commitment" if each.stream_id is None else "final"
        own = each.envelope.partition("<id>")[2].partition("</id>")[0]
        found[kind, int(number)].add((each.decision, each.message_class, own))
    return found


@pytest.mark.timeout(180)
def test_each_message_is_told_of_once_and_as_it_was_decided_through_kill_9(tmp_path: Path) -> None:
    print(f"SRMP_SPARK_KILL_SEED={SEED}")
    dice = random.Random(SEED)
    queues = [ORDERS, f"{PAYMENTS}:transactional"]

    async def killer(running: RunningQueueManager) -> None:
        await asyncio.sleep(dice.uniform(0.0, 0.6))
        await asyncio.to_thread(running.kill9)
        await asyncio.to_thread(running.restart)

    def work(sender: Sender, application: Application, plan: random.Random) -> None:
        for _ in range(PER_ROUND):
            sender.send(plan.choice((ORDERS, PAYMENTS)))
        for queue in (ORDERS, PAYMENTS):
            end, done = len(sender.sent[queue]), len(application.decided[queue])
            if plan.random() < 0.3:
                application.purge(queue, end)
            elif end > done:
                application.receive(queue, plan.randint(done + 1, end))

    async def main(running: RunningQueueManager) -> None:
        async with ReceiptsServer() as receipts:
            sender, application = Sender(running, receipts), Application(running)
            for number in range(ROUNDS):
                receipts.lose_next = dice.choice((0, 3))
                plan = random.Random(f"{SEED}/{number}")
                await asyncio.gather(
                    killer(running), asyncio.to_thread(work, sender, application, plan)
                )
            receipts.lose_next = 0
            for queue, sent in sender.sent.items():
                if len(sent) > len(application.decided[queue]):
                    await asyncio.to_thread(application.receive, queue, len(sent))
            kinds = {ORDERS: ("commitment",), PAYMENTS: ("commitment", "final")}
            expected = {
                (kind, number): (decision, 0x4000 if decision == "positive" else 0xC001)
                for queue, sent in sender.sent.items()
                for number, decision in zip(sent, application.decided[queue], strict=True)
                for kind in kinds[queue]
            }
            end = time.monotonic() + 60
            while set(told(receipts.receipts)) != set(expected) and time.monotonic() < end:
                await asyncio.sleep(0.1)
            found = told(receipts.receipts)
            assert set(found) == set(expected), (
                "told of all that was asked for, and of nothing else"
            )
            for what, said in found.items():
                assert len(said) == 1, f"{what}: one receipt under one identifier, got {said}"
                assert next(iter(said))[:2] == expected[what], f"{what}: {said}"
            assert receipts.faults == []
            numbers = [own for said in found.values() for _, _, own in said]
            assert len(set(numbers)) == len(numbers), "no identifier was given out twice"

    with RunningQueueManager(
        tmp_path / "data", queues=queues, allow_url=["http://127.0.0.1:*"], **QUICK
    ) as running:
        asyncio.run(main(running))
        assert "Traceback" not in running.stderr()


def test_receive_reject_tells_the_sender(tmp_path: Path) -> None:
    async def main(running: RunningQueueManager) -> None:
        async with ReceiptsServer() as receipts:
            sender = Sender(running, receipts)
            await asyncio.to_thread(sender.send, ORDERS)
            (row,) = await asyncio.to_thread(
                command, "receive", "--queue", ORDERS, "--reject", api=running.api
            )
            assert row["uniquifier"] == 1
            end = time.monotonic() + 20
            while not told(receipts.receipts) and time.monotonic() < end:
                await asyncio.sleep(0.05)
            ((kind, said),) = told(receipts.receipts).items()
            assert (kind, [each[:2] for each in said]) == (
                ("commitment", 1),
                [("negative", 0xC004)],
            )

    with RunningQueueManager(
        tmp_path / "data", queues=[ORDERS], allow_url=["http://127.0.0.1:*"], **QUICK
    ) as running:
        asyncio.run(main(running))
        states = requests.get(f"{running.api}/v1/queues/private%24%2Forders", timeout=30).json()
        assert states["waiting"] == 0
