"""A copy of a data directory that is started by mistake leaves production alone, until an operator lets it live."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import requests
from deltalake import DeltaTable
from kit import arrow, commit, outgoing, post, rows_to, until  # found through conftest.py
from test_pulling_live import rows

from srmp_spark.cli import run
from srmp_spark.client.api import QueueManagerClient
from srmp_spark.testing.destination import ForeignDestination
from srmp_spark.testing.queue_manager import RunningQueueManager
from srmp_spark.testing.sender import ForeignSender
from tests.kit.remote.server import ForeignServer

PULLED, STREAM, OUT = "private$/pulled", "private$/stream", "private$/out"


class Production:
    """A queue manager that moves messages of a foreign one, is sent streams, sends, and publishes its Delta state."""

    def __init__(self, tmp_path: Path, stack: ExitStack) -> None:
        self.state = tmp_path / "state"
        self.remote = stack.enter_context(ForeignServer(seed=3))
        self.peer = stack.enter_context(ForeignDestination({OUT: True}))
        self._config = tmp_path / "serve.toml"
        self._config.write_text(
            f'[[subscription]]\nhost = "127.0.0.1:{self.remote.port}"\nqueue = '
            f"'private$\\orders'\nto = \"{PULLED}\"\n"
        )
        self._stack = stack
        self.running = self.started(tmp_path / "production")

    def started(self, data_dir: Path) -> RunningQueueManager:
        """With the configuration of production, ports apart."""
        options = {"queues": [f"{STREAM}:transactional"], "allow_url": ["http://127.0.0.1:*"]}
        made = RunningQueueManager(
            data_dir, config=self._config, state=self.state, state_interval=0.2, **options
        )
        return self._stack.enter_context(made)

    def arrive(self, count: int) -> None:
        self.remote.arriving = count

    def published(self, epoch: str, *queues: str) -> int:
        """The rows of an epoch in the Delta table, of these queues or of all."""
        table = DeltaTable(str(self.state / "inbox")).to_pyarrow_table(columns=["epoch", "queue"])
        return len(
            [
                row
                for row in table.to_pylist()
                if row["epoch"] == epoch and (not queues or row["queue"] in queues)
            ]
        )


@pytest.fixture
def production(tmp_path: Path) -> Iterator[Production]:
    with ExitStack() as stack:
        yield Production(tmp_path, stack)


def status(running: RunningQueueManager) -> dict[str, Any]:
    found: dict[str, Any] = requests.get(f"{running.api}/v1/status", timeout=30).json()
    return found


def metric(running: RunningQueueManager, name: str) -> float:
    text = requests.get(f"{running.api}/metrics", timeout=30).text
    (line,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])


def words(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    run([*arguments])
    told = capsys.readouterr()
    return told.out + told.err


def test_a_copy_started_for_a_test_takes_and_sends_nothing_until_it_is_activated(
    production: Production, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    live = production.running
    production.arrive(20)
    until(lambda: len(rows(live, PULLED)) == 20, "production has what was there")
    until(lambda: production.published(live.epoch) >= 20, "and published it")
    live.stop()
    shutil.copytree(live.data_dir, tmp_path / "copy")
    live.restart()
    copy = production.started(tmp_path / "copy")
    url = production.peer.url(OUT)

    # What arrives at the copy is a row; what the copy would do elsewhere, it does not.
    with ForeignSender(copy.listening) as to_copy, ForeignSender(live.listening) as to_live:
        to_copy.post(STREAM, b"to the copy", transactional=True)
        to_live.post(STREAM, b"to production", transactional=True)
        commit(copy.api, "1", rows_to(url, [b"from the copy"]))
        commit(live.api, "1", rows_to(url, [b"from production"]))
        production.arrive(120)
        until(lambda: len(rows(live, PULLED)) == 140, "production has all 120")
        to_live.wait_for_receipts(1)
        production.peer.wait_for(1)
        until(lambda: production.published(live.epoch) >= 141, "production publishes")
        assert rows(copy, PULLED) == []
        assert to_copy.receipts == []
        assert [each.body for each in production.peer.messages()] == [b"from production"]
        assert production.published(copy.epoch) == 0
        assert outgoing(copy, url)["queued"] == 1
        assert len(rows(copy, STREAM)) == 1

        # It is told everywhere, with what to type, and it is remembered.
        for is_first in (True, False):
            held = status(copy)["held_copy"]
            assert "is a copy (inode" in held["because"]
            assert "srmp-spark activate" in held["do"]
            assert metric(copy, "srmp_held_copy") == 1
            for command in ("status", "queues", "doctor"):
                told = words(capsys, command, "--api", copy.api)
                assert held["because"] in told
                assert "srmp-spark activate" in told
            if is_first:
                copy.kill9()
                copy.restart()
        assert copy.stderr().count("copy.held because=") == 2
        assert status(live)["held_copy"] is None
        assert metric(live, "srmp_held_copy") == 0
        assert "held since" not in words(capsys, "queues", "--api", live.api)

        # Production ends for good, and the copy lives.
        live.stop()
        production.arrive(10)
        assert run(["activate", "--api", copy.api]) == 0
        (first,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert first == {"activated": True, "because": held["because"]}
        until(lambda: len(rows(copy, PULLED)) == 10, "it moves messages")
        to_copy.wait_for_receipts(1)
        production.peer.wait_for(2)
        until(lambda: production.published(copy.epoch, STREAM, PULLED) == 11, "it publishes")

        # The processes that die are started again as those of any directory.
        reader_and_sender = children(copy)
        assert len(reader_and_sender) == 2
        for pid in reader_and_sender:
            os.kill(pid, signal.SIGKILL)
        commit_when_up(copy, "2", rows_to(url, [b"later"]))
        to_copy.post(STREAM, b"later", transactional=True)
        production.peer.wait_for(3)
        until(lambda: production.published(copy.epoch, STREAM) == 2, "it still publishes")
    copy.stop()
    copy.restart()
    assert status(copy)["held_copy"] is None
    assert not any(each["held"] for each in status(copy)["subscriptions"])
    assert run(["activate", "--api", copy.api]) == 0
    (again,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert again == {"activated": False, "because": None}
    assert "Traceback" not in copy.stderr()


def children(running: RunningQueueManager) -> list[int]:
    """The reader and the sender process."""
    found = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    return [
        int(pid)
        for pid in found
        if re.search(rb"queue_manager\.(reader|sender)", Path(f"/proc/{pid}/cmdline").read_bytes())
    ]


def commit_when_up(running: RunningQueueManager, batch: str, found: list[dict[str, Any]]) -> None:
    """A sink tries again while the sender process is being started."""

    def done() -> bool:
        base = f"{running.api}/v1/outbox/app/{batch}"
        staged = requests.post(f"{base}/stage?partition=0&attempt=0", data=arrow(found), timeout=30)
        if staged.status_code != 200:
            return False
        stages = {"stages": [staged.json()["stage"]]}
        return requests.post(f"{base}/commit", json=stages, timeout=30).status_code == 200

    until(done, "the sender process is up")


def test_what_waited_stays_on_hold_until_it_is_resent_and_one_queue_may_go_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ForeignDestination() as peer:
        urls = [peer.url(f"private$/q{n}") for n in range(3)]
        peer.fail()
        with RunningQueueManager(tmp_path / "qm", retransmission_timeout=0.2) as live:
            for n, url in enumerate(urls[:2]):
                commit(live.api, f"{n}", rows_to(url, [b"waits %d" % n]))
        shutil.copytree(tmp_path / "qm", tmp_path / "copy")
        peer.recover()
        with RunningQueueManager(tmp_path / "copy", retransmission_timeout=0.2) as copy:
            commit(copy.api, "new", rows_to(urls[2], [b"new"]))
            # An operator may let one destination go before the decision about all, for good.
            path = f"{copy.api}/v1/outgoing/{requests.utils.quote(urls[0], safe='')}/resume"
            post(path)
            assert [each.body for each in peer.wait_for(1)] == [b"waits 0"]
            copy.kill9()
            copy.restart()
            commit(copy.api, "more", rows_to(urls[0], [b"more 0"]))
            peer.wait_for(2)
            assert sorted(each.body for each in peer.messages()) == [b"more 0", b"waits 0"]
            assert outgoing(copy, urls[2])["queued"] == 1

            assert run(["activate", "--api", copy.api]) == 0
            first, second = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
            assert first["activated"]
            assert (second["destination"], second["in_doubt"]) == (urls[1], 1)
            assert second["do"] == f"srmp-spark streams resend|drop --destination '{urls[1]}'"
            assert b"new" in [each.body for each in peer.wait_for(3)]
            assert run(["activate", "--resend", "--api", copy.api]) == 0
            assert b"waits 1" in [each.body for each in peer.wait_for(4)]
    assert len(peer.messages()) == 4, "each once"


def test_a_restored_backup_of_a_living_queue_manager_is_held_and_has_what_was_acknowledged(
    production: Production, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Backup, twice, while messages arrive, are moved, are sent; kill -9 in between; then the restore."""
    live, url = production.running, production.peer.url(OUT)
    to, data = tmp_path / "backup", str(live.data_dir)
    production.arrive(60)
    with ForeignSender(live.listening) as sender:
        for n in range(20):
            sender.post(STREAM, b"%d" % n, transactional=True)
        commit(live.api, "1", rows_to(url, [b"out %d" % n for n in range(5)]))
        until(lambda: len(rows(live, PULLED)) >= 20, "some are moved")
        before = len(rows(live, PULLED))
        assert run(["backup", "--data-dir", data, "--to", str(to)]) == 0
        sender.post(STREAM, b"after", transactional=True)
    assert run(["backup", "--data-dir", data, "--to", str(to)]) == 2
    assert "holds the backup of" in capsys.readouterr().err
    last = status(live)["last_backup"]
    assert last["to"] == str(to)
    assert metric(live, "srmp_last_backup_timestamp_seconds") > 1_700_000_000
    until(lambda: len(rows(live, PULLED)) == 60, "production has all of it")
    production.peer.wait_for(5)
    live.kill9()
    assert run(["backup", "--data-dir", data, "--to", str(tmp_path / "offline")]) == 0
    shutil.rmtree(live.data_dir)
    capsys.readouterr()

    for folder, at_least, streamed in ((to, before, 20), (tmp_path / "offline", 60, 21)):
        back = tmp_path / f"{folder.name}-back"
        assert run(["restore", "--backup", str(folder), "--data-dir", str(back)]) == 0
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert lines[-1]["what"] == "activate"
        again = production.started(back)
        old = status(again)["queues"]
        (pulled,) = [each for each in old if each["name"] == PULLED]
        assert pulled["last"] >= at_least
        bodies = [bytes(each["body"]) for each in rows_of_old(again, STREAM, live.epoch)]
        assert bodies == [b"%d" % n for n in range(20)] + [b"after"] * (streamed - 20)
        held = status(again)["held_copy"]
        assert held["because"].startswith("it was restored from the backup of 20")
        again.stop()
    assert len(production.peer.messages()) == 5, "nothing was sent again by itself"


