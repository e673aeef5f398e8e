"""The inputs and results of the sending engine: values, never actions.

The types enforce the orders that are critical, as on the receiving side (:mod:`.effects`):

    enqueue() → Enqueued ──→ store: rows + changes(), sync
                               ──→ Committed ──→ committed() … poll() → Load → Send
    answered(), receipt() ──→ store: changes(), sync
                               ──→ Committed ──→ committed() → Delivered, DeadLettered

A :class:`Send` needs the store's proof, so nothing is sent that is not stored with its number. A
:class:`Delivered` or :class:`DeadLettered` needs the proof too, so no outcome is reported that a
crash could undo.
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal, NamedTuple

from srmp_spark.errors import LocalProtocolError
from srmp_spark.message import Message, StreamId
from srmp_spark.srmp.receiving.effects import Committed
from srmp_spark.transports import Transport, transport_of

Kind = Literal["stream", "plain"]
"""Stream messages (``transactional``), or regular and durable messages (``express``,
``recoverable``).
"""

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
"""The verdict about a stream receipt: whether it changed anything, or why not.

``progress``: the receipt acknowledged messages. ``final``: the receipt ended the wait for a final
stream receipt. All other receipts changed nothing and are counted. ``old``: it names messages that
are acknowledged already. ``beyond``: it names messages that were never sent. ``another-stream``,
``another-address``, ``another-type``: it belongs to no stream of this queue manager, arrived at an
address without the secret of the stream, or contradicts itself. ``failed``: a bug of this package
prevented the use of the receipt, and the caller continues.
"""

DeadReason = Literal[
    "refused", "expired", "dropped", "not-received", "final-receipt-missing", "no-room"
]
"""Why a message became a dead letter.

``refused``: the peer answered 400 ([MC-MQSRM] 3.1.7.2.5). ``expired``: its time ended before it was
sent (3.1.7.2.1). ``dropped``: an operator discarded it. ``not-received``: the receiving application
never received it, says a negative final stream receipt (3.1.5.1.9.3). ``final-receipt-missing``:
this receipt never arrived. ``no-room``: too many other destinations hold messages
(:mod:`.outgoing_room`).
"""


class _Key(NamedTuple):
    destination: str
    """Destination in canonical form (:mod:`srmp_spark.canonical_url`).

    Two forms would be two streams, and the peer would drop one of them.
    """
    kind: Kind


class QueueKey(_Key):
    """The key of an outgoing queue: its destination and its kind, and with them its transport.

    As a tuple, and on disk, a key is the pair of destination and kind. The transport is kept in the
    dictionary of the instance.
    """

    @cached_property
    def transport(self) -> Transport:
        """Return the transport of the destination, which is found once for each key."""
        return transport_of(self.destination)

    @classmethod
    def for_messages(cls, destination: str, *, transactional: bool) -> QueueKey:
        """Return the key for messages to a canonical destination.

        Transactional messages are plain ones if their transport has no streams.
        """
        plain = cls(destination, "plain")
        is_stream = transactional and plain.transport.rules.has_streams
        return cls(destination, "stream") if is_stream else plain


class StoredMessage(NamedTuple):
    """One message of the outbox as read back from its row."""

    serial: int
    message: Message
    """The message as it is sent, with its identifier.

    Only ``stream`` is missing; the engine adds it.
    """
    via: str = ""
    """For a forwarded message: the value of ``Via`` with the marks of the queue managers that
    forwarded it, that of this one as the last (:mod:`srmp_spark.srmp.forward.forwarding`).
    """
    reliable: str = ""
    """For a message of a reliable session: its versions
    (:class:`srmp_spark.wsrm.codec.versions.Versions`). This package does not interpret them.
    """


class Enqueued(NamedTuple):
    """Serials for new messages: store ``last - first + 1`` messages under the serials.

    The messages must be stored in the transaction that holds the next changes.
    """

    key: QueueKey
    first: int
    last: int
    stream_id: StreamId | None
    first_position: int
    """Position of ``first`` in its stream; 0 if it has none.

    The position stays valid unless the stream is abandoned before the message is sent.
    """


class Load(NamedTuple):
    """A request to read the first rows of ``key`` after serial ``after``, up to serial ``last``.

    Serials are explained in :mod:`.outgoing_queue`. Read the rows in ascending order, at most
    ``rows_max`` rows. Their bodies may have at most ``bytes_max`` bytes together, unless the first
    row alone has more. Give the rows to :meth:`~srmp_spark.srmp.sending.sender.Sender.loaded`, or
    an empty list if there are none. If no connection to the peer is open, connect first. If this
    fails, call :meth:`~srmp_spark.srmp.sending.sender.Sender.not_reached` instead. Messages for
    many unreachable peers must neither fill the memory nor cost reading.
    """

    key: QueueKey
    after: int
    last: int
    rows_max: int
    bytes_max: int
    number: int
    """Number of this load within this engine."""


class Send:
    """A request to post ``message`` and to report its end exactly once.

    Report the end with :meth:`Sender.answered`, :meth:`Sender.failed` or :meth:`Sender.withdrawn`.
    The sends of one stream go over one connection, in the order in which they were created. Before
    a second connection is opened, close the first and report the ends of its sends.
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
        """Number of this sending within this engine."""
        self.pass_number = pass_number
        self.previous = previous
        """Serial of the preceding message."""
        self.again = again
        """Whether the message may have been sent before, perhaps by an earlier process."""

    @property
    def serial(self) -> int:
        """Return the serial of the message in the outbox."""
        return self.stored.serial

    def __repr__(self) -> str:
        stream = self.message.stream
        place = f" {stream.id}@{stream.current} previous={stream.previous}" if stream else ""
        return (
            f"<Send {self.key.destination} #{self.serial}{place}{' again' if self.again else ''}>"
        )


