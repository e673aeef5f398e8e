"""Receive messages as the queue manager of [MC-MQSRM] 3.1.5.1.

The module decides which messages are accepted, which are repetitions and which receipts are owed.
It has no sockets and no files. Time and messages are arguments, outcomes and owed receipts are
results. The values that must outlive a restart are in :class:`AcceptedMessage`, one for each
message; :meth:`ReceivingManager.restore` puts them back.

The document can be read in two ways. This module uses these readings:

- An ignored stream message is answered 200. 3.1.5.1.6.3 names no answer, and a 400 would make the
  sender delete it.
- A stream message is a duplicate by its position alone. In example 4.4 three messages carry the
  same ``<id>``, and a receipt acknowledges each of them.
- ``SendReceiptsTo`` outlives a restart. 3.1.3.2 empties it, and then no receipt could be sent.
"""

from __future__ import annotations

import base64
import enum
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from srmp_spark.testing.foreign.incoming import Incoming, StreamPlace

RECEIPT_WAIT = 0.5
"""Seconds from the last accepted message of a stream to its stream receipt (3.1.2.3)."""
RECEIPT_WAIT_MAX = 10.0
"""Longest time, in seconds, for which new messages put a receipt off (3.1.5.1.6.3).

The time begins with the first message that has no receipt.
"""
CLASS_ORDER_ACK, CLASS_REACH_QUEUE, CLASS_RECEIVE, CLASS_PURGED = 0x00FF, 0x0002, 0x4000, 0xC001
"""Message classes of receipts: stream, delivery, received, purged ([MS-MQMQ] 2.2.18.1.6)."""


