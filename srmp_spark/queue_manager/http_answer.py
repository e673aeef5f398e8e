"""The answers of a peer to what we post ([MC-MQSRM] 3.1.7.2.5): read from the bytes of one connection, one after the other.

Both who post use this: the receipts sender, one POST to a connection (:mod:`.http_client`), and the sender process, a
connection kept alive for each outgoing queue (:mod:`.sender.exchange`). Only a complete answer counts. Redirects are never
followed: an answer of 3xx is one like any other. A body is never kept. What becomes of one that passes a limit, the owner says:

- of a receipt the status stands as soon as its head is complete, so it stops reading a body at :data:`ANSWER_MAX`;
- of a message that is sent, an answer without an end is none, and the connection cannot be used again (bad input 33 of the
  attack list).

The limits are places in the bytes of an answer, and reads are cut there: how the network cut them makes no difference.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import NamedTuple

import httptools

ANSWER_BODY_MAX = 65_536
"""Bytes of an answer's body; a peer's words about a message are short."""
ANSWER_HEAD_MAX = 65_536
"""Bytes until the head of the answer is complete, interim answers included."""
ANSWER_MAX = ANSWER_HEAD_MAX + ANSWER_BODY_MAX
"""Bytes of an answer that are read, with all that frames its body."""
INTERIM_ANSWERS_MAX = 8
"""100 Continue and its kin before the answer; a peer that floods them is cut off."""
REASON_MAX = 200
"""Characters of the peer's words that are kept for ``status`` and logs."""


class MalformedAnswerError(Exception):
    """What came is no HTTP answer; says why."""


class PeerAnswer(NamedTuple):
    """A complete answer."""

    status: int
    reason: str
    """What the peer says in ``Srmp-Reason`` or in the status line; empty for 200."""
    retry_after: float | None
    """Seconds."""


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


class AnswerParser:
    """The bytes that a peer sends over one connection, as answers."""

    def __init__(self, on_complete: Callable[[], object]) -> None:
        """``on_complete`` is called when an answer is complete, in :meth:`feed`; it may :meth:`take` it. Not after a flood of
        interim ones, however few reads bring it."""
        self._on_complete = on_complete
        self._http = httptools.HttpResponseParser(self)
        self.has_begun = False
        """Something of an answer that was not taken has come, be it an interim one."""
        self._forget()

    def _forget(self) -> None:
        """Before the next answer."""
        self._status_text = b""
        self._srmp_reason: bytes | None = None
        self._retry_after: bytes | None = None
        self._framed = False
        self._interim = 0
        self.in_body = False
        """The head is complete, and not of an interim answer."""
        self.got = 0
        """Bytes of this answer, interim ones before it included; of those that came in one piece with the end of another
        answer, none."""

    @property
    def head_has_no_end(self) -> bool:
        """Whether the head has passed its limit, or too many interim answers came."""
        return (
            self.got > ANSWER_HEAD_MAX and not self.in_body
        ) or self._interim > INTERIM_ANSWERS_MAX

    @property
    def is_too_long(self) -> bool:
        """Whether it has passed a limit: nothing more of it is read."""
        return self.head_has_no_end or self.got > ANSWER_MAX

    @property
    def ends_with_connection(self) -> bool:
        """Whether this is an answer without a length: its body is complete when the connection ends."""
        return self.in_body and not self._framed

    @property
    def keeps_alive(self) -> bool:
        """Whether the connection can be used again after the answer that is complete now."""
        return bool(self._http.should_keep_alive())

    def feed(self, data: bytes) -> None:
        """Read on. Raises :class:`MalformedAnswerError`; then, or when a limit is passed, nothing more may be fed."""
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
        """The answer whose head is complete; what comes next is another one's."""
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

    # --- httptools ----------------------------------------------------------------------------------------------------------

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
