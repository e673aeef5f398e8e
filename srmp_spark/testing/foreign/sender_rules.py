"""Watch the rules that a sender keeps over time ([MC-MQSRM] 2.2.5.3, 3.1.1.2, 3.1.7.2).

The watcher is on the receiving side. It sees every POST that was read, also those answered 503, and
every answer and receipt. It forgets nothing when the destination forgets everything: a sender's
duties follow from the answers that it got, not from the fate of its messages.

The document leaves four points open. The watcher uses these readings:

- A resend is the same message: identifier, number, stream, body, ``<sentAt>``. (3.1.7.2.2 and .3,
  read to the letter, would give each retransmission a new ``<id>`` and a new number, and no
  duplicate could be recognized.) Only ``<previous>`` may change, which 3.1.7.2.3 bridges.
- After a 5xx or no answer the sender begins again at that message or below it (3.1.7.2.5 takes all
  messages of the queue back, 3.1.6.1 dispatches them anew). It does not continue with the next
  message.
- ``<previous>`` names the highest number below that was not given up. A skipped number must never
  be sent again: a receiver that has accepted the skip refuses the number for good.
- A sender has one live stream for each queue: a ``Stream`` belongs to an ``OutgoingQueue``
  (3.1.1.1.5, 3.1.1.1.6), although 3.1.7.2.3 looks it up by host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from srmp_spark.testing.foreign.form import Remark

IN_FLIGHT = 1.0
"""Seconds after its 200 to a receipt in which a sender may still act without the receipt.

The 200 may cross a POST that is already in flight.
"""
BLOCKED_SENDS = 3
"""Number of sends of one message after which its stream counts as blocked.

