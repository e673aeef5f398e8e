"""The data types that every layer shares: a message, its stream position, receipts and arrival.

``Message`` is the SRMPMessage of [MC-MQSRM] 3.1.1.1.4 as plain data. These types are NamedTuples
and not frozen dataclasses, because the journal builds one message for each POST. Building a tuple
of fifty fields takes one fifth of the time that a frozen dataclass takes. Times are microseconds
since 1970-01-01T00:00:00Z. ``None`` means that the sender did not give the value.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from srmp_spark import names

Delivery = Literal["express", "recoverable", "transactional"]
Transport = Literal["http", "https", "pgm", "wsrm", "mqrr", "api"]
ReceiptKind = Literal["delivery", "commitment", "stream", "final_stream"]
SignatureStatus = Literal["none", "valid", "invalid", "unverified"]
"""Result of checking a message's XML signature.

``valid`` covers the body and the extension, but no header.
"""

# These are the message classes of [MS-MQMQ] 2.2.18.1.6. An unknown class is kept as its number.
CLASS_NORMAL = 0x0000
CLASS_REPORT = 0x0001
CLASS_ACK_REACH_QUEUE = 0x0002
CLASS_ORDER_ACK = 0x00FF
CLASS_ACK_RECEIVE = 0x4000
CLASS_NACK_DELETED = 0x8001
CLASS_NACK_Q_DELETED = 0xC000
CLASS_NACK_Q_PURGED = 0xC001
CLASS_NACK_RECEIVE_TIMEOUT = 0xC002
CLASS_NACK_RECEIVE_REJECTED = 0xC004

NEVER = "20380119T031407"
"""Text with which Windows writes "does not expire" (every example of [MC-MQSRM] chapter 4)."""


class StreamId(NamedTuple):
    r"""The identifier of a stream, ``uid:GUID\N`` ([MC-MQSRM] 2.2.5.3.1).

    The high half of N is a time stamp, and the low half is a counter.
    """

    guid: str
    ordinal: int

    def __str__(self) -> str:
        return f"uid:{self.guid}\\{self.ordinal}"


class StreamPosition(NamedTuple):
    """The position of a message in its stream: the ``<stream>`` element ([MC-MQSRM] 2.2.5.3)."""

    id: StreamId
    current: int
    previous: int
    """Number of the preceding message.

    ``current - 1`` where the element is absent ([MC-MQSRM] 3.1.1.2, which prints "previous - 1" by
    mistake).
    """
    start: bool = False
    send_receipts_to: str | None = None


class Receipt(NamedTuple):
    """The content of a receipt about an earlier message ([MC-MQSRM] 2.2.5.4 to 2.2.5.6)."""

    kind: ReceiptKind
    lineage: str | None = None
    uniquifier: int | None = None
    at: int | None = None
    """Time of ``receivedAt`` or ``decidedAt``, in microseconds since 1970."""
    decision: Literal["positive", "negative"] | None = None
    stream_id: StreamId | None = None
    last_ordinal: int | None = None


class Message(NamedTuple):
    """One decoded SRMP message ([MC-MQSRM] 3.1.5.1.1)."""

    destination: str
    """``<to>`` as it was sent: a URL, or ``MSMQ:MULTICAST=…``."""
    action: str = ""
    """``<action>`` as it was sent, with its ``MSMQ:`` prefix."""
    lineage: str = names.NULL_GUID
    """GUID of the queue manager that issued the message identifier: SourceQmGuid.

    Where SourceQmGuid differs from the GUID in ``<id>``, Windows uses SourceQmGuid (appendix A
    <7>).
    """
    uniquifier: int = 1
    has_msmq: bool = False
    """Whether the envelope has the ``<Msmq>`` element.

    Without this element every property that it would hold has its default, and the message
    identifier is ignored.
    """
    message_class: int = CLASS_NORMAL
    priority: int = 3
    durable: bool = False
    stream: StreamPosition | None = None
    receipt: Receipt | None = None
    sent_at: int | None = None
    expires_at: int | None = None
    time_to_reach_queue: int | None = None
    """``<TTrq>``: a point in time, in microseconds since 1970, and not a duration."""
    body: bytes = b""
    body_type: int = 0
    extension: bytes | None = None
    correlation: bytes | None = None
    app_specific: int = 0
    hash_algorithm: int | None = None
    response_queue: str | None = None
    delivery_receipt_to: str | None = None
    """``<deliveryReceiptRequest><sendTo>``: where to send the delivery receipt; ``None`` if the
    sender asks for none.
    """
    commitment_receipt_to: str | None = None
    """``<commitmentReceiptRequest><sendTo>``: where to send the commitment receipt; ``None`` if the
    sender asks for none.
    """
    commitment_positive: bool = False
    commitment_negative: bool = False
    journal: bool = False
    dead_letter: bool = False
    trace: bool = False
    first_in_transaction: bool = False
    last_in_transaction: bool = False
    connector_type: str | None = None
    connector_qm: str | None = None
    provider_type: int | None = None
    provider_name: str | None = None
    source_qm: str | None = None
    destination_list: tuple[str, ...] = ()
    admin_list: tuple[str, ...] = ()
    response_list: tuple[str, ...] = ()
    signature: SignatureStatus = "none"
    """Result of checking the signature.

    A codec sets only ``none`` and ``unverified``; the other values are set when the message is
    accepted (``srmp/signing/signature.py``).
    """
    soap_action: str | None = None
    soap_body: str | None = None
    """Content of ``<se:Body>``. Windows leaves this element empty."""

    @property
    def label(self) -> str | None:
        """Return ``action`` without its ``MSMQ:`` prefix.

        Return ``None`` if the prefix is missing ([MC-MQSRM] 3.1.5.1.1, appendix A <5>).
        """
        return self.action[5:] if self.action.startswith("MSMQ:") else None

    @property
    def delivery(self) -> Delivery:
        """Return the delivery mode of MSMQ: ``transactional``, ``recoverable`` or ``express``."""
        return (
            "transactional"
            if self.stream is not None
            else "recoverable"
            if self.durable
            else "express"
        )

    @property
    def has_identity(self) -> bool:
        """Return whether the message has an identifier of its own.

        A message with the NULL GUID and number 1 has none, and bypasses duplicate detection
        ([MC-MQSRM] 3.1.5.1.11).
        """
        return self.lineage != names.NULL_GUID or self.uniquifier != 1

    @property
    def id(self) -> str:
        r"""Return the message identifier as ``{guid}\number``."""
        return names.message_id(self.lineage, self.uniquifier)


class Arrival(NamedTuple):
    """How a message arrived: the facts about its arrival that its bytes do not hold."""

    at: int
    """Time of arrival by the clock of this queue manager, in microseconds since 1970, UTC."""
    transport: Transport
    peer: str
    """Address from which the message was sent, ``host:port``; empty for the API on this host."""
    sender_name: str | None = None
    """Authenticated name of the sender: the TLS subject or the RPC user.

    ``None`` if the sender was not authenticated.
    """
