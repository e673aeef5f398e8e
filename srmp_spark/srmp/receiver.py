"""The receiving half of the protocol ([MC-MQSRM] 3.1.5.1), without any I/O: messages and ``now`` in, effects out.

Theory of operation. :meth:`Receiver.receive` decides about one message and changes the state in memory at once, so that
the next message is judged by it; it never waits for a disk. The caller gathers what it returns, stores the rows of all
``Accepted`` together with :meth:`Receiver.changes` in *one* transaction, syncs, and hands the gathered ones back to
:meth:`Receiver.committed` with the store's proof. Only there an ``Ok`` is born, only there a stream may be acknowledged.

**Judge, then apply.** A message is judged, and its answer is built, before anything changes: whatever fails until then is a
fault inside one request, and its sender may send again. What changes memory comes last, in :meth:`Receiver._apply`, where no
byte of the message is looked into. An exception there is a :class:`MemoryAheadError`.

Memory runs ahead of the disk by one group commit and is never rolled back: when a commit fails the process ends and a new
one starts from what the disk holds (after a failed fsync nothing else is sound). So a ``Repeated`` may repeat something that
is not durable yet. It rides the same road: handed in behind its original, it comes out with it or after it, never before.

Time is ``now``, monotonic seconds, for every decision; ``Arrival.at`` is only written down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from srmp_spark.errors import LocalProtocolError, MemoryAheadError
from srmp_spark.message import Arrival, Message, StreamId, StreamPosition
from srmp_spark.names import FORWARD_QUEUE, NULL_GUID, LocalHosts
from srmp_spark.srmp.decisions import undecided_of
from srmp_spark.srmp.destinations import (
    ORDER_QUEUE_UNREAD_MAX,
    RETRY_AFTER_S,
    Destinations,
    MachineUse,
    QueueState,
    Route,
)
from srmp_spark.srmp.effects import (
    Accepted,
    Changes,
    Committed,
    Ok,
    OwedReceipt,
    Pending,
    Refused,
    Repeated,
    StreamMark,
)
from srmp_spark.srmp.expiry_clock import ExpiryClock
from srmp_spark.srmp.forward_room import ForwardRoom
from srmp_spark.srmp.forwarding import HOPS_MAX, ends_here, unforwardable
from srmp_spark.srmp.history import MessageIdHistory
from srmp_spark.srmp.history_clock import HistoryClock
from srmp_spark.srmp.incoming_streams import IncomingStream, IncomingStreams
from srmp_spark.srmp.message_types import MessageType, message_type
from srmp_spark.srmp.redirection import NO_FORWARDING, Forwarding
from srmp_spark.srmp.stream_effects import (
    DiscardKind,
    RepeatKind,
    SendStreamReceipt,
    StreamReceiptGivenUp,
)
from srmp_spark.srmp.stream_name import StreamName, name_of_house_stream, name_of_queue
from srmp_spark.srmp.stream_room import holder_of
from srmp_spark.srmp.trust_domain import lineage_key

RETRANSMISSION_TIMEOUT_S = 20.0
"""SRMPState.RetransmissionTimeout, Windows' value on a local network ([MC-MQSRM] appendix A <25>)."""
_new = tuple.__new__
"""To fill a NamedTuple without its Python ``__new__``, where every message passes."""
HISTORY_EXPIRY_INTERVAL_S = 3600.0
"""How often old identifiers are looked for: there are 30 days."""
HISTORY_EXPIRY_PAUSE_S = 0.01
"""Between two slices of such a pass, about a millisecond each: 25,000 identifiers a second, more than were let in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverSettings:
    """What an operator may choose."""

    unknown_queue: Literal["reject", "retry"] = "reject"
    """A queue or host that is not ours: 400, on which the sender deletes the message, or 503."""
    expired: Literal["keep", "refuse"] = "keep"
    """2.2.5.1.1 and 2.2.6.17 discard a message that is too late, 3.1.5.1.4 does not check it: keep it and mark the row, or
    take no row (:meth:`Receiver._expired`)."""
    invalid_signature: Literal["keep", "refuse"] = "keep"
    """3.1.5.1.6.1 disregards the message, which loses it unheard: keep it and mark the row, or take no row
    (:meth:`Receiver._discards`)."""
    queue_quota_bytes: int | None = None
    """Answer 503 to new messages for a queue while this much waits in it; ``None``: no quota."""
    machine_quota_bytes: int | None = None
    """Answer 503 to new messages while this much waits in all queues together (QueueManagerQuota); ``None``: no quota."""
    retransmission_timeout: float = RETRANSMISSION_TIMEOUT_S
    """Seconds until a stream receipt that could not be delivered is sent again."""
    forwarding: Forwarding = NO_FORWARDING
    """Redirections of what comes in, and transparent store-and-forward."""


class Receiver:
    """One queue manager's receiving engine."""

    def __init__(
        self,
        identity: str,
        hosts: LocalHosts,
        history: MessageIdHistory,
        streams: IncomingStreams,
        settings: ReceiverSettings,
    ) -> None:
        self.identity = identity
        """QueueManager.Identifier: our GUID."""
        self.history = history
        self.streams = streams
        self.settings = settings
        self.machine = MachineUse()
        """What all queues hold together; the service keeps it up to date."""
        self._destinations = Destinations(hosts, settings.unknown_queue, settings.forwarding)
        self._generation = 0
        self._open = False
        self._position = -1
        self._history_clock = HistoryClock(history.newest)
        self._expiry_due = 0.0
        self._expiry_clock = ExpiryClock()
        self._late_at = 0
        """With ``--expired refuse``: the time by which the message at hand may be too late."""

    # --- queues -------------------------------------------------------------------------------------------------------

    @property
    def queues(self) -> dict[str, QueueState]:
        """The queues by canonical name; change the collection through :meth:`add_queue` and :meth:`remove_queue`."""
        return self._destinations.queues

    def add_queue(
        self,
        name: str,
        transactional: bool = False,
        end: int = 0,
        *,
        multicast: str | None = None,
        paused: bool = False,
        bytes_waiting: int = 0,
        count: int = 0,
        declared: bool = True,
    ) -> QueueState:
        """Make a queue known; ``end`` is the sequence of its last stored row.

        Our order queue is there from the start and may be added once, before its first message, to say where its sequence
        stands. Raises :class:`~srmp_spark.errors.ConfigurationError` if the name or the multicast address is taken.
        """
        queue = QueueState(
            name=name,
            transactional=transactional,
            end=end,
            multicast=multicast,
            paused=paused,
            bytes_waiting=bytes_waiting,
            count=count,
            declared=declared,
            machine=self.machine,
        )
        self._destinations.add(queue)
        self.machine.bytes += bytes_waiting
        return queue

    def declare_queue(self, name: str) -> None:
        """Let a subqueue that remote readers made take messages of senders from now on."""
        self._destinations.declare(name)

    def remove_queue(self, name: str) -> None:
        """Forget a queue and its streams. The identifiers stay known: a repeat must not begin a new queue of that name.

        Streams stay that a redirection may lead to another queue: their rows are there, and their senders go on.
        """
        queue = self._destinations.remove(name)
        self.machine.bytes -= queue.bytes_waiting
        queue.machine = MachineUse()  # what is still counted of it is its own matter
        if self._destinations.may_redirect(name):
            return
        for stream in [
            stream
            for stream in self.streams
            if stream.queue in (name_of_queue(name), name_of_house_stream(name))
        ]:
            self.streams.drop(stream.queue, stream.guid)

    # --- messages -----------------------------------------------------------------------------------------------------

    @property
    def forward_room(self) -> ForwardRoom:
        """Where messages that are forwarded wait for."""
        return self._destinations.forward_room

    def judge(self, message: Message, *, own: bool = False) -> Refused | QueueState:
        """Where a message would go, or why it would be refused whatever came before it; changes nothing (`doctor` asks).

        ``own``: it was made here just now."""
        found = self._destinations.find(message.destination)
        if isinstance(found, Refused):
            return found
        if isinstance(found, Route):
            return self._refuses_route(found, message, own=own) or found.queue
        return self._refuses_kind(found, message) or found

    def refuses_hops(self, message: Message, hops: Sequence[str]) -> Refused | None:
        """Whether a message that others forwarded (``Via``, :mod:`.redirection`) goes round in a loop. Before :meth:`receive`.

        A message passes a queue manager once: we know its identifier, so the second time it would be answered 200 and lost. A
        refusal makes it a dead letter of whoever sent it here.
        """
        section = "RFC 9110 7.6.3"
        if self.identity in hops:
            return Refused(
                400,
                "loop",
                "we forwarded this message, and it came back: redirections lead in a circle",
                section,
            )
        found = self._destinations.find(message.destination)
        if isinstance(found, Route) and found.forwards and len(hops) >= HOPS_MAX:
            return Refused(
                400,
                "too-many-hops",
                f"{len(hops)} queue managers forwarded it, HOPS_MAX is {HOPS_MAX}",
                section,
            )
        return None

    def receive(self, message: Message, arrival: Arrival, now: float) -> Refused | Pending:
        """Decide about a decoded message ([MC-MQSRM] 3.1.5.1.3 to 3.1.5.1.12).

        A refusal changes nothing. Everything else is answered through :meth:`committed`, in the order of the calls. After a
        :class:`MemoryAheadError` the engine must not be asked again; after any other exception nothing has changed.
        """
        if self.settings.expired == "refuse":
            self._late_at = self._expiry_clock.read(arrival.at, now)
        queue = self._destinations.find(message.destination)
        position = message.stream
        if type(queue) is not QueueState:
            if isinstance(queue, Refused):
                return queue
            assert isinstance(queue, Route), "there are three answers"
            return self._receive_by_route(queue, message, arrival, now)
        if queue.paused or queue.receipts_only or queue.transactional is (position is None):
            refused = self._refuses_kind(queue, message)
            if refused is not None:
                return refused
        return self._receive_in(queue, None, message, arrival, now)

    def _receive_by_route(
        self, route: Route, message: Message, arrival: Arrival, now: float
    ) -> Refused | Pending:
        """A message that is led elsewhere, or leaves again."""
        sender = holder_of(arrival.peer, arrival.sender_name)
        refused = self._refuses_route(route, message, own=arrival.transport == "api", sender=sender)
        if refused is not None:
            return refused
        pending = self._receive_in(route.queue, route.stream_name, message, arrival, now)
        if type(pending) is Accepted:
            self._destinations.take(route, sender, pending.sequence)
        return pending

    def _receive_in(
        self,
        queue: QueueState,
        name: StreamName | None,
        message: Message,
        arrival: Arrival,
        now: float,
    ) -> Refused | Pending:
        """A message for ``queue``, which takes its kind; ``name``: what its stream counts by, if not by the queue."""
        position = message.stream
        if position is not None:
            name = name or name_of_queue(queue.name)
            if arrival.transport == "api":
                name = name_of_house_stream(name)
            return self._receive_stream_message(queue, name, message, position, arrival, now)
        lineage, uniquifier = message.lineage, message.uniquifier
        has_identity = lineage != NULL_GUID or uniquifier != 1
        whose = lineage_key(lineage, arrival.transport, arrival.sender_name)
        if has_identity and self.history.seen(whose, uniquifier):
            return Repeated(queue.name, "identifier", None, self._generation + self._open)
        refused = self._not_now(queue, message, arrival)
        if refused is not None:
            return refused
        received_at = self._received_at(arrival, now) if has_identity else None
        accepted = self._accepted(queue, message, arrival, None, (None, None))
        self._apply(queue, accepted, whose, uniquifier, received_at)
        return accepted

    def refuses_in(self, name: str, message: Message, arrival: Arrival) -> Refused | None:
        """Whether a queue of ours takes no new ``message`` now, which came by another protocol with an order and identities of
        its own (WS-ReliableMessaging). Changes nothing."""
        queue = self.queues[name]
        return self._refuses_kind(queue, message) or self._not_now(queue, message, arrival)

    def insert_in(self, name: str, message: Message, arrival: Arrival) -> Accepted:
        """Such a message becomes a row: that it is new, and that its turn has come, has been decided. To be committed."""
        queue = self.queues[name]
        accepted = self._accepted(queue, message, arrival, None, (None, None))
        queue.end = accepted.sequence
        self._open = True
        return accepted

    def move_in(self, name: str) -> Accepted:
        """A message of another queue of ours is in this one from now on ([MS-MQDMPR] 3.1.7.1.16). It was accepted when it came:
        nothing is judged, counted or owed anew. To be committed like any other."""
        queue = self.queues[name]
        queue.end += 1
        self._open = True
        return Accepted(name, queue.end, (), None, self._generation + 1, None)

    def _receive_stream_message(
        self,
        queue: QueueState,
        name: StreamName,
        message: Message,
        position: StreamPosition,
        arrival: Arrival,
        now: float,
    ) -> Refused | Pending:
        """[MC-MQSRM] 3.1.5.1.6.3, then 3.1.5.1.11."""
        stream = self.streams.get(name, position.id.guid)
        begins = position.start and position.current == 1
        is_new = stream is None
        if stream is None:
            if not begins:  # nothing to count it in: a table of streams that never began could be filled by anybody
                return Repeated(queue.name, "gap", None, self._generation + self._open)
            stream = self.streams.stream_class.started(name, position)
        else:
            if stream.is_of_another(arrival.sender_name):
                # Nothing moves, not even a counter. 403: a 200 would be a lie, and a 400 would delete the message of an
                # honest sender that got another subject (queue_manager/writers.py).
                hint = (
                    "if it is the same sender under a new name: srmp-spark streams "
                    f"drop --queue {name}"
                )
                text = (
                    f"stream {stream.id} was begun by {stream.sender_name}; {hint} "
                    f"--stream {stream.id}"
                )
                return Refused(403, "stream-sender", text, "[MC-MQSRM] 5.1")
            if stream.gives_way_to(position, arrival.sender_name):
                stream = self.streams.stream_class.started(name, position)
            else:
                kind = stream.refuses(position)
                if kind is not None:
                    return self._repeat_in_stream(queue.name, stream, position, kind)
        if begins and not position.send_receipts_to:
            return Refused(
                400, "no-receipts-url", "<start> has no <sendReceiptsTo>", "[MC-MQSRM] 2.2.5.3.4"
            )
        lineage, uniquifier = message.lineage, message.uniquifier
        has_identity = lineage != NULL_GUID or uniquifier != 1
        whose = lineage_key(lineage, arrival.transport, arrival.sender_name)
        known = has_identity and self.history.seen(whose, uniquifier)
        discards = None if known else self._discards(message)
        refused = None if known or discards else self._not_now(queue, message, arrival)
        if refused is not None:
            return refused
        if is_new:
            at = self._history_clock.read(arrival.at, now)
            full = self.streams.make_room(arrival.peer, arrival.sender_name, at, now)
            if full is not None:
                text = (
                    f"{full}, and none has rested for a day; drop old ones with "
                    "srmp-spark streams drop"
                )
                return Refused(503, "stream-limit", text, "[MC-MQSRM] 3.1.1.1.6", RETRY_AFTER_S)
        mark = StreamMark(stream, position.id.ordinal, position.current)
        receipts_to = stream.receipts_to_after(position)
        received_at = self._received_at(arrival, now) if has_identity and not known else None
        pending: Accepted | Repeated
        if not known and discards is None:
            pending = self._accepted(queue, message, arrival, mark, (receipts_to, name))
        else:
            asking = undecided_of(message, queue.name, 0, arrival, receipts_to, name)
            if discards is not None:
                pending = Repeated(
                    queue.name, discards, mark, self._generation + 1, discarded=asking
                )
            else:
                # The same message at another place: a sender gave up a stream and began the next with what was left of it.
                # The position counts (3.1.5.1.6.3 stands before 3.1.5.1.11), and the row is there already, or it was too late
                # then.
                pending = Repeated(queue.name, "identifier", mark, self._generation + 1, asking)
        try:
            stream.accept(message, position, arrival)
            self.streams.put(stream)
        except Exception as error:
            raise MemoryAheadError(f"a stream accepted half of a message: {error!r}") from error
        self._apply(queue, pending, whose, uniquifier, received_at)
        return pending

    def _apply(
        self,
        queue: QueueState,
        pending: Accepted | Repeated,
        whose: str,
        uniquifier: int,
        received_at: int | None,
    ) -> None:
        """Change what the next message is judged by: the identifier, unless ``received_at`` is None, and the queue's end."""
        try:
            self._open = True
            if received_at is not None:
                self.history.add(whose, uniquifier, received_at)
            if type(pending) is Accepted:
                queue.end = pending.sequence
        except Exception as error:
            raise MemoryAheadError(f"the engine accepted half of a message: {error!r}") from error

    def _repeat_in_stream(
        self, queue: str, stream: IncomingStream, position: StreamPosition, kind: RepeatKind
    ) -> Repeated:
        mark = None
        if kind == "stale":
            mark = StreamMark(
                stream, position.id.ordinal, 0
            )  # moves nothing: it names the stream, for an operator
        else:
            stream.reject(position, kind)
            self.streams.put(stream)
        if kind == "position":
            mark = StreamMark(stream, stream.ordinal, 0)
        return Repeated(queue, kind, mark, self._generation + self._open)

    def _discards(self, message: Message) -> DiscardKind | None:
        """Why a new message of a stream counts with its position and makes no row; ``None`` for most.

        For both kinds 400 would be a gap for ever (:meth:`_expired`). A signature that does not fit is told as
        NackReceiveRejected, which is what an application that looked at it would say.
        """
        if self.settings.expired == "refuse" and self._expired(message):
            return "expired"
        if message.signature == "invalid" and self.settings.invalid_signature == "refuse":
            return "invalid-signature"
        return None

    def _expired(self, message: Message) -> bool:
        """Whether the message came too late: "beyond which time the message MUST not be processed by the receiver and MUST be
        discarded" ([MC-MQSRM] 2.2.6.17; 2.2.5.1.1 says the same; ``<TTrq>`` takes precedence, 3.1.5.1.4).

        With ``--expired refuse`` one outside a stream is answered 400: it can never succeed, and its sender, who may have asked
        for negative source journaling, hears of it. In a stream that would be the end of the stream: the sender deletes the
        message (3.1.7.2.5), and the ``<previous>`` of the next one still names it, for 3.1.7.2.3 bridges gaps in what is sent
        again alone, and only to a message that is still in the queue. It would be a gap for ever. So its position counts, with
        200 and in the stream receipt, and there is no row. If it asked to be told of its end, it is (NackReceiveTimeout), and
        its identifier is remembered: should it come again at another place, that is told there, and not decided anew.
        """
        expires_at = (
            message.expires_at
            if message.time_to_reach_queue is None
            else message.time_to_reach_queue
        )
        return expires_at is not None and expires_at < self._late_at

    def _not_now(self, queue: QueueState, message: Message, arrival: Arrival) -> Refused | None:
        """Reasons to refuse a message that is new; a repeat is answered 200 before, or its sender would go on for ever."""
        settings = self.settings
        if queue.name == FORWARD_QUEUE and (why := ends_here(message)) is not None:
            return Refused(
                400,
                "unforwardable",
                f"it cannot be sent on as it is: {why}",
                "[MC-MQSRM] 3.1.7.3.3",
            )
        if settings.expired == "refuse" and self._expired(message):
            return Refused(
                400, "expired", "the time to reach the queue is over", "[MC-MQSRM] 2.2.6.17"
            )
        if message.signature == "invalid" and settings.invalid_signature == "refuse":
            return Refused(
                400, "invalid-signature", "the signature does not fit", "[MC-MQSRM] 3.1.5.1.6.1"
            )
        if queue.unread_bytes >= ORDER_QUEUE_UNREAD_MAX:
            text = (
                f"{ORDER_QUEUE_UNREAD_MAX} bytes of receipts wait for the sender "
                "process; the log says why it reads none"
            )
            return Refused(503, "order-queue-full", text, "[MC-MQSRM] 3.1.5.1.12", RETRY_AFTER_S)
        if (
            settings.queue_quota_bytes is not None
            and queue.bytes_waiting >= settings.queue_quota_bytes
        ):
            # 3.1.5.1.12 disregards the message, which loses it; the sender keeps what is answered 5xx.
            hint = "receive from it or raise --queue-quota-bytes"
            return Refused(
                503,
                "quota",
                f"queue {queue.name} is full; {hint}",
                "[MC-MQSRM] 3.1.5.1.12",
                RETRY_AFTER_S,
            )
        if (
            settings.machine_quota_bytes is not None
            and self.machine.bytes >= settings.machine_quota_bytes
        ):
            # The text says 500. A sender keeps the message after either; 503 says when to come again.
            text = "all queues together hold --machine-quota-bytes; receive from them or raise it"
            return Refused(503, "machine-quota", text, "[MC-MQSRM] 3.1.5.1.12", RETRY_AFTER_S)
        return None

    def _accepted(
        self,
        queue: QueueState,
        message: Message,
        arrival: Arrival,
        mark: StreamMark | None,
        stream: tuple[str | None, StreamName | None],
    ) -> Accepted:
        """[MC-MQSRM] 3.1.5.1.12, and the delivery receipt of 3.1.5.1.6.2: the last one on the way owes it. Changes nothing.

        ``stream`` is where the final receipts of its stream go, and what the stream is counted by.
        """
        sequence = queue.end + 1
        owed: tuple[OwedReceipt, ...] = ()
        # A receipt never asks for a receipt: two queue managers would go on writing to each other.
        if (
            message.delivery_receipt_to is not None
            and message_type(message) is MessageType.USER
            and queue.name != FORWARD_QUEUE
        ):
            owed = (
                OwedReceipt(
                    "delivery",
                    message.delivery_receipt_to,
                    queue.name,
                    message.lineage,
                    message.uniquifier,
                    arrival.at,
                    message.action,
                    arrival.peer,
                    arrival.sender_name,
                ),
            )
        undecided = None
        if message.commitment_receipt_to is not None or message.dead_letter:
            undecided = undecided_of(message, queue.name, sequence, arrival, *stream)
        return _new(Accepted, (queue.name, sequence, owed, mark, self._generation + 1, undecided))

    def _refuses_route(
        self, route: Route, message: Message, *, own: bool = False, sender: str = ""
    ) -> Refused | None:
        """What can be neither stored nor sent on where it is led; ``own``: it was made here just now. ``sender``: whose share
        of the destinations it counts in."""
        queue = route.queue
        if not route.forwards:
            return self._refuses_kind(queue, message)
        if message.lineage == self.identity and not own:
            return Refused(
                400,
                "loop",
                "this message is ours, and came back to be forwarded",
                "[MC-MQSRM] 3.1.5.1.3",
            )
        why = unforwardable(message)
        if why is not None:
            return Refused(
                400,
                "unforwardable",
                f"it cannot be sent on as it is: {why}",
                "[MC-MQSRM] 3.1.7.2.4",
            )
        return self._refuses_paused(queue) or self._destinations.refuses_new(route, sender)

    @staticmethod
    def _refuses_paused(queue: QueueState) -> Refused | None:
        if queue.paused:
            return Refused(
                503,
                "paused",
                f"queue {queue.name} is paused; resume it",
                "[MC-MQSRM] 3.1.7.4",
                RETRY_AFTER_S,
            )
        return None

    @classmethod
    def _refuses_kind(cls, queue: QueueState, message: Message) -> Refused | None:
        """The queue is of the wrong kind ([MC-MQSRM] 3.1.5.1.3), or paused."""
        section = "[MC-MQSRM] 3.1.5.1.3"
        if queue.transactional and message.stream is None:
            return Refused(
                400,
                "transactional-queue",
                f"{queue.name} is transactional and takes only stream messages",
                section,
            )
        if message.stream is not None and not queue.transactional:
            return Refused(
                400,
                "not-transactional",
                f"{queue.name} is not transactional and takes no stream messages",
                section,
            )
        if queue.receipts_only and message.receipt is None:
            text = (
                f"{queue.name} takes receipts alone; send what is for an application "
                "to another queue"
            )
            return Refused(400, "order-queue", text, "[MC-MQSRM] 3.1.5.1.5")
        return cls._refuses_paused(queue)

    def _received_at(self, arrival: Arrival, now: float) -> int:
        """When an identifier counts as received; once an hour the old ones are forgotten, slice by slice."""
        at = self._history_clock.read(arrival.at, now)
        if now >= self._expiry_due:
            complete = self.history.expire(at)
            self._expiry_due = now + (
                HISTORY_EXPIRY_INTERVAL_S if complete else HISTORY_EXPIRY_PAUSE_S
            )
        return at

    # --- commit -------------------------------------------------------------------------------------------------------

    def changes(self) -> Changes:
        """What changed in streams and history since the last call, to be written together with the rows accepted since then."""
        self._generation += 1
        self._open = False
        streams, dropped, gaps = self.streams.take_changes()
        return Changes(streams, self.history.take_changes(), dropped, self._generation, gaps)

    def committed(self, pendings: Sequence[Pending], proof: Committed, now: float) -> list[Ok]:
        """The store has synced: what may be answered 200, in the order given; starts the timers of stream receipts.

        Raises :class:`LocalProtocolError` for anything but the store's proof, for a proof older than the last, and for a
        message whose changes were not yet asked for and so cannot be in that commit.
        """
        if type(proof) is not Committed or proof.position < self._position:
            raise LocalProtocolError(f"{proof!r} proves no commit after {self._position}")
        self._position = proof.position
        streams = self.streams
        answers = []
        for pending in pendings:
            if pending.generation > self._generation:
                raise LocalProtocolError(
                    f"{pending!r} is newer than the changes that were committed "
                    f"({self._generation})"
                )
            mark = pending.mark
            if mark is not None:
                mark.stream.stored(mark.ordinal, mark.position, now)
                streams.arm(mark.stream)
            answers.append(Ok(pending, proof))
        return answers

    # --- stream receipts ------------------------------------------------------------------------------------------------

    def next_timer(self) -> float | None:
        """When to call :meth:`due` next, on the monotonic clock; ``None``: nothing is owed."""
        return self.streams.next_timer()

    def due(self, now: float) -> list[SendStreamReceipt]:
        """The stream receipts to send now, at most one for each stream until its delivery or failure is reported."""
        return self.streams.due(now)

    def receipt_delivered(
        self, queue: StreamName, guid: str, stream_id: StreamId, last_ordinal: int, now: float
    ) -> None:
        """The peer answered 200 to a stream receipt."""
        stream = self.streams.get(queue, guid)
        if stream is None or not stream.receipt_on_its_way:
            return  # the stream was dropped, perhaps begun anew, while its receipt was under way
        if stream.receipt_delivered(stream_id, last_ordinal):
            self.streams.put(stream)
        self.streams.arm(stream)

    def receipt_failed(
        self, queue: StreamName, guid: str, now: float, permanent: bool
    ) -> StreamReceiptGivenUp | None:
        """A stream receipt was not delivered. It is owed again after RetransmissionTimeout.

        When the peer's answer was 400 (``permanent``), not before the stream's next message: warn of the value returned.
        """
        stream = self.streams.get(queue, guid)
        if stream is None or not stream.receipt_on_its_way:
            return None
        stream.receipt_failed(now, self.settings.retransmission_timeout, permanent)
        self.streams.arm(stream)
        if permanent:
            return StreamReceiptGivenUp(queue, stream.id, stream.send_receipts_to, stream.committed)
        return None

    def awaits_stream_receipt(self, name: StreamName, stream_id: StreamId, position: int) -> bool:
        """Whether the sender of a stream message was not told yet that it arrived: its final stream receipt must wait.

        ``name`` is what the stream was counted by when the message came (:attr:`.DecisionReceipt.stream_name`).

        3.1.5.1.9.2 takes back there what 3.1.5.1.8.2 must have counted before. Of a stream that is no longer live no stream
        receipt will come.
        """
        stream = self.streams.get(name, stream_id.guid)
        return (
            stream is not None
            and stream.ordinal == stream_id.ordinal
            and stream.last_acknowledged < position
        )

    # --- an operator's decisions (`srmp-spark streams`) ---------------------------------------------------------------

    def accept_gap(self, queue: StreamName, guid: str) -> bool:
        """Give up the positions missing from a stream: the next one is taken that is there. Whether there was a gap.

        That is the lowest one that came since the gap was seen, when it comes again. A second time: whatever comes next.
        It holds for this gap alone, also after a restart. While nothing is missing nothing is given up: else the next message
        that others overtook on the way would be lost, with 200.
        """
        stream = self.streams.get(queue, guid)
        return stream is not None and self.streams.accept_gap(stream)

    def drop_stream(self, queue: StreamName, guid: str) -> bool:
        """Forget a stream, so that the sender's next ``<start>`` begins it whatever its ordinal. Whether it existed."""
        return self.streams.drop(queue, guid)

    def __repr__(self) -> str:
        timer = self.next_timer()
        return (
            f"<Receiver {self.identity} queues={len(self.queues)} "
            f"streams={len(self.streams)} history={len(self.history)} "
            f"changes={self._generation} timer={timer if timer is None else format(timer, '.3f')}>"
        )
