"""A real queue manager reads a foreign one that behaves badly, and is killed meanwhile."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
from pathlib import Path

import pytest
from test_pulling_live import _pending, _subscription, rows, until

from srmp_spark.queue_manager.puller.gateway_side.pulled import PulledKey
from srmp_spark.queue_manager.puller.moving_and_copying.sent_marks import SentMarks
from srmp_spark.store.directory import DATABASE_FILE
from srmp_spark.testing import queue_manager
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.remote.server import Faults, ForeignServer

KILLS = int(os.environ.get("SRMP_SPARK_PULL_KILLS", "2"))
QUEUE = "private$/orders"
BAD = Faults(before=0.002, after=0.002, end_lost=0.03, thief=0.3)


def subscription(path: Path, server: ForeignServer, mode: str = "move") -> Path:
    path.write_text(
        f'[[subscription]]\nhost = "127.0.0.1:{server.port}"\nqueue = '
        f'\'private$\\orders\'\nmode = "{mode}"\nto = "{QUEUE}"\n'
    )
    return path


def numbers(running: RunningQueueManager) -> list[int]:
    return [int(bytes(each["body"]).removeprefix(b"body ")) for each in rows(running)]


def stored(running: RunningQueueManager) -> set[int]:
    """What a killed queue manager had stored and not made rows of, while an End of it was on its way."""
    (path,) = (running.data_dir / "subscriptions").glob("*.sent")
    with contextlib.closing(sqlite3.connect(running.data_dir / DATABASE_FILE)) as database:
        kept = [
            PulledKey(*each)
            for each in database.execute("SELECT lookup_id, message_id FROM pulled")
        ]
    marks = SentMarks.open(path, kept)
    marks.close()
    assert marks.sent is not None
    return {int(key.message_id.rpartition("\\")[2]) for key in kept if marks.was_sent(key)}


def judge(server: ForeignServer, got: list[int], in_doubt: set[int]) -> set[int]:
    """The rows that another reader has too: only of an End without an answer, or one that was on its way at a kill."""
    stolen, sent, ends = server.look(
        lambda queue: (set(queue.stolen), queue.sequence, queue.unanswered_ends)
    )
    assert len(got) == len(set(got)), "doubled"
    assert set(got) | stolen == set(range(1, sent + 1)), "lost"
    both = set(got) & stolen
    assert both <= ends | in_doubt, f"no End of {both - ends - in_doubt} was in doubt"
    return both


def taken(server: ForeignServer) -> int:
    return server.look(lambda queue: len(queue.taken_by_us))


def left(server: ForeignServer, running: RunningQueueManager) -> str:
    """What is still waited for."""
    there, locks = server.look(lambda queue: (len(queue.messages), dict(queue.locks)))
    here = _subscription(running)
    return (
        f"{server.arriving} messages still come, {there} are there, locked {locks}, "
        f"{taken(server)} taken; {here}"
    )


def _more(server: ForeignServer) -> bool:
    """As long as it is waited for."""
    server.arriving = max(server.arriving, 10)
    return False


@pytest.mark.timeout(900 + 20 * KILLS)
def test_no_message_is_lost_or_doubled_by_a_foreign_queue_manager_that_behaves_badly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """T13 to T17 for real. ``make kill-pull``: 200 kills, of either side."""
    monkeypatch.setattr(
        queue_manager, "READY_SECONDS", 180.0
    )  # so often something starts on a busy machine
    rng = random.Random(4)
    with ForeignServer(seed=6) as server:
        server.faults = BAD
        with RunningQueueManager(
            tmp_path / "qm", config=subscription(tmp_path / "qm.toml", server)
        ) as running:
            in_doubt: set[int] = set()
            for kill in range(KILLS):
                goal = taken(server) + rng.randrange(1, 60)
                until(
                    lambda goal=goal: taken(server) >= goal or _more(server),
                    still=lambda: left(server, running),
                )
                if kill % 4 == 3:
                    server.switch_off()
                    server.switch_on()
                else:
                    running.kill9()
                    in_doubt |= stored(running)
                    running.restart()
            until(
                lambda: server.look(lambda queue: queue.unanswered_ends) or _more(server),
                still=lambda: left(server, running),
            )
            server.faults = Faults()
            until(
                lambda: (
                    not server.arriving
                    and not server.look(lambda queue: queue.messages)
                    and not _pending(running)
                ),
                still=lambda: left(server, running),
            )
            both = judge(server, got := numbers(running), in_doubt)

            # SIGTERM in the midst of it leaves nothing in doubt: what is stored is acknowledged, and then it is a row.
            server.arriving = 400
            until(
                lambda: len(numbers(running)) > len(got) + 20, still=lambda: left(server, running)
            )
            running.stop()
            server.arriving = 0
            server.switch_off()
            running.restart()
            assert set(numbers(running)) == server.look(lambda queue: set(queue.taken_by_us)) | both
            assert _pending(running) == 0
        queue = server.queue
    print(
        f"{KILLS} kills, {server.opened} connections, {queue.sequence} messages, "
        f"{len(got)} rows, {len(queue.stolen)} taken by "
        f"another reader, {len(both)} by both ({len(queue.unanswered_ends)} Ends without "
        f"an answer, {len(in_doubt)} on "
        "their way at a kill)"
    )
    assert server.opened > KILLS
    assert queue.unanswered_ends
