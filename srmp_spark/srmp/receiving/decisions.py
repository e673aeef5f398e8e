"""Message Position Deleted ([MC-MQSRM] 3.1.7.3): how a message left its queue, and its receipts.

A message may request two receipts about its end. A commitment receipt is sent to its administration
queue (3.1.7.3.1). A final stream receipt is sent to the order queue of its sender (3.1.7.3.3); only
a stream message with ``<DeadLetter/>`` requests a final stream receipt. The data for these receipts
is stored next to the row as :class:`Undecided`, in the transaction of the row. When the row leaves
the queue there is one :class:`Reason`, and :func:`receipts_for` returns the receipts that follow
from both. No other code decides about these receipts.

Rows are decided in runs: a mark over a million rows is one decision, even if some of these rows
were received before. A row keeps its first decision, so a run may include rows of an earlier run.
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
from srmp_spark.srmp.codec.message_types import MessageType, message_type
from srmp_spark.srmp.receiving.stream_name import StreamName, name_of_queue

Decision = Literal["positive", "negative"]
DecisionKind = Literal["commitment", "final_stream"]


class Reason(Enum):
    """Why a message left a queue of this queue manager: *iReason* of [MC-MQSRM] 3.1.7.3.

    The value is the message class of the receipts ([MS-MQDMPR] 3.1.1.12, [MS-MQMQ] 2.2.18.1.6). For
    any other reason no receipt is sent: "the server MUST not send" one.
    """

    RECEIVED = CLASS_ACK_RECEIVE
    """AckReceive: the mark of the default consumer passed the message."""
    PURGED = CLASS_NACK_DELETED
    """NackPurged: an administrator removed this message (``give-up``)."""
    QUEUE_DELETED = CLASS_NACK_Q_DELETED
    QUEUE_PURGED = CLASS_NACK_Q_PURGED
    EXPIRED = CLASS_NACK_RECEIVE_TIMEOUT
    """NackReceiveTimeout: the message expired before it was received."""
    REJECTED = CLASS_NACK_RECEIVE_REJECTED
    """NackReceiveRejected: the application read the message and rejected it."""

    @property
    def decision(self) -> Decision:
        """Return the value of ``<decision>``."""
        return "positive" if self is Reason.RECEIVED else "negative"


class Undecided(NamedTuple):
    """The receipts that the sender of one row requests about its end, with all data for them.

    ``queue`` and ``sequence`` name the row; ``sequence`` is 0 for a message that becomes no row.
    ``positive`` and ``negative`` say which commitment receipts are requested. ``lineage`` and
    ``uniquifier`` are the identifier of the message.
    """

    queue: str
    sequence: int
    lineage: str
    uniquifier: int
    action: str
    """``<action>`` of the message. The commitment receipt repeats its label."""
    peer: str
    """Host of the address that sent the message.

    The allow-list compares this host with the host of the receipt's URL.
    """
    sender_name: str | None
    """Authenticated name of the sender, which the allow-list also compares with the host of the
    URL; ``None`` if the sender was not authenticated.
    """
    commitment_to: str | None
    """``<sendTo>`` of ``<commitmentReceiptRequest>``; ``None`` if no commitment receipt is
    requested.
    """
    positive: bool
    negative: bool
    final_to: str | None
    """``<sendReceiptsTo>`` of the ``<start>`` of the message's stream; ``None`` if no final stream
    receipt is requested.
    """
    stream_id: StreamId | None
    position: int
    """``<current>``, the position in the stream; 0 outside a stream."""
    stream_name: StreamName | None = None
    """Name under which this queue manager knows the stream (:mod:`.stream_name`): the queue that
    ``<to>`` named.

    After a redirection it differs from ``queue``.
    """


class DecisionReceipt(NamedTuple):
    """A receipt that is owed because a row was decided.

    Its identifier is the same each time it is sent.
    """

    kind: DecisionKind
    url: str
    queue: str
    lineage: str
    uniquifier: int
    """Number of the message that the receipt is about.

    ``lineage`` and this number are its ``<id>``.
    """
    action: str
    peer: str
    sender_name: str | None
    reason: Reason
    decided_at: int
    """Time of the decision, in microseconds since 1970, UTC."""
    stream_id: StreamId | None
    position: int
    stream_name: StreamName | None = None
    """Name of the stream, as in :class:`Undecided`."""

    @property
    def counted_by(self) -> StreamName:
        """Return the name of the message's stream (:mod:`.stream_name`).

        Rows of older versions have no ``stream_name``. Their stream is known by its queue, as it is
        without redirections.
        """
        return self.stream_name or name_of_queue(self.queue)

    @property
    def lane(self) -> tuple[str, str, str, str]:
        """Return the lane of this receipt: the key of receipts that succeed or fail together.

        A caller sends the receipts of one lane one after the other. Receipts of one lane have the
        same URL and the same sender, and the same stream if they are about a stream. A sender is an
        address and, if authenticated, a name. Behind a proxy many senders share one address, and a
        URL that belongs to one of them does not belong to another.
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
    """Return the receipts that a message requests about its end, or ``None`` if it requests none.

    Nothing is stored by this call. ``send_receipts_to`` is Stream.SendReceiptsTo at this moment,
    because the stream may be replaced before the message is decided. ``stream_name`` names the
    stream, to find it then. ``sequence`` is 0 for a message that does not become a row.

    The result is ``None`` for a message that is itself a receipt. The result is also ``None`` for a
    row of the order queue or of the forward queue, because no application receives from them: the
    queue manager at which a forwarded row arrives sends its receipts. A message that does not
    become a row arrives nowhere, so this queue manager sends its receipts.
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
    """Return the receipts that follow from a decision: none, one, or one of each kind.

    ``decided_at`` is the time of the decision, in microseconds since 1970. The receipts never
    contradict each other, and nothing is stored by this call.
    """
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
