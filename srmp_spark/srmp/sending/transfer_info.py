"""OutgoingTransferInfo: the attributes of an outgoing stream in the specification, for ``status``.

See [MC-MQSRM] 3.1.7.2.3, 3.1.5.1.8.2 and 3.1.5.1.9.2. The sending engine counts in serials and
keeps few numbers. This module computes the attributes from them, under the names of the
specification. EodLastAckTime and EodLastAckCount are needed for nothing else. These two attributes
count from the start of the process, and a restart resets them.
"""

from __future__ import annotations

from typing import NamedTuple

from srmp_spark.srmp.sending.outgoing_stream import OutgoingStream


class SequenceInfo(NamedTuple):
    """A stream and two positions in it: the SEQUENCE_INFO structure ([MS-MQMQ] 2.2.5)."""

    seq_id: int
    """Stream.Id.Ordinal, the ordinal of the stream."""
    seq_no: int
    prev_no: int


class OutgoingTransferInfo(NamedTuple):
    """The attributes of one live stream.

    Times are microseconds since 1970, UTC. Intervals and monotonic times are seconds.
    """

    eod_last_ack: SequenceInfo
    """Last position that a stream receipt acknowledged.

    ``prev_no`` stays 0, as it is set when a stream begins (3.1.7.2.3).
    """
    eod_last_ack_time: int | None
    eod_last_ack_count: int
    """Number of stream receipts for this stream, including repeats."""
    eod_no_ack_count: int
    """Number of messages that were sent and wait for a stream receipt."""
    eod_no_read_count: int
    """Number of messages that wait for a final stream receipt."""
    eod_first_non_ack: SequenceInfo | None
    """First message that waits for a stream receipt; ``None`` if no message waits."""
    eod_last_non_ack: SequenceInfo | None
    eod_next_seq: SequenceInfo
    eod_resend_interval: float
    eod_resend_time: float | None
    """Time at which the Stream Receipt Wait Timer ends, on the monotonic clock; ``None`` if it does
    not run.
    """


def transfer_info(stream: OutgoingStream) -> OutgoingTransferInfo | None:
    """Return the present attributes of a stream; ``None`` if it never began."""
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
