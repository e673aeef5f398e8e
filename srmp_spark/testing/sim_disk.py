"""A disk that keeps what was synced and nothing else.

One transaction is under way at a time, as in a group commit. While it syncs nothing of it can be relied on: a crash in that
time leaves it wholly there or wholly gone, as the journal of a database does, and the simulator tries both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

from srmp_spark.srmp.effects import Changes, Committed, OwedReceipt
from srmp_spark.srmp.history import HistoryRun
from srmp_spark.srmp.stream_effects import IncomingStreamRow


class SimRow(NamedTuple):
    """A stored message."""

    queue: str
    sequence: int
    key: str


class SimTransaction(NamedTuple):
    """What one group commit writes."""

    rows: list[SimRow]
    owed: list[OwedReceipt]
    changes: Changes


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
        self.history: dict[tuple[str, int], HistoryRun] = {}
        self.owed: dict[int, OwedReceipt] = {}
        self._owed_serial = 0

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
        for stream in changes.streams:
            self.streams[stream.queue, stream.guid] = stream
        self.write_history(changes)

    def write_history(self, changes: Changes) -> None:
        """The part of a transaction that concerns identifiers."""
        for key in changes.history.deletes:
            self.history.pop(key, None)
        for run in changes.history.upserts:
            self.history[run.lineage, run.first] = run

    def _insert(self, rows: Iterable[SimRow]) -> None:
        for row in rows:
            stored = self.rows.setdefault(row.queue, [])
            assert row.sequence == len(stored) + 1, f"sequence {row.sequence} of {row.queue} comes after {len(stored)}"
            stored.append(row)
