"""Connections to peers that speak too early, leave too early, or close what they kept."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvloop

from srmp_spark.queue_manager.posting.http_answer import PeerAnswer
from srmp_spark.queue_manager.sender.http import connections as module
from srmp_spark.queue_manager.sender.http.connections import Connections, Wire
from srmp_spark.srmp.sending.outgoing_effects import Load, QueueKey, Send

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
REQUEST = b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(autouse=True)
def _short_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Wire, "request", lambda self, send: REQUEST)


class Told:
    """The owner of the connections; each end of a sending can be awaited."""

    def __init__(self) -> None:
        self.ends: asyncio.Queue[tuple[Any, ...]] = asyncio.Queue()
        self.connections = Connections(
            asyncio.get_running_loop(),
            on_answer=lambda send, answer: self._note(
                "answer", send, cast("PeerAnswer", answer).status
            ),
            on_failure=lambda send, why, left: self._note("failure", send, left, why),
            on_unsent=lambda send: None,
            on_withdrawn=lambda send: self._note("withdrawn", send),
            on_closed=lambda key: None,
            on_doubt=lambda send: self._note("doubt", send),
            on_reached=lambda load: self._note("reached", load),
            on_not_reached=lambda load, why: self._note("not reached", load, why),
        )

    def _note(self, what: str, which: Any, *more: Any) -> None:
        self.ends.put_nowait(
            (what, which.after if isinstance(which, Load) else which.serial, *more)
        )

    async def next(self) -> tuple[Any, ...]:
        return await asyncio.wait_for(self.ends.get(), 5)


def with_peer(
    serve: Serve,
    body: Callable[[Told, Callable[[int], Send]], Awaitable[None]],
    listening: socket.socket | None = None,
) -> None:
    """Run ``body`` with connections to a peer; ``listening``: the socket of the peer, if its buffers matter."""

    async def run() -> None:
        sock = listening or socket.create_server(("127.0.0.1", 0))
        server = await asyncio.start_server(serve, sock=sock, limit=65_536)
        key = QueueKey(
            f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/msmq/private$/in", "stream"
        )
        told = Told()
        try:
            await body(told, lambda serial: cast("Send", SimpleNamespace(key=key, serial=serial)))
        finally:
            await told.connections.stop()
            server.close()

    uvloop.run(run())


@pytest.mark.parametrize(
    "greeting",
    [
        b"220 smtp.example ESMTP\r\n",
        b"HTTP/1.1 503 Busy\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        b"",
    ],
)
def test_a_peer_that_speaks_or_leaves_right_after_accept_is_tried_again(greeting: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        # A thread of its own: what it says is there before the task that connects goes on.
        threading.Thread(target=_greet, args=(server, greeting, 100), daemon=True).start()
        key = QueueKey(f"http://127.0.0.1:{server.getsockname()[1]}/msmq/private$/in", "stream")

        async def run() -> None:
            told = Told()
            for serial in range(1, 101):
                told.connections.post(cast("Send", SimpleNamespace(key=key, serial=serial)))
                assert (await told.next())[:3] in (
                    ("failure", serial, False),
                    ("failure", serial, True),
                    ("answer", serial, 503),
                )
            told.connections.post(cast("Send", SimpleNamespace(key=key, serial=101)))
            assert await told.next() == ("answer", 101, 200)
            assert len(told.connections) == 1
            await told.connections.stop()

        uvloop.run(run())


def _greet(server: socket.socket, greeting: bytes, times: int) -> None:
    with contextlib.suppress(OSError):
        for _ in range(times):
            connection, _ = server.accept()
            connection.sendall(greeting)
            if not greeting:
                connection.close()
            else:
                kept.append(connection)
        connection, _ = server.accept()
        connection.recv(1000)
        connection.sendall(OK)
        kept.append(connection)


kept: list[socket.socket] = []
"""Open: what the peer does not close must not hang either."""


@pytest.mark.parametrize(
    "more", [OK, OK[:9], b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n" + OK]
)
def test_an_answer_that_came_before_its_request_finishes_no_message(more: bytes) -> None:
    """[MC-MQSRM] 3.1.7.2.5: a 200 says that the message was received; this peer has read the first one only."""
    heard: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = not heard
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readexactly(len(REQUEST)):
                heard.append(1)
                writer.write(OK + more if first else OK)

    async def body(told: Told, send: Callable[[int], Send]) -> None:
        told.connections.post(send(1))
        told.connections.post(send(2))
        assert await told.next() == ("answer", 1, 200)
        assert await told.next() == ("failure", 2, True, "the peer speaks unasked")
        told.connections.post(send(2))
        assert await told.next() == ("answer", 2, 200)

    with_peer(serve, body)


@pytest.mark.parametrize("reset", [False, True])
def test_a_lost_reply_on_a_kept_connection_costs_one_more_connection_and_no_time(
    reset: bool,
) -> None:
    served: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(0)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readexactly(len(REQUEST)):
                served[-1] += 1
                if len(served) == 1 and served[0] == 2:
                    if reset:
                        writer.transport.abort()
                    writer.close()
                    return
                writer.write(OK)

    async def body(told: Told, send: Callable[[int], Send]) -> None:
        for serial in (1, 2, 3):
            told.connections.post(send(serial))
            if serial == 2:
                assert await told.next() == ("doubt", 2), "it may have taken the first one"
            assert await told.next() == ("answer", serial, 200)
        assert served == [2, 2]

    with_peer(serve, body)


def test_a_second_lost_reply_is_trouble() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readexactly(len(REQUEST))
            if not served:
                served.append(1)
                writer.write(OK)
                await reader.readexactly(len(REQUEST))
        writer.close()

    served: list[int] = []

    async def body(told: Told, send: Callable[[int], Send]) -> None:
        told.connections.post(send(1))
        assert await told.next() == ("answer", 1, 200)
        told.connections.post(send(2))
        assert await told.next() == ("doubt", 2)
        assert (await told.next())[:3] == ("failure", 2, True)

    with_peer(serve, body)


@pytest.mark.parametrize(("soft", "allowed"), [(20_000, 1_000), (1_024, 960), (256, 192), (32, 16)])
def test_connections_leave_descriptors_for_everything_else(
    monkeypatch: pytest.MonkeyPatch, soft: int, allowed: int
) -> None:
    monkeypatch.setattr(module.resource, "getrlimit", lambda which: (soft, soft))

    async def run() -> None:
        connections = Told().connections
        assert connections._most == allowed
        await connections.stop()

    uvloop.run(run())


class Endless(Told):
    """Posts the next message of a queue as soon as one was answered, two at a time as the engine does; counts the answers."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: dict[QueueKey, list[int]] = {}
        self.failed: list[str] = []
        self.connections.on_answer = self._answered
        self.connections.on_failure = lambda send, why, left: self.failed.append(why)
        self.most = 0

    def begin(self, key: QueueKey) -> None:
        self.answers[key] = []
        for serial in (1, 2):
            self.connections.post(cast("Send", SimpleNamespace(key=key, serial=serial)))

    def _answered(self, send: Send, answer: PeerAnswer) -> None:
        self.answers[send.key].append(send.serial)
        self.most = max(self.most, len(self.connections))
        self.connections.post(cast("Send", SimpleNamespace(key=send.key, serial=send.serial + 2)))


