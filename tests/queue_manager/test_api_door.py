"""A full API port looks for a place for a newcomer again, and nobody waits for those before it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn

from srmp_spark.queue_manager.api.port_side import port as module
from srmp_spark.queue_manager.api.port_side.port import (
    AT_THE_DOOR_MAX,
    AT_THE_DOOR_SECONDS,
    ApiPort,
)

PLACES = 2
REQUEST = b"GET /held HTTP/1.1\r\nHost: h\r\n\r\n"


class Rig:
    """A port whose calls last until they are let go: they keep their places, as long polls do."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.begun = 0

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        self.begun += 1
        await self.go.wait()
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]}
        )
        await send({"type": "http.response.body", "body": b""})

    async def fill(self, connect: Callable[[], Awaitable[Any]]) -> None:
        for _ in range(PLACES):
            _, writer = await connect()
            writer.write(REQUEST)
        while self.begun < PLACES:
            await asyncio.sleep(0.005)


def run(test: Callable[[Rig, ApiPort, Callable[[], Awaitable[Any]]], Awaitable[None]]) -> None:
    async def main() -> None:
        rig = Rig()
        settings = uvicorn.Config(
            rig.app,
            interface="asgi3",
            loop="none",
            ws="none",
            lifespan="off",
            log_config=None,
            timeout_graceful_shutdown=1,
        )
        settings.load()
        server = uvicorn.Server(settings)
        server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]  # of older versions
        serving = asyncio.get_running_loop().create_task(server.serve(sockets=[]))
        while not server.started:
            await asyncio.sleep(0.005)
        listening = socket.create_server(("127.0.0.1", 0), backlog=200)
        listening.setblocking(False)
        port = ApiPort(listening, server, None, asks_for_owner=False, connections_max=PLACES)
        port.start()
        writers: list[asyncio.StreamWriter] = []

        async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            writers.append(writer)
            return reader, writer

        try:
            await test(rig, port, connect)
        finally:
            rig.go.set()
            for writer in writers:
                writer.close()
            await port.close()
            server.should_exit = True
            with contextlib.suppress(SystemExit):
                await serving
            listening.close()

    asyncio.run(asyncio.wait_for(main(), 30))


async def refused(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read(1) == b""
    except ConnectionError:
        return True


def test_a_newcomer_gets_the_place_of_a_call_that_ends_meanwhile(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "AT_THE_DOOR_SECONDS", 10.0)

    async def test(rig: Rig, port: ApiPort, connect: Callable[[], Awaitable[Any]]) -> None:
        await rig.fill(connect)
        reader, writer = await connect()
        writer.write(REQUEST)
        while not port._at_the_door:
            await asyncio.sleep(0.005)
        rig.go.set()
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")

    run(test)


def test_a_newcomer_for_whom_there_is_no_place_is_refused_in_time() -> None:
    async def test(rig: Rig, port: ApiPort, connect: Callable[[], Awaitable[Any]]) -> None:
        await rig.fill(connect)
        began = asyncio.get_running_loop().time()
        reader, _ = await connect()
        assert await refused(reader)
        assert asyncio.get_running_loop().time() - began >= AT_THE_DOOR_SECONDS - 0.05
        assert not port._at_the_door
        assert len(port.room) == PLACES

    run(test)


def test_one_more_than_wait_at_the_door_takes_the_turn_of_the_oldest(monkeypatch: Any) -> None:
    """Each of them has a minute: neither waits for those before it, and what they hold is bounded."""
    monkeypatch.setattr(module, "AT_THE_DOOR_SECONDS", 60.0)

    async def test(rig: Rig, port: ApiPort, connect: Callable[[], Awaitable[Any]]) -> None:
        await rig.fill(connect)
        oldest, *_ = [(await connect())[0] for _ in range(AT_THE_DOOR_MAX)]
        while len(port._at_the_door) < AT_THE_DOOR_MAX:
            await asyncio.sleep(0.005)
        _, writer = await connect()
        writer.write(REQUEST)
        assert await asyncio.wait_for(refused(oldest), 10)
        assert len(port._at_the_door) == AT_THE_DOOR_MAX
        rig.go.set()
        while len(port._at_the_door) == AT_THE_DOOR_MAX:
            await asyncio.sleep(0.005)

    run(test)
