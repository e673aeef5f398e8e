"""Dead letters of a stream arrive as rows of the queue that their application named, each once, whatever is killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
import requests
from forwarding_kit import status
from kit import WAIT_S, acknowledged, arrow, bodies, is_seen_since, post, rows_to, sender_of, until

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.queue_manager.sender.application_letters import LetterQueueWarnings
from srmp_spark.testing.foreign.faults import Faults
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.foreign.destination import Destination

QUEUE, FAILED, OTHER = "private$/in", "private$/failed", "private$/other"
COLUMNS = [
    "sequence",
    "transport",
    "destination",
    "message_id",
    "class",
    "stream_sequence",
    "label",
    "body",
]


def commit(
    running: RunningQueueManager, batch: str, url: str, found: list[bytes], queue: str
) -> None:
    """As a sink with the option ``deadLetterQueue`` does."""
    base = f"{running.api}/v1/outbox/app/{batch}"
    rows = rows_to(url, found, label="original")
    staged = post(
        f"{base}/stage?partition=0&attempt=0", data=arrow(rows, {"srmp.dead_letter_queue": queue})
    )
    post(f"{base}/commit", json={"stages": [staged["stage"]]})


def letters(running: RunningQueueManager, queue: str = FAILED) -> list[dict[str, Any]]:
    """The rows of the queue."""
    client = QueueManagerClient(running.api, retry_seconds=10)
    bounds = client.range(queue)
    stream = client.rows(queue, epoch=bounds.epoch, after=0, to=bounds.end)
    rows = pa.ipc.open_stream(stream.read()).read_all().to_pylist()
    return [{name: row[name] for name in COLUMNS} for row in rows]


def dead(running: RunningQueueManager) -> list[tuple[str, int]]:
    with contextlib.closing(sqlite3.connect(running.data_dir / "outbox.db")) as connection:
        return connection.execute(
            "SELECT target, sum(rows) FROM moved WHERE fate = 'dead' GROUP BY 1 ORDER BY 1"
        ).fetchall()


def doctor(running: RunningQueueManager) -> str:
    line = [sys.executable, "-m", "srmp_spark.cli", "doctor", "--api", running.api]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    checks = map(json.loads, done.stdout.splitlines())
    return next(str(check["detail"]) for check in checks if check["check"] == "dead-letters")


@pytest.mark.timeout(120)
def test_what_a_peer_refuses_is_in_the_application_s_queue_once(tmp_path: Path) -> None:
    refuse = lambda message: int(message.body.split()[1]) % 3 == 0  # noqa: E731  # one line is enough
    sent = bodies(0, 60)
    refused = sent[::3]
    options = {"resend_table": "0.3,0.3,1", "retransmission_timeout": 0.2}
    queues = [f"{FAILED}:transactional", f"{OTHER}:transactional", "private$/plain"]
    with (
        Destination(
            queues={QUEUE: True},
            refuse=refuse,
            faults=Faults(seed=5),
            receipt_wait=0.1,
            repeat_receipts=True,
        ) as peer,
        RunningQueueManager(tmp_path / "qm", queues=queues, **options) as running,
    ):
        url = peer.url(QUEUE)
        for start in (0, 30):
            commit(running, f"{start}", url, sent[start : start + 30], "PRIVATE$\\Failed")
            until(lambda start=start: len(letters(running)) >= start // 3 + 1, "some came")
            if start:
                running.kill9()
                running.restart()
            else:
                killed = datetime.now(timezone.utc)
                os.kill(sender_of(running) or 0, signal.SIGKILL)
                until(
                    lambda killed=killed: is_seen_since(status(running), killed),
                    "another sender is there",
                )
        until(lambda: len(letters(running)) >= len(refused), "all came", 2 * WAIT_S)
        found = letters(running)
        assert [row["body"] for row in found] == refused, (
            "each once, in the order in which they were to arrive"
        )
        assert [row["sequence"] for row in found] == list(range(1, len(refused) + 1))
        assert {
            (row["transport"], row["destination"], row["label"], row["class"]) for row in found
        } == {("api", f"DIRECT={url}", "original", 0)}
        assert {row["message_id"].split("}")[0] for row in found} == {f"{{{running.guid}"}, (
            "as it was sent"
        )
        assert len({row["message_id"] for row in found}) == len(found)
        assert all(row["stream_sequence"] > 0 for row in found)
        assert dead(running) == [(FAILED, len(refused))]

        acknowledged(running, url)  # nothing is in doubt any more

        # What an operator drops says so; a queue that is of no use, or goes away, sends them to the system's dead letters.
        post(f"{running.api}/v1/outgoing/{quote(url, safe='')}/pause")
        for batch, queue in (
            ("good", FAILED),
            ("plain", "private$/plain"),
            ("none", "private$/nobody"),
        ):
            commit(running, batch, url, [b"row 1"], queue)
        post(f"{running.api}/v1/outgoing/{quote(url, safe='')}/drop")
        until(lambda: len(letters(running)) == len(refused) + 1, "the dropped one came")
        assert letters(running)[-1]["class"] == 0x8001
        assert dead(running) == [("deadxact$", 2), (FAILED, len(refused) + 1)]

        # A queue that is paused holds its own letters, and none of another; not after a kill of the sender process either.
        post(f"{running.api}/v1/queues/{quote(FAILED, safe='')}/pause")
        for number, queue in (
            (102, FAILED),
            (105, OTHER),
            (108, FAILED),
            (111, OTHER),
        ):  # the peer refuses them
            commit(running, f"{number}", url, [b"row %d" % number], queue)
        until(lambda: len(letters(running, OTHER)) == 2, "those of the other queue came")
        os.kill(sender_of(running) or 0, signal.SIGKILL)
        post(f"{running.api}/v1/queues/{quote(FAILED, safe='')}/resume")
        until(lambda: len(letters(running)) == len(refused) + 3, "those that were held came")
        assert [row["body"] for row in letters(running)[-2:]] == [b"row 102", b"row 108"]
        assert [row["body"] for row in letters(running, OTHER)] == [b"row 105", b"row 111"], (
            "each once"
        )

        counts = {"dropped": 3, "refused": len(refused) + 4}
        assert status(running)["dead_letters"] == counts, "over all kills"
        metrics = requests.get(f"{running.api}/metrics", timeout=60).text
        assert all(
            f'srmp_dead_letters_total{{reason="{reason}"}} {rows}.0' in metrics
            for reason, rows in counts.items()
        )
        assert f"dropped 3, refused {len(refused) + 4}" in doctor(running)

        log = running.stderr()
        assert 'queue=private$/plain reason="it is not transactional"' in log
        assert 'queue=private$/nobody reason="there is no such queue"' in log
        assert running.stop() == 0
        assert "Traceback" not in running.stderr()


@pytest.mark.timeout(240)
def test_a_queue_that_is_not_there_is_told_when_it_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And not when the first message is dead, weeks later. The rows are taken all the same: dead letters are kept anyway."""
    with RunningQueueManager(
        tmp_path / "qm", queues=[f"{FAILED}:transactional", "private$/plain"]
    ) as running:

        def staged(attempt: int, queue: str) -> dict[str, Any]:
            rows = rows_to("http://127.0.0.1:9/msmq/private$/q", [b"1"])
            content = arrow(rows, {"srmp.dead_letter_queue": queue})
            answer: dict[str, Any] = post(
                f"{running.api}/v1/outbox/app/b/stage?partition=0&attempt={attempt}", data=content
            )
            return answer

        assert staged(1, FAILED).keys() == {"stage", "rows"}
        warning = staged(2, "PRIVATE$\\later")["warning"]
        assert warning.startswith(
            "deadLetterQueue private$/later: there is no such queue; dead letters are "
            "kept by --state alone"
        )
        assert warning.endswith(
            "To make it: srmp-spark queue create 'private$/later' --transactional"
        )
        plain = staged(3, "private$/plain")["warning"]
        assert "private$/plain: it is not transactional" in plain
        assert plain.endswith(
            "Name another queue, or make one: srmp-spark queue create NAME --transactional"
        )

        warnings = LetterQueueWarnings(running.data_dir)
        assert warnings.warning("private$/later") == warnings.warning("private$/later") == warning
        assert [record.getMessage() for record in caplog.records] == [
            f"dead_letters.queue_missing {warning}"
        ], "once"
        QueueManagerClient(running.api).put_queue("private$/later", transactional=True)
        assert warnings.warning("private$/later") is None
        assert staged(4, "private$/later").keys() == {"stage", "rows"}
