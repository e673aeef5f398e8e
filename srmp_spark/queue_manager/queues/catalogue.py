"""Keep in memory what the main process must know of each queue without asking the database.

The catalogue holds ends, epochs, waiting rows and consumers, which
:mod:`srmp_spark.queue_manager.queues` explains. The engine (:mod:`srmp_spark.srmp.receiving`) has
its own view (:class:`QueueState`), with the last sequence that was *assigned*. The catalogue has
the last sequence that is *committed*, and a reader may see no more than that. The commits
themselves keep the catalogue up to date.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from srmp_spark.errors import ApiError
from srmp_spark.interface import DEFAULT_CONSUMER, UNKNOWN_EPOCH, UNKNOWN_QUEUE
from srmp_spark.names import (
    CONSUMER_NAME_LENGTH_MAX,
    OWN_QUEUES,
    base_of_journal,
    canonical_queue_name,
    is_glob,
    nearest_queue_name,
)
from srmp_spark.queue_manager.queues.consumers import CONSUMERS_MAX, Consumer
from srmp_spark.queue_manager.queues.deciding import Deciding
from srmp_spark.sequences.ranges import Range
from srmp_spark.sequences.sequence_set import SequenceSet, count_in_either
from srmp_spark.srmp.receiving.destinations import QueueState
from srmp_spark.store.database.transaction import Transaction
from srmp_spark.store.stored_rows.retention import RECEIVED_BY_NOBODY
from srmp_spark.store.tables.queues import MadeFor
from srmp_spark.store.tables.state import StoredQueue
from srmp_spark.store.tables.waiting import WaitingRows

WAITERS_MAX = 1_000
"""Most long polls that wait for one queue at once. A further one is answered 503."""
NOTHING = SequenceSet()
"""The empty set. A queue from which no client receives has no rows that were received out of turn.
"""


class NoSuchQueueError(ApiError):
    """Raised when there is no queue called ``queue``.

    :meth:`Catalogue.explained` adds a hint for users.
    """

    def __init__(self, queue: str) -> None:
        hint = "create it with srmp-spark queue create NAME, or serve --queue NAME"
        super().__init__(404, UNKNOWN_QUEUE, f"there is no queue {queue}", hint)
        self.queue = queue


class QueueEpoch(NamedTuple):
    """One epoch of one queue.

    The rows of the epoch begin at ``first`` and end before the first row of the next epoch.
    """

    epoch: str
    first: int


class EpochSpan(NamedTuple):
    """The range of sequences of one epoch of a queue."""

    epoch: str
    begin: int
    """The first sequence of the epoch, whether it is retained or not."""
    first: int
    """The oldest retained sequence of the epoch, or ``end`` + 1 if none is retained."""
    end: int
    next_epoch: str | None


@dataclass(slots=True)
class Queue:
    """One queue of this queue manager, as the main process knows it.

    A "row" is a message of the queue, and its sequence is its number in the queue. ``trimmed_to``
    is the last sequence that retention has deleted. All methods change memory only;
    :class:`.ConsumerSaves` stores consumers.
    """

    id: int
    name: str
    state: QueueState
    """The engine's view of the queue.

    The catalogue keeps its ``paused``, ``bytes_waiting`` and ``count`` up to date.
    """
    epochs: list[QueueEpoch]
    trimmed_to: int
    end: int
    """The sequence of the last committed row."""
    waiting: WaitingRows
    unsealed_bytes: int = 0
    """Bytes of rows that arrived since sealing last found nothing more to seal."""
    consumers: dict[str, Consumer] = field(default_factory=dict)
    waiters: set[asyncio.Future[None]] = field(default_factory=set)
    deciding: Deciding = field(default_factory=Deciding)
    """Decisions about rows by the default consumer's marks that are not on stable storage yet."""
    damage: dict[str, str] = field(default_factory=dict)
    """Error messages about rows that cannot be read, by the task that found them (``read``,
    ``seal``, ``retain``, ``publish``).
    """
    on_marks: Callable[[], object] | None = None
    """Called when the default consumer received rows, or rows were deleted.

    The queue may have room again.
    """
    read_to: int = 0
    """Sequence up to which the sender process no longer needs the rows, in the order queue only.

    The order queue is ``private$/order_queue$``. No consumer's mark records this sequence.
    """
    paused_out: bool = False
    """Whether readers that receive find no further rows (``queue pause --out``)."""
    made_for: MadeFor | None = None
    """The subscription that created the queue, unless an operator keeps the queue."""
    journal: Queue | None = None
    """The journal of the queue (:mod:`.queue_journal`), or ``None`` if it keeps none."""
    grown: set[str] = field(default_factory=set)
    """The set :attr:`Catalogue.grown`, to which the queue adds its name when it gets rows."""

    @property
    def log_name(self) -> str:
        """Return the name of the queue whose log holds the rows.

        For a queue this is its own name, for a journal the name of its queue.
        """
        return self.name

    @property
    def held_bytes(self) -> int:
        """Return the number of bytes of the rows that the default consumer has not received.

        For the order queue (``private$/order_queue$``) these are the rows that the sender process
        has not read.
        """
        return self.waiting.bytes

    def stored_name(self, consumer: str) -> str:
        """Return the name under which the database has the consumer called ``consumer``."""
        return consumer

    @property
    def default(self) -> Consumer:
        """Return the default consumer, and create it in memory if it does not exist.

        A row that it has received is decided: the sender gets the receipt that it asked for. The
        row no longer takes room in the queue, and retention may delete it.
        """
        return self.consumer(DEFAULT_CONSUMER)

    @property
    def consumers_full(self) -> bool:
        """Return whether the queue has CONSUMERS_MAX consumers, the default consumer not counted.

        The default consumer can always be added.
        """
        return len(self.consumers) - (DEFAULT_CONSUMER in self.consumers) >= CONSUMERS_MAX

    @property
    def listed(self) -> bool:
        """Return whether lists for users show the queue.

        The order queue and ``private$/forward$`` are shown once they have had a row. A subqueue
        that no client declared is shown only in the entry of its queue.
        """
        return self.state.declared and (self.name not in OWN_QUEUES or self.end > 0)

    @property
    def quota_bytes(self) -> int:
        """Return the number of bytes of waiting rows that count for the quotas.

        The result is 0 for the order queue (``private$/order_queue$``), because no client receives
        from it and only retention empties it.
        """
        return 0 if self.name in RECEIVED_BY_NOBODY else self.waiting.bytes

    def weigh(self) -> None:
        """Pass the number of waiting bytes on to the engine, which compares it with the quotas."""
        self.state.weigh(self.quota_bytes)
        if self.name in RECEIVED_BY_NOBODY:
            self.state.unread_bytes = self.waiting.bytes

    def was_read(self, to: int) -> None:
        """Record that the sender process no longer needs the rows up to ``to`` (included).

        Only the order queue (``private$/order_queue$``) is read in this way.
        """
        self.read_to = to
        self.marks_moved()

    def consumer(self, name: str) -> Consumer:
        """Return the consumer ``name``, and create it in memory if it does not exist.

        Raises :class:`ApiError`: 400 if this is no consumer name, 409 if the queue has too many
        consumers.
        """
        found = self.consumers.get(name)
        if found is None:
            if (
                not 0 < len(name) <= CONSUMER_NAME_LENGTH_MAX
                or not name.isprintable()
                or "/" in name
            ):
                raise ApiError(
                    400,
                    "usage",
                    f"not a consumer name: {name[:50]!r}",
                    f"1 to {CONSUMER_NAME_LENGTH_MAX} printable characters",
                )
            if name != DEFAULT_CONSUMER and self.consumers_full:
                raise ApiError(
                    409,
                    "too-many-consumers",
                    f"queue {self.name} has {CONSUMERS_MAX} consumers that hold marks or a lease",
                    "use one of them, or delete one: srmp-spark consumers QUEUE --delete NAME",
                )
            found = self.consumers[name] = Consumer(name)
        return found

    def span(self, epoch: str | None) -> EpochSpan:
        """Return the range of sequences of an epoch; ``None`` means the current epoch.

        Raises :class:`ApiError` (409) if the queue has no such epoch.
        """
        position = len(self.epochs) - 1
        if epoch is not None:
            position = next((n for n, each in enumerate(self.epochs) if each.epoch == epoch), -1)
            if position < 0:
                raise ApiError(
                    409,
                    UNKNOWN_EPOCH,
                    f"queue {self.name} of this queue manager has no epoch {epoch[:50]}",
                    "the data directory is not the one that was read before; see failOnDataLoss",
                    "INTERFACE.md section 1",
                )
        name, begin = self.epochs[position]
        following = self.epochs[position + 1] if position + 1 < len(self.epochs) else None
        end = self.end if following is None else following.first - 1
        first = max(begin, self.trimmed_to + 1)
        return EpochSpan(
            name, begin, min(first, end + 1), end, following.epoch if following else None
        )

    def stored(self, first: int, last: int, size: int, arrived_at: int) -> None:
        """Record that the rows ``first`` to ``last`` (included) were committed; wake long polls.

        They have ``size`` bytes together, and the first of them arrived at ``arrived_at``, in
        microseconds since 1970.
        """
        self.end = last
        self.unsealed_bytes += size
        self.grown.add(self.name)
        self.waiting.add(first, size, arrived_at, last=last)
        if self.journal is not None:
            self.journal.waiting.add(first, size, arrived_at, last=last)
        self.state.count += last - first + 1
        self.weigh()
        if self.waiters:
            self.wake()

    def trimmed(self, to: int) -> None:
        """Record that retention has deleted the rows up to ``to`` (included).

        Known damage is forgotten.
        """
        self.trimmed_to = max(self.trimmed_to, to)
        for each in (self, self.journal):
            if each is not None:
                each.waiting.trim(to)
        # The damage was perhaps in these rows. If not, the next reader reports it again.
        self.damage.clear()
        self.marks_moved()

    def marks_moved(self) -> None:
        """Count the waiting rows and bytes again, and pass them on to the engine.

        Call this after the default consumer's marks or the retained rows changed. :attr:`on_marks`
        is called, and the queue's journal follows.
        """
        default = self.default
        if self.name in RECEIVED_BY_NOBODY:
            self.waiting.receive(max(self.read_to, self.trimmed_to), NOTHING)
        else:
            self.waiting.receive(
                max(default.received, self.trimmed_to), default.ahead, default.take_touched()
            )
        self.state.count = self.waiting_for(default)
        self.weigh()
        if self.on_marks is not None:
            self.on_marks()
        if self.journal is not None:
            self.journal.marks_moved()

    def cut(self, holes: Sequence[Range]) -> None:
        """Record that the sequences in ``holes`` have no rows any longer.

        ``holes`` are ascending and disjoint. Call :meth:`marks_moved` next, which counts the
        waiting rows.
        """
        for each in (self, self.journal):
            if each is not None:
                each.waiting.cut(holes)

    def close_up(self, consumer: Consumer) -> None:
        """Move the mark of ``consumer`` past rows that no longer exist and follow it directly.

        Such rows cannot be received. Without this a consumer that receives row by row would stop
        before a hole forever, and its mark would hold up retention.
        """
        consumer.pass_over(self.trimmed_to, self.waiting.holes)

    def waiting_for(self, consumer: Consumer) -> int:
        """Return the number of existing rows that ``consumer`` has not received."""
        low = max(self.trimmed_to, consumer.received) + 1
        return max(0, self.end + 1 - low) - count_in_either(
            low, self.end, consumer.ahead, self.waiting.holes
        )

    def behind_hole(self, after: int) -> int:
        """Return the last sequence of the hole right after ``after``; ``after`` if none is there.

        A hole may be as long as all the rows that were lost with a disk.
        """
        return self.waiting.holes.next_missing(after + 1) - 1

    def wake(self) -> None:
        """Wake the long polls of the queue.

        Called because rows were committed or the queue was removed.
        """
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)
        self.waiters.clear()

    async def changed(self, seconds: float) -> None:
        """Wait until :meth:`wake` is called, at most ``seconds``; return nothing in either case.

        :meth:`wake` is called when rows were committed or the queue was removed. Raises
        :class:`ApiError` (503) if WAITERS_MAX calls wait already.
        """
        if len(self.waiters) >= WAITERS_MAX:
            raise ApiError(
                503,
                "too-many-waiters",
                f"more than {WAITERS_MAX} calls wait for queue {self.name}",
                "poll less often",
            )
        waiter = asyncio.get_running_loop().create_future()
        self.waiters.add(waiter)
        try:
            await asyncio.wait_for(waiter, seconds)
        except asyncio.TimeoutError:
            return
        finally:
            self.waiters.discard(waiter)


