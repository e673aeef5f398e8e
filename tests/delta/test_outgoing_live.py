"""The four tables of sending while the queue manager runs: soon, and as ``status`` has it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import requests
from deltalake import DeltaTable

sys.path.insert(0, str(Path(__file__).parents[1] / "sender"))

from kit import acknowledged, bodies, commit, rows_to, until

from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.foreign.destination import Destination

QUEUE = "private$/in"
NOWHERE = "http://127.0.0.1:1/msmq/private$/nowhere"
INTERVAL_S = 1.0
SLOW_MACHINE_S = 15.0
"""Other tests run beside this one."""


def read(state: Path, name: str) -> list[dict[str, Any]]:
    if not (state / name / "_delta_log").exists():
        return []
    rows: list[dict[str, Any]] = DeltaTable(str(state / name)).to_pyarrow_table().to_pylist()
    return rows


def test_what_waits_dies_and_is_journaled_is_seen_within_the_interval(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with (
        Destination(queues={QUEUE: True}, receipt_wait=0.1) as peer,
        RunningQueueManager(
            tmp_path / "qm", state=str(state), state_interval=INTERVAL_S
        ) as running,
    ):
        url, unknown = peer.url(QUEUE), peer.url("private$/unknown")
        commit(running.api, "1", rows_to(NOWHERE, bodies(0, 20), label="waits"))
        commit(running.api, "2", rows_to(url, bodies(0, 30), journal=True))
        acknowledged(running, url)
        until(lambda: len(read(state, "journal_queue")) == 30, "journal copies")

        def waiting() -> (
            bool
        ):  # what was just acknowledged may be in the table for one interval more
            found = [(row["body"], row["state"]) for row in read(state, "outgoing_queue")]
            return sorted(found) == sorted((body, "queued") for body in bodies(0, 20))

        until(waiting, "what waits, and nothing of it left: there is nobody to connect to")
        journal = read(state, "journal_queue")
        assert sorted(row["body"] for row in journal) == sorted(bodies(0, 30))
        assert {(row["attempts"], row["last_status"], row["target"]) for row in journal} == {
            (1, 200, "journal$")
        }
        assert all(row["first_sent_at"] <= row["moved_at"] for row in journal)

        commit(running.api, "3", rows_to(unknown, [b"nobody takes it"]))
        letter = until(lambda: read(state, "dead_letter_queue"), "the dead letter")[0]
        names = ("body", "reason", "last_status", "attempts")
        assert [letter[name] for name in names] == [b"nobody takes it", "400", 400, 1]
        assert (
            letter["written_at"] - letter["moved_at"]
        ).total_seconds() < INTERVAL_S + SLOW_MACHINE_S

        def streams() -> bool:
            found = {row["destination"]: row["state"] for row in read(state, "outgoing_streams")}
            return found == {url: "Connected", NOWHERE: "Inactive", unknown: "Connected"}

        until(streams, "states as status has them")
        lag = requests.get(f"{running.api}/v1/status", timeout=30).json()["state"]["lag_seconds"]
        assert lag < 30
        running.kill9()
        running.restart()
        commit(running.api, "4", rows_to(NOWHERE, bodies(20, 25)))
        until(lambda: len(read(state, "outgoing_queue")) == 25, "what waits after kill -9")
        assert len(read(state, "dead_letter_queue")) == 1
        assert len(read(state, "journal_queue")) == 30


def test_a_dead_letter_does_not_wait_for_a_backlog(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with (
        Destination(queues={QUEUE: True}) as peer,
        RunningQueueManager(
            tmp_path / "qm", state=str(state), state_interval=INTERVAL_S
        ) as running,
    ):
        unknown = peer.url("private$/unknown")
        commit(running.api, "1", rows_to(NOWHERE, [b"." * 1_000] * 20_000))
        commit(running.api, "2", rows_to(unknown, [b"nobody takes it"]))
        began = time.monotonic()
        (letter,) = until(lambda: read(state, "dead_letter_queue"), "the dead letter")
        assert (
            letter["written_at"] - letter["moved_at"]
        ).total_seconds() < INTERVAL_S + SLOW_MACHINE_S
        until(lambda: len(read(state, "outgoing_queue")) == 20_000, "the backlog")
        assert time.monotonic() - began < 30
