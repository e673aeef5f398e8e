"""Destinations of all queues: from a decoded message to rows, sequences and an answer.

The steps are in this order::

    message → Destination.receive → Received ─┬→ rows: Acceptor.insert ──┐
                                              └→ sequences: saver ───────┴→ one transaction
                                                             → Committed → answers

A *destination* (:class:`.RmDestination`) is the engine of one queue. The rows of a message and the
counts of its sequence are in one transaction. The journal calls :meth:`_save` for the counts in the
same write that holds the rows.

**Internal faults.** An exception while a destination decides about one message affects that message
only. The stored state of its sequence is put back as it was before, and the sequence accepts
nothing more until the next start. Its client is answered 503, and all other sequences continue
(:meth:`ReliableQueues._put_back`). An exception *after* the decision, between the rows and the
journal, is different: memory may be ahead of the disk. Then the process ends without an answer, as
in :mod:`srmp_spark.queue_manager.admission.acceptor`.

**BufferRemaining** is the free room of the queue: ``--wsrm-buffer`` less the messages that the
default consumer has not received. A slow or stopped query thus leads to 0. The room is computed
again for each mark of the query. A client that was sent 0 and has an address is notified at once
when there is room.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from srmp_spark.errors import ProcessMustEndError
from srmp_spark.log_once import OncePerKey
from srmp_spark.message import Arrival, Message
from srmp_spark.names import quote_queue_name
from srmp_spark.queue_manager.admission.requester import Unawaited
from srmp_spark.queue_manager.alarm import Alarm
from srmp_spark.queue_manager.api.port_side.times import rfc3339
from srmp_spark.rows.group import Record
from srmp_spark.rows.reliable import message_of_soap
from srmp_spark.srmp.receiving.stream_room import holder_of
from srmp_spark.store.answered_together import AnsweredTogether
from srmp_spark.store.tables import wsrm_sequences
from srmp_spark.store.tables.wsrm_sequences import SequenceClient, StoredSequence
from srmp_spark.wsrm.codec.elements import (
    CloseSequence,
    CreateSequence,
    SoapFault,
    SoapMessage,
    TerminateSequence,
)
from srmp_spark.wsrm.limits import ANSWERS_HELD_MAX
from srmp_spark.wsrm.receiving.destination import RmDestination
from srmp_spark.wsrm.receiving.destination_effects import (
    AnswerKind,
    DestinationSettings,
    Output,
    ReceiveDecision,
    Respond,
    RespondLater,
    SequenceRow,
)
from srmp_spark.wsrm.receiving.inbound_sequence import HeldBytes, InboundSequence
from srmp_spark.wsrm.receiving.inbound_states import InboundState

if TYPE_CHECKING:
    import sqlite3

    from srmp_spark.queue_manager.service import QueueManager
    from srmp_spark.queue_manager.wsrm.sending import WsrmSender
    from srmp_spark.srmp.receiving.effects import Committed, Refused

log = logging.getLogger(__name__)


class WaitingRequest(Protocol):
    """The request that waits for the outcome of its message: :class:`.inbox.SoapRequest`."""

    def respond(self, respond: Respond) -> None:
        """Answer with the response that the destination decided."""

    def fail(self) -> None:
        """Answer 503 because of an internal error."""


SEQUENCES_SHOWN_MAX = 1_000
"""Most sequences that ``status`` shows.

