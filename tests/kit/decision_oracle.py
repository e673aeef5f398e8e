"""Judges decisions: compares the stored decisions with the receipts that the senders got.

The rules are those of [MC-MQSRM] 3.1.7.3. The oracle reports four faults. *Early*: the receipt
arrived before the decision was on stable storage, so a crash could lead to another decision.
*Contradicted*: the receipt states another decision than the stored one. *Doubled*: two receipts
with different identifiers arrived, so no duplicate detection can discard the second one. *Lost*: a
requested receipt about a stored decision never arrived.
"""

from __future__ import annotations

from srmp_spark.message import Receipt
from srmp_spark.srmp.receiving.decisions import Reason, Undecided


class DecisionOracle:
    """The record of the decisions and receipts of one run.

    ``problems`` has the faults so far, except lost receipts.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._decided: dict[tuple[str, int], tuple[Undecided, Reason]] = {}
        self._told: dict[tuple[str, str, int], dict[tuple[object, int], int]] = {}
        """By (receipt kind, message): the receipt's own identifier by (stream, position).

        The stream is None for a commitment receipt.
        """

    def decided(self, row: Undecided, reason: Reason) -> None:
        """Record that the decision about the message ``row`` is on stable storage.

        Only the first decision about a message counts.
        """
        self._decided.setdefault((row.lineage, row.uniquifier), (row, reason))

    def told(self, receipt: Receipt, identifier: int) -> None:
        """Record that a commitment receipt or a final stream receipt arrived, and judge it.

        ``identifier`` is the number in the message identifier of the receipt itself.
        """
        assert receipt.lineage is not None
        assert receipt.uniquifier is not None
        who = receipt.lineage, receipt.uniquifier
        name = f"{receipt.kind} receipt for {who[0]}/{who[1]}"
        found = self._decided.get(who)
        if found is None:
            self.problems.append(f"{name}: early")
        elif found[1].decision != receipt.decision:
            self.problems.append(
                f"{name}: {receipt.decision}, decided was {found[1].name}: contradicted"
            )
        places = self._told.setdefault((receipt.kind, *who), {})
        place = receipt.stream_id, receipt.last_ordinal or 0
        if places.setdefault(place, identifier) != identifier:
            self.problems.append(f"{name}: doubled under {places[place]} and {identifier}")

    def verdict(self) -> list[str]:
        """Return every fault of the run, one text each. Call this method after the run."""
        lost = []
        for row, reason in self._decided.values():
            wanted = row.positive if reason is Reason.RECEIVED else row.negative
            for kind, asked in (
                ("commitment", row.commitment_to is not None and wanted),
                ("final_stream", bool(row.final_to)),
            ):
                if asked and (kind, row.lineage, row.uniquifier) not in self._told:
                    lost.append(
                        f"{kind} receipt for {row.lineage}/{row.uniquifier}: lost, "
                        f"decided was {reason.name}"
                    )
        return self.problems + lost

    def __repr__(self) -> str:
        return (
            f"<DecisionOracle decided={len(self._decided)} told={len(self._told)} "
            f"problems={len(self.problems)}>"
        )
