"""Rows that would return to the queue that they came from, at the API of a running queue manager."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from kit import arrow, post

from srmp_spark.testing.queue_manager import RunningQueueManager

IN, OUT = "private$/in", "private$/out"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningQueueManager]:
    running = RunningQueueManager(
        tmp_path_factory.mktemp("loops") / "qm", host_name="bank.example",
        queues=[f"{IN}:transactional", f"{OUT}:transactional"],
    )  # fmt: skip
    yield running.start()
    running.stop()


def commit(
    running: RunningQueueManager,
    destination: str,
    *,
    guid: str = "",
    key: bool = False,
    **more: Any,
) -> Any:
    """Commit three rows that came from a queue of a queue manager; return the answer."""
    source = {"queue_manager": guid or running.guid, "epoch": running.epoch, "queue": IN}
    batch = f"{random.getrandbits(40)}"
    rows = [
        {
            "body": b"x",
            "destination": destination,
            "sequence": n,
            **source,
            **({"key": f"{batch} {n}"} if key else {}),
        }
        for n in range(3)
    ]
    base = f"{running.api}/v1/outbox/app-{batch}/{batch}"
    stage = post(f"{base}/stage?partition=0&attempt=0", data=arrow(rows))["stage"]
    return requests.post(f"{base}/commit", json={"stages": [stage], **more}, timeout=60)


def test_a_row_does_not_return_to_its_own_queue_however_that_is_spelled(
    running: RunningQueueManager,
) -> None:
    host, port = running.endpoint
    for destination in (
        f"http://{host}:{port}/msmq/{IN}", f"http://LOCALHOST:{port}/MSMQ/Private$/IN", f"DIRECT=http://{host}:{port}/msmq/{IN}",
        f"http://bank.example/msmq/{IN}",
    ):  # fmt: skip
        refused = commit(running, destination)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "loop"), destination
        assert "as 3 rows of the batch would" in refused.text
        assert "allowLoop" in refused.json()["error"]["hint"]
    assert requests.get(f"{running.api}/v1/status", timeout=60).json()["outgoing"] == [], (
        "nothing of them is sent"
    )


def test_a_key_does_not_hide_where_a_row_came_from(running: RunningQueueManager) -> None:
    host, port = running.endpoint
    assert commit(running, f"http://{host}:{port}/msmq/{IN}", key=True).status_code == 400


def test_whoever_allows_it_may(running: RunningQueueManager) -> None:
    host, port = running.endpoint
    url = f"http://{host}:{port}/msmq/{IN}"
    assert commit(running, url, allow_loop=True).json() == {"new": 3, "known": 0}
    wrong = commit(running, url, allow_loop="yes")
    assert (wrong.status_code, "allow_loop is true or false" in wrong.text) == (400, True)


def test_other_queues_and_other_queue_managers_are_no_loop(running: RunningQueueManager) -> None:
    host, port = running.endpoint
    other = "11111111-2222-3333-4444-555555555555"
    for destination, how in (
        (f"http://{host}:{port}/msmq/{OUT}", {}),
        (f"http://{host}:{port}/msmq/{IN}", {"guid": other}),
        (f"http://127.0.0.9:{port}/msmq/{IN}", {}),
    ):  # fmt: skip
        answer = commit(running, destination, **how)
        assert answer.json() == {"new": 3, "known": 0}, destination
