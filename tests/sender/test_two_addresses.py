"""A destination with two addresses, of which the first swallows packets: messages and receipts take the second one."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest
import uvloop
from test_connections import OK, REQUEST, Told

from srmp_spark.queue_manager.posting.http_client import post
from srmp_spark.queue_manager.sender.http.addresses import HostAddresses
from srmp_spark.queue_manager.sender.http.connections import Wire
from srmp_spark.srmp.sending.outgoing_effects import QueueKey, Send
from tests.kit.stalls import MachineStalls

DEAD, ALIVE = "127.0.0.2", "127.0.0.1"


@pytest.fixture
def port() -> Iterator[int]:
    """A port whose packets are swallowed at DEAD: the line of its kernel is full."""
    with contextlib.ExitStack() as opened:
        dead = opened.enter_context(socket.socket())
        dead.bind((DEAD, 0))
        dead.listen(0)
        for _ in range(4):
            filler = opened.enter_context(socket.socket())
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(dead.getsockname())
        yield dead.getsockname()[1]


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(OK)
    writer.close()


def test_a_message_takes_the_second_address_and_the_next_one_begins_with_it(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Wire, "request", lambda self, send: REQUEST)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await asyncio.start_server(serve, ALIVE, port)
        told = Told()
        told.connections._addresses = HostAddresses(loop, lambda host, port: (DEAD, ALIVE))
        took = []
        with MachineStalls() as stalls:
            for serial in (1, 2):
                key = QueueKey(f"http://two.example:{port}/msmq/private$/q{serial}", "plain")
                begun = time.monotonic()
                told.connections.post(cast("Send", SimpleNamespace(key=key, serial=serial)))
                assert await told.next() == ("answer", serial, 200)
                took.append(time.monotonic() - begun)
        assert took[0] < 2 + stalls.allowance
        assert took[1] < 0.2 + stalls.allowance, "it begins with the address that answered"
        await told.connections.stop()
        server.close()

    uvloop.run(main())


def test_a_receipt_takes_the_second_address(port: int) -> None:
    async def main() -> None:
        server = await asyncio.start_server(serve, ALIVE, port)
        with MachineStalls() as stalls:
            begun = time.monotonic()
            answer = await post(
                (DEAD, ALIVE), port, b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", b""
            )
            took = time.monotonic() - begun
        assert answer.status == 200
        assert took < 2 + stalls.allowance
        server.close()

    uvloop.run(main())


def test_a_request_is_written_to_one_connection_alone() -> None:
    """Two that connect at about the same time: the one that is not used hears nothing."""
    heard: dict[str, bytes] = {}

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        where = writer.get_extra_info("sockname")[0]
        data = await reader.readuntil(b"\r\n\r\n")
        heard[where] = data
        writer.write(OK)
        writer.close()

    async def main() -> None:
        first = await asyncio.start_server(listen, ALIVE, 0)
        port = first.sockets[0].getsockname()[1]
        second = await asyncio.start_server(listen, DEAD, port)
        for _ in range(20):
            heard.clear()
            assert (
                await post(
                    (ALIVE, DEAD), port, b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", b""
                )
            ).status == 200
            assert list(heard) == [ALIVE]
        first.close()
        second.close()

    uvloop.run(main())
