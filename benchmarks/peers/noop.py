"""Serve an endpoint that reads a POST, answers 200 and does nothing: the cost of HTTP alone.

    noop.py uvicorn|protocol PORT

``uvicorn`` is bare ASGI on uvicorn with httptools and uvloop. ``protocol`` is an asyncio.Protocol
on httptools and uvloop, without any of the limits, time-outs and refusals that a real endpoint
needs.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import httptools
import uvloop

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


async def asgi(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    data = b""
    while True:
        event = await receive()
        data = data + event["body"] if data else event["body"]
        if not event.get("more_body"):
            break
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]}
    )
    await send({"type": "http.response.body", "body": b""})


class Bare(asyncio.Protocol):
    def __init__(self) -> None:
        self.parser = httptools.HttpRequestParser(self)
        self.data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        pass

    def on_body(self, body: bytes) -> None:
        self.data = self.data + body if self.data else body

    def on_message_complete(self) -> None:
        self.data = b""
        if not self.transport.is_closing():
            self.transport.write(OK)


async def bare(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Bare, "127.0.0.1", port)
    await server.serve_forever()


def main() -> None:
    kind, port = sys.argv[1], int(sys.argv[2])
    if kind == "protocol":
        uvloop.run(bare(port))
        return
    import uvicorn

    config = uvicorn.Config(
        asgi,
        host="127.0.0.1",
        port=port,
        loop="uvloop",
        http="httptools",
        log_level="warning",
        access_log=False,
        lifespan="off",
    )
    uvloop.run(uvicorn.Server(config).serve())


if __name__ == "__main__":
    main()
