"""An earlier version's program opens what this version leaves behind, or refuses it in words; docs/upgrades.md says which."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from earlier_program import PROGRAMS, EarlierProgram, commit_of
from whole_archive import ARCHIVES, Left

from srmp_spark import __version__
from srmp_spark.client.api import QueueManagerClient
from srmp_spark.client.outbox_batches import OutboxClient
from srmp_spark.client.outgoing_messages import OutgoingClient
from srmp_spark.testing import ForeignDestination, ForeignSender
from srmp_spark.testing.queue_manager import RunningQueueManager, ServeFailedError

ORDERS, PAYMENTS = "private$/orders", "private$/payments"
QUEUES = [ORDERS, f"{PAYMENTS}:transactional"]
ALLOWED = ["http://127.0.0.1:*"]
SEALED = 2_100
"""Rows that become a segment."""


@pytest.fixture(scope="module", params=PROGRAMS)
def earlier(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> EarlierProgram:
    return EarlierProgram(request.param, tmp_path_factory.mktemp("program") / request.param)


def now(data: Path, **options: Any) -> RunningQueueManager:
    """Return a queue manager of this version."""
    return RunningQueueManager(data, **options)


def test_the_program_is_that_of_the_whole_archive(tmp_path: Path) -> None:
    assert "0.1" in PROGRAMS
    for version in PROGRAMS:
        left = Left(version, tmp_path / version, in_place=False)
        made = json.loads((left.folder / "provenance.json").read_text())
        assert commit_of(version) == made["commit"]
        assert made["version"].startswith(f"{version}.")
        assert not __version__.startswith(f"{version}."), "two versions need two numbers"
    assert set(PROGRAMS) == set(ARCHIVES)


def rows(client: QueueManagerClient, queue: str, epoch: str, to: int) -> pa.Table:
    """Return the rows of a queue up to ``to`` as every reader gets them."""
    with client.rows(queue, epoch=epoch, after=0, to=to) as stream:
        return pa.ipc.open_stream(stream.as_file()).read_all()


def until(condition: Any, what: str) -> None:
    """Wait for ``condition()``."""
    end = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


class Before:
    """What a queue manager of this version left behind, in a folder, and what it said of it."""

    def __init__(self, folder: Path) -> None:
        self.data, self.state = folder / "data", folder / "state"
        self.options: dict[str, Any] = {
            "queues": QUEUES, "allow_url": ALLOWED, "state": self.state, "state_interval": 1, "listen": "127.0.0.1:0",
        }  # fmt: skip
        with now(self.data, **self.options) as running:
            self.port = running.endpoint[1]
            client = QueueManagerClient(running.api)
            for first in range(0, SEALED, 700):
                client.send(ORDERS, [{"label": f"order {n}"} for n in range(first, first + 700)])
            until(lambda: list(self.data.glob("segments/*/*.columns.arrow")), "a segment")
            self.sender = ForeignSender(running.listening).start()
            for n in range(3):
                self.sender.post(PAYMENTS, b"payment %d" % n, transactional=True)
                self.sender.post(ORDERS, b"order %d" % n)
            self.sender.wait_for_receipts(1)
            self._receive(client)
            self.epoch, self.guid = running.epoch, running.guid
            self.rows = {
                queue: rows(client, queue, self.epoch, client.queue(queue)["last"])
                for queue in (ORDERS, PAYMENTS)
            }
            until(lambda: client.status()["state"]["lag_seconds"] == 0, "the state has all")

    def _receive(self, client: QueueManagerClient) -> None:
        """Receive rows up to a mark, and two beyond the first gap."""
        lease = client.register(ORDERS, "default", holder="a test", first=1)
        for to, sequences in ((2_000, None), (2_102, [2_101, 2_102])):
            client.received(
                ORDERS, "default", epoch=lease.epoch, to=to, holder="a test", sequences=sequences
            )
        client.release(ORDERS, "default", holder="a test")


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Before]:
    left = Before(tmp_path_factory.mktemp("before"))
    yield left
    left.sender.stop()


def test_it_goes_on_with_a_directory_of_this_version_and_this_one_after_it(
    earlier: EarlierProgram, before: Before
) -> None:
    """Back, and forward again: one history, in which nothing is lost, doubled or changed."""
    options = {**before.options, "listen": f"127.0.0.1:{before.port}"}
    with earlier.queue_manager(before.data, **options) as back:
        client = QueueManagerClient(back.api)
        assert client.status()["version"].startswith(f"{earlier.version}.")
        assert (back.guid, back.epoch) == (before.guid, before.epoch), "no copy, no new epoch"
        for queue, was in before.rows.items():
            found = rows(client, queue, before.epoch, was.num_rows)
            assert found.select(was.column_names).equals(was), queue
        lease = client.register(ORDERS, "default", holder="the test")
        assert (lease.received, lease.ahead) == (2_000, ()), "what promise 6a says is forgotten"
        client.release(ORDERS, "default", holder="the test")
        before.sender.post(PAYMENTS, b"payment 3", transactional=True)
        before.sender.post(ORDERS, b"order 3")
        until(lambda: client.status()["state"]["lag_seconds"] == 0, "the state has all")
        assert "Traceback" not in back.stderr()
    with now(before.data, **options) as again:
        client = QueueManagerClient(again.api)
        assert (again.guid, again.epoch) == (before.guid, before.epoch)
        before.sender.post(PAYMENTS, b"payment 4", transactional=True)
        ends = {queue: client.queue(queue)["last"] for queue in before.rows}
        for queue, was in before.rows.items():
            found = rows(client, queue, before.epoch, ends[queue])
            assert found.slice(0, was.num_rows).equals(was), queue
        assert rows(client, PAYMENTS, before.epoch, ends[PAYMENTS])["body"].to_pylist() == [
            b"payment %d" % n for n in range(5)
        ]
        assert ends[ORDERS] == before.rows[ORDERS].num_rows + 1
        lease = client.register(ORDERS, "default", holder="the test")
        assert (lease.received, lease.ahead) == (2_000, ((2_101, 2_102),)), "it is remembered here"
        until(lambda: client.status()["state"]["lag_seconds"] == 0, "the state has all")
        assert "Traceback" not in again.stderr()
    inbox = deltalake.DeltaTable(before.state / "inbox").to_pyarrow_table(
        columns=["queue", "sequence"]
    )
    places = Counter((row["queue"], row["sequence"]) for row in inbox.to_pylist())
    assert places == Counter((queue, n) for queue, end in ends.items() for n in range(1, end + 1))


def wait_for_peer(there: OutgoingClient, url: str, bodies: list[bytes], **more: Any) -> None:
    """Give messages for a destination that does not answer yet."""
    there.send_away(
        [
            {"destination": url, "body_base64": base64.b64encode(body).decode(), **more}
            for body in bodies
        ]
    )


def stage(api: str, destination: str, bodies: list[bytes]) -> str:
    """Stage a batch of one task, and commit nothing; return the name of the stage."""
    table = pa.table({"body": bodies, "destination": [destination] * len(bodies)})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    staged = OutboxClient(api).stage(
        "app", "1", partition=0, attempt=0, content=lambda: iter([sink.getvalue()])
    )
    return staged.stage


def test_messages_that_wait_are_sent_by_it_once_and_in_order(
    earlier: EarlierProgram, tmp_path: Path
) -> None:
    """What waits, and a batch that was staged here and is committed there."""
    options: dict[str, Any] = {
        "allow_url": ALLOWED,
        "resend_table": "1,1",
        "retransmission_timeout": 1,
    }
    waiting, staged = [b"waits %d" % n for n in range(5)], [b"staged %d" % n for n in range(3)]
    with ForeignDestination({"private$/in": True, "private$/staged": True}) as peer:
        peer.fail()
        with now(tmp_path / "data", **options) as running:
            wait_for_peer(OutgoingClient(running.api), peer.url("private$/in"), waiting)
            name = stage(running.api, peer.url("private$/staged"), staged)
            options["listen"] = running.listening.partition("://")[2]
        peer.recover()
        with earlier.queue_manager(tmp_path / "data", **options) as back:
            assert OutboxClient(back.api).commit("app", "1", [name])[:2] == (3, 0)
            peer.wait_for(8)
            for queue, bodies in (("private$/in", waiting), ("private$/staged", staged)):
                assert [each.body for each in peer.messages(queue)] == bodies
            assert peer.violations == []


def content_of(database: Path) -> list[str]:
    """Return every row and every definition of a database, as SQL."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return list(connection.iterdump())


