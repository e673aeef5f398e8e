"""NCFs: at once, and a storm of NAKs does not become a storm of them (RFC 3208 5.2).

The first NAK is confirmed immediately. Identical ones within NCF_REPEAT_IVL share one more NCF at its end, so that whoever
missed the first still hears one. A NAK that comes twice at the same time is one: receivers multicast what they send to the
source ([MC-MQSRM] <3> of 6.3). Beyond ``ncf_rate_max`` NAKs are not confirmed at all; receivers repeat them.
"""

from __future__ import annotations

from srmp_spark.pgm.settings import SourceSettings
from srmp_spark.pgm.token_bucket import TokenBucket
from srmp_spark.timers import Timers

Numbers = tuple[int, ...]
TWIN_S = 0.002
"""How far the two copies of one NAK are apart at most, by the network or by ourselves."""
_BURST_S = 0.1


class Confirmations:
    """Which NAKs to confirm now. Its memory is what ``ncf_rate_max`` lets through in NCF_REPEAT_IVL."""

    def __init__(self, settings: SourceSettings, now: float) -> None:
        self._ivl = settings.ncf_repeat_ivl
        self._bucket = TokenBucket(
            settings.ncf_rate_max, max(1.0, settings.ncf_rate_max * _BURST_S), now
        )
        self._confirmed: dict[Numbers, float] = {}
        """The oldest first."""
        self._again: Timers[Numbers] = Timers()

    def confirm(self, numbers: Numbers, now: float) -> bool:
        """Whether a NAK for ``numbers`` is to be confirmed now."""
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
        """What is to be confirmed once more."""
        numbers = [each for each in self._again.due(now) if self._bucket.take(1, now)]
        for each in numbers:
            self._confirmed.pop(each, None)
            self._confirmed[each] = now
        return numbers

    def next(self) -> float | None:
        """When :meth:`due` has something."""
        return self._again.next()

    def _forget(self, now: float) -> None:
        for numbers, at in list(self._confirmed.items()):
            if now - at < self._ivl:
                break
            del self._confirmed[numbers]
