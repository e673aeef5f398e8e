"""``srmp-spark status``: everything of a small queue manager, the summary of a large one, and how to see one queue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from srmp_spark import cli
from srmp_spark.client.api import QueueManagerClient
from srmp_spark.commands import queues
from srmp_spark.testing.queue_manager import RunningQueueManager

NAMES = ["private$/one", "private$/other", "public"]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningQueueManager]:
    with RunningQueueManager(tmp_path_factory.mktemp("qm") / "data", queues=NAMES) as queue_manager:
        yield queue_manager


def status(
    running: RunningQueueManager, capsys: pytest.CaptureFixture[str], *flags: str
) -> tuple[dict[str, Any], str]:
    assert cli.run(["status", "--api", running.api, *flags]) == 0
    out, err = capsys.readouterr()
    (line,) = out.splitlines()
    return json.loads(line), err


def names(answer: dict[str, Any]) -> list[str]:
    return [each["name"] for each in answer["queues"]]


def test_few_queues_are_all_shown_as_ever(
    running: RunningQueueManager, capsys: pytest.CaptureFixture[str]
) -> None:
    answer, said = status(running, capsys)
    assert (names(answer), said) == (NAMES, "")
    assert set(answer) == set(QueueManagerClient(running.api).status())
    assert "totals" not in answer


def test_of_many_queues_the_summary_is_shown_and_how_to_see_one(
    running: RunningQueueManager,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queues, "MANY", 2)
    answer, said = status(running, capsys)
    assert answer["totals"]["queues"]["count"] == 3
    assert "3 queues and 0 destinations: this is the summary" in said
    assert "srmp-spark status --queue NAME" in said
    assert names(status(running, capsys, "--queue", "private$/*")[0]) == NAMES[:2]
    assert names(status(running, capsys, "--queue", "PUBLIC")[0]) == ["public"]
    whole, said = status(running, capsys, "--all")
    assert (names(whole), "totals" in whole, said) == (NAMES, False, "")
    assert cli.run(["status", "--api", running.api, "--table"]) == 0
    out = capsys.readouterr().out
    assert "totals" in out
    assert ["queues", "count", "3"] in [line.split() for line in out.splitlines()]


def test_the_summary_can_be_asked_for(
    running: RunningQueueManager, capsys: pytest.CaptureFixture[str]
) -> None:
    answer, said = status(running, capsys, "--summary")
    assert (answer["totals"]["queues"]["count"], said) == (3, "")


def test_a_queue_manager_of_before_the_summary_is_shown_whole(
    running: RunningQueueManager,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        QueueManagerClient, "status_summary", QueueManagerClient.status
    )  # it knows no query
    answer, said = status(running, capsys)
    assert (names(answer), said) == (NAMES, "")
