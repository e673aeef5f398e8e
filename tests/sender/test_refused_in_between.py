"""[MC-MQSRM] 3.1.7.2.5: a 400 ends one message. What was written down behind it goes at once, and in its order."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hostile_peers import Peers
from kit import commit, outgoing, until

from srmp_spark.testing.queue_manager import RunningQueueManager

MESSAGES = 12
REFUSED = {3, 6, 7}


def number_of(content: bytes) -> int:
    found = re.search(rb"row (\d+)", content)
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize("delivery", ["recoverable", "transactional"])
def test_three_of_twelve_are_refused_and_the_others_do_not_wait(
    tmp_path: Path, delivery: str
) -> None:
    seen: list[tuple[int, float]] = []

    def status(content: bytes) -> bytes:
        seen.append((number_of(content), time.monotonic()))
        return b"400 Bad Request" if number_of(content) in REFUSED else b"200 OK"

    with Peers() as peers, RunningQueueManager(tmp_path / "qm") as running:
        to = f"{peers.answering(status=status)}/q"
        rows = [
            {"body": b"row %d" % n, "destination": to, "delivery": delivery}
            for n in range(MESSAGES)
        ]
        commit(running.api, "1", rows)
        until(lambda: seen and seen[-1][0] == MESSAGES - 1, "the last one is there", 90)
        begun = seen[0][1]
        assert seen[-1][1] - begun < 5, [(n, round(at - begun, 1)) for n, at in seen]
        assert [n for n, _ in seen] == [*range(MESSAGES)], "in order, each once"
        entry = outgoing(running, to, "stream" if delivery == "transactional" else "plain")
        assert entry["state"] == "Connected"
