"""An OutgoingQueue ([MC-MQSRM] 3.1.1.1.3): what all messages to one destination share, whatever their kind.

Theory of operation. The messages lie in the store, under serials that were given out when they were committed. This object
holds a few numbers about them and the few messages that leave next, so a million that wait cost nothing here. It reads
ahead (:class:`~.outgoing_effects.Load`), hands out (:class:`~.outgoing_effects.Send`) and is told the end of each sending.

    acknowledged_to ≤ … cursor … ≤ released_to ≤ end
      finished        sent      may leave   stored

- ``cursor`` is the last message handed out in this pass. It is never stored: after a restart it begins at
  ``acknowledged_to`` and what may have left goes out again, with the numbers and identifiers that it has.
- ``released_to`` is raised in a transaction *before* anything up to there leaves, some way ahead so that a sync is paid once
  per RELEASE_AHEAD messages. So even after a restart we know what never left. It alone may expire.
- What the peer may hold (it answered 200, or nobody knows) is sent until its fate is known. The text expires that too
  (3.1.7.2.1); then a message that arrived would be told as dead, and whoever sends it anew doubles it.

One message is under way at a time: "the protocol MUST wait for the HTTP response" (3.1.7.2.5), and RFC 9112 9.3.2 tells
clients not to pipeline POST. More are possible (``in_flight_max``, for long lines): the window begins with one, doubles with
each 200 and falls back to one with any trouble. What a pipeline got wrong (a gap behind a refused message) is never final, for
everything behind trouble is sent again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence

from srmp_spark.errors import LocalProtocolError
from srmp_spark.message import Message
from srmp_spark.srmp.effects import Committed
from srmp_spark.srmp.outgoing_effects import (
    DeadLetter,
    DeadReason,
    Load,
    MessageState,
    OutgoingQueueRow,
    QueueKey,
    Send,
    SerialRun,
    StoredMessage,
)
from srmp_spark.srmp.outgoing_ledger import OutgoingLedger
from srmp_spark.srmp.outgoing_states import (
    MAY_SEND,
    RETRY_AFTER_S_MAX,
    RETRY_AFTER_S_MIN,
    TRANSITIONS,
    QueueEvent,
    QueueState,
    SenderSettings,
)

READ_AHEAD = 256
"""Messages read at once: one query costs about as much as sending ten."""
READ_AHEAD_BYTES_MAX = 1_048_576
"""Bytes of them: a hundred busy destinations stay within 100 MB, two hundred loads of big messages included."""
RELEASE_AHEAD = 1_024
"""How far ``released_to`` runs ahead of a queue whose peer answers."""
RECEIVED_NOTHING = (501, 503, 505)
"""Answers by which the peer itself says that it did not take the message. 3.1.7.2.5 says so of every 5xx and of no answer,
but a 500 may come from whatever runs after the insertion, a 502 or 504 from a proxy, and an answer may be lost."""


class OutgoingQueue(ABC):
    """One outgoing queue; its two kinds say what 200, 400 and trouble mean."""

    def __init__(
        self, row: OutgoingQueueRow, identity: str, settings: SenderSettings, ledger: OutgoingLedger
    ) -> None:
        self.key = QueueKey(row.destination, row.kind)
        self.identity = identity
        self.settings = settings
        self.ledger = ledger
        self.stored = row._replace(end=0, released_to=0)
        """As of the last commit that we know of; of a row that was loaded :meth:`was_loaded` says so."""
        self.proof: Committed | None = None
        self.stored_generation = 0
        self.waits_for = 0
        """Generation of changes that must be stored before anything is read or leaves: the messages behind a dead one must not
        tell the peer to skip it before that is certain."""
        self.end = row.end
        self.acknowledged_to = row.acknowledged_to
        self.released_to = row.released_to
        self.left_to = self.held_to = row.released_to
        """Nothing above ``left_to`` has left; all up to ``held_to`` may be at the peer."""
        self.doubtful: set[int] = set()
        """Serials above ``held_to`` that may be at the peer: sent without a complete answer."""
        self.cursor = self.loaded_to = row.acknowledged_to
        self.buffer: deque[StoredMessage] = deque()
        self.load: Load | None = None
        self._seen_after: int | None = None
        """Behind this serial the next message was seen while nobody was reached."""
        self._late_from: int | None = None
        """When that message is too late, on the wall clock; ``None``: never."""
        self.in_flight: dict[int, Send] = {}
        self.unsent: set[int] = set()
        """Numbers of those of them that never left and never will (:meth:`never_left`)."""
        self.pass_number = 0
        """Counts how often the cursor went back: the ends of earlier sendings say little then."""
        self.window = 1
        self.window_max = settings.in_flight_max
        self.state = QueueState.ON_HOLD if row.paused else QueueState.DISCONNECTED
        self.retry_at: float | None = None
        """The Retransmission Timer ([MC-MQSRM] 3.1.2.1), on the monotonic clock."""
        self.last_status: int | None = None
        """Of the last sending; ``None``: no complete answer, or none yet."""
        self.attempts = 0
        """Attempts in a row that ended in trouble."""
        self.last_acknowledged_at = row.last_acknowledged_at
        self.origin = row.origin
        """Who gave the first of the messages that wait (:mod:`.outgoing_room`)."""
        self._row = row

    # --- storing ------------------------------------------------------------------------------------------------------------

    def row(self) -> OutgoingQueueRow:
        """As it is saved."""
        return self._row._replace(
            end=self.end,
            acknowledged_to=self.acknowledged_to,
            released_to=self.released_to,
            paused=self.state is QueueState.ON_HOLD,
            last_acknowledged_at=self.last_acknowledged_at,
            origin=self.origin,
        )

    def was_stored(self, row: OutgoingQueueRow | None, generation: int, proof: Committed) -> None:
        """``generation`` is on stable storage; ``row`` is what it said of this queue, ``None`` if nothing."""
        self.stored_generation = generation
        self.proof = proof
        if row is not None:
            self.stored = row

    def release(self) -> None:
        """Allow the next messages to leave once this is stored: one to a peer that may be down, many to one that answers."""
        if self.state not in MAY_SEND:
            return
        point = max(self.cursor + 1, self.buffer[0].serial if self.buffer else 0)
        ahead = RELEASE_AHEAD if self.state is QueueState.CONNECTED else self.window
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
        """Move messages to the dead letters."""
        self.ledger.bury(
            DeadLetter(SerialRun(self.key, first, last), reason, status, in_doubt, message_class)
        )
        self.touch()

    def touch(self) -> None:
        """Our row has changed."""
        self.ledger.touch(self)

    # --- sending ------------------------------------------------------------------------------------------------------------

    def pump(self, now: float, at: int, out: list[Send | Load]) -> None:
        """Whatever may leave or be read now. ``at`` is the wall clock, for expiry alone."""
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
        if self.state is QueueState.CONNECTED and self.released_to < min(
            self.end, self.cursor + RELEASE_AHEAD // 2
        ):
            self.touch()
        self._read_ahead(out)

    @abstractmethod
    def previous_of(self, serial: int, at: int) -> int | None:
        """The message before ``serial`` in its order; ``None``: ``serial`` may not leave now."""

    @abstractmethod
    def message_of(self, stored: StoredMessage, previous: int) -> Message:
        """The message as it goes out."""

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

    def on_sent(self, serial: int) -> None:  # noqa: B027  # only a stream counts
        """``serial`` leaves now."""

    def may_be_held(self, serial: int) -> bool:
        """Whether the peer may have this message."""
        return serial <= self.held_to or serial in self.doubtful

    def message_state(self, serial: int) -> MessageState:
        """Where a message that is still in the outbox stands."""
        under_way = any(send.serial == serial for send in self.in_flight.values())
        return "in_doubt" if under_way or self.may_be_held(serial) else "queued"

    def _expire(self, at: int) -> bool:
        """[MC-MQSRM] 3.1.7.2.1: take what is too late off the buffer; whether there was any."""
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
        """When it may be sent no more, ``None``: that is never so."""
        if self.may_be_held(stored.serial):
            return None
        message = stored.message
        return (
            message.expires_at
            if message.time_to_reach_queue is None
            else message.time_to_reach_queue
        )

    def removed(self, first: int, last: int) -> None:  # noqa: B027  # the row says it all, but for a stream
        """Messages were taken out of the queue."""

    # --- reading ------------------------------------------------------------------------------------------------------------

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
        """Whether more may be read: for a peer that has not answered only what leaves at once, for there may be a thousand of
        them; for others as long as what was read is less than half of a load, in messages and in bytes."""
        if self.state is not QueueState.CONNECTED:
            return not self.buffer and len(self.in_flight) < self.window
        if len(self.buffer) > READ_AHEAD // 2:
            return False
        return sum(len(stored.message.body) for stored in self.buffer) <= READ_AHEAD_BYTES_MAX // 2

    def reads_to(self) -> int:
        """The last serial that may be sent before something else happens."""
        return self.end

    def was_loaded(self, load: Load, messages: Sequence[StoredMessage]) -> None:
        """The answer to a :class:`Load`; an outdated one is dropped."""
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
        """A :class:`Load` failed; it is asked again when the queue may send."""
        if load is self.load:
            self.load = None

    def not_reached(self, load: Load, now: float) -> None:
        """Nothing was read for a :class:`Load`, because the peer cannot be reached; an outdated one is dropped."""
        if load is not self.load:
            return
        self.load = None
        self.last_status = None
        self._count_trouble()
        self.take_back_release()
        self._wait(now, None)

    def must_see(self, load: Load, at: int) -> bool:
        """Whether the next message must be read although nobody is reached: it may be too late for it. It is read once, and
        again when its time is over."""
        if load is not self.load or self.buffer or self.state not in MAY_SEND:
            return False
        return self._seen_after != load.after or (
            self._late_from is not None and self._late_from < at
        )

    def seen(
        self, load: Load, messages: Sequence[StoredMessage] | None, now: float, at: int
    ) -> Load | None:
        """What was read of ``load`` because of :meth:`must_see`, ``None`` if it cannot be read: what is too late is dead,
        nothing else is kept. What is to be read next, if all of it was late; else this ends as :meth:`not_reached`."""
        if load is not self.load:
            return None
        self._seen_after, self._late_from = load.after, None
        if messages is None or self.buffer or self.state not in MAY_SEND:
            self.not_reached(load, now)
            return None
        self.was_loaded(load, messages)
        self._expire(at)
        is_over = bool(self.buffer) or self.loaded_to >= load.last
        self._seen_after = None  # nothing is known of what comes behind this load
        if self.buffer:
            self._seen_after = self.loaded_to = self.buffer[0].serial - 1
            self._late_from = self._late_at(self.buffer[0])
            self.buffer.clear()
        self.load = more = self._load(load.last)
        if is_over:
            self.not_reached(more, now)
        return None if is_over else more

    def go_back(self, after: int) -> None:
        """Begin a new pass behind ``after``. What is under way may arrive, and is sent again all the same."""
        for send in self.in_flight.values():
            if send.number not in self.unsent:
                self.doubt(send)
        self.pass_number += 1
        self.buffer.clear()
        self.load = None
        self.cursor = self.loaded_to = after

    def never_left(self, send: Send) -> None:
        """Nothing of this sending was or will be written to the peer. Its end is told later: after that of the one before it,
        which may begin a new pass, and must not put this one in doubt."""
        if send.number in self.in_flight:
            self.unsent.add(send.number)
            self._not_received(send)

    def doubt(self, send: Send) -> None:
        """Nobody knows whether the peer has it."""
        if send.serial > self.held_to:
            self.doubtful.add(send.serial)

    # --- ends of sendings ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def taken(self, send: Send, now: float, at: int) -> None:
        """The peer answered 200."""

    @abstractmethod
    def refused(self, send: Send, at: int) -> None:
        """The peer answered 400."""

    @abstractmethod
    def put_back(self, send: Send) -> None:
        """A sending failed: the message goes again."""

    def answered(
        self, send: Send, status: int, now: float, at: int, retry_after: float | None
    ) -> None:
        """A complete answer came ([MC-MQSRM] 3.1.7.2.5). Anything but 200 and 400 leaves the message ours."""
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
            self.taken(send, now, at)
        else:
            self.refused(send, at)

    def failed(self, send: Send, now: float, left: bool) -> None:
        """No complete answer came; ``left``: some of it may have reached the peer."""
        self._ended(send)
        self.last_status = None
        if left:
            self.doubt(send)
        else:
            self._not_received(send)
        self._trouble(send, now, None)

    def withdrawn(self, send: Send) -> None:
        """It never left, because of the answer to the one before it. That is no trouble of its own: it goes again, in order."""
        self._ended(send)
        self._not_received(send)
        if send.pass_number == self.pass_number:
            self.put_back(send)

    def _ended(self, send: Send) -> None:
        if self.in_flight.pop(send.number, None) is not send:
            raise LocalProtocolError(f"{send!r} is not under way: each sending ends once")
        self.unsent.discard(send.number)

    def _not_received(self, send: Send) -> None:
        """This sending changed nothing at the peer; an earlier one may have."""
        if self.left_to == send.serial and not self.may_be_held(send.serial):
            self.left_to -= 1

    def _trouble(self, send: Send, now: float, retry_after: float | None) -> None:
        current = send.pass_number == self.pass_number
        if not current and self.state in MAY_SEND:
            return  # of an earlier pass: the trouble is over
        self._count_trouble()
        if current:
            self.put_back(send)
        self.take_back_release()
        self.touch()
        self._wait(now, retry_after)

    def take_back_release(self) -> None:
        """Nothing more leaves before the next attempt: after a restart it is known of the rest that it never left."""
        released_to = max(self.left_to, self.held_to, *self.doubtful, self.acknowledged_to)
        if released_to < self.released_to:
            self.released_to = released_to
            self.touch()

    def _count_trouble(self) -> None:
        self.attempts += 1
        self.window = 1

    def _wait(self, now: float, retry_after: float | None) -> None:
        """Try again when the Retransmission Timer ends."""
        self.move(QueueEvent.TROUBLE)
        if self.state is QueueState.INACTIVE and self.retry_at is None:
            wait = self.settings.retransmission_timeout
            if retry_after is not None:
                wait = min(max(retry_after, RETRY_AFTER_S_MIN), RETRY_AFTER_S_MAX)
            self.retry_at = now + wait

    # --- timers and operators -------------------------------------------------------------------------------------------------

    @property
    def deadline(self) -> float | None:
        """When :meth:`due` has something to do."""
        return self.retry_at

    def due(self, now: float, at: int) -> None:
        """A deadline has come; nothing in here waits for the wall clock ``at``."""
        if self.retry_at is not None and self.retry_at <= now:
            self.retry()

    def retry(self) -> None:
        """[MC-MQSRM] 3.1.6.1, or an operator who does not want to wait for it."""
        self.retry_at = None
        self.move(QueueEvent.RETRY)

    def pause(self) -> None:
        """[MC-MQSRM] 3.1.7.4: timers stop, the caller closes the connection; what is under way is reported as always."""
        self.move(QueueEvent.PAUSE)
        self.retry_at = None
        self.touch()

    def resume(self) -> None:
        """[MC-MQSRM] 3.1.7.5."""
        self.move(QueueEvent.RESUME)
        self.window = 1
        self.touch()

    @abstractmethod
    def drop(self, at: int, reason: DeadReason = "dropped") -> None:
        """Give up everything that is in the queue: an operator's word, or there is no room for the queue."""

    def move(self, event: QueueEvent) -> None:
        """The one way to another state."""
        state = TRANSITIONS.get((self.state, event))
        if state is None:
            raise LocalProtocolError(f"{event.name} cannot happen in {self!r}")
        self.state = state

    @property
    def idle(self) -> bool:
        """Nothing is in it or under way."""
        return self.acknowledged_to >= self.end and not self.in_flight

    @property
    def holds_messages(self) -> bool:
        """Something is in it, under way, or not told of yet."""
        return not self.idle

    @property
    def may_be_forgotten(self) -> bool:
        """Nothing is in it, which is on stable storage, and no operator has said anything about it."""
        return (
            not self.holds_messages
            and self.state is not QueueState.ON_HOLD
            and self.stored.acknowledged_to >= self.end
        )

    @property
    def begun_after(self) -> int:
        """What became of serials up to here is not known in this queue."""
        return self._row.begun_after

    @property
    def used_at(self) -> int:
        """When it was last of use, microseconds since 1970, UTC."""
        return max(self.last_acknowledged_at, self._row.started_at)

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.key.destination} {self.state.value} "
            f"acknowledged_to={self.acknowledged_to} "
            f"cursor={self.cursor} released_to={self.released_to} end={self.end} "
            f"in_flight={len(self.in_flight)}>"
        )
