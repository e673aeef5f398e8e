"""A damaged group of the outbox holds its own queue, and nothing else."""

from __future__ import annotations

import json
import logging
import sqlite3
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from hostile_peers import Peers
from kit import acknowledged, bodies, commit, outgoing, post, rows_to, sender_of, until

from srmp_spark.srmp.sending.outgoing_effects import (
    DeadLetter,
    OutgoingChanges,
    QueueKey,
    SerialRun,
)
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.foreign.destination import Destination

sys.path.append(str(Path(__file__).parents[1] / "outbox"))
from outbox_kit import NOW, A, Desk

QUEUE = "private$/in"


def damage(database: Path) -> None:
    with sqlite3.connect(database) as connection:
        assert connection.execute("UPDATE data SET crc = crc + 1").rowcount == 1
    connection.close()


def test_a_damaged_group_holds_its_queue_and_all_others_go_on(tmp_path: Path) -> None:
    with (
        Peers() as peers,
        Destination(queues={QUEUE: True}, receipt_wait=0.1) as peer,
        RunningQueueManager(tmp_path / "qm") as running,
    ):
        busy = f"{peers.answering(status=lambda content: b'503 Busy')}/busy"
        commit(running.api, "1", rows_to(busy, bodies(0, 5)))
        until(lambda: outgoing(running, busy)["state"] == "Inactive", "it has been tried")
        assert outgoing(running, busy)["damaged"] is None
        running.stop()
        damage(tmp_path / "qm" / "outbox.db")
        running.restart()
        held = until(
            lambda: (e := outgoing(running, busy)) and e["state"] == "OnHold" and e,
            "its queue is held",
        )
        assert "checksum" in held["last_error"]
        assert held["damaged"].startswith(
            f"5 messages to {busy} (serials 1 to 5) wait and cannot be read: the checksum of "
        )
        running.kill9()
        running.restart()  # what was in memory is gone
        until(
            lambda: outgoing(running, busy).get("damaged") == held["damaged"],
            "it is told all the same",
        )
        line = [sys.executable, "-m", "srmp_spark.cli", "doctor", "--api", running.api]
        told = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
        assert told.returncode == 1
        (found,) = [
            check
            for check in map(json.loads, told.stdout.splitlines())
            if check["check"] == "outgoing"
        ]
        assert (found["ok"], f"{found['detail']}; {found['hint']}") == (False, held["damaged"])
        assert f"streams drop --destination {busy}" in found["hint"]
        process = sender_of(running)
        commit(running.api, "2", rows_to(peer.url(QUEUE), bodies(0, 5)))
        assert acknowledged(running, peer.url(QUEUE))["damaged"] is None
        post(f"{running.api}/v1/outgoing/{quote(busy, safe='')}/resume")
        until(
            lambda: outgoing(running, busy)["state"] == "OnHold", "it is read again, and held again"
        )
        post(f"{running.api}/v1/outgoing/{quote(busy, safe='')}/drop")
        assert outgoing(running, busy) == {}
        assert sender_of(running) == process, "it never died"


@pytest.mark.parametrize("end", ["finished", "dead"])
def test_a_damaged_message_can_end(
    tmp_path: Path, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk(tmp_path)
    desk.send([{"body": b"%d" % n, "journal": True} for n in range(3)])
    with desk.outbox.database.transaction() as connection:
        connection.execute("UPDATE data SET crc = crc + 1")
    run = SerialRun(QueueKey(A, "stream"), 1, 2)
    letters = [DeadLetter(run, "refused", 400, False, None)] if end == "dead" else []
    changes = OutgoingChanges(
        [], [] if letters else [run], letters, [], desk.outbox.last_stream_ordinal, 1
    )
    with caplog.at_level(logging.ERROR):
        desk.outbox.write(changes, NOW)
    assert "outbox.damaged" in caplog.text
    assert desk.outbox.waiting.runs(1, final=False) == [(3, 3)]
    desk.close()
