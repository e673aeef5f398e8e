"""The states of a sequence at its source (WS-ReliableMessaging 1.1 sections 3.4 to 3.6).

Theory of operation. ``CREATING`` asks for a sequence until it has one. ``OPEN`` sends. When the application has no more and
all is acknowledged, 1.1 closes the sequence first (``CLOSING``), 1.0 says so by its last message; then it is terminated
(``TERMINATING``) and is ``OVER``. A sequence that the destination gives up or does not know any more has ``FAILED``: what was
not acknowledged is in doubt. That cannot happen behind ``OPEN``, for everything is acknowledged there: a sequence that is gone
then is as good as ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from srmp_spark.errors import LocalProtocolError


class SourceState(Enum):
    """Where an outgoing sequence is."""

    CREATING = auto()
    OPEN = auto()
    CLOSING = auto()
    TERMINATING = auto()
    OVER = auto()
    FAILED = auto()


class SourceEvent(Enum):
    """What moves it."""

    CREATED = auto()
    """CreateSequenceResponse."""
    CLOSE = auto()
    """1.1: everything is acknowledged, and nothing more will come."""
    TERMINATE = auto()
    """1.1: the sequence is closed. 1.0: everything is acknowledged, the last message included."""
    ENDED = auto()
    """The end is confirmed, or was asked for often enough."""
    GONE = auto()
    """The destination refused it, gave it up, or does not know it."""


_S, _E = SourceState, SourceEvent
TRANSITIONS: Mapping[tuple[SourceState, SourceEvent], SourceState] = {
    (_S.CREATING, _E.CREATED): _S.OPEN,
    (_S.CREATING, _E.GONE): _S.FAILED,
    (_S.OPEN, _E.CLOSE): _S.CLOSING,
    (_S.OPEN, _E.TERMINATE): _S.TERMINATING,
    (_S.OPEN, _E.GONE): _S.FAILED,
    (_S.CLOSING, _E.TERMINATE): _S.TERMINATING,
    (_S.CLOSING, _E.GONE): _S.OVER,
    (_S.TERMINATING, _E.ENDED): _S.OVER,
    (_S.TERMINATING, _E.GONE): _S.OVER,
}
"""An absent pair is our own bug: :class:`LocalProtocolError`."""

ENDS = (SourceState.OVER, SourceState.FAILED)
"""Where nothing is sent and nothing waited for."""


def moved(state: SourceState, event: SourceEvent) -> SourceState:
    """The next state."""
    found = TRANSITIONS.get((state, event))
    if found is None:
        raise LocalProtocolError(f"{event.name} cannot happen in {state.name}")
    return found