class Outcome(enum.Enum):
    """The result of receiving a message."""

    ACCEPTED = "accepted"
    REPEATED = "repeated"
    """A message known by its identifier or position. It is answered 200 and not queued again."""
    OUT_OF_ORDER = "out-of-order"
    """A message whose position cannot be accepted yet. It is answered 200 and not queued."""
    REFUSED = "refused"
    """A message that is refused for good. It is answered 400."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedMessage:
    """A message in its queue. The attributes are those of :class:`.incoming.Incoming`.

    ``at`` is the time of acceptance in seconds since 1970, ``queue`` the name in lower case.
    """

    n: int
    """Number of the POST that brought the message, from 1."""
    at: float
    queue: str
    lineage: str
    uniquifier: int
    label: str | None
    body: bytes
    extension: bytes
    stream_guid: str | None = None
    stream_ordinal: int = 0
    current: int = 0
    previous: int = 0
    receipts_to: str | None = None
    """URL for the receipts of the message's stream; ``None`` without a stream."""
    dead_letter: bool = False
    commitment_receipt_to: str | None = None
    decisions: tuple[str, ...] = ()
    """The final receipts that ``<commitmentReceiptRequest>`` asks for.

    Its values are ``positive`` and ``negative``.
    """
    delivery_receipt_to: str | None = None

    @property
    def id(self) -> str:
        """Return the identifier of the message as ``<id>`` writes it, ``uuid:N@GUID``."""
        return f"uuid:{self.uniquifier}@{self.lineage}"

    @property
    def stream_id(self) -> str | None:
        r"""Return the stream identifier ``uid:GUID\N``; ``None`` without a stream."""
        return (
            None if self.stream_guid is None else f"uid:{self.stream_guid}\\{self.stream_ordinal}"
        )

    def as_json(self) -> dict[str, Any]:
        """Return the message as a dictionary of JSON values for the journal."""
        values = asdict(self)
        return values | {
            name: base64.b64encode(values[name]).decode() for name in ("body", "extension")
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> AcceptedMessage:
        """Return the message of a dictionary that :meth:`as_json` returned."""
        decoded = {name: base64.b64decode(values[name]) for name in ("body", "extension")}
        return cls(**(values | decoded | {"decisions": tuple(values["decisions"])}))


class Owed(NamedTuple):
    """A receipt that has to be sent.

    ``to`` is the URL that the receipt is sent to. ``stream`` is the GUID and ordinal of the stream,
    and ``last`` the position that is acknowledged. ``decision`` is ``positive`` or ``negative`` in
    a final receipt.
    """

    to: str
    queue: str
    """Name of the queue that the receipt is about."""
    label: str
    message_class: int
    about: str
    """The ``<id>`` of the message; in a stream receipt, of the last message of the stream."""
    stream: tuple[str, int] | None = None
    last: int = 0
    decision: str | None = None
    delivered_at: float | None = None
    """Time of the message's arrival, in seconds since 1970. Only a delivery receipt has it."""
    honest: bool = True
    """``False`` for a wrong receipt, which is sent to see whether the sender believes it."""

    @property
    def is_stream_receipt(self) -> bool:
        """Return whether this is a stream receipt ("QM Ordering Ack"), by its message class."""
        return self.message_class == CLASS_ORDER_ACK


@dataclass(slots=True)
class _Stream:
    """The ``Stream`` of the receiving side (3.1.1.1.6).

    ``number`` is the last accepted position, ``about`` the ``<id>`` of that message.
    ``acknowledged`` is the last position for which a receipt was due. ``due`` is the time of the
    next receipt, and ``None`` if no receipt is owed.
    """

    ordinal: int
    number: int = 0
    receipts_to: str = ""
    about: str = ""
    acknowledged: int = 0
    unacknowledged_since: float | None = None
    due: float | None = None


@dataclass(slots=True)
class ReceivingManager:
    """The state of the receiving queue manager.

    ``kinds`` maps each queue to whether it is transactional. With ``None`` every queue exists and
    accepts both kinds. ``wait`` and ``wait_max``, in seconds, replace :data:`RECEIPT_WAIT` and
    :data:`RECEIPT_WAIT_MAX`. ``now`` is in seconds since 1970.
    """

    kinds: dict[str, bool] | None = None
    wait: float = RECEIPT_WAIT
    wait_max: float = RECEIPT_WAIT_MAX
    queues: dict[str, list[AcceptedMessage]] = field(default_factory=dict)
    _history: set[tuple[str, int]] = field(default_factory=set)
    _streams: dict[tuple[str, str], _Stream] = field(default_factory=dict)

    def receive(
        self, message: Incoming, n: int, now: float
    ) -> tuple[Outcome, AcceptedMessage | None]:
        """Receive one message, by 3.1.5.1.3, .6 and .11, and return its outcome.

        ``n`` is the number of the POST, ``now`` the time in seconds since 1970. The second value is
        the accepted message, or ``None`` for any other outcome. An accepted message is put into its
        queue, and its stream owes a receipt.
        """
        queue, place = queue_of(message.to), message.stream
        if self.kinds is not None and self.kinds.get(queue) != (place is not None):
            # The queue does not exist or is of the other kind (3.1.5.1.3).
            return Outcome.REFUSED, None
        receipts_to = None
        if place is None:
            if message.has_identifier and (message.lineage, message.uniquifier) in self._history:
                return Outcome.REPEATED, None
        else:
            stream = self._streams.get((queue, place.guid))
            begins = (
                place.start
                and place.current == 1
                and (stream is None or stream.ordinal != place.ordinal)
            )
            if not begins:
                if stream is None or stream.ordinal != place.ordinal:
                    return Outcome.OUT_OF_ORDER, None
                if place.current <= stream.number:
                    return Outcome.REPEATED, None
                if place.previous > stream.number:
                    return Outcome.OUT_OF_ORDER, None
            receipts_to = place.receipts_to if begins or stream is None else stream.receipts_to
        decisions = [
            name
            for name, wanted in (
                ("positive", message.positive_only),
                ("negative", message.negative_only),
            )
            if wanted
        ]
        accepted = AcceptedMessage(
            n=n,
            at=now,
            queue=queue,
            lineage=message.lineage,
            uniquifier=message.uniquifier,
            label=message.label,
            body=message.body,
            extension=message.extension,
            receipts_to=receipts_to,
            dead_letter=message.dead_letter,
            commitment_receipt_to=message.commitment_receipt_to,
            decisions=tuple(decisions),
            delivery_receipt_to=message.delivery_receipt_to,
            **_place_values(place),
        )
        self.restore(accepted)
        self._put_off(accepted, now)
        return Outcome.ACCEPTED, accepted

    def restore(self, accepted: AcceptedMessage) -> None:
        """Put an accepted message into its queue and advance its stream.

        Called for a new message, and for each message of the journal in order. The call lets no
        receipt be owed.
        """
        self.queues.setdefault(accepted.queue, []).append(accepted)
        self._history.add((accepted.lineage, accepted.uniquifier))
        if accepted.stream_guid is None:
            return
        at = accepted.queue, accepted.stream_guid
        stream = self._streams.get(at)
        if stream is None or stream.ordinal != accepted.stream_ordinal:
            stream = self._streams[at] = _Stream(accepted.stream_ordinal)
        stream.number, stream.about = accepted.current, accepted.id
        stream.receipts_to = accepted.receipts_to or ""

    def _put_off(self, accepted: AcceptedMessage, now: float) -> None:
        """Start the Stream Receipt Coalescing Timer of a stream message again (3.1.5.1.6.3)."""
        if accepted.stream_guid is not None:
            stream = self._streams[accepted.queue, accepted.stream_guid]
            stream.unacknowledged_since = stream.unacknowledged_since or now
            stream.due = min(now + self.wait, stream.unacknowledged_since + self.wait_max)

    def owe_all(self, delivered: dict[tuple[str, int], int], now: float) -> None:
        """Let every stream owe a receipt unless the sender has it.

        Call this method after a restart.

        ``delivered`` maps each stream (GUID, ordinal) to the last position that its sender has a
        receipt for. The receipts are due after :attr:`wait` seconds.
        """
        for (_, guid), stream in self._streams.items():
            stream.acknowledged = delivered.get((guid, stream.ordinal), 0)
            if stream.number > stream.acknowledged:
                stream.due = now + self.wait

    def owe_again(self, queue: str, guid: str, now: float) -> None:
        """Let a stream owe its receipt again after a repeated message.

        Nothing changes if a receipt is owed already. ``guid`` is the stream's. The document does
        not require the repetition. Raises :class:`KeyError` if the queue has no such stream.
        """
        stream = self._streams[queue, guid]
        if stream.due is None:
            stream.due = now + self.wait

    def due(self, now: float) -> Iterator[Owed]:
        """Yield the stream receipts whose timer has fired by ``now`` (3.1.6.3), each once."""
        for (queue, guid), stream in self._streams.items():
            if stream.due is not None and stream.due <= now:
                stream.due = stream.unacknowledged_since = None
                stream.acknowledged = stream.number
                yield Owed(
                    to=stream.receipts_to,
                    queue=queue,
                    label="QM Ordering Ack",
                    message_class=CLASS_ORDER_ACK,
                    about=stream.about,
                    stream=(guid, stream.ordinal),
                    last=stream.number,
                )


def _place_values(place: StreamPlace | None) -> dict[str, Any]:
    if place is None:
        return {}
    return {
        "stream_guid": place.guid,
        "stream_ordinal": place.ordinal,
        "current": place.current,
        "previous": place.previous,
    }


def delivery_receipt(accepted: AcceptedMessage) -> Owed | None:
    """Return the delivery receipt of a message (3.1.5.1.6.2).

    Return ``None`` if the message asks for none.
    """
    if accepted.delivery_receipt_to is None:
        return None
    return Owed(
        to=accepted.delivery_receipt_to,
        queue=accepted.queue,
        label=accepted.label or "",
        message_class=CLASS_REACH_QUEUE,
        about=accepted.id,
        delivered_at=accepted.at,
    )


def final_receipt(accepted: AcceptedMessage, decision: str) -> Owed | None:
    """Return the receipt for a message that leaves its queue, or ``None`` if none was asked for.

    The decision ``positive`` means that an application received the message, ``negative`` that the
    queue was purged (3.1.7.3.1, 3.1.7.3.3). A stream message with ``<DeadLetter/>`` gets a final
    stream receipt, any other message a commitment receipt.
    """
    number = CLASS_RECEIVE if decision == "positive" else CLASS_PURGED
    if accepted.stream_guid is not None and accepted.dead_letter and accepted.receipts_to:
        stream = accepted.stream_guid, accepted.stream_ordinal
        return Owed(
            accepted.receipts_to,
            accepted.queue,
            "QM Ordering Ack",
            number,
            accepted.id,
            stream,
            accepted.current,
            decision,
        )
    if accepted.commitment_receipt_to is not None and decision in accepted.decisions:
        to = accepted.commitment_receipt_to
        return Owed(
            to, accepted.queue, accepted.label or "", number, accepted.id, decision=decision
        )
    return None


def queue_of(to: str) -> str:
    r"""Return the queue name of a ``<to>``: the part after the first path segment, in lower case.

    For example, ``http://host/msmq/Private$\A`` gives ``private$/a``: backslashes become slashes. A
    ``<to>`` without this part is returned whole, in the same form.
    """
    match = re.match(r"https?://[^/]+/[^/\\]+[/\\](.+)", to, re.IGNORECASE)
    return (match[1] if match else to).lower().replace("\\", "/")
