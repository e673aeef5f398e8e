"""The time by which message identifiers grow old: the wall clock, as long as it is plausible.

An identifier that is forgotten too early leads to a duplicated message. Setting the wall clock
ahead by years must not make all identifiers old at once, and setting it back must not make new ones
look old. This must hold even with a restart in between, when the monotonic clock has no memory.
This clock begins at the time of the newest identifier and advances with the monotonic clock. The
clock approaches the wall clock by at most a tenth of the time that passes, as a time daemon slews.
After a week without service this clock is a week late, and catches up in ten weeks. Identifiers are
kept longer meanwhile, which does no harm.

Using ``min(wall, newest)`` at each start would not be enough, as the simulator has shown: the clock
is set ahead, a message arrives and becomes the newest, and the process restarts.
"""

from __future__ import annotations

RESOLUTION_S = 0.01
"""Shortest step of this clock, in seconds.

Closer readings return the same time, because thousands of messages arrive each second and
identifiers live for weeks.
"""
SLEW = 0.1
"""Largest fraction by which this clock runs fast or slow. 30 days are at least 27 days, whatever
the wall clock shows.
"""


class HistoryClock:
    """Returns the time by which identifiers grow old; it never goes back and cannot jump.

    The time is in microseconds since 1970.
    """

    __slots__ = ("_is_new", "_last", "_value")

    def __init__(self, newest: int | None) -> None:
        """Begin at ``newest``, the time of the newest known identifier.

        This clock gave that time in an earlier process. ``None`` means that no identifier is known,
        and the clock begins at the wall clock.
        """
        self._value = 0 if newest is None else newest
        self._is_new = newest is None
        self._last: float | None = None

    def read(self, wall: int, now: float) -> int:
        """Return the present time in microseconds since 1970.

        ``wall`` is the wall clock in microseconds, and ``now`` the monotonic clock in seconds.
        """
        last, value = self._last, self._value
        if last is None:
            self._last = now
            if self._is_new:
                self._value = value = wall
        elif now > last + RESOLUTION_S:
            elapsed = (now - last) * 1_000_000
            limit = elapsed * SLEW
            pull = wall - value - elapsed
            if pull > limit:
                pull = limit
            elif pull < -limit:
                pull = -limit
            self._last = now
            self._value = value = value + int(elapsed + pull)
        return value
