"""One keep-alive connection to a peer: requests out, answers in, in the same order. Only a complete answer counts.

Redirects are never followed. A body is dropped, and one above 64 KB is no answer to a message: the connection ends (bad input
33 of the attack list). The owner is called back; nothing is awaited here, because a task per message would cost more than
everything else that is done for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import NamedTuple, Protocol, cast

import httptools

from srmp_spark.srmp.outgoing_effects import Send

ANSWER_BODY_MAX = 65_536
"""Bytes of an answer's body; a peer's words about a message are short."""
ANSWER_HEAD_MAX = 65_536
"""Bytes until the head of the answer is complete, interim answers included."""
INTERIM_ANSWERS_MAX = 8
"""100 Continue and its kin before the answer; a peer that floods them is cut off."""
REASON_MAX = 200
"""Characters of the peer's words that are kept for ``status``."""


class Answer(NamedTuple):
    """A complete answer."""

    status: int
    reason: str
    """What the peer says in ``Srmp-Reason`` or in the status line."""
    retry_after: float | None
    """Seconds."""


class Owner(Protocol):
    """Who is told. Each is called from the loop, never before :meth:`Exchange.post` has returned."""

    def answered(self, send: Send, answer: Answer) -> None:
        """The answer to the oldest request."""

    def lost(self, unanswered: list[Send], why: str, *, silent: bool) -> None:
        """The connection is gone, once. ``silent``: the peer closed one that had served before, without a byte of an answer
        to what was under way; it may not even have read it."""


def retry_after_of(value: bytes, now: datetime) -> float | None:
    """The seconds that ``Retry-After`` asks for, a number or a date; ``None`` if it is neither."""
    text = value.decode("latin-1").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, IndexError, OverflowError):  # the last of a day or year of twenty digits
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=timezone.utc)
    return max(0.0, (at - now).total_seconds())


class Exchange(asyncio.Protocol):
    """The connection."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self.unanswered: deque[Send] = deque()
        self.answers = 0
        """Complete answers so far."""
        self._over = False
        self._parser = httptools.HttpResponseParser(self)
        self._forget()

    def _forget(self) -> None:
        """Before the next answer."""
        self._status_text = b""
        self._srmp_reason: bytes | None = None
        self._retry_after: bytes | None = None
        self._framed = False
        self._in_body = False
        self._interim = 0
        self._got = 0

    @property
    def usable(self) -> bool:
        """Whether a request may be posted."""
        return not self._over and self._transport is not None and not self._transport.is_closing()

    def post(self, send: Send, request: bytes) -> None:
        """Write a request behind those that wait for their answers."""
        assert self._transport is not None
        self.unanswered.append(send)
        self._transport.write(request)

    def end(self, why: str) -> None:
        """Close, and report what is under way as lost."""
        self._end(why, silent=False)

    def leave(self) -> None:
        """Close, and tell nobody."""
        self._close()

    # --- asyncio ------------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # noqa: D102  # asyncio's
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: D102  # asyncio's
        reset = exc is None or isinstance(exc, ConnectionError)
        silent = reset and self.answers > 0 and self._got == 0
        self._end(f"the connection ended before the answer{f': {exc}' if exc else ''}", silent=silent)

    def eof_received(self) -> bool:  # noqa: D102  # asyncio's
        if self._in_body and not self._framed and self.unanswered:
            self._answer()  # a body without a length ends with the connection
        return False

    def data_received(self, data: bytes) -> None:  # noqa: D102  # asyncio's
        if self._over:
            return
        if not self.unanswered:
            self.end("the peer speaks unasked")
            return
        self._got += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.end(f"a malformed answer: {error}")
            return
        if self._is_too_much:
            self.end("the answer has no end")

    @property
    def _is_too_much(self) -> bool:
        head_max = ANSWER_HEAD_MAX + ANSWER_BODY_MAX if self._in_body else ANSWER_HEAD_MAX
        return self._got > head_max or self._interim > INTERIM_ANSWERS_MAX

    # --- httptools ----------------------------------------------------------------------------------------------------------

    def on_status(self, status: bytes) -> None:  # noqa: D102  # httptools'
        self._status_text += status

    def on_header(self, name: bytes, value: bytes) -> None:  # noqa: D102  # httptools'
        name = name.lower()
        if name in (b"content-length", b"transfer-encoding"):
            self._framed = True
        elif name == b"srmp-reason":
            self._srmp_reason = value
        elif name == b"retry-after":
            self._retry_after = value

    def on_headers_complete(self) -> None:  # noqa: D102  # httptools'
        if self._parser.get_status_code() >= 200:
            self._in_body = True

    def on_message_complete(self) -> None:  # noqa: D102  # httptools'
        if self._parser.get_status_code() >= 200:
            if self.unanswered and not self._over and not self._is_too_much:  # one read may hold all of it
                self._answer(keep=bool(self._parser.should_keep_alive()))
        else:
            interim, got = self._interim + 1, self._got
            self._forget()
            self._interim, self._got = interim, got

    def _answer(self, *, keep: bool = False) -> None:
        send = self.unanswered.popleft()
        self.answers += 1
        status = self._parser.get_status_code()
        reason = ""
        retry_after = None
        if status != 200:
            text = self._srmp_reason if self._srmp_reason is not None else self._status_text
            reason = "".join(c if c.isprintable() else "?" for c in text[:REASON_MAX].decode("latin-1"))
            if self._retry_after is not None:
                retry_after = retry_after_of(self._retry_after, datetime.now(timezone.utc))
        self._forget()
        answer = Answer(status, reason, retry_after)
        if keep:
            self._owner.answered(send, answer)
            return
        rest = self._close()  # first: what the owner posts next must not go here
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
