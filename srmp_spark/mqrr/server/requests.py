"""A request to peek or receive, from its call to its end, in one table of states.

A request is the PendingRequestEntry of [MS-MQRR] 3.1.1.2. Theory of operation. A request looks for
a message. The request finds a message at once, or waits until a message arrives, its time is over,
or it is cancelled. Then its owner reads the message, and the call is answered. A peek ends there. A
receive has locked the message before it was read. The message stays **held** until R_EndReceive, or
until the reader ends: its handle is closed or run down, or it does not call R_EndReceive within
five minutes.

This code differs from the printed text. 3.1.4.7 creates an entry for MQ_ACTION_RECEIVE alone, but
R_EndReceive must also find one for a receive by lookup identifier. Peeks have no entry there, but
clients cancel peeks (3.2.4.11). So every request has an entry. The cleanup timer begins when the
message is locked and not when the call is received: a reader that waited six minutes for its
message must not find the message unlocked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from srmp_spark.mqrr.actions import LOOKUPS, RECEIVES, Action
from srmp_spark.mqrr.ndr.receive import StartReceiveRequest
from srmp_spark.mqrr.server.cursors import Cursor, CursorPlace
from srmp_spark.mqrr.server.effects import CallId, QueueView
from srmp_spark.mqrr.status import Status
from srmp_spark.transitions import next_state


class RequestState(Enum):
    """State of one request to peek or receive."""

    WAITING = auto()
    READING = auto()
    """A message was found, a receive has locked it, and its owner reads it."""
    HELD = auto()
    """The call is answered, and the message stays locked until the end of the request."""
    STORING = auto()
    """The removal of the message is being stored."""
    OVER = auto()


class RequestEvent(Enum):
    """Events that change the state of a request."""

    FOUND = auto()
    SHOWN = auto()
    """A peek is answered with its message."""
    HANDED_OVER = auto()
    """A receive is answered with its message."""
    FAILED = auto()
    """The message could not be read: the call fails and the lock ends."""
    VANISHED = auto()
    """The message left the queue while it was read, so the request searches for another message."""
    TIMED_OUT = auto()
    CANCELLED = auto()
    ACKNOWLEDGED = auto()
    REFUSED = auto()
    """The reader does not want the message (RR_NACK)."""
    CLEANED_UP = auto()
    """The cleanup timer ended the request."""
    CLOSED = auto()
    """The handle was closed or run down, or its queue no longer exists."""
    STORED = auto()
    NOT_STORED = auto()


_S, _E = RequestState, RequestEvent
TRANSITIONS: Mapping[tuple[RequestState, RequestEvent], RequestState] = {
    (_S.WAITING, _E.FOUND): _S.READING,
    (_S.WAITING, _E.TIMED_OUT): _S.OVER,
    (_S.WAITING, _E.CANCELLED): _S.OVER,
    (_S.WAITING, _E.CLOSED): _S.OVER,
    (_S.READING, _E.SHOWN): _S.OVER,
    (_S.READING, _E.HANDED_OVER): _S.HELD,
    (_S.READING, _E.FAILED): _S.OVER,
    (_S.READING, _E.VANISHED): _S.WAITING,
    (_S.READING, _E.CLOSED): _S.OVER,
    (_S.HELD, _E.ACKNOWLEDGED): _S.STORING,
    (_S.HELD, _E.REFUSED): _S.OVER,
    (_S.HELD, _E.CLEANED_UP): _S.OVER,
    (_S.HELD, _E.CLOSED): _S.OVER,
    (_S.STORING, _E.STORED): _S.OVER,
    (_S.STORING, _E.NOT_STORED): _S.OVER,
}


class BodyLimits(NamedTuple):
    """The most bytes of a message's body, or of its compound message, that the reader wants."""

    body: int
    compound_message: int


@dataclass(slots=True, kw_only=True, eq=False)
class ReceiveRequest:
    """One request of one handle to peek or receive."""

    call: CallId | None
    """The call that is to be answered; ``None`` after the answer or if the caller is gone."""
    id: int
    """dwRequestId, which the client chooses."""
    action: Action
    lookup_id: int = 0
    """LookupId of the call, at which the search for a message begins."""
    cursor: Cursor | None = None
    limits: BodyLimits
    deadline: float | None = None
    """Time (monotonic seconds) at which the wait ends; ``None`` if it never ends."""
    may_wait: bool = True
    """Whether the request may wait for a message (ulTimeout is not 0)."""
    called_at: float = 0.0
    found: int | None = None
    """LookupIdentifier of the message that was found; ``None`` if none was found yet."""
    cursor_was: CursorPlace | None = None
    """Place of the cursor before the message was found."""
    to: QueueView | None = None
    """Queue to which the message is moved, if this is a move (:mod:`.moving`)."""
    state: RequestState = RequestState.WAITING

    @property
    def receives(self) -> bool:
        """Return whether this request is a receive, which locks the message that it finds."""
        return self.action in RECEIVES

    @property
    def nothing(self) -> Status:
        """Return the status for a reader that does not wait and finds no message."""
        at_cursor = self.cursor is not None and self.receives
        return Status.MQ_ERROR_MESSAGE_NOT_FOUND if at_cursor else Status.MQ_ERROR_IO_TIMEOUT

    def vanished(self) -> None:
        """Return to ``WAITING``, because the found message left the queue before it was read.

        The cursor returns to its earlier place, because no reader saw the message.
        """
        self.move(RequestEvent.VANISHED)
        if self.cursor is not None and self.cursor_was is not None and self.found is not None:
            self.cursor.put_back(self.found, self.cursor_was)
        self.found = None

    def move(self, event: RequestEvent) -> None:
        """Change the state.

        Raises :class:`LocalProtocolError` if the event cannot happen in this state.
        """
        self.state = next_state(TRANSITIONS, self.state, event, "a request")


def fits_together(action: Action, asked: StartReceiveRequest) -> bool:
    """Return whether the arguments of a call are one of the valid combinations of 3.1.4.7.

    The arguments are LookupId, hCursor, ulAction and ulTimeout. The table of 3.1.4.7 demands
    LookupId 0 for MQ_LOOKUP_RECEIVE_PREV; this code demands the opposite, as 3.1.4.13 does and as
    the action needs.
    """
    if asked.lookup_id:
        return action in LOOKUPS and not asked.cursor and not asked.timeout_ms
    return action not in LOOKUPS and (action is not Action.PEEK_NEXT or bool(asked.cursor))
