"""The states of an incoming session.

Theory of operation. A session is ``JOINING`` until a packet tells where its source's window is; that is where we begin. With
OPT_FIN its last number is known (``FINISHING``), and repairs go on until all before it is told. It has ``ENDED`` then, or with
OPT_RST, or when its source fell silent. An ended session is remembered as long as it is heard of, because its SPMs go on for
TXW_SECS: taken for a new session they would begin it once more. A source that is started again under its old TSI ends the
session of its predecessor, or finds it ended; its own is a new one.

[MC-MQSRM] <3> of RFC 3208 9.8.1: with OPT_RST Windows "terminates the session immediately without attempting to recover any
pending data", whatever the N bit says. So do we, and tell what is lost by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from srmp_spark.errors import LocalProtocolError


class SessionState(Enum):
    """Where an incoming session is."""

    JOINING = auto()
    OPEN = auto()
    FINISHING = auto()
    ENDED = auto()


class SessionEvent(Enum):
    """What moves it."""

    WINDOW = auto()
    """The first packet that tells of the window."""
    FIN = auto()
    COMPLETE = auto()
    """All before OPT_FIN is told."""
    RST = auto()
    SILENT = auto()
    ANEW = auto()
    """A successor speaks under its TSI (:mod:`.spm_sequence`)."""


_S, _E = SessionState, SessionEvent
TRANSITIONS: Mapping[tuple[SessionState, SessionEvent], SessionState] = {
    (_S.JOINING, _E.WINDOW): _S.OPEN,
    (_S.JOINING, _E.RST): _S.ENDED,
    (_S.JOINING, _E.SILENT): _S.ENDED,
    (_S.JOINING, _E.ANEW): _S.ENDED,
    (_S.OPEN, _E.FIN): _S.FINISHING,
    (_S.OPEN, _E.RST): _S.ENDED,
    (_S.OPEN, _E.SILENT): _S.ENDED,
    (_S.OPEN, _E.ANEW): _S.ENDED,
    (_S.FINISHING, _E.FIN): _S.FINISHING,
    (_S.FINISHING, _E.COMPLETE): _S.ENDED,
    (_S.FINISHING, _E.RST): _S.ENDED,
    (_S.FINISHING, _E.SILENT): _S.ENDED,
    (_S.FINISHING, _E.ANEW): _S.ENDED,
}
"""An absent pair is our own bug: :class:`~srmp_spark.errors.LocalProtocolError`."""


def moved(state: SessionState, event: SessionEvent) -> SessionState:
    """The next state."""
    found = TRANSITIONS.get((state, event))
    if found is None:
        raise LocalProtocolError(f"{event.name} cannot happen in {state.name}")
    return found
