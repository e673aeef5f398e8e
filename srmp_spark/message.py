"""The nouns that every layer shares: a message, its stream position, its receipts, and how it arrived.

``Message`` is the SRMPMessage of [MC-MQSRM] 3.1.1.1.4 as plain data. These are NamedTuples and not frozen dataclasses
because the journal path builds one per POST: a tuple of fifty fields costs one fifth of a frozen dataclass.
Times are microseconds since 1970-01-01T00:00:00Z; ``None`` means that the sender did not say.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from srmp_spark import names

Delivery = Literal["express", "recoverable", "transactional"]
Transport = Literal["http", "https", "pgm", "wsrm", "mqrr", "api"]
ReceiptKind = Literal["delivery", "commitment", "stream", "final_stream"]
SignatureStatus = Literal["none", "valid", "invalid", "unverified"]
"""What is known of a message's XML signature. ``valid`` is about body and extension, and no header."""

# Message classes, [MS-MQMQ] 2.2.18.1.6. An unknown class is kept as its number.
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
"""How Windows writes "does not expire" (every example of [MC-MQSRM] chapter 4)."""


class StreamId(NamedTuple):
    r"""``uid:GUID\N`` ([MC-MQSRM] 2.2.5.3.1): the high half of N is a time stamp, the low half an ordinal."""

    guid: str
    ordinal: int

    def __str__(self) -> str:
        return f"uid:{self.guid}\\{self.ordinal}"


class StreamPosition(NamedTuple):
    """The ``<stream>`` element ([MC-MQSRM] 2.2.5.3)."""

    id: StreamId
    current: int
    previous: int
    """``current - 1`` where the element is absent ([MC-MQSRM] 3.1.1.2, whose "previous - 1" is a misprint)."""
    start: bool = False
    send_receipts_to: str | None = None


class Receipt(NamedTuple):
    """What a receipt says about an earlier message ([MC-MQSRM] 2.2.5.4 to 2.2.5.6)."""

    kind: ReceiptKind
    lineage: str | None = None
    uniquifier: int | None = None
    at: int | None = None
    """``receivedAt`` or ``decidedAt``."""
    decision: Literal["positive", "negative"] | None = None
    stream_id: StreamId | None = None
    last_ordinal: int | None = None


class Message(NamedTuple):
    """One SRMP message, decoded ([MC-MQSRM] 3.1.5.1.1)."""

    destination: str
    """``<to>`` as sent: a URL, or ``MSMQ:MULTICAST=…``."""
    action: str = ""
    """``<action>`` as sent, with its ``MSMQ:`` prefix."""
    lineage: str = names.NULL_GUID
    """SourceQmGuid: where it differs from the GUID in ``<id>`` Windows trusts SourceQmGuid (appendix A <7>)."""
    uniquifier: int = 1
    has_msmq: bool = False
    """False: the ``<Msmq>`` element is absent, every property of it below is a default, the identifier is ignored."""
    message_class: int = CLASS_NORMAL
    priority: int = 3
    durable: bool = False
    stream: StreamPosition | None = None
    receipt: Receipt | None = None
    sent_at: int | None = None
    expires_at: int | None = None
    time_to_reach_queue: int | None = None
    """``<TTrq>``, a moment and not a span."""
    body: bytes = b""
    body_type: int = 0
    extension: bytes | None = None
    correlation: bytes | None = None
    app_specific: int = 0
    hash_algorithm: int | None = None
    response_queue: str | None = None
    delivery_receipt_to: str | None = None
    """``<deliveryReceiptRequest><sendTo>``."""
    commitment_receipt_to: str | None = None
    """``<commitmentReceiptRequest><sendTo>``."""
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
    """A codec tells ``none`` and ``unverified``; the others are found when it is accepted (``srmp/signature.py``)."""
    soap_action: str | None = None
    soap_body: str | None = None
    """What stands in ``<se:Body>``; Windows leaves it empty."""

    @property
    def label(self) -> str | None:
        """``action`` without ``MSMQ:``; ``None`` when the prefix is missing ([MC-MQSRM] 3.1.5.1.1, appendix A <5>)."""
        return self.action[5:] if self.action.startswith("MSMQ:") else None

    @property
    def delivery(self) -> Delivery:
        """MSMQ's three words for how far a message survives."""
        return (
            "transactional"
            if self.stream is not None
            else "recoverable"
            if self.durable
            else "express"
        )

    @property
    def has_identity(self) -> bool:
        """False for the NULL GUID with 1, which bypasses duplicate detection ([MC-MQSRM] 3.1.5.1.11)."""
        return self.lineage != names.NULL_GUID or self.uniquifier != 1

    @property
    def id(self) -> str:
        r"""``{guid}\number``."""
        return names.message_id(self.lineage, self.uniquifier)


class Arrival(NamedTuple):
    """How a message came in: everything about it that is not in its bytes."""

    at: int
    """Microseconds since 1970, UTC, on our clock."""
    transport: Transport
    peer: str
    """The address it came from, ``host:port``; empty for the API on this host."""
    sender_name: str | None = None
    """The authenticated name: TLS subject or RPC user."""
