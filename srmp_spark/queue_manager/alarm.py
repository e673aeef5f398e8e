"""One timer of an event loop that is set again and again.

An engine without I/O states when it is due next. Its owner arms an :class:`Alarm` for this time,
and asks the engine for the next time when the alarm has rung.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Alarm:
    """Calls a function when its time comes. At most one call is pending.

    Times are in seconds on the clock that ``now`` reads. Without ``now`` it is the clock of the
    loop.
    """

    __slots__ = ("_at", "_loop", "_now", "_ring", "_timer")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        ring: Callable[[], object],
        now: Callable[[], float] | None = None,
    ) -> None:
        """Create an alarm that calls ``ring`` and is not set."""
        self._loop = loop
        self._ring = ring
        self._now = loop.time if now is None else now
        self._timer: asyncio.TimerHandle | None = None
        self._at = 0.0
        """Time of the pending call, if there is one."""

    @property
    def is_set(self) -> bool:
        """Return whether a call is pending."""
        return self._timer is not None

    def at(self, when: float | None) -> None:
        """Let the alarm ring at ``when`` and at no other time; ``None`` stops it."""
        if when is None:
            self.stop()
        elif self._timer is None or when != self._at:
            self._set(when)

    def by(self, when: float | None) -> None:
        """Let the alarm ring at ``when`` at the latest; ``None`` changes nothing.

        An alarm that is set to an earlier time stays as it is. This saves a new timer whenever an
        engine has put its next time off. The function that is called then sets the alarm again.
        """
        if when is not None and (self._timer is None or when < self._at):
            self._set(when)

    def within(self, seconds: float) -> None:
        """Let the alarm ring after ``seconds``, unless it is set already."""
        if self._timer is None:
            self._set(self._now() + seconds)

    def stop(self) -> None:
        """Cancel the pending call, if there is one. The alarm can be set again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, when: float) -> None:
        self.stop()
        self._at = when
        self._timer = self._loop.call_later(max(0.0, when - self._now()), self._rings)

    def _rings(self) -> None:
        self._timer = None
        self._ring()

    def __repr__(self) -> str:
        return f"<Alarm at={self._at if self.is_set else None}>"