def test_keys_of_this_version_are_refused_in_words_and_nothing_is_changed(
    earlier: EarlierProgram, tmp_path: Path
) -> None:
    """It would misread the mark of a key as another content."""
    data = tmp_path / "data"
    with ForeignDestination({"private$/in": True}) as peer:
        peer.fail()
        with now(data, allow_url=ALLOWED, resend_table="1,1") as running:
            wait_for_peer(
                OutgoingClient(running.api), peer.url("private$/in"), [b"keyed"], key="order 1"
            )
        rows = content_of(data / "outbox.db")
        with pytest.raises(ServeFailedError, match="start the newer version") as refused:
            earlier.queue_manager(data, allow_url=ALLOWED).start()
        assert refused.value.code == 6
        assert content_of(data / "outbox.db") == rows
        peer.recover()
        with now(data, allow_url=ALLOWED, resend_table="1,1", retransmission_timeout=1):
            assert [each.body for each in peer.wait_for(1)] == [b"keyed"]


def test_a_configuration_of_this_version_is_refused_in_words(
    earlier: EarlierProgram, tmp_path: Path
) -> None:
    for text, named in (
        ('[[token]]\nname = "a"\nsha256 = "' + "0" * 64 + '"\nverbs = ["browse"]\n', "browse"),
        ('listen_wsrm = "127.0.0.1:0"\n', "listen_wsrm"),
    ):
        file = tmp_path / "serve.toml"
        file.write_text(text)
        with pytest.raises(ServeFailedError, match=named) as refused:
            earlier.queue_manager(tmp_path / "data", config=file).start()
        assert refused.value.code == 2