@pytest.mark.parametrize("troubled", [False, True])
def test_queues_that_never_end_take_turns(monkeypatch: pytest.MonkeyPatch, troubled: bool) -> None:
    monkeypatch.setattr(module, "CONNECTIONS_MAX", 4)
    monkeypatch.setattr(module, "TROUBLED_MAX", 1)
    monkeypatch.setattr(module, "TURN_SECONDS", 0.05)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readexactly(len(REQUEST)):
                await asyncio.sleep(0.001)
                writer.write(OK)
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        told = Endless()
        keys = [QueueKey(f"http://127.0.0.1:{port}/msmq/private$/{n}", "stream") for n in range(12)]
        try:
            for key in keys[:4]:
                told.begin(key)
            await asyncio.sleep(0.1)  # they have all connections, and always something under way
            for key in keys[4:]:
                if troubled:
                    wire = Wire(told.connections, key)
                    wire.troubled = True
                    told.connections._wires[key] = wire
                told.begin(key)
            for _ in range(500):
                await asyncio.sleep(0.01)
                if all(len(told.answers[key]) > 3 for key in keys):
                    break
            assert {str(key): len(found) > 3 for key, found in told.answers.items()} == {
                str(key): True for key in keys
            }
            for found in told.answers.values():
                assert found == [*range(1, len(found) + 1)], "in order, none twice, none left out"
            assert told.failed == [], "to take turns is no trouble"
            assert told.most <= 4
        finally:
            await told.connections.stop()
            server.close()

    uvloop.run(run())


