"""The gateway of subscriptions: its death loses connections and no message, and a hostile server costs it and nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import itertools
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_pulling_foreign import judge, numbers, subscription, taken
from test_pulling_live import _pending, _subscription, until

from srmp_spark.client.subscriptions import SubscriptionsClient
from srmp_spark.errors import RemoteLostError, RemoteReadError, SrmpSparkError
from srmp_spark.message import Message
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.client.failures import NotSentError, refused
from srmp_spark.mqrr.pulled_states import PulledState
from srmp_spark.mqrr.queue_format import queue_format_for
from srmp_spark.mqrr.remote_host import RemoteHost
from srmp_spark.mqrr.rpc.client_connection import ClientSettings
from srmp_spark.mqrr.rpc.pdu import FIRST_FRAGMENT, PduType, encode_pdu
from srmp_spark.mqrr.rpc.server_events import CallReceived
from srmp_spark.mqrr.status import Status
from srmp_spark.queue_manager.gateway.frames import FrameReader, encode_frame
from srmp_spark.queue_manager.puller.gateway_side import gateway
from srmp_spark.queue_manager.puller.gateway_side.connection import RpcClient
from srmp_spark.queue_manager.puller.gateway_side.crossing import (
    OPENING,
    CloseConnection,
    MessageFound,
    OpenConnection,
    OpenRemoteQueue,
    StartReceive,
    ToMain,
    error_of,
    failed_of,
    found_of,
    pulled_of_found,
)
from srmp_spark.queue_manager.puller.gateway_side.gateway import RemoteConnections
from srmp_spark.queue_manager.puller.gateway_side.pulled import Pulled, PulledKey
from srmp_spark.queue_manager.puller.gateway_side.remotes import Remotes
from srmp_spark.signing_in.credentials import Credentials
from srmp_spark.testing.foreign.messages import ForeignMessage, post
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.attack.planted import environment_for
from tests.kit.remote.server import ForeignServer
from tests.kit.stalls import MachineStalls

GATEWAY = "srmp_spark.queue_manager.puller.gateway_side.gateway"
START = 7
RESPONSE_HEAD = bytes((0, 0, 0, 0, 1, 0, 0, 0))
QUEUE_FORMAT = queue_format_for("127.0.0.1", "private$\\orders")


@pytest.fixture
def server() -> Iterator[ForeignServer]:
    with ForeignServer(seed=1) as server:
        yield server


def gateways_of(pid: int) -> list[int]:
    """The gateways of subscriptions that a queue manager has."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == pid and GATEWAY in (entry / "cmdline").read_text():
                    found.append(int(entry.name))
    return found


def gateway_of(running: RunningQueueManager) -> int:
    until(lambda: gateways_of(running.pid))
    (found,) = gateways_of(running.pid)
    return found


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- a queue manager that serves --------------------------------------------------------------------------------------------


def test_a_move_loses_and_doubles_nothing_when_its_gateway_is_killed(
    tmp_path: Path, server: ForeignServer
):
    server.look(lambda queue: [queue.put() for _ in range(700)])
    with RunningQueueManager(
        tmp_path / "qm", config=subscription(tmp_path / "qm.toml", server)
    ) as running:
        pid, killed = running.pid, set()
        for goal in (1, 250, 500):
            server.arriving += 50
            until(lambda goal=goal: taken(server) >= goal, still=lambda: _subscription(running))
            victim = gateway_of(running)
            os.kill(victim, signal.SIGKILL)
            killed.add(victim)
            until(lambda: gateways_of(running.pid) and not killed & set(gateways_of(running.pid)))
        until(
            lambda: (
                not server.arriving
                and not server.look(lambda queue: queue.messages)
                and not _pending(running)
            ),
            still=lambda: _subscription(running),
        )
        assert judge(server, numbers(running), set()) == set()
        assert sorted(numbers(running)) == list(range(1, 851))
        assert running.pid == pid, "nothing else ended"
        assert len(killed) == 3
        assert running.stderr().count("subscriptions.died") == 3
        assert "Traceback" not in running.stderr()
        helper = gateway_of(running)
        running.stop()
        with pytest.raises(ProcessLookupError):
            os.kill(helper, 0)


