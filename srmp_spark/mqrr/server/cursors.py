"""Cursors ([MS-MQDMPR] 3.2): a place in a queue, and whether the message there was shown.

Theory of operation. A new cursor stands before the head of the queue and is ``UNREAD``. A peek
shows the first message after the cursor and makes the cursor ``READ``. Another peek shows the same
message, or answers MESSAGE_ALREADY_RECEIVED if that message is no longer available; PEEK_NEXT moves
on. A receive takes the message that was shown and makes the cursor ``UNREAD``, so that the next
search begins after it. If there is no message, the cursor waits, and the first message that becomes
available ends the wait, whatever its place. Otherwise a message of higher priority could be placed
before the cursor and never be seen.

A message must be read before it is shown, and it may leave the queue meanwhile. Then no reader saw
the message, and the cursor is put back to its earlier place. A reader that wants to receive the
message shown before must get the error that it is gone, and not the next message.

This code differs from the printed text: a wait that ends without a message leaves the cursor
unchanged. 3.2.7.6 would put a cursor that waited to receive at the end of the queue, after which
there is never a message, and does not mention a cursor that waited to peek.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from srmp_spark.mqrr.server.positions import START
from srmp_spark.transitions import next_state


class CursorState(Enum):
    """State of one cursor ([MS-MQDMPR] 3.2.1.2)."""

    UNREAD = auto()
    READ = auto()
    WAIT_PEEK = auto()
    """A peek waits for a message; the cursor was UNREAD or READ."""
    WAIT_RECEIVE = auto()
    """A receive waits for a message; the cursor was UNREAD."""


class CursorEvent(Enum):
    """Events that change the state of a cursor."""

    SHOWN = auto()
    """A peek found a message."""
    TAKEN = auto()
    """A receive found a message."""
    WAIT_TO_PEEK = auto()
    WAIT_TO_RECEIVE = auto()
    GAVE_UP_UNREAD = auto()
    """A wait that began ``UNREAD`` ended by a time-out or was cancelled."""
    GAVE_UP_READ = auto()
    LEFT_UNREAD = auto()
    """The message that a call found left the queue before it was read.

    The cursor was ``UNREAD`` before that call.
    """
    LEFT_READ = auto()


_S, _E = CursorState, CursorEvent
TRANSITIONS: Mapping[tuple[CursorState, CursorEvent], CursorState] = {
    (_S.UNREAD, _E.SHOWN): _S.READ,
    (_S.UNREAD, _E.TAKEN): _S.UNREAD,
    (_S.UNREAD, _E.WAIT_TO_PEEK): _S.WAIT_PEEK,
    (_S.UNREAD, _E.WAIT_TO_RECEIVE): _S.WAIT_RECEIVE,
    (_S.READ, _E.SHOWN): _S.READ,
    (_S.READ, _E.TAKEN): _S.UNREAD,
    (_S.READ, _E.WAIT_TO_PEEK): _S.WAIT_PEEK,
    (_S.UNREAD, _E.LEFT_UNREAD): _S.UNREAD,
    (_S.UNREAD, _E.LEFT_READ): _S.READ,
    (_S.READ, _E.LEFT_UNREAD): _S.UNREAD,
    (_S.READ, _E.LEFT_READ): _S.READ,
    (_S.WAIT_PEEK, _E.SHOWN): _S.READ,
    (_S.WAIT_PEEK, _E.GAVE_UP_UNREAD): _S.UNREAD,
    (_S.WAIT_PEEK, _E.GAVE_UP_READ): _S.READ,
    (_S.WAIT_RECEIVE, _E.TAKEN): _S.UNREAD,
    (_S.WAIT_RECEIVE, _E.GAVE_UP_UNREAD): _S.UNREAD,
}


class CursorPlace(NamedTuple):
    """State and position of a cursor while no call waits at the cursor."""

    state: CursorState
    position: int


@dataclass(slots=True)
class Cursor:
    """One cursor that a client has created on one open queue."""

    handle: int
    state: CursorState = CursorState.UNREAD
    position: int = START
    """LookupIdentifier of the message at the cursor; that message may be gone."""
    _before: CursorState = CursorState.UNREAD

    @property
    def is_waiting(self) -> bool:
        """Return whether a call waits at the cursor, so that no other call can use the cursor."""
        return self.state in (CursorState.WAIT_PEEK, CursorState.WAIT_RECEIVE)

    @property
    def place(self) -> CursorPlace:
        """Return the state and position of the cursor, or those before the current wait."""
        return CursorPlace(self._before if self.is_waiting else self.state, self.position)

    def move(self, event: CursorEvent, position: int | None = None) -> None:
        """Change the state and, if given, the position.

        Raises :class:`LocalProtocolError` if the event cannot happen in this state.
        """
        target = next_state(TRANSITIONS, self.state, event, "a cursor")
        if event in (CursorEvent.WAIT_TO_PEEK, CursorEvent.WAIT_TO_RECEIVE):
            self._before = self.state
        self.state = target
        if position is not None:
            self.position = position

    def give_up(self) -> None:
        """End the wait at the cursor without a message; do nothing if no call waits."""
        if self.is_waiting:
            was_read = self._before is CursorState.READ
            self.move(CursorEvent.GAVE_UP_READ if was_read else CursorEvent.GAVE_UP_UNREAD)

    def put_back(self, found: int, place: CursorPlace) -> None:
        """Put the cursor back to ``place``, because the message ``found`` left the queue unread.

        Do nothing if another call has moved the cursor since.
        """
        if not self.is_waiting and self.position == found:
            was_read = place.state is CursorState.READ
            self.move(
                CursorEvent.LEFT_READ if was_read else CursorEvent.LEFT_UNREAD, place.position
            )
