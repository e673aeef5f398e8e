"""OutgoingTransferInfo ([MC-MQSRM] 3.1.7.2.3, 3.1.5.1.8.2, 3.1.5.1.9.2): what the document keeps of a stream, for ``status``.

The sending engine counts in serials and keeps little; the attributes follow from that, under the names of the specification.
The two that nothing else needs, EodLastAckTime and EodLastAckCount, count since the process began: a restart starts them anew.
"""

from __future__ import annotations

from typing import NamedTuple

from srmp_spark.srmp.outgoing_stream import OutgoingStream


class SequenceInfo(NamedTuple):
    """SEQUENCE_INFO ([MS-MQMQ] 2.2.5)."""

    seq_id: int
    """Stream.Id.Ordinal."""
    seq_no: int
    prev_no: int


class OutgoingTransferInfo(NamedTuple):
    """Of one live stream. Times: microseconds since 1970, UTC; intervals: seconds; monotonic times: seconds."""

    eod_last_ack: SequenceInfo
    """Up to where stream receipts came; ``prev_no`` stays 0, as it is set when a stream begins (3.1.7.2.3)."""
    eod_last_ack_time: int | None
    eod_last_ack_count: int
    """Stream receipts for this stream, repeats too."""
    eod_no_ack_count: int
    """Messages that left and wait for a stream receipt."""
    eod_no_read_count: int
    """Messages that wait for a final stream receipt."""
    eod_first_non_ack: SequenceInfo | None
    """``None`` when nothing waits for a stream receipt."""
    eod_last_non_ack: SequenceInfo | None
    eod_next_seq: SequenceInfo
    eod_resend_interval: float
    eod_resend_time: float | None
    """When the Stream Receipt Wait Timer ends, on the monotonic clock; ``None``: it does not run."""


def transfer_info(stream: OutgoingStream) -> OutgoingTransferInfo | None:
    """As it stands now; ``None`` before the first stream began."""
    if stream.ordinal == 0:
        return None
    acknowledged, sent = stream.acknowledged_to - stream.base, stream.last_live - stream.base
    waits = sent > acknowledged
    highest = max(stream.sent_to - stream.base, 0)
    return OutgoingTransferInfo(
        eod_last_ack=SequenceInfo(stream.ordinal, max(acknowledged, 0), 0),
        eod_last_ack_time=stream.last_receipt_at or stream.last_acknowledged_at or None,
        eod_last_ack_count=stream.receipts,
        eod_no_ack_count=stream.unacknowledged,
        eod_no_read_count=stream.unread,
        eod_first_non_ack=SequenceInfo(stream.ordinal, acknowledged + 1, acknowledged)
        if waits
        else None,
        eod_last_non_ack=(
            SequenceInfo(stream.ordinal, sent, max(stream.before_last - stream.base, acknowledged))
            if waits
            else None
        ),
        eod_next_seq=SequenceInfo(stream.ordinal, highest + 1, highest),
        eod_resend_interval=stream.resend_interval,
        eod_resend_time=stream.receipt_wait_at,
    )
