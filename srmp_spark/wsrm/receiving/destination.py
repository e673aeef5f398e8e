"""Receive the sequences of one queue: each message once, in order, acknowledged when stored.

Theory of operation. :meth:`RmDestination.receive` decides about a message and changes nothing
outside. The deliveries and :meth:`RmDestination.changes` go into one transaction of the store. Only
:meth:`RmDestination.committed`, with the proof of the store's sync, makes the answer. An
acknowledgement names the numbers 1 to n that are stored. It also carries the free room of the queue
(:mod:`.flow_control`). All sequences of the queue share one flow-control object, because they share
the room.

A message after a gap is held in memory, unacknowledged, until the missing message arrives. Such a
message needs no sync of its own, and after a crash its source still has it. Its HTTP answer does
not wait, and acknowledges the messages that are stored by then. CXF has one thread for repetitions:
it would wait for the answer while the missing message is due. The number of held messages is
limited. Messages beyond the limit are sent again by their source.

A source with an address receives its acknowledgements at that address, one for several messages.
Other sources receive them in HTTP answers. When room returns after an acknowledgement with 0,
sources with an address are notified at once. The others learn it when they poll.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import replace

from srmp_spark.errors import LocalProtocolError
from srmp_spark.srmp.receiving.effects import Committed
from srmp_spark.timers import Timers
from srmp_spark.wsrm.codec.elements import (
    Blame,
    CloseSequence,
    CreateSequence,
    MakeConnection,
    SoapFault,
    SoapMessage,
    TerminateSequence,
)
from srmp_spark.wsrm.codec.endpoint_text import is_storable
from srmp_spark.wsrm.codec.faults import FaultCode, fault_of
from srmp_spark.wsrm.codec.namespaces import MAKE_CONNECTION_ANONYMOUS, RmVersion
from srmp_spark.wsrm.receiving import return_sequence
from srmp_spark.wsrm.receiving.destination_answers import DestinationAnswers, version_of
from srmp_spark.wsrm.receiving.destination_effects import (
    AnswerKind,
    DestinationSettings,
    InOrderMessage,
    Output,
    ReceiveDecision,
    Respond,
    RespondLater,
    SequenceChanges,
    SequenceRow,
)
from srmp_spark.wsrm.receiving.flow_control import FlowControlObject
from srmp_spark.wsrm.receiving.inbound_sequence import HeldBytes, InboundSequence, size_of
from srmp_spark.wsrm.receiving.inbound_states import (
    TRANSITIONS,
    InboundEvent,
    InboundState,
    Reaction,
)
from srmp_spark.wsrm.receiving.polled_addresses import PolledAddresses
from srmp_spark.wsrm.receiving.requests import is_copy, is_last_message, not_reliable

_FAULTS = {
    Reaction.SEQUENCE_CLOSED: FaultCode.SEQUENCE_CLOSED,
    Reaction.SEQUENCE_TERMINATED: FaultCode.SEQUENCE_TERMINATED,
    Reaction.UNKNOWN_SEQUENCE: FaultCode.UNKNOWN_SEQUENCE,
}


class RmDestination:
    """Receives all sequences of one queue, without I/O.

    ``new_identifier`` returns a URI that was never used before. ``address`` is the URL at which
    clients reach this queue. ``held`` is shared by the destinations of all queues. In all methods
    ``now`` is in seconds of the monotonic clock, and ``utc`` is the present time in microseconds
    since 1970.
    """

    flow_class: type[FlowControlObject] = FlowControlObject
    sequence_class: type[InboundSequence] = InboundSequence

    def __init__(
        self,
        address: str,
        new_identifier: Callable[[], str],
        settings: DestinationSettings | None = None,
        held: HeldBytes | None = None,
    ) -> None:
        self.settings = settings or DestinationSettings()
        self._held = held or HeldBytes()
        self._new_identifier = new_identifier
        self.flow = self.flow_class(self.settings.buffer, self.settings.buffer)
        self._sequences: dict[str, InboundSequence] = {}
        self._polled = PolledAddresses()
        self._created: dict[str, str] = {}
        """Identifier of the sequence that each CreateSequence made, by its MessageID."""
        self._lives: Timers[str] = Timers()
        self._owed: Timers[str] = Timers()
        """Times at which acknowledgements are sent to the addresses of sources, by sequence."""
        self._owners: Counter[str] = Counter()
        """Number of sequences that each client has, by the client's name or address."""
        self._dirty: dict[str, None] = {}
        self._removed: list[str] = []
        self._holding: dict[str, InboundSequence] = {}
        """Sequences with messages after a gap, by identifier."""
        self._generation = 0
        self._position = -1
        self._answers = DestinationAnswers(address, self._sequences, self.flow)

    def restore(
        self,
        rows: Iterable[SequenceRow],
        proof: Committed,
        now: float,
        utc: int,
        owner: str = "",
        client: str | None = None,
    ) -> None:
        """Add the sequences that the store has, after a restart.

        ``proof`` proves that ``rows`` are stored. ``owner`` and ``client`` are those of
        :meth:`receive`, for all rows. Each sequence gets its whole inactivity timeout, because this
        process could not answer meanwhile.
        """
        for row in rows:
            sequence = self._add(row, proof, now, owner, client)
            self._live(sequence, now, utc)
            if not sequence.is_anonymous and sequence.state is InboundState.OPEN:
                # The last acknowledgement may have had 0 room. The store does not hold its value.
                self._answers.waits_for_room(sequence)

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[InboundSequence]:
        return iter(self._sequences.values())

    def get(self, identifier: str) -> InboundSequence | None:
        """Return the sequence with this identifier, or ``None`` if it is unknown."""
        return self._sequences.get(identifier)

    # --- what arrives -----------------------------------------------------------------------------

    def receive(
        self,
        message: SoapMessage,
        payload: object,
        now: float,
        utc: int,
        owner: str = "",
        client: str | None = None,
    ) -> ReceiveDecision:
        """Decide about ``message``, note the decision in memory, and return it.

        Nothing is stored or answered yet. ``payload`` is returned in the :class:`InOrderMessage` of
        the message. ``owner`` is the client that sends, for the limit of sequences of one client.
        ``client`` is the client's authenticated name: acknowledgements that wait for one name are
        not given to another.
        """
        content = message.content
        if isinstance(content, CreateSequence):
            return self._create(message, content, now, utc, owner, client)
        if isinstance(content, MakeConnection):
            return self._connection(message, content, now, client)
        if isinstance(content, CloseSequence | TerminateSequence):
            return self._ends(message, content, now, utc)
        if message.sequence is not None:
            return self._numbered(message, payload, now, utc)
        if message.ack_requested:
            return self._asked(message, now, utc)
        if (
            message.acknowledgements
            or message.refused
            or content is not None
            or self._is_ours(message)
        ):
            # No answer is due to an acknowledgement for a sequence that was never offered, to
            # a fault, and to CXF's LastMessage without a Sequence.
            return self._result(AnswerKind.NOTHING, message, None)
        return self._fault(message, not_reliable(message))

    @staticmethod
    def _is_ours(message: SoapMessage) -> bool:
        return (
            any(message.action.startswith(f"{rm.value}/") for rm in RmVersion)
            or message.action == message.addressing.fault
        )

    def _numbered(
        self, message: SoapMessage, payload: object, now: float, utc: int
    ) -> ReceiveDecision:
        header = message.sequence
        assert header is not None, "the caller looked"
        sequence = self._sequences.get(header.identifier)
        if sequence is not None and (wrong := self._other_version(sequence, message)) is not None:
            return self._fault(message, wrong)
        is_copy = sequence is not None and sequence.knows(header.number)
        event = InboundEvent.KNOWN_MESSAGE if is_copy else InboundEvent.NEW_MESSAGE
        reaction = self._happened(sequence, event, now, utc)
        if reaction in _FAULTS or sequence is None:
            return self._fault(
                message, self._fault_for(reaction, message, header.identifier), sequence
            )
        deliveries: tuple[InOrderMessage, ...] = ()
        if reaction is Reaction.TAKE:
            exceeds = sequence.last_number is not None and header.number > sequence.last_number
            if exceeds or (header.is_last and header.number < sequence.highest):
                fault = fault_of(
                    FaultCode.LAST_MESSAGE_NUMBER_EXCEEDED, RmVersion.V1_0, header.identifier
                )
                return self._fault(message, fault, sequence)
            deliveries = self._take(
                sequence,
                InOrderMessage(header.identifier, header.number, message, payload),
                header.is_last,
            )
        return self._result(AnswerKind.ACKNOWLEDGE, message, sequence, deliveries)._replace(
            is_copy=is_copy
        )

    def not_now(self, message: SoapMessage, now: float, utc: int) -> ReceiveDecision:
        """Decide about a numbered message that the queue does not accept at present.

        The message is not taken, so its source keeps it and sends it again. The answer acknowledges
        what is stored.
        """
        assert message.sequence is not None, "only a numbered message waits for its turn"
        sequence = self._sequences.get(message.sequence.identifier)
        if sequence is not None and (wrong := self._other_version(sequence, message)) is not None:
            return self._fault(message, wrong)
        reaction = self._happened(sequence, InboundEvent.ACK_REQUESTED, now, utc)
        if reaction in _FAULTS:
            return self._fault(
                message, self._fault_for(reaction, message, message.sequence.identifier), sequence
            )
        return self._result(AnswerKind.ACKNOWLEDGE, message, sequence)

    def _take(
        self, sequence: InboundSequence, delivery: InOrderMessage, is_last: bool
    ) -> tuple[InOrderMessage, ...]:
        if delivery.number == sequence.accepted + 1:
            before = sequence.held_bytes
            ready = sequence.take(delivery)
            self._held.bytes -= before - sequence.held_bytes
            if not sequence.held:
                self._holding.pop(sequence.identifier, None)
            self._dirty[sequence.identifier] = None
        elif self._may_hold(sequence, size_of(delivery.message)):
            sequence.hold(delivery)
            self._held.bytes += size_of(delivery.message)
            self._holding[sequence.identifier] = sequence
            ready = []
        else:
            # The message is not acknowledged, so its source sends it again.
            return ()
        if is_last:
            sequence.last_number = delivery.number
            self._dirty[sequence.identifier] = None
        delivered = tuple(each for each in ready if not is_last_message(each.message))
        for _ in delivered:
            self.flow.message_received()
        return delivered

    def _may_hold(self, sequence: InboundSequence, size: int) -> bool:
        settings = self.settings
        if (
            len(sequence.held) >= settings.held_max
            or sequence.held_bytes + size > settings.held_bytes_max
        ):
            return False
        return self._held.bytes + size <= settings.held_total_max

    def _asked(self, message: SoapMessage, now: float, utc: int) -> ReceiveDecision:
        """Decide about a message that only requests acknowledgements.

        If one of its sequences is unknown or over, the answer is the fault of the first such
        sequence.
        """
        sequence = None
        for asked in message.ack_requested:
            sequence = self._sequences.get(asked.identifier)
            if (
                sequence is not None
                and (wrong := self._other_version(sequence, message)) is not None
            ):
                return self._fault(message, wrong)
            reaction = self._happened(sequence, InboundEvent.ACK_REQUESTED, now, utc)
            if reaction in _FAULTS:
                return self._fault(
                    message, self._fault_for(reaction, message, asked.identifier), sequence
                )
        return self._result(AnswerKind.ACKNOWLEDGE, message, sequence)

    def _ends(
        self, message: SoapMessage, content: CloseSequence | TerminateSequence, now: float, utc: int
    ) -> ReceiveDecision:
        sequence = self._sequences.get(content.identifier)
        closes = isinstance(content, CloseSequence)
        event = InboundEvent.CLOSE_SEQUENCE if closes else InboundEvent.TERMINATE_SEQUENCE
        if sequence is not None and (wrong := self._other_version(sequence, message)) is not None:
            return self._fault(message, wrong)
        reaction = self._happened(sequence, event, now, utc)
        if reaction in _FAULTS or sequence is None:
            return self._fault(
                message, self._fault_for(reaction, message, content.identifier), sequence
            )
        if content.last_number is not None and sequence.last_number is None:
            sequence.last_number = content.last_number
            self._dirty[sequence.identifier] = None
        return self._result(
            AnswerKind.CLOSED if closes else AnswerKind.TERMINATED, message, sequence
        )

    def _create(
        self,
        message: SoapMessage,
        content: CreateSequence,
        now: float,
        utc: int,
        owner: str,
        client: str | None,
    ) -> ReceiveDecision:
        known = (
            self._sequences.get(self._created.get(message.message_id, ""))
            if message.message_id
            else None
        )
        if known is not None and is_copy(known, message, content):
            # A copy that arrives late makes no second sequence, whatever the state of the first
            # one.
            if known.state is not InboundState.TERMINATED:
                self._live(known, now, utc)
            return self._result(AnswerKind.CREATED, message, known)
        rm = version_of(message)
        if content.acks_to.address == message.addressing.none:
            reason = (
                "AcksTo is the address to which nothing is sent; name an address, or "
                "the anonymous one."
            )
            return self._fault(
                message, fault_of(FaultCode.CREATE_SEQUENCE_REFUSED, rm, reason=reason)
            )
        if not is_storable(content.acks_to, message.addressing):
            reason = (
                "The reference parameters of AcksTo cannot be written again as they "
                "are; leave them out, or simplify them."
            )
            return self._fault(
                message, fault_of(FaultCode.CREATE_SEQUENCE_REFUSED, rm, reason=reason)
            )
        if (most := self._no_room_for(owner, now)) is not None:
            reason = (
                f"There are {most} sequences in use; terminate some, or try again in ten minutes."
            )
            fault = fault_of(
                FaultCode.CREATE_SEQUENCE_REFUSED, rm, reason=reason, blame=Blame.RECEIVER
            )
            return self._fault(message, fault)
        expires_at = utc + content.expires * 1_000 if content.expires else None
        row = SequenceRow(
            self._new_identifier(),
            message.message_id,
            message.soap,
            message.addressing,
            rm,
            content.acks_to,
            InboundState.OPEN,
            0,
            None,
            expires_at,
            return_sequence.taken(content),
        )
        sequence = self._add(row, None, now, owner, client)
        self._dirty[row.identifier] = None
        self._live(sequence, now, utc)
        return self._result(AnswerKind.CREATED, message, sequence)

    def _add(
        self, row: SequenceRow, proof: Committed | None, now: float, owner: str, client: str | None
    ) -> InboundSequence:
        """Put a sequence into the table of sequences and its indexes, and return the sequence.

        ``proof`` is ``None`` for a new sequence.
        """
        sequence = self._sequences[row.identifier] = self.sequence_class(row, proof)
        sequence.owner, sequence.client, sequence.begun_at = owner, client, now
        self._owners[owner] += 1
        if row.create_id:
            self._created[row.create_id] = row.identifier
        sequence.polled = self._polled.add(sequence.identifier, sequence.acks_to.address, client)
        return sequence

    def not_the_same(self, message_id: str) -> None:
        """Forget which sequence the CreateSequence with the MessageID ``message_id`` made.

        Call this if another client sends a CreateSequence with the same MessageID. Its message is
        no copy of the first one.
        """
        self._created.pop(message_id, None)

    def created(self, message_id: str) -> InboundSequence | None:
        """Return the sequence that the CreateSequence with this MessageID made, or ``None``.

        ``None`` is also the result if the sequence was forgotten since.
        """
        return self._sequences.get(self._created.get(message_id, ""))

    def nothing(self, message: SoapMessage) -> ReceiveDecision:
        """Return the decision to answer ``message`` with HTTP status 202 and no content."""
        return self._result(AnswerKind.NOTHING, message, None)

    def put_back(self, before: Iterable[SequenceRow], known: Container[str]) -> None:
        """Undo the decisions about these sequences after an internal error.

        The sequences of ``before`` return to their stored rows. Each of these sequences accepts no
        message until the next start, which reads the store again. Sequences of this destination
        whose identifier is not in ``known`` are removed, because no client was notified of them.
        """
        for row in before:
            sequence = self._sequences.get(row.identifier)
            if sequence is not None:
                sequence.state, sequence.accepted, sequence.last_number = (
                    row.state,
                    row.accepted,
                    row.last_number,
                )
                sequence.is_on_hold = True
                self._drop_held(sequence)
        for identifier in [each for each in self._sequences if each not in known]:
            self._lives.set(identifier, None)
            self._dirty.pop(identifier, None)
            self._forget(self._sequences[identifier])
            self._removed.remove(identifier)

    def unknown(self, message: SoapMessage, identifier: str) -> ReceiveDecision:
        """Return the decision to answer ``message`` with the fault UnknownSequence.

        Call this for a client to which the sequence ``identifier`` does not belong. The answer does
        not show whether the sequence exists.
        """
        return self._fault(
            message, fault_of(FaultCode.UNKNOWN_SEQUENCE, version_of(message), identifier)
        )

    def _connection(
        self, message: SoapMessage, content: MakeConnection, now: float, client: str | None
    ) -> ReceiveDecision:
        """Decide about a MakeConnection: choose the acknowledgement that its address waits for.

        If nothing waits, or another client uses the address, the answer is empty. A request without
        an address that can be polled gets a fault. The poll keeps the sequences of the address
        alive.
        """
        if content.address is None:
            code = (
                FaultCode.MISSING_SELECTION
                if content.identifier is None
                else FaultCode.UNSUPPORTED_SELECTION
            )
            return self._fault(message, fault_of(code, RmVersion.V1_1))
        if not content.address.startswith(MAKE_CONNECTION_ANONYMOUS):
            return self._fault(message, fault_of(FaultCode.UNSUPPORTED_SELECTION, RmVersion.V1_1))
        polled = self._polled.get(content.address)
        if polled is None or polled.is_shared_with_another(client):
            return self.nothing(message)
        # A client that polls is alive: poll() reads this time when a sequence has been silent too
        # long.
        polled.asked_at = now
        return self._result(AnswerKind.CONNECTION, message, self._sequences.get(polled.next_owed))

    def _other_version(self, sequence: InboundSequence, message: SoapMessage) -> SoapFault | None:
        """Return a fault if ``message`` has other versions than ``sequence``, else ``None``.

        A sequence has one version of WS-ReliableMessaging and of WS-Addressing (WCF's R2102), so
        that the peer can read every answer.
        """
        if (message.rm, message.addressing) == (sequence.rm, sequence.addressing):
            return None
        return SoapFault(
            Blame.SENDER,
            "",
            "The sequence was created in another version of WS-ReliableMessaging or WS-Addressing.",
        )

    # --- states -----------------------------------------------------------------------------------

    def _happened(
        self, sequence: InboundSequence | None, event: InboundEvent, now: float, utc: int
    ) -> Reaction:
        if sequence is None:
            return TRANSITIONS[InboundState.UNKNOWN, event].reaction
        step = TRANSITIONS[sequence.state, event]
        if step.state is not sequence.state:
            sequence.state = step.state
            self._drop_held(sequence)
            self._dirty[sequence.identifier] = None
            self._live(sequence, now, utc)
        elif sequence.state is not InboundState.TERMINATED:
            self._live(sequence, now, utc)
        return step.reaction

    def _drop_held(self, sequence: InboundSequence) -> None:
        """Discard the messages of ``sequence`` that wait after a gap.

        They were never acknowledged, so their source still has them and sends them again.
        """
        self._holding.pop(sequence.identifier, None)
        self._held.bytes -= sequence.held_bytes
        sequence.drop_held()

    def _live(self, sequence: InboundSequence, now: float, utc: int) -> None:
        """Set the timer at which ``sequence`` ends if nothing arrives for it.

        The sequence ends at its Expires at the latest. For a terminated sequence, set the time at
        which it is forgotten.
        """
        settings = self.settings
        over = sequence.state is InboundState.TERMINATED
        deadline = now + (settings.terminated_kept if over else settings.inactivity_timeout)
        if sequence.expires_at is not None and not over:
            deadline = min(deadline, now + (sequence.expires_at - utc) / 1e6)
        self._lives.set(sequence.identifier, deadline)

    def _asked_until(self, sequence: InboundSequence, now: float, utc: int) -> float:
        """Return the time until which the last MakeConnection keeps ``sequence`` alive.

        The time is in seconds of the monotonic clock. It is ``now`` if the sequence is terminated
        or its client does not poll.
        """
        if sequence.polled is None or sequence.state is InboundState.TERMINATED:
            return now
        until = sequence.polled.asked_at + self.settings.inactivity_timeout
        return (
            until
            if sequence.expires_at is None
            else min(until, now + (sequence.expires_at - utc) / 1e6)
        )

    def _fault_for(self, reaction: Reaction, message: SoapMessage, identifier: str) -> SoapFault:
        rm, code = version_of(message), _FAULTS[reaction]
        # 1.0 has no closed sequences. An earlier release may have closed one, which accepts no
        # message.
        if not code.is_of(rm):
            code = FaultCode.SEQUENCE_TERMINATED
        return fault_of(code, rm, identifier)

    # --- results ----------------------------------------------------------------------------------

    def _result(
        self,
        kind: AnswerKind,
        message: SoapMessage,
        sequence: InboundSequence | None,
        deliveries: tuple[InOrderMessage, ...] = (),
        fault: SoapFault | None = None,
    ) -> ReceiveDecision:
        if sequence is None:
            return ReceiveDecision(deliveries, kind, message, "", 0, fault, 0)
        if sequence.identifier in self._dirty:
            sequence.generation = self._generation + 1
        return ReceiveDecision(
            deliveries,
            kind,
            message,
            sequence.identifier,
            sequence.accepted,
            fault,
            sequence.generation,
        )

    def _fault(
        self, message: SoapMessage, fault: SoapFault, sequence: InboundSequence | None = None
    ) -> ReceiveDecision:
        return self._result(AnswerKind.FAULT, message, sequence, (), fault)

    @property
    def generation(self) -> int:
        """Return how many times :meth:`changes` was called so far."""
        return self._generation

    @property
    def has_changes(self) -> bool:
        """Return whether :meth:`changes` would return any change."""
        return bool(self._dirty or self._removed)

    def changes(self) -> SequenceChanges:
        """Return the changes of sequences since the last call, and begin to collect anew.

        The changes must be in the next commit, and :attr:`generation` rises by 1.
        """
        self._generation += 1
        rows = [self._sequences[each].row() for each in self._dirty if each in self._sequences]
        removed, self._removed = self._removed, []
        self._dirty.clear()
        return SequenceChanges(rows, removed, self._generation)

    def committed(
        self, received: Sequence[ReceiveDecision], proof: Committed, now: float
    ) -> list[list[Output]]:
        """Return the answers to messages whose changes are stored: one list for each message.

        An answer that must wait for room of the queue is a :class:`RespondLater`. Raises
        :class:`LocalProtocolError` if ``proof`` does not prove the commit of all of them.
        """
        if type(proof) is not Committed or proof.position < self._position:
            raise LocalProtocolError(f"{proof!r} proves no commit after {self._position}")
        self._position = proof.position
        answers: list[list[Output]] = []
        for each in received:
            if each.generation > self._generation:
                raise LocalProtocolError("a message is newer than the changes that were committed")
            sequence = self._sequences.get(each.identifier)
            if sequence is not None:
                sequence.committed(each.accepted, proof)
            if sequence is not None and self._waits_for_room(each, sequence):
                # The stored content is left out: a thousand of the largest messages would be
                # gigabytes.
                bare = each._replace(deliveries=(), request=replace(each.request, body=b""))
                answers.append([RespondLater(bare, now + self.settings.answer_held)])
            else:
                answers.append(self.answer(each, now))
        return answers

    def _waits_for_room(self, received: ReceiveDecision, sequence: InboundSequence) -> bool:
        """Return whether the answer to this message must wait until the queue has room.

        True for a message that was taken, in an open sequence, if the queue has no room and the
        client is a request/reply client. Such a client cannot receive a BufferRemaining of 0, so a
        late answer slows it down instead.
        """
        header = received.request.sequence
        is_taken = header is not None and header.number <= sequence.stored
        is_open = sequence.state is InboundState.OPEN
        return (
            is_taken
            and is_open
            and sequence.is_request_reply
            and not self.flow.get_buffer_remaining()
        )

    def answer(self, received: ReceiveDecision, now: float) -> list[Output]:
        """Return the outputs that answer a message that is stored.

        For an answer that :class:`RespondLater` delayed, call this when the wait is over. A source
        with an address gets an empty answer, and its acknowledgement within
        ``acknowledgement_interval``. If it requested an acknowledgement, the outputs contain it.
        """
        sequence = self._sequences.get(received.identifier)
        if (
            received.kind is AnswerKind.ACKNOWLEDGE
            and sequence is not None
            and not sequence.is_anonymous
        ):
            if not received.request.ack_requested and not self._answers.ends_return_sequence(
                received.request, sequence
            ):
                if sequence.state is not InboundState.TERMINATED and not sequence.is_due:
                    sequence.is_due = True
                    self._owed.set(
                        sequence.identifier, now + self.settings.acknowledgement_interval
                    )
                return [Respond(None)]
            self._owed.set(sequence.identifier, None)
        return self._answers.to(received, sequence)

    # --- room and time ----------------------------------------------------------------------------

    def set_room(self, room: int) -> list[Output]:
        """Set how many more messages the queue can take: SET_BUFFER_REMAINING.

        The value is limited to 0 to the maximum of the settings, both included. Return
        acknowledgements for sources with an address whose last acknowledgement had 0 room, if there
        is room now. Sources that poll get theirs with the next MakeConnection.
        """
        value = max(0, min(room, self.flow.maximum))
        self.flow.set_buffer_remaining(value)
        outputs: list[Output] = []
        if value:
            for identifier in self._answers.take_told_0():
                sequence = self._sequences.get(identifier)
                if (
                    sequence is not None
                    and sequence.last_buffer_remaining == 0
                    and sequence.state is InboundState.OPEN
                ):
                    if not sequence.is_anonymous:
                        self._owed.set(sequence.identifier, None)
                        outputs.append(self._answers.unsolicited(sequence))
                    else:
                        sequence.owe()
        return outputs

    def poll(self, now: float, utc: int) -> list[Output]:
        """Return the acknowledgements that are due by ``now``, and end the sequences that are over.

        A sequence is over if its Expires or the inactivity timeout has passed. The ended sequences
        are in :meth:`changes` afterwards.
        """
        outputs: list[Output] = []
        for identifier in self._owed.due(now):
            sequence = self._sequences.get(identifier)
            if sequence is not None and sequence.state is not InboundState.TERMINATED:
                outputs.append(self._answers.unsolicited(sequence))
        for identifier in self._lives.due(now):
            sequence = self._sequences[identifier]
            if (until := self._asked_until(sequence, now, utc)) > now:
                self._lives.set(identifier, until)
                continue
            sequence.state = TRANSITIONS[sequence.state, InboundEvent.TIME_IS_OVER].state
            if sequence.state is InboundState.UNKNOWN:
                self._forget(sequence)
            else:
                self._drop_held(sequence)
                self._dirty[identifier] = None
                self._live(sequence, now, utc)
        return outputs

    def _no_room_for(self, owner: str, now: float) -> int | None:
        """Return the limit that prevents a new sequence of ``owner``, or ``None`` if there is room.

        Sequences that are over or unused are evicted to make room.
        """
        settings = self.settings
        if self._owners[owner] >= settings.sequences_of_one_max and not self._make_way(now, owner):
            return settings.sequences_of_one_max
        if len(self._sequences) >= settings.sequences_max and not self._make_way(now, None):
            return settings.sequences_max
        return None

    def _make_way(self, now: float, owner: str | None) -> bool:
        """Evict one sequence, of ``owner`` unless that is ``None``; return whether one was evicted.

        The oldest terminated sequence is evicted. If there is none, the oldest sequence that never
        received a message and is older than ``unused_spared`` is evicted. A client that begins a
        sequence for each call must not be refused because of its old sequences. Another client must
        not be refused because of sequences that one client began and left. Sequences with changes
        that are not yet in :meth:`changes` stay.
        """
        mine = [each for each in self._sequences.values() if owner is None or each.owner == owner]
        over = (
            each
            for each in mine
            if each.state is InboundState.TERMINATED and each.identifier not in self._dirty
        )
        found = next(over, None)
        if found is None:
            spared = now - self.settings.unused_spared
            unused = (each for each in mine if each.is_unused and each.begun_at <= spared)
            found = next((each for each in unused if each.identifier not in self._dirty), None)
        if found is None:
            return False
        self._lives.set(found.identifier, None)
        self._forget(found)
        return True

    def _forget(self, sequence: InboundSequence) -> None:
        del self._sequences[sequence.identifier]
        self._polled.remove(sequence.identifier, sequence.acks_to.address, sequence.client)
        self._owners[sequence.owner] -= 1
        if not self._owners[sequence.owner]:
            del self._owners[sequence.owner]
        if self._created.get(sequence.create_id) == sequence.identifier:
            del self._created[sequence.create_id]
        self._owed.set(sequence.identifier, None)
        self._dirty.pop(sequence.identifier, None)
        self._removed.append(sequence.identifier)

    def next_timer(self) -> float | None:
        """Return the time at which :meth:`poll` next has something to do, or ``None`` for never."""
        return min(
            (when for when in (self._owed.next(), self._lives.next()) if when is not None),
            default=None,
        )

    def __repr__(self) -> str:
        return f"<Destination {len(self._sequences)} sequences {self.flow!r}>"