def test_the_gateway_runs_from_the_first_subscription_on(tmp_path: Path, server: ForeignServer):
    with RunningQueueManager(tmp_path / "qm") as running:
        assert gateways_of(running.pid) == []
        server.look(lambda queue: queue.put())
        SubscriptionsClient(running.api).subscribe(
            {
                "host": f"127.0.0.1:{server.port}",
                "queue": "private$\\orders",
                "to": "private$/orders",
            }
        )
        until(lambda: len(numbers(running)) == 1, still=lambda: _subscription(running))
        helper = gateway_of(running)
        running.kill9()
        until(
            lambda: (
                not Path(f"/proc/{helper}").exists()
                or "State:\tZ" in Path(f"/proc/{helper}/status").read_text()
            )
        )


def flood(transport: asyncio.Transport, call: CallReceived) -> bool:
    """Answer a read with a response of empty fragments that has no end."""
    if call.opnum != START:
        return False
    empty = encode_pdu(PduType.RESPONSE, 0, call.call_id, RESPONSE_HEAD) * 20_000
    transport.write(encode_pdu(PduType.RESPONSE, FIRST_FRAGMENT, call.call_id, RESPONSE_HEAD))

    def go_on() -> None:
        if not transport.is_closing():
            if transport.get_write_buffer_size() < len(empty):
                transport.write(empty)
            asyncio.get_running_loop().call_later(0.001, go_on)

    go_on()
    return True


FLOOD_CPU_S = 1.0
"""Seconds of CPU that the flood takes from the gateway while senders are served."""


def test_endless_fragments_cost_the_gateway_and_no_sender_of_srmp(
    tmp_path: Path, server: ForeignServer
):
    """FRAGMENTS_MAX, which ends such an answer, is taken out: the worst that a server could do."""
    config = subscription(tmp_path / "qm.toml", server)
    server.look(lambda queue: queue.put())
    server.instead = flood
    with RunningQueueManager(
        tmp_path / "qm",
        queues=["private$/good"],
        config=config,
        environment=environment_for("remote-fragments"),
    ) as running:
        helper = gateway_of(running)
        before = cpu_seconds(helper)
        until(
            lambda: cpu_seconds(helper) - before > 0.5, still=lambda: _subscription(running)
        )  # it is busy now
        theirs, ours = cpu_seconds(helper), cpu_seconds(running.pid)
        worst, ends_at = 0.0, time.monotonic() + 60.0
        with (
            MachineStalls() as stalls,
            contextlib.closing(
                http.client.HTTPConnection(*running.endpoint, timeout=30)
            ) as connection,
        ):
            while cpu_seconds(helper) - theirs < FLOOD_CPU_S and time.monotonic() < ends_at:
                began = time.monotonic()
                assert send(running, connection) == 200
                worst = max(worst, time.monotonic() - began)
                time.sleep(0.02)
        theirs, ours = cpu_seconds(helper) - theirs, cpu_seconds(running.pid) - ours
        assert worst < 0.25 + stalls.allowance, f"{worst * 1000:.0f} ms, {stalls.worst=}"
        assert theirs >= FLOOD_CPU_S, f"the flood took {theirs:.2f} s of the gateway: it was none"
        assert ours < theirs / 2, f"{ours:.2f} s of the main process, {theirs:.2f} s of the gateway"
        assert _subscription(running)["pulled"] == 0
        assert gateways_of(running.pid) == [helper], "and it goes on"


_NUMBERS = itertools.count(1)


