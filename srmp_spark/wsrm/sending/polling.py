"""Flow control of one sequence at its source: state, timer, and quota in flight.

The states are those of :mod:`.polling_states`. The specification lets a source send freely after
any value above 0. Such a source overruns a destination that has room for five messages. So this
class treats a value as a quota, as WCF does: the source sends as many new messages as the quota
leaves after those in flight. This reading is stricter and breaks no rule.
"""

from __future__ import annotations

from srmp_spark.transitions import next_state
from srmp_spark.wsrm.codec.elements import ABSENT
from srmp_spark.wsrm.limits import POLL_INTERVAL
from srmp_spark.wsrm.sending.polling_states import (
    TRANSITIONS,
    PollingEvent,
    PollingState,
    Timer,
    event_of,
)


class Polling:
    """Controls the flow of one sequence at its source ([MS-WSRVCRM] 3.2).

    ``interval`` is the time of POLLING_TIMER in seconds, and ``now`` is in seconds of the monotonic
    clock. ``buffer_remaining`` is the room that the destination announced, in messages, or
    ``ABSENT``. The source *polls* after a value of 0: it sends no new messages, and requests
    acknowledgements. A state in which an event cannot happen raises :class:`LocalProtocolError`.
    """

    __slots__ = ("buffer_remaining", "interval", "state", "timer_at")

    def __init__(self, interval: float = POLL_INTERVAL) -> None:
        self.interval = interval
        self.state = PollingState.NOT_POLLING
        self.timer_at: float | None = None
        """Time at which POLLING_TIMER expires, or ``None`` if the timer is not started."""
        self.buffer_remaining = ABSENT
        """Last value of BufferRemaining that was received, or ``ABSENT``."""

    @classmethod
    def restored(
        cls, buffer_remaining: int, now: float, interval: float = POLL_INTERVAL
    ) -> Polling:
        """Return the state after a restart, from the last value of BufferRemaining.

        If the value is 0, the timer expires at once, because acknowledgements may have been lost
        meanwhile.
        """
        polling = cls(interval)
        polling.seq_ack_received(buffer_remaining, now)
        if polling.timer_at is not None:
            polling.timer_at = now
        return polling

    def allows(self, in_flight: int) -> bool:
        """Return whether a new message may be sent after ``in_flight`` messages in flight.

        It may not while the source polls. Otherwise fewer messages than the last BufferRemaining
        may be in flight, or any number if no value was received.
        """
        if self.state is not PollingState.NOT_POLLING:
            return False
        return self.buffer_remaining == ABSENT or in_flight < self.buffer_remaining

    def seq_ack_received(self, buffer_remaining: int, now: float) -> None:
        """Handle SEQ_ACK_RECEIVED: an acknowledgement with this BufferRemaining (3.2.7.1).

        The value 0 starts polling, and a higher one ends it. The caller must have ignored outdated
        acknowledgements before.
        """
        if buffer_remaining != ABSENT:
            self.buffer_remaining = buffer_remaining
        self._happened(event_of(buffer_remaining), now)

    def seq_terminated(self, now: float) -> None:
        """Handle SEQ_TERMINATED: stop the timer, because the sequence has ended (3.2.7.2)."""
        self._happened(PollingEvent.SEQ_TERMINATED, now)

    def polling_timer_expired(self, now: float) -> bool:
        """Return whether POLLING_TIMER has expired, and restart the timer if so (3.2.6.1).

        If the result is ``True``, the caller sends an AckRequested.
        """
        if self.timer_at is None or now < self.timer_at:
            return False
        self._happened(PollingEvent.POLLING_TIMER_EXPIRED, now)
        return True

    def _happened(self, event: PollingEvent, now: float) -> None:
        step = next_state(TRANSITIONS, self.state, event, "the polling of a source")
        self.state = step.state
        if step.timer in (Timer.STARTED, Timer.RESTARTED):
            self.timer_at = now + self.interval
        elif step.timer is Timer.STOPPED:
            self.timer_at = None

    def __repr__(self) -> str:
        return f"<Polling {self.state.name} {self.buffer_remaining} timer={self.timer_at}>"
