"""NAKs that wait for their RDATA (RFC 3208 5.3), with their delays ([MC-MQSRM] 2.1.3.1).

    RDataDelayTime = ((RDataSequenceNumber - TrailingSequenceNumber) * 60 msecs) /
                     ((LastODataSentSequenceNumber - TrailingSequenceNumber + 1))

The oldest numbers, which leave the window first, are sent at once. The newest numbers wait for
other receivers that miss them too. A number that is requested again while it waits is sent once.
"""

from __future__ import annotations

from collections import deque

from srmp_spark.pgm.sending.transmit_window import TransmitWindow
from srmp_spark.timers import Timers


class RepairQueue:
    """The numbers of one transmit window that wait to be sent again.

    There are never more than the window holds. ``now`` is in seconds of the monotonic clock, and
    ``rdata_delay`` is the longest delay in seconds.
    """

    def __init__(self, window: TransmitWindow, rdata_delay: float) -> None:
        self._window = window
        self._rdata_delay = rdata_delay
        self._delayed: Timers[int] = Timers()
        self._ready: deque[int] = deque()
        self._pending: set[int] = set()

    def request(self, number: int, now: float) -> bool:
        """Let ``number`` wait for a repair, because a NAK was received.

        Return whether the number is in the window; only then it waits. A number that waits already
        waits once.
        """
        window = self._window
        if window.get(number) is None:
            return False
        if number not in self._pending:
            self._pending.add(number)
            delay = (number - window.trail) * self._rdata_delay / (window.lead - window.trail + 1)
            self._delayed.set(number, now + delay)
        return True

    def ready(self, now: float) -> int | None:
        """Return the number whose repair is to be sent next, or ``None`` if none is due.

        The number stays until :meth:`sent`. Numbers that left the window meanwhile are discarded.
        """
        self._ready.extend(self._delayed.due(now))
        while self._ready:
            if self._ready[0] >= self._window.trail:
                return self._ready[0]
            self._pending.discard(self._ready.popleft())
        return None

    def sent(self) -> None:
        """Remove the number that :meth:`ready` returned, because its repair was sent."""
        self._pending.discard(self._ready.popleft())

    def next(self) -> float | None:
        """Return the time at which the next delayed number is ready, or ``None``.

        Numbers that are ready now are not considered.
        """
        return self._delayed.next()

    def clear(self) -> None:
        """Discard all waiting numbers, because no NAK is answered any longer."""
        self._pending.clear()
        self._ready.clear()
        self._delayed = Timers()

    def __contains__(self, number: int) -> bool:
        return number in self._pending

    def __len__(self) -> int:
        return len(self._pending)
