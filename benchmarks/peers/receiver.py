"""Receive streams at next to no cost: answer 200 to every POST, and send stream receipts.

A receipt is sent half a second after the last POST. The receiver keeps no message and makes no
promise. A sender is measured against it: the less the peer costs, the more the sender shows. ``GET
/`` answers ``{"posts", "doubled"}``. It prints one JSON line when it listens: ``{"port"}``. ``bare
PORT FILE`` is the other side of the comparison: it posts the requests of FILE one after another
over one connection and prints how long that took.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from pathlib import Path

import httptools
import uvloop

RECEIPT_WAIT_S = 0.5
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
STREAM = re.compile(rb"<streamId>uid:([0-9a-f-]+\\\d+)</streamId><current>(\d+)</current>")
START = re.compile(rb"<sendReceiptsTo>http://([^:/<]+):(\d+)([^<]*)</sendReceiptsTo>")
RECEIPT = (
    '<se:Envelope xmlns:se="http://schemas.xmlsoap.org/soap/envelope/" xmlns="http://schemas.xmlsoap.org/srmp/"><se:Header>'
    '<path xmlns="http://schemas.xmlsoap.org/rp/" se:mustUnderstand="1"><action>MSMQ:QM '
    "Ordering Ack</action>"
    "<to>http://{host}:{port}{path}</to><id>uuid:{number}@aaaaaaaa-0000-4000-8000-00000000beef</id></path>"
    '<properties se:mustUnderstand="1"><expiresAt>20380119T031407</expiresAt><sentAt>20261'
    "122T000000</sentAt></properties>"
    "<streamReceipt><streamId>uid:{stream}</streamId><lastOrdinal>{last}</lastOrdinal></streamReceipt>"
    '<Msmq xmlns="msmq.namespace.xml"><Class>255</Class><Priority>0</Priority>'
    "<Correlation>AAAAAAAAAAAAAAAAAAAAAAEAAAA=</Correlation><App>0</App><BodyType>0</BodyType><HashAlgorithm>0</HashAlgorithm>"
    "<SourceQmGuid>aaaaaaaa-0000-4000-8000-00000000beef</SourceQmGuid><TTrq>20380119T031407</TTrq></Msmq>"
    "</se:Header><se:Body></se:Body></se:Envelope>"
)


class State:
    """The state that all connections share."""

    def __init__(self) -> None:
        self.posts = self.doubled = self.numbers = 0
        self.streams: dict[str, int] = {}
        self.where: dict[str, tuple[str, int, str]] = {}
        self.timers: dict[str, asyncio.TimerHandle] = {}
        self.last_at: dict[str, float] = {}

    def take(self, body: bytes) -> None:
        """Count one POST and let its stream receipt be sent later."""
        self.posts += 1
        found = STREAM.search(body)
        if found is None:
            return
        stream, current = found[1].decode(), int(found[2])
        if current == 1:
            start = START.search(body)
            assert start is not None
            self.where[stream] = start[1].decode(), int(start[2]), start[3].decode()
        last = self.streams.get(stream, 0)
        if current == last + 1:
            self.streams[stream] = current
        else:
            self.doubled += 1
        loop = asyncio.get_running_loop()
        self.last_at[stream] = loop.time()
        if stream not in self.timers:
            self.timers[stream] = loop.call_later(RECEIPT_WAIT_S, self.due, stream)

    def due(self, stream: str) -> None:
        """Send the stream receipt, or wait again if a message arrived since the timer began."""
        loop = asyncio.get_running_loop()
        left = self.last_at[stream] + RECEIPT_WAIT_S - loop.time()
        if left > 0.001:
            self.timers[stream] = loop.call_later(left, self.due, stream)
            return
        del self.timers[stream]
        # The task ends by itself, so no reference is kept.
        asyncio.ensure_future(self.acknowledge(stream, self.streams[stream]))  # noqa: RUF006

    async def acknowledge(self, stream: str, last: int) -> None:
        """Send the stream receipt of ``stream`` for all numbers up to ``last``."""
        host, port, path = self.where[stream]
        self.numbers += 1
        text = RECEIPT.format(
            host=host, port=port, path=path, number=self.numbers, stream=stream, last=last
        ).encode()
        # The sender runs on this machine, whatever host name it gives.
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: "
            f"text/xml\r\nContent-Length: {len(text)}\r\n"
        )
        writer.write(f'{head}SOAPAction: "MSMQMessage"\r\n\r\n'.encode() + text)
        answer = await reader.readline()
        if b" 200" not in answer:
            print(answer, file=sys.stderr, flush=True)
        writer.close()


class Connection(asyncio.Protocol):
    """Reads requests and answers each."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.parser = httptools.HttpRequestParser(self)
        self.body: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_body(self, data: bytes) -> None:
        self.body.append(data)

    def on_message_complete(self) -> None:
        body, self.body = b"".join(self.body), []
        if self.parser.get_method() == b"GET":
            text = json.dumps({"posts": self.state.posts, "doubled": self.state.doubled}).encode()
            self.transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(text) + text
            )  # type: ignore[attr-defined]
            return
        self.state.take(body)
        self.transport.write(OK)  # type: ignore[attr-defined]


async def serve() -> None:
    """Serve until the process is killed."""
    state = State()
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(state), "127.0.0.1", 0
    )
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await server.serve_forever()


class Bare(asyncio.Protocol):
    """Posts one request when the one before it is answered."""

    def __init__(self, requests: list[bytes]) -> None:
        self.requests = iter(requests)
        self.parser = httptools.HttpResponseParser(self)
        self.done: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.began = time.perf_counter()
        self.next()

    def next(self) -> None:
        request = next(self.requests, None)
        if request is None:
            self.done.set_result(time.perf_counter() - self.began)
        else:
            self.transport.write(request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_message_complete(self) -> None:
        assert self.parser.get_status_code() == 200
        self.next()


async def bare(port: int, file: Path) -> None:
    """Post the requests of ``file`` one after another, and print the seconds that this took.

    Each request in the file is its length in eight digits, then its bytes.
    """
    text, requests, at = file.read_bytes(), [], 0
    while at < len(text):
        length = int(text[at : at + 8])
        requests.append(text[at + 8 : at + 8 + length])
        at += 8 + length
    _, client = await asyncio.get_running_loop().create_connection(
        lambda: Bare(requests), "127.0.0.1", port
    )
    print(json.dumps({"seconds": await client.done}), flush=True)


if __name__ == "__main__":
    uvloop.run(bare(int(sys.argv[2]), Path(sys.argv[3])) if sys.argv[1:2] == ["bare"] else serve())
