"""A simulated disk that keeps only synced data.

One transaction is in progress at a time, as in a group commit. Until its sync returns, no part of
the transaction is reliable. A crash during the sync leaves the transaction either complete or
absent, like the journal of a database. The simulator tries both outcomes.
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
    """One message as the disk stores it. ``key`` is the text in its body."""

    queue: str
    sequence: int
    key: str


EXPAND_ROWS = 3
"""Most rows of a decision whose receipts one transaction makes.

The number is small, so that crashes happen between two such transactions.
"""


class SimDecision(NamedTuple):
    """A decision about rows that left their queue.

    ``first`` and ``last`` are sequences, both included. ``at`` is in microseconds since 1970.
    """

    queue: str
    first: int
    last: int
    reason: Reason
    at: int


class SimTold(NamedTuple):
    """A receipt about a decision, with the number in the receipt's own message identifier."""

    number: int
    receipt: DecisionReceipt


class SimDiscarded(NamedTuple):
    """A stream message that arrived too late: its position counts, but it gets no row.

    ``at`` is in microseconds since 1970.
    """

    key: str
    asking: Undecided | None
    """The receipts that the message requests, or None if it requests no receipt."""
    at: int


class SimTransaction(NamedTuple):
    """The content of one group commit of the receiving side.

    ``owed`` are delivery receipts. ``undecided`` are messages that request receipts about a
    decision; ``moved`` are those that arrived again at a new position.
    """

    rows: list[SimRow]
    owed: list[OwedReceipt]
    changes: Changes
    undecided: Sequence[Undecided] = ()
    moved: Sequence[Undecided] = ()
    decided: Sequence[SimDecision] = ()
    expand: bool = False
    """Whether the transaction turns a slice of the oldest decision into receipts."""
    discarded: Sequence[SimDiscarded] = ()


Transaction = TypeVar("Transaction")


class Synced(ABC, Generic[Transaction]):
    """Storage with one transaction at a time, which a crash keeps completely or not at all.

    This is the common base of the receiving and the sending side's storage.
    """

    def __init__(self) -> None:
        self.position = 0
        self.under_way: Transaction | None = None

    @property
    def busy(self) -> bool:
        """Return whether a transaction is in progress."""
        return self.under_way is not None

    def begin(self, transaction: Transaction) -> None:
        """Start to write ``transaction``. Call :meth:`finish` when the sync returns.

        Raises :class:`AssertionError` if a transaction is in progress.
        """
        assert self.under_way is None, "one transaction at a time"
        self.under_way = transaction

    def finish(self) -> Committed:
        """Apply the transaction in progress, and return the proof that it is stored.

        Raises :class:`AssertionError` if there is none.
        """
        assert self.under_way is not None, "nothing is under way"
        transaction, self.under_way = self.under_way, None
        self.position += 1
        self.apply(transaction)
        return Committed(self.position)

    def proof(self) -> Committed:
        """Return a proof that earlier transactions are stored, for repeats of their messages.

        Raises :class:`AssertionError` while a transaction is in progress.
        """
        assert self.under_way is None, "what is under way is not synced"
        return Committed(self.position)

    def crash(self, survives: bool) -> None:
        """Lose all data that is not synced.

        If ``survives`` is true, the transaction in progress had just reached the disk, so it is
        kept.
        """
        if self.under_way is not None and survives:
            self.position += 1
            self.apply(self.under_way)
        self.under_way = None

    @abstractmethod
    def apply(self, transaction: Transaction) -> None:
        """Put the content of a transaction into the stored state.

        Each storage implements this method.
        """


class SimDisk(Synced[SimTransaction]):
    """The synced state of a receiving queue manager.

    ``received`` has the last decided sequence of each queue. ``undecided`` has messages whose
    decision must be reported. ``on_decided`` and ``on_discarded`` are called when a decision is
    stored.
    """

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
        """Receipts that follow from decisions and are not delivered yet, by a serial number."""
        self.told_of: dict[tuple[str, int], tuple[Reason, int]] = {}
        """Decisions whose final stream receipts were delivered, by message: reason and time.

        The sender may have discarded such a receipt, so it may have to be sent again.
        """
        self.on_decided: Callable[[Undecided, Reason], object] = lambda row, reason: None
        self.on_discarded: Callable[[str], object] = lambda key: None
        self._told_serial = 0
        self.receipt_numbers = 1_000_000
        """The last identifier of a receipt about a decision; transactions alone assign identifiers.
        """

    def decision_delivered(self, key: int, told: SimTold) -> None:
        """Remove the receipt ``told`` about a decision, which the peer accepted.

        The removal is not synced. If the message moved in the meantime, another receipt has
        replaced this one under ``key`` and stays.
        """
        if self.told.get(key) == told:
            del self.told[key]
            receipt = told.receipt
            if receipt.kind == "final_stream":
                self.told_of[receipt.lineage, receipt.uniquifier] = (
                    receipt.reason,
                    receipt.decided_at,
                )

    def receipt_delivered(self, number: int) -> None:
        """Remove owed delivery receipt ``number``, which was delivered.

        Nothing happens if it is gone. After a crash a receipt is at worst sent again.
        """
        self.owed.pop(number, None)

    def end(self, queue: str) -> int:
        """Return the sequence of the queue's last row, or 0 if the queue has no row."""
        rows = self.rows.get(queue)
        return rows[-1].sequence if rows else 0

    def apply(self, transaction: SimTransaction) -> None:
        """Store the transaction's rows, owed receipts, streams, identifiers and decisions."""
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
        """Store the transaction's decisions, in the order in which the product's store does."""
        for row in transaction.undecided:
            self.undecided[row.queue, row.sequence] = row
        for discarded in transaction.discarded:
            self.on_discarded(discarded.key)
            if discarded.asking is not None:
                self.on_decided(discarded.asking, Reason.EXPIRED)
                self.tell_of_discarded(discarded.asking, discarded.at)
        # Moves follow the discarded messages of the same commit, because a message that moves was
        # known before.
        for moved in transaction.moved:
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
        """Make the receipts of the oldest decision's next rows, at most :data:`EXPAND_ROWS`.

        A decision without further rows is removed.
        """
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
        """Store the receipts which say that a late message was discarded.

        If the message requested no receipts, none are stored.
        """
        self._tell(receipts_for(asking, Reason.EXPIRED, at))

    def _tell(self, receipts: Iterable[DecisionReceipt]) -> None:
        for receipt in receipts:
            self._told_serial += 1
            self.told[self._told_serial] = SimTold(self._next_number(), receipt)

    def take_undecided(self, queue: str, sequence: int) -> Undecided | None:
        """Remove and return the message that awaits a decision in this row, or return ``None``."""
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
        """Store the part of a transaction that concerns identifiers."""
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
