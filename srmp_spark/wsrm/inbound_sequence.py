"""One sequence at its destination: what arrived, what waits behind a gap, and what may be acknowledged."""

from __future__ import annotations

from srmp_spark.srmp.effects import Committed
from srmp_spark.wsrm.destination_effects import Delivery, Durable, SequenceRow
from srmp_spark.wsrm.elements import Range, SequenceAcknowledgement, SoapMessage
from srmp_spark.wsrm.inbound_states import InboundState
from srmp_spark.wsrm.namespaces import MAKE_CONNECTION_ANONYMOUS, RmVersion
from srmp_spark.wsrm.polled_addresses import PolledAddress

HELD_OVERHEAD = 512
"""Bytes that a message costs beside what is in it."""


class Held:
    """Bytes of all messages that wait behind gaps; the destinations of all queues share one."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


class InboundSequence:
    """Messages are accepted in their order, each once; one that comes too early is held in memory and not acknowledged."""

    __slots__ = (
        "accepted",
        "acks_to",
        "addressing",
        "begun_at",
        "client",
        "create_id",
        "durable",
        "expires_at",
        "generation",
        "held",
        "held_bytes",
        "identifier",
        "is_due",
        "is_on_hold",
        "last_number",
        "owner",
        "polled",
        "returns",
        "rm",
        "soap",
        "state",
        "told",
    )

    def __init__(self, row: SequenceRow, proof: Committed | None) -> None:
        """``proof``: the row comes from the store. Without it, nothing has been accepted yet."""
        self.identifier, self.create_id = row.identifier, row.create_id
        self.soap, self.addressing, self.rm = row.soap, row.addressing, row.rm
        self.acks_to = row.acks_to
        self.state = row.state
        self.accepted = row.accepted
        """The last number of those that were delivered: all before it were, too."""
        self.last_number = row.last_number
        self.expires_at = row.expires_at
        self.returns = row.returns
        """The sequence for replies that its client offered; empty: none."""
        self.durable = Durable(row.accepted, proof) if proof is not None else None
        self.owner = ""
        """The client that began it: a certificate's subject, or an address. Clients share the table by it."""
        self.client: str | None = None
        """The authenticated name of the client that began it; ``None``: it has none."""
        self.polled: PolledAddress | None = None
        """The index by the address that its client polls (:mod:`.polled_addresses`)."""
        self.begun_at = 0.0
        """Monotonic seconds."""
        self.is_on_hold = False
        """An error of ours interrupted one of its messages: until the next start, which reads what is stored, it takes none."""
        self.held: dict[int, Delivery] = {}
        self.held_bytes = 0
        self.generation = 0
        self.told = -1
        """The last BufferRemaining that an acknowledgement carried."""
        self.is_due = False
        """One is about to go to the address of the source."""

    @property
    def is_anonymous(self) -> bool:
        """Acknowledgements go back on the HTTP answers. An address of WS-MakeConnection allows that, too."""
        address = self.acks_to.address
        return address == self.addressing.anonymous or address.startswith(MAKE_CONNECTION_ANONYMOUS)

    @property
    def is_owed(self) -> bool:
        """Whether an acknowledgement waits for a MakeConnection."""
        return self.polled is not None and self.identifier in self.polled.owed

    def owe(self) -> None:
        """Let an acknowledgement wait for the next MakeConnection; without an address to poll nobody could ask for it."""
        if self.polled is not None:
            self.polled.owed[self.identifier] = None

    @property
    def is_request_reply(self) -> bool:
        """Does its client take each HTTP answer for the reply to that very message (:mod:`.return_sequence`)?"""
        return bool(self.returns) and self.is_anonymous

    @property
    def stored(self) -> int:
        """The last number that may be acknowledged."""
        return 0 if self.durable is None else self.durable.number

    def knows(self, number: int) -> bool:
        """Is a message of this number a copy?"""
        return number <= self.accepted or number in self.held

    @property
    def is_unused(self) -> bool:
        """Whether it never took a message."""
        return self.state is InboundState.OPEN and not self.accepted and not self.held

    @property
    def highest(self) -> int:
        """Of all numbers that it has."""
        return max(self.accepted, *self.held) if self.held else self.accepted

    def take(self, delivery: Delivery) -> list[Delivery]:
        """The next number, and those behind it that were held: what is delivered now."""
        ready = [delivery]
        self.accepted = delivery.number
        while self.accepted + 1 in self.held:
            self.accepted += 1
            ready.append(self._released(self.accepted))
        return ready

    def hold(self, delivery: Delivery) -> None:
        """A number behind a gap."""
        self.held[delivery.number] = delivery
        self.held_bytes += size_of(delivery.message)

    def _released(self, number: int) -> Delivery:
        delivery = self.held.pop(number)
        self.held_bytes -= size_of(delivery.message)
        return delivery

    def drop_held(self) -> None:
        """Forget what waits."""
        self.held.clear()
        self.held_bytes = 0

    def committed(self, accepted: int, proof: Committed) -> None:
        """Everything up to ``accepted`` is stored."""
        if self.durable is None or accepted > self.durable.number:
            self.durable = Durable(accepted, proof)

    def room_of(self, free: int) -> int:
        """Return how much of the queue's free room this sequence may be told: what it holds behind a gap will need a part.

        What *other* sequences hold is not subtracted: a client with a gap would stop every other client of the queue.
        """
        return max(0, free - len(self.held))

    def acknowledgement(self, buffer_remaining: int) -> SequenceAcknowledgement:
        """Exactly what is stored ([MS-WSRVCRM] 3.1.7.1 for the value). A sequence that takes nothing more says so: Final."""
        number = self.stored
        ranges: tuple[Range, ...] = ((1, number),) if number else ()
        self.told, self.is_due = buffer_remaining, False
        if self.polled is not None:
            self.polled.owed.pop(self.identifier, None)
        is_final = self.rm is RmVersion.V1_1 and self.state is not InboundState.OPEN
        return SequenceAcknowledgement(self.identifier, ranges, (), is_final, buffer_remaining)

    def row(self) -> SequenceRow:
        """For the store."""
        return SequenceRow(
            self.identifier,
            self.create_id,
            self.soap,
            self.addressing,
            self.rm,
            self.acks_to,
            self.state,
            self.accepted,
            self.last_number,
            self.expires_at,
            self.returns,
        )

    def __repr__(self) -> str:
        return (
            f"<InboundSequence {self.identifier} {self.state.name} "
            f"accepted={self.accepted} held={len(self.held)}>"
        )


def size_of(message: SoapMessage) -> int:
    """Bytes that it costs to hold: what was read of it, and the POST that is stored when its turn comes."""
    return 2 * message.size + HELD_OVERHEAD
