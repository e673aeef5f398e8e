"""Read the answers of a peer to posts, one after the other ([MC-MQSRM] 3.1.7.2.5).

:mod:`.http_exchange` feeds the bytes of a connection to this parser. Only a complete answer counts.
Redirects are never followed: a 3xx answer is an answer like any other. A body is kept only by
:class:`BodyParser`. The owner of the connection decides about an answer that passes a limit:

- The status of an answer to a receipt is valid as soon as its head is complete. So its owner
  stops reading a body at :data:`ANSWER_MAX`.
- For a message that is sent, an answer without an end is no answer, and the connection cannot
  be used again.

The limits are offsets in the bytes of an answer, and reads are cut at these offsets. So it makes no
difference how the network cut the bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import NamedTuple

import httptools

ANSWER_BODY_MAX = 65_536
"""Most bytes of an answer's body that are read. A useful answer to a message is much shorter."""
ANSWER_HEAD_MAX = 65_536
"""Most bytes until the HTTP head of the answer is complete, interim answers included."""
ANSWER_MAX = ANSWER_HEAD_MAX + ANSWER_BODY_MAX
"""Most bytes of an answer that are read: head and body, with everything that frames the body."""
INTERIM_ANSWERS_MAX = 8
"""Most interim answers, such as 100 Continue, before the answer.

A peer that sends more is disconnected.
"""
REASON_MAX = 200
"""Most characters of the peer's reason that are kept for ``status`` and logs. The rest is cut."""


class MalformedAnswerError(Exception):
    """Raised when the received bytes are no HTTP answer. The text states why."""


class PeerAnswer(NamedTuple):
    """The status of a peer's answer, its reason, and its ``Retry-After``."""

    status: int
    reason: str
    """The reason in ``Srmp-Reason``, or else in the status line, cut to REASON_MAX characters.

    Empty for 200.
    """
    retry_after: float | None
    """Seconds that the ``Retry-After`` header asks for, or ``None`` without it and for 200."""
    body: bytes = b""
    """The body, if the parser keeps it."""


def retry_after_of(value: bytes, now: datetime) -> float | None:
    """Return the seconds that a ``Retry-After`` header asks for, given as a number or a date.

    Return ``None`` if ``value`` is neither. ``now`` is the present time in UTC, from which a date
    is counted; a date in the past gives 0.
    """
    text = value.decode("latin-1").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, IndexError, OverflowError):  # A day or year of twenty digits overflows.
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=timezone.utc)
    return max(0.0, (at - now).total_seconds())


class AnswerParser:
    """Parses the bytes that a peer sends over one connection as HTTP answers.

    The head of an answer is its status line and headers, up to the blank line.
    """

    def __init__(self, on_complete: Callable[[], object]) -> None:
        """Create a parser for one connection.

        ``on_complete`` is called inside :meth:`feed` when an answer is complete, and it may call
        :meth:`take`. It is not called for an answer after more than INTERIM_ANSWERS_MAX interim
        answers.
        """
        self._on_complete = on_complete
        self._http = httptools.HttpResponseParser(self)
        self.has_begun = False
        """Whether bytes of an answer have arrived, even of an interim one, since the last
        :meth:`take`.
        """
        self._forget()

    def _forget(self) -> None:
        """Reset the state of the parser, because the next bytes belong to another answer."""
        self._status_text = b""
        self._srmp_reason: bytes | None = None
        self._retry_after: bytes | None = None
        self._framed = False
        self._interim = 0
        self.in_body = False
        """Whether the head of the answer is complete. Interim answers do not count."""
        self.got = 0
        """Number of bytes of this answer that were fed, including interim answers before it.

        Bytes that arrived in one piece with the end of another answer do not count.
        """

    @property
    def head_has_no_end(self) -> bool:
        """Return whether the head passed ANSWER_HEAD_MAX, or too many interim answers arrived."""
        return (
            self.got > ANSWER_HEAD_MAX and not self.in_body
        ) or self._interim > INTERIM_ANSWERS_MAX

    @property
    def is_too_long(self) -> bool:
        """Return whether the answer has passed a limit of bytes or of interim answers.

        Bytes after the limit are not parsed.
        """
        return self.head_has_no_end or self.got > ANSWER_MAX

    @property
    def ends_with_connection(self) -> bool:
        """Return whether the head is complete and has neither Content-Length nor Transfer-Encoding.

        The body of such an answer is complete when the connection ends.
        """
        return self.in_body and not self._framed

    @property
    def keeps_alive(self) -> bool:
        """Return whether HTTP allows to use the connection again.

        Call this after an answer that is complete.
        """
        return bool(self._http.should_keep_alive())

    def feed(self, data: bytes) -> None:
        """Parse the next received bytes.

        Calls ``on_complete`` for each answer that becomes complete.

        Raises :class:`MalformedAnswerError` if the bytes are no HTTP answer. After that, or when a
        limit is passed, nothing more may be fed.
        """
        while data:
            most = (ANSWER_MAX if self.in_body else ANSWER_HEAD_MAX) - self.got
            if most <= 0:
                self.got += len(data)
                return
            piece, data = data[:most], data[most:]
            self.got += len(piece)
            try:
                self._http.feed_data(piece)
            except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
                raise MalformedAnswerError(f"a malformed answer: {error}") from None

    def take(self) -> PeerAnswer:
        """Return the answer whose head is complete, and begin the next answer.

        The reason and ``Retry-After`` are read only if the status is not 200.
        """
        status = self._http.get_status_code()
        reason = ""
        retry_after = None
        if status != 200:
            text = self._srmp_reason if self._srmp_reason is not None else self._status_text
            reason = "".join(
                c if c.isprintable() else "?" for c in text[:REASON_MAX].decode("latin-1")
            )
            if self._retry_after is not None:
                retry_after = retry_after_of(self._retry_after, datetime.now(timezone.utc))
        self.has_begun = False
        self._forget()
        return PeerAnswer(status, reason, retry_after)

    # --- httptools --------------------------------------------------------------------------------

    def on_message_begin(self) -> None:  # noqa: D102  # httptools'
        self.has_begun = True

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
        if self._http.get_status_code() >= 200:
            self.in_body = True

    def on_message_complete(self) -> None:  # noqa: D102  # httptools'
        if self._http.get_status_code() >= 200:
            if not self.head_has_no_end:
                self._on_complete()
        else:
            interim, got = self._interim + 1, self.got
            self._forget()
            self._interim, self.got = interim, got


class BodyParser(AnswerParser):
    """Parses answers and keeps their bodies, up to ANSWER_BODY_MAX bytes.

    An answer with a longer body is too long, and never complete.
    """

    body = b""

    @property
    def is_too_long(self) -> bool:
        """Return whether the answer has passed a limit of bytes or of interim answers."""
        return len(self.body) > ANSWER_BODY_MAX or super().is_too_long

    def take(self) -> PeerAnswer:
        """Return the answer with its body, and begin the next answer."""
        body, self.body = self.body, b""
        return super().take()._replace(body=body)

    def on_body(self, data: bytes) -> None:  # noqa: D102  # httptools'
        if len(self.body) <= ANSWER_BODY_MAX:
            self.body += data

    def on_message_complete(self) -> None:  # noqa: D102  # httptools'
        if len(self.body) <= ANSWER_BODY_MAX:
            super().on_message_complete()
