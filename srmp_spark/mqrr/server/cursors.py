"""Cursors ([MS-MQDMPR] 3.2): a place in a queue, and whether the message there was shown.

Theory of operation. A new cursor stands before the head, ``UNREAD``. Peeking shows the first message behind it and makes it
``READ``: peeked again it is the same message, or MESSAGE_ALREADY_RECEIVED once that is no longer available; PEEK_NEXT goes
on. Receiving takes the message that was shown and makes it ``UNREAD``, so that the next one is looked for behind it. While
there is nothing it waits, and whatever becomes available first ends the wait, wherever it stands: one of higher priority would
come to stand behind the cursor's back otherwise, and never be seen.

What is shown must be read first, and may leave the queue meanwhile. Nobody saw it then, and the cursor is put back to where it
stood: who comes to receive what was shown before must be told that it is gone, and not be given the next one.

Against the text as printed: a wait that ends without a message leaves the cursor as it was. 3.2.7.6 would put one that waited
to receive at the end, from where no message is ever behind it, and forgets the one that waited to peek altogether.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from srmp_spark.errors import LocalProtocolError
from srmp_spark.mqrr.server.positions import START


class CursorState(Enum):
    """CursorState ([MS-MQDMPR] 3.2.1.2)."""

    UNREAD = auto()
    READ = auto()
    WAIT_PEEK = auto()
    """From UNREAD or READ."""
    WAIT_RECEIVE = auto()
    """From UNREAD."""


class CursorEvent(Enum):
    """What moves it."""

    SHOWN = auto()
    """A peek found a message."""
    TAKEN = auto()
    """A receive found one."""
    WAIT_TO_PEEK = auto()
    WAIT_TO_RECEIVE = auto()
    GAVE_UP_UNREAD = auto()
    """Time-out or cancel of a wait that began ``UNREAD``."""
    GAVE_UP_READ = auto()
    LEFT_UNREAD = auto()
    """What a call found left the queue before it was read; the cursor was ``UNREAD`` before that call."""
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


class Place(NamedTuple):
    """Where a cursor stands when no call waits at it."""

    state: CursorState
    position: int


@dataclass(slots=True)
class Cursor:
    """One cursor of one handle."""

    handle: int
    state: CursorState = CursorState.UNREAD
    position: int = START
    """LookupIdentifier of the message that it stands at, which may be gone."""
    _before: CursorState = CursorState.UNREAD

    @property
    def is_waiting(self) -> bool:
        """A call waits at it: no other call can use it meanwhile."""
        return self.state in (CursorState.WAIT_PEEK, CursorState.WAIT_RECEIVE)

    @property
    def place(self) -> Place:
        """Where it stands, or stood when the wait at it began."""
        return Place(self._before if self.is_waiting else self.state, self.position)

    def move(self, event: CursorEvent, position: int | None = None) -> None:
        """Raises :class:`LocalProtocolError` for what cannot happen."""
        target = TRANSITIONS.get((self.state, event))
        if target is None:
            raise LocalProtocolError(
                f"{event.name} cannot happen to a cursor that is {self.state.name}"
            )
        if event in (CursorEvent.WAIT_TO_PEEK, CursorEvent.WAIT_TO_RECEIVE):
            self._before = self.state
        self.state = target
        if position is not None:
            self.position = position

    def give_up(self) -> None:
        """Its wait ended without a message."""
        if self.is_waiting:
            was_read = self._before is CursorState.READ
            self.move(CursorEvent.GAVE_UP_READ if was_read else CursorEvent.GAVE_UP_UNREAD)

    def put_back(self, found: int, place: Place) -> None:
        """What a call ``found`` has left the queue unread. Nothing happens if another call has moved it since."""
        if not self.is_waiting and self.position == found:
            was_read = place.state is CursorState.READ
            self.move(
                CursorEvent.LEFT_READ if was_read else CursorEvent.LEFT_UNREAD, place.position
            )
