"""Judges a run by comparing the ledger with the stored rows, and nothing else.

The common oracle (:mod:`tests.kit.oracle`) finds lost, unexpected, doubled and disordered messages.
The judge adds checks that need a sender's ledger: a changed body, a refused message, and two
messages that were stored in reverse order although the first was acknowledged before the second was
sent.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tests.kit.foreign.ledger import Entry, Landed, Ledger
from tests.kit.oracle import Oracle

BACKSLASH = "\\"
"""Separator between the GUID and the number of a stream id (2.2.5.3.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Faults of a run, by kind. If all are empty, every promise was kept.

    ``sent`` and ``acknowledged`` count messages, ``landed`` counts rows. Messages and rows are
    named by their identifiers.
    """

    sent: int
    acknowledged: int
    landed: int
    lost: tuple[str, ...]
    """Messages that were acknowledged and have no row."""
    unexpected: tuple[str, ...]
    """Rows of messages that were never sent."""
    doubled: tuple[str, ...]
    disordered: tuple[str, ...]
    """Rows in the wrong order within their stream, or in time.

    A row is out of order in time if its message was acknowledged before a message was sent whose
    row comes first.
    """
    gaps: tuple[str, ...]
    """Sent stream messages that have no row, although a later message of the stream has one."""
    altered: tuple[str, ...]
    """Rows with another body, queue or stream position than was sent."""
    refused: tuple[str, ...]
    """Messages that the receiver refused for good. A refusal is a fault in these runs."""
    reused: tuple[tuple[str, str, int], ...]
    """(epoch, queue, sequence) of more than one row."""
    violations: tuple[str, ...]
    """Actions of the receiver that the document forbids."""

    @property
    def ok(self) -> bool:
        """Return whether no kind has a fault."""
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
        """Return one line for each kind of fault, with its number and first five examples.

        The text is empty if :attr:`ok`.
        """
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
    """Compare the stored rows with the messages that were sent and acknowledged.

    The rows may be in any order.
    """
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
    """Return the name of the order that a message belongs to, or ``None`` outside a stream.

    All streams of one sending queue manager to one queue are one order ([MC-MQSRM] 3.1.1.2).
    """
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
    """Yield the identifiers of messages whose row comes too late by the times of the ledger.

    Such a message was acknowledged before another message of the same queue was first sent, and its
    row comes after that message's row. ``ordered`` has the rows in the order of their queues.
    """
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
    """Yield the identifiers of sent messages that are missing below the stream's highest row.

    ``seen`` has the identifiers of all rows.
    """
    streams: dict[str, list[Entry]] = {}
    for entry in ledger.of_kind("stream"):
        streams.setdefault(str(entry.stream_id), []).append(entry)
    for entries in streams.values():
        top = max((entry.position for entry in entries if entry.id in seen), default=0)
        yield from (entry.id for entry in entries if entry.position < top and entry.id not in seen)
