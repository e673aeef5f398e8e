"""One HTTP connection to a peer: requests and their answers, in the same order.

All POSTs use it: messages (:mod:`.sender.http.connections`), messages of reliable sessions
(:mod:`.soap_connection`), and receipts (:mod:`.http_client`). Each user decides when to connect,
what to write, and what the end of a connection means.

Only a complete answer counts. :mod:`.http_answer` reads answers. An answer without an end counts as
none, and ends the connection. The owner of an :class:`Exchange`
is called back, because a task for each message would cost more than all other work for the message.
An :class:`AwaitedExchange` is for users who await each answer.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import ssl
import struct
import termios
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar, cast

from srmp_spark.errors import SrmpSparkError
from srmp_spark.queue_manager.posting.address_race import Overlap, connect_first
from srmp_spark.queue_manager.posting.http_answer import (
    AnswerParser,
    MalformedAnswerError,
    PeerAnswer,
)

CONNECT_SECONDS = 10.0
"""Longest time to connect, for all addresses of a host and with TLS, in seconds.

The time is less than the shortest resend interval. After it the attempt counts as failed, for
example if an address drops packets.
"""
ANSWER_SECONDS = 30.0
"""Longest time to wait for an answer, in seconds.

The receiver may have to sync a busy disk. After this time the connection is closed, and the request
counts as failed. Each user says from when the time counts, and adds time for long requests.
"""
RATE_MIN = 32 * 1_024
"""Least rate of a request and its answer, in bytes per second.

