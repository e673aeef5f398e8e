"""The receive window of one session: received, missing and next numbers (RFC 3208 3.4, 6.1).

"A receiver simply obeys what the source tells it in terms of window state and advancement". So
missing numbers before the trail of any packet are declared lost, and a number or an SPM's lead
beyond the receiver's lead makes the numbers between missing. Numbers are unbounded
(:mod:`..wire.sequence`). The trail and lead of a packet are read as the unbounded numbers nearest
to the known ones.

When the first of many missing numbers is repaired, all later ones are ready at once. Delivering all
of them may take longer than the kernel's buffer has room, and packets received meanwhile would be
lost and requested again. So each received packet delivers only DELIVERED_PER_PACKET numbers, and
the next ``poll`` delivers DELIVERED_AT_ONCE.

Memory is limited by numbers (RXW_SQNS_MAX) and octets (RXW_BYTES_MAX, BUFFER_BYTES_MAX). Above a
limit the oldest missing numbers are declared and reported lost.
"""

from __future__ import annotations

from srmp_spark.pgm.outputs import LossReason
from srmp_spark.pgm.receiving.assembler import Assembler
from srmp_spark.pgm.receiving.repairs import NAK_BURST_S, NUMBERS_PER_NAK, REPAIR_COST, Repairs
from srmp_spark.pgm.settings import PgmReceiverSettings
from srmp_spark.pgm.token_bucket import TokenBucket
from srmp_spark.pgm.wire.packets import Data

DELIVERED_AT_ONCE = 64
"""Most packets that are delivered in one step; further packets wait for the next poll.

One step takes a quarter of a millisecond.
"""
DELIVERED_PER_PACKET = 2
"""Packets that are delivered for each received packet while more are ready.

The first is the packet that was received, the second is a packet that waits.
"""
MISSING_WINDOWS = 4
"""Whole windows (RXW_SQNS_MAX numbers each) that all sessions together may find missing.

After a network failure so many numbers may be missing at once. Further numbers are declared lost.
"""
PACKET_COST = 400
"""Octets that a buffered packet needs in addition to its payload."""


class Budget:
    """Memory and rates that all sessions of one receiver share."""

    def __init__(self, settings: PgmReceiverSettings) -> None:
        self.limit = settings.buffer_bytes_max
        self.used = 0
        rate = settings.nak_rate_max * NUMBERS_PER_NAK
        self.missing = TokenBucket(rate, MISSING_WINDOWS * settings.rxw_sqns_max, 0.0)
        """Limits, in numbers, how many may be found missing.

        Numbers that go missing faster than NAKs can request them are declared lost at once, with
        reason LIMIT. Otherwise a forged SPM of 36 octets would create a list of RXW_SQNS_MAX
        numbers (50 ms of work), and the next one another list.
        """
        self.naks = TokenBucket(
            settings.nak_rate_all_max, max(1.0, settings.nak_rate_all_max * NAK_BURST_S), 0.0
        )
        """Limits the NAKs of all sessions together: many sessions send no more than two may."""


