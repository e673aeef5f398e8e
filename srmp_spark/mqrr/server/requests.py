"""A request to peek or receive, from its call to its end (PendingRequestEntry, [MS-MQRR] 3.1.1.2), in one table.

Theory of operation. A request looks for a message. It has one at once, or waits until one comes, its time is over, or somebody
cancels it. Then its owner reads the message, and the call is answered. A peek ends there. A receive has locked the message
before it was read, and stays **held** until R_EndReceive, or until whatever ends the reader: the handle is closed or run down,
or nothing comes for five minutes. An acknowledged receive inside a transaction goes on as one of its operations.

Against the text as printed: 3.1.4.7 makes an entry for MQ_ACTION_RECEIVE alone, but R_EndReceive must find one for a receive
by lookup identifier too; and peeks have no tag, but clients cancel them (3.2.4.11). So every request has an entry. The cleanup
timer begins when the message is locked and not when the call came: a reader that waited six minutes for its message must not
find it unlocked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from srmp_spark.errors import LocalProtocolError
from srmp_spark.mqrr.actions import LOOKUPS, RECEIVES, Action
from srmp_spark.mqrr.ndr.receive import StartReceiveRequest
from srmp_spark.mqrr.server.cursors import Cursor, Place
from srmp_spark.mqrr.server.effects import CallId, QueueView
from srmp_spark.mqrr.status import Status


class RequestState(Enum):
    """Of one request."""

    WAITING = auto()
    READING = auto()
    """It has a message, a receive has locked it, and its owner fetches it."""
    HELD = auto()
    """The call is answered; the message stays locked until the end."""
    IN_TRANSACTION = auto()
    """Acknowledged; the outcome of its transaction decides."""
    STORING = auto()
    """It is being stored that the message was taken."""
    OVER = auto()


class RequestEvent(Enum):
    """What moves it."""

    FOUND = auto()
    SHOWN = auto()
    """A peek is answered with its message."""
    HANDED_OVER = auto()
    """A receive is."""
    FAILED = auto()
    """The message could not be read: the call is told, the lock ends."""
    VANISHED = auto()
    """The message left the queue while it was read: another one is looked for."""
    TIMED_OUT = auto()
    CANCELLED = auto()
    ACKNOWLEDGED = auto()
    ACKNOWLEDGED_IN_TRANSACTION = auto()
    REFUSED = auto()
    """RR_NACK."""
    COMMITTED = auto()
    ABORTED = auto()
    CLEANED_UP = auto()
    """The cleanup timer, or the transaction's."""
    CLOSED = auto()
    """Its handle was closed or run down, or its queue is no more."""
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
    (_S.HELD, _E.ACKNOWLEDGED_IN_TRANSACTION): _S.IN_TRANSACTION,
    (_S.HELD, _E.REFUSED): _S.OVER,
    (_S.HELD, _E.CLEANED_UP): _S.OVER,
    (_S.HELD, _E.CLOSED): _S.OVER,
    (_S.HELD, _E.ABORTED): _S.OVER,
    (_S.IN_TRANSACTION, _E.COMMITTED): _S.STORING,
    (_S.IN_TRANSACTION, _E.ABORTED): _S.OVER,
    (_S.IN_TRANSACTION, _E.CLEANED_UP): _S.OVER,
    (_S.STORING, _E.STORED): _S.OVER,
    (_S.STORING, _E.NOT_STORED): _S.OVER,
}


class Limits(NamedTuple):
    """How much of the message its reader wants."""

    body: int
    compound_message: int


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """One request of one handle."""

    call: CallId | None
    """The call that is to be answered; ``None`` once it was, or when nobody waits for the answer."""
    id: int
    """dwRequestId."""
    action: Action
    lookup_id: int = 0
    """LookupId: the anchor."""
    cursor: Cursor | None = None
    limits: Limits
    transaction: bytes | None = None
    deadline: float | None = None
    """When a wait is over; ``None``: never."""
    may_wait: bool = True
    """ulTimeout is not 0."""
    called_at: float = 0.0
    cleanup_at: float | None = None
    found: int | None = None
    """LookupIdentifier of its message."""
    cursor_was: Place | None = None
    """Where its cursor stood before the message was found."""
    to: QueueView | None = None
    """A move: where its message goes (:mod:`.moving`)."""
    state: RequestState = RequestState.WAITING

    @property
    def receives(self) -> bool:
        """It locks what it finds."""
        return self.action in RECEIVES

    @property
    def nothing(self) -> Status:
        """What a reader that does not wait is told when there is nothing for it."""
        at_cursor = self.cursor is not None and self.receives
        return Status.MQ_ERROR_MESSAGE_NOT_FOUND if at_cursor else Status.MQ_ERROR_IO_TIMEOUT

    def is_due(self, when: float) -> bool:
        """Whether a timer that was set to ``when`` still means something."""
        if self.state is RequestState.WAITING:
            return self.deadline == when
        return self.state is RequestState.HELD and self.cleanup_at == when

    def vanished(self) -> None:
        """What it found has left the queue before it was read; a cursor of which nobody saw it is where it was."""
        self.move(RequestEvent.VANISHED)
        if self.cursor is not None and self.cursor_was is not None and self.found is not None:
            self.cursor.put_back(self.found, self.cursor_was)
        self.found = None

    def move(self, event: RequestEvent) -> None:
        """Raises :class:`LocalProtocolError` for what cannot happen."""
        target = TRANSITIONS.get((self.state, event))
        if target is None:
            raise LocalProtocolError(
                f"{event.name} cannot happen to a request that is {self.state.name}"
            )
        self.state = target


def fits_together(action: Action, asked: StartReceiveRequest) -> bool:
    """Whether LookupId, hCursor, ulAction and ulTimeout are one of the valid combinations of 3.1.4.7.

    Its table demands LookupId 0 of MQ_LOOKUP_RECEIVE_PREV; 3.1.4.13 and sense say the opposite.
    """
    if asked.lookup_id:
        return action in LOOKUPS and not asked.cursor and not asked.timeout_ms
    return action not in LOOKUPS and (action is not Action.PEEK_NEXT or bool(asked.cursor))
