"""``deadLetter`` between two queue managers of ours: a message is finished when the application took it."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest
from kit import arrow, bodies, outgoing, post, rows_to, until

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.testing.queue_manager import RunningQueueManager

QUEUE = "private$/in"
QUICK = {"resend_table": "0.5,0.5,1", "retransmission_timeout": 0.3}


def receive(running: RunningQueueManager, to: int) -> None:
    """The application takes everything up to ``to``."""
    client = QueueManagerClient(running.api, retry_seconds=10)
    epoch = client.range(QUEUE).epoch
    client.register(QUEUE, "default", epoch=epoch, holder="application")
    client.received(QUEUE, "default", epoch=epoch, to=to, holder="application")


@pytest.mark.timeout(120)
def test_dead_letter_between_two_queue_managers_of_ours(tmp_path: Path) -> None:
    """``deadLetter``: finished when the application took it, a dead letter when it was purged; both killed in between."""
    count = 60
    with (
        RunningQueueManager(
            tmp_path / "b",
            queues=[f"{QUEUE}:transactional"],
            allow_url=["http://127.0.0.1:*"],
            **QUICK,
        ) as b,
        RunningQueueManager(tmp_path / "a", **QUICK) as a,
    ):
        url = f"{b.listening}/msmq/{QUEUE}"
        base = f"{a.api}/v1/outbox/app/1"
        staged = post(
            f"{base}/stage?partition=0&attempt=0",
            data=arrow(rows_to(url, bodies(0, count)), {"srmp.dead_letter": "true"}),
        )
        post(f"{base}/commit", json={"stages": [staged["stage"]]})

        def waiting(number: int) -> bool:
            entry = outgoing(a, url)
            return (
                bool(entry)
                and (entry["queued"], entry["awaiting_stream_receipt"]) == (0, 0)
                and (entry["awaiting_final_stream_receipt"] == number)
            )

        until(lambda: waiting(count), "all have arrived and none is finished")
        receive(b, 20)
        until(lambda: waiting(count - 20), "the received ones are finished")
        a.kill9()  # what b tells meanwhile waits for it
        receive(b, 40)
        b.kill9()
        b.restart()
        assert QueueManagerClient(b.api, retry_seconds=10).purge(QUEUE)["purged"] == count - 40
        b.kill9()
        b.restart()
        a.restart()
        until(lambda: waiting(0), "all are finished or dead")
        states = post(
            f"{a.api}/v1/outgoing/states",
            json={
                "destination": url,
                "kind": "stream",
                "serials": list(range(1, count + 1)),
                "wait": 0,
            },
        )["states"]
        assert states == ["acknowledged"] * 40 + ["dead"] * 20
        for running in (a, b):
            assert running.stop() == 0
            assert "Traceback" not in running.stderr()
    with contextlib.closing(sqlite3.connect(tmp_path / "a" / "outbox.db")) as connection:
        dead = connection.execute(
            "SELECT reason, message_class, in_doubt, target, sum(rows) FROM moved GROUP "
            "BY 1, 2, 3, 4"
        ).fetchall()
    assert dead == [("not-received", 0xC001, 0, "deadxact$", 20)]
