"""The judgement: the ledger on one side, the rows that landed on the other, and nothing that knows the answer.

Lost, unexpected, doubled and disordered come from the package's one oracle. Three things are added that only a sender's
ledger can tell: a body that changed on the way, a row of a message that was refused, and two messages that
landed in the other order although the first was answered before the second was sent.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tests.kit.foreign.ledger import Entry, Landed, Ledger
from tests.kit.oracle import Oracle

BACKSLASH = "\\"
"""Between the GUID and the number of a stream id (2.2.5.3.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What went wrong, by kind; all empty means that every promise was kept."""

    sent: int
    acknowledged: int
    landed: int
    lost: tuple[str, ...]
    """Acknowledged, and no row."""
    unexpected: tuple[str, ...]
    """A row of a message that was never sent."""
    doubled: tuple[str, ...]
    disordered: tuple[str, ...]
    """The row that came too late or too early: in its stream, or against an answer that the sender had seen."""
    gaps: tuple[str, ...]
    """A stream row before which a message that was sent is missing."""
    altered: tuple[str, ...]
    """Another body or another queue than was sent."""
    refused: tuple[str, ...]
    """Messages that the receiver refused for good."""
    reused: tuple[tuple[str, str, int], ...]
    """(epoch, queue, sequence) of more than one row."""
    violations: tuple[str, ...]
    """What the receiver did that the document forbids."""

    @property
    def ok(self) -> bool:
        """True when nothing is wrong."""
        faults = (
            self.lost,
            self.unexpected,
            self.doubled,
            self.disordered,
            self.gaps,
            self.altered,
            self.refused,
            self.reused,
        )
        return not any(faults) and not self.violations

    def complaint(self) -> str:
        """What is wrong, in one text with the first examples of each kind; empty when all is well."""
        kinds = (
            "lost",
            "unexpected",
            "doubled",
            "disordered",
            "gaps",
            "altered",
            "refused",
            "reused",
            "violations",
        )
        lines = []
        for kind in kinds:
            found: Sequence[object] = getattr(self, kind)
            if found:
                lines.append(f"{kind}: {len(found)}, first {list(found[:5])}")
        return "\n".join(lines)


def judge(ledger: Ledger, rows: Iterable[Landed]) -> Verdict:
    """Hold what landed against what was sent and acknowledged."""
    ordered = sorted(rows, key=lambda row: (row.queue, row.epoch, row.sequence))
    oracle = Oracle()
    for entry in sorted(ledger.entries.values(), key=_stream_order):
        oracle.sent(entry.id, stream=_stream_of(entry))
        if entry.acknowledged_at is not None:
            oracle.acknowledged(entry.id)
    for row in ordered:
        oracle.landed(row.id)
    found = oracle.verdict()
    seen = {row.id for row in ordered}
    places = [(row.epoch, row.queue, row.sequence) for row in ordered]
    return Verdict(
        sent=ledger.sent,
        acknowledged=ledger.count("acknowledged_at"),
        landed=len(ordered),
        lost=tuple(found.lost),
        unexpected=tuple(found.unexpected),
        doubled=tuple(found.doubled),
        disordered=(*found.disordered, *_disordered_in_time(ledger, ordered)),
        gaps=tuple(_gaps(ledger, seen)),
        altered=tuple(row.id for row in ordered if _is_altered(row, ledger)),
        refused=tuple(entry.id for entry in ledger.entries.values() if entry.refused is not None),
        reused=tuple(
            here for here, following in itertools.pairwise(sorted(places)) if here == following
        ),
        violations=tuple(ledger.violations),
    )


def _stream_of(entry: Entry) -> str | None:
    """All streams of one sending queue manager to one queue are one order ([MC-MQSRM] 3.1.1.2)."""
    return (
        None
        if entry.stream_id is None
        else f"{entry.queue} {entry.stream_id.partition(BACKSLASH)[0]}"
    )


def _stream_order(entry: Entry) -> tuple[int, int]:
    return (
        0 if entry.stream_id is None else int(entry.stream_id.partition(BACKSLASH)[2]),
        entry.position,
    )


def _is_altered(row: Landed, ledger: Ledger) -> bool:
    entry = ledger.entries.get(row.key)
    sent = entry and (entry.body, entry.queue, entry.stream_id, entry.position or None)
    return sent is not None and sent != (row.body, row.queue, row.stream_id, row.stream_sequence)


def _disordered_in_time(ledger: Ledger, ordered: Sequence[Landed]) -> Iterator[str]:
    """A message that was answered before another one was first sent has the lower sequence in the same queue."""
    latest_send: dict[str, float] = {}
    for row in ordered:
        entry = ledger.entries.get(row.key)
        if entry is None or entry.first_sent_at is None:
            continue
        if entry.acknowledged_at is not None and entry.acknowledged_at < latest_send.get(
            row.queue, 0.0
        ):
            yield entry.id
        latest_send[row.queue] = max(entry.first_sent_at, latest_send.get(row.queue, 0.0))


def _gaps(ledger: Ledger, seen: set[str]) -> Iterator[str]:
    """The sent messages of each stream that are missing below its highest landed position."""
    streams: dict[str, list[Entry]] = {}
    for entry in ledger.of_kind("stream"):
        streams.setdefault(str(entry.stream_id), []).append(entry)
    for entries in streams.values():
        top = max((entry.position for entry in entries if entry.id in seen), default=0)
        yield from (entry.id for entry in entries if entry.position < top and entry.id not in seen)
