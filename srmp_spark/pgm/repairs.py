"""All missing numbers of one session: which to ask for when (RFC 3208 6.3).

Numbers that are found missing together share one back-off, so they share NAKs too: up to 63 numbers in one packet (9.3), the
oldest first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from srmp_spark.pgm.limits import NAK_LIST_MAX
from srmp_spark.pgm.outputs import LossReason
from srmp_spark.pgm.repair_states import RepairEvent, RepairState, moved
from srmp_spark.pgm.settings import ReceiverSettings
from srmp_spark.pgm.token_bucket import TokenBucket
from srmp_spark.timers import Timers

Uniform = Callable[[float, float], float]
"""``random.uniform`` of the caller's choice: nothing is drawn in here."""
REPAIR_COST = 500
"""Octets that a missing number costs."""
NUMBERS_PER_NAK = NAK_LIST_MAX + 1
NUMBERS_AT_ONCE = 1_024
"""Missing numbers that one call of :meth:`Repairs.due` works on, about 3 ms; the others are due at once again. A forged packet
makes 16,384 of them."""
NAK_BURST_S = 0.1
"""Seconds of a rate of NAKs that may leave at once."""


class Repair:
    """One missing number."""

    __slots__ = ("data_retries", "give_up_at", "ncf_retries", "reason", "state")

    def __init__(self, give_up_at: float) -> None:
        self.state = RepairState.BACK_OFF
        self.ncf_retries = 0
        self.data_retries = 0
        self.give_up_at = give_up_at
        self.reason = LossReason.RETRIES

    def move(self, event: RepairEvent) -> None:
        """By the table."""
        self.state = moved(self.state, event)

    def __repr__(self) -> str:
        return (
            f"<Repair {self.state.name} ncf_retries={self.ncf_retries} "
            f"data_retries={self.data_retries}>"
        )


class Repairs:
    """The missing numbers, oldest first. Numbers are unbounded (:mod:`.sequence`)."""

    def __init__(
        self, settings: ReceiverSettings, uniform: Uniform, now: float, of_all: TokenBucket
    ) -> None:
        """``of_all``: the rate that all sessions of the receiver share."""
        self._of_all = of_all
        self._settings = settings
        self._uniform = uniform
        self._repairs: dict[int, Repair] = {}
        """Ascending: only numbers above all others are added."""
        self._timers: Timers[int] = Timers()
        self._bucket = TokenBucket(
            settings.nak_rate_max, max(1.0, settings.nak_rate_max * NAK_BURST_S), now
        )
        self._may_ask = False

    def begin(self, numbers: Iterable[int], now: float) -> None:
        """``numbers``, ascending and above all others, are missing."""
        settings = self._settings
        when = now + self._uniform(*settings.nak_rb_ivl)
        for number in numbers:
            self._repairs[number] = Repair(now + settings.repair_secs)
            self._timers.set(number, when)

    def heard(self, number: int, event: RepairEvent, now: float) -> None:
        """An NCF, or a NAK of another receiver. RFC 3208 6.3: discarded "for data packets it has received"."""
        repair = self._repairs.get(number)
        if repair is None:
            return
        repair.move(event)
        self._wait(number, repair, now, now)

    def complete(self, number: int) -> bool:
        """The data came; whether they were missed."""
        repair = self._repairs.pop(number, None)
        if repair is None:
            return False
        repair.move(RepairEvent.DATA)
        self._timers.set(number, None)
        return True

    def lose(self, number: int, reason: LossReason) -> None:
        """Ask no more."""
        repair = self._repairs[number]
        if repair.state is not RepairState.LOST:
            repair.reason = reason
        repair.move(RepairEvent.GONE)
        self._timers.set(number, None)

    def lose_before(self, number: int, reason: LossReason) -> None:
        """Ask no more for what is older than ``number``."""
        for each in self._repairs:
            if each >= number:
                break
            self.lose(each, reason)

    def is_lost(self, number: int) -> bool:
        """Whether :meth:`take_lost` has something for ``number``."""
        repair = self._repairs.get(number)
        return repair is not None and repair.state is RepairState.LOST

    def take_lost(self, number: int) -> LossReason | None:
        """Why ``number`` is lost, and forget it; ``None`` if there is hope."""
        repair = self._repairs[number]
        if repair.state is not RepairState.LOST:
            return None
        del self._repairs[number]
        return repair.reason

    def may_ask(self, now: float) -> None:
        """The first SPM is here (RFC 3208 6.2: "MUST NOT initiate repair requests until it has received at least one SPM")."""
        self._may_ask = True
        when = now + self._uniform(*self._settings.nak_rb_ivl)
        for number, repair in self._repairs.items():
            if repair.state is RepairState.BACK_OFF:
                self._timers.set(number, when)

    def due(self, now: float) -> list[list[int]]:
        """The numbers of each NAK to send now."""
        due = self._timers.due(now, NUMBERS_AT_ONCE)
        if not due:
            return []
        asked, back_off_until = [], self._back_off(now)
        for number in due:
            repair = self._repairs[number]
            if repair.state is RepairState.BACK_OFF and now < repair.give_up_at:
                asked.append(number)
            else:
                self._timed_out(number, repair, now, back_off_until)
        asked.sort()
        naks: list[list[int]] = []
        held = 0
        for at in range(0, len(asked), NUMBERS_PER_NAK):
            numbers = asked[at : at + NUMBERS_PER_NAK]
            is_sent = self._may_ask and self._bucket.take(1, now) and self._of_all.take(1, now)
            until = back_off_until
            if is_sent:
                naks.append(numbers)
            elif self._may_ask:  # one after the other, as there will be tokens: else all of them are looked at for each
                held += 1
                until = max(until, self._bucket.when(held), self._of_all.when(held))
            for number in numbers:
                repair = self._repairs[number]
                repair.move(RepairEvent.TIMER if is_sent else RepairEvent.HELD)
                self._wait(number, repair, now, until)
        return naks

    def _timed_out(self, number: int, repair: Repair, now: float, back_off_until: float) -> None:
        if repair.state is RepairState.WAIT_NCF:
            repair.ncf_retries += 1
        else:
            repair.data_retries += 1
        settings = self._settings
        is_over = (
            repair.ncf_retries > settings.nak_ncf_retries
            or repair.data_retries > settings.nak_data_retries
        )
        if is_over or now >= repair.give_up_at:
            repair.move(RepairEvent.EXHAUSTED)
        else:
            repair.move(RepairEvent.TIMER)
        self._wait(number, repair, now, back_off_until)

    def _back_off(self, now: float) -> float:
        """When NAK_RB_IVL is over. Drawn once for all that begin it together, and not before we may send a NAK at all."""
        return max(
            now + self._uniform(*self._settings.nak_rb_ivl),
            self._bucket.when(1),
            self._of_all.when(1),
        )

    def _wait(self, number: int, repair: Repair, now: float, back_off_until: float) -> None:
        """Start the timer of the state that was entered."""
        settings = self._settings
        if repair.state is RepairState.WAIT_NCF:
            when = now + settings.nak_rpt_ivl
        elif repair.state is RepairState.WAIT_DATA:
            when = now + settings.nak_rdata_ivl
        elif repair.state is RepairState.BACK_OFF:
            when = back_off_until if self._may_ask else repair.give_up_at
        else:
            self._timers.set(number, None)
            return
        self._timers.set(number, min(when, repair.give_up_at))

    def next(self) -> float | None:
        """When :meth:`due` has something."""
        return self._timers.next()

    def __contains__(self, number: int) -> bool:
        return number in self._repairs

    def __len__(self) -> int:
        return len(self._repairs)
