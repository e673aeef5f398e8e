"""The states of a message that moves from a remote into a local queue ([MS-MQRR] 3.2.4.4.1).

Theory of operation. R_StartReceive locks the message in its queue and returns a copy. The copy is
stored at this queue manager. Then R_EndReceive removes the original, and the copy becomes a row. If
a connection or process fails in between, either the original or the copy remains:

* Nothing is stored: the lock ends with the connection of this queue manager, and the message stays
  in its queue.
* The copy is stored and End was not sent (``UNSENT``): the original decides. If the original is
  still in its queue, receive it again under the same key. If the original is gone, another reader
  received it, and the copy is discarded.
* End was sent, and no answer came or the answer does not show whether the message was removed
  (``UNANSWERED``): the original decides again, with the opposite meaning. If the original is still
  in its queue, End was not carried out. If the original is gone, End was carried out, and the copy
  is the only one left.

The check for the original must be a **peek** by lookup identifier. A receive answers
MESSAGE_NOT_FOUND also for a locked message, and the lock may belong to an old connection of this
queue manager whose loss the server has not noticed. A reader that trusts this answer duplicates or
loses the message. Before an End is sent, the store therefore records that it will be sent
(``queue_manager/puller/moving_and_copying/sent_marks.py``). A restarted process cannot know whether
an End was sent, and treats a stored copy as ``UNANSWERED``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto


class PulledState(Enum):
    """The states of one message that is moved from a remote queue into a local one."""

    HANDED = auto()
    """The original is locked, and the copy is only in the memory of this process."""
    KEPT = auto()
    """The original is locked, and the copy is stored."""
    ENDING = auto()
    """R_EndReceive was sent, and its answer is awaited."""
    UNSENT = auto()
    """The copy is stored. The lock is lost, and End was never sent or was refused."""
    UNANSWERED = auto()
    """The copy is stored, and End may have been carried out."""
    OURS = auto()
    """The original was removed from its queue, and the stored copy is the only one."""
    VISIBLE = auto()
    """The copy is a row."""
    DROPPED = auto()
    """The copy was discarded: the message is in its queue, or another reader received it."""


class PulledEvent(Enum):
    """The events that change the state of a pulled message."""

    STORED = auto()
    END_SENT = auto()
    END_OK = auto()
    END_REFUSED = auto()
    """The answer belongs to a check before the removal, so this call did not remove the original.
    """
    END_UNCLEAR = auto()
    """The answer is a fault that does not show whether the call was carried out, or a failure that
    may come from the removal itself.
    """
    LOST = auto()
    """The connection was lost, or the lock was lost with its handle."""
    LOCKED_AGAIN = auto()
    """The original was still in its queue, and this queue manager has locked it again."""
    LEFT_THERE = auto()
    """The original is in its queue, and no subscription wants it: the subscription was replaced."""
    HELD_BY_ANOTHER = auto()
    """A peek answered TRANSACTION_USAGE, so another reader holds the original: ask again later."""
    GONE = auto()
    """A peek answered MESSAGE_NOT_FOUND, so the original is gone."""
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
    # The other queue manager has lost its record of the removal, and the copy is no row yet.
    (_S.OURS, _E.LOCKED_AGAIN): _S.KEPT,
}

DOUBTFUL = frozenset({_S.UNSENT, _S.UNANSWERED})
"""States in which the original must be looked up."""
