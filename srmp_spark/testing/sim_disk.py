"""A disk that keeps what was synced and nothing else.

One transaction is under way at a time, as in a group commit. While it syncs nothing of it can be relied on: a crash in that
time leaves it wholly there or wholly gone, as the journal of a database does, and the simulator tries both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

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


class SimDisk:
    """Synced state, and the one transaction that may be under way."""

    def __init__(self) -> None:
        self.position = 0
        self.rows: dict[str, list[SimRow]] = {}
        self.streams: dict[tuple[str, str], IncomingStreamRow] = {}
        self.history: dict[tuple[str, int], HistoryRun] = {}
        self.owed: dict[int, OwedReceipt] = {}
        self._owed_serial = 0
        self.under_way: SimTransaction | None = None

    @property
    def busy(self) -> bool:
        """Whether a transaction is under way."""
        return self.under_way is not None

    def begin(self, transaction: SimTransaction) -> None:
        """Start to write; :meth:`finish` is the moment when the sync returns."""
        assert self.under_way is None, "one transaction at a time"
        self.under_way = transaction

    def finish(self) -> Committed:
        """The sync returned."""
        assert self.under_way is not None, "nothing is under way"
        transaction, self.under_way = self.under_way, None
        self._apply(transaction)
        return Committed(self.position)

    def proof(self) -> Committed:
        """Proof for what repeats something synced long ago. Never while a transaction is under way."""
        assert self.under_way is None, "what is under way is not synced"
        return Committed(self.position)

    def crash(self, survives: bool) -> None:
        """Lose what is not synced; ``survives``: the transaction under way had just reached the disk."""
        if self.under_way is not None and survives:
            self._apply(self.under_way)
        self.under_way = None

    def receipt_delivered(self, number: int) -> None:
        """Forget an owed receipt. Not synced with anything: at worst it is sent once more."""
        self.owed.pop(number, None)

    def end(self, queue: str) -> int:
        """The sequence of the last row."""
        rows = self.rows.get(queue)
        return rows[-1].sequence if rows else 0

    def _apply(self, transaction: SimTransaction) -> None:
        self.position += 1
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
