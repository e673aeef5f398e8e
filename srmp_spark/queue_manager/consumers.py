"""Consumers: who reads a queue, how far, and who may (INTERFACE.md section 1). Pure: time and liveness are handed in.

A consumer's marks are a set of sequences, kept as ``received`` (everything up to it) and ``ahead`` (what lies beyond it: rows
that ``srmp-spark receive`` or a remote reader took by priority, or a query that began at ``latest``). Marks are only ever
added, and as many separate ones as the log has rows (docs/adr/0020).

A lease says who may add marks. It lasts :data:`LEASE_SECONDS` from the holder's last call, and ends at once when the
holder's process on this host is gone. A second receiver waits: the moment the holder renews it is refused with
MQ_ERROR_SHARING_VIOLATION, and when the lease ends it is granted. So a query that was killed and restarted needs no help,
and two live queries are told of each other within one renewal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from srmp_spark.errors import ApiError
from srmp_spark.holder import HOLDER_TEXT_LENGTH_MAX, Holder
from srmp_spark.interface import SHARING_VIOLATION
from srmp_spark.sequences.ranges import Range, runs_of
from srmp_spark.sequences.sequence_set import SequenceSet, first_missing

LEASE_SECONDS = 60.0
"""From the holder's last call; it renews every 10 s, so five lost renewals are forgiven."""

LEASE_SECONDS_AFTER_START = 30.0
"""What a lease found at start lasts at least: its holder could not renew while we were away."""

CONSUMERS_MAX = 100
"""Named consumers of one queue."""

SEQUENCES_MAX = 100_000
"""Sequences in one ``received`` call: a request of less than 2 MB. It marks :data:`SEQUENCES_OF_A_COMMIT` at a time."""

SEQUENCES_OF_A_COMMIT = 2_000
"""Of these, so many are marked in one turn of the loop and saved in one commit: even if they lie in as many blocks, it writes
2,000 pieces, some milliseconds."""

REMOTE_READERS = "remote read (MQRR)"
"""Holder of the lease of a queue that an MQRR client has open to receive: all of them together."""

HolderValue = dict[str, Any] | str


def parse_holder(value: object) -> HolderValue:
    """A holder from a request: a :class:`Holder` as JSON, or any text. Raises a 400."""
    if isinstance(value, str) and 0 < len(value) <= HOLDER_TEXT_LENGTH_MAX:
        return value
    if isinstance(value, dict):
        try:
            return Holder.from_dict(value).as_dict()
        except ValueError as error:
            raise ApiError(
                400, "usage", f"holder: {error}", section="INTERFACE.md section 3"
            ) from None
    raise ApiError(
        400,
        "usage",
        "holder is a text or an object made by srmp_spark.holder",
        section="INTERFACE.md section 3",
    )


def holder_text(value: HolderValue) -> str:
    """For people."""
    return value if isinstance(value, str) else str(Holder.from_dict(value))


def holder_is_gone(value: HolderValue) -> bool:
    """True only when we can know it."""
    return not isinstance(value, str) and Holder.from_dict(value).is_gone()


class Marked(NamedTuple):
    """What a call has added to the marks."""

    rows: int
    """How many sequences became received."""
    runs: list[Range]
    """They lie in these, ascending and disjoint; all of these are received now, and some may have been before."""


NOTHING_MARKED = Marked(0, [])


class ConsumerRow(NamedTuple):
    """What is saved of a consumer but for what lies beyond its mark; ``holder`` is JSON. Times are microseconds since 1970."""

    received: int
    planned: int | None
    holder: str | None
    lease_until: int | None


