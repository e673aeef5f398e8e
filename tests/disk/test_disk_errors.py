"""T6 of the reliability report: a write or sync fails, once or for ever. Nothing is answered that is not on the disk."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from pathlib import Path

import pytest
import requests
from disk_service import QUEUE, Sender, failing, failure_of, landed, stop
from disk_trace import needs_strace
from kit import acknowledged, arrow, bodies, rows_to

from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.foreign.destination import Destination

EXIT_SECONDS = 1.0
"""From the failure to the end of the process."""
TAKING = 200
"""Messages, one commit each: the failing call is among them."""


@needs_strace
@pytest.mark.parametrize(
    ("call", "file", "when"),
    [
        ("fdatasync", "store.db-wal", "30"),
        pytest.param("fdatasync", "store.db-wal", "30+", marks=pytest.mark.long),
        pytest.param("pwrite64", "store.db-wal", "300", marks=pytest.mark.long),
        ("pwrite64", "store.db-wal", "300+"),
    ],
)
def test_after_a_failed_write_or_sync_nothing_is_acknowledged(
    tmp_path: Path, call: str, file: str, when: str
) -> None:
    data, log = tmp_path / "data", tmp_path / "trace"
    running = RunningQueueManager(
        data, queues=[QUEUE], prefix=failing(log, data / file, call, when)
    )
    running.start()
    pid = running.pid
    sender = Sender(running)
    refused = sender.send_until_refused(range(1, TAKING))
    assert running.process is not None
    assert running.process.wait(20) == 1, "the exit code of a disk that refuses"
    failure = failure_of(log)
    assert failure.later_syncs == [], "no sync is tried again: it may only seem to work"
    last = sender.answers[-1]
    assert (last.number, last.status) == (refused, None), (
        "not even a refusal: nobody knows whether it is stored"
    )
    assert [answer.status for answer in sender.answers[:-1]] == [200] * (refused - 1)
    ended, code = failure.exited[pid]
    assert (code, ended - failure.at < EXIT_SECONDS) == (1, True), f"{ended - failure.at} s"
    told = [line for line in running.stderr().splitlines() if line.startswith("srmp-spark: ")]
    assert len(told) == 1, told
    assert "failed after commit" in told[0]
    assert "restart it when the disk is in order" in told[0]
    with RunningQueueManager(data, queues=[QUEUE]) as again:
        there = landed(again.api)
        assert sorted(there) in (list(range(1, refused)), list(range(1, refused + 1))), (
            "nothing acknowledged is lost"
        )
        sender = Sender(again)
        assert [sender.send(number) for number in range(1, refused + 5)] == [200] * (refused + 4)
        assert sorted(landed(again.api)) == list(range(1, refused + 5)), "nothing is doubled"


@needs_strace
@pytest.mark.parametrize(
    ("call", "when"), [("fdatasync", "9+"), pytest.param("pwrite64", "40", marks=pytest.mark.long)]
)
def test_a_batch_is_not_committed_until_the_outbox_is_synced(
    tmp_path: Path, call: str, when: str
) -> None:
    """The sender process ends and is started again; a driver repeats what was not answered. Once is once at the peer."""
    data, log = tmp_path / "data", tmp_path / "trace"
    sent = bodies(0, 120)
    with Destination(queues={"private$/in": True}, receipt_wait=0.1, repeat_receipts=True) as peer:
        url = peer.url("private$/in")
        options = {"resend_table": "0.1,0.1,0.5", "retransmission_timeout": 0.2}
        running = RunningQueueManager(
            data, prefix=failing(log, data / "outbox.db-wal", call, when), **options
        )
        with running:
            answered = [
                commit_once(running.api, n, rows_to(url, sent[n * 10 : n * 10 + 10]))
                for n in range(6)
            ]
            deadline = time.monotonic() + 30
            while not log.exists() or "(INJECTED)" not in log.read_text():
                assert time.monotonic() < deadline, "nothing failed"
                time.sleep(0.05)
            time.sleep(EXIT_SECONDS)
            text = running.stderr()
            stop(running)
        assert "sender.fatal" in text, text[-2000:]
        failure = failure_of(log)
        died = [(at, code) for at, code in failure.exited.values() if code == 1]
        assert died, failure.exited
        assert min(at for at, _ in died) - failure.at < EXIT_SECONDS
        address = running.listening.removeprefix(
            "http://"
        )  # the peer was told where its receipts go
        with RunningQueueManager(data, listen=address, **options) as again:
            for n in range(12):
                new, known = commit_until(again.api, n, rows_to(url, sent[n * 10 : n * 10 + 10]))
                assert (new, known) in ((10, 0), (0, 10)), "a batch is whole or not there"
                if n < 6 and answered[n]:
                    assert (new, known) == (0, 10), f"batch {n} was answered"
            acknowledged(again, url, 60)
            verdict = peer.verdict({"private$/in": sent})
            assert verdict.ok, verdict.complaint()


def commit_once(api: str, batch: int, rows: list[dict[str, object]]) -> tuple[int, int] | None:
    """``None`` if it was refused or nobody answered; never a refusal that says it can never succeed."""
    base = f"{api}/v1/outbox/app/{batch}"
    try:
        answer = requests.post(
            f"{base}/stage?partition=0&attempt={time.monotonic_ns()}", data=arrow(rows), timeout=30
        )
        if answer.status_code == 200:
            answer = requests.post(
                f"{base}/commit", json={"stages": [answer.json()["stage"]]}, timeout=30
            )
    except requests.RequestException:
        return None
    assert answer.status_code in (200, 503, 404), answer.text
    return (answer.json()["new"], answer.json()["known"]) if answer.status_code == 200 else None


def commit_until(api: str, batch: int, rows: list[dict[str, object]]) -> tuple[int, int]:
    deadline = time.monotonic() + 30
    while (done := commit_once(api, batch, rows)) is None:
        assert time.monotonic() < deadline, f"batch {batch}"
        time.sleep(0.1)
    return done


@needs_strace
def test_a_segment_that_cannot_be_synced_is_not_entered(tmp_path: Path) -> None:
    """Its rows stay where they are, and the queue manager goes on."""
    data, log = tmp_path / "data", tmp_path / "trace"
    with RunningQueueManager(data, queues=[QUEUE]):
        pass
    with contextlib.closing(sqlite3.connect(data / "store.db")) as store:
        (number,) = store.execute("SELECT id FROM queues WHERE name = ?", (QUEUE,)).fetchone()
    prefix = failing(log, data / "segments" / str(number), "fsync", "1+")
    with RunningQueueManager(data, queues=[QUEUE], prefix=prefix) as running:
        sender = Sender(running, size=100_000)
        # 12 MB: a segment's worth and more, for a look that comes a little early finds too little and waits for as much again.
        assert [sender.send(number) for number in range(1, 121)] == [200] * 120
        deadline = time.monotonic() + 120  # under strace, beside other tests
        while "(INJECTED)" not in (log.read_text() if log.exists() else ""):
            assert time.monotonic() < deadline, running.stderr()[-2000:]
            time.sleep(0.1)
        assert sender.send(121) == 200
        assert landed(running.api) == list(range(1, 122))
        text = running.stderr()
        stop(running)
    assert "maintenance.queue_failed step=seal" in text, text[-2000:]
    with RunningQueueManager(data, queues=[QUEUE]) as again:
        assert landed(again.api) == list(range(1, 122))
