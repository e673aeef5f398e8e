"""The receive window of one session (RFC 3208 3.4, 6.1): what has come, what is missing, what is next.

"A receiver simply obeys what the source tells it in terms of window state and advancement": the trail of any packet gives up
what is older, a number or an SPM's lead beyond our own makes what lies between missing. Numbers are unbounded
(:mod:`.sequence`); a packet's trail and lead are read as the nearest to what is known.

When the first of many is repaired, all behind it are ready at once, and taking them may last longer than the kernel's buffer
has room: what comes meanwhile would be lost, and asked for. So each packet that comes takes DELIVERED_PER_PACKET along, and the
next ``poll`` DELIVERED_AT_ONCE.

Memory is bounded by numbers (RXW_SQNS_MAX) and octets (RXW_BYTES_MAX, BUFFER_BYTES_MAX); past one of them the oldest missing
numbers are given up, and told as lost like all others.
"""

from __future__ import annotations

from srmp_spark.pgm.assembler import Assembler
from srmp_spark.pgm.outputs import LossReason
from srmp_spark.pgm.packets import Data
from srmp_spark.pgm.repairs import NAK_BURST_S, NUMBERS_PER_NAK, REPAIR_COST, Repairs
from srmp_spark.pgm.settings import ReceiverSettings
from srmp_spark.pgm.token_bucket import TokenBucket

DELIVERED_AT_ONCE = 64
"""Packets that are told in one step: a quarter of a millisecond."""
DELIVERED_PER_PACKET = 2
"""While more are ready: one for the packet that came, one of those that wait."""
MISSING_WINDOWS = 4
"""Whole windows (RXW_SQNS_MAX) that may be found missing at once, of all sessions together: after the network was away."""
PACKET_COST = 400
"""Octets that a buffered packet costs beside its payload."""


class Budget:
    """What all sessions of a receiver hold together, and how much may be found missing."""

    def __init__(self, settings: ReceiverSettings) -> None:
        self.limit = settings.buffer_bytes_max
        self.used = 0
        rate = settings.nak_rate_max * NUMBERS_PER_NAK
        self.missing = TokenBucket(rate, MISSING_WINDOWS * settings.rxw_sqns_max, 0.0)
        """Numbers. What is missing faster than NAKs can ask for it is given up at once, as LIMIT: a forged SPM of 36 octets
        makes a list of RXW_SQNS_MAX numbers, 50 ms of work, and the next one another."""
        self.naks = TokenBucket(
            settings.nak_rate_all_max, max(1.0, settings.nak_rate_all_max * NAK_BURST_S), 0.0
        )
        """NAKs of all sessions: what makes many sessions no stronger than two."""


class ReceiveWindow:
    """From :attr:`next`, the first number that is neither told nor given up, to :attr:`lead`, the highest that is known of."""

    def __init__(
        self,
        first: int,
        settings: ReceiverSettings,
        repairs: Repairs,
        assembler: Assembler,
        budget: Budget,
    ) -> None:
        self.next = first
        self.lead = first - 1
        self.trail = first
        self.octets = 0
        """What it costs in memory."""
        self.has_ready = False
        """There is more to tell: :meth:`deliver` stopped at its limit."""
        self._settings = settings
        self._repairs = repairs
        self._assembler = assembler
        self._budget = budget
        self._packets: dict[int, Data] = {}

    @property
    def missing(self) -> int:
        """Numbers that are asked for, or given up and not told yet."""
        return len(self._repairs)

    def receive(self, number: int, trail: int, data: Data, now: float) -> bool:
        """ODATA or RDATA; False if it is a duplicate or outside the window (6.1: "MUST discard")."""
        if (
            number == self.next == self.lead + 1 and trail <= self.trail
        ):  # nearly all of them: nothing is missing, nothing waits
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
        """What a packet says of the window of the source. 6.2: values that are less than what is known "SHOULD be ignored"."""
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
        """What is missing before ``number`` is lost; what came is told."""
        if number <= self.next:
            return
        self._repairs.lose_before(number, reason)
        self.deliver()
        if (
            number > self.lead + 1
        ):  # nothing before it is left, so next is lead + 1: the rest never was on any list
            self._assembler.lost(self.next, number - 1, reason)
            self.next, self.lead = number, number - 1

    def finish(self, reason: LossReason) -> None:
        """The session is over: tell all that is there, and what is missing as lost."""
        self.give_up_before(self.lead + 1, reason)
        self._assembler.finish(self.next, reason)

    def _make_room(self, lead: int) -> None:
        self.give_up_before(lead + 1 - self._settings.rxw_sqns_max, LossReason.LIMIT)

    def _keep_within_octets(self) -> None:
        """The oldest missing numbers stand before what is held: give them up until what is held has gone."""
        settings, budget = self._settings, self._budget
        if self.has_ready and (self.octets > settings.rxw_bytes_max or budget.used > budget.limit):
            self.deliver()
        while self.octets > settings.rxw_bytes_max or (budget.used > budget.limit and self.octets):
            held = self.next
            while held <= self.lead and held not in self._packets:
                held += 1
            if held > self.lead:  # nothing is held: the list of what is missing alone is too long
                held = self.next + max(1, (self.lead + 1 - self.next) // 2)
            self.give_up_before(held, LossReason.LIMIT)

    def deliver(self, limit: int | None = None) -> None:
        """Tell what is next, as far as it came or is given up; no more than ``limit`` numbers."""
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
                assembler.lost(number, number, reason)
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
