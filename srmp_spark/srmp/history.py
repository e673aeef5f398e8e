"""SRMPState.MessageIdHistoryTable ([MC-MQSRM] 3.1.1.1.5): which message identifiers have been received.

Windows keeps 10,000 identifiers for 30 minutes (appendix A <16>), but its own stream sender repeats a message every six
hours for as long as it likes (<18>) and a proxy may hold a POST longer still: we keep 30 days. The identifiers of one
queue manager (its *lineage*) rise by one per message, so they are kept as runs and not one by one. What is called a lineage
here is the key of :func:`~srmp_spark.srmp.trust_domain.lineage_key`: it says whose the identifiers are, too.

Nothing is saved here. :meth:`MessageIdHistory.take_changes` says what changed since it was last asked, for the transaction
that holds the rows: an identifier that is durable before its message turns the sender's retry into a loss.

Times come from :class:`~srmp_spark.srmp.history_clock.HistoryClock` and not from the wall clock, which an operator may set
years ahead: everything would be forgotten at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from srmp_spark.srmp.runs import Run, Runs, Trimmed
from srmp_spark.srmp.trust_domain import SEPARATOR, lineage_of

MESSAGE_ID_HISTORY_DAYS = 30
"""Far beyond the six hours between two attempts of a sender ([MC-MQSRM] appendix A <18>)."""
MESSAGE_ID_RUNS_MAX = 3_500_000
"""24 bytes each, so about 85 MB. A sender that shares its numbers among many destinations makes a run per message:
30 days of one and a third messages a second. With both limits reached a queue manager stays below 300 MB."""
MESSAGE_ID_LINEAGES_MAX = 80_000
"""About 700 bytes each. A peer that invents a source GUID per message reaches this; honest ones have one each."""
EVICTED_SHARE = 16
"""A full table loses its oldest 1/16, then looks again how old "the oldest" is. Of 72,000 senders with 48 runs each that is
three runs of each, and a page of the table is written once for them; with 1/64 it was written for one run."""
EVICTION_SAMPLES = 4096
"""How many arrival times are compared to find out how old "the oldest" is."""
FORGOTTEN_MAX = 256
"""Runs forgotten at once: their keys are deleted in the next transaction, which messages wait for. About a millisecond."""
LOOKED_AT_MAX = 16_384
"""Runs whose time is compared at once, a lineage counted as :data:`LINEAGE_COST` more: again about a millisecond."""
LINEAGE_COST = 8
"""What a lineage costs that has nothing so old, in runs that are compared."""

_DAY = 86_400_000_000
_NOTHING = Trimmed([], 0, complete=True)


class HistoryRun(NamedTuple):
    """A row of the table ``history``: its key is (``lineage``, ``first``)."""

    lineage: str
    first: int
    last: int
    last_received_at: int
    """Microseconds since 1970, UTC."""


class HistoryChanges(NamedTuple):
    """What a transaction must do to the table ``history``: delete the keys, then insert or replace the rows."""

    upserts: list[HistoryRun]
    deletes: list[tuple[str, int]]


class _Lineage(Runs):
    """The runs of one source queue manager, and the keys that changed since they were saved."""

    __slots__ = ("touched",)

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        super().__init__(runs)
        self.touched: set[int] | None = None


class MessageIdHistory:
    """The identifiers received, and what of them is not saved yet."""

    def __init__(self) -> None:
        self._lineages: dict[str, _Lineage] = {}
        self._dirty: dict[str, _Lineage] = {}
        self._runs = 0
        self._expiring: list[str] = []
        self._evicting: list[str] = []
        self._leaving: list[str] = []
        """Lineages that the pass under way has still to look at, the next one last."""
        self._evict_before = self._leave_before = 0
        self.evicted_count = 0
        """Runs forgotten before their time because a limit was reached; anything but 0 is worth an alarm."""
        self._undivided_until = 0

    @classmethod
    def load(cls, rows: Iterable[HistoryRun], undivided_until: int = 0) -> MessageIdHistory:
        """The history as it was saved. Rows in the order of their key are taken one by one: millions need no second copy.

        ``undivided_until``: what came by then (microseconds) was saved by a version that knew no domains. It is anybody's.
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
        """Whether this identifier was received before ([MC-MQSRM] 3.1.5.1.11)."""
        runs = self._lineages.get(lineage)
        if runs is not None and uniquifier in runs:
            return True
        if not self._undivided_until or SEPARATOR not in lineage:
            return False
        # Of a run that went on since, nobody knows what of it is old: then it is nobody else's, and a second row at worst.
        undivided = self._lineages.get(lineage_of(lineage))
        at = None if undivided is None else undivided.at_of(uniquifier)
        return at is not None and at <= self._undivided_until

    def add(self, lineage: str, uniquifier: int, at: int) -> None:
        """Remember an identifier received at ``at`` (microseconds)."""
        runs = self._lineages.get(lineage)
        if runs is None:
            # One that was just forgotten still has keys to delete: go on with it, or they would stay in the table.
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
        """Forget a slice of what arrived more than :data:`MESSAGE_ID_HISTORY_DAYS` before ``now`` (microseconds).

        True when every lineage was looked at; False: call again soon, for the next slice.
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
        """Forget the oldest runs, lineage by lineage in the order in which they lie in the table, until there is room.

        Where many have to be looked at for one that is old enough, there are a few too many, rather than a long pause.
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
        """A time before which about one run in :data:`EVICTED_SHARE` arrived, and at least one."""
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
        """Forget the next slice of the lineages that were silent for longest, all their runs.

        One that has millions is forgotten over many calls; meanwhile there are a few too many, rather than a long pause.
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
        """Forget runs of a lineage that are older than ``before`` (:meth:`.Runs.trim`)."""
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
        """What changed since the last call."""
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
        """Whether any identifier is that of a domain (:mod:`.trust_domain`)."""
        return any(SEPARATOR in key for key in self._lineages)

    @property
    def newest(self) -> int | None:
        """When an identifier arrived last (microseconds), ``None`` for an empty history."""
        return max((runs.newest for runs in self._lineages.values()), default=None)

    def rows(self) -> list[HistoryRun]:
        """The whole table."""
        return [
            HistoryRun(lineage, *run) for lineage, runs in self._lineages.items() for run in runs
        ]

    def __len__(self) -> int:
        """The number of runs."""
        return self._runs

    def __repr__(self) -> str:
        return (
            f"<MessageIdHistory lineages={len(self._lineages)} runs={self._runs} "
            f"evicted={self.evicted_count}>"
        )
