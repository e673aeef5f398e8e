"""The states of a source.

Theory of operation. ``OPEN`` takes APDUs. Whoever closes it lets what waits leave first (``DRAINING``); then every SPM carries
OPT_FIN, the first of them at once, and NAKs are answered for TXW_SECS more (``FINISHING``, RFC 3208 9.7.2). Whoever resets it
drops what waits and what could be repaired: every SPM carries OPT_RST with the N bit, "and subsequent NAKs are not processed"
(``RESETTING``, [MC-MQSRM] <3> of 9.8.2), for TXW_SECS too. Then it is ``CLOSED`` and says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto


class SourceState(Enum):
    """Where a source is."""

    OPEN = auto()
    DRAINING = auto()
    FINISHING = auto()
    RESETTING = auto()
    CLOSED = auto()


class SourceEvent(Enum):
    """What moves it."""

    SEND = auto()
    """An APDU of the application."""
    CLOSE = auto()
    DRAINED = auto()
    """The last ODATA left."""
    RESET = auto()
    EXPIRED = auto()
    """TXW_SECS after the first OPT_FIN or OPT_RST."""


_S, _E = SourceState, SourceEvent
TRANSITIONS: Mapping[tuple[SourceState, SourceEvent], SourceState] = {
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
"""An absent pair is our own bug, or the application's: :class:`~srmp_spark.errors.LocalProtocolError`."""

ANSWERS = (SourceState.OPEN, SourceState.DRAINING, SourceState.FINISHING)
"""Where NAKs are answered."""
ENDING = (SourceState.FINISHING, SourceState.RESETTING)
"""Where the end is announced."""
