"""The destination (RMD) of one queue: its sequences, its room, and what each message that arrives is answered.

Theory of operation. :meth:`Destination.receive` looks at a message and either answers, or asks for a change to be stored and
answers when it is (:mod:`.destination_effects`). Messages of a sequence are taken in their order and once; a copy is answered
like the first. BufferRemaining is one number for all sequences of the queue, since they share its room. It is advice: a
message that comes at 0 is taken all the same if the queue has place for it, for peers that do not know the extension send on
and would only send it again. Who must not write here, and what a full queue says, is the business of whoever stores.

One-way: an Offer is not accepted. A response of the protocol goes back on its exchange; acknowledgements go there or to
AcksTo, as the source wished when it created the sequence. ReplyTo says nothing about them: CXF sends "none" there and means
neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from srmp_spark.errors import LocalProtocolError
from srmp_spark.timers import Timers
from srmp_spark.wsrm.destination_effects import Effect, Forget, Reply, Send, SequenceRecord, Store, Stored, Unavailable
from srmp_spark.wsrm.elements import (
    Blame,
    CloseSequence,
    CloseSequenceResponse,
    Content,
    CreateSequence,
    CreateSequenceResponse,
    Fault,
    MakeConnection,
    SequenceAcknowledgement,
    SoapMessage,
    TerminateSequence,
    TerminateSequenceResponse,
)
from srmp_spark.wsrm.faults import FaultCode, fault_of
from srmp_spark.wsrm.flow_control import FlowControl
from srmp_spark.wsrm.incoming_sequence import IncomingSequence
from srmp_spark.wsrm.incoming_states import SequenceEvent, SequenceState
from srmp_spark.wsrm.limits import INACTIVITY_TIMEOUT, SEQUENCES_MAX, TERMINATED_KEPT
from srmp_spark.wsrm.namespaces import RmVersion

LAST_MESSAGE = RmVersion.V1_0.action("LastMessage")
"""The action of a message that has a number and no content: 1.0's way to say that a sequence ends."""


@dataclass(slots=True)
class _Pending:
    """A :class:`Store` whose end has not come, and who waits for it."""

    sequence: IncomingSequence
    record: SequenceRecord
    new: int
    """How many messages are in it."""
    waiting: list[tuple[int, SoapMessage]] = field(default_factory=list)
    """Exchanges, and what came on them."""


