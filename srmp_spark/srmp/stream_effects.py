"""What comes out of an incoming stream: values, never actions. What the engine makes of them is in ``effects``."""

from __future__ import annotations

from typing import Literal, NamedTuple

from srmp_spark.message import StreamId
from srmp_spark.srmp.stream_name import StreamName

RepeatKind = Literal["identifier", "position", "gap", "stale", "expired", "invalid-signature"]
"""Why a message that is answered 200 makes no row. Its identifier is known ([MC-MQSRM] 3.1.5.1.11); its position in the
stream is taken; a position before it is still empty, or its stream is unknown (3.1.5.1.6.3); its stream has been replaced; it
came too late and is not to be kept (2.2.6.17), or its signature does not fit and it is not to be kept (3.1.5.1.6.1)."""
DiscardKind = Literal["expired", "invalid-signature"]
"""Why a message of a stream that is new makes no row all the same: its position counts."""


class SendStreamReceipt(NamedTuple):
    """Acknowledge everything up to ``last_ordinal`` ([MC-MQSRM] 3.1.6.3), then report delivery or failure to the receiver."""

    queue: StreamName
    stream_id: StreamId
    url: str
    """Stream.SendReceiptsTo, as the peer gave it."""
    last_ordinal: int
    peer: str
    """The address that the stream's last message came from: the allow-list compares it with the host of ``url``."""
    sender_name: str | None


class StreamReceiptGivenUp(NamedTuple):
    """The peer answered 400 to a stream receipt: it is not sent again before the next message of the stream. Warn."""

    queue: StreamName
    stream_id: StreamId
    url: str
    last_ordinal: int


class IncomingStreamRow(NamedTuple):
    """A row of the table ``streams``: its key is (``queue``, ``guid``). Times are microseconds since 1970, UTC."""

    queue: StreamName
    guid: str
    stream_ordinal: int
    sequence_number: int
    last_acknowledged: int
    send_receipts_to: str
    peer: str
    source_qm: str | None
    """SourceQmGuid of the last message; the document's own example 4.4 changes it within one stream."""
    reject_count: int
    started_at: int
    last_access_at: int
    sender_name: str | None


class AcceptedGap(NamedTuple):
    """An operator gave up what is missing from a stream: the one gap behind position ``after``, and no other.

    Its first three fields say which life of a stream is meant: one that was dropped and begun anew has another.
    """

    queue: StreamName
    guid: str
    stream_ordinal: int
    started_at: int
    """As of the stream."""
    after: int
    """IncomingSequenceNumber when it was given up: the gap is over as soon as that has moved."""
    to: int | None
    """The message at this position is taken, whatever its ``<previous>``; ``None``: whatever comes next."""
