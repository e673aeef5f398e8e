"""A token bucket, which limits a rate (RFC 3208 5.1.2).

"Over any arbitrarily chosen interval, the number of bytes the source may transmit MUST NOT exceed
the token bucket size plus the product of the token rate and the chosen interval." The RFC also
wants a leaky bucket against bursts within the token bucket. In srmp-spark the network line has that
role: 40 ms of 70 KB/s are two packets.
"""

from __future__ import annotations

_SLACK_S = 1e-8
"""Time by which tokens may be used before they are due, in seconds.

A monotonic clock of some months is rounded to about 2 ns. Without slack, a caller that wakes up at
:meth:`TokenBucket.when` could find slightly too few tokens and wake up at the same moment forever.
At 100 MB/s the slack is one octet.
"""


class TokenBucket:
    """Limits a rate: tokens are taken for each octet or packet and refilled with time.

    The bucket holds at most ``size`` tokens and is full at first. ``now`` is in seconds of the
    monotonic clock.
    """

    def __init__(self, rate: float, size: float, now: float) -> None:
        self.rate = rate
        """Tokens that are refilled in a second."""
        self.size = size
        self._tokens = size
        self._at = now

    def take(self, count: float, now: float) -> bool:
        """Take ``count`` tokens if the bucket has that many, and return whether it had.

        If not, no token is taken. ``count`` must not exceed :attr:`size`.
        """
        if now > self._at:
            self._tokens = min(self.size, self._tokens + (now - self._at) * self.rate)
            self._at = now
        if self._tokens + self.rate * _SLACK_S < count:
            return False
        self._tokens -= count
        return True

    def take_up_to(self, count: int, now: float) -> int:
        """Take as many whole tokens as the bucket has, at most ``count``; return their number."""
        self.take(0, now)
        taken = min(count, int(self._tokens))
        self._tokens -= taken
        return taken

    def when(self, count: float) -> float:
        """Return the time at which the bucket has ``count`` tokens, if none is taken before.

        The time is on the clock that was passed to :meth:`take`. If the bucket has the tokens
        already, the time lies in the past.
        """
        return self._at + (count - self._tokens) / self.rate

    def __repr__(self) -> str:
        return f"<TokenBucket {self._tokens:.0f}/{self.size:.0f} {self.rate:.0f}/s>"
