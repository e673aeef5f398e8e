"""Rows of the outbox that cannot be read at a start: the process lives, one destination is held, an operator decides."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import requests
from forwarding_kit import ELSEWHERE, LOOPBACK, forward_queue, send_stream
from kit import acknowledged, bodies, commit, outgoing, post, rows_to, sender_of, until

from srmp_spark.names import FORWARD_QUEUE
from srmp_spark.testing.foreign.faults import Faults
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.foreign.destination import Destination

QUEUE, OTHER = "private$/in", "private$/other"
FORWARDS: dict[str, Any] = {
    "allow_url": [LOOPBACK, f"http://{ELSEWHERE}:*"], "store_and_forward": "true", "resend_table": "0.5,0.5,1",
}  # fmt: skip
DAMAGES = {
    "queues": "UPDATE queues SET end = 'many' WHERE destination = ?",
    "parts": "UPDATE parts SET first = NULL, ids_first = 'x' WHERE queue_id = (SELECT id "
    "FROM queues WHERE destination = ?) "
    "AND first = 4",
}


def damage(running: RunningQueueManager, statement: str, *values: str) -> None:
    running.stop()
    with sqlite3.connect(running.data_dir / "outbox.db") as connection:
        assert connection.execute(statement, values).rowcount == 1
    connection.close()
    running.restart()


def set_aside(running: RunningQueueManager) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = requests.get(f"{running.api}/v1/status", timeout=30).json()[
        "set_aside"
    ]
    return found


def told_by_doctor(running: RunningQueueManager) -> list[str]:
    line = [sys.executable, "-m", "srmp_spark.cli", "doctor", "--api", running.api]
    told = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    checks = map(json.loads, told.stdout.splitlines())
    return [check["detail"] for check in checks if check["check"] == "store" and not check["ok"]]


@pytest.mark.parametrize("table", DAMAGES)
def test_one_destination_is_held_and_all_others_go_on(tmp_path: Path, table: str) -> None:
    queues = {QUEUE: True, OTHER: True}
    with (
        Destination(queues=queues, receipt_wait=0.1) as peer,
        RunningQueueManager(tmp_path / "qm") as running,
    ):
        held, other = peer.url(QUEUE), peer.url(OTHER)
        commit(running.api, "0", rows_to(held, bodies(0, 3)))
        acknowledged(running, held)
        post(f"{running.api}/v1/outgoing/{quote(held, safe='')}/pause")
        for batch in (1, 2):
            commit(running.api, str(batch), rows_to(held, bodies(3 * batch, 3 * batch + 3)))
        damage(running, DAMAGES[table], held)
        found = until(lambda: set_aside(running), "the row is told")
        assert [each["table"] for each in found] == [table]
        assert held in found[0]["key"]
        assert any(
            f"of table {table} cannot be read" in told and held in told
            for told in told_by_doctor(running)
        )
        process = sender_of(running)
        commit(running.api, "3", rows_to(other, bodies(0, 4)))
        acknowledged(running, other)
        assert [message.body for message in peer.queues[OTHER]] == bodies(0, 4)
        assert outgoing(running, held)["state"] == "OnHold"
        assert len(peer.queues[QUEUE]) == 3, "nothing leaves before an operator decides"
        post(f"{running.api}/v1/outgoing/{quote(held, safe='')}/resend")
        acknowledged(running, held)
        kept = bodies(0, 9) if table == "queues" else [*bodies(0, 3), *bodies(6, 9)]
        assert [message.body for message in peer.queues[QUEUE]] == kept, "in their order, each once"
        assert peer.violations == []
        assert sender_of(running) == process, "it never died"
        assert [each["table"] for each in set_aside(running)] == [table], "what is lost stays told"


def test_without_its_place_what_is_forwarded_waits_and_all_else_is_sent(tmp_path: Path) -> None:
    with (
        Destination(
            host=ELSEWHERE, queues={QUEUE: True}, receipt_wait=0.1, allow=["stream-guid"]
        ) as peer,
        Destination(
            queues={OTHER: True}, receipt_wait=0.1, faults=Faults(seed=2)
        ) as direct,  # a GUID of its own
        RunningQueueManager(tmp_path / "qm", **FORWARDS) as running,
    ):
        send_stream(running, peer.url, QUEUE, bodies(0, 5))
        acknowledged(running, peer.url(QUEUE))
        until(lambda: forward_queue(running)["waiting"] == 0, "all of it was received")
        damage(running, "UPDATE meta SET value = '[]' WHERE key = 'forward_read_to'")
        send_stream(running, peer.url, QUEUE, bodies(5, 8))
        until(lambda: len(peer.queues[QUEUE]) >= 8, "nothing waited: the place is the end")
        assert [message.body for message in peer.queues[QUEUE]] == bodies(0, 8)
        damage(
            running,
            "UPDATE meta SET value = x'00' WHERE key = 'forward_rules' OR key = 'forward_read_to'",
        )
        assert [each["table"] for each in until(lambda: set_aside(running), "told")] == [
            "meta",
            "meta",
        ]
        commit(running.api, "1", rows_to(direct.url(OTHER), bodies(0, 3)))
        acknowledged(running, direct.url(OTHER))


def test_what_waits_to_be_forwarded_is_not_sent_twice(tmp_path: Path) -> None:
    """It waits until an operator has emptied the queue, and starts again."""
    with (
        Destination(
            host=ELSEWHERE, queues={QUEUE: True}, receipt_wait=0.1, allow=["stream-guid"]
        ) as peer,
        RunningQueueManager(tmp_path / "qm", **FORWARDS) as running,
    ):
        send_stream(running, peer.url, QUEUE, bodies(0, 5))
        acknowledged(running, peer.url(QUEUE))
        until(lambda: forward_queue(running)["waiting"] == 0, "all of it was received")
        running.stop()
        for file, statement in (
            ("outbox.db", "UPDATE meta SET value = '[]' WHERE key = 'forward_read_to'"),
            ("store.db", "UPDATE consumers SET received = 3, ahead = '[]'"),
        ):
            with sqlite3.connect(running.data_dir / file) as connection:
                connection.execute(statement)
            connection.close()
        running.restart()
        until(lambda: "forward.held" in running.stderr(), "it is told")
        assert forward_queue(running)["waiting"] == 2
        assert len(peer.queues[QUEUE]) == 5
        post(f"{running.api}/v1/queues/{quote(FORWARD_QUEUE, safe='')}/purge", json={})
        running.stop()
        running.restart()
        send_stream(running, peer.url, QUEUE, bodies(5, 8))
        until(lambda: len(peer.queues[QUEUE]) >= 8, "it goes on")
        assert [message.body for message in peer.queues[QUEUE]] == bodies(0, 8)
