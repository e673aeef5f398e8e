"""A disk that keeps what was synced and nothing else.

One transaction is under way at a time, as in a group commit. While it syncs nothing of it can be relied on: a crash in that
time leaves it wholly there or wholly gone, as the journal of a database does, and the simulator tries both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from srmp_spark.srmp.receiving.decisions import DecisionReceipt, Reason, Undecided, receipts_for
from srmp_spark.srmp.receiving.effects import Changes, Committed, OwedReceipt
from srmp_spark.srmp.receiving.history import HistoryRun
from srmp_spark.srmp.receiving.stream_effects import AcceptedGap, IncomingStreamRow


class SimRow(NamedTuple):
    """A stored message."""

    queue: str
    sequence: int
    key: str


EXPAND_ROWS = 3
"""Small, so that crashes come between two slices."""


class SimDecision(NamedTuple):
    """Rows that left their queue."""

    queue: str
    first: int
    last: int
    reason: Reason
    at: int


class SimTold(NamedTuple):
    """A receipt about a decision, and its own identifier."""

    number: int
    receipt: DecisionReceipt


class SimDiscarded(NamedTuple):
    """A stream message that came too late: its position counts, and there is no row."""

    key: str
    asking: Undecided | None
    """What it asks to be told."""
    at: int


class SimTransaction(NamedTuple):
    """What one group commit writes."""

    rows: list[SimRow]
    owed: list[OwedReceipt]
    changes: Changes
    undecided: Sequence[Undecided] = ()
    moved: Sequence[Undecided] = ()
    decided: Sequence[SimDecision] = ()
    expand: bool = False
    """A slice of the oldest decision becomes receipts."""
    discarded: Sequence[SimDiscarded] = ()


Transaction = TypeVar("Transaction")


class Synced(ABC, Generic[Transaction]):
    """What both halves share: one transaction at a time, kept wholly or not at all."""

    def __init__(self) -> None:
        self.position = 0
        self.under_way: Transaction | None = None

    @property
    def busy(self) -> bool:
        """Whether a transaction is under way."""
        return self.under_way is not None

    def begin(self, transaction: Transaction) -> None:
        """Start to write; :meth:`finish` is the moment when the sync returns."""
        assert self.under_way is None, "one transaction at a time"
        self.under_way = transaction

    def finish(self) -> Committed:
        """The sync returned."""
        assert self.under_way is not None, "nothing is under way"
        transaction, self.under_way = self.under_way, None
        self.position += 1
        self.apply(transaction)
        return Committed(self.position)

    def proof(self) -> Committed:
        """Proof for what repeats something synced long ago. Never while a transaction is under way."""
        assert self.under_way is None, "what is under way is not synced"
        return Committed(self.position)

    def crash(self, survives: bool) -> None:
        """Lose what is not synced; ``survives``: the transaction under way had just reached the disk."""
        if self.under_way is not None and survives:
            self.position += 1
            self.apply(self.under_way)
        self.under_way = None

    @abstractmethod
    def apply(self, transaction: Transaction) -> None:
        """Make a transaction true."""


class SimDisk(Synced[SimTransaction]):
    """What a receiving queue manager has synced."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, list[SimRow]] = {}
        self.streams: dict[tuple[str, str], IncomingStreamRow] = {}
        self.accepted_gaps: dict[tuple[str, str], AcceptedGap] = {}
        self.history: dict[tuple[str, int], HistoryRun] = {}
        self.owed: dict[int, OwedReceipt] = {}
        self._owed_serial = 0
        self.received: dict[str, int] = {}
        self.undecided: dict[tuple[str, int], Undecided] = {}
        self.decisions: list[SimDecision] = []
        self.told: dict[int, SimTold] = {}
        """Receipts that follow from decisions."""
        self.told_of: dict[tuple[str, int], tuple[Reason, int]] = {}
        """What senders of streams were told: they may have discarded it."""
        self.on_decided: Callable[[Undecided, Reason], object] = lambda row, reason: None
        self.on_discarded: Callable[[str], object] = lambda key: None
        self._told_serial = 0
        self.receipt_numbers = 1_000_000
        """Identifiers of receipts about decisions: given out in transactions alone."""

    def decision_delivered(self, key: int, told: SimTold) -> None:
        """The peer took the receipt. Not synced either; one that was moved meanwhile is another."""
        if self.told.get(key) == told:
            del self.told[key]
            receipt = told.receipt
            if receipt.kind == "final_stream":
                self.told_of[receipt.lineage, receipt.uniquifier] = (
                    receipt.reason,
                    receipt.decided_at,
                )

    def receipt_delivered(self, number: int) -> None:
        """Forget an owed receipt. Not synced with anything: at worst it is sent once more."""
        self.owed.pop(number, None)

    def end(self, queue: str) -> int:
        """The sequence of the last row."""
        rows = self.rows.get(queue)
        return rows[-1].sequence if rows else 0

    def apply(self, transaction: SimTransaction) -> None:
        """Rows, receipts owed, streams and identifiers."""
        self._insert(transaction.rows)
        for owed in transaction.owed:
            self._owed_serial += 1
            self.owed[self._owed_serial] = owed
        changes = transaction.changes
        for dropped in changes.dropped_streams:
            self.streams.pop(dropped, None)
            self.accepted_gaps.pop(dropped, None)
        for stream in changes.streams:
            self.streams[stream.queue, stream.guid] = stream
        for gap in changes.accepted_gaps:
            self.accepted_gaps[gap.queue, gap.guid] = gap
        self.write_history(changes)
        self._write_decisions(transaction)

    def _write_decisions(self, transaction: SimTransaction) -> None:
        """As store/tables/decisions.py does."""
        for row in transaction.undecided:
            self.undecided[row.queue, row.sequence] = row
        for discarded in transaction.discarded:
            self.on_discarded(discarded.key)
            if discarded.asking is not None:
                self.on_decided(discarded.asking, Reason.EXPIRED)
                self.tell_of_discarded(discarded.asking, discarded.at)
        for moved in (
            transaction.moved
        ):  # behind what the same commit discards: a message that moves was known before
            self._move(moved)
        for decision in transaction.decided:
            self.decisions.append(decision)
            self.received[decision.queue] = max(self.received.get(decision.queue, 0), decision.last)
            for sequence in range(decision.first, decision.last + 1):
                if (asking := self.undecided.get((decision.queue, sequence))) is not None:
                    self.on_decided(asking, decision.reason)
        if transaction.expand and self.decisions:
            self.expand()

    def expand(self) -> None:
        """A slice of the oldest decision."""
        queue, first, last, reason, at = self.decisions[0]
        end = min(last, first + EXPAND_ROWS - 1)
        for sequence in range(first, end + 1):
            row = self.take_undecided(queue, sequence)
            self._tell(() if row is None else receipts_for(row, reason, at))
        if end < last:
            self.decisions[0] = self.decisions[0]._replace(first=end + 1)
        else:
            del self.decisions[0]

    def tell_of_discarded(self, asking: Undecided, at: int) -> None:
        """Nobody will read it, and who asked is told so."""
        self._tell(receipts_for(asking, Reason.EXPIRED, at))

    def _tell(self, receipts: Iterable[DecisionReceipt]) -> None:
        for receipt in receipts:
            self._told_serial += 1
            self.told[self._told_serial] = SimTold(self._next_number(), receipt)

    def take_undecided(self, queue: str, sequence: int) -> Undecided | None:
        """It is decided now, once and for all."""
        return self.undecided.pop((queue, sequence), None)

    def _next_number(self) -> int:
        self.receipt_numbers += 1
        return self.receipt_numbers

    def _move(self, moved: Undecided) -> None:
        who, known = (moved.lineage, moved.uniquifier), False
        for where, row in self.undecided.items():
            if (row.lineage, row.uniquifier) == who:
                self.undecided[where] = row._replace(
                    final_to=moved.final_to,
                    stream_id=moved.stream_id,
                    position=moved.position,
                    stream_name=moved.stream_name,
                )
                known = True
        for key, told in self.told.items():
            receipt = told.receipt
            if receipt.kind == "final_stream" and (receipt.lineage, receipt.uniquifier) == who:
                here = receipt._replace(
                    stream_id=moved.stream_id,
                    position=moved.position,
                    stream_name=moved.stream_name,
                )
                self.told[key] = SimTold(self._next_number(), here)
                known = True
        if not known and who in self.told_of:
            self._tell(
                each
                for each in receipts_for(moved, *self.told_of[who])
                if each.kind == "final_stream"
            )

    def write_history(self, changes: Changes) -> None:
        """The part of a transaction that concerns identifiers."""
        for key in changes.history.deletes:
            self.history.pop(key, None)
        for run in changes.history.upserts:
            self.history[run.lineage, run.first] = run

    def _insert(self, rows: Iterable[SimRow]) -> None:
        for row in rows:
            stored = self.rows.setdefault(row.queue, [])
            assert row.sequence == len(stored) + 1, (
                f"sequence {row.sequence} of {row.queue} comes after {len(stored)}"
            )
            stored.append(row)
