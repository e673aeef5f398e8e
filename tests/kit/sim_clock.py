"""A simulated clock with the list of the coming events.

Simulated time jumps from event to event, so thirty days cost only the events in them. Monotonic
time and wall time are separate, because one of the faults is an operator who sets the wall clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

START_UTC_US = 1_780_000_000_000_000
"""An arbitrary moment in 2026, in microseconds since 1970."""
START_MONOTONIC_S = 1000.0


class SimClock:
    """A :class:`~srmp_spark.clock.Clock` and its list of coming events."""

    def __init__(self) -> None:
        self.now = START_MONOTONIC_S
        """The monotonic time in seconds."""
        self.utc_offset_us = START_UTC_US - int(START_MONOTONIC_S * 1_000_000)
        """Wall time minus monotonic time, in microseconds; add to it to set the wall clock."""
        self._agenda: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._serial = 0

    def monotonic(self) -> float:
        """Return the seconds since an arbitrary start; the value never decreases."""
        return self.now

    def utc(self) -> int:
        """Return the microseconds since 1970; the value jumps with :attr:`utc_offset_us`."""
        return int(self.now * 1_000_000) + self.utc_offset_us

    def at(self, when: float, action: Callable[..., None], *arguments: object) -> None:
        """Schedule ``action(*arguments)`` for the monotonic time ``when``, in seconds.

        Events of the same moment happen in the order in which they were scheduled.
        """
        self._serial += 1
        heapq.heappush(self._agenda, (when, self._serial, action, arguments))

    def after(self, delay: float, action: Callable[..., None], *arguments: object) -> None:
        """Schedule ``action(*arguments)`` to be called in ``delay`` seconds."""
        self._serial += 1
        heapq.heappush(self._agenda, (self.now + delay, self._serial, action, arguments))

    def step(self) -> bool:
        """Move the clock to the next event and carry the event out.

        Return ``False`` if no event is left.
        """
        if not self._agenda:
            return False
        when, _, action, arguments = heapq.heappop(self._agenda)
        if when > self.now:
            self.now = when
        action(*arguments)
        return True

    def advance(self, seconds: float) -> None:
        """Carry out all events of the next ``seconds`` and move the clock to their end."""
        until = self.now + seconds
        while self._agenda and self._agenda[0][0] <= until:
            self.step()
        self.now = until
