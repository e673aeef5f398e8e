"""A real queue manager reads a foreign one that behaves badly, and is killed meanwhile."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

from foreign_server import Faults, ForeignServer
from test_pulling_live import _pending, rows, until

from srmp_spark.testing.service import RunningQueueManager

KILLS = int(os.environ.get("SRMP_SPARK_PULL_KILLS", "3"))
QUEUE = "private$/orders"
BAD = Faults(before=0.01, after=0.01, end_lost=0.05, thief=0.3)


def subscription(path: Path, server: ForeignServer, mode: str = "move") -> Path:
    path.write_text(
        f"[[subscription]]\nhost = \"127.0.0.1:{server.port}\"\nqueue = 'private$\\orders'\nmode = \"{mode}\"\n"
        f'to = "{QUEUE}"\n'
    )
    return path


def numbers(running: RunningQueueManager) -> list[int]:
    return [int(bytes(each["body"]).removeprefix(b"body ")) for each in rows(running)]


def judge(server: ForeignServer, got: list[int]) -> tuple[int, int]:
    """Rows, and those of them that another reader has too: only of an End without an answer, or of what was stored at a kill."""
    stolen, sent = server.look(lambda queue: (set(queue.stolen), queue.sequence))
    assert len(got) == len(set(got)), "doubled"
    assert set(got) | stolen == set(range(1, sent + 1)), "lost"
    return len(got), len(set(got) & stolen)


def test_no_message_is_lost_or_doubled_by_a_foreign_queue_manager_that_behaves_badly(tmp_path: Path):
    """T13 to T17 for real. ``make kill-pull``: 200 kills, of either side."""
    rng = random.Random(4)
    with ForeignServer(seed=6) as server:
        server.faults, server.arriving = BAD, 120
        with RunningQueueManager(tmp_path / "qm", config=subscription(tmp_path / "qm.toml", server)) as running:
            in_doubt = 0
            for kill in range(KILLS):
                server.arriving += 60
                time.sleep(rng.uniform(0.1, 0.6))
                if kill % 4 == 3:
                    server.switch_off()
                    server.switch_on()
                else:
                    running.kill9()
                    in_doubt += 64
                    running.restart()
            server.faults = Faults()
            until(lambda: not server.arriving and not server.look(lambda queue: queue.messages) and not _pending(running), 90)
            got = numbers(running)
        count, both = judge(server, got)
        without_answer = server.look(lambda queue: len(queue.unanswered_ends))
        stolen = server.look(lambda queue: len(queue.stolen))
    print(
        f"{KILLS} kills, {server.opened} connections, {server.queue.sequence} messages, {count} rows, {stolen} taken by "
        f"another reader, {both} by both ({without_answer} Ends without an answer)"
    )
    assert server.opened > KILLS
    assert both <= without_answer + in_doubt


def test_a_batch_under_way_is_finished_before_the_queue_manager_stops(tmp_path: Path):
    """SIGTERM leaves nothing in doubt: what is stored is acknowledged, and what is acknowledged is a row."""
    with ForeignServer(seed=2) as server:
        server.arriving = 400
        running = RunningQueueManager(tmp_path / "qm", config=subscription(tmp_path / "qm.toml", server))
        running.start()
        until(lambda: len(numbers(running)) > 20)
        running.stop()
        server.arriving = 0
        taken = server.look(lambda queue: set(queue.taken_by_us))
        server.switch_off()
        running.restart()
        assert set(numbers(running)) == taken
        assert _pending(running) == 0
        running.stop()