def test_what_is_closed_while_it_connects_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECT_SECONDS", 5.0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readexactly(len(REQUEST)):
                writer.write(OK)

    async def body(told: Told, send: Callable[[int], Send]) -> None:
        for turns in range(12):
            told.connections.post(send(turns))
            for _ in range(turns):
                await asyncio.sleep(0)
            told.connections.close(send(0).key)
            assert (await told.next())[:2] in (("failure", turns), ("answer", turns))
            assert told.ends.empty()

    with_peer(serve, body)


def test_an_idle_connection_is_closed_and_the_next_message_opens_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """[MC-MQSRM] 3.1.2.4, 3.1.6.4: the Session Cleanup Timer begins anew with each answer."""
    monkeypatch.setattr(module, "SWEEP_SECONDS", 0.02)
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.5)
    opened, ended = [], asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(reader)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readexactly(len(REQUEST)):
                writer.write(OK)
        ended.set()
        writer.close()

    async def body(told: Told, send: Callable[[int], Send]) -> None:
        for serial in (
            1,
            2,
            3,
        ):  # each 0.3 s after the one before: in use for longer than it may be idle
            told.connections.post(send(serial))
            assert await told.next() == ("answer", serial, 200)
            await asyncio.sleep(0.3)
        assert (len(opened), ended.is_set()) == (1, False)
        await asyncio.wait_for(ended.wait(), 5)
        assert len(told.connections) == 0
        assert [wire.troubled for wire in told.connections._wires.values()] == [
            False
        ]  # it does not wait behind dead hosts
        told.connections.post(send(4))
        assert await told.next() == ("answer", 4, 200)
        assert len(opened) == 2

    with_peer(serve, body)


@pytest.mark.parametrize("status", [200, 400])
def test_the_session_cleanup_timer_runs_60_seconds_from_the_answer(status: int) -> None:
    """3.1.7.2.5: "MUST be canceled, if running, and then started" with each response; 3.1.2.4: IIS would close it at 120 s."""
    may_answer, ended = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(REQUEST))
        await may_answer.wait()
        writer.write(OK.replace(b"200", b"%d" % status))
        with contextlib.suppress(ConnectionError):
            await reader.read()
        ended.set()
        writer.close()

    async def body(told: Told, send: Callable[[int], Send]) -> None:
        connections, now = told.connections, 1_000.0
        connections.time = lambda: now

        def open_after(seconds: float) -> bool:
            nonlocal now
            now += seconds
            connections._sweep()
            return len(connections) == 1

        connections.post(send(1))
        await until_under_way(connections)
        assert open_after(25)
        may_answer.set()
        assert await told.next() == ("answer", 1, status)
        assert open_after(59.9), "the answer began it anew"
        assert not open_after(0.2)
        await asyncio.wait_for(ended.wait(), 5)

    with_peer(serve, body)


async def until_under_way(connections: Connections) -> None:
    async def connected() -> None:
        while not all(
            wire.exchange is not None and wire.exchange.unanswered
            for wire in connections._wires.values()
        ):
            await asyncio.sleep(0.01)

    await asyncio.wait_for(connected(), 5)


def test_trouble_costs_the_connection_only_if_no_whole_answer_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """3.1.7.2.5 closes it on 5xx, too. A 5xx with its length is a whole answer: the next attempt may use the same one."""
    monkeypatch.setattr(module, "SWEEP_SECONDS", 0.02)
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.2)
    served: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(0)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readexactly(len(REQUEST)):
                served[-1] += 1
                if served != [2]:  # to the second request on the first connection it says nothing
                    writer.write(OK.replace(b"200 OK", b"503 Busy"))
        writer.close()

    async def body(told: Told, send: Callable[[int], Send]) -> None:
        told.connections.post(send(1))
        assert await told.next() == ("answer", 1, 503)
        told.connections.post(send(2))
        assert (await told.next())[:3] == ("failure", 2, True)
        assert (served, len(told.connections)) == ([2], 0)
        told.connections.post(send(3))
        assert await told.next() == ("answer", 3, 503)
        assert served == [2, 1]

    with_peer(serve, body)
