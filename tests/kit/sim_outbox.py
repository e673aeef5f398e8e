"""A simulated sending queue manager: the engine, a synced outbox, and the loop between them.

The object lives through crashes and restarts. The loop does the dispatcher's work in short form:
collect messages, commit, carry out the effects of
:meth:`~srmp_spark.srmp.sending.sender.Sender.poll`, and report results. The object also watches
each message that is sent: a message that is sent again must keep its identifier and its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from srmp_spark.message import Message, StreamId
from srmp_spark.names import split_url
from srmp_spark.srmp.receiving.effects import Committed
from srmp_spark.srmp.receiving.expiry_clock import ExpiryClock
from srmp_spark.srmp.sending.outgoing_effects import (
    DeadLetter,
    Delivered,
    Kind,
    Load,
    OutgoingChanges,
    OutgoingQueueRow,
    QueueKey,
    Send,
    StoredMessage,
)
from srmp_spark.srmp.sending.outgoing_states import SenderSettings
from srmp_spark.srmp.sending.sender import Sender
from tests.kit.oracle import Oracle
from tests.kit.sim_clock import SimClock
from tests.kit.sim_disk import Synced
from tests.kit.sim_net import HEALTHY_DELAY_S, Answer

IDENTITY = "0a11ce00-0000-4000-8000-00000000000a"
HOST = "sender"
RECEIPTS_URL = f"http://{HOST}/MSMQ/PRIVATE$/order_queue$?SenderStream=XRntV"
SYNC_S_MAX = 0.02
ONCE_MORE = 0.5
"""Share of the messages without an answer that are sent again automatically."""
REDIAL_REFUSED = 0.5
"""Share of the automatic repeats whose connection is refused, because the peer has ended."""
LOAD_S_MAX = 0.01
NOT_REACHED = 0.05
"""Share of the reads after which no connection to the peer can be made."""
ROWS_PER_LOAD_MAX = 7
"""Most messages of one read: fewer than the engine requests, as after a limit in bytes."""

Post = Callable[[Message, Answer], None]


class OutboxTransaction(NamedTuple):
    """The content of one group commit of the sending side.

    ``messages`` are tuples of queue, serial and message. ``finals`` are runs of serials that await
    a final receipt.
    """

    messages: list[tuple[QueueKey, int, Message]]
    changes: OutgoingChanges
    uniquifier: int
    finals: list[tuple[QueueKey, int, int]]
    batches: Sequence[str] = ()
    """Batches whose rows are among the messages or were known before."""


class SimOutbox(Synced[OutboxTransaction]):
    """The synced state of a sending queue manager.

    ``messages`` has the unfinished messages of each queue by serial, ``dead`` the dead letters by
    key.
    """

    def __init__(self, oracle: Oracle) -> None:
        super().__init__()
        self.queues: dict[QueueKey, OutgoingQueueRow] = {}
        self.messages: dict[QueueKey, dict[int, Message]] = {}
        self.dead: dict[str, DeadLetter] = {}
        self.finals: dict[QueueKey, set[int]] = {}
        self.last_stream_ordinal = 0
        self.uniquifier = 0
        self.known: set[str] = set()
        """Identities: the keys of all rows that were ever committed."""
        self.batches: set[str] = set()
        """Names of all batches that are committed."""
        self._oracle = oracle

    def apply(self, transaction: OutboxTransaction) -> None:
        """Store the transaction's messages, the state of queues, and the ends of messages."""
        for key, serial, message in transaction.messages:
            self.messages.setdefault(key, {})[serial] = message
            self.known.add(message.body.decode())
            self._oracle.sent(
                message.body.decode(), stream=key.destination if key.kind == "stream" else None
            )
        for key, first, last in transaction.finals:
            self.finals.setdefault(key, set()).update(range(first, last + 1))
        self.batches.update(transaction.batches)
        changes = transaction.changes
        self.uniquifier = transaction.uniquifier
        self.last_stream_ordinal = changes.last_stream_ordinal
        for key in changes.forgotten:
            del self.queues[key]
        for row in changes.queues:
            self.queues[QueueKey(row.destination, row.kind)] = row
        for run in changes.finished:
            for serial, _ in self.take(run.key, run.first, run.last):
                assert serial > 0, "serials count from 1"
        for letter in changes.dead_letters:
            for _, message in self.take(letter.run.key, letter.run.first, letter.run.last):
                self.dead[message.body.decode()] = letter

    def take(self, key: QueueKey, first: int, last: int) -> list[tuple[int, Message]]:
        """Remove the messages ``first`` to ``last`` and return them with their serials."""
        messages = self.messages.get(key, {})
        self.finals.get(key, set()).difference_update(range(first, last + 1))
        return [
            (serial, messages.pop(serial)) for serial in sorted(messages) if first <= serial <= last
        ]

    def read(self, load: Load, count: int) -> list[StoredMessage]:
        """Return up to ``count`` of the messages that a :class:`Load` requests.

        The serials ascend.
        """
        messages = self.messages.get(load.key, {})
        return [
            StoredMessage(s, messages[s]) for s in sorted(messages) if load.after < s <= load.last
        ][:count]

    def runs_of_finals(self) -> dict[QueueKey, list[tuple[int, int]]]:
        """Return the serials that await a final stream receipt, as runs by queue.

        Each run has one serial.
        """
        return {
            key: [(serial, serial) for serial in sorted(serials)]
            for key, serials in self.finals.items()
        }


