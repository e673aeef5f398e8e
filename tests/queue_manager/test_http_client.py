"""Answers of a peer that we post a receipt to: only a complete one counts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from unittest import mock

import pytest

from srmp_spark.queue_manager.posting import http_client
from srmp_spark.queue_manager.posting.http_answer import PeerAnswer
from srmp_spark.queue_manager.posting.http_client import PostFailedError, StatusExchange, post
from srmp_spark.queue_manager.posting.http_exchange import LostError

HEAD = b"POST /msmq/q HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n"
Reply = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def exchange(reply: Reply) -> PeerAnswer:
    async def run() -> PeerAnswer:
        seen: list[bytes] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            seen.append(await reader.readexactly(len(HEAD) + 2))
            try:
                await reply(reader, writer)
            except ConnectionError:
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        try:
            return await post(("127.0.0.1",), server.sockets[0].getsockname()[1], HEAD, b"hi")
        finally:
            server.close()
            assert seen in ([HEAD + b"hi"], [])

    return asyncio.run(run())


def says(*pieces: bytes) -> Reply:
    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)

    return reply


@pytest.mark.parametrize(
    ("pieces", "status"),
    [
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",), 200),
        ((b"HTTP/1.1 20", b"0 OK\r\nContent-Le", b"ngth: 0\r\n\r", b"\n"), 200),
        ((b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",), 200),
        ((b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",), 200),
        ((b"HTTP/1.0 200 OK\r\n\r\nuntil the end",), 200),
        (
            (
                (
                    b"HTTP/1.1 301 Moved\r\nLocation: http://169.254.169.254/\r\nContent-Lengt"
                    b"h: 0\r\n\r\n"
                ),
            ),
            301,
        ),
        ((b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",), 400),
        ((b"HTTP/1.1 204 No Content\r\n\r\n",), 204),
    ],
)
def test_a_complete_answer_counts_whatever_it_says(pieces: tuple[bytes, ...], status: int) -> None:
    assert exchange(says(*pieces)).status == status


def test_the_reason_of_another_queue_manager_is_kept_for_the_log() -> None:
    assert (
        exchange(
            says(b"HTTP/1.1 400 Bad\r\nSrmp-Reason: unknown-queue; x\r\nContent-Length: 0\r\n\r\n")
        ).reason
        == "unknown-queue; x"
    )


@pytest.mark.parametrize(
    "pieces",
    [
        (),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab",),
        (b"HTTP/1.1 200 OK\r\nContent-Le",),
        (b"SSH-2.0-OpenSSH\r\n",),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 100,),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 100 + b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000,),
    ],
)
def test_anything_less_is_no_answer(pieces: tuple[bytes, ...]) -> None:
    with pytest.raises(PostFailedError):
        exchange(says(*pieces))


def test_a_body_of_a_gigabyte_is_not_read() -> None:
    sent = 0

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n")
        while sent < 1 << 30:
            writer.write(b"x" * 65_536)
            sent += 65_536
            await writer.drain()

    assert exchange(endless).status == 200
    assert sent < 64 << 20


def test_silence_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "ANSWER_SECONDS", 0.2)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    with pytest.raises(PostFailedError, match="no answer"):
        exchange(silent)


def test_an_answer_before_the_request_is_none() -> None:
    async def run() -> None:
        transport = mock.Mock(asyncio.Transport)
        exchange = StatusExchange()
        exchange.connection_made(transport)
        exchange.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        with pytest.raises(LostError, match="before the request"):
            await exchange.ask(HEAD, 5)
        transport.write.assert_not_called()

    asyncio.run(run())


def test_nobody_there() -> None:
    with pytest.raises(PostFailedError):
        asyncio.run(post(("127.0.0.1",), 1, HEAD, b"hi"))


def test_an_address_is_called_and_never_a_name() -> None:
    """A name would be looked up again, and the second answer was judged by nobody (DNS rebinding)."""

    async def run() -> None:
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        try:
            with pytest.raises(PostFailedError, match="localhost"):
                await post(("localhost",), server.sockets[0].getsockname()[1], HEAD, b"hi")
        finally:
            server.close()

    asyncio.run(run())
