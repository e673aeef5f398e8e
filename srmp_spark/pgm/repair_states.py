"""The states of a missing number at a receiver: the drawing of RFC 3208 6.3 as a table.

Theory of operation. A number that is found missing waits a random NAK_RB_IVL (``BACK_OFF``): it may only be late, and another
receiver may ask first. Then we ask, and wait NAK_RPT_IVL for a confirmation (``WAIT_NCF``), and once it is confirmed
NAK_RDATA_IVL for the data (``WAIT_DATA``). Whatever does not come in time begins anew with another back-off, at most
NAK_NCF_RETRIES and NAK_DATA_RETRIES times. A NAK of somebody else counts as our own, and an NCF is for all who wait.

Where we add to the drawing: ``HELD`` (the RFC forbids a NAK before the first SPM, and a limit forbids too many), and an end of
all waiting after ``repair_secs``, because each NCF and NAK that is heard begins the wait anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from srmp_spark.errors import LocalProtocolError


class RepairState(Enum):
    """BACK-OFF_STATE, WAIT_NCF_STATE, WAIT_DATA_STATE, and the two ends."""

    BACK_OFF = auto()
    WAIT_NCF = auto()
    WAIT_DATA = auto()
    LOST = auto()
    """"Cancelation": it is told as lost when its turn comes, unless it arrives after all."""
    RECEIVED = auto()


class RepairEvent(Enum):
    """What moves it."""

    TIMER = auto()
    HELD = auto()
    """The time to ask has come, and we may not."""
    NAK = auto()
    """"matching NAK", of another receiver."""
    NCF = auto()
    DATA = auto()
    """ODATA or RDATA."""
    EXHAUSTED = auto()
    """"NAK_NCF_RETRIES exceeded", "NAK_DATA_RETRIES exceeded", or ``repair_secs`` over."""
    GONE = auto()
    """It cannot be asked for any more: the window moved on, the session ended."""


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
"""An absent pair is our own bug: :class:`~srmp_spark.errors.LocalProtocolError`."""


def moved(state: RepairState, event: RepairEvent) -> RepairState:
    """The next state."""
    found = TRANSITIONS.get((state, event))
    if found is None:
        raise LocalProtocolError(f"{event.name} cannot happen in {state.name}")
    return found
