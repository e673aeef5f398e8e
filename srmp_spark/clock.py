"""Time as an argument: engines take ``now`` in seconds, and their callers pass a clock.

Every timer uses ``monotonic``. Only times that people and peers read (``sentAt``, ``arrived_at``)
use ``utc``.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Reads two kinds of time that are never mixed."""

    def monotonic(self) -> float:
        """Return the seconds since an arbitrary start. This time never goes back."""

    def utc(self) -> int:
        """Return the microseconds since 1970-01-01T00:00:00Z.

        This time jumps when an operator sets the clock of the machine.
        """


class SystemClock:
    """Reads the clock of this machine."""

    def monotonic(self) -> float:
        """Return the seconds since an arbitrary start. This time never goes back."""
        return time.monotonic()

    def utc(self) -> int:
        """Return the microseconds since 1970, in UTC."""
        return time.time_ns() // 1000
