"""Decides which NAKs a source confirms with an NCF, and when (RFC 3208 5.2).

The first NAK is confirmed immediately. Identical NAKs within NCF_REPEAT_IVL share one more NCF at
the end of that interval, so that a receiver that missed the first NCF still receives one. So a
storm of NAKs does not cause a storm of NCFs. Two identical NAKs at the same time count as one:
receivers also multicast each NAK that they send to the source ([MC-MQSRM] <3> of 6.3). NAKs above
the rate ``ncf_rate_max`` are not confirmed at all, and receivers repeat them.
"""

from __future__ import annotations

from srmp_spark.pgm.settings import PgmSourceSettings
from srmp_spark.pgm.token_bucket import TokenBucket
from srmp_spark.timers import Timers

Numbers = tuple[int, ...]
TWIN_S = 0.002
"""Longest time between the two copies of one NAK, in seconds.

The network, or this process, may delay one of the copies by that much.
"""
_BURST_S = 0.1


class Confirmations:
    """Decides which NAKs of one source are confirmed by an NCF, and when.

    The object remembers the numbers that were confirmed within NCF_REPEAT_IVL; ``ncf_rate_max``
    limits how many. ``now`` is in seconds of the monotonic clock.
    """

    def __init__(self, settings: PgmSourceSettings, now: float) -> None:
        self._ivl = settings.ncf_repeat_ivl
        self._bucket = TokenBucket(
            settings.ncf_rate_max, max(1.0, settings.ncf_rate_max * _BURST_S), now
        )
        self._confirmed: dict[Numbers, float] = {}
        """Confirmed numbers and the time of their NCF, the oldest first."""
        self._again: Timers[Numbers] = Timers()

    def confirm(self, numbers: Numbers, now: float) -> bool:
        """Return whether a NAK for ``numbers`` is to be confirmed now, and remember the NAK.

        A repeat within NCF_REPEAT_IVL may be confirmed later, by :meth:`due`.
        """
        self._forget(now)
        last = self._confirmed.get(numbers)
        if last is not None:
            if now - last > TWIN_S:
                self._again.set(numbers, last + self._ivl)
            return False
        if not self._bucket.take(1, now):
            return False
        if self._ivl:
            self._confirmed[numbers] = now
        return True

    def due(self, now: float) -> list[Numbers]:
        """Return the numbers of each NCF that is to be sent again by ``now``; these count as sent.

        An NCF beyond the rate limit is discarded.
        """
        numbers = [each for each in self._again.due(now) if self._bucket.take(1, now)]
        for each in numbers:
            self._confirmed.pop(each, None)
            self._confirmed[each] = now
        return numbers

    def next(self) -> float | None:
        """Return the time at which :meth:`due` has something to return, or ``None`` for never."""
        return self._again.next()

    def _forget(self, now: float) -> None:
        for numbers, at in list(self._confirmed.items()):
            if now - at < self._ivl:
                break
            del self._confirmed[numbers]
