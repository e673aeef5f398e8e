"""More busy destinations than connections: all are served in turn, none waits for another's end, and memory stays small.

What waits for peers that cannot be reached fills no memory either."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import requests
from hostile_peers import Peers
from kit import bodies, commit, rows_to, sender_of

from srmp_spark.queue_manager.sender.http.connections import CONNECTIONS_MAX
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.foreign.destination import Destination

DESTINATIONS = 1_200
ROWS = 4
SECONDS = 240.0
"""For a peer with a thread for each connection, on a busy machine; alone it takes a tenth of it."""
SENDER_MB_MAX = 250


def sender_mb(running: RunningQueueManager, line: str) -> int:
    """Return what the sender process has of ``line`` in its status, in MB."""
    status = Path(f"/proc/{sender_of(running)}/status").read_text()
    return (
        next(int(each.split()[1]) for each in status.splitlines() if each.startswith(line)) // 1024
    )


def test_1200_destinations_are_served_in_turn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert DESTINATIONS > CONNECTIONS_MAX
    with Destination(receipt_wait=0.5) as peer, RunningQueueManager(tmp_path / "qm") as running:
        queues = [f"private$/q{n:04}" for n in range(DESTINATIONS)]
        rows = [row for queue in queues for row in rows_to(peer.url(queue), bodies(0, ROWS))]
        begun = time.monotonic()
        assert commit(running.api, "1", rows) == {"new": DESTINATIONS * ROWS, "known": 0}
        left: list[dict[str, Any]] = [{}]
        while left and time.monotonic() < begun + SECONDS:
            time.sleep(0.5)
            found = requests.get(f"{running.api}/v1/status", timeout=60).json()["outgoing"]
            left = [each for each in found if each["queued"] or each["awaiting_stream_receipt"]]
        took = time.monotonic() - begun
        assert left == [], f"{len(left)} of {DESTINATIONS} are not acknowledged after {took:.0f} s"
        assert len(found) == DESTINATIONS
        assert [each["last_error"] for each in found if each["last_error"]] == []
        peak_mb = sender_mb(running, "VmHWM")
        posts = [event["queue"] for event in peer.record.events() if event["event"] == "sight"]
        # Served one after the other, nine of ten would have begun after 90 % of the posts. The last ones say less: on a busy
        # machine some answers take longer than SLOW_SECONDS, and what made way for others goes again after its timer.
        begun_after = sorted(posts.index(queue) for queue in queues)[DESTINATIONS * 9 // 10] / len(
            posts
        )
        with capsys.disabled():
            print(f"\n{DESTINATIONS} destinations, {len(posts)} posts in {took:.1f} s, "
f"sender at most {peak_mb} MB, "
                  f"nine of ten destinations have begun after {begun_after:.0%} of them")  # fmt: skip
        assert peak_mb < SENDER_MB_MAX
        assert begun_after < 0.8, "they do not wait for the end of the others"
        assert peer.violations == []
        assert peer.verdict({queue: bodies(0, ROWS) for queue in queues}).ok


def test_of_what_waits_for_peers_that_accept_and_say_nothing_one_message_each_is_read(
    tmp_path: Path,
) -> None:
    queues, rows, body = 3, 100, bytes(1_000_000)
    with Peers() as peers, RunningQueueManager(tmp_path / "qm") as running:
        silent = peers.silent()
        for queue in range(queues):
            for first in range(0, rows, 10):
                commit(running.api, f"{queue} {first}", rows_to(f"{silent}/q{queue}", [body] * 10))
        time.sleep(2.0)  # more than a hundred reads took
        assert sender_mb(running, "VmRSS") < SENDER_MB_MAX


def test_what_waits_for_peers_that_cannot_be_reached_is_not_read(tmp_path: Path) -> None:
    """The kernel of a host that is overrun drops every attempt: each lasts for ten seconds, and all were in memory with it."""
    queues, body = 150, bytes(1_000_000)
    with Peers() as peers, RunningQueueManager(tmp_path / "qm") as running:
        overrun = peers.swallowing()
        for first in range(0, queues, 10):
            urls = [f"{overrun}/q{n}" for n in range(first, first + 10)]
            commit(running.api, str(first), [row for url in urls for row in rows_to(url, [body])])
        time.sleep(2.0)  # all that may connect do
        found = requests.get(f"{running.api}/v1/status", timeout=60).json()["outgoing"]
        assert sender_mb(running, "VmRSS") < SENDER_MB_MAX
        assert {each["queued"] for each in found} == {1}
        assert "Waiting" in {each["state"] for each in found}
