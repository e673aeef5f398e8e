"""The states of a sequence at its destination (WS-ReliableMessaging 1.1 sections 3.5 and 3.6; 1.0 has no CloseSequence).

Theory of operation. ``OPEN`` takes messages. ``CLOSED`` takes no new ones and says what it holds for good (``Final``).
``TERMINATED`` is kept for a while, because the answer to TerminateSequence may be lost and asked for again. A sequence whose
time is over, or that nobody used, is terminated by ourselves. No event is impossible: a peer can send anything at any time.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto


class SequenceState(Enum):
    """Where an incoming sequence is."""

    OPEN = auto()
    CLOSED = auto()
    TERMINATED = auto()


class SequenceEvent(Enum):
    """What moves it."""

    MESSAGE = auto()
    ACK_REQUESTED = auto()
    CLOSE = auto()
    """CloseSequence."""
    TERMINATE = auto()
    """TerminateSequence."""
    TIME_OVER = auto()
    """Expires, or nobody used it."""


_S, _E = SequenceState, SequenceEvent
TRANSITIONS: Mapping[tuple[SequenceState, SequenceEvent], SequenceState] = {
    **{(state, event): state for state in _S for event in (_E.MESSAGE, _E.ACK_REQUESTED)},
    (_S.OPEN, _E.CLOSE): _S.CLOSED,
    (_S.CLOSED, _E.CLOSE): _S.CLOSED,
    (_S.TERMINATED, _E.CLOSE): _S.TERMINATED,
    **{(state, event): _S.TERMINATED for state in _S for event in (_E.TERMINATE, _E.TIME_OVER)},
}
"""Every pair is there."""
