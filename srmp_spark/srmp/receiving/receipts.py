"""Builds receipts as Windows writes them.

See [MC-MQSRM] 3.1.5.1.6.2, 3.1.6.3, 3.1.7.3, and the samples of chapters 4.3 and 4.4. A receipt is
a message like any other: it has the next MessageIdOrdinal of this queue manager, is sent to the URL
that the peer gave, and names a queue of this queue manager in ``<rev>``. The samples settle the
points that the text leaves open: classes and priorities; a correlation of zeros for stream receipts
and of the original's identifier for the others; four days to reach the queue; a label that repeats
the original's (appendix A <6>: an ``<action>`` without ``MSMQ:`` counts as an empty label).
"""

from __future__ import annotations

from srmp_spark.message import CLASS_ACK_REACH_QUEUE, CLASS_ORDER_ACK, Message, Receipt, StreamId
from srmp_spark.srmp.codec.encoder import NO_CORRELATION
from srmp_spark.srmp.codec.message_types import ORDERING_ACK_ACTION
from srmp_spark.srmp.codec.values import NEVER_AT
from srmp_spark.srmp.receiving.decisions import DecisionReceipt
from srmp_spark.srmp.receiving.effects import OwedReceipt

RECEIPT_TIME_TO_REACH_QUEUE_US = 4 * 86_400_000_000
"""``<TTrq>`` of every receipt in the samples, in microseconds after ``<sentAt>``: four days, MSMQ's
LONG_LIVED.
"""
DELIVERY_RECEIPT_PRIORITY = 3
COMMITMENT_RECEIPT_PRIORITY = 3
STREAM_RECEIPT_PRIORITY = 0
"""Priority of stream receipts, and of final stream receipts, which have no sample: both go to the
same queue under the same label.
"""


def correlation_of(lineage: str, uniquifier: int) -> bytes:
    """Return an identifier as the 20 bytes of an OBJECTID ([MS-MQMQ] 2.2.8).

    GUID and number are written as they are in memory, low byte first. The number has 32 bits there;
    a longer number keeps its low 32 bits.
    """
    guid = bytes.fromhex(lineage.replace("-", ""))
    in_memory = guid[3::-1] + guid[5:3:-1] + guid[7:5:-1] + guid[8:]
    return in_memory + (uniquifier & 0xFFFF_FFFF).to_bytes(4, "little")


def stream_receipt(
    *,
    identity: str,
    uniquifier: int,
    to: str,
    via: str,
    stream_id: StreamId,
    last_ordinal: int,
    sent_at: int,
) -> Message:
    """Return the stream receipt of [MC-MQSRM] 3.1.6.3 (samples in 4.4).

    ``identity`` and ``uniquifier`` are the GUID and the next MessageIdOrdinal of this queue
    manager. ``to`` is Stream.SendReceiptsTo as the peer gave it, ``via`` is the URL of this queue
    manager's queue, and ``sent_at`` is in microseconds since 1970.
    """
    return Message(
        destination=to,
        action=ORDERING_ACK_ACTION,
        lineage=identity,
        uniquifier=uniquifier,
        has_msmq=True,
        message_class=CLASS_ORDER_ACK,
        priority=STREAM_RECEIPT_PRIORITY,
        receipt=Receipt("stream", stream_id=stream_id, last_ordinal=last_ordinal),
        sent_at=sent_at,
        expires_at=NEVER_AT,
        time_to_reach_queue=sent_at + RECEIPT_TIME_TO_REACH_QUEUE_US,
        correlation=NO_CORRELATION,
        hash_algorithm=0,
        response_queue=via,
        source_qm=identity,
    )


def delivery_receipt(
    owed: OwedReceipt, *, identity: str, uniquifier: int, via: str, sent_at: int
) -> Message:
    """Return the delivery receipt of [MC-MQSRM] 3.1.5.1.6.2 (sample in 4.3).

    ``owed`` is the receipt as it was stored with its message. The other arguments are those of
    :func:`stream_receipt`.
    """
    return Message(
        destination=owed.url,
        action=_label_of(owed.action),
        lineage=identity,
        uniquifier=uniquifier,
        has_msmq=True,
        message_class=CLASS_ACK_REACH_QUEUE,
        priority=DELIVERY_RECEIPT_PRIORITY,
        receipt=Receipt(
            "delivery", lineage=owed.lineage, uniquifier=owed.uniquifier, at=owed.arrived_at
        ),
        sent_at=sent_at,
        expires_at=NEVER_AT,
        time_to_reach_queue=sent_at + RECEIPT_TIME_TO_REACH_QUEUE_US,
        correlation=correlation_of(owed.lineage, owed.uniquifier),
        hash_algorithm=0,
        response_queue=via,
        source_qm=identity,
    )


def decision_receipt(owed: DecisionReceipt, *, identity: str, uniquifier: int, via: str) -> Message:
    """Return the commitment receipt or the final stream receipt for a decided message.

    See [MC-MQSRM] 3.1.7.3.1 (sample in 4.3) and 3.1.7.3.3. ``identity`` and ``via`` are those of
    :func:`stream_receipt`. ``uniquifier`` is the permanent number of this receipt. ``<sentAt>`` is
    ``<decidedAt>``, as in the sample. Each sending therefore has the same bytes, and a peer whose
    answer was lost recognizes the repeat by its identifier and drops it.
    """
    final = owed.kind == "final_stream"
    return Message(
        destination=owed.url,
        action=ORDERING_ACK_ACTION if final else _label_of(owed.action),
        lineage=identity,
        uniquifier=uniquifier,
        has_msmq=True,
        message_class=owed.reason.value,
        priority=STREAM_RECEIPT_PRIORITY if final else COMMITMENT_RECEIPT_PRIORITY,
        receipt=Receipt(
            owed.kind,
            lineage=owed.lineage,
            uniquifier=owed.uniquifier,
            at=owed.decided_at,
            decision=owed.reason.decision,
            stream_id=owed.stream_id,
            last_ordinal=owed.position if final else None,
        ),
        sent_at=owed.decided_at,
        expires_at=NEVER_AT,
        time_to_reach_queue=owed.decided_at + RECEIPT_TIME_TO_REACH_QUEUE_US,
        correlation=correlation_of(owed.lineage, owed.uniquifier),
        hash_algorithm=0,
        response_queue=via,
        source_qm=identity,
    )


def _label_of(action: str) -> str:
    """Return the ``<action>`` that repeats the label of the original.

    An ``<action>`` without ``MSMQ:`` has no label (appendix A <6>).
    """
    return action if action.startswith("MSMQ:") else "MSMQ:"
