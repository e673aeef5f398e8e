"""SRMPState.MessageIdHistoryTable: the message identifiers that have been received.

See [MC-MQSRM] 3.1.1.1.5. Windows keeps 10,000 identifiers for 30 minutes (appendix A <16>).
However, its own stream sender repeats a message every six hours without end (<18>), and a proxy may
hold a POST even longer. This module keeps identifiers for 30 days. The identifiers of one queue
manager (its *lineage*) rise by one for each message, so they are stored as runs and not one by one.
In this module a lineage is the key of :func:`~srmp_spark.srmp.receiving.trust_domain.lineage_key`,
which also says to whom the identifiers belong.

This module stores nothing. :meth:`MessageIdHistory.take_changes` returns the changes since its last
call, for the transaction that holds the rows. If an identifier were durable before its message, the
retry of the sender would be taken for a repeat, and the message would be lost.

Times come from :class:`~srmp_spark.srmp.receiving.history_clock.HistoryClock` and not from the wall
clock. An operator may set the wall clock ahead by years, and all identifiers would be forgotten at
once.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from srmp_spark.srmp.receiving.runs import Run, Runs, Trimmed
from srmp_spark.srmp.receiving.trust_domain import SEPARATOR, lineage_of

MESSAGE_ID_HISTORY_DAYS = 30
"""Days for which an identifier is kept.

This is far longer than the six hours between two attempts of a sender ([MC-MQSRM] appendix A <18>).
"""
MESSAGE_ID_RUNS_MAX = 3_500_000
"""Most runs in the history, of 24 bytes each, about 85 MB together.

At the limit the oldest runs are forgotten. A sender that shares its numbers among many destinations
makes one run for each message: the limit holds 30 days of one and a third messages a second. With
both limits reached a queue manager uses less than 300 MB.
"""
MESSAGE_ID_LINEAGES_MAX = 80_000
"""Most lineages in the history, of about 700 bytes each.

At the limit those with the oldest last message are forgotten. Only a peer that invents a source
GUID for each message reaches the limit, because an honest peer has one GUID.
"""
EVICTED_SHARE = 16
"""A full table loses its oldest 1/16 before the age of "the oldest" is determined again.

With 72,000 senders of 48 runs each this is three runs of each sender, and a page of the table is
written once for three runs. With 1/64 each page was written for one run.
"""
EVICTION_SAMPLES = 4096
"""Number of arrival times that are compared to determine the age of "the oldest"."""
FORGOTTEN_MAX = 256
"""Most runs that are forgotten at once.

The next transaction deletes their keys, which delays its messages by about a millisecond.
"""
LOOKED_AT_MAX = 16_384
"""Most runs whose time is compared at once, which takes about a millisecond.