A send counts only if the message cannot be accepted, and no lower position was sent in between.
"""

Key = tuple[str, int]
"""Lineage and uniquifier of a message: the two parts of its identifier."""
StreamKey = tuple[str, int]
"""GUID and ordinal of a stream."""


class Sight(NamedTuple):
    """The facts about one POST that the watcher keeps.

    The values are those of :class:`.incoming.Incoming` and its ``stream``. ``n`` is the number of
    the POST, ``at`` its time. ``stream`` is ``None`` for a message outside a stream.
    """

    n: int
    at: float
    queue: str
    key: Key
    has_identifier: bool
    digest: str
    sent_at: int | None
    gone_after: int
    stream: StreamKey | None = None
    current: int = 0
    written_previous: int | None = None
    start: bool = False
    receipts_to: str | None = None

    @property
    def previous(self) -> int:
        """Return the position of the message that must be accepted before this one (3.1.1.2)."""
        return self.current - 1 if self.written_previous is None else self.written_previous

    @property
    def name(self) -> str:
        """Return the number, identifier and position of this POST as a text for a complaint."""
        place = f" {self.stream[1]}/{self.current}" if self.stream else ""
        return f"POST {self.n}, uuid:{self.key[1]}@{self.key[0]}{place}"


@dataclass(slots=True)
class _Message:
    first: Sight
    refused: float | None = None
    """Time of the first whole answer 400; ``None`` before."""
    done: float | None = None
    """Time of the first whole answer 200; ``None`` before."""


@dataclass(slots=True)
class _Stream:
    queue: str
    receipts_to: str | None = None
    highest: int = 0
    seen: dict[int, Sight] = field(default_factory=dict)
    leapt: list[tuple[int, int]] = field(default_factory=list)
    """Pairs (below, above): the sender declared that the numbers between them are never sent."""
    refused: set[int] = field(default_factory=set)
    accepted: set[int] = field(default_factory=set)
    highest_told: int = 0
    """The highest ``<lastOrdinal>`` of the honest receipts whose sending has begun."""
    confirmed_receipts: list[tuple[int, float]] = field(default_factory=list)
    """Honest receipts that the sender answered 200: pairs (``<lastOrdinal>``, time of the 200)."""
    open: set[int] = field(default_factory=set)
    """Positions whose newest POST has no whole 200 or 400 yet."""
    stuck: Counter[int] = field(default_factory=Counter)

    def gives_up(self, number: int) -> bool:
        """Return whether a later message declared that position ``number`` is never sent."""
        return any(below < number < above for below, above in self.leapt)

    def heard_before(self, moment: float) -> int:
        """Return the highest position that the sender knew at ``moment`` to be acknowledged.

        Return 0 if the sender knew none.
        """
        return max((last for last, at in self.confirmed_receipts if at < moment), default=0)


class SenderRules:
    """Finds acts of senders that the document forbids, in the events of a run.

    The caller reports the events in the order in which they happen. Times are in seconds since
    1970.
    """

    def __init__(self) -> None:
        self._messages: dict[Key, _Message] = {}
        self._streams: dict[StreamKey, _Stream] = {}
        self._live: dict[tuple[str, str], StreamKey] = {}
        """The newest stream from a sender to a queue, by sender GUID and queue."""
        self._newest: dict[tuple[str, str], int] = {}
        """The highest ordinal that a sender used for a queue, by sender GUID and queue.

        Ordinals of different queues are not compared, because the streams may arrive in any order.
        """
        self.resends = 0
        """Number of POSTs of a message that was POSTed before."""

    def arrived(self, sight: Sight) -> Iterator[Remark]:
        """Record that a POST was read, and yield its violations of the rules.

        Consume the iterator to the end: otherwise the POST is only partly recorded.
        """
        known = self._messages.get(sight.key) if sight.has_identifier else None
        if known is not None:
            self.resends += 1
            yield from self._resend(sight, known)
        if sight.stream is not None:
            yield from self._in_stream(sight, sight.stream)
        if known is None and sight.has_identifier:
            self._messages[sight.key] = _Message(sight)

    def unread(self) -> None:
        """Record that a connection was dropped before its POST was read.

        The unread POST may be the one that a blocked stream waits for, so the counts of
        :data:`BLOCKED_SENDS` begin again.
        """
        for stream in self._streams.values():
            stream.stuck.clear()

    def restarted(self) -> None:
        """Record that the process of the destination was restarted.

        Answers may be missing from the journal, so unanswered POSTs and the counts of
        :data:`BLOCKED_SENDS` are forgotten.
        """
        for stream in self._streams.values():
            stream.open.clear()
            stream.stuck.clear()

    def answering(self, sight: Sight, status: int) -> None:
        """Record that the answer ``status`` to a POST is about to be written.

        After a 200 or 400 the sender may send the next position.
        """
        if sight.stream is not None and status in (200, 400):
            self._streams[sight.stream].open.discard(sight.current)

    def accepted(self, sight: Sight) -> None:
        """Record that the destination has put the message of a reported POST into its queue."""
        if sight.stream is not None:
            self._streams[sight.stream].accepted.add(sight.current)

    def answered(self, sight: Sight, status: int, at: float) -> None:
        """Record that the whole answer ``status`` was written at the time ``at``."""
        message = self._messages.get(sight.key) if sight.has_identifier else None
        if message is not None and status == 200:
            message.done = message.done or at
        if status == 400:
            if message is not None:
                message.refused = message.refused or at
            if sight.stream is not None:
                self._streams[sight.stream].refused.add(sight.current)

    def receipting(self, stream: StreamKey, last: int) -> None:
        """Record that an honest stream receipt for position ``last`` is about to be sent.

        Do not report a wrong receipt here. An unknown stream is ignored.
        """
        if stream in self._streams:
            self._streams[stream].highest_told = max(self._streams[stream].highest_told, last)

    def receipted(self, stream: StreamKey, last: int, at: float) -> None:
        """Record that the sender answered an honest stream receipt with 200 at the time ``at``.

        ``last`` is the position that the receipt acknowledges. An unknown stream is ignored.
        """
        if stream in self._streams:
            self._streams[stream].confirmed_receipts.append((last, at))

    def _resend(self, sight: Sight, known: _Message) -> Iterator[Remark]:
        first = known.first
        if sight.digest != first.digest:
            yield Remark(
                "resend-body",
                "3.1.7.2",
                f"{sight.name}: another body than in POST {first.n}, or the <id> was used again",
            )
        if sight.sent_at != first.sent_at:
            yield Remark(
                "resend-sent-at",
                "2.2.5.1.2",
                f"{sight.name}: <sentAt> is not that of POST {first.n}",
            )
        if (sight.stream, sight.current, sight.queue) != (first.stream, first.current, first.queue):
            yield Remark(
                "resend-place", "3.1.7.2.3", f"{sight.name}: was {first.name} to {first.queue}"
            )
        if known.refused is not None:
            yield Remark(
                "after-400",
                "3.1.7.2.5",
                f"{sight.name}: comes again although it was refused for good",
            )
        if sight.stream is None and known.done is not None and known.done < sight.at:
            yield Remark(
                "after-200", "3.1.7.2.5", f"{sight.name}: comes again although it was answered 200"
            )

    def _in_stream(self, sight: Sight, key: StreamKey) -> Iterator[Remark]:
        if key[0] != sight.key[0]:
            yield Remark("stream-guid", "2.2.5.3.1", f"{sight.name}: the stream is of {key[0]}")
        yield from _numbers(sight)
        stream = self._streams.get(key)
        if stream is None:
            yield from self._new_stream(sight, key)
            stream = self._streams[key] = _Stream(sight.queue)
            if sight.current != 1:
                yield Remark(
                    "first-number",
                    "2.2.5.3.2",
                    f"{sight.name}: the first of its stream that was ever seen",
                )
        elif self._live.get((key[0], sight.queue)) != key:
            yield Remark(
                "old-stream", "3.1.1.2", f"{sight.name}: a newer stream to {sight.queue} has begun"
            )
        if stream.queue != sight.queue:
            yield Remark(
                "stream-queue",
                "3.1.1.1.6",
                f"{sight.name}: this stream goes to {stream.queue}, not {sight.queue}",
            )
        if sight.start and stream.receipts_to not in (None, sight.receipts_to):
            yield Remark(
                "start", "2.2.5.3.4", f"{sight.name}: sendReceiptsTo was {stream.receipts_to}"
            )
        stream.receipts_to = stream.receipts_to or sight.receipts_to
        before = stream.seen.get(sight.current)
        if before is None:
            yield from self._new_number(sight, stream)
        elif before.key != sight.key:
            yield Remark(
                "number-again", "3.1.7.2.3", f"{sight.name}: this number was {before.name}"
            )
        yield from _previous(sight, stream)
        if stream.gives_up(sight.current):
            yield Remark(
                "leapt-over",
                "2.2.5.3.3",
                f"{sight.name}: a later message said that this number does not come",
            )
        heard = min(
            (at for last, at in stream.confirmed_receipts if sight.current <= last),
            default=sight.at,
        )
        if heard < sight.at - IN_FLIGHT:
            text = (
                f"{sight.name}: comes again {sight.at - heard:.2f} s after its receipt "
                "was answered 200"
            )
            yield Remark("after-receipt", "3.1.5.1.8.3", text)
        self._note(sight, stream)

    def _new_stream(self, sight: Sight, key: StreamKey) -> Iterator[Remark]:
        live = self._live.get((key[0], sight.queue))
        if live is not None:
            old = self._streams[live]
            waiting = [
                number
                for number, seen in old.seen.items()
                if number > old.highest_told
                and number not in old.refused
                and not old.gives_up(number)
                and seen.gone_after >= sight.at
            ]
            if waiting:
                text = (
                    f"{sight.name}: {len(waiting)} of stream {live[1]} are not "
                    f"acknowledged, the first is {min(waiting)}"
                )
                yield Remark("two-live-streams", "3.1.1.2", text)
        newest = self._newest.get((key[0], sight.queue), -1)
        if key[1] <= newest:
            yield Remark(
                "ordinal",
                "3.1.1.1.5",
                f"{sight.name}: the number of a stream rises, {newest} was there",
            )
        self._newest[key[0], sight.queue] = max(key[1], newest)
        if live is None or key[1] > live[1]:
            self._live[key[0], sight.queue] = key

    def _new_number(self, sight: Sight, stream: _Stream) -> Iterator[Remark]:
        if sight.current < stream.highest:
            yield Remark(
                "number-order", "3.1.1.2", f"{sight.name}: first seen after {stream.highest}"
            )
        elif stream.seen:
            last = stream.seen[stream.highest]
            if sight.has_identifier and last.key[0] == sight.key[0] and last.key[1] >= sight.key[1]:
                yield Remark(
                    "id-order",
                    "3.1.1.1.5",
                    f"{sight.name}: the number in <id> rises, {last.name} was before",
                )
        known = stream.heard_before(sight.at - IN_FLIGHT)
        if sight.previous < min(known, sight.current - 1):
            text = (
                f"{sight.name}: <previous> is {sight.previous}, a receipt for {known} "
                "was answered 200"
            )
            yield Remark("previous-low", "3.1.7.2.3", text)

    def _note(self, sight: Sight, stream: _Stream) -> None:
        stream.highest = max(stream.highest, sight.current)
        stream.seen.setdefault(sight.current, sight)
        stream.open.add(sight.current)
        if (
            sight.previous < sight.current - 1
            and (sight.previous, sight.current) not in stream.leapt
        ):
            stream.leapt.append((sight.previous, sight.current))
        for number in [n for n in stream.stuck if sight.current < n]:
            del stream.stuck[number]


def _numbers(sight: Sight) -> Iterator[Remark]:
    """Yield the violations in ``<current>``, ``<previous>`` and ``<start>`` of one message."""
    if sight.current == 0:
        yield Remark("first-number", "2.2.5.3.2", f"{sight.name}: numbers begin at 1")
    if sight.current == 1 and not sight.start:
        yield Remark("start", "2.2.5.3.4", f"{sight.name}: the first message has no <start>")
    if sight.current > 1 and sight.start:
        yield Remark(
            "start", "2.2.5.3.4", f"{sight.name}: <start> MUST NOT be in a subsequent message"
        )
    if sight.written_previous is not None and not 0 < sight.written_previous < sight.current:
        yield Remark(
            "previous", "3.1.7.2.4", f"{sight.name}: <previous> is {sight.written_previous}"
        )


def _previous(sight: Sight, stream: _Stream) -> Iterator[Remark]:
    """Yield the violations of ``<previous>``, and count a send that cannot be accepted.

    A violation is a ``<previous>`` that was refused, was never sent or has no answer yet, or a
    stream that is blocked (:data:`BLOCKED_SENDS`).
    """
    previous = sight.previous
    if sight.current <= 1 or previous == 0:
        return
    if previous in stream.refused - stream.accepted:
        text = f"{sight.name}: waits for {previous}, which was refused and cannot come"
        yield Remark("previous-refused", "3.1.7.2.3", text)
    elif previous not in stream.seen and stream.seen and previous < sight.current:
        yield Remark(
            "previous-unknown",
            "3.1.7.2.3",
            f"{sight.name}: waits for {previous}, which was never sent",
        )
    if previous in stream.open and previous > stream.highest_told:
        text = f"{sight.name}: sent although the last POST of {previous} has no answer, or an error"
        yield Remark("overtakes", "3.1.7.2.5", text)
    if previous <= max(stream.accepted, default=0):
        return
    stream.stuck[sight.current] += 1
    if stream.stuck[sight.current] == BLOCKED_SENDS:
        text = (
            f"{sight.name}: sent {BLOCKED_SENDS} times waiting for {previous}, and "
            "nothing below it came meanwhile"
        )
        yield Remark("previous-blocks", "3.1.7.2.3", text)
