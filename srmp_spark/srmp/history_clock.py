"""The time by which message identifiers grow old: the wall clock, if it behaves.

An identifier forgotten too early is a doubled message, so nobody may make all of them old at once by setting the wall clock
years ahead, nor make new ones look old by setting it back; not even with a restart in between, when the monotonic clock knows
nothing. This clock begins where the newest identifier stands, goes with the monotonic clock, and is drawn towards the wall
clock by at most a tenth of the time that passes, as a time daemon slews. After a week without service it is a week late and
catches up in ten; identifiers are kept longer meanwhile, which harms nobody.

Taking ``min(wall, newest)`` at each start was the first idea. The simulator found what it misses: the clock is set ahead, a
message arrives and so becomes the newest, the process restarts.
"""

from __future__ import annotations

RESOLUTION_S = 0.01
"""Readings closer together than this are the same: messages come by the thousand a second, and identifiers live for weeks."""
SLEW = 0.1
"""The largest share by which this clock runs fast or slow: 30 days are at least 27, whatever the wall clock says."""


class HistoryClock:
    """Microseconds since 1970, never backwards."""

    __slots__ = ("_is_new", "_last", "_value")

    def __init__(self, newest: int | None) -> None:
        """``newest``: when the newest known identifier arrived, by this clock in an earlier life."""
        self._value = 0 if newest is None else newest
        self._is_new = newest is None
        self._last: float | None = None

    def read(self, wall: int, now: float) -> int:
        """The time now: ``wall`` is the wall clock in microseconds, ``now`` the monotonic clock in seconds."""
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
