"""Turns a message packet into the message type that all transports share.

The columns of a row come from this type ([MS-MQDMPR] 3.1.7.1.31). Properties that MSMQ names
differently over HTTP and in a packet get the same fields:

========================  ========================================================================
acknowledgements          PA requests a delivery receipt, PR and NR request a commitment receipt.
                          All receipts are sent to the administration queue. NA, which HTTP does
                          not have, sets no field
TransactionHeader         the position in a stream: TxSequenceID is the ordinal of the stream, the
                          source queue manager is its GUID
times                     microseconds since 1970. TimeToBeReceived counts from SentTime,
                          TimeToReachQueue is a point in time already
acknowledgement messages  class and correlation describe them; ``receipt`` holds only elements of
                          an envelope
========================  ========================================================================

The packet of a message that arrived over HTTP also holds the envelope and the POST, from which the
SRMP codec reads more. This module reads only the headers of the packet.
"""

from __future__ import annotations

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.message import Message, SignatureStatus, StreamId, StreamPosition
from srmp_spark.mqrr.packets.base_header import INFINITE
from srmp_spark.mqrr.packets.message_packet import MessagePacket
from srmp_spark.mqrr.packets.message_properties_header import CORRELATION_SIZE, Acknowledgements
from srmp_spark.mqrr.packets.multi_queue_format_header import FormatNameElement
from srmp_spark.mqrr.packets.security_header import ProviderInfo, SecurityHeader
from srmp_spark.mqrr.packets.transaction_header import TransactionHeader
from srmp_spark.mqrr.packets.user_header import DeliveryMode

_MICROSECONDS = 1_000_000
# These are plain numbers because & of two flags takes a microsecond, and every message needs four.
_ARRIVAL, _RECEIVE, _NOT_RECEIVED = (
    int(each)
    for each in (
        Acknowledgements.POSITIVE_ARRIVAL,
        Acknowledgements.POSITIVE_RECEIVE,
        Acknowledgements.NEGATIVE_RECEIVE,
    )
)
_NO_CORRELATION = bytes(CORRELATION_SIZE)


def message_of(packet: MessagePacket) -> Message:
    """Return the message of a complete packet.

    Raises :class:`RemoteProtocolError` if a part of the packet is missing. Such a packet is no
    message and must be read again.
    """
    if packet.missing:
        raise RemoteProtocolError(
            f"{packet.missing} bytes of {packet.id} were not sent; read it again with all "
            "of its body",
            section="[MS-MQRR] 2.2.6",
        )
    user, properties, transaction = packet.user, packet.properties, packet.transaction
    destination, admin, response = user.format_names()
    asked = int(properties.acknowledgements)
    lists = packet.multi_queue_format
    provider = _provider(packet.security)
    return Message(
        destination=_as_sent(destination),
        action="MSMQ:" + _well_formed(properties.label),
        lineage=user.source_queue_manager,
        uniquifier=user.message_id,
        has_msmq=True,
        message_class=properties.message_class,
        priority=packet.priority,
        durable=transaction is not None or user.delivery_mode == DeliveryMode.RECOVERABLE,
        stream=None if transaction is None else _stream(user.source_queue_manager, transaction),
        sent_at=user.sent_time * _MICROSECONDS,
        expires_at=_moment(
            user.sent_time + user.time_to_be_received, infinite=user.time_to_be_received == INFINITE
        ),
        time_to_reach_queue=_moment(
            packet.base.time_to_reach_queue, infinite=packet.base.time_to_reach_queue == INFINITE
        ),
        body=packet.body,
        body_type=properties.body_type,
        extension=properties.extension_data or None,
        correlation=None
        if properties.correlation_id == _NO_CORRELATION
        else properties.correlation_id,
        app_specific=properties.application_tag,
        hash_algorithm=properties.hash_algorithm or None,
        response_queue=None if response is None else _well_formed(response),
        delivery_receipt_to=_receipts_to(admin) if asked & _ARRIVAL else None,
        commitment_receipt_to=_receipts_to(admin) if asked & (_RECEIVE | _NOT_RECEIVED) else None,
        commitment_positive=bool(asked & _RECEIVE),
        commitment_negative=bool(asked & _NOT_RECEIVED),
        journal=user.positive_journaling,
        dead_letter=user.negative_journaling,
        trace=packet.base.tracing,
        first_in_transaction=transaction is not None and transaction.first_in_transaction,
        last_in_transaction=transaction is not None and transaction.last_in_transaction,
        connector_type=user.connector_type,
        connector_qm=None if transaction is None else transaction.connector_queue_manager,
        provider_type=None if provider is None else provider.type,
        provider_name=None if provider is None else _well_formed(provider.name),
        source_qm=user.source_queue_manager,
        destination_list=() if lists is None else _names(lists.destination),
        admin_list=() if lists is None else _names(lists.administration),
        response_list=() if lists is None else _names(lists.response),
        signature=_signature(packet.security),
        soap_body=None if packet.soap is None else _well_formed(packet.soap.body),
    )


def _well_formed(text: str) -> str:
    """Return ``text`` with U+FFFD in place of each lone half of a surrogate pair.

    A packet may hold such halves, but no column can.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _as_sent(format_name: str | None) -> str:
    """Return a format name in the form in which ``<to>`` would hold it.

    A direct format name becomes its bare address. Any other name gets the prefix ``MSMQ:``.
    """
    if format_name is None:
        return "MSMQ:"
    name = _well_formed(format_name)
    return name.removeprefix("DIRECT=") if name.startswith("DIRECT=") else f"MSMQ:{name}"


def _receipts_to(admin: str | None) -> str | None:
    return None if admin is None else _well_formed(admin)


def _moment(seconds: int, *, infinite: bool) -> int | None:
    return None if infinite else seconds * _MICROSECONDS


def _stream(guid: str, transaction: TransactionHeader) -> StreamPosition:
    number = transaction.sequence_number
    return StreamPosition(
        StreamId(guid, transaction.sequence_id),
        number,
        transaction.previous_sequence_number,
        number == 1,
    )


def _names(elements: tuple[FormatNameElement, ...]) -> tuple[str, ...]:
    return tuple(_well_formed(element.format_name) for element in elements)


def _provider(security: SecurityHeader | None) -> ProviderInfo | None:
    """Return the provider of a signature, or ``None`` if there is none or it cannot be read.

    A provider that cannot be read must not cost the message.
    """
    try:
        return None if security is None else security.provider()
    except RemoteProtocolError:
        return None


def _signature(security: SecurityHeader | None) -> SignatureStatus:
    """Return ``unverified`` for a message with a signature, and ``none`` for any other.

    The signature is never verified. The sender's queue manager reports the result of its own check
    (bit AU), but this report may have crossed an unprotected line.
    """
    return "unverified" if security is not None and security.signature else "none"
