"""Consumers: who reads a queue, how far, and who may (INTERFACE.md section 1). Pure: time and liveness are handed in.

A consumer's marks are a set of sequences, kept as ``received`` (everything up to it) and ``ahead`` (runs beyond it: rows
that ``srmp-spark receive`` took by priority, or a query that began at ``latest``). Marks are only ever added.

A lease says who may add marks. It lasts :data:`LEASE_SECONDS` from the holder's last call, and ends at once when the
holder's process on this host is gone. A second receiver waits: the moment the holder renews it is refused with
MQ_ERROR_SHARING_VIOLATION, and when the lease ends it is granted. So a query that was killed and restarted needs no help,
and two live queries are told of each other within one renewal.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from srmp_spark.errors import ApiError
from srmp_spark.holder import HOLDER_TEXT_LENGTH_MAX, Holder
from srmp_spark.interface import SHARING_VIOLATION
from srmp_spark.srmp.decisions import Marks
from srmp_spark.srmp.ranges import Range, gaps

LEASE_SECONDS = 60.0
"""From the holder's last call; it renews every 10 s, so five lost renewals are forgiven."""

LEASE_SECONDS_AFTER_START = 30.0
"""What a lease found at start lasts at least: its holder could not renew while we were away."""

CONSUMERS_MAX = 100
"""Named consumers of one queue."""

AHEAD_RUNS_MAX = 10_000
"""Runs beyond ``received``: more means that somebody receives every second row for ever; the store rewrites them each time."""

SEQUENCES_MAX = 100_000
"""Sequences in one ``received`` call: a second of work, and a request of less than 2 MB."""

HolderValue = dict[str, Any] | str


def parse_holder(value: object) -> HolderValue:
    """A holder from a request: a :class:`Holder` as JSON, or any text. Raises a 400."""
    if isinstance(value, str) and 0 < len(value) <= HOLDER_TEXT_LENGTH_MAX:
        return value
    if isinstance(value, dict):
        try:
            return Holder.from_dict(value).as_dict()
        except ValueError as error:
            raise ApiError(400, "usage", f"holder: {error}", section="INTERFACE.md section 3") from None
    raise ApiError(400, "usage", "holder is a text or an object made by srmp_spark.holder", section="INTERFACE.md section 3")


def holder_text(value: HolderValue) -> str:
    """For people."""
    return value if isinstance(value, str) else str(Holder.from_dict(value))


def holder_is_gone(value: HolderValue) -> bool:
    """True only when we can know it."""
    return not isinstance(value, str) and Holder.from_dict(value).is_gone()


class ConsumerRow(NamedTuple):
    """What is saved of a consumer; ``holder`` is JSON. Times are microseconds since 1970, UTC."""

    received: int
    ahead: list[tuple[int, int]]
    planned: int | None
    holder: str | None
    lease_until: int | None


