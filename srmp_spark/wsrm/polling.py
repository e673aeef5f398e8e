"""Flow control of one sequence at its source: the state of :mod:`.polling_states`, its timer, and the quota in flight.

The text lets a source send freely after any value above 0; whoever does so overruns a destination with room for five by all
that it has. So a value is a quota, as in WCF: of it, as many new messages are sent as are not on their way already. That is the
stricter reading and breaks no rule.
"""

from __future__ import annotations

from srmp_spark.errors import LocalProtocolError
from srmp_spark.wsrm.elements import ABSENT
from srmp_spark.wsrm.limits import POLL_INTERVAL
from srmp_spark.wsrm.polling_states import TRANSITIONS, PollingEvent, PollingState, Timer, event_of


class Polling:
    """3.2 of [MS-WSRVCRM] for one sequence. ``interval`` are the seconds of POLLING_TIMER."""

    __slots__ = ("buffer_remaining", "interval", "state", "timer_at")

    def __init__(self, interval: float = POLL_INTERVAL) -> None:
        self.interval = interval
        self.state = PollingState.NOT_POLLING
        self.timer_at: float | None = None
        """When POLLING_TIMER expires; ``None``: it is not started."""
        self.buffer_remaining = ABSENT
        """The last value that was heard."""

    @classmethod
    def restored(
        cls, buffer_remaining: int, now: float, interval: float = POLL_INTERVAL
    ) -> Polling:
        """After a restart. Whoever was polling asks at once: what was said meanwhile went unheard."""
        polling = cls(interval)
        polling.seq_ack_received(buffer_remaining, now)
        if polling.timer_at is not None:
            polling.timer_at = now
        return polling

    def allows(self, in_flight: int) -> bool:
        """May a new message be sent while so many are on their way?"""
        if self.state is not PollingState.NOT_POLLING:
            return False
        return self.buffer_remaining == ABSENT or in_flight < self.buffer_remaining

    def seq_ack_received(self, buffer_remaining: int, now: float) -> None:
        """3.2.7.1. Whether the acknowledgement is an old one has been asked before."""
        if buffer_remaining != ABSENT:
            self.buffer_remaining = buffer_remaining
        self._happened(event_of(buffer_remaining), now)

    def seq_terminated(self, now: float) -> None:
        """3.2.7.2."""
        self._happened(PollingEvent.SEQ_TERMINATED, now)

    def polling_timer_expired(self, now: float) -> bool:
        """3.2.6.1: True if it did, and an AckRequested is to be sent."""
        if self.timer_at is None or now < self.timer_at:
            return False
        self._happened(PollingEvent.POLLING_TIMER_EXPIRED, now)
        return True

    def _happened(self, event: PollingEvent, now: float) -> None:
        step = TRANSITIONS.get((self.state, event))
        if step is None:
            raise LocalProtocolError(f"{event.name} cannot happen in {self.state.name}")
        self.state = step.state
        if step.timer in (Timer.STARTED, Timer.RESTARTED):
            self.timer_at = now + self.interval
        elif step.timer is Timer.STOPPED:
            self.timer_at = None

    def __repr__(self) -> str:
        return f"<Polling {self.state.name} {self.buffer_remaining} timer={self.timer_at}>"
