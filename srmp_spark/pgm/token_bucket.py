"""A token bucket (RFC 3208 5.1.2): "Over any arbitrarily chosen interval, the number of bytes the source may transmit MUST NOT
exceed the token bucket size plus the product of the token rate and the chosen interval."

The leaky bucket that the RFC wants beside it, against bursts within the bucket, is the line: 40 ms of 70 KB/s are two packets.
"""

from __future__ import annotations

_SLACK = 1.0
"""Tokens. Seconds of an old monotonic clock are rounded to about 2 ns, 0.2 octets at 100 MB/s: without it, whoever wakes up at
:meth:`TokenBucket.when` could find a hair too little, and wake up at the same moment for ever."""


class TokenBucket:
    """Full at first."""

    def __init__(self, rate: float, size: float, now: float) -> None:
        self.rate = rate
        """Tokens a second."""
        self.size = size
        self._tokens = size
        self._at = now

    def take(self, count: float, now: float) -> bool:
        """Take ``count`` tokens, no more than :attr:`size`, if they are there."""
        if now > self._at:
            self._tokens = min(self.size, self._tokens + (now - self._at) * self.rate)
            self._at = now
        if self._tokens + _SLACK < count:
            return False
        self._tokens -= count
        return True

    def when(self, count: float) -> float:
        """When ``count`` tokens are there, by the clock that :meth:`take` was told; in the past if they are."""
        return self._at + (count - self._tokens) / self.rate

    def __repr__(self) -> str:
        return f"<TokenBucket {self._tokens:.0f}/{self.size:.0f} {self.rate:.0f}/s>"
