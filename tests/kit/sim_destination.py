"""The simulator's foreign destination, written from the document alone.

The sections are [MC-MQSRM] 3.1.5.1.6.3 and 3.1.6.3. This peer lives on the simulated clock and
network; the peer with sockets is :mod:`tests.kit.foreign.destination`. The model keeps only the
rules and shares no line with the receiving half of the package.

The peer's faults are drawn from the seed. The peer drops a request before or after it accepts the
message, or answers 500, 502 or 503. The peer sends receipts late, twice, for another stream, or for
more messages than it received. The peer stops and starts again with its earlier state. Messages
whose key contains ``poison`` are refused with 400 each time.

As printed, the peer ignores the repeat of a message wholly. A sender that loses a receipt of this
peer waits for the next message, or forever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from srmp_spark.message import (
    CLASS_ACK_RECEIVE,
    CLASS_NACK_Q_PURGED,
    CLASS_ORDER_ACK,
    Message,
    Receipt,
    StreamId,
)
from srmp_spark.srmp.codec.message_types import ORDERING_ACK_ACTION
from tests.kit.oracle import Oracle
from tests.kit.sim_clock import SimClock
from tests.kit.sim_net import Answer

HOST = "foreign"
IDENTITY = "f0e16e00-0000-4000-8000-00000000000b"
RETRANSMISSION_TIMEOUT_S = 20.0
LATE_RECEIPT_S_MAX = 400.0
READ_S_MAX = 30.0
MESSAGES_EVER = 1_000
"""More messages than any test sends in one stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadDays:
    """Probabilities of the peer's faults, from 0 to 1, per request or receipt.

    ``drop_before`` and ``drop_after``: no answer, before or after the message is accepted.
    ``trouble``: an answer of ``statuses``. ``not_connected``: no connection is made.
    ``receipt_late``, ``receipt_twice`` and ``receipt_wrong`` concern stream receipts.
    """

    drop_before: float = 0.0
    drop_after: float = 0.0
    trouble: float = 0.0
    statuses: tuple[int, ...] = (503, 503, 500, 502, 404, 301, 202)
    """The statuses of the peer's error answers.

    A 503 says that the peer did not accept the message. Therefore a peer whose requests the network
    copies does not answer 503.
    """
    not_connected: float = 0.0
    receipt_late: float = 0.0
    receipt_twice: float = 0.0
    receipt_wrong: float = 0.0

    @classmethod
    def drawn(cls, random: Random, copies: bool) -> BadDays:
        """Return the faults of one seed; ``copies`` says that the network duplicates requests."""

        def often(most: float) -> float:
            return random.choice((0.0, random.uniform(0.0, most)))

        days = cls(
            drop_before=often(0.2),
            drop_after=often(0.2),
            trouble=often(0.2),
            not_connected=often(0.1),
            receipt_late=often(0.5),
            receipt_twice=often(0.5),
            receipt_wrong=often(0.5),
        )
        return (
            replace(days, not_connected=0.0, statuses=(500, 502, 404, 301, 202)) if copies else days
        )


@dataclass(slots=True)
class _Stream:
    """The peer's knowledge of one stream of the sender under test.

    ``last`` is the last accepted position, ``acknowledged`` the last one of a receipt.
    """

    id: StreamId
    last: int
    send_receipts_to: str
    acknowledged: int = 0
    timer: int = 0


