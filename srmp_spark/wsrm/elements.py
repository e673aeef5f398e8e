"""What a message of WS-ReliableMessaging says, without its spelling: the names of the specification, in its order."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from srmp_spark.wsrm.namespaces import AddressingVersion, RmVersion, SoapVersion
from srmp_spark.wsrm.xml_tree import Element

ABSENT = -1
"""BufferRemaining of an acknowledgement without one ([MS-WSRVCRM] 3.2.7.1)."""

Range = tuple[int, int]
"""Closed: lower and upper message number."""


@dataclass(frozen=True, slots=True)
class EndpointReference:
    """Where something is to be sent: an address, and what must go back with each message to it."""

    address: str
    reference_parameters: tuple[Element, ...] = ()


@dataclass(frozen=True, slots=True)
class Sequence:
    """Header: this message is number ``number`` of a sequence."""

    identifier: str
    number: int
    is_last: bool = False
    """1.0: ``LastMessage``."""


@dataclass(frozen=True, slots=True)
class AckRequested:
    """Header: an acknowledgement of this sequence is wanted."""

    identifier: str


@dataclass(frozen=True, slots=True)
class SequenceAcknowledgement:
    """Header: which messages arrived. Without ranges and Nacks it says: none (1.1 ``None``, 1.0 the range 0-0)."""

    identifier: str
    ranges: tuple[Range, ...] = ()
    """Ascending and disjoint."""
    nacks: tuple[int, ...] = ()
    is_final: bool = False
    buffer_remaining: int = ABSENT


class IncompleteSequenceBehavior(Enum):
    """1.1 section 3.4: what becomes of a sequence that ends with a gap."""

    NO_DISCARD = "NoDiscard"
    DISCARD_FOLLOWING_FIRST_GAP = "DiscardFollowingFirstGap"
    DISCARD_ENTIRE_SEQUENCE = "DiscardEntireSequence"


@dataclass(frozen=True, slots=True)
class Offer:
    """A sequence for the other direction."""

    identifier: str
    endpoint: EndpointReference | None = None
    """1.1: where its messages come from."""
    expires: int | None = None
    """Milliseconds; 0: never."""
    behavior: IncompleteSequenceBehavior | None = None


@dataclass(frozen=True, slots=True)
class CreateSequence:
    """Body: a new sequence is wanted."""

    acks_to: EndpointReference
    expires: int | None = None
    offer: Offer | None = None


@dataclass(frozen=True, slots=True)
class CreateSequenceResponse:
    """Body: here it is. ``accept``: the offer was taken, and this is where its acknowledgements go."""

    identifier: str
    expires: int | None = None
    behavior: IncompleteSequenceBehavior | None = None
    accept: EndpointReference | None = None


@dataclass(frozen=True, slots=True)
class CloseSequence:
    """Body, 1.1: nothing new will come, all numbers up to ``last_number`` were used."""

    identifier: str
    last_number: int | None = None


@dataclass(frozen=True, slots=True)
class CloseSequenceResponse:
    """Body, 1.1."""

    identifier: str


@dataclass(frozen=True, slots=True)
class TerminateSequence:
    """Body: the sequence can be forgotten. ``last_number`` in 1.1 alone."""

    identifier: str
    last_number: int | None = None


@dataclass(frozen=True, slots=True)
class TerminateSequenceResponse:
    """Body, 1.1."""

    identifier: str


@dataclass(frozen=True, slots=True)
class MakeConnection:
    """Body: is there anything for this address, or of this sequence?"""

    address: str | None = None
    identifier: str | None = None


class Blame(Enum):
    """Who has to change something: the codes of SOAP 1.2 (Client and Server in 1.1)."""

    SENDER = "Sender"
    RECEIVER = "Receiver"
    MUST_UNDERSTAND = "MustUnderstand"
    VERSION_MISMATCH = "VersionMismatch"
    OTHER = "Other"
    """A code that SOAP does not know, read from a peer."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Body: an error. In SOAP 1.1 its ``subcode`` and ``identifier`` stand in the header ``SequenceFault``."""

    blame: Blame
    subcode: str = ""
    """In Clark's notation, ``{namespace}UnknownSequence``."""
    reason: str = ""
    identifier: str = ""
    """Of the sequence that is meant."""
    max_number: int | None = None
    """``MaxMessageNumber`` of MessageNumberRollover, 1.1."""


Content = (
    CreateSequence
    | CreateSequenceResponse
    | CloseSequence
    | CloseSequenceResponse
    | TerminateSequence
    | TerminateSequenceResponse
    | MakeConnection
    | Fault
)
"""What the Body of a message of the protocol holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoapMessage:
    """One SOAP message: addresses, reliability, Body."""

    soap: SoapVersion
    addressing: AddressingVersion
    rm: RmVersion | None
    """``None``: nothing in it is of WS-ReliableMessaging."""
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
    """Why each acknowledgement that stands in the message and is not in ``acknowledgements`` counts for nothing."""
    message_pending: bool | None = None
    """wsmc: another message waits for the address that asked."""
    parameters: tuple[Element, ...] = ()
    """Reference parameters of the endpoint that it is sent to, as headers."""
    content: Content | None = None
    body: bytes = b""
    """The bytes of an application's Body; empty where there is ``content``."""
    size: int = field(default=0, compare=False)
    """Bytes of the request that it came in."""
