"""The results of an incoming stream: values, never actions. ``effects`` has those of the engine."""

from __future__ import annotations

from typing import Literal, NamedTuple

from srmp_spark.message import StreamId
from srmp_spark.srmp.receiving.stream_name import StreamName

RepeatKind = Literal["identifier", "position", "gap", "stale", "expired", "invalid-signature"]
"""Why a message that is answered 200 becomes no row.

``identifier``: its identifier is known ([MC-MQSRM] 3.1.5.1.11). ``position``: its position in the
stream is already accepted. ``gap``: an earlier position is missing, or its stream is unknown
(3.1.5.1.6.3). ``stale``: its stream has been replaced. ``expired``: the message arrived too late
and is not kept (2.2.6.17). ``invalid-signature``: its signature is invalid and it is not kept
(3.1.5.1.6.1).
"""
DiscardKind = Literal["expired", "invalid-signature"]
"""Why a new message of a stream becomes no row although its position counts."""


class SendStreamReceipt(NamedTuple):
    """A request to acknowledge everything up to ``last_ordinal`` ([MC-MQSRM] 3.1.6.3).

    The caller reports the end with :meth:`.Receiver.receipt_delivered` or
    :meth:`.Receiver.receipt_failed`.
    """

    queue: StreamName
    stream_id: StreamId
    url: str
    """Stream.SendReceiptsTo as the peer gave it."""
    last_ordinal: int
    peer: str
    """Address that sent the last message of the stream.

    The allow-list compares it with the host of ``url``.
    """
    sender_name: str | None


class StreamReceiptGivenUp(NamedTuple):
    """A stream receipt that the peer answered with 400, and that is therefore no longer sent.

    The receipt is not sent again before the next message of the stream. The caller should log a
    warning.
    """

    queue: StreamName
    stream_id: StreamId
    url: str
    last_ordinal: int


class IncomingStreamRow(NamedTuple):
    """One incoming stream as a database row of the table ``streams``.

    Its key is (``queue``, ``guid``).

    Times are microseconds since 1970, UTC.
    """

    queue: StreamName
    guid: str
    stream_ordinal: int
    sequence_number: int
    last_acknowledged: int
    send_receipts_to: str
    peer: str
    source_qm: str | None
    """SourceQmGuid of the last message.

    Example 4.4 of the specification changes it within one stream.
    """
    reject_count: int
    started_at: int
    last_access_at: int
    sender_name: str | None


class AcceptedGap(NamedTuple):
    """The gap after position ``after`` of a stream whose loss an operator has accepted.

    The decision covers no other gap. The first fields identify one life of a stream: a stream that
    was dropped and began again has other values.
    """

    queue: StreamName
    guid: str
    stream_ordinal: int
    started_at: int
    """Start time of the stream, in microseconds since 1970, UTC."""
    after: int
    """IncomingSequenceNumber when the gap was accepted.

    The gap is over as soon as this number moves.
    """
    to: int | None
    """Position of the message that is accepted next, whatever its ``<previous>`` says.

    ``None`` means that any next message is accepted.
    """
