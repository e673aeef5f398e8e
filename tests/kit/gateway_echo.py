"""A gateway that does on command what a gateway must survive: the subject of tests/gateway."""

from __future__ import annotations

import asyncio
import os
import time

import msgspec

from srmp_spark.queue_manager.gateway.process import Gateway, Served, run_gateway


class Said(msgspec.Struct, tag=True, frozen=True):
    """A client's line, on its way to the main process."""

    connection: int
    line: bytes


class Answer(msgspec.Struct, tag=True, frozen=True):
    """A line for a client, on its way to the gateway."""

    connection: int
    line: bytes


class Do(msgspec.Struct, tag=True, frozen=True):
    """A command of the test: ``hang``, ``die``, ``flood`` or ``memory``."""

    what: str


ToMain = Said
ToGateway = Answer | Do


async def serve(gateway: Gateway) -> Served:
    """Echo lines by way of the main process."""
    writers: dict[int, asyncio.StreamWriter] = {}

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(writers)
        writers[number] = writer
        async for line in reader:
            gateway.channel.send(Said(number, line))
        writer.close()

    def on_message(message: Answer | Do) -> None:
        if isinstance(message, Answer):
            writers[message.connection].write(message.line)
        elif message.what == "hang":
            time.sleep(3600)  # a parser in an endless loop
        elif message.what == "memory":
            for connection in range(1_000_000):
                writers[connection] = bytearray(64 * 1024 * 1024)  # type: ignore[assignment]  # a leak
        elif message.what == "flood":
            for number in range(200_000):
                gateway.channel.send(Said(number, b"x"))
        else:
            os._exit(9)

    await asyncio.start_server(client, sock=gateway.listening["port"])
    return Served(on_message)


if __name__ == "__main__":
    run_gateway(ToGateway, serve)
