"""What comes out of a destination: values, never actions.

The dangerous order is in the types. A message that is taken becomes a :class:`Delivery`, which is no acknowledgement. What an
acknowledgement names is :class:`Durable`, and that is made of the store's proof of a sync alone
(:class:`~srmp_spark.srmp.effects.Committed`).

    receive() → Received ──→ store: deliveries + changes(), sync ──→ Committed ──→ committed() → Respond, Send, Later
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from srmp_spark.errors import LocalProtocolError
from srmp_spark.srmp.effects import Committed
from srmp_spark.wsrm.elements import EndpointReference, Fault, SoapMessage
from srmp_spark.wsrm.inbound_states import InboundState
from srmp_spark.wsrm.limits import (
    ACKNOWLEDGEMENT_INTERVAL,
    ANSWER_HELD,
    BUFFER_INITIAL,
    HELD_BYTES_MAX,
    HELD_MAX,
    HELD_TOTAL_MAX,
    INACTIVITY_TIMEOUT,
    SEQUENCES_MAX,
    SEQUENCES_OF_ONE_MAX,
    TERMINATED_KEPT,
    UNUSED_SPARED,
)
from srmp_spark.wsrm.namespaces import AddressingVersion, RmVersion, SoapVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationSettings:
    """What a destination goes by. Seconds."""

    buffer: int = BUFFER_INITIAL
    """The room of an empty queue, in messages: the first Buffer Remaining, and its maximum."""
    inactivity_timeout: float = INACTIVITY_TIMEOUT
    terminated_kept: float = TERMINATED_KEPT
    acknowledgement_interval: float = ACKNOWLEDGEMENT_INTERVAL
    answer_held: float = ANSWER_HELD
    sequences_max: int = SEQUENCES_MAX
    sequences_of_one_max: int = SEQUENCES_OF_ONE_MAX
    unused_spared: float = UNUSED_SPARED
    held_max: int = HELD_MAX
    held_bytes_max: int = HELD_BYTES_MAX
    held_total_max: int = HELD_TOTAL_MAX


class Durable:
    """All numbers up to ``number`` are on stable storage."""

    __slots__ = ("number",)

    def __init__(self, number: int, proof: Committed) -> None:
        if type(proof) is not Committed:
            raise LocalProtocolError(
                f"an acknowledgement needs the store's proof of a commit, got {proof!r}"
            )
        self.number = number

    def __repr__(self) -> str:
        return f"Durable({self.number})"


class Delivery(NamedTuple):
    """A message whose turn has come: a row of the queue, after those that were delivered before it."""

    identifier: str
    number: int
    message: SoapMessage
    payload: object
    """What the caller gave with it."""


class SequenceRow(NamedTuple):
    """A sequence, for the store."""

    identifier: str
    create_id: str
    """MessageID of its CreateSequence; a copy of that gets the same answer."""
    soap: SoapVersion
    addressing: AddressingVersion
    rm: RmVersion
    acks_to: EndpointReference
    state: InboundState
    accepted: int
    last_number: int | None
    expires_at: int | None
    """Microseconds since 1970, UTC."""
    returns: str = ""
    """The sequence that its client offered and we took (:mod:`.return_sequence`)."""


class Changes(NamedTuple):
    """What a commit must hold beside the deliveries."""

    sequences: list[SequenceRow]
    removed: list[str]
    generation: int

    def __bool__(self) -> bool:
        return bool(self.sequences or self.removed)


class Kind(Enum):
    """Of an answer."""

    CREATED = auto()
    ACKNOWLEDGE = auto()
    CLOSED = auto()
    TERMINATED = auto()
    FAULT = auto()
    CONNECTION = auto()
    """MakeConnection: whatever waits."""
    NOTHING = auto()


class Received(NamedTuple):
    """What became of a message. Store ``deliveries`` in their order, then :meth:`.Destination.committed` answers."""

    deliveries: tuple[Delivery, ...]
    kind: Kind
    request: SoapMessage
    identifier: str
    accepted: int
    """Of the sequence, with this message."""
    fault: Fault | None
    generation: int
    """Which call of :meth:`.Destination.changes` must be committed before the answer."""
    is_copy: bool = False
    """Its number was known already."""


class Respond(NamedTuple):
    """The HTTP answer to the message: a SOAP message, or nothing but 202."""

    message: SoapMessage | None


class Send(NamedTuple):
    """A message of its own to ``endpoint``, if the allow-list has it."""

    endpoint: EndpointReference
    message: SoapMessage


class Later(NamedTuple):
    """No answer yet: it is all that can slow this client down. :meth:`.Destination.answer` has it, when there is room or it is
    ``until`` (monotonic seconds)."""

    received: Received
    until: float


Output = Respond | Send | Later
