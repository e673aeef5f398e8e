"""Define the results of a destination: values, never actions.

The types enforce the order. An accepted message becomes a :class:`InOrderMessage`, which is no
acknowledgement. An acknowledgement names only numbers of :class:`Durable`. A :class:`Durable` can
only be made from the store's proof of a sync, a
:class:`~srmp_spark.srmp.receiving.effects.Committed`.

    receive() → Received ──→ store: deliveries + changes(), sync
                         ──→ Committed ──→ committed() → Respond, Send, Later
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from srmp_spark.errors import LocalProtocolError
from srmp_spark.srmp.receiving.effects import Committed
from srmp_spark.wsrm.codec.elements import EndpointReference, SoapFault, SoapMessage
from srmp_spark.wsrm.codec.namespaces import AddressingVersion, RmVersion, SoapVersion
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
from srmp_spark.wsrm.receiving.inbound_states import InboundState


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationSettings:
    """The settings of one destination. Times are in seconds.

    Each setting is described at the constant that is its default, in :mod:`srmp_spark.wsrm.limits`.
    """

    buffer: int = BUFFER_INITIAL
    """Room of an empty queue, in messages.

    BufferRemaining begins with this value and never exceeds it.
    """
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
    """Proves that all numbers up to ``number``, included, are on stable storage.

    Raises :class:`LocalProtocolError` if ``proof`` is no proof of a commit.
    """

    __slots__ = ("number",)

    def __init__(self, number: int, proof: Committed) -> None:
        if type(proof) is not Committed:
            raise LocalProtocolError(
                f"an acknowledgement needs the store's proof of a commit, got {proof!r}"
            )
        self.number = number

    def __repr__(self) -> str:
        return f"Durable({self.number})"


class InOrderMessage(NamedTuple):
    """A message whose turn has come: it becomes the next message row of the queue.

    All messages that were delivered before are rows before it.
    """

    identifier: str
    number: int
    message: SoapMessage
    payload: object
    """The object that the caller passed to :meth:`.RmDestination.receive` with the message."""


class SequenceRow(NamedTuple):
    """One sequence at its destination, as a database row."""

    identifier: str
    create_id: str
    """MessageID of the sequence's CreateSequence. A copy of that message gets the same answer."""
    soap: SoapVersion
    addressing: AddressingVersion
    rm: RmVersion
    acks_to: EndpointReference
    state: InboundState
    accepted: int
    last_number: int | None
    expires_at: int | None
    """End of the sequence's life, in microseconds since 1970 (UTC); ``None`` for no limit."""
    returns: str = ""
    """Identifier of the offered sequence for replies that was accepted; empty if there is none.

    See :mod:`.return_sequence`.
    """


class SequenceChanges(NamedTuple):
    """The changes of sequences that one commit must hold together with the deliveries.

    ``sequences`` are rows to insert or replace, and ``removed`` are identifiers whose rows are
    deleted. ``generation`` is the number of the call that returned the changes.
    """

    sequences: list[SequenceRow]
    removed: list[str]
    generation: int

    def __bool__(self) -> bool:
        return bool(self.sequences or self.removed)


class AnswerKind(Enum):
    """The kind of answer that a message gets."""

    CREATED = auto()
    ACKNOWLEDGE = auto()
    CLOSED = auto()
    TERMINATED = auto()
    FAULT = auto()
    CONNECTION = auto()
    """Answer to MakeConnection: the acknowledgement that waits for the address."""
    NOTHING = auto()


class ReceiveDecision(NamedTuple):
    """The decision about one message.

    Store ``deliveries`` in their order. Then :meth:`.RmDestination.committed` returns the answer.
    ``identifier`` is that of the sequence, or empty.
    """

    deliveries: tuple[InOrderMessage, ...]
    kind: AnswerKind
    request: SoapMessage
    identifier: str
    accepted: int
    """Last number that the sequence has accepted in order, this message included."""
    fault: SoapFault | None
    generation: int
    """Number of the changes that must be committed before the answer.

    :meth:`.RmDestination.changes` counts its calls.
    """
    is_copy: bool = False
    """Whether the sequence had the message's number already."""


class Respond(NamedTuple):
    """Output: the HTTP answer to a message.

    It is a SOAP message, or status 202 without content.
    """

    message: SoapMessage | None


class SendSeparately(NamedTuple):
    """Output: a separate message to ``endpoint``, if the URL policy allows the address."""

    endpoint: EndpointReference
    message: SoapMessage


class RespondLater(NamedTuple):
    """Output: an answer that must wait, because only a late answer slows this client down.

    :meth:`.RmDestination.answer` makes the answer when there is room, or at ``until`` (monotonic
    seconds) at the latest.
    """

    received: ReceiveDecision
    until: float


Output = Respond | SendSeparately | RespondLater
