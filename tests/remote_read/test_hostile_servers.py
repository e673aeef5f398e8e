"""A real queue manager reads remote queues whose servers answer what no honest server answers."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from foreign_queue import ForeignQueue
from foreign_server import ForeignServer
from remote_kit import Served
from test_pulling_foreign import numbers, subscription
from test_pulling_live import _subscription, until

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.client.subscriptions import SubscriptionsClient
from srmp_spark.errors import ApiError
from srmp_spark.mqrr.packets.message_packet import MessagePacket, parse_message_packet
from srmp_spark.mqrr.packets.sections import SectionBuffer, SectionType
from srmp_spark.mqrr.packets.trailers import REQUIRED_TRAILERS
from srmp_spark.store.directory import DATABASE_FILE
from srmp_spark.testing.service import RunningQueueManager


@pytest.fixture
def server() -> Iterator[ForeignServer]:
    with ForeignServer(seed=1) as server:
        yield server


def put(server: ForeignServer, count: int) -> None:
    server.look(lambda queue: [queue.put() for _ in range(count)])


def in_two_sections(queue: ForeignQueue, lookup_id: int) -> tuple[SectionBuffer, ...]:
    """The whole body in a first section, which is no packet, and the headers behind it in a second one."""
    found = parse_message_packet(queue.packet(lookup_id))
    encoded = MessagePacket(
        base=found.base, user=found.user, properties=found.properties, trailers=REQUIRED_TRAILERS
    ).encode_pieces()
    first = encoded.head + encoded.counted
    return (
        SectionBuffer(SectionType.BINARY_FIRST, len(first), first),
        SectionBuffer(SectionType.BINARY_SECOND, len(encoded.tail), encoded.tail),
    )


def first_section_alone(queue: ForeignQueue, lookup_id: int) -> tuple[SectionBuffer, ...]:
    """The same without the second section: the body is whole, and the packet says that it is larger than what came."""
    return in_two_sections(queue, lookup_id)[:1]


def test_a_body_that_is_whole_in_a_first_section_becomes_a_row_that_the_next_start_can_read(
    tmp_path: Path, server: ForeignServer
):
    server.look(lambda queue: setattr(queue, "sections", lambda each: in_two_sections(queue, each)))
    put(server, 3)
    with RunningQueueManager(tmp_path / "qm", config=subscription(tmp_path / "qm.toml", server)) as running:
        until(lambda: len(numbers(running)) == 3, still=lambda: _subscription(running))
        running.kill9()
        running.restart()
        assert sorted(numbers(running)) == [1, 2, 3]


def test_what_is_no_whole_packet_stays_in_the_remote_queue_and_stops_no_start(tmp_path: Path, server: ForeignServer):
    def sections(lookup_id: int) -> tuple[SectionBuffer, ...]:
        queue = server.queue
        if queue.messages[lookup_id][0] % 2:
            return first_section_alone(queue, lookup_id)
        packet = queue.packet(lookup_id)
        return (SectionBuffer(SectionType.FULL_PACKET, len(packet), packet),)

    server.look(lambda queue: setattr(queue, "sections", sections))
    put(server, 4)
    with RunningQueueManager(tmp_path / "qm", config=subscription(tmp_path / "qm.toml", server)) as running:
        until(lambda: len(numbers(running)) == 2, still=lambda: _subscription(running))
        running.kill9()
        running.restart()
        until(lambda: "cannot be read" in str(_subscription(running)["last_error"]), still=lambda: _subscription(running))
        assert sorted(numbers(running)) == [2, 4]
        assert sorted(each[0] for each in server.look(lambda queue: list(queue.messages.values()))) == [1, 3]


def test_a_pulled_message_that_cannot_be_read_at_a_start_idles_its_subscription_alone(
    tmp_path: Path, server: ForeignServer, served: Served
):
    other = served.queue()
    config = subscription(tmp_path / "qm.toml", server)
    config.write_text(
        config.read_text() + f'[[subscription]]\nhost = "{served.ready["rpc"]}"\n'
        f"queue = 'DIRECT=OS:host1\\{other.replace('/', chr(92))}'\nto = \"private$/other\"\n"
    )
    with RunningQueueManager(tmp_path / "qm", config=config) as running:
        running.stop()
        name = f"127.0.0.1:{server.port}\\private$\\orders"
        with contextlib.closing(sqlite3.connect(running.data_dir / DATABASE_FILE)) as database, database:
            database.execute(
                "INSERT INTO pulled(subscription, lookup_id, message_id, pulled_at, packet) VALUES (?, 1, '{x}\\1', 0, ?)",
                (name, b"no packet"),
            )
        put(server, 1)
        running.start()
        served.send(other, 1)
        client = QueueManagerClient(running.api, retry_seconds=60)
        until(lambda: client.queue("private$/other")["waiting"] == 1)
        status = client.status()
        (told,) = status["set_aside"]
        assert (told["table"], told["key"]) == ("pulled", f"{name} {{x}}\\1")
        (idle,) = (each for each in status["subscriptions"] if each["mode"] is None)
        assert (idle["configured"], idle["pending"]) == (True, 1)
        assert "cannot be read" in idle["last_error"]
        assert server.look(lambda queue: len(queue.messages)) == 1, "nothing more is taken"
        with pytest.raises(ApiError, match="cannot be read"):
            SubscriptionsClient(running.api).subscribe({"host": f"127.0.0.1:{server.port}", "queue": "private$\\orders"})
        doctor = subprocess.run(
            [sys.executable, "-m", "srmp_spark.cli", "doctor", "--api", running.api, "--queue", "private$/orders"],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert "set aside" in doctor.stdout
        assert "stay stored" in doctor.stdout
        with contextlib.closing(sqlite3.connect(running.data_dir / DATABASE_FILE)) as database:
            assert database.execute("SELECT packet FROM pulled").fetchall() == [(b"no packet",)]


def test_a_stored_subscription_that_cannot_be_read_is_set_aside(tmp_path: Path):
    with RunningQueueManager(tmp_path / "qm") as running:
        running.stop()
        with contextlib.closing(sqlite3.connect(running.data_dir / DATABASE_FILE)) as database, database:
            database.execute("INSERT INTO subscriptions(name, entry, removing) VALUES ('h\\q', '{', 0)")
        running.start()
        status = QueueManagerClient(running.api, retry_seconds=60).status()
        assert [(each["table"], each["key"]) for each in status["set_aside"]] == [("subscriptions", "h\\q")]
        assert "cannot be read" in status["subscriptions"][0]["last_error"]
