"""The states of an incoming session, in one table.

Theory of operation. A session is ``JOINING`` until a packet states the window of its source; the
session begins at that window. OPT_FIN states the last number (``FINISHING``), and repairs continue
until all data before it are delivered or reported as lost. Then the session is ``ENDED``. OPT_RST
and a silent source end a session too. An ended session is remembered while packets of its source
are received, because its SPMs continue for TXW_SECS and would otherwise begin a new session. A
source that was restarted under its old TSI ends the session of its predecessor, or finds it ended.
The restarted source gets a new session.

[MC-MQSRM] <3> of RFC 3208 9.8.1: with OPT_RST Windows "terminates the session immediately without
attempting to recover any pending data", whatever the N bit is. This code does the same and reports
the losses.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto


class SessionState(Enum):
    """State of one incoming session."""

    JOINING = auto()
    OPEN = auto()
    FINISHING = auto()
    ENDED = auto()


class SessionEvent(Enum):
    """Events that change the state of an incoming session."""

    WINDOW = auto()
    """The first packet that states the window was received."""
    FIN = auto()
    COMPLETE = auto()
    """All data before OPT_FIN were delivered or reported as lost."""
    RST = auto()
    SILENT = auto()
    ANEW = auto()
    """A restarted source sends under the same TSI (:mod:`.spm_sequence`)."""


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
"""The next state for each state and event.

A missing pair is a bug of this program and raises :class:`~srmp_spark.errors.LocalProtocolError`.
"""
