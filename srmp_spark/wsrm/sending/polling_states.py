"""The states of a source under flow control: figure 3 of [MS-WSRVCRM] 3.2 as a table.

Theory of operation. An acknowledgement with the value 0 stops new messages: POLLING. POLLING_TIMER
then requests another acknowledgement every thirty seconds, until the value is above 0: NOT_POLLING.
An acknowledgement without a value (-1) changes nothing. The end of the sequence stops the timer.
The figure shows no state for the end. In this table that state is TERMINATED, which no event
leaves, because an acknowledgement in flight may still arrive.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple

from srmp_spark.wsrm.codec.elements import ABSENT


class PollingState(Enum):
    """The states of a source under flow control: those of 3.2.1.1 and 3.2.1.2, and the end."""

    NOT_POLLING = auto()
    POLLING = auto()
    TERMINATED = auto()


class PollingEvent(Enum):
    """The events of 3.2.6 and 3.2.7. SEQ_ACK_RECEIVED is three events, by its argument."""

    SEQ_ACK_RECEIVED_ROOM = auto()
    """An acknowledgement whose BufferRemaining is greater than 0."""
    SEQ_ACK_RECEIVED_FULL = auto()
    """An acknowledgement whose BufferRemaining is 0."""
    SEQ_ACK_RECEIVED_SILENT = auto()
    """An acknowledgement without BufferRemaining (value -1)."""
    POLLING_TIMER_EXPIRED = auto()
    SEQ_TERMINATED = auto()


class Timer(Enum):
    """The action on POLLING_TIMER that an event causes."""

    LEFT = auto()
    STARTED = auto()
    """The timer is set to its interval and started."""
    RESTARTED = auto()
    """The timer is set to its interval and started again, and an AckRequested is sent."""
    STOPPED = auto()


class PollingStep(NamedTuple):
    """The next state of the source, and the action on POLLING_TIMER."""

    state: PollingState
    timer: Timer


_S, _E, _T = PollingState, PollingEvent, Timer
TRANSITIONS: Mapping[tuple[PollingState, PollingEvent], PollingStep] = {
    (_S.NOT_POLLING, _E.SEQ_ACK_RECEIVED_ROOM): PollingStep(_S.NOT_POLLING, _T.LEFT),
    (_S.NOT_POLLING, _E.SEQ_ACK_RECEIVED_FULL): PollingStep(_S.POLLING, _T.STARTED),
    (_S.NOT_POLLING, _E.SEQ_ACK_RECEIVED_SILENT): PollingStep(_S.NOT_POLLING, _T.LEFT),
    (_S.NOT_POLLING, _E.SEQ_TERMINATED): PollingStep(_S.TERMINATED, _T.LEFT),
    (_S.POLLING, _E.SEQ_ACK_RECEIVED_ROOM): PollingStep(_S.NOT_POLLING, _T.STOPPED),
    (_S.POLLING, _E.SEQ_ACK_RECEIVED_FULL): PollingStep(_S.POLLING, _T.LEFT),
    (_S.POLLING, _E.SEQ_ACK_RECEIVED_SILENT): PollingStep(_S.POLLING, _T.LEFT),
    (_S.POLLING, _E.POLLING_TIMER_EXPIRED): PollingStep(_S.POLLING, _T.RESTARTED),
    (_S.POLLING, _E.SEQ_TERMINATED): PollingStep(_S.TERMINATED, _T.STOPPED),
    **{
        (_S.TERMINATED, event): PollingStep(_S.TERMINATED, _T.LEFT)
        for event in _E
        if event is not _E.POLLING_TIMER_EXPIRED
    },
}
"""Next state and action on the timer, by (state, event).

An absent pair cannot happen, because the timer runs in POLLING alone.
"""


def event_of(buffer_remaining: int) -> PollingEvent:
    """Return the event for SEQ_ACK_RECEIVED with this value of BufferRemaining."""
    if buffer_remaining == ABSENT:
        return PollingEvent.SEQ_ACK_RECEIVED_SILENT
    return (
        PollingEvent.SEQ_ACK_RECEIVED_ROOM
        if buffer_remaining > 0
        else PollingEvent.SEQ_ACK_RECEIVED_FULL
    )
