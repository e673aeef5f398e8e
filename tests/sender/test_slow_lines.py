"""A large message on a slow line gets its time; a peer that takes nothing, or next to nothing, does not."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hostile_peers import OK
from kit import commit, outgoing, until
from test_connections import Told, with_peer

from srmp_spark.queue_manager.sender.http import connections as module
from srmp_spark.queue_manager.sender.http.connections import Wire
from srmp_spark.srmp.sending.outgoing_effects import Send
from srmp_spark.testing.queue_manager import RunningQueueManager

LARGE = 4 * 1_048_576
HEAD = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % LARGE
Reader = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def listening() -> socket.socket:
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)  # what waits, waits at the sender
    found.bind(("127.0.0.1", 0))
    found.listen()
    found.setblocking(False)
    return found


def run(
    monkeypatch: pytest.MonkeyPatch,
    serve: Reader,
    body: Callable[[Told, Callable[[int], Send]], Awaitable[None]],
) -> None:
    monkeypatch.setattr(module, "SWEEP_SECONDS", 0.05)
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.8)
    monkeypatch.setattr(Wire, "request", lambda self, send: HEAD + bytes(LARGE))
    with_peer(serve, body, listening())


def reading(a_tenth: int) -> Reader:
    """A peer that takes so many bytes in a tenth of a second, and answers when it has the whole request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got = 0
        with contextlib.suppress(ConnectionError):
            while got < LARGE:
                piece = await reader.read(a_tenth)
                if not piece:
                    return
                got += len(piece)
                await asyncio.sleep(0.1 * len(piece) / a_tenth)
            writer.write(OK)

    return serve


def test_bytes_that_move_are_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes 2.8 seconds, three and a half times as long as a silent peer gets."""
    monkeypatch.setattr(module, "RATE_MIN", LARGE / 10)

    async def body(told: Told, send: Callable[[int], Send]) -> None:
        told.connections.post(send(1))
        assert await told.next() == ("answer", 1, 200)

    run(monkeypatch, reading(150_000), body)


def test_who_takes_nothing_any_more_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RATE_MIN", LARGE / 100)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100_000)
        await asyncio.sleep(60)

    async def body(told: Told, send: Callable[[int], Send]) -> None:
        begun = time.monotonic()
        told.connections.post(send(1))
        what, serial, left, why = await told.next()
        assert (what, serial, left) == ("failure", 1, True)
        assert "took nothing for 0.8 s" in why
        assert time.monotonic() - begun < 4

    run(monkeypatch, serve, body)


def test_who_takes_less_than_the_least_rate_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RATE_MIN", LARGE)

    async def body(told: Told, send: Callable[[int], Send]) -> None:
        told.connections.post(send(1))
        what, serial, left, why = await told.next()
        assert (what, serial, left) == ("failure", 1, True)
        assert "no answer from" in why
        assert "in 2 s" in why

    run(monkeypatch, reading(100_000), body)


def test_an_answer_that_comes_byte_by_byte_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readexactly(len(HEAD) + LARGE)
            writer.write(b"HTTP/1.1 200 OK\r\nX: ")
            while True:
                writer.write(b"x")
                await asyncio.sleep(0.05)

    async def body(told: Told, send: Callable[[int], Send]) -> None:
        told.connections.post(send(1))
        assert (await told.next())[:3] == ("failure", 1, True)

    monkeypatch.setattr(module, "RATE_MIN", LARGE)
    run(monkeypatch, serve, body)


def test_four_megabytes_at_100_kb_a_second_leave_once(tmp_path: Path) -> None:
    """Of a stream, whose receipt timer runs meanwhile: nothing is sent twice."""
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                heads.append(head)
                left = int(head.lower().partition(b"content-length:")[2].split()[0])
                while left:
                    piece = await reader.read(min(left, 10_000))
                    if not piece:
                        return
                    left -= len(piece)
                    await asyncio.sleep(len(piece) / 100_000)
                writer.write(OK)

    loop = asyncio.new_event_loop()
    with RunningQueueManager(tmp_path / "qm") as running:
        ready = loop.run_until_complete(asyncio.start_server(serve, sock=listening(), limit=65_536))
        to = f"http://127.0.0.1:{ready.sockets[0].getsockname()[1]}/msmq/private$/q"
        commit(
            running.api,
            "1",
            [{"body": bytes(LARGE), "destination": to}, {"body": b"next", "destination": to}],
        )

        async def both() -> None:
            while len(heads) < 2:
                await asyncio.sleep(0.1)

        begun = time.monotonic()
        loop.run_until_complete(asyncio.wait_for(both(), 100))
        assert time.monotonic() - begun > 35, "it was slow"
        assert b"Content-Length: %d" % LARGE not in heads[1], (
            "the second message, and not the first once more"
        )
        found = until(lambda: outgoing(running, to), "its status")
        assert found["last_error"] is None
        assert int(heads[1].lower().partition(b"content-length:")[2].split()[0]) < 10_000
        ready.close()
        loop.run_until_complete(asyncio.sleep(0))
    loop.close()
