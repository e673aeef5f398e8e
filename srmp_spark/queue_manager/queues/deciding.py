"""Keep the decisions of a queue's marks until the store holds them ([MC-MQSRM] 3.1.7.3).

A decision states what became of a row (received, purged, expired) and when; the row's sender may
have asked for a receipt about it. Marks (:mod:`.consumers`) change in memory at once and are saved
with the next commit. A purge or a deletion may be in that commit before them, and it counts what is
marked as received. So every transaction that decides about rows of a queue first stores the
decisions of its marks. Then no row is purged that an application received, and no received row
lacks its receipt.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from srmp_spark.sequences.ranges import Range
from srmp_spark.srmp.receiving.decisions import Reason
from srmp_spark.store.database.transaction import Transaction
from srmp_spark.store.tables import decisions


class _Decided(NamedTuple):
    runs: list[Range]
    reason: Reason
    at: int


class Deciding:
    """Keeps the decisions about rows of one queue that are not on stable storage yet."""

    def __init__(self) -> None:
        self._unsaved: list[_Decided] = []

    def marked(self, runs: list[Range], reason: Reason, at: int) -> None:
        """Record that the default consumer has received the rows of ``runs`` at the time ``at``.

        ``at`` is in microseconds since 1970, UTC. Some rows of the runs may have been decided
        before; a row keeps its first decision.
        """
        if runs:
            self._unsaved.append(_Decided(runs, reason, at))

    def save(self, transaction: Transaction, queue_id: int, queue: str) -> bool:
        """Write the decisions in ``transaction``.

        Return whether any of the rows asked for a receipt.

        ``queue_id`` is the key of the queue in the database. After the commit this object forgets
        the decisions. Storing a decision twice does no harm, because the first one counts.
        """
        if not self._unsaved:
            return False
        asked = False
        for each in self._unsaved:
            asked = (
                decisions.decide(transaction, queue_id, queue, each.runs, each.reason, each.at)
                or asked
            )
        transaction.after_commit.append(partial(self._saved, list(self._unsaved)))
        return asked

    def _saved(self, stored: list[_Decided]) -> None:
        self._unsaved = [each for each in self._unsaved if all(each is not one for one in stored)]

    def __repr__(self) -> str:
        return f"<Deciding unsaved={len(self._unsaved)}>"
