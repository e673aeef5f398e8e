"""A token bucket (RFC 3208 5.1.2): "Over any arbitrarily chosen interval, the number of bytes the source may transmit MUST NOT
exceed the token bucket size plus the product of the token rate and the chosen interval."

The leaky bucket that the RFC wants beside it, against bursts within the bucket, is the line: 40 ms of 70 KB/s are two packets.
"""

from __future__ import annotations

_SLACK_S = 1e-8
"""How much earlier than due tokens are given out, in seconds of the rate. A monotonic clock of some months is rounded to about
2 ns: without it, whoever wakes up at :meth:`TokenBucket.when` could find a hair too little, and wake up at the same moment for
ever. At 100 MB/s it is one octet."""


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
        if self._tokens + self.rate * _SLACK_S < count:
            return False
        self._tokens -= count
        return True

    def take_up_to(self, count: int, now: float) -> int:
        """Take whole tokens, as many as are there, ``count`` at most; how many."""
        self.take(0, now)
        taken = min(count, int(self._tokens))
        self._tokens -= taken
        return taken

    def when(self, count: float) -> float:
        """When ``count`` tokens are there, by the clock that :meth:`take` was told; in the past if they are."""
        return self._at + (count - self._tokens) / self.rate

    def __repr__(self) -> str:
        return f"<TokenBucket {self._tokens:.0f}/{self.size:.0f} {self.rate:.0f}/s>"
