"""The states of a sequence at its destination, and the reaction to each message.

Theory of operation. ``OPEN`` accepts messages. CloseSequence (1.1) leads to ``CLOSED``: no new
message is accepted, and every acknowledgement is final. TerminateSequence, the end of its life
(Expires) and too long a silence lead to ``TERMINATED``. A terminated sequence is kept for a while,
so that clients get the right answer, and is then forgotten. A sequence that is not in the table is
``UNKNOWN``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple


class InboundState(Enum):
    """The state of a sequence at its destination."""

    OPEN = auto()
    CLOSED = auto()
    TERMINATED = auto()
    UNKNOWN = auto()


class InboundEvent(Enum):
    """The events that change the state of a sequence at its destination."""

    NEW_MESSAGE = auto()
    """A message whose number the sequence does not have."""
    KNOWN_MESSAGE = auto()
    """A copy of a message that the sequence has accepted or holds."""
    ACK_REQUESTED = auto()
    CLOSE_SEQUENCE = auto()
    TERMINATE_SEQUENCE = auto()
    TIME_IS_OVER = auto()
    """Expires or the inactivity timeout has passed.

    For a TERMINATED sequence, the time that it is kept has passed.
    """


class Reaction(Enum):
    """What the destination does about one event: exactly one of these.

    The three reactions with SEQUENCE in their names are faults.
    """

    TAKE = auto()
    """Deliver the message in its turn, and acknowledge."""
    ACKNOWLEDGE = auto()
    ANSWER = auto()
    """Answer with CloseSequenceResponse or TerminateSequenceResponse."""
    SEQUENCE_CLOSED = auto()
    SEQUENCE_TERMINATED = auto()
    UNKNOWN_SEQUENCE = auto()
    NOTHING = auto()


class InboundStep(NamedTuple):
    """The next state of a sequence, and the reaction to the event."""

    state: InboundState
    reaction: Reaction


_S, _E, _R = InboundState, InboundEvent, Reaction
TRANSITIONS: Mapping[tuple[InboundState, InboundEvent], InboundStep] = {
    (_S.OPEN, _E.NEW_MESSAGE): InboundStep(_S.OPEN, _R.TAKE),
    (_S.OPEN, _E.KNOWN_MESSAGE): InboundStep(_S.OPEN, _R.ACKNOWLEDGE),
    (_S.OPEN, _E.ACK_REQUESTED): InboundStep(_S.OPEN, _R.ACKNOWLEDGE),
    (_S.OPEN, _E.CLOSE_SEQUENCE): InboundStep(_S.CLOSED, _R.ANSWER),
    (_S.OPEN, _E.TERMINATE_SEQUENCE): InboundStep(_S.TERMINATED, _R.ANSWER),
    (_S.OPEN, _E.TIME_IS_OVER): InboundStep(_S.TERMINATED, _R.NOTHING),
    (_S.CLOSED, _E.NEW_MESSAGE): InboundStep(_S.CLOSED, _R.SEQUENCE_CLOSED),
    (_S.CLOSED, _E.KNOWN_MESSAGE): InboundStep(_S.CLOSED, _R.ACKNOWLEDGE),
    (_S.CLOSED, _E.ACK_REQUESTED): InboundStep(_S.CLOSED, _R.ACKNOWLEDGE),
    (_S.CLOSED, _E.CLOSE_SEQUENCE): InboundStep(_S.CLOSED, _R.ANSWER),
    (_S.CLOSED, _E.TERMINATE_SEQUENCE): InboundStep(_S.TERMINATED, _R.ANSWER),
    (_S.CLOSED, _E.TIME_IS_OVER): InboundStep(_S.TERMINATED, _R.NOTHING),
    (_S.TERMINATED, _E.NEW_MESSAGE): InboundStep(_S.TERMINATED, _R.SEQUENCE_TERMINATED),
    (_S.TERMINATED, _E.KNOWN_MESSAGE): InboundStep(_S.TERMINATED, _R.SEQUENCE_TERMINATED),
    (_S.TERMINATED, _E.ACK_REQUESTED): InboundStep(_S.TERMINATED, _R.SEQUENCE_TERMINATED),
    (_S.TERMINATED, _E.CLOSE_SEQUENCE): InboundStep(_S.TERMINATED, _R.SEQUENCE_TERMINATED),
    (_S.TERMINATED, _E.TERMINATE_SEQUENCE): InboundStep(_S.TERMINATED, _R.ANSWER),
    (_S.TERMINATED, _E.TIME_IS_OVER): InboundStep(_S.UNKNOWN, _R.NOTHING),
    **{
        (_S.UNKNOWN, event): InboundStep(_S.UNKNOWN, _R.UNKNOWN_SEQUENCE)
        for event in _E
        if event is not _E.TIME_IS_OVER
    },
}
"""Next state and reaction, by (state, event).

An absent pair is a bug of this program: an unknown sequence has no time that could be over.
"""
