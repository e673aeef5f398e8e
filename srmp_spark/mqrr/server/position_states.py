"""The states of a message in a queue that is read remotely, in one table.

The states are those of MessagePosition.State ([MS-MQDMPR] 3.1.1.11). Theory of operation. A receive
takes two calls. The first call locks the message: no other reader gets the message, and it stays in
the queue. The second call removes the message or unlocks it, and so does everything that ends the
reader in between. A purge does not wait for readers: it marks locked messages, and the end of a
lock then removes the message.

A removal takes two steps too. The queue records that a message was received, and that counts when
the record is on stable storage. Until then the message is ``STORING``, which means locked for all
other readers. If the record cannot be stored, the message is available again and the reader gets an
error.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto


class PositionState(Enum):
    """State of one message in a queue."""

    AVAILABLE = auto()
    LOCKED = auto()
    """A reader has the message and has not ended its request."""
    PURGE_PENDING = auto()
    """The message is locked, and is removed when the lock ends, however it ends."""
    STORING = auto()
    """The message is received, but that is not yet on stable storage."""
    GONE = auto()


class PositionEvent(Enum):
    """Events that change the state of a message."""

    BEGIN = auto()
    """Dequeue Message Begin: a reader locks the message."""
    TAKE = auto()
    """Dequeue Message End with iDeleteMessage."""
    RETURN = auto()
    """Dequeue Message End without iDeleteMessage; rundown, close, cleanup timer."""
    PURGE = auto()
    PURGE_FAILED = auto()
    """R_PurgeQueue failed, so none of the messages that it marked is removed."""
    STORED = auto()
    NOT_STORED = auto()
    VANISHED = auto()
    """The message left the queue for another reason.

    An operator purged it, its queue was deleted, or its time was over.
    """


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
