"""From a staged row to its stream receipt: two queue managers that share no line, and two of ours."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import requests
from kit import acknowledged, bodies, commit, outgoing, rows_to, until

from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.foreign.destination import Destination

QUEUE = "private$/in"


def test_committed_rows_reach_a_foreign_queue_manager_in_order_and_are_acknowledged(
    tmp_path: Path,
) -> None:
    with (
        Destination(queues={QUEUE: True}, receipt_wait=0.1) as peer,
        RunningQueueManager(tmp_path / "qm") as running,
    ):
        url = peer.url(QUEUE)
        assert commit(running.api, "1", rows_to(url, bodies(0, 300))) == {"new": 300, "known": 0}
        entry = acknowledged(running, url)
        assert entry["state"] == "Connected"
        assert entry["last_acknowledged"] == 300
        assert entry["last_error"] is None
        assert [message.body for message in peer.queues[QUEUE]] == bodies(0, 300)
        assert peer.violations == []
        assert running.stop() == 0


def test_the_rows_of_one_batch_again_are_known_and_not_sent(tmp_path: Path) -> None:
    with (
        Destination(queues={QUEUE: True}, receipt_wait=0.1) as peer,
        RunningQueueManager(tmp_path / "qm") as running,
    ):
        url = peer.url(QUEUE)
        commit(running.api, "1", rows_to(url, bodies(0, 5)))
        assert commit(running.api, "1", rows_to(url, bodies(0, 5))) == {"new": 0, "known": 5}
        acknowledged(running, url)
        assert [message.body for message in peer.queues[QUEUE]] == bodies(0, 5)
        metrics = requests.get(f"{running.api}/metrics", timeout=20).text
    assert 'srmp_sink_rows_total{result="new"} 5.0' in metrics
    assert 'srmp_sink_rows_total{result="known"} 5.0' in metrics


def test_two_of_ours(tmp_path: Path) -> None:
    queue = f"{QUEUE}:transactional"
    with (
        RunningQueueManager(
            tmp_path / "there", queues=[queue], allow_url=["http://127.0.0.1:*"]
        ) as there,
        RunningQueueManager(tmp_path / "here") as here,
    ):
        url = f"{there.listening}/msmq/{QUEUE}"
        commit(here.api, "1", rows_to(url, bodies(0, 500)))
        assert acknowledged(here, url)["last_acknowledged"] == 500
        address = (
            f"{there.api}/v1/queues/{requests.utils.quote(QUEUE, safe='')}/rows?after=0&to=500"
        )
        with pa.ipc.open_stream(requests.get(address, timeout=30).content) as reader:
            assert reader.read_all()["body"].to_pylist() == bodies(0, 500)


def test_regular_messages_are_finished_by_their_200(tmp_path: Path) -> None:
    with (
        Destination(queues={"private$/plain": False}) as peer,
        RunningQueueManager(tmp_path / "qm") as running,
    ):
        url = peer.url("private$/plain")
        commit(running.api, "1", rows_to(url, bodies(0, 50), delivery="recoverable"))
        until(
            lambda: outgoing(running, url, "plain").get("last_acknowledged") == 50,
            "all are answered",
        )
        assert sorted(message.body for message in peer.queues["private$/plain"]) == sorted(
            bodies(0, 50)
        )
        assert peer.violations == []


def test_a_destination_that_cannot_be_served_is_a_400_before_anything_is_sent(
    tmp_path: Path,
) -> None:
    from kit import arrow

    with RunningQueueManager(tmp_path / "qm") as running:
        base = f"{running.api}/v1/outbox/app/1/stage?partition=0&attempt=0"
        for destination in (
            "MULTICAST=234.1.1.1:8001",
            "wsrm://127.0.0.1/wsrm/q",
            "private$/q",
            "ftp://x/y",
        ):
            answer = requests.post(base, data=arrow(rows_to(destination, [b"x"])), timeout=30)
            assert answer.status_code == 400, destination
            assert "destination" in answer.json()["error"]["message"]
        assert list((tmp_path / "qm" / "stages").glob("*.arrow*")) == []