The Delta table ``wsrm_sequences`` contains all sequences.
"""
_ANY, _ANY_ARRIVAL = Message("", durable=True), Arrival(0, "wsrm", "")
"""An empty message and arrival, to ask whether a queue accepts any new message."""


def _owner(origin: SequenceClient) -> str:
    """Return the owner in whose share of the table a sequence counts.

    The owner is the subject of the client's certificate, or else the host of its address.
    """
    return holder_of(origin.peer, origin.sender_name)


def _named_by(message: SoapMessage, destination: RmDestination) -> Iterator[InboundSequence]:
    """Yield the sequences of ``destination`` whose state ``message`` may change."""
    content = message.content
    names = [each.identifier for each in message.ack_requested]
    if message.sequence is not None:
        names.append(message.sequence.identifier)
    if isinstance(content, CloseSequence | TerminateSequence):
        names.append(content.identifier)
    for name in dict.fromkeys(names):
        if (found := destination.get(name)) is not None:
            yield found


class _Waiting(NamedTuple):
    """A message that waits for its commit, and the request to answer after that."""

    destination: RmDestination
    queue: str
    received: ReceiveDecision
    origin: SequenceClient
    answer: WaitingRequest


class ReliableQueues:
    """Holds the destinations of all queues that got messages of WS-ReliableMessaging.

    The destination of a queue is created when its first message arrives. All methods run in the
    loop.
    """

    def __init__(
        self,
        manager: QueueManager,
        sender: WsrmSender,
        new_identifier: Callable[[], str],
        stored: Iterable[StoredSequence],
        settings: DestinationSettings,
        base: str,
    ) -> None:
        """Restore the sequences ``stored``, which the last run left in the database.

        ``new_identifier`` returns a URI that was never used. ``base`` is the URL of the port.
        """
        self._base = base
        self._manager = manager
        self._sender = sender
        self._new_identifier = new_identifier
        self._settings = settings
        self._held = HeldBytes()
        self._loop = asyncio.get_running_loop()
        self._destinations: dict[str, RmDestination] = {}
        self._origins: dict[str, SequenceClient] = {}
        self._waiting = AnsweredTogether(manager.journal, self._committed)
        self._late: dict[str, list[tuple[RespondLater, SequenceClient, WaitingRequest]]] = {}
        """For each queue the answers that wait for room in it, in the order of their time."""
        self._alarm = Alarm(self._loop, self._due, manager.clock.monotonic)
        self._closed = False
        self._faults: OncePerKey[tuple[str, str]] = OncePerKey()
        """Kinds of faults and of internal errors that were logged, by queue."""
        manager.journal.savers.append(self._save)
        now, utc, proof = manager.clock.monotonic(), manager.clock.utc(), manager.journal.proof()
        for each in stored:
            self._origins[each.row.identifier] = each.origin
            self.destination(each.queue).restore(
                [each.row], proof, now, utc, _owner(each.origin), each.origin.sender_name
            )
        self._arm()

    def __repr__(self) -> str:
        return f"<ReliableQueues {len(self._destinations)} queues {len(self._origins)} sequences>"

    def destination(self, queue: str) -> RmDestination:
        """Return the destination of the queue ``queue``, and create it if necessary.

        The queue need not exist.
        """
        found = self._destinations.get(queue)
        if found is None:
            address = f"{self._base}/wsrm/{quote_queue_name(queue)}"
            found = self._destinations[queue] = RmDestination(
                address, self._new_identifier, self._settings, self._held
            )
            found.set_room(self._room(queue))
        entry = self._manager.catalogue.get(queue)
        if entry is not None and entry.on_marks is None:
            # This also holds for a queue that was deleted and created again.
            entry.on_marks = partial(self._loop.call_soon, self._room_changed, queue)
        return found

    def status(self, sees: Callable[[str], bool]) -> list[dict[str, Any]]:
        """Return the list ``status.incoming_sequences``, with the queues that ``sees`` allows.

        Open sequences are first, then the newest ones. There are at most SEQUENCES_SHOWN_MAX.
        """
        found = [
            (queue, each, self._origins[each.identifier])
            for queue, destination in self._destinations.items()
            if sees(queue)
            for each in destination
            if each.identifier in self._origins
        ]
        found.sort(
            key=lambda entry: (entry[1].state is not InboundState.OPEN, -entry[2].created_at)
        )
        return [
            {
                "queue": queue,
                "sequence": each.identifier,
                "state": each.state.name,
                "acknowledged": each.stored,
                "held": len(each.held),
                "last_number": each.last_number,
                "buffer_remaining": None
                if each.last_buffer_remaining < 0
                else each.last_buffer_remaining,
                "peer": origin.peer,
                "created_at": rfc3339(origin.created_at),
            }
            for queue, each, origin in found[:SEQUENCES_SHOWN_MAX]
        ]

    # --- messages ---------------------------------------------------------------------------------

    def receive(
        self,
        queue: str,
        message: SoapMessage,
        record: Record,
        origin: SequenceClient,
        answer: WaitingRequest,
    ) -> None:
        """Decide about a message, submit its rows, and answer when they are on stable storage.

        The call does not wait for that. After an internal error before anything was submitted,
        ``answer`` gets a 503. Raises :class:`ProcessMustEndError` if the process is about to end.
        """
        destination = self.destination(queue)
        sequence = (
            None if message.sequence is None else destination.get(message.sequence.identifier)
        )
        if sequence is not None and sequence.is_on_hold:
            answer.fail()
            return
        before = [each.row() for each in _named_by(message, destination)]
        try:
            received = self._decided(destination, queue, message, record, origin)
        except Exception:
            self._put_back(destination, queue, message, before)
            answer.fail()
            return
        try:
            self._submit(destination, queue, received, origin, answer)
        except ProcessMustEndError:
            raise
        except Exception as error:
            log.exception("wsrm.fatal queue=%s", queue)
            raise self._manager.journal.abandon("taking a message", error) from error

    def _decided(
        self,
        destination: RmDestination,
        queue: str,
        message: SoapMessage,
        record: Record,
        origin: SequenceClient,
    ) -> ReceiveDecision:
        refused = self._not_now(destination, queue, message, record)
        now, utc = self._manager.clock.monotonic(), self._manager.clock.utc()
        if (named := self._not_of(message, origin)) is not None:
            return destination.unknown(message, named)
        if refused is not None:
            # The message stays at its client: it is not acknowledged, and takes no room.
            # BufferRemaining exists for this case.
            self._manager.metrics.refuse(refused.status, refused.reason)
            received = destination.not_now(message, now, utc)
        else:
            if isinstance(message.content, CreateSequence):
                self._tell_apart(destination, message, origin)
            received = destination.receive(
                message, record, now, utc, _owner(origin), origin.sender_name
            )
        if received.kind is AnswerKind.CREATED:
            self._origins.setdefault(received.identifier, origin)
        elif received.fault is not None:
            self._tell_fault(queue, origin, received.fault)
        elif received.kind in (AnswerKind.CLOSED, AnswerKind.TERMINATED):
            self._tell_holes(queue, destination.get(received.identifier), origin)
        return received

    def _put_back(
        self,
        destination: RmDestination,
        queue: str,
        message: SoapMessage,
        before: list[SequenceRow],
    ) -> None:
        """Undo the effects of a message on its sequences, because of an internal error.

        The sequences that the message names get back their stored state ``before``, and accept
        nothing more until the next start. The error is logged and counted.
        """
        shape = (
            f"{message.rm.name if message.rm else None} "
            f"{type(message.content).__name__} {message.sequence is not None}"
        )
        if self._faults.is_new((queue, shape)):
            log.exception(
                "wsrm.failed queue=%s shape=%s: the message was answered 503, and its "
                "sequence accepts nothing until the next start",
                queue,
                shape,
            )
        self._manager.metrics.refuse(503, "internal")
        destination.put_back(before, known=self._origins.keys())

    def _tell_fault(self, queue: str, origin: SequenceClient, fault: SoapFault) -> None:
        """Count a fault in the metrics, and log it once for each queue and kind of fault.

        At most KEYS_MAX pairs are logged. A client seldom shows its user the fault that it
        received.
        """
        name = fault.subcode.rpartition("}")[2] or "Fault"
        self._manager.metrics.refuse(400, f"wsrm-{name}")
        if self._faults.is_new((queue, name)):
            log.warning(
                'wsrm.fault queue=%s peer=%s fault=%s reason="%s"',
                queue,
                origin.peer,
                name,
                fault.reason,
            )

    @staticmethod
    def _tell_holes(queue: str, sequence: InboundSequence | None, origin: SequenceClient) -> None:
        """Log a warning if a sequence that has ended has missing messages.

        The client gives up the messages for which it never received an acknowledgement.
        """
        if (
            sequence is not None
            and sequence.last_number is not None
            and sequence.last_number > sequence.accepted
        ):
            log.warning(
                "wsrm.ended_with_holes queue=%s peer=%s sequence=%s stored=%d last=%d: "
                "the messages in between were not acknowledged; the sender must send them again",
                queue,
                origin.peer,
                sequence.identifier,
                sequence.accepted,
                sequence.last_number,
            )

    def _not_of(self, message: SoapMessage, origin: SequenceClient) -> str | None:
        """Return an identifier in ``message`` of a sequence of another client, or ``None``.

        Two clients differ if their certificates differ, or if only one of them has a certificate.
        """
        content = message.content
        named = [each.identifier for each in message.ack_requested]
        if message.sequence is not None:
            named.append(message.sequence.identifier)
        if isinstance(content, CloseSequence | TerminateSequence):
            named.append(content.identifier)
        for each in named:
            began = self._origins.get(each)
            if began is not None and began.sender_name != origin.sender_name:
                return each
        return None

    def _tell_apart(
        self, destination: RmDestination, message: SoapMessage, origin: SequenceClient
    ) -> None:
        """Make a CreateSequence count as new if another client used the same MessageID before.

        Without this the message would count as a copy of that client's CreateSequence.
        """
        known = destination.created(message.message_id)
        began = None if known is None else self._origins.get(known.identifier)
        if began is None:
            return
        same_host = began.peer.rpartition(":")[0] == origin.peer.rpartition(":")[0]
        if began.sender_name != origin.sender_name or (
            origin.sender_name is None and not same_host
        ):
            destination.not_the_same(message.message_id)

    def _not_now(
        self, destination: RmDestination, queue: str, message: SoapMessage, record: Record
    ) -> Refused | None:
        """Return the refusal of a new message at present (a quota, a pause), or ``None``.

        The result is ``None`` too for a copy of a message, which is answered in any state of the
        queue.
        """
        header = message.sequence
        known = None if header is None else destination.get(header.identifier)
        if header is None or known is None or known.knows(header.number):
            return None
        return self._manager.receiver.refuses_in(queue, message_of_soap(message), record.arrival)

    def _submit(
        self,
        destination: RmDestination,
        queue: str,
        received: ReceiveDecision,
        origin: SequenceClient,
        answer: WaitingRequest,
    ) -> None:
        """Submit the rows of a message and the counts of its sequence to the journal.

        The rows are first, because the acceptor's callback must report them to the catalogue before
        the callback of this class computes the room.
        """
        manager = self._manager
        for delivery in received.deliveries:
            record = delivery.payload
            assert isinstance(record, Record), "it was given as the payload"
            manager.acceptor.insert(queue, message_of_soap(delivery.message), record, Unawaited())
        if received.is_copy:
            manager.metrics.duplicates[queue, "number"] += 1
        callback = self._waiting.add(_Waiting(destination, queue, received, origin, answer))
        manager.journal.submit(
            None, callback, must_commit=received.generation > destination.generation
        )
        self._arm()

    def _save(self, connection: sqlite3.Connection) -> None:
        """Write the changed state of all sequences in the journal's transaction.

        The journal calls this method. Removed sequences are forgotten.
        """
        utc = self._manager.clock.utc()
        for queue, destination in self._destinations.items():
            if not destination.has_changes:
                continue
            changes = destination.changes()
            wsrm_sequences.save(
                connection, queue, changes.sequences, changes.removed, self._origins, utc
            )
            for identifier in changes.removed:
                self._origins.pop(identifier, None)

    def _committed(self, batch: list[_Waiting], proof: Committed) -> None:
        now = self._manager.clock.monotonic()
        for queue in dict.fromkeys(waiting.queue for waiting in batch):
            self._room_changed(queue)
        for waiting in batch:
            try:
                (outputs,) = waiting.destination.committed([waiting.received], proof, now)
            except Exception:
                # The message is stored. Its client repeats it, and all other messages are answered.
                log.exception("wsrm.answer_failed queue=%s", waiting.queue)
                waiting.answer.fail()
                continue
            for output in outputs:
                if isinstance(output, RespondLater):
                    self._late.setdefault(waiting.queue, []).append(
                        (output, waiting.origin, waiting.answer)
                    )
            self._say(outputs, waiting.origin, waiting.answer)
        for queue, late in self._late.items():
            self._answer_late(queue, late[: max(0, len(late) - ANSWERS_HELD_MAX)])
        self._arm()

    def _say(
        self,
        outputs: list[Output],
        origin: SequenceClient | None = None,
        answer: WaitingRequest | None = None,
    ) -> None:
        for output in outputs:
            if isinstance(output, RespondLater):
                continue
            if isinstance(output, Respond):
                assert answer is not None, "only a request is answered"
                try:
                    answer.respond(output)
                except Exception:
                    # A bug that concerns one connection must not leave the others without their
                    # answers.
                    log.exception("wsrm.answer_failed")
                    answer.fail()
                continue
            acks = output.message.acknowledgements
            known = self._origins.get(acks[0].identifier) if acks else None
            whose = known or origin
            if whose is not None:
                self._sender.send(output, whose)

    # --- room and time ----------------------------------------------------------------------------

    def _room(self, queue: str) -> int:
        """Return the number of messages that fit into the queue. It may be negative.

        The room is ``--wsrm-buffer`` less the messages that the default consumer has not received,
        and less the messages that are being written to the disk. The room is 0 while the queue is
        paused, at its quota, or missing.
        """
        entry = self._manager.catalogue.get(queue)
        receiver = self._manager.receiver
        if (
            entry is None
            or queue not in receiver.queues
            or receiver.refuses_in(queue, _ANY, _ANY_ARRIVAL) is not None
        ):
            return 0
        return self._settings.buffer - entry.state.count - (entry.state.end - entry.end)

    def _room_changed(self, queue: str) -> None:
        destination = self._destinations.get(queue)
        if destination is not None and not self._closed:
            self._say(destination.set_room(self._room(queue)))
            if destination.flow.get_buffer_remaining():
                self._answer_late(queue, self._late.get(queue, []))

    def _answer_late(
        self, queue: str, these: list[tuple[RespondLater, SequenceClient, WaitingRequest]]
    ) -> None:
        """Give the waiting answers ``these`` of ``queue``, and remove them.

        They must be the first ones that wait.
        """
        if not these:
            return
        these = list(these)
        del self._late[queue][: len(these)]
        now = self._manager.clock.monotonic()
        for later, origin, answer in these:
            self._say(self._destinations[queue].answer(later.received, now), origin, answer)

    def _arm(self) -> None:
        times = [
            when for each in self._destinations.values() if (when := each.next_timer()) is not None
        ]
        times += [late[0][0].until for late in self._late.values() if late]
        if times and not self._closed:
            self._alarm.by(min(times))

    def _due(self) -> None:
        now, utc = self._manager.clock.monotonic(), self._manager.clock.utc()
        for destination in self._destinations.values():
            self._say(destination.poll(now, utc))
            if destination.has_changes:
                self._manager.journal.touch()
        for queue, late in self._late.items():
            self._answer_late(queue, [each for each in late if each[0].until <= now])
        self._arm()

    def close(self) -> None:
        """Stop the timer for good. Answers that wait are not given."""
        self._closed = True
        self._alarm.stop()
