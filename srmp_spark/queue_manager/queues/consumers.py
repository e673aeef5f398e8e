"""Decide who reads a queue, how far it is read, and who may mark rows.

INTERFACE.md section 1 describes this. This module does no I/O: time and liveness are arguments.
``now`` is in seconds of the monotonic clock, ``utc`` in microseconds since 1970. To mark a row is
to record that a consumer has received it. The marks of a consumer are a set of sequences, kept as
``received`` (everything up to it) and ``ahead`` (the rows beyond it that are received). Rows are
received out of turn if ``srmp-spark receive`` or a remote reader took them by priority, or if a
query began at ``latest``. Marks are only ever added. There can be as many separate marks as the log
has rows (docs/adr/0020).

A lease states who may add marks. It lasts :data:`LEASE_SECONDS` from the holder's last call, and
ends at once when the holder's process on this host is gone. A second receiver waits. When the
holder renews the lease, the second receiver is refused with MQ_ERROR_SHARING_VIOLATION. When the
lease ends, the second receiver gets it. So a query that was killed and restarted needs no help, and
two live queries learn of each other within one renewal.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from srmp_spark.errors import ApiError
from srmp_spark.holder import HOLDER_TEXT_LENGTH_MAX, Holder
from srmp_spark.interface import SHARING_VIOLATION
from srmp_spark.sequences.ranges import Range, runs_of
from srmp_spark.sequences.sequence_set import SequenceSet, first_missing

LEASE_SECONDS = 60.0
"""Seconds that a lease lasts from the holder's last call.

The holder renews every 10 s, so five lost renewals do no harm.
"""

LEASE_SECONDS_AFTER_START = 30.0
"""Least seconds for which a lease that was stored lasts after a start of the queue manager.

Its holder could not renew it while no queue manager ran.
"""

CONSUMERS_MAX = 100
"""Most consumers of one queue, the default one not counted. A further one is refused."""

SEQUENCES_MAX = 100_000
"""Most sequences in one ``received`` call of the API, which is a request of less than 2 MB.

A call with more is refused. The call marks :data:`SEQUENCES_OF_A_COMMIT` at a time.
"""

SEQUENCES_OF_A_COMMIT = 2_000
"""Most sequences that are marked in one turn of the loop and saved in one commit.

Even if each lies in a block of its own, the commit writes 2,000 pieces, which takes some
milliseconds.
"""

REMOTE_READERS = "remote read (MQRR)"
"""Holder of the lease of a queue that an MQRR client has open to receive.