class SimDestination:
    """One foreign peer with one transactional queue and one that is not transactional.

    ``landed`` and ``refused`` have the keys of accepted and of refused messages, ``not_received``
    those with a negative final receipt. Set ``bad_days`` to ``None`` to end the faults.
    """

    def __init__(
        self,
        clock: SimClock,
        random: Random,
        oracle: Oracle,
        post: Callable[[Message, Answer], None],
        copies: bool,
    ) -> None:
        self.clock = clock
        self.random = random
        self.oracle = oracle
        self.bad_days: BadDays | None = BadDays.drawn(random, copies)
        self._copies = copies
        self.marks: Counter[str] = Counter()
        self.landed: set[str] = set()
        self.refused: set[str] = set()
        self.not_received: set[str] = set()
        self.down_until = 0.0
        self._post = post
        self._streams: dict[str, _Stream] = {}
        self._identifiers: set[tuple[str, int]] = set()
        self._message_id_ordinal = 0

    def receive(self, message: Message, answer: Answer) -> None:
        """Process one request, subject to the drawn faults, and call ``answer``.

        ``answer`` gets the status, ``None`` for no answer, or -1 if no connection was made.
        """
        bad, random = self.bad_days, self.random
        if self.clock.now < self.down_until:
            answer(-1 if random.random() < 0.5 and not self._copies else None)
            return
        if bad is not None:
            if random.random() < bad.not_connected:
                answer(-1)
                return
            if random.random() < bad.drop_before:
                answer(None)
                return
            if random.random() < bad.trouble:
                answer(random.choice(bad.statuses))
                return
        status = self._take(message)
        if bad is not None and random.random() < bad.drop_after:
            self.marks["foreign-reply-dropped"] += 1
            answer(random.choice((None, 500, 502, 504)))
            return
        answer(status)

    def _take(self, message: Message) -> int:
        key = message.body.decode()
        if "poison" in key:
            self.refused.add(key)
            return 400
        if message.stream is None:
            if (message.lineage, message.uniquifier) not in self._identifiers:
                self._identifiers.add((message.lineage, message.uniquifier))
                self._land(message)
            return 200
        place = message.stream
        stream = self._streams.get(place.id.guid)
        if (
            place.start
            and place.current == 1
            and (stream is None or place.id.ordinal > stream.id.ordinal)
        ):
            assert place.send_receipts_to is not None, "a start names where receipts go"
            stream = self._streams[place.id.guid] = _Stream(place.id, 0, place.send_receipts_to)
        if stream is None or stream.id != place.id:
            self.marks["foreign-ignored-stream"] += 1
            return 200
        follows = place.current == stream.last + 1
        skips = place.current > stream.last and place.previous <= stream.last
        if not follows and not skips:
            self.marks[
                "foreign-ignored-gap" if place.current > stream.last else "foreign-ignored-repeat"
            ] += 1
            return 200
        stream.last = place.current
        self._land(message)
        self._coalesce(stream)
        if message.dead_letter:
            self._read_later(message, stream)
        return 200

    def _land(self, message: Message) -> None:
        key = message.body.decode()
        self.landed.add(key)
        self.oracle.landed(key)

    # --- receipts ---------------------------------------------------------------------------------

    def _coalesce(self, stream: _Stream) -> None:
        """Schedule a stream receipt after 0.5 seconds (3.1.2.3), or much later as a fault.

        A later message of the stream replaces the scheduled receipt.
        """
        stream.timer += 1
        late = self.bad_days is not None and self.random.random() < self.bad_days.receipt_late
        delay = self.random.uniform(0.5, LATE_RECEIPT_S_MAX) if late else 0.5
        self.clock.after(delay, self._acknowledge, stream, None if late else stream.timer)

    def _acknowledge(self, stream: _Stream, timer: int | None) -> None:
        if (timer is not None and timer != stream.timer) or stream.last <= stream.acknowledged:
            return
        stream.acknowledged = stream.last
        bad, random = self.bad_days, self.random
        if bad is not None and random.random() < bad.receipt_twice:
            self._send(stream, stream.id, stream.last)
        if bad is not None and random.random() < bad.receipt_wrong:
            guid, ordinal = stream.id
            wrong, last = random.choice(
                (
                    (stream.id, stream.last + MESSAGES_EVER),
                    (StreamId(guid, ordinal - 1), stream.last + 3),
                    (StreamId(guid, ordinal + (1 << 33)), stream.last + 3),
                    (StreamId("00000000-0000-4000-8000-00000000dead", ordinal), stream.last + 5),
                )
            )
            self.marks["foreign-wrong-receipt"] += 1
            self._send(stream, wrong, last)
        self._send(stream, stream.id, stream.last)

    def _read_later(self, message: Message, stream: _Stream) -> None:
        self.clock.after(self.random.uniform(0.0, READ_S_MAX), self._read, message, stream)

    def _read(self, message: Message, stream: _Stream) -> None:
        """Decide that the message is received or purged, and send its final receipt (3.1.7.3.3)."""
        assert message.stream is not None
        positive = self.random.random() < 0.8
        if not positive:
            self.not_received.add(message.body.decode())
        self._send(stream, message.stream.id, message.stream.current, decision=positive)

    def _send(
        self, stream: _Stream, stream_id: StreamId, last: int, decision: bool | None = None
    ) -> None:
        self._message_id_ordinal += 1
        if decision is None:
            receipt, message_class = (
                Receipt("stream", stream_id=stream_id, last_ordinal=last),
                CLASS_ORDER_ACK,
            )
        else:
            receipt = Receipt(
                "final_stream",
                stream_id=stream_id,
                last_ordinal=last,
                at=self.clock.utc(),
                lineage=IDENTITY,
                uniquifier=1,
                decision="positive" if decision else "negative",
            )
            message_class = CLASS_ACK_RECEIVE if decision else CLASS_NACK_Q_PURGED
        message = Message(
            destination=stream.send_receipts_to,
            action=ORDERING_ACK_ACTION,
            lineage=IDENTITY,
            uniquifier=self._message_id_ordinal,
            has_msmq=True,
            message_class=message_class,
            receipt=receipt,
        )
        self._deliver(message)

    def _deliver(self, message: Message) -> None:
        """Send a receipt, and send it again until it is answered 200 or 400 (3.1.6.1)."""

        def answered(status: int | None) -> None:
            if status not in (200, 400):
                self.clock.after(RETRANSMISSION_TIMEOUT_S, self._deliver, message)

        self._post(message, answered)