A peer that is slower for longer than ANSWER_SECONDS counts as not answering. So a large message on
a slow network gets its time, even if buffers hide its progress. A peer that accepts one byte now
and then gets no more time than that.
"""
_UNASKED = "the peer speaks unasked"
_NO_END = "the answer has no end"

R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)


class Owner(Protocol[R_contra]):
    """Receives the events of an exchange, with the requests as it gave them to the exchange.

    Each method is called from the loop, never before :meth:`Exchange.post` has returned.
    """

    def answered(self, request: R_contra, answer: PeerAnswer, /) -> None:
        """Handle the complete ``answer`` to the oldest request."""

    def on_connection_lost(
        self, unanswered: Sequence[R_contra], why: str, /, *, silent: bool
    ) -> None:
        """Handle the end of the connection, which is reported once.

        ``unanswered`` are the requests without an answer, and ``why`` is the reason.
        ``silent`` states that the peer closed a used connection without a byte of an answer to the
        requests in flight. The peer may not even have read these requests.
        """


class Exchange(asyncio.Protocol, Generic[R]):
    """One connection to a peer, with the requests that wait for answers.

    ``R`` is what the owner calls a request, for example the message in it.
    """

    parser_class = AnswerParser

    def __init__(self, owner: Owner[R]) -> None:
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self.unanswered: deque[R] = deque()
        self.answers = 0
        """Number of complete answers so far."""
        self.request_bytes = 0
        """Size of the request that was posted last, in bytes."""
        self.read_bytes = 0
        """Size of all answers so far, in bytes."""
        self._over = False
        self._asked = 0
        """Number of unanswered requests that were posted before the present read.

        Only these requests can be answered by the bytes of this read.
        """
        self._parser = self.parser_class(self._complete)

    @property
    def usable(self) -> bool:
        """Return whether a request may be posted: the connection is open and not being closed."""
        return not self._over and self._transport is not None and not self._transport.is_closing()

    def post(self, request: R, octets: bytes) -> None:
        """Write the ``octets`` of a request after those that wait for their answers."""
        assert self._transport is not None
        self.unanswered.append(request)
        self.request_bytes = len(octets)
        self._transport.write(octets)

    @property
    def unsent_bytes(self) -> int:
        """Return how many posted bytes the peer's kernel has not acknowledged; 0 if it is closed.

        These bytes wait in this process, in this machine's kernel, or on the network.
        """
        if self._transport is None or self._transport.is_closing():
            return 0
        queued = bytearray(4)
        fcntl.ioctl(self._transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, queued)
        return self._transport.get_write_buffer_size() + int(struct.unpack("i", queued)[0])

    def end(self, why: str) -> None:
        """Close the connection, and report the requests in flight as lost, with the reason ``why``.

        Nothing is reported if the connection has ended before.
        """
        self._end(why, silent=False)

    def leave(self) -> None:
        """Close the connection at once, and report nothing to the owner."""
        self._close()

    # --- asyncio ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # noqa: D102  # called by asyncio
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: D102  # called by asyncio
        reset = exc is None or isinstance(exc, ConnectionError)
        silent = reset and self.answers > 0 and self._parser.got == 0
        self._end(
            f"the connection ended before the answer{f': {exc}' if exc else ''}", silent=silent
        )

    def eof_received(self) -> bool:  # noqa: D102  # called by asyncio
        if self._parser.ends_with_connection and self.unanswered:
            # A body without a length ends with the connection.
            self._answer()
        return False

    def data_received(self, data: bytes) -> None:  # noqa: D102  # called by asyncio
        if self._over:
            return
        self.read_bytes += len(data)
        self._asked = len(self.unanswered)
        if not self._asked:
            self.end(_UNASKED)
            return
        try:
            self._parser.feed(data)
        except MalformedAnswerError as error:
            self.end(str(error))
            return
        if not self._asked and self._parser.has_begun:
            self.end(_UNASKED)
        elif self._parser.is_too_long:
            self.passed_a_limit()

    # --- answers ----------------------------------------------------------------------------------

    def passed_a_limit(self) -> None:
        """Handle an answer that is longer than a limit of its parser: it counts as none."""
        self.end(_NO_END)

    def _complete(self) -> None:
        if self._over:
            return
        if self._asked:
            self._answer(keep=self._parser.keeps_alive)
        else:
            # This answer follows another one in the same read, before the next request reached the
            # peer. The answer would finish a message that the peer does not have.
            self.end(_UNASKED)

    def _answer(self, *, keep: bool = False) -> None:
        self._asked -= 1
        answer = self._parser.take()
        request = self.unanswered.popleft()
        self.answers += 1
        if keep:
            self._owner.answered(request, answer)
            return
        # Close first: the next request of the owner must not use this connection.
        rest = self._close()
        self._owner.answered(request, answer)
        self._owner.on_connection_lost(rest, "the peer closes after this answer", silent=True)

    def _close(self) -> list[R]:
        self._over = True
        unanswered = list(self.unanswered)
        self.unanswered.clear()
        if self._transport is not None:
            self._transport.abort()
        return unanswered

    def _end(self, why: str, *, silent: bool) -> None:
        if not self._over:
            self._owner.on_connection_lost(self._close(), why, silent=silent)


class LostError(SrmpSparkError):
    """Raised when a connection ends without an answer.

    ``left`` states that a part of the request may have reached the peer, and ``silent`` is that of
    :meth:`Owner.on_connection_lost`.
    """

    def __init__(self, why: str, *, left: bool, silent: bool = False) -> None:
        super().__init__(why)
        self.left, self.silent = left, silent


class AwaitedExchange(Exchange[None]):
    """A connection whose user awaits each answer before the next request."""

    def __init__(self) -> None:
        super().__init__(self)
        self._awaited: asyncio.Future[PeerAnswer] | None = None

    async def ask(self, request: bytes, seconds: float) -> PeerAnswer:
        """Write a request, and return its complete answer.

        Raises :class:`LostError` if the connection ends or the answer is none, and
        :class:`asyncio.TimeoutError` after ``seconds``. After an error, and if the call is
        cancelled, the connection is closed, so a late answer is not taken for the next one.
        """
        if not self.usable:
            # A peer may send bytes, or disconnect, before it is asked.
            raise LostError("the connection ended before the request", left=False)
        self._awaited = asyncio.get_running_loop().create_future()
        self.post(None, request)
        try:
            return await asyncio.wait_for(self._awaited, seconds)
        except BaseException:
            self.leave()
            raise

    def answered(self, _request: None, answer: PeerAnswer, /) -> None:
        """Give the answer to the caller of :meth:`ask`."""
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_result(answer)

    def on_connection_lost(self, unanswered: Sequence[None], why: str, /, *, silent: bool) -> None:
        """Tell the caller of :meth:`ask` that there is no answer."""
        if unanswered and self._awaited is not None and not self._awaited.done():
            self._awaited.set_exception(LostError(why, left=True, silent=silent))


E = TypeVar("E", bound=Exchange[Any])


async def connect(
    addresses: Sequence[str],
    port: int,
    make: Callable[[], E],
    *,
    tls: ssl.SSLContext | None,
    host: str | None,
    overlap: Overlap,
) -> tuple[str, E]:
    """Connect to the first of ``addresses`` that answers; return the address and the exchange.

    ``addresses`` are IP addresses and never names, because a second look-up could find another
    address than those that were judged. ``make`` builds the exchange of each attempt. With ``tls``
    the certificate must be for ``host``. There is no time-out: cancel the call to end it. Raises as
    :func:`.connect_first`.
    """
    loop = asyncio.get_running_loop()

    async def attempt(address: str) -> E:
        _, exchange = await loop.create_connection(
            make,
            address,
            port,
            ssl=tls,
            server_hostname=host if tls else None,
            flags=socket.AI_NUMERICHOST,
        )
        return exchange

    return await connect_first(addresses, attempt, Exchange.leave, overlap)
