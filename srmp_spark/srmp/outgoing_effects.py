"""What goes into and comes out of the sending engine: values, never actions.

The dangerous orders are in the types, as on the receiving side (:mod:`.effects`):

    enqueue() → Enqueued ──→ store: rows + changes(), sync ──→ Committed ──→ committed() … poll() → Load → Send
    answered(), receipt() ──→ store: changes(), sync ──→ Committed ──→ committed() → Delivered, DeadLettered

A :class:`Send` can only be made with the store's proof, so nothing leaves that is not stored with its number. A
:class:`Delivered` or :class:`DeadLettered` can only be made with it too, so nobody hears of an end that a crash could undo.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from srmp_spark.errors import LocalProtocolError
from srmp_spark.message import Message, StreamId
from srmp_spark.srmp.effects import Committed

Kind = Literal["stream", "plain"]
"""Stream messages (``transactional``), or regular and durable ones (``express``, ``recoverable``)."""

ReceiptVerdict = Literal[
    "progress",
    "old",
    "beyond",
    "another-stream",
    "another-address",
    "another-type",
    "final",
    "failed",
]
"""What a stream receipt did. ``final``: it ended the wait for a final stream receipt. All others but ``progress`` did nothing
and are counted: bad input 27 of the attack list. ``failed``: a bug, and the caller passed it over."""

DeadReason = Literal[
    "refused", "expired", "dropped", "not-received", "final-receipt-missing", "no-room"
]
"""The peer answered 400 ([MC-MQSRM] 3.1.7.2.5); its time was over before it left (3.1.7.2.1); an operator gave it up; the
receiving application never got it (a negative final stream receipt, 3.1.5.1.9.3); that receipt never came; too many other
destinations hold messages (:mod:`.outgoing_room`)."""


MessageState = Literal[
    "queued", "awaiting_stream_receipt", "awaiting_final_stream_receipt", "in_doubt"
]
"""Where a message stands that is not finished (INTERFACE.md section 4, ``outgoing_queue``). ``in_doubt``: it left, and nobody
knows whether it arrived; it goes again."""


class QueueKey(NamedTuple):
    """An OutgoingQueue."""

    destination: str
    """In one spelling for one queue (:mod:`srmp_spark.canonical_url`): two would be two streams, of
    which the peer drops one."""
    kind: Kind


class StoredMessage(NamedTuple):
    """A row of the outbox, read back."""

    serial: int
    message: Message
    """As it is sent, with its identifier, but for ``stream``, which the engine fills."""
    via: str = ""
    """Of a message that we forward: the marks of those who did, ours the last (:mod:`.redirection`)."""
    reliable: str = ""
    """Of a message of a reliable session: its versions (:class:`srmp_spark.wsrm.versions.Versions`), of which nothing is known
    here."""


class Enqueued(NamedTuple):
    """Store ``last - first + 1`` messages under these serials, in the transaction that holds the next changes."""

    key: QueueKey
    first: int
    last: int
    stream_id: StreamId | None
    first_position: int
    """Position of ``first`` in its stream; 0 if it has none. It stays unless the stream is given up before it is sent."""


class Load(NamedTuple):
    """Read the first rows of ``key`` with a serial above ``after`` and up to ``last``, in ascending order.

    At most ``rows_max``, and no more than ``bytes_max`` of bodies unless the first row alone has more. Hand them to
    :meth:`~srmp_spark.srmp.sender.Sender.loaded`, an empty list if there are none. Connect first, if there is no connection
    to send them over, and say :meth:`~srmp_spark.srmp.sender.Sender.not_reached` if none can be made: what waits for many
    peers that are down must fill no memory and cost no reading.
    """

    key: QueueKey
    after: int
    last: int
    rows_max: int
    bytes_max: int
    number: int
    """Which load of this engine."""


class Send:
    """Post ``message``, then report its end exactly once: :meth:`Sender.answered`, :meth:`Sender.failed` or
    :meth:`Sender.withdrawn`.

    The sends of one stream leave in the order they were made, on one connection; before a second connection is opened the
    first is closed and what hung on it is reported.
    """

    __slots__ = ("again", "key", "message", "number", "pass_number", "previous", "stored")

    def __init__(
        self,
        key: QueueKey,
        stored: StoredMessage,
        message: Message,
        number: int,
        pass_number: int,
        previous: int,
        again: bool,
        proof: Committed | None,
    ) -> None:
        if type(proof) is not Committed:
            raise LocalProtocolError(
                f"only what is stored may leave: a Send needs the store's proof, got {proof!r}"
            )
        self.key = key
        self.stored = stored
        self.message = message
        self.number = number
        """Which sending of this engine."""
        self.pass_number = pass_number
        self.previous = previous
        """Serial of the message before it."""
        self.again = again
        """It may have left before, perhaps in an earlier life of the process."""

    @property
    def serial(self) -> int:
        """Its place in the outbox."""
        return self.stored.serial

    def __repr__(self) -> str:
        stream = self.message.stream
        place = f" {stream.id}@{stream.current} previous={stream.previous}" if stream else ""
        return (
            f"<Send {self.key.destination} #{self.serial}{place}{' again' if self.again else ''}>"
        )


class SerialRun(NamedTuple):
    """The serials ``first`` to ``last`` of an outgoing queue; not each of them need exist any more."""

    key: QueueKey
    first: int
    last: int


class DeadLetter(NamedTuple):
    """Move these messages from the outbox to the dead letter queue."""

    run: SerialRun
    reason: DeadReason
    status: int | None
    """The HTTP status, if that was the reason."""
    in_doubt: bool
    """They, or some of them, may be at the peer all the same: who sends them anew may double them."""
    message_class: int | None = None
    """What the peer gave as the reason (``<Class>`` of a negative final stream receipt)."""


class EarlierStream(NamedTuple):
    """A stream that was given up or ran full while messages of it waited for final stream receipts: these name it."""

    ordinal: int
    base: int
    """Its positions are serials minus this."""
    last: int
    """The last serial that was acknowledged in it; later ones have moved to another stream."""
    receipts_url: str = ""
    """``<sendReceiptsTo>`` of it; empty where a version before this one wrote it down: that of the stream after it."""


class OutgoingQueueRow(NamedTuple):
    """A row of the table ``outgoing_streams``; its key is (``destination``, ``kind``). Times: microseconds since 1970, UTC.

    Serials count per queue for ever; the position of a message in its stream is its serial minus ``base``. So a stream
    that is given up is one new row here, and a million waiting messages need not be written again.
    """

    destination: str
    kind: Kind
    stream_ordinal: int
    """Stream.Id.Ordinal; 0 if there is no stream."""
    base: int
    end: int
    """The last serial given out; ``end`` - ``base`` is Stream.SequenceNumber."""
    acknowledged_to: int
    """Nothing up to here waits for a stream receipt (plain: for anything)."""
    released_to: int
    """Nothing above has ever left: it may expire, and no receipt can be for it."""
    receipts_url: str
    """``<sendReceiptsTo>`` of the live stream."""
    resend_interval_index: int
    paused: bool
    started_at: int
    last_acknowledged_at: int
    origin: str = ""
    """Who gave the first of the messages that wait (:mod:`.outgoing_room`)."""
    begun_after: int = 0
    """Serials up to here are none of this record: of one that was forgotten, of another destination, or never given out."""
    finals_since: int = 0
    """Since when a final stream receipt is awaited without any; 0: none is awaited, or an older version wrote the row."""
    finals_to: int = 0
    """The last serial that was acknowledged then: messages up to here are given up when the time is over."""
    earlier: tuple[EarlierStream, ...] = ()
    """Streams before the live one, as long as final stream receipts of theirs are awaited."""


class OutgoingChanges(NamedTuple):
    """What must be written in one transaction, together with the messages enqueued since the last changes."""

    queues: list[OutgoingQueueRow]
    """To insert or replace."""
    finished: list[SerialRun]
    """Delete these messages (or move them to the journal, where ``<Journal/>`` asks for it: [MC-MQSRM] 3.1.5.2.2)."""
    dead_letters: list[DeadLetter]
    forgotten: list[QueueKey]
    """Queues to delete; they have no messages."""
    last_stream_ordinal: int
    """SRMPState.StreamIdOrdinal."""
    generation: int


class Delivered(NamedTuple):
    """It is stored that these messages are the peer's responsibility now. Tell whoever waits.

    The run may span messages that were told as dead before, for these were taken out of the stream.
    """

    run: SerialRun


class DeadLettered(NamedTuple):
    """It is stored that these messages will not arrive."""

    letter: DeadLetter


def outcomes_of(changes: OutgoingChanges, proof: Committed) -> list[Delivered | DeadLettered]:
    """What the commit of ``changes`` makes final. Raises :class:`LocalProtocolError` without the store's proof."""
    if type(proof) is not Committed:
        raise LocalProtocolError(
            f"an end is final only when it is stored: {proof!r} proves no commit"
        )
    return [*map(Delivered, changes.finished), *map(DeadLettered, changes.dead_letters)]
