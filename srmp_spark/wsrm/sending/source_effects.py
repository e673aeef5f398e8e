"""Define the results of a source: messages to send and events to report.

They are values, never actions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from srmp_spark.wsrm.codec.elements import EndpointReference, Range, SoapFault, SoapMessage
from srmp_spark.wsrm.codec.namespaces import AddressingVersion, RmVersion, SoapVersion
from srmp_spark.wsrm.limits import (
    POLL_INTERVAL,
    RESEND_FIRST,
    RESEND_LAST,
    WINDOW_DEFAULT,
    WINDOW_MAX,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RmSourceSettings:
    """The address, the versions and the pace of one sequence. Times are in seconds.

    ``to`` is the URL of the peer. The other settings are described at the constants that are their
    defaults, in :mod:`srmp_spark.wsrm.limits`. Raises :class:`ValueError` if ``window`` is not 1 to
    ``WINDOW_MAX``, both included.
    """

    to: str
    soap: SoapVersion = SoapVersion.V1_2
    addressing: AddressingVersion = AddressingVersion.V2005_08
    rm: RmVersion = RmVersion.V1_1
    acks_to: EndpointReference | None = None
    """Endpoint for acknowledgements, or ``None``.

    ``None`` means that acknowledgements are received as HTTP answers.
    """
    window: int = WINDOW_DEFAULT
    """Most messages in flight, whatever room the peer has."""
    poll_interval: float = POLL_INTERVAL
    resend_first: float = RESEND_FIRST
    resend_last: float = RESEND_LAST

    def __post_init__(self) -> None:
        if not 1 <= self.window <= WINDOW_MAX:
            raise ValueError(
                f"the window of a sequence is 1 to {WINDOW_MAX} messages, got {self.window}"
            )


class Transmit(NamedTuple):
    """Output: send message ``number`` of the sequence.

    :meth:`.RmSource.envelope` makes the message from its action and Body. ``is_again`` states that
    it was returned before.
    """

    number: int
    ack_requested: bool
    is_last: bool
    """Whether this is the empty LastMessage of 1.0.

    It ends the sequence, and no message of the application belongs to it.
    """
    is_again: bool


class Control(NamedTuple):
    """Output: send a message of the protocol itself, such as CreateSequence."""

    message: SoapMessage


class SequenceOpened(NamedTuple):
    """Event: the peer has created the sequence."""

    identifier: str


class Acknowledged(NamedTuple):
    """Event: the peer has newly acknowledged these message numbers (ranges, both included)."""

    ranges: tuple[Range, ...]


class SequenceEnded(NamedTuple):
    """Event: the sequence is over.

    If ``fault`` is set, the sequence failed, and it is unknown whether the peer has the messages
    that it did not acknowledge.
    """

    fault: SoapFault | None


class Suspicious(NamedTuple):
    """Event: an acknowledgement was invalid and ignored. The reason is for the log."""

    reason: str


Output = Transmit | Control
Event = SequenceOpened | Acknowledged | SequenceEnded | Suspicious
