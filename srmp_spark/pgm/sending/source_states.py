"""The states of a source, in one table.

Theory of operation. ``OPEN`` accepts APDUs. After ``close`` the waiting APDUs are sent first
(``DRAINING``). Then every SPM carries OPT_FIN, the first one at once, and NAKs are answered for
TXW_SECS more (``FINISHING``, RFC 3208 9.7.2). After ``reset`` the waiting APDUs and the pending
repairs are discarded. Every SPM then carries OPT_RST with the N bit for TXW_SECS, "and subsequent
NAKs are not processed" (``RESETTING``, [MC-MQSRM] <3> of 9.8.2). Finally the source is ``CLOSED``
and sends nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto


class PgmSourceState(Enum):
    """State of one multicast source."""

    OPEN = auto()
    DRAINING = auto()
    FINISHING = auto()
    RESETTING = auto()
    CLOSED = auto()


class PgmSourceEvent(Enum):
    """Events that change the state of a source."""

    SEND = auto()
    """The application queues an APDU."""
    CLOSE = auto()
    DRAINED = auto()
    """The last waiting ODATA was sent."""
    RESET = auto()
    EXPIRED = auto()
    """TXW_SECS passed since the first OPT_FIN or OPT_RST."""


_S, _E = PgmSourceState, PgmSourceEvent
TRANSITIONS: Mapping[tuple[PgmSourceState, PgmSourceEvent], PgmSourceState] = {
    (_S.OPEN, _E.SEND): _S.OPEN,
    (_S.OPEN, _E.CLOSE): _S.DRAINING,
    (_S.OPEN, _E.RESET): _S.RESETTING,
    (_S.DRAINING, _E.CLOSE): _S.DRAINING,
    (_S.DRAINING, _E.DRAINED): _S.FINISHING,
    (_S.DRAINING, _E.RESET): _S.RESETTING,
    (_S.FINISHING, _E.CLOSE): _S.FINISHING,
    (_S.FINISHING, _E.RESET): _S.RESETTING,
    (_S.FINISHING, _E.EXPIRED): _S.CLOSED,
    (_S.RESETTING, _E.CLOSE): _S.RESETTING,
    (_S.RESETTING, _E.RESET): _S.RESETTING,
    (_S.RESETTING, _E.EXPIRED): _S.CLOSED,
    (_S.CLOSED, _E.CLOSE): _S.CLOSED,
    (_S.CLOSED, _E.RESET): _S.CLOSED,
}
"""The next state for each state and event.

A missing pair is a bug of this program or of the application and raises
:class:`~srmp_spark.errors.LocalProtocolError`.
"""

ANSWERS = (PgmSourceState.OPEN, PgmSourceState.DRAINING, PgmSourceState.FINISHING)
"""States in which NAKs are answered."""
ENDING = (PgmSourceState.FINISHING, PgmSourceState.RESETTING)
"""States in which SPMs announce the end of the session."""
