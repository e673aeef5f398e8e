"""A real queue manager reads a foreign one that behaves badly, and is killed meanwhile."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
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
        f'[[subscription]]\nhost = "127.0.0.1:{server.port}"\nqueue = \'private$\\orders\'\nmode = "{mode}"\nto = "{QUEUE}"\n'
    )
    return path


def numbers(running: RunningQueueManager) -> list[int]:
    return [int(bytes(each["body"]).removeprefix(b"body ")) for each in rows(running)]


def stored(running: RunningQueueManager) -> set[int]:
    """What a killed queue manager had stored and not made rows of: whether End was sent of it, it does not know."""
    with contextlib.closing(sqlite3.connect(running.data_dir / "inbox.db")) as database:
        return {int(each.rpartition("\\")[2]) for (each,) in database.execute("SELECT message_id FROM pulled")}


def judge(server: ForeignServer, got: list[int], in_doubt: set[int]) -> set[int]:
    """The rows that another reader has too: only of an End without an answer, or of what was stored at a kill."""
    stolen, sent, ends = server.look(lambda queue: (set(queue.stolen), queue.sequence, queue.unanswered_ends))
    assert len(got) == len(set(got)), "doubled"
    assert set(got) | stolen == set(range(1, sent + 1)), "lost"
    both = set(got) & stolen
    assert both <= ends | in_doubt, f"no End of {both - ends - in_doubt} was in doubt"
    return both


def test_no_message_is_lost_or_doubled_by_a_foreign_queue_manager_that_behaves_badly(tmp_path: Path):
    """T13 to T17 for real. ``make kill-pull``: 200 kills, of either side."""
    rng = random.Random(4)
    with ForeignServer(seed=6) as server:
        server.faults, server.arriving = BAD, 120
        with RunningQueueManager(tmp_path / "qm", config=subscription(tmp_path / "qm.toml", server)) as running:
            in_doubt: set[int] = set()
            for kill in range(KILLS):
                server.arriving += 60
                time.sleep(rng.uniform(0.1, 0.6))
                if kill % 4 == 3:
                    server.switch_off()
                    server.switch_on()
                else:
                    running.kill9()
                    in_doubt |= stored(running)
                    running.restart()
            server.faults = Faults()
            until(lambda: not server.arriving and not server.look(lambda queue: queue.messages) and not _pending(running), 90)
            got = numbers(running)
        both = judge(server, got, in_doubt)
        queue = server.queue
    print(
        f"{KILLS} kills, {server.opened} connections, {queue.sequence} messages, {len(got)} rows, {len(queue.stolen)} taken by "
        f"another reader, {len(both)} by both ({len(queue.unanswered_ends)} Ends without an answer, {len(in_doubt)} stored at "
        "a kill)"
    )
    assert server.opened > KILLS
    assert queue.unanswered_ends


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
