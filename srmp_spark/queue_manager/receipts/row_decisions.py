"""Store what became of messages, for the receipts that their senders requested."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from srmp_spark.store.tables import decisions as rows

if TYPE_CHECKING:
    from srmp_spark.queue_manager.core import Core
    from srmp_spark.queue_manager.queues.catalogue import Queue
    from srmp_spark.queue_manager.receipts.decision_receipts import DecisionReceipts
    from srmp_spark.sequences.ranges import Range
    from srmp_spark.srmp.receiving.decisions import Reason, Undecided
    from srmp_spark.store.database.transaction import Transaction


class RowDecisions:
    """Stores decisions about messages in the transactions that make them."""

    def __init__(self, core: Core, receipts: DecisionReceipts) -> None:
        self._journal = core.journal
        self._clock = core.clock
        self._receipts = receipts

    def decide(
        self, transaction: Transaction, queue: Queue, runs: Iterable[Range], reason: Reason
    ) -> None:
        """Record in ``transaction`` that ``runs`` leave the queue ([MC-MQSRM] 3.1.7.3).

        The transaction removes them. Decisions of marks are stored first: no received row is
        purged.
        """
        asked = queue.deciding.save(transaction, queue.id, queue.name)
        asked = (
            rows.decide(transaction, queue.id, queue.name, runs, reason, self._clock.utc()) or asked
        )
        if asked:
            transaction.after_commit.append(self._receipts.wake)

    def moved(self, row: Undecided) -> None:
        """Store the new place in its stream of a message that arrived again."""
        self._store(row, partial(rows.move, row=row))

    def discarded(self, row: Undecided, reason: Reason) -> None:
        """Store that a message was discarded for ``reason`` when it arrived."""
        decided_at = self._clock.utc()
        self._store(row, partial(rows.discard, row=row, reason=reason, decided_at=decided_at))

    def _store(self, row: Undecided, store: Callable[[Transaction], None]) -> None:
        """Store what a message without a row changes in receipts, in the commit of its 200."""

        def stored(result: None, error: BaseException | None) -> None:
            if error is None:
                self._receipts.look(row)

        self._journal.call(store, stored)
