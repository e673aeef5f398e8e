"""The time by which messages expire: the wall clock, except for one hour after it was set ahead.

A message states by the wall clock when it expires ([MC-MQSRM] 3.1.7.2.1, 2.2.6.17). An expired
message becomes a dead letter or is refused for good. A mistake with ``date`` must not do this to
every message that waits. If the wall clock jumps ahead of the monotonic clock by more than
:data:`JUMP_S`, the jump is therefore ignored for :data:`PAUSE_S`, and time continues from where it
was. If the wall clock is corrected within this time, the jump had no effect. Otherwise the jump was
intended, and the new time counts. A wall clock that is set back is believed at once, because this
makes no message expire. A machine that slept looks like a machine whose clock was set ahead.
"""

from __future__ import annotations

JUMP_S = 300.0
"""Largest jump of the wall clock that is believed at once, in seconds.

Time daemons correct less than this without being asked.
"""
PAUSE_S = 3600.0
"""Seconds for which a larger jump is ignored, so that an operator who reads the alarm can correct
the clock.
"""


class ExpiryClock:
    """Returns the time by which messages expire: the wall clock, without large jumps ahead.

    The time is in microseconds since 1970. A jump is ignored for :data:`PAUSE_S`.
    """

    __slots__ = ("_believed", "_seen", "_until")

    def __init__(self) -> None:
        self._believed: int | None = None
        """Wall clock minus monotonic clock before the jump, in microseconds."""
        self._seen = 0
        self._until: float | None = None
        """End of the pause in which the jump is ignored, on the monotonic clock; ``None`` outside a
        pause.
        """

    @property
    def ahead_s(self) -> float:
        """Return by how many seconds the wall clock is ahead of the time that :meth:`read` returns.

        The result is 0 outside a pause.
        """
        return (
            0.0
            if self._until is None or self._believed is None
            else (self._seen - self._believed) / 1_000_000
        )

    def read(self, wall: int, now: float) -> int:
        """Return the time by which messages expire, in microseconds since 1970.

        The time is ``wall``, unless ``wall`` jumped ahead by more than JUMP_S in the last PAUSE_S
        seconds. Then the time continues as before the jump.
        """
        gone = int(now * 1_000_000)
        offset, jump = wall - gone, int(JUMP_S * 1_000_000)
        if self._believed is not None and offset - self._believed > jump:
            if self._until is None or offset - self._seen > jump:
                self._until = now + PAUSE_S
            self._seen = offset
            if now < self._until:
                return self._believed + gone
        self._believed, self._until = offset, None
        return wall
