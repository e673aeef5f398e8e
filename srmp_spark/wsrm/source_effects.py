"""What comes out of a source: messages to send and events to tell. Values, never actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from srmp_spark.wsrm.elements import EndpointReference, Fault, Range, SoapMessage
from srmp_spark.wsrm.limits import (
    POLL_INTERVAL,
    RESEND_FIRST,
    RESEND_LAST,
    WINDOW_DEFAULT,
    WINDOW_MAX,
)
from srmp_spark.wsrm.namespaces import AddressingVersion, RmVersion, SoapVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """Where a sequence goes, in which versions, and how patiently. Seconds."""

    to: str
    soap: SoapVersion = SoapVersion.V1_2
    addressing: AddressingVersion = AddressingVersion.V2005_08
    rm: RmVersion = RmVersion.V1_1
    acks_to: EndpointReference | None = None
    """``None``: acknowledgements come as HTTP answers."""
    window: int = WINDOW_DEFAULT
    """Messages on their way at most, whatever room the peer has."""
    poll_interval: float = POLL_INTERVAL
    resend_first: float = RESEND_FIRST
    resend_last: float = RESEND_LAST

    def __post_init__(self) -> None:
        if not 1 <= self.window <= WINDOW_MAX:
            raise ValueError(
                f"the window of a sequence is 1 to {WINDOW_MAX} messages, got {self.window}"
            )


class Transmit(NamedTuple):
    """Send message ``number``: :meth:`.Source.envelope` makes it of its action and Body."""

    number: int
    ack_requested: bool
    is_last: bool
    """1.0: the empty LastMessage that ends the sequence; it has no row."""
    is_again: bool


class Control(NamedTuple):
    """Send a message of the protocol itself."""

    message: SoapMessage


class Opened(NamedTuple):
    """The sequence exists."""

    identifier: str


class Acknowledged(NamedTuple):
    """The peer has these, for good."""

    ranges: tuple[Range, ...]


class Ended(NamedTuple):
    """The sequence is over. ``fault``: not as it should be; what is not acknowledged is in doubt."""

    fault: Fault | None


class Suspicious(NamedTuple):
    """An acknowledgement that counts for nothing, for the log."""

    reason: str


Output = Transmit | Control
Event = Opened | Acknowledged | Ended | Suspicious
