"""An OutgoingQueue ([MC-MQSRM] 3.1.1.1.3): what all messages to one destination have in common.

Theory of operation. The messages are in the store, under serials that were assigned when the
messages were committed. This object holds a few numbers about them and the few messages that are
sent next. A million waiting messages therefore cost no memory in this object. The queue reads ahead
(:class:`~.outgoing_effects.Load`), requests sendings (:class:`~.outgoing_effects.Send`), and gets a
report of the end of each sending.

    acknowledged_to ≤ … cursor … ≤ released_to ≤ end
      finished        sent      may be sent  stored

- ``cursor`` is the last message handed out in this pass. The cursor is never stored. After a
  restart the cursor begins at ``acknowledged_to``, and messages that may have been sent are sent
  again with the same numbers and identifiers.
- ``released_to`` is raised in a transaction *before* any message up to it is sent. The number runs
  ahead so that one sync suffices for RELEASE_AHEAD messages. Even after a restart it is known which
  messages were never sent. Only these may expire.
- A message that the peer may hold (the peer answered 200, or the answer is unknown) is sent until
  its fate is known. The specification lets such a message expire too (3.1.7.2.1). A message that
  arrived would then be reported as dead, and sending it again would duplicate it.

One message is in flight at a time: "the protocol MUST wait for the HTTP response" (3.1.7.2.5), and
RFC 9112 9.3.2 tells clients not to pipeline POST. More are possible for long lines
(``in_flight_max``). The window begins with one message, doubles with each 200, and falls back to
one after any failure. A wrong result of a pipeline (a gap after a refused message) is never final,
because every message after a failure is sent again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence

from srmp_spark.errors import LocalProtocolError
from srmp_spark.message import Message
from srmp_spark.srmp.receiving.effects import Committed
from srmp_spark.srmp.sending.outgoing_effects import (
    DeadLetter,
    DeadReason,
    Load,
    OutgoingQueueRow,
    QueueKey,
    Send,
    SerialRun,
    StoredMessage,
)
from srmp_spark.srmp.sending.outgoing_ledger import OutgoingLedger
from srmp_spark.srmp.sending.outgoing_states import (
    MAY_SEND,
    RETRY_AFTER_S_MAX,
    RETRY_AFTER_S_MIN,
    TRANSITIONS,
    OutgoingState,
    QueueEvent,
    SenderSettings,
)
from srmp_spark.transitions import next_state

READ_AHEAD = 256
"""Most messages that one load reads. One query costs about as much as sending ten messages."""
READ_AHEAD_BYTES_MAX = 1_048_576
"""Most bytes of bodies that one load reads.

A hundred busy destinations use less than 100 MB, even with two hundred loads of large messages.
"""
RELEASE_AHEAD = 1_024
"""Number of messages by which ``released_to`` runs ahead in a queue whose peer answers."""
RECEIVED_NOTHING = (501, 503, 505)
"""Answers by which the peer itself states that it did not accept the message.