class Destination:
    """All sequences of one queue. ``now`` is seconds since 1970."""

    def __init__(
        self, flow: FlowControl, *, new_identifier: Callable[[], str], may_call: Callable[[str], bool],
        records: Iterable[SequenceRecord] = (), now: float = 0.0,
    ) -> None:  # fmt: skip
        """``may_call`` is the allow-list; ``records`` are those that are stored."""
        self.flow = flow
        self._new_identifier = new_identifier
        self._may_call = may_call
        self._sequences: dict[str, IncomingSequence] = {}
        self._created: dict[tuple[str, str], str] = {}
        """Owner and MessageID of a CreateSequence: the identifier that it got."""
        self._pending: dict[int, _Pending] = {}
        self._tokens = 0
        self._timers: Timers[str] = Timers()
        for record in records:
            self._add(IncomingSequence(record, now, is_stored=True))

    # --- what arrives -----------------------------------------------------------------------------------------------------

    def receive(self, message: SoapMessage, exchange: int, now: float, owner: str = "") -> list[Effect]:
        """What to do about ``message``; ``exchange`` is whatever stands for the connection that waits for its answer."""
        content = message.content
        if isinstance(content, CreateSequence):
            return self._create(message, content, exchange, now, owner)
        if isinstance(content, CloseSequence | TerminateSequence):
            return self._end(message, content, exchange, now, owner)
        if isinstance(content, MakeConnection):
            return self._fault(message, exchange, FaultCode.UNSUPPORTED_SELECTION)
        if content is not None:
            return [Reply(exchange, None)]  # a fault or a response: nothing of ours waits for one
        if message.sequence is not None:
            return self._message(message, exchange, now, owner)
        if message.ack_requested:
            return self._ack_requested(message, exchange, now, owner)
        if message.rm is not None or message.action in _NAKED_ACKNOWLEDGEMENTS:
            return [Reply(exchange, None)]  # an acknowledgement, CXF's without a header included
        return self._fault(replace(message, rm=RmVersion.V1_1), exchange, FaultCode.WSRM_REQUIRED)

    def _create(self, message: SoapMessage, create: CreateSequence, exchange: int, now: float, owner: str) -> list[Effect]:
        known = self._created.get((owner, message.message_id))
        if known is not None:
            return self._created_again(self._sequences[known], message, exchange)
        refusal = self._why_refused(message, create)
        if refusal:
            blame = Blame.RECEIVER if len(self._sequences) >= SEQUENCES_MAX else Blame.SENDER
            return self._fault(message, exchange, FaultCode.CREATE_SEQUENCE_REFUSED, reason=refusal, blame=blame)
        assert message.rm is not None, "CreateSequence is of a version"
        record = SequenceRecord(
            identifier=self._new_identifier(), create_id=message.message_id, owner=owner, soap=message.soap,
            addressing=message.addressing, rm=message.rm, acks_to=create.acks_to, expires=create.expires,
            expires_at=now + create.expires / 1_000 if create.expires else None,
        )  # fmt: skip
        if record.identifier in self._sequences:
            raise LocalProtocolError(f"an identifier is new, and {record.identifier} is not")
        sequence = IncomingSequence(record, now, is_stored=False)
        self._add(sequence)
        return self._store(sequence, exchange, message)

    def _why_refused(self, message: SoapMessage, create: CreateSequence) -> str:
        addressing = message.addressing
        if not message.message_id:
            return "CreateSequence needs a wsa:MessageID: the answer relates to it"
        if message.reply_to is not None and message.reply_to.address != addressing.anonymous:
            return "the answer to CreateSequence goes back on its connection: make wsa:ReplyTo anonymous"
        acks_to = create.acks_to.address
        if acks_to != addressing.anonymous and not self._may_call(acks_to):
            return "AcksTo is an address that this queue manager may not call (--allow-url)"
        if len(self._sequences) >= SEQUENCES_MAX:
            return f"SEQUENCES_MAX is {SEQUENCES_MAX}: terminate one, or wait until one is over"
        return ""

    def _created_again(self, sequence: IncomingSequence, message: SoapMessage, exchange: int) -> list[Effect]:
        for pending in self._pending.values():
            if pending.sequence is sequence:
                pending.waiting.append((exchange, message))
                return []
        return self._answer(sequence, message, exchange)

    def _message(self, message: SoapMessage, exchange: int, now: float, owner: str) -> list[Effect]:
        assert message.sequence is not None
        number = message.sequence.number
        sequence = self._find(message.sequence.identifier, message, owner)
        if sequence is None:
            return self._fault(message, exchange, FaultCode.UNKNOWN_SEQUENCE, message.sequence.identifier)
        record = sequence.record
        if number <= record.received:
            self._use(sequence, now)
            return self._answer(sequence, message, exchange)
        if record.state is not SequenceState.OPEN:
            is_closed = record.state is SequenceState.CLOSED
            code = FaultCode.SEQUENCE_CLOSED if is_closed else FaultCode.SEQUENCE_TERMINATED
            return self._fault(message, exchange, code, record.identifier)
        lasts = sequence.last_numbers() | ({number} if message.sequence.is_last else set())
        if lasts and max(number, *sequence.held, *lasts) > min(lasts):
            return self._fault(message, exchange, FaultCode.LAST_MESSAGE_NUMBER_EXCEEDED, record.identifier)
        self._use(sequence, now)
        sequence.move(SequenceEvent.MESSAGE)
        taken = sequence.take(number, message)
        if not taken:
            return self._answer(sequence, message, exchange)
        ends = [each.number for each in taken if each.message.sequence is not None and each.message.sequence.is_last]
        if ends:
            sequence.record = replace(sequence.record, last_number=ends[0])
        rows = tuple(each for each in taken if each.message.action != LAST_MESSAGE or each.message.body)
        effects = self._store(sequence, exchange, message, new=len(rows))
        store = effects[0]
        assert isinstance(store, Store)
        return [replace(store, messages=rows)]

    def _ack_requested(self, message: SoapMessage, exchange: int, now: float, owner: str) -> list[Effect]:
        found = [self._find(each.identifier, message, owner) for each in message.ack_requested]
        known = [each for each in found if each is not None]
        if len(known) < len(found):
            missing = next(asked for asked, each in zip(message.ack_requested, found, strict=True) if each is None)
            return self._fault(message, exchange, FaultCode.UNKNOWN_SEQUENCE, missing.identifier)
        for sequence in known:
            self._use(sequence, now)
            sequence.move(SequenceEvent.ACK_REQUESTED)
        return self._answer(known[0], message, exchange, known[1:])

    def _end(
        self, message: SoapMessage, content: CloseSequence | TerminateSequence, exchange: int, now: float, owner: str
    ) -> list[Effect]:
        sequence = self._find(content.identifier, message, owner)
        if sequence is None:
            return self._fault(message, exchange, FaultCode.UNKNOWN_SEQUENCE, content.identifier)
        self._use(sequence, now)
        record = sequence.record
        event = SequenceEvent.CLOSE if isinstance(content, CloseSequence) else SequenceEvent.TERMINATE
        changes: dict[str, object] = {}
        if record.state is SequenceState.OPEN and content.last_number is not None:
            changes["last_number"] = content.last_number
        if event is SequenceEvent.TERMINATE and record.terminated_at is None:
            changes["terminated_at"] = now
        if sequence.move(event, **changes):
            return self._store(sequence, exchange, message)
        return self._answer(sequence, message, exchange)

    # --- what became of it ------------------------------------------------------------------------------------------------

    def stored(self, proof: Stored, now: float) -> list[Effect]:
        """It is on stable storage: here are the answers."""
        pending = self._pending.pop(proof.token, None)
        if pending is None:
            raise LocalProtocolError(f"nothing waits for {proof}, or what came before it was not stored")
        sequence = pending.sequence
        if any(each.sequence is sequence for token, each in self._pending.items() if token < proof.token):
            raise LocalProtocolError(f"{proof} came before what was to be stored first")
        sequence.synced = pending.record
        sequence.is_stored = True
        for _ in range(pending.new):
            self.flow.message_received()
        self._watch(sequence, now)
        effects: list[Effect] = []
        for exchange, message in pending.waiting:
            effects += self._answer(sequence, message, exchange)
        return effects

    def not_stored(self, token: int) -> list[Effect]:
        """It is not stored, nor is what came behind it for the same sequence: all may come again."""
        if token not in self._pending:
            raise LocalProtocolError(f"nothing waits for {token}")
        sequence = self._pending[token].sequence
        failed = [each for each, pending in self._pending.items() if pending.sequence is sequence and each >= token]
        waiting = [exchange for each in failed for exchange, _ in self._pending.pop(each).waiting]
        before = [pending.record for pending in self._pending.values() if pending.sequence is sequence]
        if before:
            sequence.record = before[-1]
            sequence.drop_held()
        else:
            sequence.roll_back()
            if not sequence.is_stored:
                self._remove(sequence)
        return [Unavailable(exchange) for exchange in waiting]

    def set_buffer_remaining(self, new: int) -> list[Effect]:
        """SET_BUFFER_REMAINING ([MS-WSRVCRM] 3.1.7.4), by who keeps the queue. Sources that were told 0, and can be
        called, hear of it."""
        self.flow.set_buffer_remaining(new)
        return self._tell_of_room()

    def message_processed(self) -> list[Effect]:
        """MESSAGE_PROCESSED (3.1.7.2): a message was read."""
        self.flow.message_processed()
        return self._tell_of_room()

    def _tell_of_room(self) -> list[Effect]:
        if not self.flow.get_buffer_remaining():
            return []
        return [
            Send(sequence.synced.acks_to, self._acknowledging((sequence,)))
            for sequence in self._sequences.values()
            if sequence.told == 0
            and sequence.synced.state is SequenceState.OPEN
            and sequence.synced.acks_to.address != sequence.synced.addressing.anonymous
        ]

    # --- time -------------------------------------------------------------------------------------------------------------

    def next_due(self) -> float | None:
        """When :meth:`due` wants to be called, at the earliest."""
        return self._timers.next()

    def due(self, now: float) -> list[Effect]:
        """Sequences whose time is over are terminated, and those that are terminated for long are forgotten."""
        effects: list[Effect] = []
        for identifier in self._timers.due(now):
            sequence = self._sequences[identifier]
            self._timers.set(identifier, now + INACTIVITY_TIMEOUT)  # if what follows is not stored
            if any(pending.sequence is sequence for pending in self._pending.values()):
                continue
            if sequence.record.state is SequenceState.TERMINATED:
                self._remove(sequence)
                effects.append(Forget(identifier))
            elif sequence.move(SequenceEvent.TIME_OVER, terminated_at=now):
                effects += self._store(sequence)
        return effects

    def _watch(self, sequence: IncomingSequence, now: float) -> None:
        record = sequence.record
        if record.state is SequenceState.TERMINATED:
            when = (now if record.terminated_at is None else record.terminated_at) + TERMINATED_KEPT
        else:
            when = min(sequence.used_at + INACTIVITY_TIMEOUT, record.expires_at or float("inf"))
        self._timers.set(record.identifier, when)

    def _use(self, sequence: IncomingSequence, now: float) -> None:
        sequence.used_at = now
        self._watch(sequence, now)

    # --- tables -----------------------------------------------------------------------------------------------------------

    def sequences(self) -> tuple[SequenceRecord, ...]:
        """What is stored."""
        return tuple(each.synced for each in self._sequences.values() if each.is_stored)

    def _add(self, sequence: IncomingSequence) -> None:
        record = sequence.record
        self._sequences[record.identifier] = sequence
        self._created[record.owner, record.create_id] = record.identifier
        self._watch(sequence, sequence.used_at)

    def _remove(self, sequence: IncomingSequence) -> None:
        record = sequence.record
        del self._sequences[record.identifier], self._created[record.owner, record.create_id]
        self._timers.set(record.identifier, None)

    def _find(self, identifier: str, message: SoapMessage, owner: str) -> IncomingSequence | None:
        """The sequence, if it is the sender's, in the version in which it was created, and stored."""
        found = self._sequences.get(identifier)
        if found is None or not found.is_stored or found.record.owner != owner or found.record.rm is not message.rm:
            return None
        return found

    def _store(self, sequence: IncomingSequence, exchange: int | None = None, message: SoapMessage | None = None,
               new: int = 0) -> list[Effect]:  # fmt: skip
        self._tokens += 1
        waiting = [(exchange, message)] if exchange is not None and message is not None else []
        self._pending[self._tokens] = _Pending(sequence, sequence.record, new, waiting)
        return [Store(self._tokens, sequence.record)]

    # --- answers ----------------------------------------------------------------------------------------------------------

    def _answer(
        self, sequence: IncomingSequence, message: SoapMessage, exchange: int, others: Iterable[IncomingSequence] = ()
    ) -> list[Effect]:
        """What ``message`` is answered, by what is stored."""
        stored, content = sequence.synced, message.content
        if isinstance(content, CreateSequence):
            created = CreateSequenceResponse(stored.identifier, stored.expires)
            return [Reply(exchange, self._reply(message, "CreateSequenceResponse", created))]
        acknowledged = (sequence, *others)
        if isinstance(content, CloseSequence | TerminateSequence):
            if stored.rm is RmVersion.V1_0:
                return [Reply(exchange, None)]
            response = TerminateSequenceResponse if isinstance(content, TerminateSequence) else CloseSequenceResponse
            acks = self._acknowledgements(acknowledged)
            reply = self._reply(message, response.__name__, response(stored.identifier))
            return [Reply(exchange, replace(reply, acknowledgements=acks))]
        if stored.acks_to.address == stored.addressing.anonymous:
            return [Reply(exchange, replace(self._acknowledging(acknowledged), relates_to=message.message_id))]
        return [Reply(exchange, None), Send(stored.acks_to, self._acknowledging(acknowledged))]

    def _acknowledging(self, sequences: Iterable[IncomingSequence]) -> SoapMessage:
        """A message that holds acknowledgements and nothing else."""
        sequences = tuple(sequences)
        stored = sequences[0].synced
        return SoapMessage(
            soap=stored.soap, addressing=stored.addressing, rm=stored.rm, action=stored.rm.action("SequenceAcknowledgement"),
            to=stored.acks_to.address, parameters=stored.acks_to.reference_parameters,
            acknowledgements=self._acknowledgements(sequences),
        )  # fmt: skip

    def _acknowledgements(self, sequences: Iterable[IncomingSequence]) -> tuple[SequenceAcknowledgement, ...]:
        return tuple(each.acknowledgement(self.flow.get_buffer_remaining()) for each in sequences)

    def _reply(self, message: SoapMessage, name: str, content: Content) -> SoapMessage:
        assert message.rm is not None
        return SoapMessage(
            soap=message.soap, addressing=message.addressing, rm=message.rm, action=message.rm.action(name),
            to=message.addressing.anonymous, relates_to=message.message_id, content=content,
        )  # fmt: skip

    def _fault(
        self, message: SoapMessage, exchange: int, code: FaultCode, identifier: str = "", *, reason: str = "",
        blame: Blame | None = None,
    ) -> list[Effect]:  # fmt: skip
        assert message.rm is not None
        fault: Fault = fault_of(code, message.rm, identifier, reason, blame=blame)
        return [Reply(exchange, self._reply(message, "fault", fault))]


_NAKED_ACKNOWLEDGEMENTS = frozenset(rm.action("SequenceAcknowledgement") for rm in RmVersion)
