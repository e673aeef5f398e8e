"""Messages of restored rows: a real restore, a real queue manager on what it made, real remote readers of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from every_kind import every_kind  # found through conftest.py
from remote_kit import Served, move, opened
from restore_kit import Manager
from test_pulling_live import subscribe, until

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.client.walking import shown
from srmp_spark.message import Arrival
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.lookup_identifier import rebuilt
from srmp_spark.mqrr.packets.message_packet import (
    EncodedPacket,
    MessagePacket,
    parse_message_packet,
)
from srmp_spark.mqrr.status import Status
from srmp_spark.queue_manager.reader.frames import UNREADABLE, Frames
from srmp_spark.queue_manager.reader.remote_messages import message_frames
from srmp_spark.rows import dense
from srmp_spark.rows.decode import rows_of
from srmp_spark.rows.group import Form, Record
from srmp_spark.store.directory import DATABASE_FILE, SEGMENTS_DIRECTORY, DataDirectory
from srmp_spark.store.restore.restore import restore
from srmp_spark.store.stored_rows import reading
from srmp_spark.store.stored_rows.log import Log
from srmp_spark.store.tables import queues
from srmp_spark.testing.queue_manager import RunningQueueManager

PLAIN = ("private$/peek", "private$/take", "private$/pull", "private$/move")
STREAMS = "private$/in"
PLACE = ("queue", "epoch", "sequence")
Row = dict[str, Any]


def records_for(queue: str) -> list[Record]:
    """Those whose kind the queue takes, with a column's word for it."""
    found = every_kind()
    kinds = rows_of("", "", "", list(enumerate(found, 1)))["delivery"].to_pylist()
    return [
        record
        for record, kind in zip(found, kinds, strict=True)
        if (kind == "transactional") is (queue == STREAMS)
    ]


class Restored:
    """A queue manager with rows of every kind that lost its disk, what its rows and messages were, and what is restored."""

    def __init__(self, directory: Path, names: tuple[str, ...]) -> None:
        self.manager = Manager(directory)
        self.rows: dict[str, list[Row]] = {}
        self.packets: dict[str, dict[int, MessagePacket]] = {}
        for name in names:
            self._fill(name)
        with Log(self.manager.path / DATABASE_FILE, self.manager.path / SEGMENTS_DIRECTORY) as log:
            for name in names:
                batches = reading.batches(
                    log, self.manager.guid, name, self.manager.epoch, 0, log.bounds(name).end
                )
                self.rows[name] = [row for batch in batches for row in batch.to_pylist()]
                self.packets[name] = packets_of(log, name, self.manager.epoch)
        self.manager.publish()
        self.manager.lose()
        self.manager.restore()

    def _fill(self, name: str) -> None:
        store = self.manager.store
        store.call(
            lambda transaction: queues.create(transaction, name, transactional=name == STREAMS)
        )
        proofs: list[object] = []
        records = records_for(name)
        for sequence, record in enumerate(records, 1):
            store.journal.submit((name, sequence, record), proofs.append)
        store.loop.until(lambda: len(proofs) == len(records))
        store.settle()

    def serve(self) -> Served:
        return Served(self.manager.new, state=self.manager.folder, state_interval=0.2)


def packets_of(log: Log, queue: str, epoch: str) -> dict[int, MessagePacket]:
    """The messages that remote readers get, by sequence; of one that has a POST without it, and the body in its place."""
    found = {}
    data = b"".join(message_frames(log, queue, epoch, 0, log.bounds(queue, epoch).end, 1 << 30))
    for frame in Frames().take(data):
        assert frame.kind != UNREADABLE, frame.head
        packet = parse_message_packet(EncodedPacket(frame.head, frame.counted, frame.tail).joined())
        properties = replace(packet.properties, message_body=packet.body)
        found[frame.sequence] = replace(packet, envelope=None, compound=None, properties=properties)
    return found


def rows(client: QueueManagerClient, queue: str, epoch: str, **asked: Any) -> list[Row]:
    span = client.range(queue, epoch=epoch)
    with client.rows(queue, epoch=epoch, after=span.first - 1, to=span.end, **asked) as stream:
        return pa.ipc.open_stream(stream.as_file()).read_all().to_pylist()


def dense_rows(served: Served, queue: str, epoch: str) -> list[Row]:
    """As an executor of Spark reads them, with the envelope."""
    span = served.client.range(queue, epoch=epoch)
    after, to = span.first - 1, span.end
    with served.client.rows(
        queue, epoch=epoch, after=after, to=to, envelope=True, dense=True
    ) as stream:
        batches = dense.batches(
            dense.frames(stream.as_file()), served.guid, queue, after, to, envelope=True
        )
        return [row for batch in batches for row in batch.to_pylist()]


def without(row: Row, *names: str) -> Row:
    return {name: value for name, value in row.items() if name not in names}


def received(served: Served, queue: str) -> dict[int, MessagePacket]:
    """Receive all messages, as a remote application does."""
    found = {}
    with served.machine() as machine, opened(machine, queue, receive=True) as source:
        while (started := source.start(Action.RECEIVE))[1].status == Status.MQ_OK:
            found[started[1].sequence_id] = shown(started[1]).packet
            source.end(started[0])
    return found


def peeked(served: Served, queue: str) -> dict[int, MessagePacket]:
    with served.machine() as machine, opened(machine, queue) as source:
        return {each.sequence_id: each.packet for each in source.walk()}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Restored:
    return Restored(tmp_path_factory.mktemp("restored"), (*PLAIN[:3], STREAMS))


@pytest.fixture(scope="module")
def served(scene: Restored) -> Iterator[Served]:
    with scene.serve() as served:
        yield served


