"""The states of a message that was copied from a remote queue and is then to be moved.

Theory of operation. A copied message has a row here and an original in the remote queue. As long as
the original is there, a reader of the remote queue may still receive it. So a copied row belongs to
the readers here only if this queue manager itself removed the original. A cut-over decides that for
each message by two proofs and by nothing else:

* R_EndReceive of this queue manager was carried out: the message is ``MOVED``, and its row counts.
* A peek by lookup identifier answers that the original is gone, and no End of this queue manager
  was sent: another reader received the message, or it was purged or expired there. The message is
  ``RECEIVED_THERE``, and its row must not be given to a reader here.

An End without an answer (``UNANSWERED``) is decided by the next look at the original, as in
:mod:`.pulled_states`: if the original can be locked again, End was not carried out; if it is gone,
End was carried out. In this one case another reader may have received the message too, between the
loss of the lock and the look.

While a message is only copied and not yet cut over, ``RECEIVED_THERE`` is not the end: a server
that removes a message when it is received, and puts it back when the receiver rolls back, shows the
message again under the same lookup identifier. Then it is ``THERE`` again and makes no second row.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto


class CopiedState(Enum):
    """The states of one message that was copied from a remote queue."""

    THERE = auto()
    """The original is in its queue, as far as is known."""
    ENDING = auto()
    """R_EndReceive was sent for the original, and its answer is awaited."""
    UNANSWERED = auto()
    """R_EndReceive may have been carried out."""
    MOVED = auto()
    """This queue manager removed the original: the row belongs to the readers here."""
    RECEIVED_THERE = auto()
    """Another reader received the original: the row does not belong to the readers here."""


class CopiedEvent(Enum):
    """The events that change the state of a copied message."""

    END_SENT = auto()
    END_OK = auto()
    END_REFUSED = auto()
    """The server checked the call and did not remove the original."""
    END_UNCLEAR = auto()
    """No answer arrived, or the answer does not show whether the original was removed."""
    SHOWN = auto()
    """The server handed the original out: to a lock of this queue manager, or to a walk."""
    GONE = auto()
    """A peek answered that the original is gone."""


_S, _E = CopiedState, CopiedEvent
TRANSITIONS: Mapping[tuple[CopiedState, CopiedEvent], CopiedState] = {
    (_S.THERE, _E.SHOWN): _S.THERE,
    (_S.THERE, _E.END_SENT): _S.ENDING,
    (_S.THERE, _E.GONE): _S.RECEIVED_THERE,
    (_S.ENDING, _E.END_OK): _S.MOVED,
    (_S.ENDING, _E.END_REFUSED): _S.THERE,
    (_S.ENDING, _E.END_UNCLEAR): _S.UNANSWERED,
    (_S.UNANSWERED, _E.SHOWN): _S.THERE,
    (_S.UNANSWERED, _E.GONE): _S.MOVED,
    (_S.RECEIVED_THERE, _E.SHOWN): _S.THERE,
}
