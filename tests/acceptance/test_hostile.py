"""Hostile bytes on real sockets: only allowed answers, nothing refused becomes a row, a healthy sender goes on.

What each case may be answered stands in ``hostile.py``.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import hostile
import pytest
from harness import landed, peek, stderr_of

from srmp_spark.testing.foreign.messages import post
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.foreign.http import Wire
from tests.kit.foreign.ledger import Ledger
from tests.kit.foreign.senders import ForeignQueueManager, MessageSender
from tests.kit.foreign.verdict import judge

ANSWER_TIMEOUT = 10.0
"""Seconds until an answer to a whole hostile request must be there; more is a hang."""
IDLE_CONNECTIONS = 500
SLOW_CONNECTIONS = 20
QUIET = 0.2
"""Seconds without another byte after which an answer counts as complete."""

ACCEPTED: list[int] = []
"""The uniquifier of every message of this file that was answered 200: these must be the rows, no more and no fewer."""


def answered_200(raw: bytes) -> None:
    """Remember the first message in these bytes."""
    ACCEPTED.append(int(re.search(rb"<id>uuid:(\d+)@", raw)[1]))


@pytest.fixture(scope="module")
def queue_manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningQueueManager]:
    directory = tmp_path_factory.mktemp("hostile")
    queues = ["private$/hostile", "private$/hostile_tx:transactional", "private$/healthy"]
    with RunningQueueManager(directory, queues=queues) as running:
        yield running


def first_answer(endpoint: tuple[str, int], raw: bytes) -> tuple[int, bytes, bool]:
    """Status of the first answer (0: closed without one), all that came back, and whether the peer closed."""
    received, closed = b"", False
    with socket.create_connection(endpoint, timeout=ANSWER_TIMEOUT) as connection:
        with contextlib.suppress(OSError):  # the peer may answer and close while we still write
            connection.sendall(raw)
        connection.settimeout(QUIET)
        deadline = time.monotonic() + ANSWER_TIMEOUT
        while time.monotonic() < deadline:
            try:
                data = connection.recv(65_536)
            except TimeoutError:
                if received:
                    break
                continue
            except OSError:
                data = b""
            if not data:
                closed = True
                break
            received += data
        else:
            pytest.fail(f"no answer within {ANSWER_TIMEOUT} s")
    status = re.match(rb"HTTP/1\.1 (\d{3}) ", received)
    return (int(status[1]) if status else 0), received, closed


@pytest.mark.parametrize("case", hostile.all_cases(), ids=str)
def test_hostile_bytes_get_an_allowed_answer(
    case: hostile.Case, queue_manager: RunningQueueManager
) -> None:
    status, received, closed = first_answer(queue_manager.endpoint, case.raw)
    if status == 200:
        answered_200(case.raw)
    assert status in case.allowed, received[:300]
    assert b"Traceback" not in received
    if case.must_close:
        assert closed, "the connection lives on: what follows could be smuggled"
        assert received.count(b"HTTP/1.1 ") <= 1, (
            "the bytes behind the refused request were taken for a request"
        )


def test_two_good_requests_in_one_segment_are_both_answered_in_order(
    queue_manager: RunningQueueManager,
) -> None:
    requests = [post(hostile.good(body=b"pipelined %d" % number)).raw for number in (1, 2)]
    status, received, _ = first_answer(queue_manager.endpoint, b"".join(requests))
    assert status == 200
    for raw in requests:
        answered_200(raw)
    assert received.count(b"HTTP/1.1 200 ") == 2
    bodies = [
        base64.b64decode(row["body"]) for row in peek("private$/hostile", api=queue_manager.api)
    ]
    assert bodies.index(b"pipelined 1") < bodies.index(b"pipelined 2")


def test_a_request_that_asks_100_continue_is_told_to_go_on(
    queue_manager: RunningQueueManager,
) -> None:
    message = post(hostile.good(body=b"continued"))
    head = message.raw[: -len(message.content) - 2] + b"Expect: 100-continue\r\n\r\n"
    with socket.create_connection(queue_manager.endpoint, timeout=ANSWER_TIMEOUT) as connection:
        connection.sendall(head)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 100 ")
        connection.sendall(message.content)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
    answered_200(message.raw)


def test_a_request_that_is_cut_off_queues_nothing(queue_manager: RunningQueueManager) -> None:
    """Half closed after part of the content: 400, 408 or nothing, and no row."""
    message = post(hostile.good(body=b"cut off"))
    with socket.create_connection(queue_manager.endpoint, timeout=ANSWER_TIMEOUT) as connection:
        connection.sendall(message.raw[:-20])
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(65_536)
    assert answer == b"" or answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 408 "))


def test_500_idle_and_20_slow_connections_do_not_disturb_a_healthy_sender(
    queue_manager: RunningQueueManager,
) -> None:
    ledger = Ledger()
    latencies: list[float] = []

    async def run() -> None:
        writers: list[asyncio.StreamWriter] = []
        try:
            for number in range(IDLE_CONNECTIONS):
                _, writer = await asyncio.open_connection(*queue_manager.endpoint)
                writer.write(
                    b"POST /msmq/private$/hostile HTTP/1.1\r\nHost: x\r\n" if number % 2 else b""
                )
                writers.append(writer)
            slow = asyncio.create_task(dribble(queue_manager.endpoint, writers))
            manager = ForeignQueueManager(
                endpoint=lambda: queue_manager.endpoint, ledger=ledger, reply_timeout=5.0
            )
            sender = MessageSender(manager, "private$/healthy")
            wire = Wire(lambda: queue_manager.endpoint, reply_timeout=5.0)
            for number in range(200):
                item = sender.write(f"healthy {number}".encode(), durable=True)
                begun = time.monotonic()
                await sender.deliver(wire, item)
                latencies.append(time.monotonic() - begun)
            await wire.close()
            slow.cancel()
        finally:
            for writer in writers:
                writer.close()

    asyncio.run(run())
    verdict = judge(ledger, landed(peek("private$/healthy", api=queue_manager.api)))
    assert verdict.ok, verdict.complaint()
    assert verdict.acknowledged == verdict.landed == 200
    assert ledger.answers == {"200": 200}, "not one request had to be repeated"
    assert sorted(latencies)[190] < 0.5


async def dribble(endpoint: tuple[str, int], writers: list[asyncio.StreamWriter]) -> None:
    """Requests that arrive a few bytes at a time."""
    raw = post(hostile.good(body=b"slow")).raw
    opened = [await asyncio.open_connection(*endpoint) for _ in range(SLOW_CONNECTIONS)]
    writers.extend(writer for _, writer in opened)
    for position in range(0, len(raw) - 200, 3):
        for _, writer in opened:
            writer.write(raw[position : position + 3])
        await asyncio.sleep(0.05)


def test_last_exactly_what_was_answered_200_is_a_row_and_no_traceback_was_logged(
    queue_manager: RunningQueueManager,
) -> None:
    """Runs last in this file: the sum over everything above."""
    assert asyncio.run(still_answers(queue_manager.endpoint)) == 200
    rows = peek("private$/hostile", api=queue_manager.api) + peek(
        "private$/hostile_tx", api=queue_manager.api
    )
    assert sorted(row["uniquifier"] for row in rows) == sorted(ACCEPTED)
    assert {row["lineage"] for row in rows} == {hostile.SOURCE}
    log = stderr_of(Path(queue_manager.log))
    assert "Traceback" not in log, log[max(0, log.find("Traceback") - 500) :][:3000]


async def still_answers(endpoint: tuple[str, int]) -> int:
    message = post(hostile.good(body=b"after all"))
    wire = Wire(lambda: endpoint, reply_timeout=5.0)
    answer = await wire.exchange(message.raw)
    await wire.close()
    answered_200(message.raw)
    return answer.status
