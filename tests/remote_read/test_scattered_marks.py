"""A queue of alternating priorities, received by priority over RPC: as many runs of marks as messages, and no end to them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

from remote_kit import Served, opened
from store_kit import NOW, QUEUE, SENDER, Store  # found through conftest.py

from srmp_spark.client.remote_queue import RemoteQueue
from srmp_spark.message import Arrival, Message
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.ndr.methods import RR_ACK, EndReceiveRequest
from srmp_spark.mqrr.ndr.receive import StartReceiveRequest
from srmp_spark.mqrr.status import Status
from srmp_spark.rows.group import Record
from srmp_spark.sequences.sequence_set import SequenceSet
from srmp_spark.srmp.codec.encoder import encode, http_head
from srmp_spark.store.tables import state

MESSAGES = 20_400
BEFORE = 9_600
"""Urgent ones that were received by then, so that the test takes half as long: the next ones pass the former limit."""
AT_ONCE = 16
"""Calls under way on the connection."""


def record(n: int, _size: int, at: int) -> Record:
    """Every second one is urgent."""
    sent = Message(
        f"http://host1/msmq/{QUEUE}", "MSMQ:", SENDER, n, has_msmq=True, source_qm=SENDER, sent_at=NOW, expires_at=NOW,
        time_to_reach_queue=NOW, body=b"x", priority=7 if n % 2 else 0,
    )  # fmt: skip
    content_type, content = encode(sent, boundary="MSMQ - SOAP boundary, 53287")
    head = http_head(f"/msmq/{QUEUE}", "host1", content_type, len(content))
    return Record(Arrival(at, "http", "192.0.2.1:4711", None), head + content, len(head))


def stored(directory: Path) -> None:
    """The log of a queue manager that took them all, and whose readers have received the first of them."""
    store = Store(directory)
    store.put(MESSAGES, together=1_000, make=record)
    ahead = SequenceSet((n, n) for n in range(3, 2 * BEFORE, 2))
    default = state.StoredConsumer(QUEUE, "default", 1, ahead, None, None, None)
    store.call(lambda t: state.save_consumer(t.connection, store.queue_id, default))
    store.close()


class Receiver:
    """Receives several at once, and ends them all at once."""

    def __init__(self, queue: RemoteQueue) -> None:
        self._queue = queue
        self._machine = queue._machine
        self._numbers = itertools.count(1)

    def take(self, count: int) -> dict[int, int]:
        """Lock the next ones: request → sequence. Fewer: there are no more."""
        numbers = [next(self._numbers) for _ in range(count)]
        calls = [
            self._machine.begin(
                7,
                StartReceiveRequest(self._queue.handle, action=Action.RECEIVE, request_id=number),
                more=more,
            )
            for number, more in zip(numbers, [*[True] * (count - 1), False], strict=True)
        ]
        answers = [(number, call()) for number, call in zip(numbers, calls, strict=True)]
        assert {each.status for _, each in answers} <= {Status.MQ_OK, Status.MQ_ERROR_IO_TIMEOUT}
        return {number: each.sequence_id for number, each in answers if each.status == Status.MQ_OK}

    def end(self, requests: list[int]) -> None:
        """Acknowledge them; returns when all are stored. None is refused."""
        calls = [
            self._machine.begin(
                9,
                EndReceiveRequest(self._queue.handle, RR_ACK, number),
                more=at + 1 < len(requests),
            )
            for at, number in enumerate(requests)
        ]
        assert {call().status for call in calls} == {Status.MQ_OK}

    def receive(self, count: int) -> list[int]:
        """Up to so many."""
        found: list[int] = []
        while len(found) < count:
            taken = self.take(min(AT_ONCE, count - len(found)))
            if not taken:
                break
            self.end(list(taken))
            found += sorted(taken.values(), key=in_order)
        return found


def in_order(sequence: int) -> tuple[bool, int]:
    return sequence % 2 == 0, sequence


def test_all_are_received_by_priority_across_a_kill_and_none_is_refused_lost_or_doubled(
    tmp_path: Path, start: Callable[..., Served]
) -> None:
    """With a limit of 10,000 runs the queue was blocked for good, by whoever sent 20,400 messages to it."""
    stored(tmp_path / "data")
    served = start(queues=[QUEUE])
    assert served.waiting(QUEUE) == MESSAGES - BEFORE
    urgent = MESSAGES // 2 - BEFORE
    with served.machine() as machine:
        receiver = Receiver(opened(machine, QUEUE, receive=True))
        received = receiver.receive(urgent)
        assert served.client.queue(QUEUE)["received"] == 1, "all others lie apart beyond the mark"
        received += receiver.receive(100)
        held = receiver.take(8)
        assert len(held) == 8
        served.kill9()
    served.restart()
    assert served.waiting(QUEUE) == MESSAGES // 2 - 100
    with served.machine() as machine, opened(machine, QUEUE, receive=True) as queue:
        rest = Receiver(queue).receive(MESSAGES)
    assert received + rest == sorted(range(1, MESSAGES + 1), key=in_order)[BEFORE:]
    described = served.client.queue(QUEUE)
    assert (described["received"], described["waiting"], described["bytes"]) == (MESSAGES, 0, 0)
