"""One POST to one address, and only a complete answer counts ([MC-MQSRM] 3.1.7.2.5).

The caller has judged the URL and chosen the address (:mod:`.url_policy`): nothing is resolved here, redirects are never
followed, and a body we did not ask for is dropped after 64 KB (bad input 33 of the attack list).
"""

from __future__ import annotations

import asyncio
import ssl
from typing import NamedTuple, cast

import httptools

from srmp_spark.errors import SrmpSparkError

CONNECT_SECONDS = 10.0
"""To an address that drops packets: less than the shortest resend interval."""
ANSWER_SECONDS = 30.0
"""From the request's last byte to the answer's end."""
ANSWER_BODY_MAX = 65_536
"""Bytes of an answer's body that are read; more ends the connection, the status stands."""
ANSWER_HEAD_MAX = 65_536
"""Bytes until the head of the answer is complete, interim answers included."""
INTERIM_ANSWERS_MAX = 8
"""100 Continue and its kin before the answer; a peer that floods them is cut off."""


class PostFailedError(SrmpSparkError):
    """No complete answer: not connected, cut off, malformed, or too slow. The peer may or may not have the message."""


class Answer(NamedTuple):
    """The peer's answer."""

    status: int
    reason: str
    """What it says in ``Srmp-Reason`` or in the status line, for logs."""


class _Exchange(asyncio.Protocol):
    def __init__(self, request: bytes) -> None:
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._request = request
        self._parser = httptools.HttpResponseParser(self)
        self._status_text = b""
        self._srmp_reason: bytes | None = None
        self._framed = False
        self._in_body = False
        self._interim = 0
        self._got = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self.answer.done():
            return
        self._got += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(f"a malformed answer: {error}")
            return
        if self._in_body:
            if self._got > ANSWER_BODY_MAX:
                self._done()
        elif self._got > ANSWER_HEAD_MAX or self._interim > INTERIM_ANSWERS_MAX:
            self._fail("the head of the answer has no end")

    def on_status(self, status: bytes) -> None:
        self._status_text += status

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"srmp-reason":
            self._srmp_reason = value
        elif name in (b"content-length", b"transfer-encoding"):
            self._framed = True

    def on_headers_complete(self) -> None:
        if self._parser.get_status_code() >= 200:
            self._in_body = True
            self._got = 0

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() >= 200:
            self._done()
        else:
            self._interim += 1
            self._status_text, self._srmp_reason, self._framed = b"", None, False

    def eof_received(self) -> bool:
        if self._in_body and not self._framed:
            self._done()  # a body without a length ends with the connection
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"the connection ended before the answer{f': {exc}' if exc else ''}")

    def abandon(self) -> None:
        """Nobody waits any more: nothing may be left open, whatever the reason."""
        self.answer.cancel()
        if self._transport is not None:
            self._transport.abort()

    def _done(self) -> None:
        if not self.answer.done():
            text = self._srmp_reason if self._srmp_reason is not None else self._status_text
            printable = "".join(c if c.isprintable() else "?" for c in text[:200].decode("latin-1"))
            self.answer.set_result(Answer(self._parser.get_status_code(), printable))
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, why: str) -> None:
        if not self.answer.done():
            self.answer.set_exception(PostFailedError(why))
        if self._transport is not None:
            self._transport.abort()


async def post(
    address: str,
    port: int,
    head: bytes,
    content: bytes,
    *,
    tls: ssl.SSLContext | None = None,
    server_hostname: str | None = None,
) -> Answer:
    """Send one request to one address and wait for its answer.

    ``head`` is the whole HTTP head with its blank line (:func:`srmp_spark.srmp.encoder.http_head`). Raises
    :class:`PostFailedError`.
    """
    loop = asyncio.get_running_loop()
    exchange = _Exchange(head + content)
    try:
        await asyncio.wait_for(
            loop.create_connection(lambda: exchange, address, port, ssl=tls, server_hostname=server_hostname if tls else None),
            CONNECT_SECONDS,
        )
        return await asyncio.wait_for(exchange.answer, ANSWER_SECONDS)
    except asyncio.TimeoutError:
        raise PostFailedError(f"no answer from {address}:{port} in time") from None
    except OSError as error:  # refused, unreachable, a bad certificate
        raise PostFailedError(f"{address}:{port}: {error}") from None
    finally:
        exchange.abandon()
