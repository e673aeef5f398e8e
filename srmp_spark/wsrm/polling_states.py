"""The states of a source under flow control: [MS-WSRVCRM] 3.2 as a table.

Theory of operation. BufferRemaining 0 stops new messages (``POLLING``); what was sent before may be sent again. The
acknowledgement that says there is room may be lost, and a destination need not repeat it, so the source asks for one whenever
POLLING_TIMER expires, until one says more than 0. An acknowledgement without BufferRemaining changes nothing: whoever does not
know the extension cannot stop us, and cannot start us either. 3.2.7.2 stops the timer when the sequence is terminated and
names no state for it; ours is ``OVER``, where what comes late has no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from srmp_spark.errors import LocalProtocolError
from srmp_spark.wsrm.elements import ABSENT


class PollingState(Enum):
    """3.2.1."""

    NOT_POLLING = auto()
    POLLING = auto()
    OVER = auto()
    """The sequence is terminated."""


class PollingEvent(Enum):
    """What moves it: SEQ_ACK_RECEIVED by its argument, SEQ_TERMINATED, POLLING_TIMER_EXPIRED."""

    SEQ_ACK_RECEIVED_ABOVE_0 = auto()
    SEQ_ACK_RECEIVED_0 = auto()
    SEQ_ACK_RECEIVED_ABSENT = auto()
    SEQ_TERMINATED = auto()
    POLLING_TIMER_EXPIRED = auto()


_S, _E = PollingState, PollingEvent
TRANSITIONS: Mapping[tuple[PollingState, PollingEvent], PollingState] = {
    (_S.NOT_POLLING, _E.SEQ_ACK_RECEIVED_ABOVE_0): _S.NOT_POLLING,
    (_S.NOT_POLLING, _E.SEQ_ACK_RECEIVED_0): _S.POLLING,
    (_S.NOT_POLLING, _E.SEQ_ACK_RECEIVED_ABSENT): _S.NOT_POLLING,
    (_S.NOT_POLLING, _E.SEQ_TERMINATED): _S.OVER,
    (_S.POLLING, _E.SEQ_ACK_RECEIVED_ABOVE_0): _S.NOT_POLLING,
    (_S.POLLING, _E.SEQ_ACK_RECEIVED_0): _S.POLLING,
    (_S.POLLING, _E.SEQ_ACK_RECEIVED_ABSENT): _S.POLLING,
    (_S.POLLING, _E.SEQ_TERMINATED): _S.OVER,
    (_S.POLLING, _E.POLLING_TIMER_EXPIRED): _S.POLLING,
    (_S.OVER, _E.SEQ_ACK_RECEIVED_ABOVE_0): _S.OVER,
    (_S.OVER, _E.SEQ_ACK_RECEIVED_0): _S.OVER,
    (_S.OVER, _E.SEQ_ACK_RECEIVED_ABSENT): _S.OVER,
    (_S.OVER, _E.SEQ_TERMINATED): _S.OVER,
}
"""An absent pair (the timer expires where it does not run) is our own bug: :class:`LocalProtocolError`."""


def moved(state: PollingState, event: PollingEvent) -> PollingState:
    """The next state."""
    found = TRANSITIONS.get((state, event))
    if found is None:
        raise LocalProtocolError(f"{event.name} cannot happen in {state.name}")
    return found


def seq_ack_received(buffer_remaining: int) -> PollingEvent:
    """SEQ_ACK_RECEIVED with its argument, -1 if the acknowledgement had no BufferRemaining (3.2.7.1)."""
    if buffer_remaining == ABSENT:
        return PollingEvent.SEQ_ACK_RECEIVED_ABSENT
    return PollingEvent.SEQ_ACK_RECEIVED_ABOVE_0 if buffer_remaining > 0 else PollingEvent.SEQ_ACK_RECEIVED_0


class Polling:
    """State and POLLING_TIMER of one outgoing sequence. Times are monotonic seconds."""

    __slots__ = ("deadline", "interval", "state")

    def __init__(self, interval: float, state: PollingState = PollingState.NOT_POLLING, now: float = 0.0) -> None:
        """3.2.3. A source that was polling when it ended goes on with it: the room may have been told meanwhile, and lost."""
        self.interval = interval
        self.state = state
        self.deadline: float | None = now + interval if state is PollingState.POLLING else None

    def acknowledged(self, buffer_remaining: int, now: float) -> None:
        """SEQ_ACK_RECEIVED."""
        before = self.state
        self.state = moved(before, seq_ack_received(buffer_remaining))
        if self.state is not PollingState.POLLING:
            self.deadline = None
        elif before is not PollingState.POLLING:
            self.deadline = now + self.interval

    def terminated(self) -> None:
        """SEQ_TERMINATED."""
        self.state = moved(self.state, PollingEvent.SEQ_TERMINATED)
        self.deadline = None

    def expired(self, now: float) -> bool:
        """Whether POLLING_TIMER has expired, and AckRequested must go out; the timer runs anew then (3.2.6.1)."""
        if self.deadline is None or now < self.deadline:
            return False
        self.state = moved(self.state, PollingEvent.POLLING_TIMER_EXPIRED)
        self.deadline = now + self.interval
        return True