def send(running: RunningQueueManager, connection: http.client.HTTPConnection) -> int:
    """The status of a message of a good sender."""
    host, port = running.endpoint
    written = post(
        ForeignMessage(
            to=f"http://{host}:{port}/msmq/private$/good", lineage="aaaaaaaa-0000-4000-8000-000000000001",
            uniquifier=next(_NUMBERS), sent_at=1_790_000_000, body=b"good", durable=True,
        )
    )  # fmt: skip
    headers = {"Content-Type": written.content_type, "SOAPAction": '"MSMQMessage"'}
    connection.request("POST", written.target, written.content, headers)
    answer = connection.getresponse()
    answer.read()
    return answer.status


# --- the two halves, and a server -------------------------------------------------------------------------------------------


def with_remotes(dialogue: Callable[[Remotes], Awaitable[None]]) -> None:
    async def run() -> None:
        remotes = Remotes()
        try:
            await dialogue(remotes)
        finally:
            await remotes.stop()

    asyncio.run(run())


def host_of(server: ForeignServer) -> RemoteHost:
    return RemoteHost("127.0.0.1", server.port)


def pid_of(remotes: Remotes) -> int:
    assert remotes._link is not None
    assert remotes._link._process is not None
    return remotes._link._process.pid


def test_a_call_that_the_gateway_took_along_may_have_been_made_and_the_next_one_was_not(
    server: ForeignServer,
):
    async def dialogue(remotes: Remotes) -> None:
        connection = await remotes.connect(host_of(server), Credentials())
        assert connection.address == ("127.0.0.1", server.port)
        queue = await connection.open(QUEUE_FORMAT, receive=True)
        assert await queue.read(Action.RECEIVE) is Status.MQ_ERROR_IO_TIMEOUT
        server.instead = lambda transport, call: call.opnum == START  # says nothing
        read = asyncio.ensure_future(queue.read(Action.RECEIVE, wait_s=5.0))
        await asyncio.sleep(0.2)
        os.kill(pid_of(remotes), signal.SIGKILL)
        with pytest.raises(RemoteLostError, match="ended, and is started again") as lost:
            await read
        assert not isinstance(lost.value, NotSentError)
        with pytest.raises(NotSentError):
            await queue.end(1)
        server.instead = lambda transport, call: False
        server.look(lambda each: each.put())
        again = await remotes.connect(host_of(server), Credentials())
        found = await (await again.open(QUEUE_FORMAT, receive=True)).read(Action.RECEIVE)
        assert isinstance(found, Pulled)
        assert found.message.body == b"body 1"

    with_remotes(dialogue)


def test_a_connection_that_is_closed_gives_its_locks_back_and_its_calls_end(server: ForeignServer):
    async def dialogue(remotes: Remotes) -> None:
        server.look(lambda each: each.put())
        connection = await remotes.connect(host_of(server), Credentials())
        queue = await connection.open(QUEUE_FORMAT, receive=True)
        assert isinstance(await queue.read(Action.RECEIVE), Pulled)
        assert server.look(lambda each: len(each.locks)) == 1
        connection.close()
        with pytest.raises(NotSentError):
            await queue.read(Action.RECEIVE)
        end = time.monotonic() + 20
        while server.look(lambda each: len(each.locks)) or server.connections:
            assert time.monotonic() < end, "the connection is still there"
            await asyncio.sleep(0.02)
        assert remotes._connections == {}

    with_remotes(dialogue)


def test_an_attempt_that_is_cancelled_is_made_no_more(server: ForeignServer):
    async def dialogue(remotes: Remotes) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            attempt = asyncio.ensure_future(
                remotes.connect(RemoteHost("127.0.0.1", silent.getsockname()[1]), Credentials())
            )
            silent.setblocking(False)
            taken, _ = await asyncio.get_running_loop().sock_accept(silent)
            with taken:
                attempt.cancel()
                await asyncio.wait((attempt,))
                taken.setblocking(False)
                while await asyncio.wait_for(asyncio.get_running_loop().sock_recv(taken, 4096), 20):
                    pass  # its bind, and then its end
        assert remotes._connections == {}

    with_remotes(dialogue)


