"""More busy destinations than connections: all are served in turn, none waits for another's end, and memory stays small."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import requests
from kit import bodies, commit, rows_to, sender_of

from srmp_spark.queue_manager.sender.connections import CONNECTIONS_MAX
from srmp_spark.testing.foreign.destination import Destination
from srmp_spark.testing.service import RunningQueueManager

DESTINATIONS = 1_200
ROWS = 4
SECONDS = 240.0
"""For a peer with a thread for each connection, on a busy machine; alone it takes a tenth of it."""
SENDER_MB_MAX = 250


def test_1200_destinations_are_served_in_turn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
        status = Path(f"/proc/{sender_of(running)}/status").read_text()
        peak_mb = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) // 1024
        posts = [event["queue"] for event in peer.record.events() if event["event"] == "sight"]
        last_begun = max(posts.index(queue) for queue in queues) / len(posts)
        with capsys.disabled():
            print(f"\n{DESTINATIONS} destinations, {len(posts)} posts in {took:.1f} s, sender at most {peak_mb} MB, "
                  f"the last destination begins after {last_begun:.0%} of them")  # fmt: skip
        assert peak_mb < SENDER_MB_MAX
        assert last_begun < 0.9, "the last one does not wait for the end of the others"
        assert peer.violations == []
        assert peer.verdict({queue: bodies(0, ROWS) for queue in queues}).ok
