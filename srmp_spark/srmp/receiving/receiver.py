"""The receiving half of the protocol ([MC-MQSRM] 3.1.5.1): takes messages and ``now``.

The engine does no I/O and returns effects. Theory of operation. :meth:`Receiver.receive` decides
about one message and changes the state in memory at once, so that the next message is judged by the
new state. The method never waits for a disk. The caller collects the results, stores the rows of
all ``Accepted`` together with :meth:`Receiver.changes` in *one* transaction, and syncs. The caller
then gives the collected results to :meth:`Receiver.committed`, with the store's proof. Only this
method creates an ``Ok``, and only then may a stream be acknowledged.

**Judge, then apply.** A message is judged and its answer is built before anything changes. An error
until then is a fault of one request, and the sender may send again. The changes of memory come
last, in :meth:`Receiver._apply`, which examines no byte of the message. An exception there is a
:class:`MemoryAheadError`.

Memory is ahead of the disk by one group commit and is never rolled back. If a commit fails, the
process ends, and a new process starts from the disk: no other state is sound after a failed fsync.
A ``Repeated`` may therefore repeat a message that is not durable yet. The caller commits the
original first, and the repeat is answered with the original or after it, never before.

Timers use ``now``. The wall clock, ``Arrival.at``, is stored. It decides only about expiry and the
age of identifiers and streams, by :mod:`.expiry_clock` and :mod:`.history_clock`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from srmp_spark.errors import LocalProtocolError, MemoryAheadError
from srmp_spark.message import Arrival, Message, StreamId, StreamPosition
from srmp_spark.names import FORWARD_QUEUE, NULL_GUID, LocalHosts
from srmp_spark.srmp.codec.message_types import MessageType, message_type
from srmp_spark.srmp.forward.forward_room import ForwardRoom
from srmp_spark.srmp.forward.forwarding import HOPS_MAX, ends_here, unforwardable
from srmp_spark.srmp.forward.redirection import NO_FORWARDING, Forwarding
from srmp_spark.srmp.receiving.decisions import undecided_of
from srmp_spark.srmp.receiving.destinations import (
    ORDER_QUEUE_UNREAD_MAX,
    RETRY_AFTER_S,
    Destinations,
    MachineUse,
    QueueState,
    Route,
)
from srmp_spark.srmp.receiving.effects import (
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
from srmp_spark.srmp.receiving.expiry_clock import ExpiryClock
from srmp_spark.srmp.receiving.history import MessageIdHistory
from srmp_spark.srmp.receiving.history_clock import HistoryClock
from srmp_spark.srmp.receiving.incoming_streams import IncomingStream, IncomingStreams
from srmp_spark.srmp.receiving.stream_effects import (
    DiscardKind,
    RepeatKind,
    SendStreamReceipt,
    StreamReceiptGivenUp,
)
from srmp_spark.srmp.receiving.stream_name import StreamName, name_of_house_stream, name_of_queue
from srmp_spark.srmp.receiving.stream_room import holder_of
from srmp_spark.srmp.receiving.trust_domain import lineage_key
from srmp_spark.srmp.waits import RETRANSMISSION_TIMEOUT_S

_new = tuple.__new__
"""Builds a NamedTuple without its Python ``__new__``, to save time for every message."""
HISTORY_EXPIRY_INTERVAL_S = 3600.0
"""Seconds between two searches for old identifiers, which are kept for 30 days."""
HISTORY_EXPIRY_PAUSE_S = 0.01
"""Seconds between two parts (1 ms each) of the search for old identifiers to forget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverSettings:
    """The settings of the receiving engine that an operator may choose."""

    unknown_queue: Literal["reject", "retry"] = "reject"
    """Answer for an unknown queue or host: 400, after which the sender deletes the message, or 503.
    """
    expired: Literal["keep", "refuse"] = "keep"
    """What to do with an expired message: keep it and mark the row, or create no row
    (:meth:`Receiver._expired`). 2.2.5.1.1 and 2.2.6.17 discard such a message, 3.1.5.1.4 does
    not check it.
    """
    invalid_signature: Literal["keep", "refuse"] = "keep"
    """What to do with a message whose signature is invalid: keep it and mark the row, or create no
    row (:meth:`Receiver._discards`). 3.1.5.1.6.1 disregards such a message, which loses it
    without notice.
    """
    queue_quota_bytes: int | None = None
    """Bytes that may wait in one queue; beyond, new messages get 503. ``None`` means no limit."""
    machine_quota_bytes: int | None = None
    """Bytes that may wait in all queues together (QueueManagerQuota).

    At the limit all new messages are answered 503. ``None`` means no limit.
    """
    retransmission_timeout: float = RETRANSMISSION_TIMEOUT_S
    """Seconds until an undelivered stream receipt is sent again."""
    forwarding: Forwarding = NO_FORWARDING
    """Redirections of incoming messages, and transparent store-and-forward."""