def test_a_directory_is_moved_to_another_disk_in_three_commands(
    production: Production, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As docs/backup.md says: stop, copy, start and activate. Rows, readers, streams and what waits go on."""
    live, url, new = production.running, production.peer.url(OUT), tmp_path / "other disk"
    with ForeignSender(live.listening) as sender:
        sender.post(STREAM, b"before", transactional=True)
        production.peer.fail()
        commit(live.api, "1", rows_to(url, [b"waits"]))
        client = QueueManagerClient(live.api)
        client.register(STREAM, "default", holder="a reader", first=1)
        client.received(STREAM, "default", epoch=live.epoch, to=1, holder="a reader")
        client.release(STREAM, "default", holder="a reader")
        live.stop()
        old, live.data_dir = live.data_dir, new
        subprocess.run(["cp", "-a", str(old), str(new)], check=True)
        old.rename(old.with_name("old"))
        production.peer.recover()
        live.restart()
        assert status(live)["held_copy"] is not None
        assert run(["activate", "--resend", "--api", live.api]) == 0
        sender.post(STREAM, b"after", transactional=True)
        assert [each.body for each in production.peer.wait_for(1)] == [b"waits"]
        commit(live.api, "2", rows_to(url, [b"new"]))
        assert [each.body for each in production.peer.wait_for(2)] == [b"waits", b"new"]
        sender.wait_for_receipts(2)
    (queue,) = [each for each in status(live)["queues"] if each["name"] == STREAM]
    assert (queue["last"], queue["received"], queue["waiting"]) == (2, 1, 1)
    assert [each["gap_at"] for each in status(live)["incoming_streams"]] == [None]


def test_a_copy_whose_state_was_restored_elsewhere_is_not_activated(
    production: Production, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two ways out of one loss, in the wrong order: the second one ends before it acts."""
    live, state = production.running, str(production.state)
    production.arrive(3)
    until(lambda: production.published(live.epoch) >= 3, "it is published")
    live.stop()
    shutil.copytree(live.data_dir, tmp_path / "copy")
    restored = ["restore", "--state", state, "--data-dir", str(tmp_path / "restored"), "--force"]
    assert run(restored) == 0
    copy = production.started(tmp_path / "copy")
    commit(copy.api, "1", rows_to(production.peer.url(OUT), [b"from the copy"]))
    production.arrive(5)
    capsys.readouterr()
    assert run(["activate", "--api", copy.api]) == 4
    assert "was restored" in capsys.readouterr().err
    assert copy.process is not None
    assert copy.process.wait(30) == 6
    assert production.peer.messages() == []
    assert production.remote.look(lambda queue: len(queue.taken_by_us)) == 3
    with closing(sqlite3.connect(tmp_path / "copy" / "store.db")) as store:
        assert store.execute("SELECT 1 FROM meta WHERE key = 'held_copy'").fetchone()


def rows_of_old(running: RunningQueueManager, queue: str, epoch: str) -> list[dict[str, Any]]:
    """The rows of an epoch that has ended."""
    client = QueueManagerClient(running.api)
    span = client.range(queue, epoch=epoch)
    with client.rows(queue, epoch=epoch, after=span.first - 1, to=span.end) as stream:
        found: list[dict[str, Any]] = pa.ipc.open_stream(stream).read_all().to_pylist()
    return found