def test_who_is_not_there_and_who_refuses_is_told_in_the_same_words(server: ForeignServer):
    async def dialogue(remotes: Remotes) -> None:
        with socket.create_server(("127.0.0.1", 0)) as nobody:
            port = nobody.getsockname()[1]
        with pytest.raises(
            RemoteLostError, match=f"127.0.0.1:{port} cannot be reached: .*firewall"
        ):
            await remotes.connect(RemoteHost("127.0.0.1", port), Credentials())
        connection = await remotes.connect(host_of(server), Credentials())
        queue = await connection.open(QUEUE_FORMAT, receive=True)

        def fault(transport: asyncio.Transport, call: CallReceived) -> bool:
            status = (5).to_bytes(4, "little")
            transport.write(
                encode_pdu(PduType.FAULT, 3, call.call_id, RESPONSE_HEAD + status + bytes(4))
            )
            return True

        server.instead = fault
        with pytest.raises(
            RemoteReadError, match=f"127.0.0.1:{server.port}: .*check the account"
        ) as refused:
            await queue.read(Action.RECEIVE)
        assert (refused.value.status, refused.value.perhaps_done) == (5, True), (
            "it does not say that nothing was done"
        )

    with_remotes(dialogue)


# --- what crosses -----------------------------------------------------------------------------------------------------------


def crossed(message: ToMain) -> ToMain:
    reader: FrameReader[ToMain] = FrameReader(ToMain)
    reader.feed(encode_frame(message))
    (found,) = reader.messages()
    return found


@pytest.mark.parametrize("body", [b"", b"b", bytes(range(256)) * 4_000])
@pytest.mark.parametrize("is_in_packet", [True, False])
def test_a_message_crosses_as_it_was_read_and_its_body_once(body: bytes, is_in_packet: bool):
    packet = b"head" + body + b"tail" if is_in_packet else b"head"
    message = Message(
        "OS:host\\q",
        "MSMQ:label \u20ac",
        body=body,
        extension=b"e",
        priority=7,
        destination_list=("a", "b"),
    )
    pulled = Pulled(PulledKey(2**64 - 1, "{g}\\1"), packet, message, PulledState.HANDED, 5)
    found = crossed(found_of(1, 2, pulled))
    assert isinstance(found, MessageFound)
    back = pulled_of_found(found)
    assert (back.key, back.raw, back.message, back.state, back.request) == (
        pulled.key, packet, message, PulledState.HANDED, 5
    )  # fmt: skip
    assert len(encode_frame(found_of(1, 2, pulled))) < len(b"headtail") + len(body) + 600


@pytest.mark.parametrize(
    "error",
    [
        refused(0xC00E0025, "R_OpenQueue", perhaps_done=True), refused(5, "host", perhaps_done=False),
        RemoteLostError("gone"), NotSentError("never"), SrmpSparkError("a name with half a pair: \ud800"), OSError(2, "no file"),
    ],
)  # fmt: skip
def test_an_error_crosses_as_what_it_is(error: Exception):
    failed = crossed(failed_of(1, OPENING, error))
    assert not isinstance(failed, MessageFound)
    back = error_of(failed)  # type: ignore[arg-type]
    assert type(back) is (SrmpSparkError if isinstance(error, OSError) else type(error))
    assert str(back) == str(error).replace("\ud800", "\\ud800")
    for name in ("status", "perhaps_done"):
        assert getattr(back, name, None) == getattr(error, name, None)


def test_a_password_is_in_no_text_of_what_crosses():
    asked = OpenConnection(
        1, RemoteHost("host", None), Credentials(level="privacy", user="u", password="secret")
    )
    assert "secret" not in repr(asked)
    assert b"secret" in encode_frame(asked)


# --- back-pressure ----------------------------------------------------------------------------------------------------------


