"""The states of a sequence at its destination, and what is done about each message of it.

Theory of operation. ``OPEN`` takes messages. CloseSequence (1.1) makes it ``CLOSED``: nothing new is taken, and every
acknowledgement is final. TerminateSequence, a life that is over (Expires) and a silence that lasted too long make it
``TERMINATED``: it is still known for a while, to say so, and then forgotten. A sequence that nobody knows is ``UNKNOWN``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple


class InboundState(Enum):
    """Where a sequence is."""

    OPEN = auto()
    CLOSED = auto()
    TERMINATED = auto()
    UNKNOWN = auto()


class InboundEvent(Enum):
    """What moves it."""

    NEW_MESSAGE = auto()
    """A number that it does not have."""
    KNOWN_MESSAGE = auto()
    """A copy."""
    ACK_REQUESTED = auto()
    CLOSE_SEQUENCE = auto()
    TERMINATE_SEQUENCE = auto()
    TIME_IS_OVER = auto()
    """Expires, or the inactivity timeout; for one that is TERMINATED, the time that it is kept."""


class Reaction(Enum):
    """What is done."""

    TAKE = auto()
    """Deliver it in its turn, and acknowledge."""
    ACKNOWLEDGE = auto()
    ANSWER = auto()
    """CloseSequenceResponse, TerminateSequenceResponse."""
    SEQUENCE_CLOSED = auto()
    SEQUENCE_TERMINATED = auto()
    UNKNOWN_SEQUENCE = auto()
    NOTHING = auto()


class Step(NamedTuple):
    """Where an event leads."""

    state: InboundState
    reaction: Reaction


_S, _E, _R = InboundState, InboundEvent, Reaction
TRANSITIONS: Mapping[tuple[InboundState, InboundEvent], Step] = {
    (_S.OPEN, _E.NEW_MESSAGE): Step(_S.OPEN, _R.TAKE),
    (_S.OPEN, _E.KNOWN_MESSAGE): Step(_S.OPEN, _R.ACKNOWLEDGE),
    (_S.OPEN, _E.ACK_REQUESTED): Step(_S.OPEN, _R.ACKNOWLEDGE),
    (_S.OPEN, _E.CLOSE_SEQUENCE): Step(_S.CLOSED, _R.ANSWER),
    (_S.OPEN, _E.TERMINATE_SEQUENCE): Step(_S.TERMINATED, _R.ANSWER),
    (_S.OPEN, _E.TIME_IS_OVER): Step(_S.TERMINATED, _R.NOTHING),
    (_S.CLOSED, _E.NEW_MESSAGE): Step(_S.CLOSED, _R.SEQUENCE_CLOSED),
    (_S.CLOSED, _E.KNOWN_MESSAGE): Step(_S.CLOSED, _R.ACKNOWLEDGE),
    (_S.CLOSED, _E.ACK_REQUESTED): Step(_S.CLOSED, _R.ACKNOWLEDGE),
    (_S.CLOSED, _E.CLOSE_SEQUENCE): Step(_S.CLOSED, _R.ANSWER),
    (_S.CLOSED, _E.TERMINATE_SEQUENCE): Step(_S.TERMINATED, _R.ANSWER),
    (_S.CLOSED, _E.TIME_IS_OVER): Step(_S.TERMINATED, _R.NOTHING),
    (_S.TERMINATED, _E.NEW_MESSAGE): Step(_S.TERMINATED, _R.SEQUENCE_TERMINATED),
    (_S.TERMINATED, _E.KNOWN_MESSAGE): Step(_S.TERMINATED, _R.SEQUENCE_TERMINATED),
    (_S.TERMINATED, _E.ACK_REQUESTED): Step(_S.TERMINATED, _R.SEQUENCE_TERMINATED),
    (_S.TERMINATED, _E.CLOSE_SEQUENCE): Step(_S.TERMINATED, _R.SEQUENCE_TERMINATED),
    (_S.TERMINATED, _E.TERMINATE_SEQUENCE): Step(_S.TERMINATED, _R.ANSWER),
    (_S.TERMINATED, _E.TIME_IS_OVER): Step(_S.UNKNOWN, _R.NOTHING),
    **{
        (_S.UNKNOWN, event): Step(_S.UNKNOWN, _R.UNKNOWN_SEQUENCE)
        for event in _E
        if event is not _E.TIME_IS_OVER
    },
}
"""An absent pair is our own bug: what is not known has no time that could be over."""
