"""SOAP over HTTP to one service: one request, its complete answer, then the next request.

All requests use one connection, which is kept alive. As in SRMP (:mod:`.connections`) only a
complete answer counts, redirects are never followed, TLS is always verified, and the URL comes from
a user of this queue manager. A service may close an idle connection just when a request is sent
over it. Then the request is sent once more over a new connection, with the same bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, cast

from srmp_spark.errors import RemoteProtocolError, SrmpSparkError
from srmp_spark.names import split_url
from srmp_spark.queue_manager.posting.address_race import connect_first
from srmp_spark.queue_manager.posting.http_answer import (
    ANSWER_BODY_MAX,
    AnswerParser,
    MalformedAnswerError,
)
from srmp_spark.queue_manager.sender.http.addresses import Addresses
from srmp_spark.queue_manager.sender.http.connections import (
    ANSWER_SECONDS,
    CONNECT_SECONDS,
    RATE_MIN,
)
from srmp_spark.queue_manager.srmp_port.replies import SERVER
from srmp_spark.queue_manager.trust.tls import ClientTls
from srmp_spark.wsrm.codec.decoder import decode
from srmp_spark.wsrm.codec.elements import Fault, SoapMessage
from srmp_spark.wsrm.codec.encoder import encode, http_fields

_NO_END = "the answer has no end"


class NoAnswerError(SrmpSparkError):
    """Raised when there is no complete answer to a request.

    ``left`` states that a part of the request may have reached the service.
    """

    def __init__(self, why: str, *, left: bool) -> None:
        super().__init__(why)
        self.left = left


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


class _BodyParser(AnswerParser):
    """Keeps the body of an answer, up to slightly more than ANSWER_BODY_MAX bytes."""

    body = b""

    def on_body(self, data: bytes) -> None:
        """Append a piece of the body, unless the body exceeds its limit already."""
        if len(self.body) <= ANSWER_BODY_MAX:
            self.body += data


class _Exchange(asyncio.Protocol):
    """One HTTP connection to a service, which carries one request at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.answer: asyncio.Future[tuple[int, str, bytes]] | None = None
        self.answers = 0
        self.has_heard = False
        """Whether a byte of the awaited answer was received."""
        self._parser = _BodyParser(self._complete)

    @property
    def is_usable(self) -> bool:
        """Return whether a request may be written."""
        return self.transport is not None and not self.transport.is_closing()

    @property
    def was_silent(self) -> bool:
        """Return whether the service closed a used connection without a byte of the answer."""
        return self.answers > 0 and not self.has_heard and not self.is_usable

    async def ask(self, request: bytes) -> tuple[int, str, bytes]:
        """Send a request and return its answer: status, reason and body.

        Raises :class:`NoAnswerError` if the connection ends, if the answer is malformed or too
        long, or if it takes longer than ANSWER_SECONDS plus the time for the request at RATE_MIN.
        """
        assert self.transport is not None
        if not self.is_usable:
            # A service may send bytes, or disconnect, before it is asked.
            raise NoAnswerError("the connection ended before the request", left=False)
        self.answer, self.has_heard = asyncio.get_running_loop().create_future(), False
        self.transport.write(request)
        seconds = ANSWER_SECONDS + len(request) / RATE_MIN
        try:
            return await asyncio.wait_for(self.answer, seconds)
        except asyncio.TimeoutError:
            raise NoAnswerError(f"no answer in {seconds:.0f} s", left=True) from None

    def close(self) -> None:
        """Close the connection at once."""
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self.answer is None or self.answer.done():
            # The service sends bytes without a request.
            self.close()
            return
        self.has_heard = True
        try:
            self._parser.feed(data)
        except MalformedAnswerError as error:
            self._failed(str(error))
            return
        if self._parser.is_too_long:
            self._failed(_NO_END)

    def eof_received(self) -> bool:
        if self._parser.ends_with_connection:
            # A body without a length ends with the connection.
            self._complete()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._failed(f"the connection ended before the answer{f': {exc}' if exc else ''}")

    def _complete(self) -> None:
        if self.answer is None or self.answer.done():
            return
        if len(self._parser.body) > ANSWER_BODY_MAX:
            self._failed(_NO_END)
            return
        if not self._parser.keeps_alive:
            self.close()
        body, self._parser.body = self._parser.body, b""
        answer = self._parser.take()
        self.answers += 1
        self.answer.set_result((answer.status, answer.reason, body))

    def _failed(self, why: str) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(NoAnswerError(why, left=True))
        self.close()


class SoapConnection:
    """Posts messages to one service over one connection at a time, opened when needed."""

    def __init__(
        self, url: str, addresses: Addresses, tls: ClientTls, endpoint_of: Callable[[str], str]
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
        self._exchange: _Exchange | None = None

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
        if exchange is not None and exchange.is_usable:
            try:
                return SoapAnswer(*await exchange.ask(request), twice=False)
            except NoAnswerError as error:
                if not exchange.was_silent:
                    raise NoAnswerError(f"{self._host}:{self._port}: {error}", left=True) from None
            return SoapAnswer(*await self._ask_anew(request, left=True), twice=True)
        return SoapAnswer(*await self._ask_anew(request, left=False), twice=False)

    async def _ask_anew(self, request: bytes, *, left: bool) -> tuple[int, str, bytes]:
        self.close()
        try:
            self._exchange = await asyncio.wait_for(self._connected(), CONNECT_SECONDS)
        except asyncio.TimeoutError:
            raise NoAnswerError(
                f"{self._host}:{self._port}: no connection within {CONNECT_SECONDS:g} s", left=left
            ) from None
        except OSError as error:
            raise NoAnswerError(f"{self._host}:{self._port}: {error}", left=left) from None
        try:
            return await self._exchange.ask(request)
        except NoAnswerError as error:
            self.close()
            raise NoAnswerError(
                f"{self._host}:{self._port}: {error}", left=left or error.left
            ) from None

    async def _connected(self) -> _Exchange:
        addresses = await self._addresses.of(self._host, self._port)
        if not addresses:
            raise OSError(
                f"{self._host} has no address here: DNS, or a line in /etc/hosts, must name it"
            )
        address, exchange = await connect_first(
            addresses, self._connect, _Exchange.close, self._addresses.overlap
        )
        self._addresses.prefer(self._host, address)
        return exchange

    async def _connect(self, address: str) -> _Exchange:
        context = self._tls.context() if self._tls is not None else None
        _, exchange = await asyncio.get_running_loop().create_connection(
            partial(_Exchange),
            address,
            self._port,
            ssl=context,
            server_hostname=self._host if context else None,
        )
        return exchange

    def close(self) -> None:
        """Close the connection at once; the next request connects again."""
        if self._exchange is not None:
            self._exchange.close()
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
            if isinstance(message.content, Fault):
                fault = message.content
                problem = (
                    f"{answer.status} {fault.subcode.rpartition('}')[2]} {fault.reason}".strip()[
                        :300
                    ]
                )
    return message, problem
