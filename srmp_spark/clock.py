"""Time as an argument: engines take ``now`` in seconds, the shell passes a clock.

``monotonic`` drives every timer; ``utc`` is used only for what people and peers read (``sentAt``, ``arrived_at``).
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two readings of time that never mix."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never goes back."""

    def utc(self) -> int:
        """Microseconds since 1970-01-01T00:00:00Z; may jump when an operator sets the clock."""


class SystemClock:
    """The clock of this machine."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start."""
        return time.monotonic()

    def utc(self) -> int:
        """Microseconds since 1970, UTC."""
        return time.time_ns() // 1000