class SerialRun(NamedTuple):
    """The messages with the serials ``first`` to ``last`` of an outgoing queue, both included.

    Some of these messages may no longer exist.
    """

    key: QueueKey
    first: int
    last: int


class DeadLetter(NamedTuple):
    """A request to move the messages of ``run`` from the outbox to the dead-letter queue."""

    run: SerialRun
    reason: DeadReason
    status: int | None
    """HTTP status if that was the reason, else ``None``."""
    in_doubt: bool
    """Whether some of the messages may have arrived at the peer.

    Sending the messages again may then duplicate them.
    """
    message_class: int | None = None
    """Reason that the peer gave (``<Class>`` of a negative final stream receipt); ``None`` without
    such a receipt.
    """


class EarlierStream(NamedTuple):
    """A stream that ended while some of its messages waited for final stream receipts.

    The stream was abandoned or used up its positions. These receipts name it.
    """

    ordinal: int
    base: int
    """Difference between a serial and its position in this stream."""
    last: int
    """Last serial that was acknowledged in the stream. Later serials moved to another stream."""
    receipts_url: str = ""
    """``<sendReceiptsTo>`` of the stream.

    Empty if an earlier version stored it: the URL is then that of the next stream.
    """


class OutgoingQueueRow(NamedTuple):
    """One outgoing queue as a row of the table ``outgoing_streams``.

    The key is (``destination``, ``kind``). Times are microseconds since 1970, UTC. The serials of a
    queue never start again. The position of a message in its stream is its serial minus ``base``.
    To abandon a stream therefore costs one new row of this table, and a million waiting messages
    need not be written again.
    """

    destination: str
    kind: Kind
    stream_ordinal: int
    """Stream.Id.Ordinal; 0 if there is no stream."""
    base: int
    end: int
    """Last serial that was assigned. ``end`` - ``base`` is Stream.SequenceNumber."""
    acknowledged_to: int
    """No message up to this serial waits for a stream receipt; in a plain queue, for anything."""
    released_to: int
    """No message after this serial was ever sent.

    Such a message may expire, and no receipt can be for it.
    """
    receipts_url: str
    """``<sendReceiptsTo>`` of the live stream."""
    resend_interval_index: int
    paused: bool
    started_at: int
    last_acknowledged_at: int
    origin: str = ""
    """Origin of the first message that waits: for whom the queue counts (:mod:`.outgoing_room`)."""
    begun_after: int = 0
    """Serials up to this one do not belong to this record: they belong to a forgotten record or
    another destination, or were never assigned.
    """
    finals_since: int = 0
    """Time since which final stream receipts are awaited and none has arrived. 0 if none is
    awaited, or if an older version wrote the row.
    """
    finals_to: int = 0
    """Last serial that was acknowledged at that time.

    Messages up to this serial become dead letters when the wait is over.
    """
    earlier: tuple[EarlierStream, ...] = ()
    """Streams before the live one for which final stream receipts are still awaited."""


class OutgoingChanges(NamedTuple):
    """The changes to write in one transaction.

    This transaction also holds the messages that were enqueued since the last changes.
    """

    queues: list[OutgoingQueueRow]
    """Rows to insert or replace."""
    finished: list[SerialRun]
    """Messages to delete, or to move to the journal if ``<Journal/>`` requests it ([MC-MQSRM]
    3.1.5.2.2).
    """
    dead_letters: list[DeadLetter]
    forgotten: list[QueueKey]
    """Keys of queues to delete. These queues have no messages."""
    last_stream_ordinal: int
    """SRMPState.StreamIdOrdinal, the ordinal of the newest stream."""
    generation: int


class Delivered(NamedTuple):
    """Reports that the peer is now responsible for these messages, and that this is stored.

    Notify whoever waits for them. The run may include messages that were reported as dead before,
    because dead messages are removed from the stream.
    """

    run: SerialRun


class DeadLettered(NamedTuple):
    """Reports that the messages of ``letter`` will not arrive, and that this is stored."""

    letter: DeadLetter


def outcomes_of(changes: OutgoingChanges, proof: Committed) -> list[Delivered | DeadLettered]:
    """Return the outcomes that the commit of ``changes`` makes final.

    Raises :class:`LocalProtocolError` without the store's proof of the commit.
    """
    if type(proof) is not Committed:
        raise LocalProtocolError(
            f"an end is final only when it is stored: {proof!r} proves no commit"
        )
    return [*map(Delivered, changes.finished), *map(DeadLettered, changes.dead_letters)]
