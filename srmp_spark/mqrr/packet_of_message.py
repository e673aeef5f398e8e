"""Turns a message of a local queue into the packet that a remote reader gets.

This is the inverse of :mod:`.message_of_packet`. A message that arrived over HTTP is an SRMP
message ([MS-MQRR] 2.2.5.1.2): the packet holds its envelope as text, its POST as received, and the
place of the body in the POST. Any other message is a binary message with its body in the
MessagePropertiesHeader.

A packet has less room than an envelope, so values are cut to the width of their fields.
Identifiers, classes, body types and other numbers keep their low bits. A label keeps 249 WCHARs. A
time that does not fit becomes the nearest time that fits. An envelope can name two administration
queues, one for delivery receipts and one for commitment receipts; the packet keeps the queue for
commitment receipts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from srmp_spark.errors import LocalProtocolError, RemoteProtocolError
from srmp_spark.message import Message
from srmp_spark.mqrr.packets.base_header import INFINITE, BaseHeader
from srmp_spark.mqrr.packets.debug_header import DebugHeader
from srmp_spark.mqrr.packets.host_address import NO_ADDRESS, HostAddress
from srmp_spark.mqrr.packets.limits import (
    LABEL_WCHARS_MAX,
    NAMES_REMEMBERED,
    U16_MAX,
    U32_MAX,
    U64_MAX,
)
from srmp_spark.mqrr.packets.message_packet import MessagePacket
from srmp_spark.mqrr.packets.message_properties_header import (
    CORRELATION_SIZE,
    Acknowledgements,
    MessagePropertiesHeader,
)
from srmp_spark.mqrr.packets.queue_names import (
    ADMIN_TYPES,
    DESTINATION_TYPES,
    NO_QUEUE,
    RESPONSE_TYPES,
    QueueName,
    QueueNameType,
    direct_queue,
)
from srmp_spark.mqrr.packets.srmp_headers import CompoundMessageHeader, SRMPEnvelopeHeader
from srmp_spark.mqrr.packets.trailers import SubqueueHeader, Trailers
from srmp_spark.mqrr.packets.transaction_header import TransactionHeader
from srmp_spark.mqrr.packets.user_header import DeliveryMode, UserHeader, address_overlay
from srmp_spark.names import parse_guid

_MICROSECONDS = 1_000_000
_MOMENT_MAX = U32_MAX - 1
"""Largest time in a packet, in seconds since 1970, because 0xFFFFFFFF means "never"."""
_NEVER_OVER_HTTP = (2**31 - 1) * _MICROSECONDS
"""The time 20380119T031407, which an envelope uses for "never" ([MC-MQSRM] 2.2.4)."""


class ArrivedPost(NamedTuple):
    """The POST in which a message arrived."""

    envelope: str
    data: bytes
    """Request line, fields and content of the POST."""
    body_offset: int
    body_size: int
    """Size of the message's body in ``data``, at offset ``body_offset``.

    For an empty body any offset is allowed.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketOrigin:
    """Facts about a message that its packet needs and that the message itself does not hold."""

    post: ArrivedPost | None = None
    """POST of the message; ``None`` if the message did not arrive over HTTP."""
    received_from: HostAddress = NO_ADDRESS
    # The default is a frozen value.
    subqueue: SubqueueHeader = SubqueueHeader()  # noqa: RUF009
    """Present subqueue of the message, and how often the message was moved and its transaction
    aborted.
    """


