"""All missing numbers of one session, and the time to request each (RFC 3208 6.3).

Numbers that are found missing together share one back-off, so they share NAKs too: up to 63 numbers
in one packet (9.3), the oldest first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from srmp_spark.pgm.outputs import LossReason
from srmp_spark.pgm.receiving.repair_states import TRANSITIONS, RepairEvent, RepairState
from srmp_spark.pgm.settings import PgmReceiverSettings
from srmp_spark.pgm.token_bucket import TokenBucket
from srmp_spark.pgm.wire.limits import NAK_LIST_MAX
from srmp_spark.timers import Timers
from srmp_spark.transitions import next_state

Uniform = Callable[[float, float], float]
"""Returns a random number between two values, like ``random.uniform``.

The caller chooses it, because this package draws no random numbers itself.
"""
REPAIR_COST = 500
"""Octets of memory that one missing number takes."""
NUMBERS_PER_NAK = NAK_LIST_MAX + 1
NUMBERS_AT_ONCE = 1_024
"""Most missing numbers that one call of :meth:`Repairs.due` processes, in about 3 ms.

The others are due again at once. A forged packet can create 16,384 missing numbers.
"""
NAK_BURST_S = 0.1
"""Largest burst of NAKs: as many as the rate allows in this time, in seconds."""


class Repair:
    """The repair of one missing number: its state and its retries.

    ``give_up_at`` is the time, in seconds of the monotonic clock, at which the number is lost.
    """

    __slots__ = ("data_retries", "give_up_at", "ncf_retries", "reason", "state")

    def __init__(self, give_up_at: float) -> None:
        self.state = RepairState.BACK_OFF
        self.ncf_retries = 0
        self.data_retries = 0
        self.give_up_at = give_up_at
        self.reason = LossReason.RETRIES

    def move(self, event: RepairEvent) -> None:
        """Change the state by ``event``, as the table of transitions says.

        Raises :class:`LocalProtocolError` if the event cannot happen in the present state.
        """
        self.state = next_state(TRANSITIONS, self.state, event, "a missing number")

    def __repr__(self) -> str:
        return (
            f"<Repair {self.state.name} ncf_retries={self.ncf_retries} "
            f"data_retries={self.data_retries}>"
        )


class Repairs:
    """Requests the missing numbers of one session, oldest first.

    Numbers are unbounded (:mod:`..wire.sequence`), and ``now`` is in seconds of the monotonic
    clock.
    """

    def __init__(
        self, settings: PgmReceiverSettings, uniform: Uniform, now: float, of_all: TokenBucket
    ) -> None:
        """Create an empty set of missing numbers.

        ``of_all`` limits the rate of NAKs of all sessions of the receiver together. ``uniform``
        draws the back-offs.
        """
        self._of_all = of_all
        self._settings = settings
        self._uniform = uniform
        self._repairs: dict[int, Repair] = {}
        """Missing numbers in ascending order, because only higher numbers are added."""
        self._timers: Timers[int] = Timers()
        self._bucket = TokenBucket(
            settings.nak_rate_max, max(1.0, settings.nak_rate_max * NAK_BURST_S), now
        )
        self._may_ask = False

    def begin(self, numbers: Iterable[int], now: float) -> None:
        """Add missing ``numbers``, which must ascend and be higher than all others.

        They are requested after one common back-off.
        """
        settings = self._settings
        when = now + self._uniform(*settings.nak_rb_ivl)
        for number in numbers:
            self._repairs[number] = Repair(now + settings.repair_secs)
            self._timers.set(number, when)

    def on_nak_or_ncf(self, number: int, event: RepairEvent, now: float) -> None:
        """Process an NCF, or a NAK of another receiver, for ``number``.

        ``event`` states which of the two was received. The packet is ignored if the number is not
        missing (RFC 3208 6.3: discarded "for data packets it has received").
        """
        repair = self._repairs.get(number)
        if repair is None:
            return
        repair.move(event)
        self._wait(number, repair, now, now)

    def complete(self, number: int) -> bool:
        """Remove ``number``, because its data were received; return whether it was missing."""
        repair = self._repairs.pop(number, None)
        if repair is None:
            return False
        repair.move(RepairEvent.DATA)
        self._timers.set(number, None)
        return True

    def lose(self, number: int, reason: LossReason) -> None:
        """Mark ``number`` as lost, so that it is no longer requested.

        If it is lost already, the earlier reason stays. Raises :class:`KeyError` if ``number`` is
        not missing.
        """
        repair = self._repairs[number]
        if repair.state is not RepairState.LOST:
            repair.reason = reason
        repair.move(RepairEvent.GONE)
        self._timers.set(number, None)

    def lose_before(self, number: int, reason: LossReason) -> None:
        """Mark all missing numbers before ``number`` (excluded) as lost for ``reason``.

        Numbers that are lost already keep their reason.
        """
        for each in self._repairs:
            if each >= number:
                break
            self.lose(each, reason)

    def is_lost(self, number: int) -> bool:
        """Return whether ``number`` is marked as lost."""
        repair = self._repairs.get(number)
        return repair is not None and repair.state is RepairState.LOST

    def take_lost(self, number: int) -> LossReason | None:
        """Remove ``number`` if it is marked as lost, and return the reason.

        Return ``None``, and keep the number, if it may still be repaired. Raises :class:`KeyError`
        if ``number`` is not missing.
        """
        repair = self._repairs[number]
        if repair.state is not RepairState.LOST:
            return None
        del self._repairs[number]
        return repair.reason

    def may_ask(self, now: float) -> None:
        """Allow NAKs from now on, because the first SPM was received.

        RFC 3208 6.2: "MUST NOT initiate repair requests until it has received at least one SPM".
        """
        self._may_ask = True
        when = now + self._uniform(*self._settings.nak_rb_ivl)
        for number, repair in self._repairs.items():
            if repair.state is RepairState.BACK_OFF:
                self._timers.set(number, when)

    def due(self, now: float) -> list[list[int]]:
        """Handle expired timers, and return the NAKs to send now, each as a list of numbers.

        At most NUMBERS_AT_ONCE numbers are handled. NAKs beyond the rate limits become due later.
        Numbers without retries left become lost.
        """
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
            elif self._may_ask:
                # The NAKs become due one after the other, as tokens are refilled. Otherwise all
                # NAKs would be examined for each token.
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
        """Return the time at which a back-off that begins now ends.

        The time is drawn once for all numbers that begin a back-off now. It is not before the time
        at which the rate limits allow a NAK.
        """
        return max(
            now + self._uniform(*self._settings.nak_rb_ivl),
            self._bucket.when(1),
            self._of_all.when(1),
        )

    def _wait(self, number: int, repair: Repair, now: float, back_off_until: float) -> None:
        """Start the timer of the state that the repair of ``number`` has entered.

        ``back_off_until`` is the end of a back-off. No timer runs longer than until ``give_up_at``.
        """
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
        """Return the time at which :meth:`due` has something to do, or ``None`` for never."""
        return self._timers.next()

    def __contains__(self, number: int) -> bool:
        return number in self._repairs

    def __len__(self) -> int:
        return len(self._repairs)