The specification states this of every 5xx and of a missing answer (3.1.7.2.5). However, a 500 may
come from code that runs after the insertion, a 502 or 504 from a proxy, and an answer may be lost.
"""


class OutgoingQueue(ABC):
    """One outgoing queue. Its two kinds define what 200, 400 and a failure mean.

    ``now`` is in seconds on the monotonic clock, and ``at`` is the wall clock in microseconds since
    1970. A *sending* is one attempt to post a message (:class:`.Send`). Ranges of serials include
    both ends.
    """

    def __init__(
        self, row: OutgoingQueueRow, identity: str, settings: SenderSettings, ledger: OutgoingLedger
    ) -> None:
        self.key = QueueKey(row.destination, row.kind)
        self.identity = identity
        self.settings = settings
        self.ledger = ledger
        self.stored = row._replace(end=0, released_to=0)
        """The row as of the last known commit.

        :meth:`was_stored` sets it, also for a row that was read at the start.
        """
        self.proof: Committed | None = None
        self.stored_generation = 0
        self.waits_for = 0
        """Generation of changes that must be stored before any message is read or sent.

        Messages after a dead one must not tell the peer to skip the dead one before its end is
        stored.
        """
        self.end = row.end
        self.acknowledged_to = row.acknowledged_to
        self.released_to = row.released_to
        self.left_to = self.held_to = row.released_to
        """No message after ``left_to`` was sent.

        Every message up to ``held_to`` may be at the peer.
        """
        self.doubtful: set[int] = set()
        """Serials after ``held_to`` of messages that may be at the peer: sent, without a complete
        answer.
        """
        self.cursor = self.loaded_to = row.acknowledged_to
        self.buffer: deque[StoredMessage] = deque()
        self.load: Load | None = None
        self._seen_after: int | None = None
        """Serial after which the next message was read while the peer could not be reached;
        ``None`` if it was not read.
        """
        self._late_from: int | None = None
        """Time (wall clock) at which that message expires; ``None`` means never."""
        self.in_flight: dict[int, Send] = {}
        self.unsent: set[int] = set()
        """Numbers of the sendings in ``in_flight`` that were not written to the peer and never will
        be (:meth:`never_left`).
        """
        self.pass_number = 0
        """Number of times that the cursor went back.

        When a sending of an earlier pass ends, its message is neither finished nor put back.
        """
        self.window = 1
        self.window_max = settings.in_flight_max
        self.state = OutgoingState.ON_HOLD if row.paused else OutgoingState.DISCONNECTED
        self.retry_at: float | None = None
        """Time at which the Retransmission Timer ends ([MC-MQSRM] 3.1.2.1), on the monotonic clock;
        ``None`` if it does not run.
        """
        self.last_status: int | None = None
        """HTTP status of the last sending; ``None`` if it had no complete answer, or if there was
        none yet.
        """
        self.attempts = 0
        """Number of consecutive attempts that failed."""
        self.last_acknowledged_at = row.last_acknowledged_at
        self.origin = row.origin
        """Origin of the first message that waits (:mod:`.outgoing_room`)."""
        self._row = row

    # --- storing ----------------------------------------------------------------------------------

    def row(self) -> OutgoingQueueRow:
        """Return the row to save."""
        return self._row._replace(
            end=self.end,
            acknowledged_to=self.acknowledged_to,
            released_to=self.released_to,
            paused=self.state is OutgoingState.ON_HOLD,
            last_acknowledged_at=self.last_acknowledged_at,
            origin=self.origin,
        )

    def was_stored(self, row: OutgoingQueueRow | None, generation: int, proof: Committed) -> None:
        """Record that the changes of ``generation`` are on stable storage.

        ``row`` is the row of this queue in that generation, or ``None`` if it had none.
        """
        self.stored_generation = generation
        self.proof = proof
        if row is not None:
            self.stored = row

    def release(self) -> None:
        """Raise ``released_to``, so that the next messages may be sent once this row is stored.

        RELEASE_AHEAD messages are released if the peer answers, otherwise as many as the window.
        Nothing is released in a state in which nothing may be sent.
        """
        if self.state not in MAY_SEND:
            return
        point = max(self.cursor + 1, self.buffer[0].serial if self.buffer else 0)
        ahead = RELEASE_AHEAD if self.state is OutgoingState.CONNECTED else self.window
        self.released_to = max(self.released_to, min(self.end, point + ahead - 1))

    def bury(
        self,
        first: int,
        last: int,
        reason: DeadReason,
        *,
        status: int | None = None,
        in_doubt: bool = False,
        message_class: int | None = None,
    ) -> None:
        """Record that the messages with serials ``first`` to ``last`` become dead letters.

        The other arguments are those of :class:`.DeadLetter`. The messages are moved when the
        caller stores the next changes.
        """
        self.ledger.bury(
            DeadLetter(SerialRun(self.key, first, last), reason, status, in_doubt, message_class)
        )
        self.touch()

    def touch(self) -> None:
        """Record that the row of this queue has changed, to be written with the next changes."""
        self.ledger.touch(self)

    # --- sending ----------------------------------------------------------------------------------

    def pump(self, now: float, at: int, out: list[Send | Load]) -> None:
        """Add to ``out`` every message that may be sent now, and the next load.

        Expired messages become dead letters. The wall clock ``at`` only decides about expiry.
        """
        while (
            self.state in MAY_SEND
            and len(self.in_flight) < self.window
            and self.waits_for <= self.stored_generation
        ):
            if not self.buffer:
                break
            if self._expire(at):
                continue
            serial = self.buffer[0].serial
            previous = self.previous_of(serial, at)
            if previous is None or self.waits_for > self.stored_generation:
                break
            if serial > min(self.released_to, self.stored.released_to):
                if serial > self.released_to:
                    self.touch()
                break
            out.append(self._send(self.buffer.popleft(), previous))
        if self.state is OutgoingState.CONNECTED and self.released_to < min(
            self.end, self.cursor + RELEASE_AHEAD // 2
        ):
            self.touch()
        self._read_ahead(out)

    @abstractmethod
    def previous_of(self, serial: int, at: int) -> int | None:
        """Return the serial of the message before ``serial`` in the order of sending.

        The result is 0 in a queue without order. Return ``None`` if ``serial`` must not be sent
        now.
        """

    @abstractmethod
    def message_of(self, stored: StoredMessage, previous: int) -> Message:
        """Return the message to send for ``stored``, with its place in a stream if it has one."""

    def _send(self, stored: StoredMessage, previous: int) -> Send:
        serial = stored.serial
        again = serial <= self.left_to
        send = Send(
            self.key,
            stored,
            self.message_of(stored, previous),
            self.ledger.next_number(),
            self.pass_number,
            previous,
            again,
            self.proof,
        )
        self.in_flight[send.number] = send
        self.cursor = serial
        self.left_to = max(self.left_to, serial)
        self.move(QueueEvent.SEND)
        self.on_sent(serial)
        return send

    # Only a stream keeps such a record.
    def on_sent(self, serial: int) -> None:  # noqa: B027
        """Note that a sending of ``serial`` begins.

        The method does nothing here: only a stream records which message was sent last.
        """

    def may_be_held(self, serial: int) -> bool:
        """Return whether the peer may have the message ``serial``."""
        return serial <= self.held_to or serial in self.doubtful

    def _expire(self, at: int) -> bool:
        """Make dead letters of the expired messages in the buffer; return whether there was any.

        See [MC-MQSRM] 3.1.7.2.1. ``at`` is the wall clock.
        """
        first = last = 0
        while self.buffer and self._too_late(self.buffer[0], at):
            last = self.buffer.popleft().serial
            first = first or last
        if not first:
            return False
        self.cursor = max(self.cursor, last)
        self.bury(first, last, "expired")
        self.removed(first, last)
        return True

    def _too_late(self, stored: StoredMessage, at: int) -> bool:
        until = self._late_at(stored)
        return until is not None and until < at

    def _late_at(self, stored: StoredMessage) -> int | None:
        """Return the time (microseconds since 1970) after which the message must not be sent.

        Return ``None`` if there is no such time: the message has no expiry, or the peer may have
        it.
        """
        if self.may_be_held(stored.serial):
            return None
        message = stored.message
        return (
            message.expires_at
            if message.time_to_reach_queue is None
            else message.time_to_reach_queue
        )

    # Without a stream the row needs no other change.
    def removed(self, first: int, last: int) -> None:  # noqa: B027
        """Update the queue after the messages ``first`` to ``last`` were made dead letters.

        The method does nothing here; the two kinds of queue override it.
        """

    # --- reading ----------------------------------------------------------------------------------

    def _read_ahead(self, out: list[Send | Load]) -> None:
        if self.load is not None or self.state not in MAY_SEND:
            return
        last = min(self.stored.end, self.reads_to())
        if self.loaded_to < last and self.waits_for <= self.stored_generation and self._has_room():
            self.load = self._load(last)
            self.move(QueueEvent.CONNECT)
            out.append(self.load)

    def _load(self, last: int) -> Load:
        return Load(
            self.key,
            self.loaded_to,
            last,
            READ_AHEAD,
            READ_AHEAD_BYTES_MAX,
            self.ledger.next_number(),
        )

    def _has_room(self) -> bool:
        """Return whether more messages may be read.

        For a peer that has not answered, only the messages that are sent at once are read, because
        there may be a thousand such peers. For other peers, more are read while the buffer has less
        than half of a load, in messages and in bytes.
        """
        if self.state is not OutgoingState.CONNECTED:
            return not self.buffer and len(self.in_flight) < self.window
        if len(self.buffer) > READ_AHEAD // 2:
            return False
        return sum(len(stored.message.body) for stored in self.buffer) <= READ_AHEAD_BYTES_MAX // 2

    def reads_to(self) -> int:
        """Return the last serial up to which messages may be read now."""
        return self.end

    def was_loaded(self, load: Load, messages: Sequence[StoredMessage]) -> None:
        """Add the messages of a :class:`Load` to the buffer; those of an outdated load are ignored.

        Raises :class:`LocalProtocolError` if the serials are not ascending or not in the range of
        the load.
        """
        if load is not self.load:
            return
        self.load = None
        serials = [message.serial for message in messages]
        if serials != sorted(set(serials)) or (
            serials and not load.after < serials[0] <= serials[-1] <= load.last
        ):
            raise LocalProtocolError(
                f"{load!r} was answered with {serials[:5]}…: ascending serials of its "
                "range are wanted"
            )
        self.buffer.extend(message for message in messages if message.serial > self.cursor)
        self.loaded_to = max(self.loaded_to, serials[-1] if serials else load.last)

    def was_not_loaded(self, load: Load) -> None:
        """Record that a :class:`Load` failed. The queue requests it again when it may send."""
        if load is self.load:
            self.load = None

    def not_reached(self, load: Load, now: float) -> None:
        """End a :class:`Load` without reading, because the peer cannot be reached; retry later.

        The Retransmission Timer starts. An outdated load is ignored.
        """
        if load is not self.load:
            return
        self.load = None
        self.last_status = None
        self._count_trouble()
        self.take_back_release()
        self._wait(now, None)

    def must_see(self, load: Load, at: int) -> bool:
        """Return whether the next message must be read although the peer cannot be reached.

        The message may have expired. The message is read once, and again when its time is over.
        """
        if load is not self.load or self.buffer or self.state not in MAY_SEND:
            return False
        return self._seen_after != load.after or (
            self._late_from is not None and self._late_from < at
        )

    def seen(
        self, load: Load, messages: Sequence[StoredMessage] | None, now: float, at: int
    ) -> Load | None:
        """Accept the messages that were read because of :meth:`must_see`.

        ``messages`` is ``None`` if they cannot be read. Expired messages become dead letters, and
        no other message is kept. If all of them had expired, return the next load. Otherwise the
        load ends as in :meth:`not_reached`, and the result is ``None``.
        """
        if load is not self.load:
            return None
        self._seen_after, self._late_from = load.after, None
        if messages is None or self.buffer or self.state not in MAY_SEND:
            self.not_reached(load, now)
            return None
        self.was_loaded(load, messages)
        self._expire(at)
        is_over = bool(self.buffer) or self.loaded_to >= load.last
        # Nothing is known about the messages after this load.
        self._seen_after = None
        if self.buffer:
            self._seen_after = self.loaded_to = self.buffer[0].serial - 1
            self._late_from = self._late_at(self.buffer[0])
            self.buffer.clear()
        self.load = more = self._load(load.last)
        if is_over:
            self.not_reached(more, now)
        return None if is_over else more

    def go_back(self, after: int) -> None:
        """Begin a new pass: read and send again all messages after serial ``after``.

        Messages in flight may still arrive, are marked as doubtful, and are sent again
        nevertheless.
        """
        for send in self.in_flight.values():
            if send.number not in self.unsent:
                self.doubt(send)
        self.pass_number += 1
        self.buffer.clear()
        self.load = None
        self.cursor = self.loaded_to = after

    def never_left(self, send: Send) -> None:
        """Record that nothing of this sending was or will be written to the peer.

        Its end is reported later, after the end of the preceding sending. The end of the preceding
        sending may begin a new pass, and the new pass must not mark this message as doubtful.
        """
        if send.number in self.in_flight:
            self.unsent.add(send.number)
            self._not_received(send)

    def doubt(self, send: Send) -> None:
        """Record that the peer may have the message of ``send``, so that it must not expire."""
        if send.serial > self.held_to:
            self.doubtful.add(send.serial)

    # --- ends of sendings -------------------------------------------------------------------------

    @abstractmethod
    def on_accepted(self, send: Send, now: float, at: int) -> None:
        """Process the answer 200 to a sending."""

    @abstractmethod
    def on_refused(self, send: Send, at: int) -> None:
        """Process the answer 400 to a sending: the message becomes a dead letter."""

    @abstractmethod
    def put_back(self, send: Send) -> None:
        """Process a failed sending: the message is sent again later."""

    def answered(
        self, send: Send, status: int, now: float, at: int, retry_after: float | None
    ) -> None:
        """Record a complete answer to a sending ([MC-MQSRM] 3.1.7.2.5).

        After any answer except 200 and 400 the message stays in this queue and is sent again.
        ``retry_after`` is the peer's wish in seconds; the queue waits for at least
        RETRY_AFTER_S_MIN and at most RETRY_AFTER_S_MAX. Raises :class:`LocalProtocolError` if the
        end of the sending was reported before.
        """
        self._ended(send)
        self.last_status = status
        if status not in (200, 400):
            if status in RECEIVED_NOTHING:
                self._not_received(send)
            else:
                self.doubt(send)
            self._trouble(send, now, retry_after)
            return
        self.attempts = 0
        self.move(QueueEvent.ANSWERED)
        if status == 200:
            if send.pass_number == self.pass_number:
                self.window = min(self.window * 2, self.window_max)
            self.on_accepted(send, now, at)
        else:
            self.on_refused(send, at)

    def failed(self, send: Send, now: float, left: bool) -> None:
        """Record that a sending got no complete answer; the message is sent again later.

        ``left`` means that some of it may have reached the peer. Raises :class:`LocalProtocolError`
        if the end of the sending was reported before.
        """
        self._ended(send)
        self.last_status = None
        if left:
            self.doubt(send)
        else:
            self._not_received(send)
        self._trouble(send, now, None)

    def withdrawn(self, send: Send) -> None:
        """Record that a message was not sent because of the answer to the preceding message.

        This is no failure of its own: the message is sent again, in order. Raises
        :class:`LocalProtocolError` if the end of the sending was reported before.
        """
        self._ended(send)
        self._not_received(send)
        if send.pass_number == self.pass_number:
            self.put_back(send)

    def _ended(self, send: Send) -> None:
        if self.in_flight.pop(send.number, None) is not send:
            raise LocalProtocolError(f"{send!r} is not under way: each sending ends once")
        self.unsent.discard(send.number)

    def _not_received(self, send: Send) -> None:
        """Record that the peer did not accept the message of this sending.

        The peer may have the message from an earlier sending.
        """
        if self.left_to == send.serial and not self.may_be_held(send.serial):
            self.left_to -= 1

    def _trouble(self, send: Send, now: float, retry_after: float | None) -> None:
        current = send.pass_number == self.pass_number
        # A failure of an earlier pass no longer matters.
        if not current and self.state in MAY_SEND:
            return
        self._count_trouble()
        if current:
            self.put_back(send)
        self.take_back_release()
        self.touch()
        self._wait(now, retry_after)

    def take_back_release(self) -> None:
        """Lower ``released_to`` to the last message that the peer may have.

        No further message may be sent before :meth:`release`. After a restart it is then known that
        the other messages were never sent.
        """
        released_to = max(self.left_to, self.held_to, *self.doubtful, self.acknowledged_to)
        if released_to < self.released_to:
            self.released_to = released_to
            self.touch()

    def _count_trouble(self) -> None:
        self.attempts += 1
        self.window = 1

    def _wait(self, now: float, retry_after: float | None) -> None:
        """Schedule the next attempt for the end of the Retransmission Timer.

        ``retry_after`` is the peer's wish in seconds. A paused queue starts no timer, and a timer
        that runs already stays unchanged.
        """
        self.move(QueueEvent.TROUBLE)
        if self.state is OutgoingState.INACTIVE and self.retry_at is None:
            wait = self.settings.retransmission_timeout
            if retry_after is not None:
                wait = min(max(retry_after, RETRY_AFTER_S_MIN), RETRY_AFTER_S_MAX)
            self.retry_at = now + wait

    # --- timers and operators ---------------------------------------------------------------------

    @property
    def deadline(self) -> float | None:
        """Return the time at which to call :meth:`due`, or ``None`` if no timer runs."""
        return self.retry_at

    def due(self, now: float, at: int) -> None:
        """Call :meth:`retry` if the Retransmission Timer has ended at ``now``.

        This class does not use ``at``.
        """
        if self.retry_at is not None and self.retry_at <= now:
            self.retry()

    def retry(self) -> None:
        """Stop the Retransmission Timer and allow sending again ([MC-MQSRM] 3.1.6.1).

        Call this when the Retransmission Timer has ended, or when an operator requests it. A paused
        queue stays paused.
        """
        self.retry_at = None
        self.move(QueueEvent.RETRY)

    def pause(self) -> None:
        """Pause the queue ([MC-MQSRM] 3.1.7.4).

        The timers stop, and the caller closes the connection. The ends of messages in flight are
        reported as always.
        """
        self.move(QueueEvent.PAUSE)
        self.retry_at = None
        self.touch()

    def resume(self) -> None:
        """End the pause that :meth:`pause` began ([MC-MQSRM] 3.1.7.5).

        Messages are sent again, with one message in flight at first.
        """
        self.move(QueueEvent.RESUME)
        self.window = 1
        self.touch()

    @abstractmethod
    def drop(self, at: int, reason: DeadReason = "dropped") -> None:
        """Discard every message of the queue.

        Call this when an operator requests it, or when there is no room for the queue. The messages
        become dead letters for ``reason``.
        """

    def move(self, event: QueueEvent) -> None:
        """Change the state as the transition table says.

        Raises :class:`LocalProtocolError` if the event cannot happen in this state.
        """
        self.state = next_state(TRANSITIONS, self.state, event, self)

    @property
    def idle(self) -> bool:
        """Return whether the queue has no message, neither waiting nor in flight."""
        return self.acknowledged_to >= self.end and not self.in_flight

    @property
    def holds_messages(self) -> bool:
        """Return whether a message waits, is in flight or has an unreported end."""
        return not self.idle

    @property
    def may_be_forgotten(self) -> bool:
        """Return whether the record of the queue may be deleted.

        The queue must have no messages, the end of its last message must be on stable storage, and
        no operator may have paused the queue.
        """
        return (
            not self.holds_messages
            and self.state is not OutgoingState.ON_HOLD
            and self.stored.acknowledged_to >= self.end
        )

    @property
    def begun_after(self) -> int:
        """Return the serial up to which this record does not know the fate of messages.

        See :attr:`.OutgoingQueueRow.begun_after`.
        """
        return self._row.begun_after

    @property
    def used_at(self) -> int:
        """Return the time at which the queue was last used, in microseconds since 1970, UTC.

        This is the last acknowledgement or the start of the queue, whichever is later.
        """
        return max(self.last_acknowledged_at, self._row.started_at)

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.key.destination} {self.state.value} "
            f"acknowledged_to={self.acknowledged_to} "
            f"cursor={self.cursor} released_to={self.released_to} end={self.end} "
            f"in_flight={len(self.in_flight)}>"
        )
