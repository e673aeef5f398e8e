"""A line that loses its connection at every tenth call: batches become small, and what gets through is moved."""

from __future__ import annotations

from pathlib import Path

from test_pulling_foreign import judge, left, numbers, subscription
from test_pulling_live import _pending, until

from srmp_spark.queue_manager.puller.line import Line
from srmp_spark.queue_manager.puller.locks import BATCH_MESSAGES
from srmp_spark.testing.remote.server import Faults, ForeignServer
from srmp_spark.testing.service import RunningQueueManager

MESSAGES = 50
BAD_LINE = Faults(before=0.05, after=0.05, end_lost=0.1)
"""Before a call is carried out, or after: nobody knows. In all a tenth of the calls."""


def test_a_batch_follows_the_line() -> None:
    line = Line()
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
    line = Line()
    line.broke()
    line.tries()
    line.carried(5)
    line.broke()
    assert line.is_good


def test_everything_comes_once_over_a_line_that_breaks_at_every_tenth_call(tmp_path: Path) -> None:
    with ForeignServer(seed=22) as server:
        server.faults = BAD_LINE
        server.look(lambda queue: [queue.put() for _ in range(MESSAGES)])
        with RunningQueueManager(tmp_path / "qm", config=subscription(tmp_path / "qm.toml", server)) as running:
            until(
                lambda: len(numbers(running)) >= MESSAGES and not _pending(running), seconds=120.0,
                still=lambda: f"{len(numbers(running))} rows; {left(server, running)}",
            )  # fmt: skip
            judge(server, got := numbers(running), set())
        print(f"{len(got)} messages over {server.opened} connections")
        assert server.opened > MESSAGES / 20, "the line was bad"
