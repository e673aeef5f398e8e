"""Define the parts of a WS-ReliableMessaging message, independent of their XML.

The classes have the names of the specification and are in its order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from srmp_spark.wsrm.codec.namespaces import AddressingVersion, RmVersion, SoapVersion
from srmp_spark.wsrm.codec.xml_tree import XmlElement

ABSENT = -1
"""Value for "no BufferRemaining": the acknowledgement lacks that element.

See [MS-WSRVCRM] 3.2.7.1.
"""

Range = tuple[int, int]
"""A range of message numbers, both included: the lower and the upper one."""


@dataclass(frozen=True, slots=True)
class EndpointReference:
    """A destination for messages: an address, and parameters to send with each message."""

    address: str
    reference_parameters: tuple[XmlElement, ...] = ()


@dataclass(frozen=True, slots=True)
class Sequence:
    """Header: the message has the number ``number`` in a sequence."""

    identifier: str
    number: int
    is_last: bool = False
    """Whether the header has ``LastMessage``, which exists in 1.0 only."""


@dataclass(frozen=True, slots=True)
class AckRequested:
    """Header: the sender requests an acknowledgement of this sequence."""

    identifier: str


@dataclass(frozen=True, slots=True)
class SequenceAcknowledgement:
    """Header: the numbers of the messages that the destination of a sequence has.

    A header without ranges and Nacks states that no message arrived (1.1 ``None``, 1.0 the range
    0-0).
    """

    identifier: str
    ranges: tuple[Range, ...] = ()
    """Acknowledged numbers: ascending and disjoint ranges, both bounds included."""
    nacks: tuple[int, ...] = ()
    is_final: bool = False
    buffer_remaining: int = ABSENT


class IncompleteSequenceBehavior(Enum):
    """What a destination does with a sequence that ends with a gap (1.1 section 3.4)."""

    NO_DISCARD = "NoDiscard"
    DISCARD_FOLLOWING_FIRST_GAP = "DiscardFollowingFirstGap"
    DISCARD_ENTIRE_SEQUENCE = "DiscardEntireSequence"


@dataclass(frozen=True, slots=True)
class Offer:
    """An offered sequence for the other direction, which would carry replies."""

    identifier: str
    endpoint: EndpointReference | None = None
    """Endpoint to which the messages about the offered sequence are sent; 1.1 only."""
    expires: int | None = None
    """Life of the offered sequence in milliseconds; 0 means forever."""
    behavior: IncompleteSequenceBehavior | None = None


@dataclass(frozen=True, slots=True)
class CreateSequence:
    """Body: a request for a new sequence. ``expires`` is in milliseconds, 0 means forever."""

    acks_to: EndpointReference
    expires: int | None = None
    offer: Offer | None = None


@dataclass(frozen=True, slots=True)
class CreateSequenceResponse:
    """Body: the identifier of the new sequence, as the answer to CreateSequence.

    ``accept`` is set if the offer was accepted; it is the endpoint for the acknowledgements of the
    offered sequence. ``expires`` is in milliseconds, 0 means forever.
    """

    identifier: str
    expires: int | None = None
    behavior: IncompleteSequenceBehavior | None = None
    accept: EndpointReference | None = None


@dataclass(frozen=True, slots=True)
class CloseSequence:
    """Body, 1.1: no new messages follow. Numbers up to ``last_number``, included, were used."""

    identifier: str
    last_number: int | None = None


@dataclass(frozen=True, slots=True)
class CloseSequenceResponse:
    """Body, 1.1: the sequence is closed."""

    identifier: str


@dataclass(frozen=True, slots=True)
class TerminateSequence:
    """Body: the sequence can be forgotten.

    Numbers up to ``last_number``, included, were used; this field exists in 1.1 only.
    """

    identifier: str
    last_number: int | None = None


@dataclass(frozen=True, slots=True)
class TerminateSequenceResponse:
    """Body, 1.1: the sequence is terminated."""

    identifier: str


@dataclass(frozen=True, slots=True)
class MakeConnection:
    """Body: a request for a message that waits for this address or sequence.

    The value that the request does not state is ``None``. A request without both is answered with
    the fault MissingSelection.
    """

    address: str | None = None
    identifier: str | None = None


class Blame(Enum):
    """The party that must change something, as the fault codes of SOAP 1.2 name it.

    SOAP 1.1 calls the sender Client and the receiver Server.
    """

    SENDER = "Sender"
    RECEIVER = "Receiver"
    MUST_UNDERSTAND = "MustUnderstand"
    VERSION_MISMATCH = "VersionMismatch"
    OTHER = "Other"
    """A code from a peer that SOAP does not define."""


@dataclass(frozen=True, slots=True)
class SoapFault:
    """Body: an error of SOAP or of the protocol.

    In SOAP 1.1 the header ``SequenceFault`` carries ``subcode`` and ``identifier``.
    """

    blame: Blame
    subcode: str = ""
    """Kind of the fault in Clark's notation, such as ``{namespace}UnknownSequence``."""
    reason: str = ""
    identifier: str = ""
    """Identifier of the sequence that the fault is about."""
    max_number: int | None = None
    """``MaxMessageNumber`` of the fault MessageNumberRollover; 1.1 only."""


Content = (
    CreateSequence
    | CreateSequenceResponse
    | CloseSequence
    | CloseSequenceResponse
    | TerminateSequence
    | TerminateSequenceResponse
    | MakeConnection
    | SoapFault
)
"""Any protocol element that the Body of a message can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoapMessage:
    """One SOAP message: its addresses, its headers for reliability, and its Body."""

    soap: SoapVersion
    addressing: AddressingVersion
    rm: RmVersion | None
    """Version of WS-ReliableMessaging, or ``None``.

    ``None`` means that no element of the message is of WS-ReliableMessaging.
    """
    action: str
    to: str = ""
    message_id: str = ""
    relates_to: str = ""
    reply_to: EndpointReference | None = None
    fault_to: EndpointReference | None = None
    from_: EndpointReference | None = None
    sequence: Sequence | None = None
    ack_requested: tuple[AckRequested, ...] = ()
    acknowledgements: tuple[SequenceAcknowledgement, ...] = ()
    refused: tuple[str, ...] = ()
    """Errors of the invalid acknowledgements in the message.

    These acknowledgements are ignored and not in ``acknowledgements``.
    """
    message_pending: bool | None = None
    """The header wsmc:MessagePending: whether another message waits for the polled address.

    ``None`` if the message has no such header.
    """
    parameters: tuple[XmlElement, ...] = ()
    """Reference parameters of the endpoint that the message is sent to, written as headers."""
    content: Content | None = None
    body: bytes = b""
    """Bytes of an application's Body, without its tags. Empty if the message has ``content``."""
    size: int = field(default=0, compare=False)
    """Number of bytes of the request that held the message."""
