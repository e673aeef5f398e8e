"""A clock that is told what time it is, and the list of what happens next.

Simulated time jumps from event to event: thirty days cost as much as the events in them. Monotonic and wall time are kept
apart, because one of the faults is an operator who sets the wall clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

START_UTC_US = 1_780_000_000_000_000
"""An arbitrary moment in 2026."""
START_MONOTONIC_S = 1000.0


class SimClock:
    """A :class:`~srmp_spark.clock.Clock` and its agenda."""

    def __init__(self) -> None:
        self.now = START_MONOTONIC_S
        """Monotonic seconds."""
        self.utc_offset_us = START_UTC_US - int(START_MONOTONIC_S * 1_000_000)
        """Add to it to set the wall clock."""
        self._agenda: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._serial = 0

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never goes back."""
        return self.now

    def utc(self) -> int:
        """Microseconds since 1970; jumps with :attr:`utc_offset_us`."""
        return int(self.now * 1_000_000) + self.utc_offset_us

    def at(self, when: float, action: Callable[..., None], *arguments: object) -> None:
        """Call ``action`` at monotonic time ``when``; what is due at one moment happens in the order of these calls."""
        self._serial += 1
        heapq.heappush(self._agenda, (when, self._serial, action, arguments))

    def after(self, delay: float, action: Callable[..., None], *arguments: object) -> None:
        """Call ``action`` in ``delay`` seconds."""
        self._serial += 1
        heapq.heappush(self._agenda, (self.now + delay, self._serial, action, arguments))

    def step(self) -> bool:
        """Move to the next event and let it happen; False if there is none."""
        if not self._agenda:
            return False
        when, _, action, arguments = heapq.heappop(self._agenda)
        if when > self.now:
            self.now = when
        action(*arguments)
        return True

    def advance(self, seconds: float) -> None:
        """Let everything of the next ``seconds`` happen, then be there."""
        until = self.now + seconds
        while self._agenda and self._agenda[0][0] <= until:
            self.step()
        self.now = until
