"""One keep-alive connection to a peer: requests and their answers, in the same order.

Only a complete answer counts. :mod:`srmp_spark.queue_manager.posting.http_answer` reads answers. An
answer without an end counts as none, and ends the connection (bad input 33 of the attack list). The
owner is called back and this module awaits nothing, because a task per message would cost more than
all other work for the message.
"""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from collections import deque
from typing import Protocol, cast

from srmp_spark.queue_manager.posting.http_answer import (
    AnswerParser,
    MalformedAnswerError,
    PeerAnswer,
)
from srmp_spark.srmp.sending.outgoing_effects import Send

_UNASKED = "the peer speaks unasked"


class Owner(Protocol):
    """Receives the events of an exchange. :class:`.connections.Wire` implements it.

    Each method is called from the loop, never before :meth:`Exchange.post` has returned.
    """

    def answered(self, send: Send, answer: PeerAnswer) -> None:
        """Handle the complete ``answer`` to ``send``, the message of the oldest request."""

    def lost(self, unanswered: list[Send], why: str, *, silent: bool) -> None:
        """Handle the end of the connection, which is reported once.

        ``unanswered`` are the messages whose requests have no answer, and ``why`` is the reason.
        ``silent`` states that the peer closed a used connection without a byte of an answer to the
        requests in flight. The peer may not even have read these requests.
        """


class Exchange(asyncio.Protocol):
    """One connection to a peer, with the requests that wait for answers."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self.unanswered: deque[Send] = deque()
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
        self._parser = AnswerParser(self._complete)

    @property
    def usable(self) -> bool:
        """Return whether a request may be posted: the connection is open and not being closed."""
        return not self._over and self._transport is not None and not self._transport.is_closing()

    def post(self, send: Send, request: bytes) -> None:
        """Write a request after those that wait for their answers; ``send`` is its message."""
        assert self._transport is not None
        self.unanswered.append(send)
        self.request_bytes = len(request)
        self._transport.write(request)

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
            self.end("the answer has no end")

    # --- answers ----------------------------------------------------------------------------------

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
        send = self.unanswered.popleft()
        self.answers += 1
        if keep:
            self._owner.answered(send, answer)
            return
        # Close first: the next message that the owner posts must not use this connection.
        rest = self._close()
        self._owner.answered(send, answer)
        self._owner.lost(rest, "the peer closes after this answer", silent=True)

    def _close(self) -> list[Send]:
        self._over = True
        unanswered = list(self.unanswered)
        self.unanswered.clear()
        if self._transport is not None:
            self._transport.abort()
        return unanswered

    def _end(self, why: str, *, silent: bool) -> None:
        if not self._over:
            self._owner.lost(self._close(), why, silent=silent)
