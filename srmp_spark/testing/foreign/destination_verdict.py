"""Judge a sender: compare the journal with the messages that an application handed over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from srmp_spark.testing.foreign.incoming import digest_of
from srmp_spark.testing.foreign.receiving import AcceptedMessage
from srmp_spark.testing.foreign.record import events_of

SHOWN = 5
"""Most entries of each kind that :meth:`DestinationVerdict.complaint` prints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationVerdict:
    """The faults of a run, by kind.

    ``expected``, ``accepted`` and ``posts`` count the bodies that an application handed over, the
    accepted messages and the POSTs. An entry of the kinds below is a text with the queue and the
    first 60 bytes of a body, one entry for each different body and life. An entry of ``violations``
    names the rule.
    """

    expected: int
    accepted: int
    posts: int
    missing: tuple[str, ...]
    """Accepted fewer times than handed over, and never refused with 400."""
    doubled: tuple[str, ...]
    """Accepted more often than handed over, without a loss of memory in between."""
    unexpected: tuple[str, ...]
    """Accepted, but never handed over."""
    disordered: tuple[str, ...]
    """Accepted after a message that was handed over later."""
    violations: tuple[str, ...]
    """Acts of the sender that the document forbids."""
    refused: tuple[str, ...]
    """Accepted fewer times than handed over, but answered 400. This is no fault."""
    again_after_memory_loss: tuple[str, ...]
    """Accepted again by a destination that had forgotten the message.

    The sender is not at fault.
    """
    faults: Mapping[str, int]
    """Number of times that each injected fault struck, by the name of the fault."""

    @property
    def ok(self) -> bool:
        """Return whether the sender made no fault.

        A body that the destination refused, or accepted again after a loss of memory, is no fault
        of the sender.
        """
        return not (
            self.missing or self.doubled or self.unexpected or self.disordered or self.violations
        )

    def complaint(self) -> str:
        """Return one line for each kind of fault, with its number and first entries.

        The text is empty if :attr:`ok`.
        """
        lines = []
        for kind in ("missing", "doubled", "unexpected", "disordered", "violations"):
            found: Sequence[str] = getattr(self, kind)
            if found:
                lines.append(f"{kind}: {len(found)}, first {list(found[:SHOWN])}")
        return "\n".join(lines)


@dataclass(slots=True)
class _Life:
    """The messages accepted between two losses of memory, in order."""

    accepted: list[AcceptedMessage] = field(default_factory=list)


def judge_record(
    path: Path,
    expected: Mapping[str, Sequence[bytes]],
    *,
    ordered: bool | None = None,
    partly: bool = False,
) -> DestinationVerdict:
    """Compare the journal at ``path`` with the bodies that were handed to the sender.

    ``expected`` maps each queue to its bodies in the order of handing over. ``ordered`` says
    whether the order of acceptance counts. With ``None`` the order counts for queues that accepted
    stream messages, because regular messages promise no order (1.3.5.1). With ``partly`` the run is
    not over, so nothing counts as missing yet. Raises :class:`OSError` if there is no journal, and
    :class:`ValueError` for a damaged line other than the last.
    """
    lives, refused, violations = [_Life()], set(), []
    faults, posts = Counter[str](), 0
    for event in events_of(path):
        if event["event"] == "accepted":
            lives[-1].accepted.append(AcceptedMessage.from_json(event["message"]))
        elif event["event"] == "memory-lost":
            lives.append(_Life())
        elif event["event"] == "violation":
            violations.append(f"{event['rule']} ({event['section']}): {event['text']}")
        elif event["event"] == "fault":
            faults[event["name"]] += 1
        elif event["event"] == "post":
            posts += 1
            if event["outcome"] == "refused":
                refused.add((event["queue"], event["digest"]))
    wanted = {queue.lower(): list(bodies) for queue, bodies in expected.items()}
    doubled: list[str] = []
    unexpected: list[str] = []
    disordered: list[str] = []
    ever: Counter[tuple[str, bytes]] = Counter()
    again: list[str] = []
    for life in lives:
        for queue in sorted({each.queue for each in life.accepted}):
            messages = [each for each in life.accepted if each.queue == queue]
            bodies = wanted.get(queue, [])
            counts, allowed = Counter(each.body for each in messages), Counter(bodies)
            unexpected += [_show(queue, body) for body in counts if body not in allowed]
            doubled += [
                _show(queue, body) for body, count in counts.items() if count > allowed[body] > 0
            ]
            again += [_show(queue, body) for body in counts if ever[queue, body]]
            if ordered or (ordered is None and any(each.stream_guid for each in messages)):
                disordered += _disordered(queue, [each.body for each in messages], bodies)
        ever.update((each.queue, each.body) for each in life.accepted)
    missing: list[str] = []
    rejected: list[str] = []
    for queue, bodies in wanted.items():
        for body, count in Counter(bodies).items():
            if ever[queue, body] < count:
                (rejected if (queue, digest_of(body)) in refused else missing).append(
                    _show(queue, body)
                )
    return DestinationVerdict(
        expected=sum(map(len, wanted.values())),
        accepted=sum(len(life.accepted) for life in lives),
        posts=posts,
        missing=() if partly else tuple(missing),
        doubled=tuple(doubled),
        unexpected=tuple(unexpected),
        disordered=tuple(disordered),
        violations=tuple(violations),
        refused=tuple(rejected),
        again_after_memory_loss=tuple(again),
        faults=faults,
    )


def _disordered(queue: str, found: Sequence[bytes], bodies: Sequence[bytes]) -> list[str]:
    """Return an entry for each body that was accepted after a body handed over later.

    ``found`` has the accepted bodies, and ``bodies`` those handed over, each in order. The n-th
    copy of a body counts as the n-th that was handed over.
    """
    places: dict[bytes, list[int]] = {}
    for place, body in enumerate(bodies):
        places.setdefault(body, []).append(place)
    highest, late = -1, []
    for body in found:
        if places.get(body):
            place = places[body].pop(0)
            if place < highest:
                late.append(_show(queue, body))
            highest = max(place, highest)
    return late


def _show(queue: str, body: bytes) -> str:
    return f"{queue}: {body[:60]!r}"