class SimSender:
    """One sending queue manager, through crashes and restarts.

    ``problems`` has the broken rules, one text each. ``up`` is false while it is down.
    """

    sender_class: type[Sender] = Sender

    def __init__(
        self,
        clock: SimClock,
        disk: SimOutbox,
        random: Random,
        oracle: Oracle,
        post: Post,
        settings: SenderSettings,
    ) -> None:
        self.clock = clock
        self.disk = disk
        self.random = random
        self.oracle = oracle
        self.marks: Counter[str] = Counter()
        self.problems: list[str] = []
        self.up = False
        self.life = 0
        self.sender: Sender
        self._post = post
        self._settings = settings
        self._timer: float | None = None
        self._new: list[tuple[QueueKey, int, Message]] = []
        self._new_finals: list[tuple[QueueKey, int, int]] = []
        self._new_batches: list[str] = []
        self.known: set[str] = set()
        """Keys of rows that are messages already, stored or about to be stored."""
        self.batches: set[str] = set()
        """Batches whose rows are messages already, stored or about to be stored."""
        self._waiting: list[Answer] = []
        self._syncing: tuple[OutgoingChanges, list[Answer]] | None = None
        self._keys_of: dict[tuple[QueueKey, int], str] = {}
        self._identifiers: dict[str, int] = {}
        self._places: dict[tuple[str, StreamId], int] = {}
        self._uniquifier = 0
        self.start()

    # --- lives ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin a life from the content of the disk."""
        self.sender = self.sender_class.load(
            IDENTITY,
            self._settings,
            self.disk.queues.values(),
            self.disk.proof(),
            finals=self.disk.runs_of_finals(),
            last_stream_ordinal=self.disk.last_stream_ordinal,
        )
        self._uniquifier = self.disk.uniquifier
        self.known, self.batches = set(self.disk.known), set(self.disk.batches)
        self.life += 1
        self.up = True
        self._expiry = ExpiryClock()
        self._timer = None
        self.work()

    def crash(self, survives: bool) -> None:
        """Simulate a power failure. Callers that wait get the answer ``None``.

        ``survives`` says whether the transaction in progress reached the disk. Call :meth:`start`
        to begin the next life.
        """
        self.up = False
        self.life += 1
        self.marks["out-crash"] += 1
        self.disk.crash(survives)
        hanging = self._waiting + (self._syncing[1] if self._syncing else [])
        self._new, self._new_finals, self._new_batches, self._waiting, self._syncing = (
            [],
            [],
            [],
            [],
            None,
        )
        for answer in hanging:
            answer(None)

    # --- inputs -----------------------------------------------------------------------------------

    def submit(
        self,
        destination: str,
        kind: Kind,
        batch: str,
        rows: list[str],
        time_to_reach_queue: float | None,
        finals: bool,
        answer: Answer,
    ) -> None:
        """Commit a batch of ``rows`` (keys) for Spark, perhaps not for the first time.

        ``answer`` is called with 200 once all rows are stored as messages, and with ``None`` if the
        sender is down or crashes before. ``time_to_reach_queue`` is in seconds. With ``finals`` the
        messages request final receipts.
        """
        if not self.up:
            answer(None)
            return
        keys = self.new_of(batch, rows)
        if len(keys) < len(rows):
            self.marks["out-known"] += 1
        self._new_batches.append(batch)
        self.batches.add(batch)
        self.known.update(keys)
        self._waiting.append(answer)
        if keys:
            self._enqueue(destination, kind, keys, time_to_reach_queue, finals)
        self.work()

    def new_of(self, batch: str, rows: list[str]) -> list[str]:
        """Return the rows of the batch that are not known.

        A batch that Spark plans again may hold other rows than before.
        """
        return [row for row in rows if row not in self.known]

    def _enqueue(
        self,
        destination: str,
        kind: Kind,
        keys: list[str],
        time_to_reach_queue: float | None,
        finals: bool,
    ) -> None:
        at = self.clock.utc()
        enqueued = self.sender.enqueue(
            destination, kind, len(keys), at, receipts_url=RECEIPTS_URL, final_receipts=finals
        )
        until = None if time_to_reach_queue is None else at + int(time_to_reach_queue * 1_000_000)
        for serial, key in enumerate(keys, enqueued.first):
            self._uniquifier += 1
            message = Message(
                destination=destination,
                action="MSMQ:",
                lineage=IDENTITY,
                uniquifier=self._uniquifier,
                has_msmq=True,
                durable=kind == "stream",
                body=key.encode(),
                source_qm=IDENTITY,
                time_to_reach_queue=until,
                dead_letter=finals,
            )
            self._new.append((enqueued.key, serial, message))
            self._keys_of[enqueued.key, serial] = key
        if finals:
            self._new_finals.append((enqueued.key, enqueued.first, enqueued.last))

    def receive(self, message: Message, answer: Answer) -> None:
        """Process a receipt that arrived for the order queue, and answer when its effect is stored.

        While the sender is down, the answer is ``None``.
        """
        if not self.up:
            answer(None)
            return
        verdict = self.sender.receipt(message, self.clock.now, self.clock.utc())
        self.marks[f"out-receipt-{verdict}"] += 1
        self.answer_receipt(answer)
        self.work()

    def answer_receipt(self, answer: Answer) -> None:
        """Let ``answer`` be called with 200 once the receipt's effect is stored."""
        self._waiting.append(answer)

    # --- the loop ---------------------------------------------------------------------------------

    def work(self) -> None:
        """Carry out the engine's effects, and commit if there is something to commit."""
        for effect in self.sender.poll(
            self.clock.now, self._expiry.read(self.clock.utc(), self.clock.now)
        ):
            if isinstance(effect, Load):
                self.clock.after(self.random.random() * LOAD_S_MAX, self._loaded, self.life, effect)
            else:
                self.send(effect)
        if not self.disk.busy and (self.sender.has_changes or self._waiting):
            self._begin()
        when = self.sender.next_timer()
        if when is not None and (self._timer is None or when < self._timer):
            self._timer = when
            self.clock.at(when, self._on_timer, self.life)

    def _begin(self) -> None:
        changes = self.sender.changes()
        messages, finals, batches = self._new, self._new_finals, self._new_batches
        self._new, self._new_finals, self._new_batches = [], [], []
        self._syncing = (changes, self._waiting)
        self._waiting = []
        self.disk.begin(OutboxTransaction(messages, changes, self._uniquifier, finals, batches))
        self.clock.after(self.random.random() * SYNC_S_MAX, self._synced, self.life)

    def _synced(self, life: int) -> None:
        if life != self.life:
            return
        assert self._syncing is not None
        changes, answers = self._syncing
        self._syncing = None
        self.finish(changes, self.disk.finish())
        for answer in answers:
            answer(200)
        self.work()

    def finish(self, changes: OutgoingChanges, proof: Committed) -> None:
        """Report a finished commit to the engine, and final deliveries to the oracle."""
        for outcome in self.sender.committed(changes, proof):
            if isinstance(outcome, Delivered):
                for serial in range(outcome.run.first, outcome.run.last + 1):
                    key = self._keys_of[outcome.run.key, serial]
                    if key not in self.disk.dead:
                        self.oracle.acknowledged(key)
            else:
                self.marks[f"out-dead-{outcome.letter.reason}"] += 1

    def _loaded(self, life: int, load: Load) -> None:
        if life == self.life and self.random.random() < NOT_REACHED:
            self.marks["out-not-reached"] += 1
            self._not_reached(load)
            self.work()
        elif life == self.life:
            self.sender.loaded(
                load, self.disk.read(load, self.random.randint(1, ROWS_PER_LOAD_MAX))
            )
            self.work()

    def _not_reached(self, load: Load) -> None:
        at = self._expiry.read(self.clock.utc(), self.clock.now)
        if not self.sender.must_see(load, at):
            self.sender.not_reached(load, self.clock.now)
            return
        more: Load | None = load
        while more is not None:
            rows = self.disk.read(more, self.random.randint(1, ROWS_PER_LOAD_MAX))
            more = self.sender.seen(more, rows, self.clock.now, at)

    def _on_timer(self, life: int) -> None:
        if life == self.life:
            self._timer = None
            self.sender.due(self.clock.now, self.clock.utc())
            self.work()

    # --- sending ----------------------------------------------------------------------------------

    def send(self, send: Send) -> None:
        """Post the message of ``send``, and report the result to the engine.

        A message without an answer may be posted a second time automatically.
        """
        self.watch(send)
        life = self.life
        # The transport repeats a message once by itself when the peer closes a kept connection.
        # The repeat happens before the engine is notified of the first attempt's end.
        once_more = True

        def answered(status: int | None) -> None:
            nonlocal once_more
            if life != self.life:
                return
            now = self.clock.now
            if status is None and once_more and self.random.random() < ONCE_MORE:
                once_more = False
                self.marks["out-once-more"] += 1
                self.sender.doubted(send)
                if self.random.random() < REDIAL_REFUSED:
                    self.clock.after(HEALTHY_DELAY_S, answered, -1)
                else:
                    self._post(send.message, answered)
                return
            if status is None:
                self.sender.failed(send, now)
            elif status == -1:
                self.sender.failed(send, now, left=False)
            else:
                self.sender.answered(send, status, now, self.clock.utc())
            self.work()

        self._post(send.message, answered)

    def watch(self, send: Send) -> None:
        """Check the rules that hold for each message that is sent.

        The method records a problem if the message changed its identifier, its place or its
        ``<start>``, or is not stored.
        """
        message = send.message
        key = message.body.decode()
        self.marks["out-again" if send.again else "out-first"] += 1
        if self._identifiers.setdefault(key, message.uniquifier) != message.uniquifier:
            self.problems.append(
                f"{key} left as {message.uniquifier}, before as {self._identifiers[key]}"
            )
        stored = self.disk.messages.get(send.key, {}).get(send.serial)
        if stored is None or stored.uniquifier != message.uniquifier:
            self.problems.append(f"{key} left, but what is stored is {stored}")
        place = message.stream
        if place is None:
            return
        if self._places.setdefault((key, place.id), place.current) != place.current:
            self.problems.append(
                f"{key} left as {place.current}, before as {self._places[key, place.id]} "
                f"of {place.id}"
            )
        row = self.disk.queues[send.key]
        if row.stream_ordinal != place.id.ordinal or row.base + place.current != send.serial:
            self.problems.append(f"{key} left as {place}, stored is {row}")
        if (
            place.start is not (place.current == 1)
            or (place.send_receipts_to is not None) is not place.start
        ):
            self.problems.append(f"{key} left with a wrong <start>: {place}")
        if split_url(place.send_receipts_to or RECEIPTS_URL) != split_url(RECEIPTS_URL):
            self.problems.append(f"{key} asks for receipts to {place.send_receipts_to}")
        self._watch_previous(send.key, key, row.base, place.previous, place.current)

    def _watch_previous(
        self, queue: QueueKey, key: str, base: int, previous: int, current: int
    ) -> None:
        dead = self.disk.dead
        skipped = [
            self._keys_of.get((queue, base + position), "nothing")
            for position in range(previous + 1, current)
        ]
        if skipped:
            self.marks["out-bridge"] += 1
        if any(other not in dead for other in skipped):
            self.problems.append(f"{key} skips {skipped}, which are not stored as dead")
        before = self._keys_of.get((queue, base + previous), "")
        if previous and before in dead and dead[before].reason in ("refused", "expired"):
            self.problems.append(f"{key} says it follows {before}, which is dead")

    @property
    def idle(self) -> bool:
        """Return whether nothing is left to send, to store, or to wait for."""
        return (
            not any(self.disk.messages.values())
            and not self.sender.has_changes
            and not self.disk.busy
        )