def packet_of(message: Message, origin: PacketOrigin) -> MessagePacket:
    """Return the packet of a message.

    Raises :class:`LocalProtocolError` if the POST does not hold the message's body at the given
    place.
    """
    post, transactional = origin.post, message.stream is not None
    if (
        post is not None
        and post.data[post.body_offset : post.body_offset + post.body_size] != message.body
    ):
        raise LocalProtocolError(
            f"the body of {message.id} does not lie where its POST is said to hold it"
        )
    admin = message.commitment_receipt_to or message.delivery_receipt_to
    return MessagePacket(
        base=BaseHeader(
            priority=0 if transactional else min(message.priority, 7),
            tracing=message.trace,
            time_to_reach_queue=_moment(message.time_to_reach_queue),
        ),
        user=UserHeader(
            source_queue_manager=message.lineage,
            queue_manager_address=address_overlay(origin.received_from),
            time_to_be_received=_time_to_be_received(message),
            sent_time=_seconds(message.sent_at or 0),
            message_id=message.uniquifier & U32_MAX,
            delivery_mode=DeliveryMode.RECOVERABLE
            if transactional or message.durable
            else DeliveryMode.EXPRESS,
            negative_journaling=message.dead_letter,
            positive_journaling=message.journal,
            destination_queue=_queue(message.destination.removeprefix("MSMQ:"), DESTINATION_TYPES),
            admin_queue=_queue(admin, ADMIN_TYPES),
            response_queue=_queue(message.response_queue, RESPONSE_TYPES),
            connector_type=message.connector_type,
        ),
        transaction=_transaction(message),
        properties=MessagePropertiesHeader(
            acknowledgements=_acknowledgements(message, admin),
            message_class=message.message_class & U16_MAX,
            correlation_id=(message.correlation or b"")[:CORRELATION_SIZE].ljust(
                CORRELATION_SIZE, b"\0"
            ),
            body_type=message.body_type & U32_MAX,
            application_tag=message.app_specific & U32_MAX,
            hash_algorithm=(message.hash_algorithm or 0) & U32_MAX,
            label=_label(message.label or ""),
            extension_data=message.extension or b"",
            message_body=message.body if post is None else b"",
        ),
        debug=DebugHeader() if message.trace else None,
        envelope=None if post is None else SRMPEnvelopeHeader(data=post.envelope),
        compound=None
        if post is None
        else CompoundMessageHeader(
            data=post.data, msg_body_offset=post.body_offset, msg_body_size=post.body_size
        ),
        trailers=Trailers(subqueue=origin.subqueue, received_from=origin.received_from),
    )


def _seconds(microseconds: int) -> int:
    return min(max(microseconds // _MICROSECONDS, 0), _MOMENT_MAX)


def _moment(microseconds: int | None) -> int:
    return (
        INFINITE
        if microseconds is None or microseconds == _NEVER_OVER_HTTP
        else _seconds(microseconds)
    )


def _time_to_be_received(message: Message) -> int:
    """Return the time to be received, in seconds after SentTime.

    A message without ``sent_at`` has SentTime 0, so its seconds count from 1970.
    """
    over = message.expires_at
    return (
        INFINITE
        if over is None or over == _NEVER_OVER_HTTP
        else _seconds(over - (message.sent_at or 0))
    )


def _label(text: str) -> str:
    """Return as many whole characters of a label as fit into a packet."""
    data = text.partition("\0")[0].encode("utf-16-le", "surrogatepass")[
        : 2 * (LABEL_WCHARS_MAX - 1)
    ]
    return data.decode("utf-16-le", "ignore")


@lru_cache(NAMES_REMEMBERED)
def _queue(name: str | None, allowed: frozenset[QueueNameType]) -> QueueName:
    """Return a queue name of an envelope as a queue name of a packet.

    A name that no packet can hold (multicast, a distribution list) becomes :data:`NO_QUEUE`.
    """
    if not name:
        return NO_QUEUE
    kind, equals, rest = name.partition("=")
    kind = kind.upper() if equals else ""
    try:
        if kind == "PUBLIC":
            return QueueName(type=QueueNameType.PUBLIC, guid=parse_guid(rest))
        if kind == "PRIVATE" and QueueNameType.PRIVATE_ELSEWHERE in allowed:
            guid, _, number = rest.partition("\\")
            return QueueName(
                type=QueueNameType.PRIVATE_ELSEWHERE,
                guid=parse_guid(guid),
                private_id=int(number, 16) & U32_MAX,
            )
    except (RemoteProtocolError, ValueError):
        return NO_QUEUE
    if kind in ("PUBLIC", "PRIVATE", "MULTICAST", "DL", "MACHINE", "CONNECTOR"):
        return NO_QUEUE
    direct = rest if kind == "DIRECT" else name
    return direct_queue(direct) if "\0" not in direct and len(direct) < U16_MAX // 4 else NO_QUEUE


def _acknowledgements(message: Message, admin: str | None) -> int:
    asked = Acknowledgements.NONE
    if message.delivery_receipt_to is not None and message.delivery_receipt_to == admin:
        asked |= Acknowledgements.POSITIVE_ARRIVAL
    if message.commitment_receipt_to is not None:
        asked |= (
            Acknowledgements.POSITIVE_RECEIVE
            if message.commitment_positive
            else Acknowledgements.NONE
        )
        asked |= (
            Acknowledgements.NEGATIVE_RECEIVE
            if message.commitment_negative
            else Acknowledgements.NONE
        )
    return asked


def _transaction(message: Message) -> TransactionHeader | None:
    stream = message.stream
    if stream is None:
        return None
    return TransactionHeader(
        first_in_transaction=message.first_in_transaction,
        last_in_transaction=message.last_in_transaction,
        sequence_id=stream.id.ordinal & U64_MAX,
        sequence_number=stream.current & U32_MAX,
        previous_sequence_number=stream.previous & U32_MAX,
        connector_queue_manager=message.connector_qm,
    )
