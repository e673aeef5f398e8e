"""SOAP over HTTP to one service: one request, its complete answer, then the next request.

All requests use one connection, which is kept alive. As in SRMP (:mod:`.connections`) only a
complete answer counts, redirects are never followed, TLS is always verified, and the URL comes from
a user of this queue manager. A service may close an idle connection just when a request is sent
over it. Then the request is sent once more over a new connection, with the same bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from srmp_spark.errors import RemoteProtocolError, SrmpSparkError
from srmp_spark.names import split_url
from srmp_spark.queue_manager.posting.http_answer import BodyParser
from srmp_spark.queue_manager.posting.http_exchange import (
    ANSWER_SECONDS,
    CONNECT_SECONDS,
    RATE_MIN,
    AwaitedExchange,
    LostError,
    connect,
)
from srmp_spark.queue_manager.sender.http.addresses import HostAddresses
from srmp_spark.queue_manager.srmp_port.replies import SERVER
from srmp_spark.queue_manager.trust.tls import ClientTls
from srmp_spark.wsrm.codec.decoder import decode
from srmp_spark.wsrm.codec.elements import SoapFault, SoapMessage
from srmp_spark.wsrm.codec.encoder import encode, http_fields


class NoAnswerError(SrmpSparkError):
    """Raised when there is no complete answer to a request.

    ``left`` states that a part of the request may have reached the service.
    """

    def __init__(self, why: str, *, left: bool) -> None:
        super().__init__(why)
        self.left = left


class _SilentError(NoAnswerError):
    """Raised when the service closed a used connection without a byte of an answer."""


class SoapAnswer(NamedTuple):
    """A complete answer of a service."""

    status: int
    reason: str
    """The reason phrase of the status line; empty for 200."""
    body: bytes
    twice: bool
    """Whether the service may have received the request twice.

    Then the request was sent before over a connection that the service closed.
    """


class _SoapExchange(AwaitedExchange):
    """One HTTP connection to a service, which keeps the body of each answer."""

    parser_class = BodyParser


class SoapClientConnection:
    """Posts messages to one service over one connection at a time, opened when needed."""

    def __init__(
        self, url: str, addresses: HostAddresses, tls: ClientTls, endpoint_of: Callable[[str], str]
    ) -> None:
        """Prepare to post to ``url``, without connecting.

        ``endpoint_of`` returns the URL to connect to instead of another one. [MC-MQSRM] 3.1.7.9
        defines this for queues.
        """
        endpoint = split_url(endpoint_of(url))
        self._host, self._port, self._authority = endpoint.host, endpoint.port, endpoint.authority
        self._tls = tls if endpoint.scheme == "https" else None
        self._target = split_url(url).request_target
        self._addresses = addresses
        self._exchange: _SoapExchange | None = None

    async def post(self, message: SoapMessage) -> SoapAnswer:
        """Send a message and return its answer, over the open connection or a new one.

        The message is sent a second time only if the service closed an idle connection. Raises
        :class:`NoAnswerError` if there is no connection or no complete answer.
        """
        content = encode(message)
        fields = "".join(f"{name}: {value}\r\n" for name, value in http_fields(message).items())
        head = (
            f"POST {self._target} HTTP/1.1\r\nHost: {self._authority}\r\n{fields}User-Agen"
            f"t: {SERVER}\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        )
        request = head.encode() + content
        exchange = self._exchange
        if exchange is None or not exchange.usable:
            return await self._ask(await self._opened(left=False), request, left=False)
        try:
            return await self._ask(exchange, request, left=False)
        except _SilentError:
            exchange = await self._opened(left=True)
        return await self._ask(exchange, request, left=True)

    async def _ask(self, exchange: _SoapExchange, request: bytes, *, left: bool) -> SoapAnswer:
        """Return the answer to a request, which was sent before if ``left``.

        Raises :class:`_SilentError` if the service closed the idle connection, so that the request
        may be sent once more, and else :class:`NoAnswerError`.
        """
        seconds = ANSWER_SECONDS + len(request) / RATE_MIN
        where = f"{self._host}:{self._port}"
        try:
            answer = await exchange.ask(request, seconds)
        except asyncio.TimeoutError:
            raise NoAnswerError(f"{where}: no answer in {seconds:.0f} s", left=True) from None
        except LostError as error:
            kind = _SilentError if error.silent else NoAnswerError
            raise kind(f"{where}: {error}", left=left or error.left) from None
        return SoapAnswer(answer.status, answer.reason, answer.body, twice=left)

    async def _opened(self, *, left: bool) -> _SoapExchange:
        self.close()
        where = f"{self._host}:{self._port}"
        try:
            self._exchange = await asyncio.wait_for(self._connected(), CONNECT_SECONDS)
        except asyncio.TimeoutError:
            why = f"{where}: no connection within {CONNECT_SECONDS:g} s"
            raise NoAnswerError(why, left=left) from None
        except OSError as error:
            raise NoAnswerError(f"{where}: {error}", left=left) from None
        return self._exchange

    async def _connected(self) -> _SoapExchange:
        addresses = await self._addresses.of(self._host, self._port)
        if not addresses:
            raise OSError(
                f"{self._host} has no address here: DNS, or a line in /etc/hosts, must name it"
            )
        address, exchange = await connect(
            addresses,
            self._port,
            _SoapExchange,
            tls=self._tls.context() if self._tls is not None else None,
            host=self._host,
            overlap=self._addresses.overlap,
        )
        self._addresses.prefer(self._host, address)
        return exchange

    def close(self) -> None:
        """Close the connection at once; the next request connects again."""
        if self._exchange is not None:
            self._exchange.leave()
            self._exchange = None

    def __repr__(self) -> str:
        return f"<SoapConnection {self._authority} open={self._exchange is not None}>"


def read_answer(answer: SoapAnswer) -> tuple[SoapMessage | None, str | None]:
    """Return the SOAP message in an answer, and a sentence about what is wrong with the answer.

    The message is ``None`` if the body is empty or no SOAP message. The sentence is ``None`` if the
    status is 200 or 202 and the body is no fault and can be read.
    """
    message: SoapMessage | None = None
    problem = None if answer.status in (200, 202) else f"{answer.status} {answer.reason}".strip()
    if answer.body.strip():
        try:
            message = decode(answer.body)
        except RemoteProtocolError as error:
            problem = f"{problem}: " if problem else "an answer that is no SOAP message: "
            problem += str(error)[:200]
        else:
            if isinstance(message.content, SoapFault):
                fault = message.content
                problem = (
                    f"{answer.status} {fault.subcode.rpartition('}')[2]} {fault.reason}".strip()[
                        :300
                    ]
                )
    return message, problem
