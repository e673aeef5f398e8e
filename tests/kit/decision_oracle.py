"""The judge of decisions ([MC-MQSRM] 3.1.7.3): what the disk holds as decided against what the senders were told.

*Early*: told before the decision was on stable storage; after a crash another one may be made. *Contradicted*: told otherwise
than it was decided. *Doubled*: told twice under two identifiers, which no duplicate detection can drop. *Lost*: decided, asked
for, and never told.
"""

from __future__ import annotations

from srmp_spark.message import Receipt
from srmp_spark.srmp.receiving.decisions import Reason, Undecided


class DecisionOracle:
    """The ledger of one run."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._decided: dict[tuple[str, int], tuple[Undecided, Reason]] = {}
        self._told: dict[tuple[str, str, int], dict[tuple[object, int], int]] = {}
        """(kind, message) → (stream and position, or nothing) → the identifier of the receipt."""

    def decided(self, row: Undecided, reason: Reason) -> None:
        """The decision about a row that asked is on stable storage; the first one counts."""
        self._decided.setdefault((row.lineage, row.uniquifier), (row, reason))

    def told(self, receipt: Receipt, identifier: int) -> None:
        """A commitment receipt or a final stream receipt arrived; ``identifier`` is its own."""
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
        """Everything that is wrong, after the end."""
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
