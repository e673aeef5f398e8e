"""A simple HTTP client that can lose its answers, and a server for the sender's receipts.

Client and server use asyncio streams and no HTTP library, because a library would hide faults on
the wire.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType

from srmp_spark.testing.foreign.messages import ForeignReceipt, read_receipt

REPLY_TIMEOUT = 20.0
"""Longest time for one request and its answer, in seconds.

The value is the default RoundTripDelay on a local network ([MC-MQSRM] appendix A <25>).
"""
HEAD_MAX = 65_536
"""Most bytes of the head of an answer or a receipt. A longer head counts as a peer's fault."""
CONTENT_MAX = 1_048_576
"""Most bytes of a receipt. More counts as a fault of the peer.

A receipt has about 1 KB, so a thousand times as much is a fault.
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer: its status, its header fields by lower-case name, and its content."""

    status: int
    headers: dict[str, str]
    body: bytes


class NoAnswerError(Exception):
    """Raised when no complete answer was received, so the fate of the request is unknown.

    The peer could not be reached, closed the connection, or did not answer in time.
    """


async def _read_head(reader: asyncio.StreamReader) -> tuple[str, dict[str, str]]:
    """Read a head and return its start line and its header fields, names in lower case.

    Raises :class:`NoAnswerError` for a line that is no header field, and :class:`EOFError` if the
    connection ends.
    """
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    start, *lines = head[:-4].split("\r\n")
    headers: dict[str, str] = {}
    for line in lines:
        name, separator, value = line.partition(":")
        if not separator:
            raise NoAnswerError(f"not a header field: {line[:100]!r}")
        headers[name.strip().lower()] = value.strip()
    return start, headers


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    """Read one HTTP/1.1 answer with its content, whose length is the Content-Length.

    Raises :class:`NoAnswerError` if the connection ends before the answer does, or if the answer is
    malformed.
    """
    try:
        start, headers = await _read_head(reader)
        version, _, rest = start.partition(" ")
        if not version.startswith("HTTP/1.1"):
            raise NoAnswerError(f"not HTTP/1.1: {start[:100]!r}")
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        return Answer(int(rest[:3]), headers, body)
    except (OSError, EOFError, asyncio.LimitOverrunError, ValueError) as error:
        raise NoAnswerError(f"{type(error).__name__}: {error}") from error


class Wire:
    """One keep-alive connection to the receiver.

    The connection is opened when a request needs it. After any failure the next request opens a new
    one.
    """

    def __init__(
        self,
        endpoint: Callable[[], tuple[str, int]],
        *,
        reply_timeout: float = REPLY_TIMEOUT,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._tls = tls
        self._reply_timeout = reply_timeout
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.dials = 0
        """Number of times that this object has connected."""

    async def exchange(self, raw: bytes, *, lose_reply: bool = False) -> Answer:
        """Send a request and return its answer.

        With ``lose_reply`` the connection is closed after the request, and the call always raises.
        Raises :class:`NoAnswerError` whenever no whole answer arrives within the time-out.
        """
        try:
            return await asyncio.wait_for(
                self._exchange(raw, lose_reply=lose_reply), self._reply_timeout
            )
        except (OSError, asyncio.TimeoutError) as error:
            raise NoAnswerError(f"{type(error).__name__}: {error}") from error

    async def _exchange(self, raw: bytes, *, lose_reply: bool) -> Answer:
        done = False
        try:
            if self._streams is None:
                host, port = self._endpoint()
                self._streams = await asyncio.open_connection(
                    host, port, limit=HEAD_MAX, ssl=self._tls
                )
                self.dials += 1
            reader, writer = self._streams
            writer.write(raw)
            await writer.drain()
            if lose_reply:
                raise NoAnswerError("the reply is lost on purpose")
            answer = await read_answer(reader)
            done = answer.headers.get("connection", "").lower() != "close"
            return answer
        finally:
            if not done:
                await self.close()

    async def close(self) -> None:
        """Close the connection if there is one."""
        if self._streams is not None:
            writer, self._streams = self._streams[1], None
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


@dataclass(slots=True)
class ReceiptsServer:
    """The order queue and the administration queue of the sender, as an HTTP server.

    The server keeps every receipt it accepts, and calls ``on_receipt`` with each one before it
    answers 200. Three numbers inject faults; each counts down to 0. ``refuse_next`` receipts are
    answered with ``refuse_status``. ``drop_next`` receipts are read and not kept: the connection is
    closed without an answer. ``lose_next`` receipts are kept before the connection is closed
    without an answer: they arrived, but the peer is not notified.
    """

    on_receipt: Callable[[ForeignReceipt], None] | None = None
    receipts: list[ForeignReceipt] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """Descriptions of requests that were no valid receipt."""
    refuse_next: int = 0
    refuse_status: int = 503
    drop_next: int = 0
    lose_next: int = 0
    port: int = 0
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def start(self) -> None:
        """Listen on a port of the loopback address: a free port at first, later the same one."""
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, limit=HEAD_MAX
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._server is not None:
            self._server.close()
            for writer in list(self._writers):
                writer.close()
            await self._server.wait_closed()
            self._server = None

    async def __aenter__(self) -> ReceiptsServer:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def url(self, queue: str = "private$/order_queue$", query: str = "") -> str:
        """Return the URL of one of the sender's own queues. ``query`` is appended as it is."""
        return f"http://127.0.0.1:{self.port}/msmq/{queue}{query}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while await self._one(reader, writer):
                pass
        except (OSError, EOFError):
            # The peer closed the connection between two receipts.
            pass
        except (NoAnswerError, ValueError, asyncio.LimitOverrunError) as error:
            self.faults.append(f"{type(error).__name__}: {error}")
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Read one request and answer it; return ``False`` if the connection must be closed.

        Raises :class:`ValueError` if the request is no receipt, and :class:`EOFError` if the
        connection ends.
        """
        start, headers = await _read_head(reader)
        length = int(headers["content-length"]) if "content-length" in headers else -1
        if not 0 <= length <= CONTENT_MAX:
            raise ValueError(f"Content-Length of a receipt: {headers.get('content-length')!r}")
        content = await reader.readexactly(length)
        method, target, _ = start.split(" ", 2)
        if method != "POST":
            raise ValueError(f"a receipt is a POST: {start!r}")
        if self.drop_next:
            self.drop_next -= 1
            return False
        if self.refuse_next:
            self.refuse_next -= 1
            writer.write(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % self.refuse_status)
            await writer.drain()
            return True
        receipt = read_receipt(
            content.decode("utf-8"), at=time.monotonic(), target=target, headers=headers
        )
        self.receipts.append(receipt)
        if self.on_receipt is not None:
            self.on_receipt(receipt)
        if self.lose_next:
            self.lose_next -= 1
            return False
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        return True