@dataclass(slots=True)
class Consumer:
    """One consumer of one queue."""

    name: str
    received: int = 0
    """Every row up to this one is received."""
    ahead: SequenceSet = field(default_factory=SequenceSet)
    """Received beyond it, and not just behind it. The same object for as long as the consumer is there."""
    touched: list[Range] | None = None
    """Runs that were added to :attr:`ahead` since they were last taken (:meth:`take_touched`); ``None``: nobody takes them."""
    planned: int | None = None
    """The first sequence that the present receiver asked for: its marks reach no further down unless they say so."""
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
    def load(cls, name: str, row: ConsumerRow, ahead: SequenceSet, *, now: float) -> Consumer:
        """As it was saved; a lease gets at least :data:`LEASE_SECONDS_AFTER_START` from now. ``ahead`` is its own now."""
        return cls(
            name=name,
            received=row.received,
            ahead=ahead,
            planned=row.planned,
            holder=None if row.holder is None else json.loads(row.holder),
            lease_ends=now + LEASE_SECONDS_AFTER_START,
            lease_until=row.lease_until,
            stored_received=row.received,
        )

    def row(self) -> ConsumerRow:
        """To be saved with the changes of :attr:`ahead`."""
        return ConsumerRow(
            self.received,
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

    def grant(
        self,
        holder: HolderValue,
        planned: int | None,
        *,
        now: float,
        utc: int,
        ranged: bool = False,
    ) -> None:
        """Give ``holder`` the lease, or renew it. ``ranged``: its marks say where they begin, so nothing is kept of its plan.

        ``planned`` ``None``: keep what was planned when renewing. A new holder goes on with it too if it lies beyond the first
        unreceived row (a query that began at ``latest`` and was restarted before its first mark), else begins there.
        """
        if (
            not ranged
            and holder != self.holder
            and (self.planned is None or self.planned <= self.received + 1)
        ):
            self.planned = self.received + 1
        if planned is not None and not ranged:
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
            "stop that receiver, or read with another consumer name (option consumer, of "
            "a command --consumer)",
            "INTERFACE.md section 1",
        )

    # --- the marks --------------------------------------------------------------------------------------------------------

    def mark_to(self, to: int) -> Marked:
        """Received: everything that the holder planned, up to ``to``."""
        first = self.planned if self.planned is not None else self.received + 1
        return self._add([(first, to)]) if to >= first else NOTHING_MARKED

    def mark_range(self, first: int, to: int) -> Marked:
        """Received: these, whatever the holder has planned."""
        return self._add([(first, to)]) if to >= first else NOTHING_MARKED

    def mark_each(self, sequences: Iterable[int]) -> Marked:
        """Received: these."""
        return self._add(runs_of(sequences))

    def skip_to(self, to: int) -> Marked:
        """Rows up to ``to`` are no more (purged, trimmed): they count as received."""
        return self._add([(self.received + 1, to)]) if to > self.received else NOTHING_MARKED

    def skip_all_but(self, to: int, spared: SequenceSet) -> Marked:
        """:meth:`skip_to`, but for these rows beyond the mark."""
        return self._add(list(spared.gaps(self.received + 1, to)))

    def pass_over(self, trimmed_to: int, holes: SequenceSet) -> None:
        """Rows up to ``trimmed_to`` and in ``holes`` are no more: the mark does not stop before them."""
        self._move_to(first_missing(max(self.received, trimmed_to) + 1, self.ahead, holes) - 1)

    def waiting(self, first: int, end: int) -> int:
        """How many of the rows ``first`` to ``end`` are not received."""
        low = max(first, self.received + 1)
        return 0 if low > end else end - low + 1 - self.ahead.count(low, end)

    def take_touched(self) -> list[Range]:
        """What was added beyond the mark since the last call. From the first call on it is kept until the next."""
        touched, self.touched = self.touched or [], []
        return touched

    def _add(self, runs: Sequence[Range]) -> Marked:
        """Add runs, ascending and disjoint."""
        ahead, begin = self.ahead, self.received + 1
        before = self.received + len(ahead)
        added = [(max(first, begin), last) for first, last in runs if last >= begin]
        beyond: list[Range] = []
        for first, last in added:
            if first > self.received + 1:
                beyond.append((first, last))
            else:  # mostly: a query that goes on where its last batch ended
                self._move_to(last)
        ahead.add_each(first for first, last in beyond if first == last)
        for first, last in beyond:
            if first < last:
                ahead.add(first, last)
        if self.touched is not None:
            self.touched += beyond
        return Marked(self.received + len(ahead) - before, added)

    def _move_to(self, to: int) -> None:
        """Everything up to ``to`` is received, and what lies just behind it with it."""
        if to > self.received:
            self.received = self.ahead.next_missing(to + 1) - 1
            self.ahead.discard_through(self.received)


RegisterOutcome = Literal["granted", "wait"]


def try_register(
    consumer: Consumer,
    holder: HolderValue,
    planned: int | None,
    seen_renewals: int,
    *,
    now: float,
    utc: int,
    ranged: bool = False,
) -> RegisterOutcome:
    """One look at a registration that may have to wait; ``seen_renewals`` is the count when the waiting began.

    Raises the 409 as soon as the present holder has called since.
    """
    if consumer.holder == holder or not consumer.is_held(now):
        consumer.grant(holder, planned, now=now, utc=utc, ranged=ranged)
        return "granted"
    if consumer.renewals != seen_renewals:
        raise consumer.refusal()
    return "wait"
