"""One row or command for several queues, over the wire ([MS-MQMQ] 2.1.7, [MC-MQSRM] 2.2.6.14)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from kit import acknowledged, bodies, commit, outgoing, rows_to

from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.foreign.destination import Destination

FIRST, SECOND = "private$/first", "private$/second"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningQueueManager]:
    with RunningQueueManager(
        tmp_path_factory.mktemp("lists") / "qm", retransmission_timeout=0.2
    ) as queue_manager:
        yield queue_manager


@pytest.fixture
def peer() -> Iterator[Destination]:
    with Destination(
        queues={FIRST: True, SECOND: True, "private$/gone": False}, receipt_wait=0.1
    ) as found:
        yield found


def both(peer: Destination) -> str:
    return f"DIRECT={peer.url(FIRST)},DIRECT={peer.url(SECOND)}"


def send(running: RunningQueueManager, *arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "srmp_spark.cli", "send", *arguments, "--api", running.api]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)


def test_every_queue_gets_every_row_once_and_in_order(
    running: RunningQueueManager, peer: Destination
) -> None:
    assert commit(running.api, "1", rows_to(both(peer), bodies(0, 200))) == {"new": 400, "known": 0}
    assert commit(running.api, "2", rows_to(both(peer), bodies(200, 210)))["new"] == 20
    last = {
        queue: acknowledged(running, peer.url(queue))["last_acknowledged"]
        for queue in (FIRST, SECOND)
    }
    for queue in (FIRST, SECOND):
        assert last[queue] in (210, 10), (
            "a batch that comes when all is acknowledged begins another stream (3.1.7.6)"
        )
        assert [message.body for message in peer.queues[queue]] == bodies(0, 210)
    info = outgoing(running, peer.url(FIRST))["transfer_info"]
    assert (
        info["eod_last_ack"]["seq_no"],
        info["eod_no_ack_count"],
        info["eod_first_non_ack"],
    ) == (last[FIRST], 0, None)
    assert info["eod_last_ack_count"] >= 1
    assert info["eod_last_ack_time"].endswith("Z")
    assert peer.violations == []


def test_the_envelope_names_both(
    running: RunningQueueManager, peer: Destination, tmp_path: Path
) -> None:
    names = (peer.url(FIRST), peer.url(SECOND))
    with RunningQueueManager(
        tmp_path / "there", queues=[f"{FIRST}:transactional"], allow_url=["http://127.0.0.1:*"]
    ) as there:
        ours = f"{there.listening}/msmq/{FIRST}"
        commit(
            running.api,
            "list",
            rows_to(f"{ours},{names[1]}", [b"x"], response_queue=f"{names[0]},{names[1]}"),
        )
        acknowledged(running, ours)
        shown = subprocess.run(
            [sys.executable, "-m", "srmp_spark.cli", "peek", "--queue", FIRST, "--api", there.api],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        row: dict[str, Any] = json.loads(shown.stdout)
        assert row["destination_list"] == [ours, names[1]]
        assert (row["response_queue"], row["response_list"]) == (names[0], list(names))
        assert row["admin_list"] is None


def test_the_command_tells_of_each(running: RunningQueueManager, peer: Destination) -> None:
    done = send(
        running, "--destination", both(peer), "--body", "hello", "--key", "k1", "--wait", "20"
    )
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["destination"], each["state"]) for each in told] == [
        (peer.url(FIRST), "acknowledged"), (peer.url(SECOND), "acknowledged"),
    ]  # fmt: skip
    assert len({each["message_id"] for each in told}) == 2
    again = send(
        running, "--destination", both(peer), "--body", "hello", "--key", "k1", "--wait", "20"
    )
    assert (again.returncode, len(again.stdout.splitlines())) == (0, 2)
    assert (
        again.stderr.count(
            "--key k1 was given before: nothing new is sent. State of the earlier "
            "message: acknowledged"
        )
        == 2
    )
    assert [len(peer.queues[queue]) for queue in (FIRST, SECOND)] == [1, 1]
    other = send(running, "--destination", peer.url(FIRST), "--body", "hello", "--key", "k1")
    assert other.returncode == 4, "a message for one queue is another message"
    assert "another content" in other.stderr


def test_one_may_fail_and_the_other_arrives(
    running: RunningQueueManager, peer: Destination
) -> None:
    """A transactional message for a queue that is not transactional is refused for good (3.1.5.1.3)."""
    to = f"{peer.url('private$/gone')},{peer.url(SECOND)}"
    done = send(running, "--destination", to, "--body", "x", "--wait", "20")
    assert done.returncode == 4
    assert [json.loads(line)["state"] for line in done.stdout.splitlines()] == [
        "dead",
        "acknowledged",
    ]


def test_what_cannot_be_is_refused_as_a_whole(
    running: RunningQueueManager, peer: Destination
) -> None:
    before = len(requests.get(f"{running.api}/v1/status", timeout=30).json()["outgoing"])
    for other, says in (
        ("MULTICAST=234.1.1.1:8001", "a multicast address alongside other queues"),
        (f"DIRECT={peer.url(FIRST)}", "twice"),
    ):
        done = send(running, "--destination", f"{peer.url(FIRST)},{other}", "--body", "x")
        assert done.returncode in (2, 4), done.stderr
        assert says in done.stderr
    assert len(requests.get(f"{running.api}/v1/status", timeout=30).json()["outgoing"]) == before
