"""The states of a message on its way out of a remote queue into ours, in one table ([MS-MQRR] 3.2.4.4.1).

Theory of operation. R_StartReceive locks the message in its queue and hands us a copy. The copy is stored, then R_EndReceive
removes the original, then the copy becomes a row. Whatever is lost in between, one of the two is there:

* Nothing stored: the lock ends with our connection, and the message is where it was.
* Stored and no End sent (``UNSENT``): the original decides. It is there: take it again, under the same key. It is gone:
  somebody else took it, and the copy is dropped.
* End sent and no answer, or one that does not say whether the message was removed before something failed
  (``UNANSWERED``): the original decides again, the other way round. It is there: End did not come through. It is gone: End
  did, and the copy is the only one left.

What the original says must be asked with a **peek** by lookup identifier. A receive answers MESSAGE_NOT_FOUND for a message
that is locked too, perhaps by our own old connection that nobody has missed yet: who believes it doubles the message or loses
it.
So it is written down that an End leaves, before it does (``queue_manager/puller/sent_marks.py``); a process that is started
again, and cannot know, takes what it finds stored for ``UNANSWERED``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from srmp_spark.errors import LocalProtocolError


class PulledState(Enum):
    """Of one message."""

    HANDED = auto()
    """Locked there, and here in memory alone."""
    KEPT = auto()
    """Locked there, and stored here."""
    ENDING = auto()
    """R_EndReceive is on its way."""
    UNSENT = auto()
    """Stored; the lock is lost, and End was never sent or was refused."""
    UNANSWERED = auto()
    """Stored; End may have been carried out."""
    OURS = auto()
    """Removed there."""
    VISIBLE = auto()
    """A row."""
    DROPPED = auto()
    """No row: it is in its queue, or was somebody else's."""


class PulledEvent(Enum):
    """What moves it."""

    STORED = auto()
    END_SENT = auto()
    END_OK = auto()
    END_REFUSED = auto()
    """An answer that stands before the removal: the original was not removed by this call."""
    END_UNCLEAR = auto()
    """A fault that does not say whether the call was carried out before it, or a failure that may be the removal's own."""
    LOST = auto()
    """The connection, or the lock with its handle."""
    LOCKED_AGAIN = auto()
    """The original was there, and is locked by us once more."""
    LEFT_THERE = auto()
    """The original is there, and nobody wants to take it any more: the subscription is another one now."""
    HELD_BY_ANOTHER = auto()
    """A peek says TRANSACTION_USAGE: ask again later."""
    GONE = auto()
    """A peek says MESSAGE_NOT_FOUND."""
    PUBLISHED = auto()


_S, _E = PulledState, PulledEvent
TRANSITIONS: Mapping[tuple[PulledState, PulledEvent], PulledState] = {
    (_S.HANDED, _E.STORED): _S.KEPT,
    (_S.HANDED, _E.LOST): _S.DROPPED,
    (_S.KEPT, _E.END_SENT): _S.ENDING,
    (_S.KEPT, _E.LOST): _S.UNSENT,
    (_S.ENDING, _E.END_OK): _S.OURS,
    (_S.ENDING, _E.END_REFUSED): _S.UNSENT,
    (_S.ENDING, _E.END_UNCLEAR): _S.UNANSWERED,
    (_S.ENDING, _E.LOST): _S.UNANSWERED,
    (_S.UNSENT, _E.LOCKED_AGAIN): _S.KEPT,
    (_S.UNSENT, _E.LEFT_THERE): _S.DROPPED,
    (_S.UNSENT, _E.HELD_BY_ANOTHER): _S.UNSENT,
    (_S.UNSENT, _E.GONE): _S.DROPPED,
    (_S.UNANSWERED, _E.LOCKED_AGAIN): _S.KEPT,
    (_S.UNANSWERED, _E.LEFT_THERE): _S.DROPPED,
    (_S.UNANSWERED, _E.HELD_BY_ANOTHER): _S.UNANSWERED,
    (_S.UNANSWERED, _E.GONE): _S.OURS,
    (_S.OURS, _E.PUBLISHED): _S.VISIBLE,
    (
        _S.OURS,
        _E.LOCKED_AGAIN,
    ): _S.KEPT,  # its queue manager forgot that it was removed, and it is no row yet
}

DOUBTFUL = frozenset({_S.UNSENT, _S.UNANSWERED})
"""The original must be looked up."""


def moved(state: PulledState, event: PulledEvent) -> PulledState:
    """The state after ``event``. Raises :class:`LocalProtocolError` for what cannot happen."""
    target = TRANSITIONS.get((state, event))
    if target is None:
        raise LocalProtocolError(
            f"{event.name} cannot happen to a pulled message that is {state.name}"
        )
    return target