@pytest.mark.parametrize("queue", [PLAIN[0], STREAMS])
def test_a_remote_reader_gets_what_the_columns_say(
    scene: Restored, served: Served, queue: str
) -> None:
    found = peeked(served, queue)
    assert found == scene.packets[queue]
    with served.machine() as machine, opened(machine, queue) as source:
        assert {each.sequence_id: each.arrived_at for each in source.walk()} == {
            row["sequence"]: int(row["arrived_at"].timestamp()) for row in scene.rows[queue]
        }
        (part,) = [each for each in source.walk(max_body=2) if each.sequence_id == 1]
    assert part.packet.body == found[1].body[:2]
    assert served.log.read_text().count("mqrr.unreadable") == 0


def test_readers_of_rows_get_the_same_rows_and_no_envelope(scene: Restored, served: Served) -> None:
    wanted, epoch = scene.rows[PLAIN[0]], scene.manager.epoch
    assert rows(served.client, PLAIN[0], epoch, envelope=True) == wanted
    assert dense_rows(served, PLAIN[0], epoch) == wanted
    names = ("sequence", "body", "soap_body", "extension", "body_text")
    chosen = [{name: row[name] for name in names} for row in wanted]
    assert rows(served.client, PLAIN[0], epoch, columns=names) == chosen


def test_what_is_received_stands_in_the_journal_of_its_queue(
    scene: Restored, served: Served
) -> None:
    queue = PLAIN[1]
    served.client.put_queue(queue, journal=True)
    assert received(served, queue) == scene.packets[queue]
    assert served.waiting(queue) == 0
    found = [
        without(row, "queue")
        for row in rows(served.client, f"{queue};journal", scene.manager.epoch)
    ]
    assert found == [without(row, "queue") for row in scene.rows[queue]]


def test_another_queue_manager_pulls_the_same_messages(
    scene: Restored, served: Served, tmp_path: Path
) -> None:
    queue = PLAIN[2]
    wanted = scene.packets[queue]
    config = subscribe(tmp_path / "b.toml", served, queue=queue, to="private$/pulled")
    with RunningQueueManager(tmp_path / "b", queues=["private$/pulled"], config=config) as other:
        client = QueueManagerClient(other.api, retry_seconds=60)
        until(lambda: client.queue("private$/pulled")["waiting"] == len(wanted))
        found = rows(client, "private$/pulled", other.epoch)
    until(lambda: served.waiting(queue) == 0)
    of_here = ("queue_manager", *PLACE, "arrived_at", "transport", "peer", "sender_name", "expired")
    for row in found:
        packet = wanted[int(row["lookup_id"]) & 2**56 - 1]
        place = int(row["lookup_id"]).to_bytes(8, "little")
        record = Record(Arrival(0, "mqrr", ""), place + packet.encode(), len(place), Form.PACKET)
        assert without(row, *of_here) == without(
            rows_of("", "", "", [(1, record)]).to_pylist()[0], *of_here
        )


def test_a_move_keeps_every_column_and_a_second_restore_has_it(tmp_path: Path) -> None:
    queue, to = PLAIN[3], f"{PLAIN[3]};moved"
    scene = Restored(tmp_path, (queue,))
    with scene.serve() as served:
        served.client.put_queue(to)
        with served.machine() as machine, opened(machine, queue, receive=True) as source:
            for sequence, packet in scene.packets[queue].items():
                assert (
                    move(source, to, lookup_id=rebuilt(sequence, priority=packet.priority))
                    == Status.MQ_OK
                )
        assert (served.waiting(queue), served.waiting(to)) == (0, len(scene.rows[queue]))
        second = served.epoch
        check_moved(scene, dense_rows(served, to, second), queue)
        check_moved(scene, rows(served.client, to, second, envelope=True), queue)
        check_packets(scene, peeked(served, to), queue)
        served.send(to, 3)  # a row with a post among those without
        command = [
            sys.executable,
            "-m",
            "srmp_spark.cli",
            "capture",
            "--queue",
            to,
            "--out",
            str(tmp_path / "out"),
        ]
        done = subprocess.run(
            [*command, "--api", served.api], capture_output=True, text=True, timeout=60, check=True
        )
        assert f"{len(scene.rows[queue])} messages are no posts of SRMP" in done.stderr
        assert len(done.stdout.splitlines()) == 1, "the one that was sent"
        until(lambda: len(published(scene, to)) == len(scene.rows[queue]) + 1)
    again = tmp_path / "again"
    restore(str(scene.manager.folder), again, lambda _: None, answer_seconds=0.0)
    DataDirectory.open(again, now=1).close()
    with Log(again / DATABASE_FILE, again / SEGMENTS_DIRECTORY) as log:
        batches = reading.batches(
            log, scene.manager.guid, to, second, 0, log.bounds(to, second).end, envelope=True
        )
        *moved, sent = [row for batch in batches for row in batch.to_pylist()]
        check_moved(scene, moved, queue)
        assert sent["body"] == b"body 1"
        check_packets(scene, dict(list(packets_of(log, to, second).items())[:-1]), queue)


def published(scene: Restored, queue: str) -> list[Row]:
    table = DeltaTable(str(scene.manager.folder / "inbox")).to_pyarrow_table(columns=["queue"])
    return [row for row in table.to_pylist() if row["queue"] == queue]


def check_moved(scene: Restored, found: list[Row], queue: str) -> None:
    assert [without(row, *PLACE) for row in found] == [
        without(row, *PLACE) for row in scene.rows[queue]
    ]


def check_packets(scene: Restored, found: dict[int, MessagePacket], queue: str) -> None:
    """The same messages; where a message is and how often it was moved is another matter."""
    wanted = scene.packets[queue].values()
    assert [replace(each, trailers=None) for _, each in sorted(found.items())] == [
        replace(each, trailers=None) for each in wanted
    ]
