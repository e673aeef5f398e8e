"""What comes out of a destination: values, never actions.

What was received is acknowledged when it is stored, and the types say so. A change is a :class:`Store`, which is no answer. The
answers to it come out of ``Destination.stored``, which needs a :class:`Stored`, and the store alone makes one, after its sync.
"""

from __future__ import annotations

from dataclasses import dataclass

from srmp_spark.wsrm.elements import EndpointReference, SoapMessage
from srmp_spark.wsrm.incoming_states import SequenceState
from srmp_spark.wsrm.namespaces import AddressingVersion, RmVersion, SoapVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceRecord:
    """What of a sequence must outlive the process. Times are seconds since 1970."""

    identifier: str
    create_id: str
    """MessageID of the CreateSequence: a repeated one gets the same sequence."""
    owner: str
    """Who created it, as the connection tells it; nobody else may use it."""
    soap: SoapVersion
    addressing: AddressingVersion
    rm: RmVersion
    acks_to: EndpointReference
    expires: int | None = None
    """Milliseconds, as granted; ``None`` if nothing was asked for, 0 for ever."""
    expires_at: float | None = None
    state: SequenceState = SequenceState.OPEN
    received: int = 0
    """All numbers from 1 to this one are stored, and no others: messages are taken in their order."""
    last_number: int | None = None
    """The last one that there will be, once the source said so."""
    terminated_at: float | None = None


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to store: number ``number`` of its sequence."""

    sequence: str
    number: int
    message: SoapMessage


@dataclass(frozen=True, slots=True)
class Store:
    """Store these messages and this record in one transaction, sync, then call ``stored``; else ``not_stored``.

    Stores of one sequence are taken in the order in which they came; after one that failed, those behind it have failed, too.
    """

    token: int
    record: SequenceRecord
    messages: tuple[NewMessage, ...] = ()


class Stored:
    """Proof that the :class:`Store` of this token is on stable storage. Only the store makes one, after its sync."""

    __slots__ = ("token",)

    def __init__(self, token: int) -> None:
        self.token = token

    def __repr__(self) -> str:
        return f"Stored({self.token})"


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer this exchange; ``None``: accepted, and nothing to say (HTTP 202)."""

    exchange: int
    message: SoapMessage | None


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Answer this exchange with our own trouble (HTTP 503): nothing was stored, and it may come again."""

    exchange: int


@dataclass(frozen=True, slots=True)
class Send:
    """Send this as a request of our own."""

    to: EndpointReference
    message: SoapMessage


@dataclass(frozen=True, slots=True)
class Forget:
    """The record of this sequence can be deleted. If it is not, it is forgotten after the next start."""

    identifier: str


Effect = Store | Reply | Unavailable | Send | Forget
