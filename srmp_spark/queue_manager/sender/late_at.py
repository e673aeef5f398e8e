"""The time against which the expiry of messages that wait to be sent is checked."""

from __future__ import annotations

import logging

from srmp_spark.clock import Clock
from srmp_spark.srmp.receiving.expiry_clock import PAUSE_S, ExpiryClock

log = logging.getLogger(__name__)


class LateAt:
    """Returns the time for expiry, and logs when the wall clock is not trusted.

    See :class:`~srmp_spark.srmp.receiving.expiry_clock.ExpiryClock`.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._expiry = ExpiryClock()
        self._is_paused = False

    def __call__(self) -> int:
        """Return the time for expiry, in microseconds since 1970 (UTC).

        If the wall clock jumps ahead by more than JUMP_S, because it was set or the machine slept,
        the jump is ignored for PAUSE_S seconds. So messages do not expire by a wrong clock. The
        begin of such a pause is logged.
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
