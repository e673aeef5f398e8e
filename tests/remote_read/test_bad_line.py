"""A line that loses its connection at every tenth call: batches become small, and what gets through is moved."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest
from test_pulling_foreign import judge, left, numbers, subscription
from test_pulling_live import _pending, _subscription, until

from srmp_spark.client import walking_on
from srmp_spark.errors import RemoteQueueError
from srmp_spark.mqrr.rpc.server_events import CallReceived
from srmp_spark.queue_manager.puller.moving_and_copying.line import NetworkLine
from srmp_spark.queue_manager.puller.moving_and_copying.locks import BATCH_MESSAGES
from srmp_spark.spark.mqrr_source import MqrrBatchReader
from srmp_spark.spark.settings.mqrr_options import parse_remote
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.remote.server import Faults, ForeignServer

MESSAGES = 50
START_RECEIVE = 7
BAD_LINE = Faults(before=0.05, after=0.05, end_lost=0.1)
"""Before a call is carried out, or after: nobody knows. In all a tenth of the calls."""


def test_a_batch_follows_the_line() -> None:
    line = NetworkLine()
    assert line.is_good
    sizes = []
    for _ in range(9):
        line.tries()
        line.broke()
        sizes.append(line.messages_max)
    assert sizes == [64, 32, 16, 8, 4, 2, 1, 1, 1]
    line.tries()
    line.carried(0)
    assert line.messages_max == 1, "an empty queue says nothing of the line"
    for _ in range(8):
        line.tries()
        line.carried(1)
    assert line.messages_max == BATCH_MESSAGES


def test_a_connection_that_ends_between_two_batches_says_nothing_of_the_line() -> None:
    line = NetworkLine()
    line.broke()
    line.tries()
    line.carried(5)
    line.broke()
    assert line.is_good


def test_everything_comes_once_over_a_line_that_breaks_at_every_tenth_call(tmp_path: Path) -> None:
    with ForeignServer(seed=22) as server:
        server.faults = BAD_LINE
        server.look(lambda queue: [queue.put() for _ in range(MESSAGES)])
        with RunningQueueManager(
            tmp_path / "qm", config=subscription(tmp_path / "qm.toml", server)
        ) as running:
            until(
                lambda: len(numbers(running)) >= MESSAGES and not _pending(running), seconds=120.0,
                still=lambda: f"{len(numbers(running))} rows; {left(server, running)}",
            )  # fmt: skip
            judge(server, got := numbers(running), set())
        print(f"{len(got)} messages over {server.opened} connections")
        assert server.opened > MESSAGES / 20, "the line was bad"


def test_a_copy_ends_over_a_line_that_breaks_at_every_tenth_call(tmp_path: Path) -> None:
    with ForeignServer(seed=23) as server:
        server.faults = BAD_LINE
        server.look(lambda queue: [queue.put() for _ in range(MESSAGES)])
        with RunningQueueManager(
            tmp_path / "qm", config=subscription(tmp_path / "qm.toml", server, "copy")
        ) as running:
            until(
                lambda: _subscription(running)["lag_seconds"] is not None, seconds=60.0,
                still=lambda: f"{len(numbers(running))} rows; {_subscription(running)}",
            )  # fmt: skip
            assert sorted(numbers(running)) == list(range(1, MESSAGES + 1)), (
                "all of them were seen, each once"
            )
        assert server.look(lambda queue: len(queue.messages)) == MESSAGES, "none was taken"
        assert server.opened > MESSAGES / 20, "the line was bad"


def test_a_copy_goes_on_over_a_line_that_carries_one_read_of_each_connection(
    tmp_path: Path,
) -> None:
    """The second R_StartReceive of a connection has no answer: a walk by cursor would have the head again and again."""
    reads: dict[object, int] = {}

    def second_is_lost(transport: asyncio.Transport, call: CallReceived) -> bool:
        if call.opnum != START_RECEIVE:
            return False
        reads[transport] = reads.get(transport, 0) + 1
        if reads[transport] > 1:
            transport.abort()
        return reads[transport] > 1

    with ForeignServer(seed=24) as server:
        server.instead = second_is_lost
        server.look(lambda queue: [queue.put() for _ in range(10)])
        with RunningQueueManager(
            tmp_path / "qm", config=subscription(tmp_path / "qm.toml", server, "copy")
        ) as running:
            until(
                lambda: len(numbers(running)) == 10, seconds=60.0,
                still=lambda: f"{len(numbers(running))} rows; {_subscription(running)}",
            )  # fmt: skip
            assert sorted(numbers(running)) == list(range(1, 11))


def test_a_batch_of_spark_ends_over_a_line_that_breaks_at_every_tenth_call() -> None:
    with ForeignServer(seed=25) as server:
        server.look(lambda queue: [queue.put() for _ in range(MESSAGES)])
        server.faults = BAD_LINE
        in_order = server.look(
            lambda queue: [queue.messages[each][0] for each in sorted(queue.messages)]
        )
        reader = MqrrBatchReader(
            parse_remote({"host": f"127.0.0.1:{server.port}", "queue": "private$\\orders"})
        )
        (partition,) = reader.partitions()
        found = [
            int(body.removeprefix(b"body "))
            for batch in reader.read(partition)
            for body in batch["body"].to_pylist()
        ]
        assert found == in_order, "each once, in the order of the queue"
        assert server.opened > MESSAGES / 20, "the line was bad"


def test_a_batch_of_spark_gives_a_machine_up_that_answers_nothing_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(walking_on, "PAUSES_SECONDS", (0.0,))
    reads = itertools.count(1)
    with ForeignServer(seed=26) as server:
        server.look(lambda queue: [queue.put() for _ in range(100)])

        def is_lost(transport: asyncio.Transport, call: CallReceived) -> bool:
            lost = call.opnum == START_RECEIVE and next(reads) > 60
            if lost:
                transport.abort()
            return lost

        server.instead = is_lost
        reader = MqrrBatchReader(
            parse_remote({"host": f"127.0.0.1:{server.port}", "queue": "private$\\orders"})
        )
        with pytest.raises(RemoteQueueError, match="cannot be read"):
            list(reader.read(reader.partitions()[0]))
        assert server.opened == walking_on.BREAKS_MAX + 2, "the first one told something"
