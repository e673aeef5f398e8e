"""What goes into a source and what comes out of it: values, never actions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from srmp_spark.errors import ConfigurationError
from srmp_spark.wsrm.elements import EndpointReference, Range, SoapMessage
from srmp_spark.wsrm.limits import POLL_INTERVAL, WINDOW_DEFAULT, WINDOW_MAX
from srmp_spark.wsrm.namespaces import AddressingVersion, RmVersion, SoapVersion
from srmp_spark.wsrm.outgoing_states import SourceState
from srmp_spark.wsrm.polling_states import PollingState

RESEND_FIRST = 2.0
"""Seconds until a message that is not acknowledged goes again; CXF waits 3, WCF a few round trips."""
RESEND_MAX = 60.0
"""… and each time twice as long, up to this: a service that is away for an hour is found a minute after it is back."""
END_TRIES = 8
"""How often CloseSequence or TerminateSequence is sent: WCF's MaxRetryCount. Everything is acknowledged by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """What a source goes by. Times are seconds."""

    to: str
    soap: SoapVersion = SoapVersion.V1_2
    addressing: AddressingVersion = AddressingVersion.V2005_08
    rm: RmVersion = RmVersion.V1_1
    acks_to: EndpointReference | None = None
    """Where acknowledgements are to go; ``None``: back on the connection."""
    window: int = WINDOW_DEFAULT
    """Unacknowledged messages at most, whatever the destination says."""
    poll_interval: float = POLL_INTERVAL
    resend_first: float = RESEND_FIRST
    resend_max: float = RESEND_MAX

    def __post_init__(self) -> None:
        if self.rm is RmVersion.V1_1 and self.addressing is AddressingVersion.V2004_08:
            raise ConfigurationError("WS-ReliableMessaging 1.1 goes with WS-Addressing 2005/08")
        if not 1 <= self.window <= WINDOW_MAX:
            raise ConfigurationError(f"a window of WS-ReliableMessaging holds 1 to {WINDOW_MAX} messages, not {self.window}")
        if min(self.poll_interval, self.resend_first) <= 0 or self.resend_max < self.resend_first:
            raise ConfigurationError("the times of a source are above 0, and the longest is not below the first")


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """One message of the application. Its number, MessageID and content never change once they are given."""

    number: int
    action: str
    body: bytes
    message_id: str
    is_last: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord:
    """What must outlive the process, beside the messages that are not acknowledged."""

    create_id: str
    """MessageID of CreateSequence, the same for each try."""
    state: SourceState = SourceState.CREATING
    identifier: str = ""
    acknowledged: tuple[Range, ...] = ()
    sent: int = 0
    """The highest number that ever left."""
    granted: int | None = None
    """The last BufferRemaining; ``None``: none was ever told."""
    polling: PollingState = PollingState.NOT_POLLING
    is_finished: bool = False
    """The application has no more."""
    last_number: int = 0
    """The highest number that was given."""


class Purpose(Enum):
    """What a request is for; its answer is handed back with it."""

    CREATE = auto()
    MESSAGE = auto()
    POLL = auto()
    """AckRequested alone."""
    CLOSE = auto()
    TERMINATE = auto()


@dataclass(frozen=True, slots=True)
class Transmit:
    """Send this request to the service."""

    purpose: Purpose
    message: SoapMessage
    number: int = 0
    """Of a MESSAGE."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """These messages arrived, and are told so once."""

    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AcknowledgementRefused:
    """An acknowledgement that cannot be true: it counts for nothing."""

    why: str


@dataclass(frozen=True, slots=True)
class Ended:
    """Everything was acknowledged and the sequence is over."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The sequence is gone. ``in_doubt`` left and were not acknowledged, ``unsent`` never left."""

    why: str
    in_doubt: tuple[int, ...]
    unsent: tuple[int, ...]


Output = Transmit | Acknowledged | AcknowledgementRefused | Ended | Failed
