"""The time by which messages that wait to be sent expire."""

from __future__ import annotations

import logging

from srmp_spark.clock import Clock
from srmp_spark.srmp.receiving.expiry_clock import PAUSE_S, ExpiryClock

log = logging.getLogger(__name__)


class LateAt:
    """Returns the time for expiry, and logs when the wall clock is not trusted."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._expiry = ExpiryClock()
        self._is_paused = False

    def __call__(self) -> int:
        """Return the time for expiry, in microseconds since 1970 (UTC).

        While the wall clock is ahead of the expected time, messages do not expire by the wall
        clock.
        """
        at = self._expiry.read(self._clock.utc(), self._clock.monotonic())
        paused = self._expiry.ahead_s > 0
        if paused and not self._is_paused:
            log.warning(
                "expiry.paused seconds=%.0f: the wall clock was set ahead, or the machine "
                "slept; waiting messages do not expire by it for %.0f s. Correct the "
                "clock if it is wrong",
                self._expiry.ahead_s,
                PAUSE_S,
            )
        self._is_paused = paused
        return at
