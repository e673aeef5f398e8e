"""Send one POST to one host, and read its answer ([MC-MQSRM] 3.1.7.2.5).

:mod:`.http_answer` parses the answer. Only a complete answer counts. The caller has judged the URL
and chosen the addresses (:mod:`.url_policy`): this module looks no name up, and redirects are never
followed. A long body is dropped at the limit, and the status is valid nevertheless (bad input 33 of
the attack list).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import cast

from srmp_spark.errors import SrmpSparkError
from srmp_spark.queue_manager.posting.address_race import Overlap, connect_first
from srmp_spark.queue_manager.posting.http_answer import (
    AnswerParser,
    MalformedAnswerError,
    PeerAnswer,
)

CONNECT_SECONDS = 10.0
"""Longest wait for a connection, in seconds.

After that the post fails, for example if an address drops packets. It is shorter than the shortest
resend interval.
"""
ANSWER_SECONDS = 30.0
"""Longest time from the last byte of the request to the end of the answer, in seconds.

After that the post fails.
"""


class PostFailedError(SrmpSparkError):
    """Raised when there is no complete answer: not connected, cut off, malformed, or too slow.

    The peer may or may not have the message.
    """


class _Exchange(asyncio.Protocol):
    def __init__(self, request: bytes) -> None:
        self.answer: asyncio.Future[PeerAnswer] = asyncio.get_running_loop().create_future()
        self._request = request
        self._parser = AnswerParser(self._done)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def ask(self) -> None:
        """Write the request into the connection.

        Call this for the connection that won, not for each that is tried.
        """
        assert self._transport is not None, "it is connected"
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self.answer.done():
            return
        try:
            self._parser.feed(data)
        except MalformedAnswerError as error:
            self._fail(str(error))
            return
        if self._parser.head_has_no_end:
            self._fail("the head of the answer has no end")
        elif self._parser.is_too_long:
            self._done()

    def eof_received(self) -> bool:
        if self._parser.ends_with_connection:
            self._done()  # A body without a length ends with the connection.
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"the connection ended before the answer{f': {exc}' if exc else ''}")

    def abandon(self) -> None:
        """Cancel the wait for the answer, if it did not arrive, and close the connection."""
        self.answer.cancel()
        if self._transport is not None:
            self._transport.abort()

    def _done(self) -> None:
        if not self.answer.done():
            self.answer.set_result(self._parser.take())
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, why: str) -> None:
        if not self.answer.done():
            self.answer.set_exception(PostFailedError(why))
        if self._transport is not None:
            self._transport.abort()


OVERLAP_MAX = 32
"""Most connection attempts at once beyond the first one of each host.

Their descriptors belong to the reserve of this process. At the limit the next attempt ends the one
before it.
"""
_overlap = Overlap(OVERLAP_MAX)


async def post(
    addresses: tuple[str, ...],
    port: int,
    head: bytes,
    content: bytes,
    *,
    tls: ssl.SSLContext | None = None,
    server_hostname: str | None = None,
) -> PeerAnswer:
    """Send one request to the first of ``addresses`` that connects, and return its answer.

    ``addresses`` are IP addresses and never names, because a second look-up could find another
    address than those that were judged. ``head`` is the whole HTTP head with its blank line
    (:func:`srmp_spark.srmp.codec.encoder.http_head`). With ``tls`` the certificate must be for
    ``server_hostname``. Raises :class:`PostFailedError` if there is no connection after
    CONNECT_SECONDS, or no complete answer ANSWER_SECONDS later.
    """
    loop = asyncio.get_running_loop()
    exchange: _Exchange | None = None

    async def connect(address: str) -> _Exchange:
        _, connected = await loop.create_connection(
            lambda: _Exchange(head + content),
            address,
            port,
            ssl=tls,
            server_hostname=server_hostname if tls else None,
            flags=socket.AI_NUMERICHOST,
        )
        return connected

    where = f"{' or '.join(addresses)}:{port}"
    try:
        race = connect_first(addresses, connect, _Exchange.abandon, _overlap)
        _, connected = await asyncio.wait_for(race, CONNECT_SECONDS)
        exchange = connected
        connected.ask()
        return await asyncio.wait_for(connected.answer, ANSWER_SECONDS)
    except asyncio.TimeoutError:
        raise PostFailedError(f"no answer from {where} in time") from None
    except (OSError, ValueError) as error:  # ValueError means that it is no address.
        raise PostFailedError(f"{where}: {error}") from None
    finally:
        if exchange is not None:
            exchange.abandon()