@dataclass(slots=True)
class Consumer:
    """One consumer of one queue."""

    name: str
    received: int = 0
    """Every row up to this one is received."""
    ahead: list[tuple[int, int]] = field(default_factory=list)
    """Received beyond it: sorted, disjoint, not adjacent, closed ranges."""
    planned: int | None = None
    """The first sequence that the present receiver asked for: its marks reach no further down."""
    holder: HolderValue | None = None
    lease_ends: float = 0.0
    """On the monotonic clock."""
    lease_until: int | None = None
    """The same for people: microseconds since 1970, UTC."""
    renewals: int = 0
    """How often a holder has called: a waiting second receiver watches it."""
    changes: int = 0
    """How often it was changed since the start, but for renewals alone."""
    stored_changes: int = 0
    """How many of these changes are on stable storage."""
    stored_received: int = 0
    """:attr:`received` as it is on stable storage: what others may be told to be received (the journal of the queue)."""

    @classmethod
    def load(cls, name: str, row: ConsumerRow, *, now: float) -> Consumer:
        """As it was saved; a lease gets at least :data:`LEASE_SECONDS_AFTER_START` from now."""
        return cls(
            name=name,
            received=row.received,
            ahead=list(row.ahead),
            planned=row.planned,
            holder=None if row.holder is None else json.loads(row.holder),
            lease_ends=now + LEASE_SECONDS_AFTER_START,
            lease_until=row.lease_until,
            stored_received=row.received,
        )

    def row(self) -> ConsumerRow:
        """To be saved."""
        return ConsumerRow(
            self.received,
            list(self.ahead),
            self.planned,
            None if self.holder is None else json.dumps(self.holder, separators=(",", ":")),
            self.lease_until,
        )

    @property
    def is_stored(self) -> bool:
        """Whether a start after a kill would find it as it is."""
        return self.stored_changes == self.changes

    def stored(self, changes: int, received: int) -> None:
        """A commit that holds it as it was after so many changes, with that mark, is on stable storage."""
        self.stored_changes, self.stored_received = changes, received

    # --- the lease ------------------------------------------------------------------------------------------------------

    def is_held(self, now: float, gone: Callable[[HolderValue], bool] = holder_is_gone) -> bool:
        """Whether a living holder has the lease."""
        return self.holder is not None and now < self.lease_ends and not gone(self.holder)

    def grant(self, holder: HolderValue, planned: int | None, *, now: float, utc: int) -> None:
        """Give ``holder`` the lease, or renew it.

        ``planned`` ``None``: keep what was planned when renewing. A new holder goes on with it too if it lies beyond the first
        unreceived row (a query that began at ``latest`` and was restarted before its first mark), else begins there.
        """
        if holder != self.holder and (self.planned is None or self.planned <= self.received + 1):
            self.planned = self.received + 1
        if planned is not None:
            self.planned = planned
        self.holder = holder
        self.renew(now=now, utc=utc)

    def renew(self, *, now: float, utc: int) -> None:
        """The holder called."""
        self.lease_ends = now + LEASE_SECONDS
        self.lease_until = utc + int(LEASE_SECONDS * 1_000_000)
        self.renewals += 1

    def release(self) -> None:
        """The holder is done."""
        self.holder = None
        self.lease_until = None
        self.lease_ends = 0.0

    def refusal(self) -> ApiError:
        """What a second receiver is told."""
        assert self.holder is not None
        return ApiError(
            409,
            SHARING_VIOLATION,
            f"consumer {self.name} is held by {holder_text(self.holder)}",
            "stop that receiver, or read with another consumer name (option consumer, of a command --consumer)",
            "INTERFACE.md section 1",
        )

    # --- the marks --------------------------------------------------------------------------------------------------------

    def marks(self) -> Marks:
        """As they are now."""
        return Marks(self.received, tuple(self.ahead))

    def mark_to(self, to: int) -> int:
        """Received: everything that the holder planned, up to ``to``. How many rows that added."""
        first = self.planned if self.planned is not None else self.received + 1
        return self._add(first, to) if to >= first else 0

    def mark_each(self, sequences: list[int]) -> int:
        """Received: these. Raises a 409 when the runs would become too many."""
        before = self.received, list(self.ahead)
        added = sum(self._add(sequence, sequence) for sequence in sequences)
        if len(self.ahead) > AHEAD_RUNS_MAX:
            self.received, self.ahead = before
            raise ApiError(
                409, "too-scattered", f"more than {AHEAD_RUNS_MAX} separate runs received", "receive the rows in between"
            )
        return added

    def skip_to(self, to: int) -> int:
        """Rows up to ``to`` are no more (purged, trimmed): they count as received. How many rows that added."""
        return self._add(self.received + 1, to) if to > self.received else 0

    def skip_all_but(self, to: int, spared: Sequence[int]) -> int:
        """:meth:`skip_to`, but for these rows beyond the mark."""
        return sum(self._add(first, last) for first, last in gaps(self.received + 1, to, [(each, each) for each in spared]))

    def pass_over(self, trimmed_to: int, holes: Sequence[Range]) -> None:
        """Rows up to ``trimmed_to`` and in ``holes`` (ascending, disjoint) are no more: the mark does not stop before them."""
        self.skip_to(trimmed_to)
        at = hole = 0
        while True:
            if hole < len(holes) and holes[hole][0] <= self.received + 1:
                self.received = max(self.received, holes[hole][1])
                hole += 1
            elif at < len(self.ahead) and self.ahead[at][0] <= self.received + 1:
                self.received = max(self.received, self.ahead[at][1])
                at += 1
            else:
                break
        del self.ahead[:at]

    def waiting(self, first: int, end: int) -> int:
        """How many of the rows ``first`` to ``end`` are not received."""
        low = max(first, self.received + 1)
        if low > end:
            return 0
        return end - low + 1 - sum(min(b, end) - max(a, low) + 1 for a, b in self.ahead if b >= low and a <= end)

    def _add(self, first: int, last: int) -> int:
        """Add a run; the number of sequences that were new."""
        first = max(first, self.received + 1)
        if last < first:
            return 0
        ahead = self.ahead
        low = bisect_left(ahead, (first,))
        if low > 0 and ahead[low - 1][1] >= first - 1:
            low -= 1
        high = low
        known = 0
        new_first, new_last = first, last
        while high < len(ahead) and ahead[high][0] <= last + 1:
            a, b = ahead[high]
            known += max(0, min(b, last) - max(a, first) + 1)
            new_first, new_last = min(new_first, a), max(new_last, b)
            high += 1
        ahead[low:high] = [(new_first, new_last)]
        if ahead[0][0] == self.received + 1:
            self.received = ahead.pop(0)[1]
        return last - first + 1 - known


RegisterOutcome = Literal["granted", "wait"]


def try_register(
    consumer: Consumer, holder: HolderValue, planned: int | None, seen_renewals: int, *, now: float, utc: int
) -> RegisterOutcome:
    """One look at a registration that may have to wait; ``seen_renewals`` is the count when the waiting began.

    Raises the 409 as soon as the present holder has called since.
    """
    if consumer.holder == holder or not consumer.is_held(now):
        consumer.grant(holder, planned, now=now, utc=utc)
        return "granted"
    if consumer.renewals != seen_renewals:
        raise consumer.refusal()
    return "wait"
