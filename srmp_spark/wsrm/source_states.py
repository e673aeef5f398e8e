"""The states of a sequence at its source.

Theory of operation. CreateSequence is repeated under one MessageID until an answer comes (``CREATING``); then messages flow
(``OPEN``). Whoever ends it lets all be acknowledged first (``ENDING``; in 1.0 a flagged LastMessage is one of them). 1.1 then
closes (``CLOSING``) and terminates (``TERMINATING``), each until it is answered; 1.0 sends its one-way TerminateSequence and is
done, for there is no answer that could be waited for. ``TERMINATED`` is the good end, ``FAILED`` the other: a fault of the peer
about this sequence, after which only a new one helps.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from srmp_spark.errors import LocalProtocolError


class SourceState(Enum):
    """Where a sequence is."""

    CREATING = auto()
    OPEN = auto()
    ENDING = auto()
    CLOSING = auto()
    TERMINATING = auto()
    TERMINATED = auto()
    FAILED = auto()


class SourceEvent(Enum):
    """What moves it."""

    CREATED = auto()
    """CreateSequenceResponse."""
    END = auto()
    """The application has no more messages."""
    ALL_ACKNOWLEDGED = auto()
    """1.1, in ENDING."""
    ALL_ACKNOWLEDGED_1_0 = auto()
    CLOSED = auto()
    """CloseSequenceResponse."""
    TERMINATED = auto()
    """TerminateSequenceResponse."""
    FAULT = auto()
    """CreateSequenceRefused, UnknownSequence, SequenceTerminated, SequenceClosed, …: the peer knows nothing more of it."""


_S, _E = SourceState, SourceEvent
TRANSITIONS: Mapping[tuple[SourceState, SourceEvent], SourceState] = {
    (_S.CREATING, _E.CREATED): _S.OPEN,
    (_S.OPEN, _E.END): _S.ENDING,
    (_S.ENDING, _E.ALL_ACKNOWLEDGED): _S.CLOSING,
    (_S.ENDING, _E.ALL_ACKNOWLEDGED_1_0): _S.TERMINATED,
    (_S.CLOSING, _E.CLOSED): _S.TERMINATING,
    (_S.TERMINATING, _E.TERMINATED): _S.TERMINATED,
    **{(state, _E.FAULT): _S.FAILED for state in (_S.CREATING, _S.OPEN, _S.ENDING)},
    # All is acknowledged: a peer that forgot the sequence meanwhile did what we were about to ask for.
    **{(state, _E.FAULT): _S.TERMINATED for state in (_S.CLOSING, _S.TERMINATING)},
    # Copies that come late change nothing.
    **{(state, _E.CREATED): state for state in _S if state is not _S.CREATING},
    **{(state, _E.CLOSED): state for state in _S if state is not _S.CLOSING},
    **{(state, _E.TERMINATED): state for state in _S if state is not _S.TERMINATING},
    **{(state, _E.FAULT): state for state in (_S.TERMINATED, _S.FAILED)},
}
"""An absent pair is our own bug: :class:`~srmp_spark.errors.LocalProtocolError`."""

SENDS_MESSAGES = (SourceState.OPEN, SourceState.ENDING)
"""Where numbered messages leave."""
EXISTS = (SourceState.OPEN, SourceState.ENDING, SourceState.CLOSING, SourceState.TERMINATING)
"""Where the peer has the sequence, so that an AckRequested has a meaning: polling goes on until it is terminated (3.2.7.2)."""
OVER = (SourceState.TERMINATED, SourceState.FAILED)


def moved(state: SourceState, event: SourceEvent) -> SourceState:
    """The next state."""
    found = TRANSITIONS.get((state, event))
    if found is None:
        raise LocalProtocolError(f"{event.name} cannot happen in {state.name}")
    return found