Each lineage counts as :data:`LINEAGE_COST` more.
"""
LINEAGE_COST = 8
"""Cost of a lineage without any run that is old enough, in runs that are compared."""

_DAY = 86_400_000_000
_NOTHING = Trimmed([], 0, complete=True)


class HistoryRun(NamedTuple):
    """A database row of the table ``history``: the numbers ``first`` to ``last`` were received.

    Both ends are included. The key is (``lineage``, ``first``).
    """

    lineage: str
    first: int
    last: int
    last_received_at: int
    """Time at which an identifier of the run arrived most recently, in microseconds since 1970,
    UTC.
    """


class HistoryChanges(NamedTuple):
    """The changes to the table ``history``: delete the keys, then insert or replace the rows."""

    upserts: list[HistoryRun]
    deletes: list[tuple[str, int]]


class _Lineage(Runs):
    """The received numbers of one source queue manager as runs, and the keys still to save."""

    __slots__ = ("touched",)

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        super().__init__(runs)
        self.touched: set[int] | None = None


class MessageIdHistory:
    """Keeps the received identifiers, and collects the changes that are not saved yet."""

    def __init__(self) -> None:
        self._lineages: dict[str, _Lineage] = {}
        self._dirty: dict[str, _Lineage] = {}
        self._runs = 0
        self._expiring: list[str] = []
        self._evicting: list[str] = []
        self._leaving: list[str] = []
        """Lineages that the pass in progress must still examine, the next one last."""
        self._evict_before = self._leave_before = 0
        self.evicted_count = 0
        """Number of runs that were forgotten early because a limit was reached.

        Any number above 0 deserves an alarm.
        """
        self._undivided_until = 0

    @classmethod
    def load(cls, rows: Iterable[HistoryRun], undivided_until: int = 0) -> MessageIdHistory:
        """Return the history that was saved as ``rows``.

        Rows in the order of their key are read one by one, so millions of rows need no second copy.
        ``undivided_until`` is a time in microseconds. Identifiers that arrived up to this time were
        saved by a version without trust domains, and count for every domain.
        """
        history = cls()
        history._undivided_until = undivided_until
        lineages = history._lineages
        late: dict[str, list[Run]] = {}
        for lineage, first, last, at in rows:
            runs = lineages.get(lineage)
            if runs is None:
                runs = lineages[lineage] = _Lineage()
            if not runs.append_run(first, last, at):
                late.setdefault(lineage, []).append(Run(first, last, at))
        for lineage, more in late.items():
            lineages[lineage] = _Lineage([*lineages[lineage], *more])
        history._runs = sum(map(len, lineages.values()))
        return history

    def seen(self, lineage: str, uniquifier: int) -> bool:
        """Return whether this identifier was received before ([MC-MQSRM] 3.1.5.1.11).

        ``lineage`` is a key of :func:`~srmp_spark.srmp.receiving.trust_domain.lineage_key`.
        """
        runs = self._lineages.get(lineage)
        if runs is not None and uniquifier in runs:
            return True
        if not self._undivided_until or SEPARATOR not in lineage:
            return False
        # For a run that grew since then, it is unknown which of its identifiers are old. Its
        # identifiers then do not count for other domains, which duplicates a row at worst.
        undivided = self._lineages.get(lineage_of(lineage))
        at = None if undivided is None else undivided.at_of(uniquifier)
        return at is not None and at <= self._undivided_until

    def add(self, lineage: str, uniquifier: int, at: int) -> None:
        """Remember an identifier that was received at ``at`` (microseconds since 1970).

        The change is saved with the next :meth:`take_changes`. At a limit some of the oldest runs
        or lineages are forgotten.
        """
        runs = self._lineages.get(lineage)
        if runs is None:
            # A lineage that was just forgotten still has keys to delete. It is used again, because
            # these keys would stay in the table otherwise.
            runs = self._lineages[lineage] = (
                self._dirty[lineage] if lineage in self._dirty else _Lineage()
            )
        before = len(runs)
        first, vanished = runs.add(uniquifier, at)
        touched = runs.touched
        if touched is None:
            touched = runs.touched = set()
            self._dirty[lineage] = runs
        touched.add(first)
        if vanished is not None:
            touched.add(vanished)
        self._runs += len(runs) - before
        if self._runs > MESSAGE_ID_RUNS_MAX:
            self._make_room()
        if len(self._lineages) > MESSAGE_ID_LINEAGES_MAX:
            self._make_room_for_lineages()

    def expire(self, now: int) -> bool:
        """Forget some of the identifiers that are older than :data:`MESSAGE_ID_HISTORY_DAYS`.

        ``now`` is in microseconds since 1970. One call examines at most about LOOKED_AT_MAX runs.
        Return True if every lineage was examined. Return False if the method must be called again
        soon, for the next part.
        """
        if not self._expiring:
            self._expiring = list(reversed(self._lineages))
        before = now - MESSAGE_ID_HISTORY_DAYS * _DAY
        forget, look_at = FORGOTTEN_MAX, LOOKED_AT_MAX
        while self._expiring:
            if forget <= 0 or look_at <= 0:
                return False
            trimmed = self._forget(self._expiring[-1], before, forget, look_at)
            forget -= len(trimmed.firsts)
            look_at -= trimmed.looked_at + LINEAGE_COST
            if trimmed.complete:
                self._expiring.pop()
        return True

    def _make_room(self) -> None:
        """Forget old runs, to bring the number of runs back to its limit.

        Lineages are examined in the order in which they are stored in the table. If many runs must
        be examined to find an old one, the limit is exceeded for a while, to avoid a long pause.
        """
        look_at = LOOKED_AT_MAX
        while self._runs > MESSAGE_ID_RUNS_MAX and look_at > 0:
            if not self._evicting:
                self._evict_before = self._old_enough()
                self._evicting = list(reversed(self._lineages))
            trimmed = self._forget(self._evicting[-1], self._evict_before, FORGOTTEN_MAX, look_at)
            self.evicted_count += len(trimmed.firsts)
            look_at -= trimmed.looked_at + LINEAGE_COST
            if trimmed.complete:
                self._evicting.pop()

    def _old_enough(self) -> int:
        """Return a time before which about 1/:data:`EVICTED_SHARE` of the runs arrived.

        The time is in microseconds since 1970.

        At least one run arrived before it.
        """
        stride = max(1, len(self._lineages) // EVICTION_SAMPLES)
        step = max(1, self._runs // stride // EVICTION_SAMPLES)
        sample: list[int] = []
        begin = 0
        for runs in islice(self._lineages.values(), 0, None, stride):
            count = len(runs)
            if begin < count:
                sample += runs.sample_ats(begin, step)
            begin = (begin - count) % step if begin < count else begin - count
        sample.sort()
        return sample[len(sample) // EVICTED_SHARE] + 1

    def _make_room_for_lineages(self) -> None:
        """Forget some of the lineages whose last message is oldest, with all their runs.

        A lineage with millions of runs is forgotten in many calls. Meanwhile the limit is exceeded,
        to avoid a long pause.
        """
        left = FORGOTTEN_MAX
        while len(self._lineages) > MESSAGE_ID_LINEAGES_MAX and left:
            if not self._leaving:
                stride = max(1, len(self._lineages) // EVICTION_SAMPLES)
                heard = sorted(
                    runs.last_at for runs in islice(self._lineages.values(), 0, None, stride)
                )
                self._leave_before = heard[len(heard) // EVICTED_SHARE] + 1
                self._leaving = list(reversed(self._lineages))
            runs = self._lineages.get(self._leaving[-1])
            if runs is not None and runs.last_at < self._leave_before:
                forgotten = len(self._forget(self._leaving[-1], self._leave_before, left).firsts)
                self.evicted_count += forgotten
                left -= forgotten
            if left:
                self._leaving.pop()

    def _forget(
        self, lineage: str, before: int, forget: int, look_at: int | None = None
    ) -> Trimmed:
        """Forget runs of a lineage without an arrival since ``before``, with :meth:`.Runs.trim`.

        At most ``forget`` runs are forgotten, and about ``look_at`` runs are examined. The keys of
        the forgotten runs are collected for :meth:`take_changes`.
        """
        runs = self._lineages.get(lineage)
        if runs is None or runs.all_since(before):
            return _NOTHING
        trimmed = runs.trim(before, forget, look_at)
        if trimmed.firsts:
            self._runs -= len(trimmed.firsts)
            if runs.touched is None:
                runs.touched = set()
            runs.touched.update(trimmed.firsts)
            self._dirty[lineage] = runs
            if len(runs) == 0:
                del self._lineages[lineage]
        return trimmed

    def take_changes(self) -> HistoryChanges:
        """Return and forget the changes of the table ``history`` since the last call."""
        upserts: list[HistoryRun] = []
        deletes: list[tuple[str, int]] = []
        for lineage, runs in self._dirty.items():
            touched = runs.touched
            runs.touched = None
            for first in touched or ():
                run = runs.at_first(first)
                if run is None:
                    deletes.append((lineage, first))
                else:
                    upserts.append(HistoryRun(lineage, first, run.last, run.at))
        self._dirty.clear()
        return HistoryChanges(upserts, deletes)

    @property
    def is_divided(self) -> bool:
        """Return whether any identifier has a trust domain of its own (:mod:`.trust_domain`).

        Identifiers of senders without a name have none: their key is the lineage alone.
        """
        return any(SEPARATOR in key for key in self._lineages)

    @property
    def newest(self) -> int | None:
        """Return the time at which the newest identifier arrived, or ``None`` if there is none.

        The time is in microseconds since 1970.
        """
        return max((runs.newest for runs in self._lineages.values()), default=None)

    def rows(self) -> list[HistoryRun]:
        """Return all runs of the history as database rows of the table ``history``."""
        return [
            HistoryRun(lineage, *run) for lineage, runs in self._lineages.items() for run in runs
        ]

    def __len__(self) -> int:
        """Return the number of runs."""
        return self._runs

    def __repr__(self) -> str:
        return (
            f"<MessageIdHistory lineages={len(self._lineages)} runs={self._runs} "
            f"evicted={self.evicted_count}>"
        )
