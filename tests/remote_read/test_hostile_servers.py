"""A real queue manager reads remote queues whose servers answer what no honest server answers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

import pytest
import requests
from remote_kit import Served
from test_pulling_foreign import numbers, subscription
from test_pulling_live import _subscription, until

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.client.remote_queue import RemoteMachine
from srmp_spark.client.subscriptions import SubscriptionsClient
from srmp_spark.errors import ApiError, RemoteProtocolError
from srmp_spark.mqrr.ndr.receive import StartReceiveRequest, failure
from srmp_spark.mqrr.ndr.stub import ContextHandle
from srmp_spark.mqrr.ndr.transfer_syntax import NDR64
from srmp_spark.mqrr.packets.sections import SectionBuffer, SectionType
from srmp_spark.mqrr.queue_format import queue_format_for
from srmp_spark.mqrr.rpc.client_connection import ClientSettings
from srmp_spark.mqrr.rpc.pdu import FIRST_FRAGMENT, LAST_FRAGMENT, PduType, encode_pdu
from srmp_spark.mqrr.rpc.server_events import CallReceived
from srmp_spark.mqrr.status import Status
from srmp_spark.queue_manager.puller.gateway_side import connection
from srmp_spark.queue_manager.puller.gateway_side.connection import RpcClient
from srmp_spark.store.directory import DATABASE_FILE
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.remote.forms import in_two_sections, sections_in
from tests.kit.remote.queue import ForeignQueue
from tests.kit.remote.server import ForeignServer


@pytest.fixture
def server() -> Iterator[ForeignServer]:
    with ForeignServer(seed=1) as server:
        yield server


def put(server: ForeignServer, count: int) -> None:
    server.look(lambda queue: [queue.put() for _ in range(count)])


def test_a_body_that_is_whole_in_a_first_section_becomes_a_row_that_the_next_start_can_read(
    tmp_path: Path, server: ForeignServer
):
    server.look(
        lambda queue: setattr(queue, "sections", lambda each: in_two_sections(queue.packet(each)))
    )
    put(server, 3)
    with RunningQueueManager(
        tmp_path / "qm", config=subscription(tmp_path / "qm.toml", server)
    ) as running:
        until(lambda: len(numbers(running)) == 3, still=lambda: _subscription(running))
        running.kill9()
        running.restart()
        assert sorted(numbers(running)) == [1, 2, 3]


def test_what_is_no_whole_packet_stays_in_the_remote_queue_and_stops_no_start(
    tmp_path: Path, server: ForeignServer
):
    def sections(lookup_id: int) -> tuple[SectionBuffer, ...]:
        queue = server.queue
        return sections_in(
            "first" if queue.messages[lookup_id][0] % 2 else "whole", queue.packet(lookup_id)
        )

    server.look(lambda queue: setattr(queue, "sections", sections))
    put(server, 4)
    with RunningQueueManager(
        tmp_path / "qm", config=subscription(tmp_path / "qm.toml", server)
    ) as running:
        until(lambda: len(numbers(running)) == 2, still=lambda: _subscription(running))
        running.kill9()
        running.restart()
        until(
            lambda: "cannot be read" in str(_subscription(running)["last_error"]),
            still=lambda: _subscription(running),
        )
        assert sorted(numbers(running)) == [2, 4]
        assert sorted(
            each[0] for each in server.look(lambda queue: list(queue.messages.values()))
        ) == [1, 3]


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
        with (
            contextlib.closing(sqlite3.connect(running.data_dir / DATABASE_FILE)) as database,
            database,
        ):
            database.execute(
                "INSERT INTO pulled(subscription, lookup_id, message_id, pulled_at, "
                "packet) VALUES (?, 1, '{x}\\1', 0, ?)",
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
            SubscriptionsClient(running.api).subscribe(
                {"host": f"127.0.0.1:{server.port}", "queue": "private$\\orders"}
            )
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
        with (
            contextlib.closing(sqlite3.connect(running.data_dir / DATABASE_FILE)) as database,
            database,
        ):
            database.execute(
                "INSERT INTO subscriptions(name, entry, removing) VALUES ('h\\q', '{', 0)"
            )
        running.start()
        status = QueueManagerClient(running.api, retry_seconds=60).status()
        assert [(each["table"], each["key"]) for each in status["set_aside"]] == [
            ("subscriptions", "h\\q")
        ]
        assert "cannot be read" in status["subscriptions"][0]["last_error"]


START = 7
RESPONSE = Struct("<IHBx").pack(0, 1, 0)
"""A fragment without stub, in the context of NDR64, the second that our client offers and the one that the server takes."""


def worst_health(running: RunningQueueManager, seconds: float) -> float:
    """The longest that one of many requests to the API took, which is answered by the loop that accepts messages."""
    worst, ends_at = 0.0, time.monotonic() + seconds
    with requests.Session() as session:
        while time.monotonic() < ends_at:
            began = time.monotonic()
            assert session.get(f"{running.api}/healthz", timeout=30).status_code == 200
            worst = max(worst, time.monotonic() - began)
            time.sleep(0.01)
    return worst


def test_an_answer_in_endless_empty_fragments_delays_nobody(tmp_path: Path, server: ForeignServer):
    floods = []

    def flood(transport: asyncio.Transport, call: CallReceived) -> bool:
        if call.opnum != START:
            return False
        empty = encode_pdu(PduType.RESPONSE, 0, call.call_id, RESPONSE) * 20_000
        transport.write(encode_pdu(PduType.RESPONSE, FIRST_FRAGMENT, call.call_id, RESPONSE))

        def go_on() -> None:
            if not transport.is_closing():
                if transport.get_write_buffer_size() < len(empty):
                    transport.write(empty)
                asyncio.get_running_loop().call_later(0.001, go_on)

        go_on()
        floods.append(call)
        return True

    server.instead = flood
    put(server, 3)
    with RunningQueueManager(
        tmp_path / "qm", config=subscription(tmp_path / "qm.toml", server)
    ) as running:
        until(lambda: floods)
        worst = worst_health(running, 4.0)
        told = _subscription(running)["last_error"]
        assert "FRAGMENTS_MAX" in str(told)
        assert worst < 0.25, f"{worst * 1000:.0f} ms"
        server.instead = lambda transport, call: False
        until(lambda: len(numbers(running)) == 3, still=lambda: _subscription(running))


def test_a_connection_takes_a_slice_of_each_turn_of_the_loop(
    monkeypatch: pytest.MonkeyPatch, server: ForeignServer
):
    def large(transport: asyncio.Transport, call: CallReceived) -> bool:
        pieces = [encode_pdu(PduType.RESPONSE, 0, call.call_id, RESPONSE)] * 4_000
        pieces[0] = encode_pdu(PduType.RESPONSE, FIRST_FRAGMENT, call.call_id, RESPONSE)
        stub = failure(Status.MQ_ERROR_IO_TIMEOUT).encode(NDR64)
        pieces.append(encode_pdu(PduType.RESPONSE, LAST_FRAGMENT, call.call_id, RESPONSE + stub))
        transport.write(b"".join(pieces))
        return True

    async def plain() -> ClientSettings:
        return ClientSettings()

    async def turns() -> int:
        client = await RpcClient.connect("127.0.0.1", server.port, plain)
        asked = StartReceiveRequest(ContextHandle(0, bytes(16)))
        answer = asyncio.ensure_future(client.call(START, asked))
        while not client.is_behind and not answer.done():
            await asyncio.sleep(0.001)
        count = 0
        while not answer.done():
            count += 1
            await asyncio.sleep(0)
        client.close()
        assert (await answer).status == Status.MQ_ERROR_IO_TIMEOUT
        return count

    monkeypatch.setattr(connection, "TURN_SECONDS", 0.0)
    server.instead = large
    assert asyncio.run(turns()) > 1_000 / connection.PDUS_AT_ONCE


@pytest.mark.parametrize("count", [1, 3])
def test_a_copy_ends_at_a_cursor_that_does_not_go_on(
    tmp_path: Path, server: ForeignServer, count: int
):
    server.look(lambda queue: setattr(queue, "loops", True))
    put(server, count)
    with RunningQueueManager(
        tmp_path / "qm", config=subscription(tmp_path / "qm.toml", server, "copy")
    ) as running:
        until(
            lambda: "does not go on" in str(_subscription(running)["last_error"]),
            20.0,
            lambda: _subscription(running),
        )
        assert numbers(running) == [
            server.look(lambda queue: queue.messages[min(queue.messages)][0])
        ], "what it showed, once"


def walk_through(server: ForeignServer, at_once: int, found: list[str]) -> None:
    """Walk with the client, as an executor of Spark does, and note what it shows."""
    with (
        RemoteMachine.connect(
            "127.0.0.1", server.port, ClientSettings(multiplexing=at_once > 1)
        ) as machine,
        machine.open(queue_format_for("127.0.0.1", "private$\\orders")) as queue,
    ):
        assert machine.calls_at_once == at_once
        found.extend(each.packet.id for each in itertools.islice(queue.walk(), 1_000))


@pytest.mark.parametrize("at_once", [1, 64])
def test_a_walk_of_the_client_ends_at_a_cursor_that_does_not_go_on(
    server: ForeignServer, at_once: int
):
    server.look(lambda queue: setattr(queue, "loops", True))
    put(server, 1)
    found: list[str] = []
    with pytest.raises(RemoteProtocolError, match="does not go on"):
        walk_through(server, at_once, found)
    assert len(found) <= 1


def unreadable_at_the_head(server: ForeignServer, count: int, readable: int) -> None:
    """Put ``count`` messages of priority 7 that are no packets, each for a reason of its own, and others behind them."""

    def sections(lookup_id: int) -> tuple[SectionBuffer, ...]:
        queue = server.queue
        number, priority = queue.messages[lookup_id]
        packet = queue.packet(lookup_id)
        if priority == 7 and number <= count:
            return (SectionBuffer(SectionType.BINARY_FIRST, len(packet) - 4 - number % 60, packet),)
        return (SectionBuffer(SectionType.FULL_PACKET, len(packet), packet),)

    def fill(queue: ForeignQueue) -> None:
        queue.sections = sections  # type: ignore[method-assign]
        queue.messages.update({number: (number, 7) for number in range(1, count + 1)})
        queue.messages.update(
            {7 << 56 | count + number: (count + number, 0) for number in range(1, readable + 1)}
        )
        queue.sequence = count + readable

    server.look(fill)


@pytest.mark.parametrize("count", [3, 150, 1_100])
def test_messages_behind_any_number_that_cannot_be_read_are_moved(
    tmp_path: Path, server: ForeignServer, count: int
):
    unreadable_at_the_head(server, count, 300)
    with RunningQueueManager(
        tmp_path / "qm", config=subscription(tmp_path / "qm.toml", server)
    ) as running:
        until(lambda: len(numbers(running)) == 300, 60.0, still=lambda: _subscription(running))
        until(
            lambda: _subscription(running)["unreadable"] == count,
            60.0,
            still=lambda: _subscription(running),
        )
        assert f"{count} messages cannot be read and stay where they are" in str(
            _subscription(running)["last_error"]
        )
        assert numbers(running) == list(range(count + 1, count + 301)), (
            "once, and in the order of the queue"
        )
        assert server.look(lambda queue: len(queue.messages)) == count, (
            "what cannot be read is still there"
        )
        server.look(lambda queue: queue.put())  # of any priority
        until(lambda: len(numbers(running)) == 301, 60.0, still=lambda: _subscription(running))
        running.kill9()
        running.restart()
        until(
            lambda: _subscription(running)["unreadable"] == count,
            60.0,
            still=lambda: _subscription(running),
        )
        assert len(numbers(running)) == 301


def test_reasons_that_change_all_the_time_do_not_fill_the_log(
    tmp_path: Path, server: ForeignServer
):
    unreadable_at_the_head(server, 60, 1)
    with RunningQueueManager(
        tmp_path / "qm", config=subscription(tmp_path / "qm.toml", server)
    ) as running:
        server.arriving = 600
        until(lambda: len(numbers(running)) == 601, 60.0, still=lambda: _subscription(running))
        assert 0 < running.stderr().count("subscription.trouble") <= 10
