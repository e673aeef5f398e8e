"""Message Position Deleted ([MC-MQSRM] 3.1.7.3): what became of a message in our queue, and who wants to know.

A message may ask for two receipts about its end: a commitment receipt to its administration queue (3.1.7.3.1), and, if it is
a stream message with ``<DeadLetter/>``, a final stream receipt to its sender's order queue (3.1.7.3.3). What is needed to
write them is kept beside the row as :class:`Undecided`, in the row's own transaction. When the row leaves the queue there is
one :class:`Reason`, and :func:`receipts_for` says what follows from the two. Nothing else does.

Rows are decided in runs: a mark over a million rows is one decision, also where some of them were received before it. A row
keeps its first decision, so a run need not leave out what an earlier one holds.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal, NamedTuple

from srmp_spark.message import (
    CLASS_ACK_RECEIVE,
    CLASS_NACK_DELETED,
    CLASS_NACK_Q_DELETED,
    CLASS_NACK_Q_PURGED,
    CLASS_NACK_RECEIVE_REJECTED,
    CLASS_NACK_RECEIVE_TIMEOUT,
    Arrival,
    Message,
    StreamId,
)
from srmp_spark.names import OWN_QUEUES
from srmp_spark.srmp.message_types import MessageType, message_type
from srmp_spark.srmp.stream_name import StreamName, name_of_queue

Decision = Literal["positive", "negative"]
DecisionKind = Literal["commitment", "final_stream"]


class Reason(Enum):
    """*iReason* of 3.1.7.3, with the message class of its receipts ([MS-MQDMPR] 3.1.1.12, [MS-MQMQ] 2.2.18.1.6).

    Any other reason sends nothing: "the server MUST not send" a receipt for it.
    """

    RECEIVED = CLASS_ACK_RECEIVE
    """AckReceive: the mark of the default consumer passed it."""
    PURGED = CLASS_NACK_DELETED
    """NackPurged: an administrator took away this message (``give-up``)."""
    QUEUE_DELETED = CLASS_NACK_Q_DELETED
    QUEUE_PURGED = CLASS_NACK_Q_PURGED
    EXPIRED = CLASS_NACK_RECEIVE_TIMEOUT
    """NackReceiveTimeout: it was too old to be received."""
    REJECTED = CLASS_NACK_RECEIVE_REJECTED
    """NackReceiveRejected: the application read it and does not want it."""

    @property
    def decision(self) -> Decision:
        """``<decision>``."""
        return "positive" if self is Reason.RECEIVED else "negative"


class Undecided(NamedTuple):
    """A row that asks to be told of its end: everything that its receipts will need."""

    queue: str
    sequence: int
    lineage: str
    uniquifier: int
    action: str
    """``<action>`` of the message, whose label the commitment receipt repeats."""
    peer: str
    """Host of the address that the message came from: the allow-list compares it with the host of the receipt's URL."""
    sender_name: str | None
    """The sender's authenticated name, for the same purpose."""
    commitment_to: str | None
    """``<sendTo>`` of ``<commitmentReceiptRequest>``; ``None``: no commitment receipt."""
    positive: bool
    negative: bool
    final_to: str | None
    """``<sendReceiptsTo>`` of the ``<start>`` of the message's stream; ``None``: no final stream receipt."""
    stream_id: StreamId | None
    position: int
    """``<current>``; 0 outside a stream."""
    stream_name: StreamName | None = None
    """What the stream is counted by: the queue that ``<to>`` named, which a redirection makes another one than ``queue``."""


class DecisionReceipt(NamedTuple):
    """A receipt that is owed because a row was decided; its identifier is the same each time it is sent."""

    kind: DecisionKind
    url: str
    queue: str
    lineage: str
    uniquifier: int
    """With ``lineage``: ``<id>`` of the message that it speaks of."""
    action: str
    peer: str
    sender_name: str | None
    reason: Reason
    decided_at: int
    """Microseconds since 1970, UTC."""
    stream_id: StreamId | None
    position: int
    stream_name: StreamName | None = None
    """As of :class:`Undecided`."""

    @property
    def counted_by(self) -> StreamName:
        """What its stream is counted by. Before it was noted that was taken for the queue, as it is without redirections."""
        return self.stream_name or name_of_queue(self.queue)

    @property
    def lane(self) -> tuple[str, str, str, str]:
        """Receipts of one lane succeed or fail together: same URL, same sender, and same stream if it is about one.

        A sender is an address and, if it authenticated itself, a name: behind a proxy many have one address, and the URL that
        is that of one of them is not that of another.
        """
        return (
            self.url,
            self.peer,
            self.sender_name or "",
            "" if self.stream_id is None else self.stream_id.guid,
        )


def undecided_of(
    message: Message,
    queue: str,
    sequence: int,
    arrival: Arrival,
    send_receipts_to: str | None = None,
    stream_name: StreamName | None = None,
) -> Undecided | None:
    """What a message asks to be told of its end; ``None`` for most, which then cost nothing.

    ``send_receipts_to`` is Stream.SendReceiptsTo at this moment: the stream may be another one when the message is decided.
    ``stream_name`` says which streams of the sender to look among then.
    ``sequence`` is 0 for a message that makes no row. A receipt never asks for a receipt, and nobody receives from our own
    queues: a row that is forwarded is told of where it arrives. What makes no row arrives nowhere, so it is told of here.
    """
    wants_commitment = message.commitment_receipt_to is not None and (
        message.commitment_positive or message.commitment_negative
    )
    wants_final = message.dead_letter and message.stream is not None and bool(send_receipts_to)
    if not (wants_commitment or wants_final) or (sequence and queue in OWN_QUEUES):
        return None
    if message_type(message) is not MessageType.USER:
        return None
    return Undecided(
        queue,
        sequence,
        message.lineage,
        message.uniquifier,
        message.action,
        arrival.peer.rpartition(":")[0].strip("[]"),
        arrival.sender_name,
        message.commitment_receipt_to if wants_commitment else None,
        wants_commitment and message.commitment_positive,
        wants_commitment and message.commitment_negative,
        send_receipts_to if wants_final else None,
        message.stream.id if wants_final and message.stream is not None else None,
        message.stream.current if wants_final and message.stream is not None else 0,
        stream_name if wants_final else None,
    )


def receipts_for(row: Undecided, reason: Reason, decided_at: int) -> tuple[DecisionReceipt, ...]:
    """The receipts that follow: at most one of each kind, and never two that contradict each other."""
    receipts = []
    common = row.lineage, row.uniquifier, row.action, row.peer, row.sender_name, reason, decided_at
    wanted = row.positive if reason.decision == "positive" else row.negative
    if row.commitment_to is not None and wanted:
        receipts.append(
            DecisionReceipt("commitment", row.commitment_to, row.queue, *common, None, 0)
        )
    if row.final_to is not None:
        receipts.append(
            DecisionReceipt(
                "final_stream",
                row.final_to,
                row.queue,
                *common,
                row.stream_id,
                row.position,
                row.stream_name,
            )
        )
    return tuple(receipts)