class Slow:
    """A channel whose other end takes nothing until it is told to."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.is_congested = False

    def send(self, message: ToMain) -> bool:
        self.sent.append(message)
        return True


def test_servers_are_not_read_while_the_main_process_has_no_room(server: ForeignServer):
    async def run() -> None:
        channel = Slow()
        connections = RemoteConnections(channel)  # type: ignore[arg-type]
        connections.on_message(OpenConnection(1, host_of(server), Credentials()))
        await sent(channel, 1)
        channel.is_congested = True
        connections.on_message(OpenRemoteQueue(1, 1, QUEUE_FORMAT, receive=True))
        await sent(channel, 2)
        for call in (2, 3, 4):
            connections.on_message(StartReceive(1, call, int(Action.RECEIVE), 0.0, 0, 0))
        await asyncio.sleep(0.3)
        assert len(channel.sent) == 2, "the answers are in the socket"
        channel.is_congested = False
        connections.on_room()
        await sent(channel, 5)
        assert [each.status for each in channel.sent[2:]] == [int(Status.MQ_ERROR_IO_TIMEOUT)] * 3
        connections.on_message(CloseConnection(1))

    asyncio.run(run())


def test_answers_without_an_end_cost_the_connection_that_has_most_of_them(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(gateway, "UNFINISHED_MAX", 1_000_000)

    def begins(fragments: int) -> Callable[[asyncio.Transport, CallReceived], bool]:
        def begin(transport: asyncio.Transport, call: CallReceived) -> bool:
            if call.opnum == START:
                transport.write(
                    encode_pdu(PduType.RESPONSE, FIRST_FRAGMENT, call.call_id, RESPONSE_HEAD)
                )
                transport.write(
                    encode_pdu(PduType.RESPONSE, 0, call.call_id, RESPONSE_HEAD + bytes(50_000))
                    * fragments
                )
            return call.opnum == START

        return begin

    async def run() -> None:
        channel = Slow()
        connections = RemoteConnections(channel)  # type: ignore[arg-type]
        for number, each in enumerate(servers, 1):
            connections.on_message(OpenConnection(number, host_of(each), Credentials()))
            await sent(channel, 2 * number - 1)
            connections.on_message(OpenRemoteQueue(number, 1, QUEUE_FORMAT, receive=True))
            await sent(channel, 2 * number)
        servers[0].instead, servers[1].instead = begins(6), begins(5)
        connections.on_message(StartReceive(1, 2, int(Action.RECEIVE), 0.0, 0, 0))
        await asyncio.sleep(0.3)
        assert connections._unfinished == {1: 300_000}
        for call in (2, 3, 4):
            connections.on_message(StartReceive(2, call, int(Action.RECEIVE), 0.0, 0, 0))
        await sent(channel, 7)
        await asyncio.sleep(0.1)
        failed = channel.sent[4:]
        assert {(each.connection, each.kind) for each in failed} == {(2, "lost")}
        assert all("UNFINISHED_MAX is 1000000" in each.text for each in failed)
        assert connections._unfinished == {1: 300_000}, "the other one waits on"
        for number in (1, 2):
            connections.on_message(CloseConnection(number))
        assert connections._unfinished == {}

    with ForeignServer(seed=1) as first, ForeignServer(seed=2) as second:
        servers = first, second
        asyncio.run(run())


async def sent(channel: Slow, count: int) -> None:
    end = time.monotonic() + 20
    while len(channel.sent) < count:
        assert time.monotonic() < end, channel.sent
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("turns", range(8))
def test_a_cancellation_that_comes_with_the_connection_is_not_lost(turns: int) -> None:
    """A server that accepts and says nothing: whichever turn of the loop brings the cancellation, the connection ends soon."""

    async def prepare() -> ClientSettings:
        return ClientSettings()

    async def dialogue() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            attempt = asyncio.ensure_future(RpcClient.connect("127.0.0.1", port, prepare))
            for _ in range(turns):
                await asyncio.sleep(0)
            attempt.cancel()
            done, _ = await asyncio.wait((attempt,), timeout=5)
            assert done, "it waits for the bind"
            assert attempt.cancelled()

    asyncio.run(dialogue())
