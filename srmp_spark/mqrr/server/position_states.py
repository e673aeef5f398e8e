"""The states of a message in a queue that is read remotely ([MS-MQDMPR] 3.1.1.11, MessagePosition.State), in one table.

Theory of operation. A receive takes two calls. The first locks the message: nobody else gets it, and it stays in the queue. The
second removes it or gives it back; so does whatever ends the reader in between. A purge does not wait for readers: it marks
what is locked, and the end of the lock then removes it.

Removal is not one step either. Our queue says that a message was received, and that counts once it is on stable storage:
until then it is ``STORING``, which for everybody else is as good as locked. If it cannot be stored the message is available
again, and the reader is told that it did not work.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from srmp_spark.errors import LocalProtocolError


class PositionState(Enum):
    """Of one message."""

    AVAILABLE = auto()
    LOCKED = auto()
    """A reader has it and has not ended its request, or its transaction has no outcome."""
    PURGE_PENDING = auto()
    """Locked, and to be removed when the lock ends, however it ends."""
    STORING = auto()
    """Taken; the store does not hold it yet."""
    GONE = auto()


class PositionEvent(Enum):
    """What moves it."""

    BEGIN = auto()
    """Dequeue Message Begin."""
    TAKE = auto()
    """Dequeue Message End with iDeleteMessage, or the commit of a transaction."""
    RETURN = auto()
    """The same without; rundown, close, cleanup timer, abort."""
    PURGE = auto()
    PURGE_FAILED = auto()
    """R_PurgeQueue could not be carried out: nothing of what it was for is to be removed."""
    STORED = auto()
    NOT_STORED = auto()
    VANISHED = auto()
    """It left the queue by another way: purged by an operator, deleted with its queue, past its time."""


_S, _E = PositionState, PositionEvent
TRANSITIONS: Mapping[tuple[PositionState, PositionEvent], PositionState] = {
    (_S.AVAILABLE, _E.BEGIN): _S.LOCKED,
    (_S.LOCKED, _E.TAKE): _S.STORING,
    (_S.LOCKED, _E.RETURN): _S.AVAILABLE,
    (_S.LOCKED, _E.PURGE): _S.PURGE_PENDING,
    (_S.PURGE_PENDING, _E.TAKE): _S.STORING,
    (_S.PURGE_PENDING, _E.RETURN): _S.STORING,
    (_S.PURGE_PENDING, _E.PURGE): _S.PURGE_PENDING,
    (_S.PURGE_PENDING, _E.PURGE_FAILED): _S.LOCKED,
    (_S.STORING, _E.PURGE): _S.STORING,
    (_S.STORING, _E.STORED): _S.GONE,
    (_S.STORING, _E.NOT_STORED): _S.AVAILABLE,
    **{(state, _E.VANISHED): _S.GONE for state in _S},
}


def moved(state: PositionState, event: PositionEvent) -> PositionState:
    """The state after ``event``. Raises :class:`LocalProtocolError` for what cannot happen."""
    target = TRANSITIONS.get((state, event))
    if target is None:
        raise LocalProtocolError(f"{event.name} cannot happen to a message that is {state.name}")
    return target