class ReceiveWindow:
    """The numbers of one session from :attr:`next` to :attr:`lead`, both included.

    :attr:`next` is the first number that is neither delivered nor reported lost. :attr:`lead` is
    the highest known number. Numbers are unbounded. To deliver a number means to pass it to the
    :class:`.Assembler`.
    """

    def __init__(
        self,
        first: int,
        settings: PgmReceiverSettings,
        repairs: Repairs,
        assembler: Assembler,
        budget: Budget,
    ) -> None:
        self.next = first
        self.lead = first - 1
        self.trail = first
        self.octets = 0
        """Memory that this window takes now, in octets."""
        self.has_ready = False
        """Whether more can be delivered now, because :meth:`deliver` stopped at its limit."""
        self._settings = settings
        self._repairs = repairs
        self._assembler = assembler
        self._budget = budget
        self._packets: dict[int, Data] = {}

    @property
    def missing(self) -> int:
        """Return how many numbers are being requested, or are lost and not yet reported."""
        return len(self._repairs)

    def receive(self, number: int, trail: int, data: Data, now: float) -> bool:
        """Process ODATA or RDATA with the unbounded ``number``; return whether it is new.

        ``trail`` is the source's oldest number, unbounded. The result is ``False`` if the packet is
        a duplicate or outside the window (6.1: "MUST discard"). Numbers between the old lead and
        ``number`` become missing.
        """
        # For nearly all packets no number is missing and no packet waits.
        if number == self.next == self.lead + 1 and trail <= self.trail:
            self.next = number + 1
            self.lead = number
            self._assembler.received(number, data)
            return True
        self.move(trail, number - 1, now)
        if number < self.next or number < self.trail or number in self._packets:
            return False
        if number > self.lead:
            self._make_room(number)
            self.lead = number
        elif self._repairs.complete(number):
            self._charge(-REPAIR_COST)
        self._packets[number] = data
        self._charge(len(data.payload) + PACKET_COST)
        self.deliver(DELIVERED_PER_PACKET if self.has_ready else DELIVERED_AT_ONCE)
        self._keep_within_octets()
        return True

    def move(self, trail: int, lead: int, now: float) -> None:
        """Move the window to the trail and lead that a packet states.

        Missing numbers before the trail are declared lost, and new numbers up to the lead become
        missing. Lower values than the known ones are ignored (6.2: they "SHOULD be ignored").
        """
        if trail > self.trail:
            self.trail = trail
            self.give_up_before(trail, LossReason.TRAIL)
        if lead > self.lead:
            self._make_room(lead)
            count = lead - self.lead
            affordable = self._budget.missing.take_up_to(count, now)
            if affordable < count:
                self.give_up_before(lead + 1 - affordable, LossReason.LIMIT)
            first, self.lead = self.lead + 1, lead
            self._repairs.begin(range(first, lead + 1), now)
            self._charge((lead + 1 - first) * REPAIR_COST)
            self._keep_within_octets()

    def give_up_before(self, number: int, reason: LossReason) -> None:
        """Declare the missing numbers before ``number`` lost, and deliver the received ones.

        ``number`` itself is excluded. The losses are reported with ``reason``.
        """
        if number <= self.next:
            return
        self._repairs.lose_before(number, reason)
        self.deliver()
        # No number before it is left, so ``next`` is ``lead + 1``: the rest was never on any list.
        if number > self.lead + 1:
            self._assembler.add_loss(self.next, number - 1, reason)
            self.next, self.lead = number, number - 1

    def finish(self, reason: LossReason) -> None:
        """End the session: deliver all received data and report all missing numbers as lost.

        The losses are reported with ``reason``.
        """
        self.give_up_before(self.lead + 1, reason)
        self._assembler.finish(self.next, reason)

    def _make_room(self, lead: int) -> None:
        self.give_up_before(lead + 1 - self._settings.rxw_sqns_max, LossReason.LIMIT)

    def _keep_within_octets(self) -> None:
        """Declare the oldest missing numbers lost until the buffered data are within the limits.

        Buffered data wait for older missing numbers and are delivered when those are declared lost.
        """
        settings, budget = self._settings, self._budget
        if self.has_ready and (self.octets > settings.rxw_bytes_max or budget.used > budget.limit):
            self.deliver()
        while self.octets > settings.rxw_bytes_max or (budget.used > budget.limit and self.octets):
            held = self.next
            while held <= self.lead and held not in self._packets:
                held += 1
            # No packet is buffered: the list of missing numbers alone is too long.
            if held > self.lead:
                held = self.next + max(1, (self.lead + 1 - self.next) // 2)
            self.give_up_before(held, LossReason.LIMIT)

    def deliver(self, limit: int | None = None) -> None:
        """Deliver received data and report losses in order, up to the first missing number.

        At most ``limit`` numbers are delivered or reported; ``None`` means no limit.
        """
        packets, assembler = self._packets, self._assembler
        self.has_ready = False
        stop = self.lead if limit is None else min(self.lead, self.next + limit - 1)
        while self.next <= stop:
            number = self.next
            data = packets.pop(number, None)
            if data is not None:
                self._charge(-len(data.payload) - PACKET_COST)
                assembler.received(number, data)
            else:
                reason = self._repairs.take_lost(number)
                if reason is None:
                    return
                self._charge(-REPAIR_COST)
                assembler.add_loss(number, number, reason)
            self.next = number + 1
        self.has_ready = self.next in packets or self._repairs.is_lost(self.next)

    def _charge(self, octets: int) -> None:
        self.octets += octets
        self._budget.used += octets

    def __repr__(self) -> str:
        return (
            f"<ReceiveWindow next={self.next} lead={self.lead} trail={self.trail} "
            f"missing={len(self._repairs)}>"
        )
