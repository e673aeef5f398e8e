"""One sequence at its destination: accepted messages, held messages, and acknowledgements."""

from __future__ import annotations

from srmp_spark.srmp.receiving.effects import Committed
from srmp_spark.wsrm.codec.elements import Range, SequenceAcknowledgement, SoapMessage
from srmp_spark.wsrm.codec.namespaces import MAKE_CONNECTION_ANONYMOUS, RmVersion
from srmp_spark.wsrm.receiving.destination_effects import Durable, InOrderMessage, SequenceRow
from srmp_spark.wsrm.receiving.inbound_states import InboundState
from srmp_spark.wsrm.receiving.polled_addresses import PolledAddress

HELD_OVERHEAD = 512
"""Bytes of memory that a held message costs in addition to its content."""


class HeldBytes:
    """Counts the bytes of all messages that wait after gaps.

    The destinations of all queues share one counter.
    """

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


class InboundSequence:
    """Accepts the messages of one sequence in their order, each once.

    A message that arrives too early is held in memory and not acknowledged. *Accepted* messages are
    delivered to the queue, and *stored* ones are on stable storage.
    """

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
        "last_buffer_remaining",
        "last_number",
        "owner",
        "polled",
        "returns",
        "rm",
        "soap",
        "state",
    )

    def __init__(self, row: SequenceRow, proof: Committed | None) -> None:
        """Begin with ``row``. Pass ``proof`` if the row was read from the store.

        Without ``proof`` the sequence is new and has accepted nothing.
        """
        self.identifier, self.create_id = row.identifier, row.create_id
        self.soap, self.addressing, self.rm = row.soap, row.addressing, row.rm
        self.acks_to = row.acks_to
        self.state = row.state
        self.accepted = row.accepted
        """Last number that was delivered to the queue, stored or not; 0 if none was.

        All numbers before it were delivered, too.
        """
        self.last_number = row.last_number
        self.expires_at = row.expires_at
        self.returns = row.returns
        """Identifier of the offered sequence for replies that was accepted; empty if there is none.
        """
        self.durable = Durable(row.accepted, proof) if proof is not None else None
        self.owner = ""
        """The client that began the sequence: the subject of a certificate, or an address.

        The limit ``SEQUENCES_OF_ONE_MAX`` counts by this client.
        """
        self.client: str | None = None
        """Authenticated name of the client that began the sequence, or ``None`` if it has none."""
        self.polled: PolledAddress | None = None
        """Index entry of the address that the client polls (:mod:`.polled_addresses`), or ``None``.

        ``None`` means that the client does not poll.
        """
        self.begun_at = 0.0
        """Time at which the sequence began in this process, in seconds of the monotonic clock."""
        self.is_on_hold = False
        """Whether an internal error interrupted one of the sequence's messages.

        Such a sequence accepts no message until the next start, which reads the store.
        """
        self.held: dict[int, InOrderMessage] = {}
        self.held_bytes = 0
        self.generation = 0
        self.last_buffer_remaining = -1
        """Last BufferRemaining that was sent in an acknowledgement, or -1 if none was sent."""
        self.is_due = False
        """Whether an acknowledgement is scheduled for the address of the source."""

    @property
    def is_anonymous(self) -> bool:
        """Return whether acknowledgements are sent in HTTP answers, and not to an address.

        Clients that poll an address of WS-MakeConnection get them in HTTP answers, too.
        """
        address = self.acks_to.address
        return address == self.addressing.anonymous or address.startswith(MAKE_CONNECTION_ANONYMOUS)

    def owe(self) -> None:
        """Let an acknowledgement wait for the next MakeConnection of the client.

        Do nothing if the client does not poll, because such a client cannot request the
        acknowledgement.
        """
        if self.polled is not None:
            self.polled.owed[self.identifier] = None

    @property
    def is_request_reply(self) -> bool:
        """Return whether the client takes each HTTP answer for the reply to that very message.

        :mod:`.return_sequence` describes such clients.
        """
        return bool(self.returns) and self.is_anonymous

    @property
    def stored(self) -> int:
        """Return the last number that may be acknowledged, because it is stored; 0 for none."""
        return 0 if self.durable is None else self.durable.number

    def knows(self, number: int) -> bool:
        """Return whether a message with this number is a copy of an accepted or held message."""
        return number <= self.accepted or number in self.held

    @property
    def is_unused(self) -> bool:
        """Return whether the sequence is open and never received a message."""
        return self.state is InboundState.OPEN and not self.accepted and not self.held

    @property
    def highest(self) -> int:
        """Return the highest number that was accepted or is held; 0 if there is none."""
        return max(self.accepted, *self.held) if self.held else self.accepted

    def take(self, delivery: InOrderMessage) -> list[InOrderMessage]:
        """Accept ``delivery``, which has the next number, and return the deliveries in turn now.

        These are ``delivery`` and the held messages directly after it, which are no longer held.
        """
        ready = [delivery]
        self.accepted = delivery.number
        while self.accepted + 1 in self.held:
            self.accepted += 1
            ready.append(self._released(self.accepted))
        return ready

    def hold(self, delivery: InOrderMessage) -> None:
        """Keep a message after a gap in memory, until the missing messages arrive.

        The caller has checked the limits of held messages.
        """
        self.held[delivery.number] = delivery
        self.held_bytes += size_of(delivery.message)

    def _released(self, number: int) -> InOrderMessage:
        delivery = self.held.pop(number)
        self.held_bytes -= size_of(delivery.message)
        return delivery

    def drop_held(self) -> None:
        """Discard all messages that wait in memory after a gap, and set ``held_bytes`` to 0."""
        self.held.clear()
        self.held_bytes = 0

    def committed(self, accepted: int, proof: Committed) -> None:
        """Note that all numbers up to ``accepted``, included, are stored, as ``proof`` proves."""
        if self.durable is None or accepted > self.durable.number:
            self.durable = Durable(accepted, proof)

    def room_of(self, free: int) -> int:
        """Return how much of the queue's ``free`` room this sequence may announce, in messages.

        The messages that the sequence holds after a gap are subtracted, because they will need
        room; the result is at least 0. Messages that *other* sequences hold are not subtracted.
        Otherwise one client with a gap would stop every other client of the queue.
        """
        return max(0, free - len(self.held))

    def acknowledgement(self, buffer_remaining: int) -> SequenceAcknowledgement:
        """Return an acknowledgement of exactly the stored numbers, with this BufferRemaining.

        The value is that of [MS-WSRVCRM] 3.1.7.1. In 1.1 the acknowledgement of a sequence that is
        closed or terminated is Final. The sequence counts as acknowledged: nothing is scheduled or
        waits for a MakeConnection any longer.
        """
        number = self.stored
        ranges: tuple[Range, ...] = ((1, number),) if number else ()
        self.last_buffer_remaining, self.is_due = buffer_remaining, False
        if self.polled is not None:
            self.polled.owed.pop(self.identifier, None)
        is_final = self.rm is RmVersion.V1_1 and self.state is not InboundState.OPEN
        return SequenceAcknowledgement(self.identifier, ranges, (), is_final, buffer_remaining)

    def row(self) -> SequenceRow:
        """Return the sequence as a database row for the store."""
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
    """Return how many bytes of memory a held message costs, as an estimate.

    The bytes are those of the request as it was read, of the POST that is stored in its turn, and
    an overhead.
    """
    return 2 * message.size + HELD_OVERHEAD
