"""The states of a sequence at its source.

Theory of operation. CreateSequence is repeated under one MessageID until it is answered
(``CREATING``). Then messages are sent (``OPEN``). At the end all messages are acknowledged first
(``ENDING``). In 1.0 a flagged LastMessage is one of them. 1.1 then closes (``CLOSING``) and
terminates (``TERMINATING``), and repeats each step until it is answered. 1.0 sends its one-way
TerminateSequence and is done, because that message has no answer. ``TERMINATED`` is the good end.
``FAILED`` is the other end: the peer sent a fault about this sequence, and only a new sequence
helps.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto


class RmSourceState(Enum):
    """The state of a sequence at its source."""

    CREATING = auto()
    OPEN = auto()
    ENDING = auto()
    CLOSING = auto()
    TERMINATING = auto()
    TERMINATED = auto()
    FAILED = auto()


class RmSourceEvent(Enum):
    """The events that change the state of a sequence at its source."""

    CREATED = auto()
    """CreateSequenceResponse was received from the peer."""
    END = auto()
    """The application has no more messages."""
    ALL_ACKNOWLEDGED = auto()
    """1.1: every message is acknowledged while the state is ENDING."""
    ALL_ACKNOWLEDGED_1_0 = auto()
    CLOSED = auto()
    """CloseSequenceResponse was received from the peer."""
    TERMINATED = auto()
    """TerminateSequenceResponse was received from the peer."""
    FAULT = auto()
    """A fault was received: the peer no longer has the sequence, or never created it.

    Examples are CreateSequenceRefused, UnknownSequence, SequenceTerminated and SequenceClosed.
    """


_S, _E = RmSourceState, RmSourceEvent
TRANSITIONS: Mapping[tuple[RmSourceState, RmSourceEvent], RmSourceState] = {
    (_S.CREATING, _E.CREATED): _S.OPEN,
    (_S.OPEN, _E.END): _S.ENDING,
    (_S.ENDING, _E.ALL_ACKNOWLEDGED): _S.CLOSING,
    (_S.ENDING, _E.ALL_ACKNOWLEDGED_1_0): _S.TERMINATED,
    (_S.CLOSING, _E.CLOSED): _S.TERMINATING,
    (_S.TERMINATING, _E.TERMINATED): _S.TERMINATED,
    **{(state, _E.FAULT): _S.FAILED for state in (_S.CREATING, _S.OPEN, _S.ENDING)},
    # Every message is acknowledged. A peer that no longer has the sequence has already done what
    # CloseSequence and TerminateSequence ask for.
    **{(state, _E.FAULT): _S.TERMINATED for state in (_S.CLOSING, _S.TERMINATING)},
    # Copies that arrive late change nothing.
    **{(state, _E.CREATED): state for state in _S if state is not _S.CREATING},
    **{(state, _E.CLOSED): state for state in _S if state is not _S.CLOSING},
    **{(state, _E.TERMINATED): state for state in _S if state is not _S.TERMINATING},
    **{(state, _E.FAULT): state for state in (_S.TERMINATED, _S.FAILED)},
}
"""Next state, by (state, event).

An absent pair is a bug of this program: :class:`~srmp_spark.errors.LocalProtocolError`.
"""

SENDS_MESSAGES = (RmSourceState.OPEN, RmSourceState.ENDING)
"""States in which numbered messages are sent."""
EXISTS = (
    RmSourceState.OPEN,
    RmSourceState.ENDING,
    RmSourceState.CLOSING,
    RmSourceState.TERMINATING,
)
"""States in which the peer has the sequence, so that an AckRequested has a meaning.

Polling continues until the sequence is terminated (3.2.7.2).
"""
OVER = (RmSourceState.TERMINATED, RmSourceState.FAILED)
