"""A hostile HTTP server to which the target's sender posts messages.

The server answers as no receiving queue manager does, or not at all. The server has its own thread,
and one behaviour at a time. Without a behaviour the server is honest: it answers every POST with
200 and stores nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from random import Random
from typing import cast

from srmp_spark.testing.foreign.incoming import Incoming, MalformedError, header_of, read_message
from srmp_spark.testing.foreign.ports import KeptPort
from srmp_spark.testing.foreign.receipts_out import envelope, post
from srmp_spark.testing.foreign.receiving import (
    CLASS_ORDER_ACK,
    CLASS_PURGED,
    CLASS_REACH_QUEUE,
    CLASS_RECEIVE,
    Owed,
)
from tests.kit.attack.soap import MIME, OPERATIONS, VERSIONS, envelope_of
from tests.kit.fuzz.mutators import HTTP, Mutator

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
ENDLESS: dict[str, tuple[bytes, bytes]] = {
    "head": (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 4_000),
    "line": (b"HTTP/1.1 200 OK\r\nX: ", b"y" * 24_000),
    "body": (b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n", b"y" * 24_000),
    "chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"5\r\nabcde\r\n" * 2_400),
    "chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n", b"y" * 24_000),
    "continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1_000),
    "until-close": (b"HTTP/1.1 200 OK\r\n\r\n", b"y" * 24_000),
    "no-http": (b"220 smtp.example ESMTP\r\n", b"y" * 24_000),
}
"""By behaviour: the beginning of an answer, and the piece that follows again and again."""
BEHAVIOURS = (
    "silent",
    "slow",
    "unread",
    "closes",
    "cuts",
    "away",
    "statuses",
    "redirects",
    "garbage",
    "octets",
    "unasked",
    "twice",
    "receipts",
    "soap",
    *ENDLESS,
)
"""The behaviours that :meth:`HostileServer.behave` accepts."""
BUFFER_MAX = 1_000_000
"""Unsent bytes of an endless answer at which the server waits for the peer to read."""
SLOW_SECONDS = 0.5
"""Seconds between two bytes of a slow answer."""
CONTENT_MAX = 16_000_000
"""Most bytes of a request; a longer request is not answered."""
LIES_AT_ONCE = 8
"""Most false receipts that are sent at the same time; further ones are not sent."""
RECEIPT_SECONDS = 10.0
HOSTS = ("127.0.0.1", "127.0.0.2")
"""The server's addresses.