All such clients together are one holder.
"""

HolderValue = dict[str, object] | str


def parse_holder(value: object) -> HolderValue:
    """Check and return the holder in a request: a :class:`Holder` as JSON, or any text.

    Raises :class:`ApiError` (400) for any other value, and for a text that is too long.
    """
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
    """Return a description of the holder for messages to users."""
    return value if isinstance(value, str) else str(Holder.from_dict(value))


def holder_is_gone(value: HolderValue) -> bool:
    """Return whether the process of the holder is known to have ended.

    The result is False if that cannot be known, such as for a process on another host.
    """
    return not isinstance(value, str) and Holder.from_dict(value).is_gone()


class Marked(NamedTuple):
    """The result of a call that adds marks."""

    rows: int
    """Number of sequences that became received."""
    runs: list[Range]
    """Ascending, disjoint runs of sequences that contain the added ones.

    All sequences of the runs are received now, and some may have been received before.
    """


NOTHING_MARKED = Marked(0, [])


class ConsumerRow(NamedTuple):
    """The database row of a consumer: its saved state without ``ahead``.

    ``holder`` is JSON. ``lease_until`` is in microseconds since 1970.
    """

    received: int
    planned: int | None
    holder: str | None
    lease_until: int | None


@dataclass(slots=True)
class Consumer:
    """One consumer of one queue: its marks, and its lease with the present holder.

    All methods change memory only; :class:`.ConsumerSaves` stores the changes. Methods that mark
    rows return what they marked (:class:`Marked`).
    """

    name: str
    received: int = 0
    """The sequence up to which (included) every row is received."""
    ahead: SequenceSet = field(default_factory=SequenceSet)
    """The rows that are received beyond :attr:`received`, and do not follow it directly.

    It stays the same object while the consumer exists.
    """
    touched: list[Range] | None = None
    """Runs that were added to :attr:`ahead` since the last :meth:`take_touched`.

    ``None`` if that was never called.
    """
    planned: int | None = None
    """The first sequence that the present receiver asked for.

    :meth:`mark_to` marks from this sequence on.
    """
    holder: HolderValue | None = None
    lease_ends: float = 0.0
    """End of the lease, in seconds on the monotonic clock."""
    lease_until: int | None = None
    """End of the lease as shown to users, in microseconds since 1970, UTC."""
    renewals: int = 0
    """Number of grants and renewals of the lease.

    A second receiver that waits learns by it that the holder is alive.
    """
    changes: int = 0
    """Number of changes since the start, mere renewals of the lease not counted."""
    stored_changes: int = 0
    """Number of :attr:`changes` that are on stable storage."""
    stored_received: int = 0
    """:attr:`received` as it is on stable storage.

    Other parts, such as the journal of the queue, must not use a later value.
    """

    @classmethod
    def load(cls, name: str, row: ConsumerRow, ahead: SequenceSet, *, now: float) -> Consumer:
        """Build the consumer from its saved state. The caller must not use ``ahead`` afterwards.

        A lease lasts at least :data:`LEASE_SECONDS_AFTER_START` from ``now``, in seconds of the
        monotonic clock.
        """
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
        """Return the database row to save. The changes of :attr:`ahead` are saved separately."""
        return ConsumerRow(
            self.received,
            self.planned,
            None if self.holder is None else json.dumps(self.holder, separators=(",", ":")),
            self.lease_until,
        )

    @property
    def is_stored(self) -> bool:
        """Return whether all changes of the consumer are on stable storage."""
        return self.stored_changes == self.changes

    def stored(self, changes: int, received: int) -> None:
        """Record that the state after ``changes`` changes is on stable storage.

        ``received`` is :attr:`received` in that state.
        """
        self.stored_changes, self.stored_received = changes, received

    # --- the lease --------------------------------------------------------------------------------

    def is_held(self, now: float) -> bool:
        """Return whether a living holder has the lease at the time ``now``."""
        return self.holder is not None and now < self.lease_ends and not holder_is_gone(self.holder)

    def grant(
        self,
        holder: HolderValue,
        planned: int | None,
        *,
        now: float,
        utc: int,
        ranged: bool = False,
    ) -> None:
        """Give ``holder`` the lease, or renew it. The caller checks that no other holder has it.

        The plan (:attr:`planned`) becomes ``planned``. With ``ranged`` the holder's marks name
        their first sequence, so the plan does not change. If ``planned`` is ``None``, a renewal
        keeps the plan. A new holder keeps the old plan too if it lies beyond the first unreceived
        row: a query that began at ``latest`` and was restarted before its first mark. Otherwise the
        plan of a new holder begins at the first unreceived row.
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
        """Let the lease last :data:`LEASE_SECONDS` from now on, because the holder called.

        The present time is ``now`` on the monotonic clock (seconds) and ``utc`` in microseconds
        since 1970.
        """
        self.lease_ends = now + LEASE_SECONDS
        self.lease_until = utc + int(LEASE_SECONDS * 1_000_000)
        self.renewals += 1

    def release(self) -> None:
        """End the lease, because the holder no longer needs it."""
        self.holder = None
        self.lease_until = None
        self.lease_ends = 0.0

    def refusal(self) -> ApiError:
        """Return the error (409) with which a second receiver is refused.

        There must be a holder.
        """
        assert self.holder is not None
        return ApiError(
            409,
            SHARING_VIOLATION,
            f"consumer {self.name} is held by {holder_text(self.holder)}",
            "stop that receiver, or read with another consumer name (option consumer; for "
            "a command --consumer)",
            "INTERFACE.md section 1",
        )

    # --- the marks --------------------------------------------------------------------------------

    def mark_to(self, to: int) -> Marked:
        """Mark the rows from the holder's plan to ``to`` (included) as received.

        Without a plan, mark from the first unreceived row.
        """
        first = self.planned if self.planned is not None else self.received + 1
        return self._add([(first, to)]) if to >= first else NOTHING_MARKED

    def mark_range(self, first: int, to: int) -> Marked:
        """Mark the rows ``first`` to ``to`` (included) as received, whatever the plan is."""
        return self._add([(first, to)]) if to >= first else NOTHING_MARKED

    def mark_each(self, sequences: Iterable[int]) -> Marked:
        """Mark the rows with these ``sequences``, in any order, as received, whatever the plan is.

        Return the number of rows that became received, and the runs. Rows that were received before
        are not counted.
        """
        return self._add(runs_of(sequences))

    def skip_to(self, to: int) -> Marked:
        """Mark all rows up to ``to`` (included) as received, whatever the plan is.

        The caller uses this for rows that were purged or trimmed.
        """
        return self._add([(self.received + 1, to)]) if to > self.received else NOTHING_MARKED

    def skip_all_but(self, to: int, spared: SequenceSet) -> Marked:
        """Mark all rows up to ``to`` (included) as received, except those in ``spared``."""
        return self._add(list(spared.gaps(self.received + 1, to)))

    def pass_over(self, trimmed_to: int, holes: SequenceSet) -> None:
        """Move :attr:`received` past rows that no longer exist and that follow it directly.

        Rows up to ``trimmed_to`` (included) and rows in ``holes`` do not exist.
        """
        self._move_to(first_missing(max(self.received, trimmed_to) + 1, self.ahead, holes) - 1)

    def take_touched(self) -> list[Range]:
        """Return and forget the runs that were added to :attr:`ahead` since the last call.

        The first call returns nothing, and starts the record of such runs.
        """
        touched, self.touched = self.touched or [], []
        return touched

    def _add(self, runs: Sequence[Range]) -> Marked:
        """Mark the rows of ``runs`` as received. The runs must be ascending and disjoint."""
        ahead, begin = self.ahead, self.received + 1
        before = self.received + len(ahead)
        added = [(max(first, begin), last) for first, last in runs if last >= begin]
        beyond: list[Range] = []
        for first, last in added:
            if first > self.received + 1:
                beyond.append((first, last))
            else:  # The usual case: a query continues where its last batch ended.
                self._move_to(last)
        ahead.add_each(first for first, last in beyond if first == last)
        for first, last in beyond:
            if first < last:
                ahead.add(first, last)
        if self.touched is not None:
            self.touched += beyond
        return Marked(self.received + len(ahead) - before, added)

    def _move_to(self, to: int) -> None:
        """Mark everything up to ``to`` (included) as received.

        Rows of :attr:`ahead` that follow directly then belong to :attr:`received` too.
        """
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
    """Give ``holder`` the lease of ``consumer`` if no other living holder has it.

    Return "granted", or "wait" if another holder has it; the caller then tries again later.
    ``planned`` and ``ranged`` are those of :meth:`Consumer.grant`. ``seen_renewals`` is
    :attr:`Consumer.renewals` when the waiting began. Raises :class:`ApiError` (409) if the present
    holder has renewed the lease since.
    """
    if consumer.holder == holder or not consumer.is_held(now):
        consumer.grant(holder, planned, now=now, utc=utc, ranged=ranged)
        return "granted"
    if consumer.renewals != seen_renewals:
        raise consumer.refusal()
    return "wait"


def not_registered(consumer: Consumer) -> ApiError:
    """Return the error (409) for a receiver that does not hold the lease of ``consumer``."""
    said = f"consumer {consumer.name} is not registered by this receiver"
    return ApiError(409, "not-registered", said, "register it first")