class Receiver:
    """The receiving engine of one queue manager. ``now`` is in monotonic seconds."""

    def __init__(
        self,
        identity: str,
        hosts: LocalHosts,
        history: MessageIdHistory,
        streams: IncomingStreams,
        settings: ReceiverSettings,
    ) -> None:
        self.identity = identity
        """QueueManager.Identifier: the GUID of this queue manager."""
        self.history = history
        self.streams = streams
        self.settings = settings
        self.machine = MachineUse()
        """Bytes that all queues hold together. The service keeps this total up to date."""
        self._destinations = Destinations(hosts, settings.unknown_queue, settings.forwarding)
        self._generation = 0
        self._open = False
        self._position = -1
        self._history_clock = HistoryClock(history.newest)
        self._expiry_due = 0.0
        self._expiry_clock = ExpiryClock()
        self._late_at = 0
        """With ``--expired refuse``: the time that the expiry of a message is compared with."""

    # --- queues -----------------------------------------------------------------------------------

    @property
    def queues(self) -> dict[str, QueueState]:
        """Return the queues by canonical name. Only the methods below may change the collection."""
        return self._destinations.queues

    def add_queue(
        self,
        name: str,
        transactional: bool = False,
        end: int = 0,
        *,
        multicast: str | None = None,
        paused: bool = False,
        declared: bool = True,
    ) -> QueueState:
        """Add a queue. ``end`` is the sequence of its last stored row.

        The order queue exists from the start. It may be added once, before its first message, to
        set the sequence of the queue. Raises :class:`~srmp_spark.errors.ConfigurationError` if the
        name or the multicast address is in use.
        """
        queue = QueueState(
            name=name,
            transactional=transactional,
            end=end,
            multicast=multicast,
            paused=paused,
            declared=declared,
            machine=self.machine,
        )
        self._destinations.add(queue)
        return queue

    def declare_queue(self, name: str) -> None:
        """Let a subqueue that a remote reader created accept messages of senders from now on."""
        self._destinations.declare(name)

    def remove_queue(self, name: str) -> None:
        """Forget a queue, but not where the streams of its senders stand.

        The message identifiers stay known, because a repeat must not be the first message of a new
        queue with this name. The streams stay too: their senders still await stream receipts, and
        go on in the middle of a stream if the queue is created again. Nobody could begin it for
        them. Only the stream of this queue manager itself ends. Raises :class:`KeyError` if the
        queue is unknown, and :class:`ConfigurationError` for the order queue and the forward queue.
        """
        queue = self._destinations.remove(name)
        self.machine.bytes -= queue.bytes_waiting
        # Bytes of this queue that are counted later no longer belong to the total.
        queue.machine = MachineUse()
        self.streams.drop(name_of_house_stream(name), self.identity)

    # --- messages ---------------------------------------------------------------------------------

    @property
    def forward_room(self) -> ForwardRoom:
        """Return the room for destinations for which forwarded messages wait."""
        return self._destinations.forward_room

    def judge(self, message: Message, *, own: bool = False) -> Refused | QueueState:
        """Return the queue that would store a message, or the refusal, by its destination alone.

        Streams, known identifiers and quotas are not considered, and nothing changes. The command
        ``doctor`` uses this method. ``own`` means that this queue manager created the message.
        """
        found = self._destinations.find(message.destination)
        if isinstance(found, Refused):
            return found
        if isinstance(found, Route):
            return self._refuses_route(found, message, own=own) or found.queue
        return self._refuses_kind(found, message) or found

    def refuses_hops(self, message: Message, hops: Sequence[str]) -> Refused | None:
        """Return the refusal for a message that loops between queue managers, or ``None``.

        ``hops`` are the GUIDs of the queue managers that forwarded it (``Via``,
        :mod:`srmp_spark.srmp.forward.forwarding`). Call this before :meth:`receive`, which would
        recognize the identifier of the message, answer 200 and lose it. A refusal makes the message
        a dead letter of the queue manager that sent it.
        """
        section = "RFC 9110 7.6.3"
        if self.identity in hops:
            return Refused(
                400,
                "loop",
                "this queue manager forwarded the message before, and the message has returned: "
                "remove the loop from the redirections",
                section,
            )
        found = self._destinations.find(message.destination)
        if isinstance(found, Route) and found.forwards and len(hops) >= HOPS_MAX:
            return Refused(
                400,
                "too-many-hops",
                f"{len(hops)} queue managers have forwarded the message, and HOPS_MAX is "
                f"{HOPS_MAX}: look for a loop in the redirections",
                section,
            )
        return None

    def receive(self, message: Message, arrival: Arrival, now: float) -> Refused | Pending:
        """Decide about a decoded message ([MC-MQSRM] 3.1.5.1.3 to 3.1.5.1.12).

        A refusal changes nothing. Every other result is answered through :meth:`committed`, in the
        order of the calls. After a :class:`MemoryAheadError` the engine must not be called again.
        After any other exception nothing has changed.
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
        """Decide about a message that is redirected to another queue or sent to another host."""
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
        """Decide about a message for ``queue``, and apply the decision in memory.

        The queue accepts messages of this kind. A refused message changes nothing. An accepted one
        takes its sequence and identifier now, before the commit. ``name`` is the name of its
        stream, if this is not the name of the queue.
        """
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
        """Return the refusal if the queue ``name`` accepts no new message now; change nothing.

        Return ``None`` if it accepts one. ``message`` arrived by a protocol with an order and
        identifiers of its own (WS-ReliableMessaging). Raises :class:`KeyError` if the queue is
        unknown.
        """
        queue = self.queues[name]
        return self._refuses_kind(queue, message) or self._not_now(queue, message, arrival)

    def insert_in(self, name: str, message: Message, arrival: Arrival) -> Accepted:
        """Assign the next row of the queue ``name`` to a message of another protocol.

        The row must then be committed like any other. The caller, WS-ReliableMessaging, has already
        decided that the message is new and that its turn has come. Raises :class:`KeyError` if the
        queue is unknown.
        """
        queue = self.queues[name]
        accepted = self._accepted(queue, message, arrival, None, (None, None))
        queue.end = accepted.sequence
        self._open = True
        return accepted

    def move_in(self, name: str) -> Accepted:
        """Assign the next row of the queue ``name`` to a message from another queue.

        See [MS-MQDMPR] 3.1.7.1.16. The message was accepted when it arrived at this queue manager,
        so nothing is judged, counted or owed again. The result must be committed like any other.
        Raises :class:`KeyError` if the queue is unknown.
        """
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
        """Decide about a stream message ([MC-MQSRM] 3.1.5.1.6.3, then 3.1.5.1.11)."""
        stream = self.streams.get(name, position.id.guid)
        begins = position.start and position.current == 1
        is_new = stream is None
        if stream is None:
            # A message of a stream that never began is not counted. Otherwise any client could fill
            # the table of streams.
            if not begins:
                return Repeated(queue.name, "gap", None, self._generation + self._open)
            stream = self.streams.stream_class.started(name, position)
        else:
            if stream.is_of_another(arrival.sender_name):
                # Nothing changes, not even a counter. The answer is 403: a 200 would be false, and
                # a 400 would delete the message of an honest sender that got another subject
                # (queue_manager/trust/writers.py).
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
                    f"{full}, and all of them were used within a day; drop old streams with "
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
                # This is a known message at a new position: its sender abandoned a stream and began
                # the next one with the rest of the messages. The position counts (3.1.5.1.6.3 comes
                # before 3.1.5.1.11). The row exists already, or the message had expired then.
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
        """Change the state by which the next message is judged: the identifier and the queue's end.

        The identifier is not added if ``received_at`` is None. Raises :class:`MemoryAheadError` if
        a change fails.
        """
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
            # This mark moves nothing. It names the stream for an operator.
            mark = StreamMark(stream, position.id.ordinal, 0)
        else:
            stream.reject(position, kind)
            self.streams.put(stream)
        if kind == "position":
            mark = StreamMark(stream, stream.ordinal, 0)
        return Repeated(queue, kind, mark, self._generation + self._open)

    def _discards(self, message: Message) -> DiscardKind | None:
        """Return the reason not to store a new stream message whose position counts, or ``None``.

        With either reason an answer of 400 would leave a gap for ever (:meth:`_expired`). An
        invalid signature is reported as NackReceiveRejected, as an application that checks it would
        report it.
        """
        if self.settings.expired == "refuse" and self._expired(message):
            return "expired"
        if message.signature == "invalid" and self.settings.invalid_signature == "refuse":
            return "invalid-signature"
        return None

    def _expired(self, message: Message) -> bool:
        """Return whether the time of the message is over.

        After this time "the message MUST not be processed by the receiver and MUST be discarded"
        ([MC-MQSRM] 2.2.6.17; 2.2.5.1.1 says the same; ``<TTrq>`` takes precedence, 3.1.5.1.4).

        With ``--expired refuse`` an expired message outside a stream is answered 400: it can never
        succeed, and a sender that requested negative source journaling is notified. In a stream a
        400 would leave a gap for ever. The sender deletes the message (3.1.7.2.5), and the
        ``<previous>`` of the next message still names it, because 3.1.7.2.3 bridges only gaps in
        repeated messages. The position is therefore accepted with 200 and in the stream receipt,
        and no row is created. Receipts that the message requested about its end are sent
        (NackReceiveTimeout). The identifier is remembered: if the message arrives again at another
        position, the receipt is sent for that position, and nothing is decided again.
        """
        expires_at = (
            message.expires_at
            if message.time_to_reach_queue is None
            else message.time_to_reach_queue
        )
        return expires_at is not None and expires_at < self._late_at

    def _not_now(self, queue: QueueState, message: Message, arrival: Arrival) -> Refused | None:
        """Return the refusal for a new message that the queue cannot accept now, or ``None``.

        A repeat is answered 200 before, because its sender would otherwise repeat it for ever.
        """
        settings = self.settings
        if queue.name == FORWARD_QUEUE and (why := ends_here(message)) is not None:
            return Refused(
                400,
                "unforwardable",
                f"the message cannot be forwarded unchanged: {why}",
                "[MC-MQSRM] 3.1.7.3.3",
            )
        if settings.expired == "refuse" and self._expired(message):
            return Refused(
                400, "expired", "the time to reach the queue has passed", "[MC-MQSRM] 2.2.6.17"
            )
        if message.signature == "invalid" and settings.invalid_signature == "refuse":
            return Refused(
                400,
                "invalid-signature",
                "the signature is invalid",
                "[MC-MQSRM] 3.1.5.1.6.1",
            )
        if queue.unread_bytes >= ORDER_QUEUE_UNREAD_MAX:
            text = (
                f"{ORDER_QUEUE_UNREAD_MAX} bytes of receipts wait for the sender "
                "process; the log states why it does not read them"
            )
            return Refused(503, "order-queue-full", text, "[MC-MQSRM] 3.1.5.1.12", RETRY_AFTER_S)
        if (
            settings.queue_quota_bytes is not None
            and queue.bytes_waiting >= settings.queue_quota_bytes
        ):
            # 3.1.5.1.12 disregards the message, which loses it. After a 5xx the sender keeps it.
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
            # The specification says 500. After either status a sender keeps the message, and a 503
            # also says when to try again.
            text = "all queues together hold --machine-quota-bytes; receive messages or raise it"
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
        """Return the result for an accepted message, with its delivery receipt. Nothing changes.

        See [MC-MQSRM] 3.1.5.1.12 and 3.1.5.1.6.2. The last queue manager on the path owes the
        delivery receipt. ``stream`` holds the address for final receipts and the name of the
        stream.
        """
        sequence = queue.end + 1
        owed: tuple[OwedReceipt, ...] = ()
        # A receipt never requests a receipt: two queue managers would send receipts to each other
        # without end.
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
        """Return the refusal for a message that cannot be stored or sent on, or ``None``.

        ``route`` is where the message is led. ``own`` means that this queue manager created the
        message. ``sender`` is the sender in whose share the destination counts.
        """
        queue = route.queue
        if not route.forwards:
            return self._refuses_kind(queue, message)
        if message.lineage == self.identity and not own:
            return Refused(
                400,
                "loop",
                "this queue manager sent the message, and the message has returned to be forwarded",
                "[MC-MQSRM] 3.1.5.1.3",
            )
        why = unforwardable(message)
        if why is not None:
            return Refused(
                400,
                "unforwardable",
                f"the message cannot be forwarded unchanged: {why}",
                "[MC-MQSRM] 3.1.7.2.4",
            )
        return self._refuses_paused(queue) or self._destinations.refuses_new(route, sender)

    @staticmethod
    def _refuses_paused(queue: QueueState) -> Refused | None:
        if queue.paused:
            return Refused(
                503,
                "paused",
                f"queue {queue.name} is paused: srmp-spark queue resume '{queue.name}'",
                "[MC-MQSRM] 3.1.7.4",
                RETRY_AFTER_S,
            )
        return None

    @classmethod
    def _refuses_kind(cls, queue: QueueState, message: Message) -> Refused | None:
        """Return the refusal if the queue is paused or of the wrong kind, else ``None``."""
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
                f"{queue.name} accepts only receipts; send messages for applications to "
                "another queue"
            )
            return Refused(400, "order-queue", text, "[MC-MQSRM] 3.1.5.1.5")
        return cls._refuses_paused(queue)

    def _received_at(self, arrival: Arrival, now: float) -> int:
        """Return the time (microseconds since 1970) at which an identifier counts as received.

        Once an hour this call also forgets old identifiers, a part at each call.
        """
        at = self._history_clock.read(arrival.at, now)
        if now >= self._expiry_due:
            complete = self.history.expire(at)
            self._expiry_due = now + (
                HISTORY_EXPIRY_INTERVAL_S if complete else HISTORY_EXPIRY_PAUSE_S
            )
        return at

    # --- commit -----------------------------------------------------------------------------------

    def changes(self) -> Changes:
        """Return and forget the changes of streams and history since the last call.

        These changes must be written together with the rows that were accepted since then.
        """
        self._generation += 1
        self._open = False
        streams, dropped, gaps = self.streams.take_changes()
        return Changes(streams, self.history.take_changes(), dropped, self._generation, gaps)

    def committed(self, pendings: Sequence[Pending], proof: Committed, now: float) -> list[Ok]:
        """Return the answers of 200 after a sync of the store, in the given order.

        This also starts the timers of stream receipts. Raises :class:`LocalProtocolError` if
        ``proof`` is not the store's proof or is older than the last one, or if a message belongs to
        changes that were not taken yet and so cannot be in that commit.
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

    # --- stream receipts --------------------------------------------------------------------------

    def next_timer(self) -> float | None:
        """Return the monotonic time at which to call :meth:`due` next; ``None`` without a timer."""
        return self.streams.next_timer()

    def due(self, now: float) -> list[SendStreamReceipt]:
        """Return the stream receipts that are due at ``now``; each is in flight from then on."""
        return self.streams.due(now)

    def receipt_delivered(
        self, queue: StreamName, guid: str, stream_id: StreamId, last_ordinal: int, now: float
    ) -> None:
        """Record that the peer answered 200 to a stream receipt, if one is in flight."""
        stream = self.streams.get(queue, guid)
        # The stream was dropped, and perhaps began again, while its receipt was in flight.
        if stream is None or not stream.receipt_on_its_way:
            return
        if stream.receipt_delivered(stream_id, last_ordinal):
            self.streams.put(stream)
        self.streams.arm(stream)

    def receipt_failed(
        self, queue: StreamName, guid: str, now: float, permanent: bool
    ) -> StreamReceiptGivenUp | None:
        """Record that a stream receipt in flight was not delivered, and schedule the next attempt.

        The receipt is owed again after RetransmissionTimeout, and the result is ``None``. After a
        400 (``permanent``) it is not owed again before the next message of the stream. The result
        then describes the receipt, so that the caller can log a warning. Without a receipt in
        flight nothing changes.
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
        """Return whether the sender of a stream message still awaits its stream receipt.

        The final stream receipt must then wait, because 3.1.5.1.9.2 reduces a count at the sender
        that 3.1.5.1.8.2 must have raised before. A stream that is no longer live gets no more
        stream receipts. ``name`` names the stream (:attr:`.DecisionReceipt.stream_name`).
        """
        stream = self.streams.get(name, stream_id.guid)
        return (
            stream is not None
            and stream.ordinal == stream_id.ordinal
            and stream.last_acknowledged < position
        )

    # --- an operator's decisions (`srmp-spark streams`) -------------------------------------------

    def accept_gap(self, queue: StreamName, guid: str) -> bool:
        """Accept the loss of the positions that are missing from a stream; return whether any are.

        The next accepted message is the lowest one that arrived after the gap, when it arrives
        again. A second call accepts whichever message arrives next. The decision is only for this
        gap, also after a restart. While nothing is missing the call changes nothing, because a
        message that others overtook would be lost with a 200.
        """
        stream = self.streams.get(queue, guid)
        return stream is not None and self.streams.accept_gap(stream)

    def drop_stream(self, queue: StreamName, guid: str) -> bool:
        """Forget a stream and return whether it existed. Any later ``<start>`` begins it again."""
        return self.streams.drop(queue, guid)

    def __repr__(self) -> str:
        timer = self.next_timer()
        return (
            f"<Receiver {self.identity} queues={len(self.queues)} "
            f"streams={len(self.streams)} history={len(self.history)} "
            f"changes={self._generation} timer={timer if timer is None else format(timer, '.3f')}>"
        )