The first one is for messages. The second one is an attacker's address, because messages of that
attacker may request receipts there.
"""
STATUSES = (
    100,
    102,
    199,
    200,
    201,
    202,
    204,
    205,
    206,
    226,
    300,
    304,
    400,
    401,
    403,
    404,
    405,
    407,
    408,
    410,
    413,
    417,
    421,
    429,
    451,
    500,
    501,
    502,
    503,
    504,
    505,
    511,
    599,
    600,
    999,
)
REDIRECTS = (301, 302, 303, 307, 308)
FIELDS = (
    b"Retry-After: 0\r\n",
    b"Retry-After: 999999999999\r\n",
    b"Retry-After: -1\r\n",
    b"Retry-After: Fri, 31 Dec 9999 23:59:59 GMT\r\n",
    b"Srmp-Reason: " + b"z" * 9_000 + b"\r\n",
    b"Srmp-Reason: \xff\x1b[2J\r\n",
    b"Connection: close\r\n",
    b"Connection: Upgrade\r\nUpgrade: h2c\r\n",
    b"Content-Length: 0\r\n",
    b"Set-Cookie: a=b\r\n",
    b"X: " + b"x" * 60_000 + b"\r\n",
)
BODY_CLASSES = (CLASS_ORDER_ACK, CLASS_PURGED, CLASS_REACH_QUEUE, CLASS_RECEIVE)
_MUTATOR = Mutator([OK], [*HTTP])


class HostileServer:
    """A hostile HTTP server on one port of two loopback addresses."""

    def __init__(self, astray: str) -> None:
        """Prepare the server; redirects lead to ``astray``, a URL that the sender must not call."""
        self.astray = astray
        self._kept = KeptPort()
        self.port = self._kept.number
        self.posts = 0
        """Number of requests that were read completely."""
        self.behaviour = ""
        self.rng = Random(0)
        self.connections: set[_Connection] = set()
        self.lies: asyncio.Semaphore
        self._loop = asyncio.new_event_loop()
        self._servers: list[asyncio.Server] = []
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def start(self) -> None:
        """Start the thread and listen, with the honest behaviour."""
        self._thread.start()
        self._run(self._listen)

    def stop(self) -> None:
        """Close all connections and end the thread."""
        self._run(self._off)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def behave(self, what: str, seed: int) -> None:
        """Change the behaviour to ``what``, one of :data:`BEHAVIOURS`, until the next call.

        An empty ``what`` means honest. ``seed`` decides the random answers. All connections are
        closed, so the new behaviour starts on new connections.
        """

        async def change() -> None:
            await self._off()
            self.behaviour, self.rng = what, Random(seed)
            if what != "away":
                await self._listen()

        self._run(change)

    def _run(self, job: Callable[[], object]) -> None:
        # Each job is a coroutine function.
        asyncio.run_coroutine_threadsafe(job(), self._loop).result(30)  # type: ignore[arg-type]

    async def _listen(self) -> None:
        self.lies = asyncio.Semaphore(LIES_AT_ONCE)
        for host in HOSTS:
            server = await self._loop.create_server(
                lambda: _Connection(self), host, self.port, backlog=1_024
            )
            self._servers.append(server)

    async def _off(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()
        for each in tuple(self.connections):
            each.transport.abort()


class _Connection(asyncio.Protocol):
    def __init__(self, server: HostileServer) -> None:
        self._server = server
        self._data = bytearray()

    # --- asyncio ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._server.connections.add(self)
        what, rng = self._server.behaviour, self._server.rng
        if what == "unread":
            self.transport.pause_reading()
        elif what == "unasked" or (what == "closes" and rng.random() < 0.3):
            self.transport.write(rng.choice((OK, b"HTTP/1.1 100 Continue\r\n\r\n", b"x")))
        if what == "closes" and rng.random() < 0.5:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        if self._server.behaviour == "closes":
            self.transport.abort()
            return
        self._data += data
        while (request := self._take()) is not None:
            self._server.posts += 1
            self._answer(*request)

    def _take(self) -> tuple[str, bytes] | None:
        """Remove a complete request from the buffer, and return its header lines and its content.

        Return ``None`` if the request is incomplete or longer than :data:`CONTENT_MAX`.
        """
        end = self._data.find(b"\r\n\r\n")
        if end < 0 or len(self._data) > CONTENT_MAX:
            return None
        fields = self._data[:end].decode("latin-1").partition("\r\n")[2]
        length = int(header_of(fields, "Content-Length") or 0)
        if len(self._data) < end + 4 + length:
            return None
        content = bytes(self._data[end + 4 : end + 4 + length])
        del self._data[: end + 4 + length]
        return fields, content

    # --- answers ----------------------------------------------------------------------------------

    def _answer(self, fields: str, content: bytes) -> None:
        what, rng = self._server.behaviour, self._server.rng
        if what in ("silent", "unread"):
            return
        if what in ENDLESS:
            self._go_on(*ENDLESS[what])
        elif what == "slow":
            self._crawl(OK)
        elif what == "soap":
            self.transport.write(_soap(rng))
        else:
            self.transport.write(self._short(what, rng))
            if what == "cuts" or (what in ("statuses", "garbage", "octets") and rng.random() < 0.3):
                self.transport.close()
        if what == "receipts":
            self._lie(fields, content)

    def _short(self, what: str, rng: Random) -> bytes:
        if what == "cuts":
            whole = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789"
            return whole[: rng.randrange(len(whole))]
        if what == "statuses":
            return _head(rng.choice(STATUSES), rng) + (b"<html/>" if rng.random() < 0.1 else b"")
        if what == "redirects":
            to = rng.choice(
                (self._server.astray, "file:///etc/passwd", "//127.0.0.1:1/", "x" * 5_000)
            )
            return b"HTTP/1.1 %d Moved\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % (
                rng.choice(REDIRECTS),
                to.encode(),
            )
        if what == "garbage":
            return _MUTATOR.mutate(_head(rng.choice(STATUSES), rng), rng)
        if what == "octets":
            return rng.randbytes(rng.choice((1, 16, 70_000)))
        if what == "twice":
            return OK * rng.choice((2, 3, 1_000))
        return OK

    def _go_on(self, begin: bytes, piece: bytes) -> None:
        transport = self.transport
        transport.write(begin)

        def again() -> None:
            if not transport.is_closing():
                if transport.get_write_buffer_size() < BUFFER_MAX:
                    transport.write(piece)
                asyncio.get_running_loop().call_later(0.005, again)

        again()

    def _crawl(self, rest: bytes) -> None:
        if rest and not self.transport.is_closing():
            self.transport.write(rest[:1])
            asyncio.get_running_loop().call_later(SLOW_SECONDS, self._crawl, rest[1:])

    def _lie(self, fields: str, content: bytes) -> None:
        # Messages of WS-ReliableMessaging and receipts get no false receipts.
        try:
            message = read_message(header_of(fields, "Content-Type") or "", content)
        except MalformedError:
            return
        if not self._server.lies.locked():
            task = asyncio.ensure_future(self._send_lies(message))
            task.add_done_callback(lambda _: None)

    async def _send_lies(self, message: Incoming) -> None:
        async with self._server.lies:
            for owed in _lies(message, self._server.rng):
                number = self._server.rng.randrange(1, 1 << 31)
                text = envelope(
                    owed, guid=self._server_guid(), number=number, via=message.to, now=1_790_000_000
                )
                with contextlib.suppress(OSError):
                    await asyncio.get_running_loop().run_in_executor(
                        None, post, owed.to, text, RECEIPT_SECONDS
                    )

    def _server_guid(self) -> str:
        return self._server.rng.choice(
            ("5e1f0d5e-1f0d-5e1f-0d5e-1f0d5e1f0d60", "00000000-0000-0000-0000-000000000000")
        )


def _head(status: int, rng: Random) -> bytes:
    fields = b"".join(rng.sample(FIELDS, rng.randrange(4)))
    if b"Content-Length" not in fields and rng.random() < 0.9:
        fields += b"Content-Length: 0\r\n"
    return b"HTTP/1.1 %d Because\r\n" % status + fields + b"\r\n"


def _lies(message: Incoming, rng: Random) -> list[Owed]:
    """Return up to 20 false receipts for a message, or none if it requests no receipt.

    The receipts name positions that are too high, other streams, or messages that were never sent.
    """
    place = message.stream
    to = message.delivery_receipt_to or (place.receipts_to if place else None)
    if to is None:
        return []
    lies: list[Owed] = []
    for _ in range(rng.choice((1, 3, 20))):
        guid = (
            place.guid
            if place is not None and rng.random() < 0.8
            else "00000000-dead-beef-0000-000000000000"
        )
        ordinal = (place.ordinal if place is not None else 0) + rng.choice((0, 0, 0, 1, -1, 2**62))
        current = place.current if place is not None else 1
        last = max(0, current + rng.choice((0, 1, 1_000_000, -1, 2**63)))
        about = f"uuid:{message.uniquifier + rng.choice((0, 1, 10**6))}@{message.lineage}"
        decision = rng.choice((None, None, "positive", "negative"))
        lies.append(
            Owed(
                to,
                "private$/bad",
                "QM Ordering Ack",
                rng.choice(BODY_CLASSES),
                about,
                (guid, max(0, ordinal)),
                last,
                decision,
                rng.choice((None, 1_790_000_000.0)),
                honest=False,
            )
        )
    return lies


def _soap(rng: Random) -> bytes:
    version = rng.randrange(len(VERSIONS))
    given = {
        "op": rng.choice((*OPERATIONS, "CreateSequenceResponse")),
        "number": rng.choice((0, 1, 2, 2**63)),
        "version": version,
        "acks": "anonymous",
        "id": "",
        "prefixes": [rng.choice((1, 60, 124)), rng.choice((1, 500)), rng.random() < 0.3],
    }
    content = envelope_of(given, "urn:uuid:made-up", rng.randrange(9)).encode()
    if rng.random() < 0.5:
        content = _MUTATOR.mutate(content, rng)
    mime = MIME[VERSIONS[version][0]].encode()
    status = rng.choice((200, 200, 202, 500))
    return (
        b"HTTP/1.1 %d OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"
        % (status, mime, len(content))
        + content
    )