class Catalogue:
    """All queues of this queue manager, by canonical name (:func:`canonical_queue_name`).

    A subqueue that a remote reader created is "undeclared" until a client declares it as a queue.
    """

    def __init__(self) -> None:
        self._queues: dict[str, Queue] = {}
        self._in_order: list[Queue] | None = None
        """All queues sorted by name, until one is added or removed.

        So a listing need not sort ten thousand queues each time.
        """
        self._subqueues: dict[str, dict[str, Queue]] = {}
        """For each queue its undeclared subqueues, by name."""
        self.grown: set[str] = set()
        """The names of queues that got rows since sealing (:mod:`.maintenance`) last took the
        names.
        """
        self.on_purge: Callable[[Transaction], object] | None = None
        """Called in each transaction that purges a queue.

        The rows are gone for readers already, but may exist again after a crash.
        """
        self.hold_readers: Callable[[], Callable[[], object]] | None = None
        """Called before the first transaction of a purge, which may need several.

        It returns a function, which is called when the last transaction is stored or the purge has
        failed.
        """

    def __iter__(self) -> Iterator[Queue]:
        if self._in_order is None:
            self._in_order = sorted(self._queues.values(), key=attrgetter("name"))
        return iter(self._in_order)

    def __len__(self) -> int:
        return len(self._queues)

    def with_journals(self) -> Iterator[Queue]:
        """Yield all queues, and after each its journal if it keeps one."""
        for queue in self:
            yield queue
            if queue.journal is not None:
                yield queue.journal

    def held_leases(self, now: float) -> Iterator[tuple[Queue, Consumer]]:
        """Yield each consumer with a lease that has a living holder, and its queue.

        ``now`` is in seconds of the monotonic clock.
        """
        for queue in self.with_journals():
            for consumer in queue.consumers.values():
                if consumer.is_held(now):
                    yield queue, consumer

    @property
    def undeclared(self) -> list[Queue]:
        """Return the list of all undeclared subqueues."""
        return [queue for each in self._subqueues.values() for queue in each.values()]

    def subqueues_of(self, name: str) -> list[Queue]:
        """Return the undeclared subqueues of the queue ``name``, sorted by name."""
        found = self._subqueues.get(name, {})
        return [found[each] for each in sorted(found)]

    @property
    def declared_count(self) -> int:
        """Return the number of queues, the undeclared subqueues not counted.

        Those have a limit of their own.
        """
        return len(self._queues) - sum(map(len, self._subqueues.values()))

    def purging(self, transaction: Transaction, queue: Queue) -> None:
        """Prepare for ``transaction``, which deletes rows of ``queue``.

        The marks of the queue have passed these rows already. The waiting rows are counted again
        now and after the commit, and :attr:`on_purge` is called now.
        """
        queue.marks_moved()
        # Count again after the commit, because rows of this commit were counted as waiting.
        transaction.after_commit.append(queue.marks_moved)
        if self.on_purge is not None:
            self.on_purge(transaction)

    def get(self, name: str) -> Queue | None:
        """Return a queue or a journal by its canonical name, or ``None`` if there is none."""
        found = self._queues.get(name)
        base = base_of_journal(name) if found is None else None
        return found if base is None or base not in self._queues else self._queues[base].journal

    def find(self, text: str) -> Queue:
        """Return a queue or a journal by its name ``text``, in any allowed form.

        Raises :class:`ApiError` (400) if this is no name, and :class:`NoSuchQueueError` if there
        is no such queue. The error is cheap: it has no search for similar names.
        """
        try:
            name = canonical_queue_name(text)
        except ValueError as error:
            raise ApiError(
                400, "queue-name", str(error), section="INTERFACE.md section 1"
            ) from None
        queue = self.get(name)
        if queue is None:
            raise NoSuchQueueError(name)
        return queue

    def explained(self, unknown: NoSuchQueueError, sees: Callable[[str], bool]) -> ApiError:
        """Return the error ``unknown`` with a hint that states what the caller can do next.

        ``sees`` returns whether the caller may know of a queue. Only the names of such queues occur
        in the hint.
        """
        name = unknown.queue
        base = base_of_journal(name)
        if base is not None and base in self._queues and sees(base):
            hint = f"{base} keeps no journal: srmp-spark queue set '{base}' journal=on"
        elif is_glob(name):
            hint = "give one name and no glob: srmp-spark queues lists the names"
        elif close := nearest_queue_name(name, self._queues, sees):
            hint = f"did you mean {close!r}? (srmp-spark queues lists the names)"
        else:
            return unknown
        return ApiError(unknown.status, unknown.code, unknown.message, hint)

    def find_base(self, text: str) -> Queue:
        """Return a queue by its name ``text``, for an action that no journal allows.

        Raises the errors of :meth:`find`, and :class:`ApiError` (400) if the name is that of a
        journal.
        """
        queue = self.find(text)
        if queue.log_name != queue.name:
            hint = (
                f"{queue.log_name} is the queue; its journal can be read, received from and purged"
            )
            raise ApiError(
                400,
                "journal-queue",
                f"{queue.name} is a journal: it is read only",
                hint,
                "[MS-MQMQ] 2.1.7",
            )
        return queue

    def add(self, stored: StoredQueue, state: QueueState) -> Queue:
        """Add a queue that exists in the database and in the engine, and return it.

        ``stored`` is its state in the database, and ``state`` the engine's view of it.
        """
        epochs = [QueueEpoch(*each) for each in stored.epochs]
        queue = Queue(
            stored.id, stored.name, state, epochs, stored.trimmed_to, stored.end, stored.waiting
        )
        queue.grown = self.grown
        queue.weigh()
        self._queues[stored.name] = queue
        self._in_order = None
        if not state.declared:
            self._subqueues.setdefault(_base_of(stored.name), {})[stored.name] = queue
        return queue

    def note_declared(self, name: str) -> None:
        """Count the undeclared subqueue ``name`` as a declared queue from now on."""
        found = self._subqueues.get(_base_of(name), {})
        found.pop(name, None)
        if not found:
            self._subqueues.pop(_base_of(name), None)

    def remove(self, name: str) -> None:
        """Remove a queue that was deleted, and wake its long polls."""
        queue = self._queues.pop(name)
        self._in_order = None
        self.note_declared(name)
        queue.wake()
        if queue.journal is not None:
            queue.journal.wake()


def _base_of(name: str) -> str:
    return name.partition(";")[0]
