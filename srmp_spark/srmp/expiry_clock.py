"""The time by which messages expire: the wall clock, but not the first hour after somebody has set it ahead.

Whether a message is too late is a question of the wall clock ([MC-MQSRM] 3.1.7.2.1, 2.2.6.17): it stands in the message. An
expired message is a dead letter, or is refused for good, so a slip of ``date`` must not make one of everything that waits. A
wall clock that leaps ahead of the monotonic one by more than :data:`JUMP_S` is therefore not believed for :data:`PAUSE_S`: time
goes on from where it stood. Set right within that time, nothing has happened; otherwise it was meant, and counts. Set back it
is believed at once: that makes nothing late. A machine that slept looks the same as one whose clock was set ahead.
"""

from __future__ import annotations

JUMP_S = 300.0
"""What time daemons correct without being asked stays below it."""
PAUSE_S = 3600.0
"""Time for an operator who reads the alarm to set the clock right."""


class ExpiryClock:
    """Microseconds since 1970; begins with whatever the wall clock says."""

    __slots__ = ("_believed", "_seen", "_until")

    def __init__(self) -> None:
        self._believed: int | None = None
        """Wall clock minus monotonic clock, in microseconds, as it was before it was set ahead."""
        self._seen = 0
        self._until: float | None = None
        """Until when the wall clock is not believed, on the monotonic clock."""

    @property
    def ahead_s(self) -> float:
        """How far the wall clock is ahead of what is believed; 0 unless expiry is paused."""
        return (
            0.0
            if self._until is None or self._believed is None
            else (self._seen - self._believed) / 1_000_000
        )

    def read(self, wall: int, now: float) -> int:
        """The time now: ``wall`` is the wall clock in microseconds, ``now`` the monotonic clock in seconds."""
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
