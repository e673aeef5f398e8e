"""A peer takes a message, closes the kept connection instead of answering, and has no answer for the second attempt either.

What it has may neither be forgotten, nor expire as something that never left: its receipt counts, also for a sender process
that began after it came.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from kit import acknowledged, bodies, commit, outgoing, rows_to, sender_of, until

from srmp_spark.testing.foreign.faults import Faults
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.foreign.destination import Destination

QUEUE = "private$/in"
NEVER = 300.0
"""Seconds until it is sent again: not in this test."""


def test_its_receipt_counts_though_the_sender_process_was_killed_meanwhile(tmp_path: Path) -> None:
    """The second attempt is answered 503; the receipt comes while there is no sender process."""
    faults = Faults.parse("@3=drop-after,@4=503")
    with Destination(
        queues={QUEUE: True}, faults=faults, receipt_wait=NEVER, receipt_wait_max=NEVER
    ) as peer:
        url = peer.url(QUEUE)
        with RunningQueueManager(tmp_path / "qm", retransmission_timeout=NEVER) as running:
            commit(running.api, "1", rows_to(url, bodies(0, 3)))
            until(
                lambda: len(peer.journal) == 4,
                "the third message was refused at the second attempt",
            )
            until(lambda: outgoing(running, url)["state"] == "Inactive", "that is known")
            time.sleep(0.3)  # and stored
            pid = sender_of(running)
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            (owed,) = peer._state.due(time.time() + 2 * NEVER)
            peer.send_receipt(owed)
            acknowledged(running, url)
            assert len(peer.journal) == 4, "nothing went again that was acknowledged"
        assert peer.violations == []
        assert peer.verdict({QUEUE: bodies(0, 3)}).ok
