"""The states of a source under flow control: figure 3 of [MS-WSRVCRM] 3.2 as a table.

Theory of operation. An acknowledgement that says 0 stops new messages: POLLING. POLLING_TIMER then asks for another one every
thirty seconds until one says more than 0: NOT_POLLING. One that says nothing of it (-1) changes nothing. The sequence's end
stops the timer; the figure shows no state for that, here it is TERMINATED, which every event leaves as it is, for an
acknowledgement that was on its way may still arrive.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple

from srmp_spark.wsrm.elements import ABSENT


class PollingState(Enum):
    """3.2.1.1, 3.2.1.2, and the end."""

    NOT_POLLING = auto()
    POLLING = auto()
    TERMINATED = auto()


class PollingEvent(Enum):
    """3.2.6 and 3.2.7; SEQ_ACK_RECEIVED is three, by the value of its argument."""

    SEQ_ACK_RECEIVED_ROOM = auto()
    """BufferRemaining is greater than 0."""
    SEQ_ACK_RECEIVED_FULL = auto()
    """It is 0."""
    SEQ_ACK_RECEIVED_SILENT = auto()
    """It is missing: -1."""
    POLLING_TIMER_EXPIRED = auto()
    SEQ_TERMINATED = auto()


class Timer(Enum):
    """What is done about POLLING_TIMER."""

    LEFT = auto()
    STARTED = auto()
    """Reset and started."""
    RESTARTED = auto()
    """Reset and started, and an AckRequested goes out."""
    STOPPED = auto()


class Step(NamedTuple):
    """Where an event leads."""

    state: PollingState
    timer: Timer


_S, _E, _T = PollingState, PollingEvent, Timer
TRANSITIONS: Mapping[tuple[PollingState, PollingEvent], Step] = {
    (_S.NOT_POLLING, _E.SEQ_ACK_RECEIVED_ROOM): Step(_S.NOT_POLLING, _T.LEFT),
    (_S.NOT_POLLING, _E.SEQ_ACK_RECEIVED_FULL): Step(_S.POLLING, _T.STARTED),
    (_S.NOT_POLLING, _E.SEQ_ACK_RECEIVED_SILENT): Step(_S.NOT_POLLING, _T.LEFT),
    (_S.NOT_POLLING, _E.SEQ_TERMINATED): Step(_S.TERMINATED, _T.LEFT),
    (_S.POLLING, _E.SEQ_ACK_RECEIVED_ROOM): Step(_S.NOT_POLLING, _T.STOPPED),
    (_S.POLLING, _E.SEQ_ACK_RECEIVED_FULL): Step(_S.POLLING, _T.LEFT),
    (_S.POLLING, _E.SEQ_ACK_RECEIVED_SILENT): Step(_S.POLLING, _T.LEFT),
    (_S.POLLING, _E.POLLING_TIMER_EXPIRED): Step(_S.POLLING, _T.RESTARTED),
    (_S.POLLING, _E.SEQ_TERMINATED): Step(_S.TERMINATED, _T.STOPPED),
    **{
        (_S.TERMINATED, event): Step(_S.TERMINATED, _T.LEFT)
        for event in _E
        if event is not _E.POLLING_TIMER_EXPIRED
    },
}
"""An absent pair cannot happen: the timer runs in POLLING alone."""


def event_of(buffer_remaining: int) -> PollingEvent:
    """SEQ_ACK_RECEIVED with this argument."""
    if buffer_remaining == ABSENT:
        return PollingEvent.SEQ_ACK_RECEIVED_SILENT
    return (
        PollingEvent.SEQ_ACK_RECEIVED_ROOM
        if buffer_remaining > 0
        else PollingEvent.SEQ_ACK_RECEIVED_FULL
    )
