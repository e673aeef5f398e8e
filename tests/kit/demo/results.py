"""The closing table: the results of both transfers, and which of its figures are wrong."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from tests.kit import oracle
from tests.kit.foreign.ledger import Ledger
from tests.kit.foreign.verdict import Verdict as InVerdict


@dataclass(slots=True)
class InResult:
    """The result of the transfer into the Delta table."""

    messages: int
    """Number of messages that the senders had to send."""
    ledger: Ledger
    kills: list[str]
    """Names of the processes that were killed while messages were in flight."""
    kills_planned: int
    verdict: InVerdict

    def lines(self) -> list[tuple[str, str, bool]]:
        """Return the lines of this half of the table, as tuples of name, value and ``is right``."""
        ledger, verdict = self.ledger, self.verdict
        in_streams = sum(1 for _ in ledger.of_kind("stream"))
        missing = ledger.unreceipted()
        strangers = len(verdict.unexpected) + len(verdict.altered)
        return [
            ("sent", str(verdict.sent), verdict.sent == self.messages),
            ("acknowledged", str(verdict.acknowledged), verdict.acknowledged == verdict.sent),
            ("landed", str(verdict.landed), verdict.landed >= verdict.acknowledged),
            ("lost", str(len(verdict.lost)), not verdict.lost),
            ("doubled", str(len(verdict.doubled)), not verdict.doubled and not verdict.reused),
            (
                "out of order",
                str(len(verdict.disordered) + len(verdict.gaps)),
                not verdict.disordered and not verdict.gaps,
            ),
            ("never sent, or altered", str(strangers), strangers == 0),
            ("refused", str(len(verdict.refused)), not verdict.refused),
            (
                "receipts",
                (
                    f"{ledger.stream_receipts} for {in_streams} stream messages, "
                    f"{ledger.delivery_receipts} delivery receipts"
                    + "".join(f"; missing for {entry.kind} {entry.id}" for entry in missing[:3])
                ),
                not missing,
            ),
            (
                "rules broken",
                "; ".join(verdict.violations[:3]) or "0",
                not verdict.violations,
            ),
            ("killed with -9", ", ".join(self.kills), len(self.kills) == self.kills_planned),
            (
                "faults injected",
                ", ".join(f"{name} {count}" for name, count in sorted(ledger.faults.items())),
                True,
            ),
        ]


@dataclass(slots=True)
class Direction:
    """One of the two transfers out of the table: counts of messages, and the verdict about them."""

    handed_over: int = 0
    arrived: int = 0
    acknowledged: int = 0
    verdict: oracle.Verdict = field(default_factory=oracle.Verdict)


@dataclass(slots=True)
class OutResult:
    """The result of the transfers out of the Delta table."""

    wanted: int
    back: Direction = field(default_factory=Direction)
    replayed: Direction = field(default_factory=Direction)
    replay_new: tuple[int, int] = (0, 0)
    """Numbers of rows that were handed over by the first and by the second start of the replay."""
    replay_known: tuple[int, int] = (0, 0)
    receipts: int = 0
    """Number of stream receipts in the sender's order queue."""
    arrived_at_kill: int | None = None
    """Number of messages that had arrived when the sender was killed.

    ``None`` means that the sender was never killed.
    """
    faults: dict[str, int] = field(default_factory=dict)

    def lines(self) -> list[tuple[str, str, bool]]:
        """Return the lines of this half of the table, as tuples of name, value and ``is right``."""
        both = (self.back, self.replayed)
        first, second = self.replay_new
        killed_at = self.arrived_at_kill or 0
        return [
            ("sent back", str(self.back.handed_over), self.back.handed_over == self.wanted > 0),
            (
                "replayed, an hour",
                f"{first}, once more: {second}",
                first == self.replayed.handed_over > 0 == second,
            ),
            ("known at the second", f"{self.replay_known[1]}", self.replay_known == (0, first)),
            (
                "acknowledged",
                self._each("acknowledged"),
                all(each.acknowledged == each.handed_over for each in both),
            ),
            (
                "arrived",
                self._each("arrived"),
                all(each.arrived == each.handed_over for each in both),
            ),
            *(
                (name, str(len(found)), not found)
                for name, found in (
                    ("lost", self.back.verdict.lost + self.replayed.verdict.lost),
                    ("doubled", self.back.verdict.doubled + self.replayed.verdict.doubled),
                    (
                        "out of order",
                        self.back.verdict.disordered + self.replayed.verdict.disordered,
                    ),
                    (
                        "never sent, or altered",
                        self.back.verdict.unexpected + self.replayed.verdict.unexpected,
                    ),
                )
            ),
            (
                "stream receipts",
                f"{self.receipts} for {sum(each.handed_over for each in both)} messages",
                self.receipts > 0,
            ),
            (
                "killed with -9",
                f"queue manager, {killed_at} had arrived",
                0 < killed_at < self.back.handed_over,
            ),
            ("faults injected", _told(self.faults), bool(self.faults)),
        ]

    def _each(self, name: str) -> str:
        return f"{getattr(self.back, name)} and {getattr(self.replayed, name)}"


def _told(faults: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(faults.items())) or "none"


def closing_table(way_in: InResult, way_out: OutResult) -> bool:
    """Print the closing table, and return ``True`` if no figure is wrong.

    Faults of the first transfer are also printed to the standard error.
    """
    good = [print_lines("In: SRMP over HTTP into the Delta table", way_in.lines())]
    good.append(print_lines("Out: the Delta table to a second queue manager", way_out.lines()))
    print(flush=True)
    if way_in.verdict.complaint():
        print(way_in.verdict.complaint(), file=sys.stderr)
    return way_in.verdict.ok and all(good)


def print_lines(title: str, lines: list[tuple[str, str, bool]]) -> bool:
    """Print one half of the table, and return ``True`` if no figure in it is wrong.

    ``lines`` are tuples of name, value and whether the value is right.
    """
    print(f"\n{title}")
    for name, value, good in lines:
        print(f"  {name:<24} {value}{'' if good else '   <-- WRONG'}")
    return all(good for _, _, good in lines)
