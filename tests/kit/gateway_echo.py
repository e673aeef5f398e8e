"""A gateway that fails on command, for the tests in tests/gateway.

The gateway echoes lines. On command it hangs, ends, floods its channel or uses up memory. The main
process must survive each of these failures.
"""

from __future__ import annotations

import asyncio
import os
import time

import msgspec

from srmp_spark.queue_manager.gateway.control import GatewaySettings
from srmp_spark.queue_manager.gateway.process import Gateway, Served, run_gateway


class Said(msgspec.Struct, tag=True, frozen=True):
    """A client's line, sent from the gateway to the main process."""

    connection: int
    line: bytes


class Answer(msgspec.Struct, tag=True, frozen=True):
    """A line for a client, sent from the main process to the gateway."""

    connection: int
    line: bytes


class Do(msgspec.Struct, tag=True, frozen=True):
    """A command of the test: ``hang``, ``die``, ``flood`` or ``memory``."""

    what: str


ToMain = Said
ToGateway = Answer | Do


async def serve(gateway: Gateway[GatewaySettings]) -> Served:
    """Accept clients, send their lines to the main process, and return the message handler.

    The handler writes the main process's answers to the clients and carries out commands of the
    test.
    """
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
            # This stands for a parser in an endless loop.
            time.sleep(3600)
        elif message.what == "memory":
            # This stands for a memory leak.
            for connection in range(1_000_000):
                writers[connection] = bytearray(64 * 1024 * 1024)  # type: ignore[assignment]
        elif message.what == "flood":
            for number in range(200_000):
                gateway.channel.send(Said(number, b"x"))
        else:
            os._exit(9)

    await asyncio.start_server(client, sock=gateway.listening["port"])
    return Served(on_message)


if __name__ == "__main__":
    run_gateway(ToGateway, GatewaySettings, serve)
