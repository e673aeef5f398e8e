"""The states of a missing number at a receiver: the diagram of RFC 3208 6.3 as a table.

Theory of operation. A number that is found missing waits a random NAK_RB_IVL (``BACK_OFF``): it may
only be late, or another receiver may request it first. Then the receiver sends a NAK and waits
NAK_RPT_IVL for a confirmation (``WAIT_NCF``). After the confirmation it waits NAK_RDATA_IVL for the
data (``WAIT_DATA``). If one of the two does not arrive in time, another back-off begins, at most
NAK_NCF_RETRIES and NAK_DATA_RETRIES times. A NAK of another receiver counts like one of this
receiver, and an NCF counts for all receivers that wait.

The table adds two things to the diagram. ``HELD``: the RFC forbids a NAK before the first SPM, and
a limit forbids too many. And all waiting ends after ``repair_secs``, because each NCF and NAK that
is received restarts the wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto


class RepairState(Enum):
    """State of one missing number: those of RFC 3208 6.3, and the two final states.

    The RFC has BACK-OFF_STATE, WAIT_NCF_STATE and WAIT_DATA_STATE.
    """

    BACK_OFF = auto()
    WAIT_NCF = auto()
    WAIT_DATA = auto()
    LOST = auto()
    """The number is reported as lost in its turn, unless its data arrive before.

    RFC 3208 calls this "Cancelation".
    """
    RECEIVED = auto()


class RepairEvent(Enum):
    """Events that change the state of a missing number."""

    TIMER = auto()
    HELD = auto()
    """A NAK is due but not allowed yet, because no SPM was received or too many NAKs were sent."""
    NAK = auto()
    """A "matching NAK" of another receiver was received."""
    NCF = auto()
    DATA = auto()
    """ODATA or RDATA of this number was received."""
    EXHAUSTED = auto()
    """Too many retries were made, or ``repair_secs`` passed.

    RFC 3208: "NAK_NCF_RETRIES exceeded", "NAK_DATA_RETRIES exceeded".
    """
    GONE = auto()
    """The number can no longer be requested: the window moved on, or the session ended."""


_S, _E = RepairState, RepairEvent
TRANSITIONS: Mapping[tuple[RepairState, RepairEvent], RepairState] = {
    (_S.BACK_OFF, _E.TIMER): _S.WAIT_NCF,
    (_S.BACK_OFF, _E.HELD): _S.BACK_OFF,
    (_S.BACK_OFF, _E.NAK): _S.WAIT_NCF,
    (_S.BACK_OFF, _E.NCF): _S.WAIT_DATA,
    (_S.WAIT_NCF, _E.TIMER): _S.BACK_OFF,
    (_S.WAIT_NCF, _E.NAK): _S.WAIT_NCF,
    (_S.WAIT_NCF, _E.NCF): _S.WAIT_DATA,
    (_S.WAIT_DATA, _E.TIMER): _S.BACK_OFF,
    (_S.WAIT_DATA, _E.NAK): _S.WAIT_DATA,
    (_S.WAIT_DATA, _E.NCF): _S.WAIT_DATA,
    (_S.LOST, _E.NAK): _S.LOST,
    (_S.LOST, _E.NCF): _S.LOST,
    (_S.LOST, _E.GONE): _S.LOST,
    **{(state, _E.DATA): _S.RECEIVED for state in _S if state is not _S.RECEIVED},
    **{(state, _E.EXHAUSTED): _S.LOST for state in (_S.BACK_OFF, _S.WAIT_NCF, _S.WAIT_DATA)},
    **{(state, _E.GONE): _S.LOST for state in (_S.BACK_OFF, _S.WAIT_NCF, _S.WAIT_DATA)},
}
"""The next state for each state and event.

A missing pair is a bug of this program and raises :class:`~srmp_spark.errors.LocalProtocolError`.
"""
