"""What the main process knows of each queue without asking the database: ends, epochs, what waits, consumers.

The engine has its own view (:class:`QueueState`: the last sequence *given out*); here is what is *committed*, which is all
that a reader may see. Kept up to date by the commits themselves.
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
from srmp_spark.queue_manager.consumers import CONSUMERS_MAX, Consumer
from srmp_spark.queue_manager.deciding import Deciding
from srmp_spark.sequences.ranges import Range
from srmp_spark.sequences.sequence_set import SequenceSet, count_in_either
from srmp_spark.srmp.destinations import QueueState
from srmp_spark.store.retention import RECEIVED_BY_NOBODY
from srmp_spark.store.state import StoredQueue
from srmp_spark.store.transaction import Transaction
from srmp_spark.store.waiting import Waiting

WAITERS_MAX = 1_000
"""Long polls on one queue at once."""
NOTHING = SequenceSet()
"""What is received out of turn of a queue that nobody receives from."""


class UnknownQueueError(ApiError):
    """There is no queue called ``queue``. :meth:`Catalogue.explained` finds the one that was meant, for people to read."""

    def __init__(self, queue: str) -> None:
        hint = "create it with serve --queue, or PUT /v1/queues/NAME"
        super().__init__(404, UNKNOWN_QUEUE, f"there is no queue {queue}", hint)
        self.queue = queue


class QueueEpoch(NamedTuple):
    """The rows of one epoch in one queue begin at ``first``, and end before the next one's."""

    epoch: str
    first: int


class EpochSpan(NamedTuple):
    """What there is of one epoch of a queue."""

    epoch: str
    begin: int
    """Its first sequence, retained or not."""
    first: int
    """Its oldest retained sequence; ``end`` + 1 if none."""
    end: int
    next_epoch: str | None


@dataclass(slots=True)
class Queue:
    """A queue of ours."""

    id: int
    name: str
    state: QueueState
    """The engine's side; ``paused``, ``bytes_waiting`` and ``count`` are kept up to date here."""
    epochs: list[QueueEpoch]
    trimmed_to: int
    end: int
    """The last committed sequence."""
    waiting: Waiting
    unsealed_bytes: int = 0
    """Bytes that came since there was nothing more to seal."""
    consumers: dict[str, Consumer] = field(default_factory=dict)
    waiters: set[asyncio.Future[None]] = field(default_factory=set)
    deciding: Deciding = field(default_factory=Deciding)
    """What the default consumer's marks have decided and the store does not hold yet."""
    damage: dict[str, str] = field(default_factory=dict)
    """Rows that cannot be read: who found out (``read``, ``seal``, ``retain``, ``publish``) → what it said."""
    on_marks: Callable[[], object] | None = None
    """Called when the default consumer took something, or rows went: there may be room."""
    read_to: int = 0
    """Of our order queue: rows up to here were read by the sender process for good; no consumer's mark stands for that."""
    journal: Queue | None = None
    """Its journal (:mod:`.queue_journal`), if it keeps one."""
    grown: set[str] = field(default_factory=set)
    """Where its name is noted when it gets rows: the catalogue's (:attr:`Catalogue.grown`)."""

    @property
    def log_name(self) -> str:
        """The queue in whose log the rows are: this one, for a journal another."""
        return self.name

    @property
    def held_bytes(self) -> int:
        """Bytes that the default consumer has not received; of our order queue, that the sender process has not read."""
        return self.waiting.bytes

    def stored_name(self, consumer: str) -> str:
        """The name that a consumer is saved under."""
        return consumer

    @property
    def default(self) -> Consumer:
        """The consumer that decides."""
        return self.consumer(DEFAULT_CONSUMER)

    @property
    def consumers_full(self) -> bool:
        """Whether there are as many consumers as may be, beside the one that decides, which always finds its place."""
        return len(self.consumers) - (DEFAULT_CONSUMER in self.consumers) >= CONSUMERS_MAX

    @property
    def listed(self) -> bool:
        """Whether people see it in lists: a queue that we made ourselves only once something is in it, a subqueue that nobody
        declared only in the entry of its queue."""
        return self.state.declared and (self.name not in OWN_QUEUES or self.end > 0)

    @property
    def quota_bytes(self) -> int:
        """What the quota counts: nothing in a system queue, which nobody receives from and retention alone empties."""
        return 0 if self.name in RECEIVED_BY_NOBODY else self.waiting.bytes

    def weigh(self) -> None:
        """Tell the engine what waits."""
        self.state.weigh(self.quota_bytes)
        if self.name in RECEIVED_BY_NOBODY:
            self.state.unread_bytes = self.waiting.bytes

    def was_read(self, to: int) -> None:
        """Our order queue: the sender process needs the rows up to ``to`` no more."""
        self.read_to = to
        self.marks_moved()

    def consumer(self, name: str) -> Consumer:
        """A consumer, made when it is asked for. Raises a 400."""
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
        """What there is of an epoch; ``None``: the current one. Raises a 409."""
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
        """The rows ``first`` to ``last`` were committed: ``size`` bytes, the first of which arrived at ``arrived_at``."""
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
        """Retention has deleted the rows up to ``to``."""
        self.trimmed_to = max(self.trimmed_to, to)
        for each in (self, self.journal):
            if each is not None:
                each.waiting.trim(to)
        self.damage.clear()  # perhaps these rows; if not, the next one to read them says so again
        self.marks_moved()

    def marks_moved(self) -> None:
        """The default consumer's marks, or the retained range, changed."""
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
        """These rows, ascending and disjoint, are holes now; :meth:`marks_moved` is next."""
        for each in (self, self.journal):
            if each is not None:
                each.waiting.cut(holes)

    def close_up(self, consumer: Consumer) -> None:
        """Rows that are no more cannot be received: a mark that stands before them goes on behind them.

        Without it who receives row by row stands before a hole for ever, and with the mark retention.
        """
        consumer.pass_over(self.trimmed_to, self.waiting.holes)

    def waiting_for(self, consumer: Consumer) -> int:
        """How many rows a consumer has not received; holes are none."""
        low = max(self.trimmed_to, consumer.received) + 1
        return max(0, self.end + 1 - low) - count_in_either(
            low, self.end, consumer.ahead, self.waiting.holes
        )

    def behind_hole(self, after: int) -> int:
        """Where the rows after ``after`` begin, less one: a hole there may be as long as all that a lost disk took along."""
        return self.waiting.holes.next_missing(after + 1) - 1

    def wake(self) -> None:
        """Something was committed: long polls look again."""
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)
        self.waiters.clear()

    async def changed(self, seconds: float) -> None:
        """Wait for the next commit, at most so long. Raises a 503 beyond WAITERS_MAX."""
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
    """All queues by canonical name."""

    def __init__(self) -> None:
        self._queues: dict[str, Queue] = {}
        self._in_order: list[Queue] | None = None
        """All queues by name, until one is added or removed: who lists them does not sort ten thousand each time."""
        self._subqueues: dict[str, dict[str, Queue]] = {}
        """Queue → its subqueues that nobody declared, by name."""
        self.grown: set[str] = set()
        """The queues that got rows since sealing looked at them; whoever looks takes the names out."""
        self.on_purge: Callable[[Transaction], object] | None = None
        """Called in each transaction that purges a queue: its rows have left for who looks, and may be back after a crash."""
        self.hold_readers: Callable[[], Callable[[], object]] | None = None
        """Called before the first transaction of a purge, which may need several; what it returns is called when the last one
        is stored, or the purge has failed."""

    def __iter__(self) -> Iterator[Queue]:
        if self._in_order is None:
            self._in_order = sorted(self._queues.values(), key=attrgetter("name"))
        return iter(self._in_order)

    def __len__(self) -> int:
        return len(self._queues)

    def with_journals(self) -> Iterator[Queue]:
        """All that can be read."""
        for queue in self:
            yield queue
            if queue.journal is not None:
                yield queue.journal

    @property
    def undeclared(self) -> list[Queue]:
        """Every subqueue that nobody declared."""
        return [queue for each in self._subqueues.values() for queue in each.values()]

    def subqueues_of(self, name: str) -> list[Queue]:
        """Return the subqueues of a queue that nobody declared, in the order of their names."""
        found = self._subqueues.get(name, {})
        return [found[each] for each in sorted(found)]

    @property
    def declared_count(self) -> int:
        """How many queues there are without subqueues that nobody declared, which have a limit of their own."""
        return len(self._queues) - sum(map(len, self._subqueues.values()))

    def purging(self, transaction: Transaction, queue: Queue) -> None:
        """The marks of ``queue`` have passed what this transaction takes away."""
        queue.marks_moved()
        transaction.after_commit.append(
            queue.marks_moved
        )  # rows of this very commit were counted as waiting
        if self.on_purge is not None:
            self.on_purge(transaction)

    def get(self, name: str) -> Queue | None:
        """A queue, or the journal of one, by its canonical name."""
        found = self._queues.get(name)
        base = base_of_journal(name) if found is None else None
        return found if base is None or base not in self._queues else self._queues[base].journal

    def find(self, text: str) -> Queue:
        """A queue by any spelling of its name. Raises a 400 or :class:`UnknownQueueError`, which is cheap."""
        try:
            name = canonical_queue_name(text)
        except ValueError as error:
            raise ApiError(
                400, "queue-name", str(error), section="INTERFACE.md section 1"
            ) from None
        queue = self.get(name)
        if queue is None:
            raise UnknownQueueError(name)
        return queue

    def explained(self, unknown: UnknownQueueError, sees: Callable[[str], bool]) -> ApiError:
        """Return the error with what the caller can do next; ``sees``: whether the caller may hear of a queue."""
        name = unknown.queue
        base = base_of_journal(name)
        if base is not None and base in self._queues and sees(base):
            hint = f"{base} keeps no journal: serve --queue NAME:journal, or PUT /v1/queues/NAME"
        elif is_glob(name):
            hint = "this takes one name and no glob: srmp-spark queues lists the names"
        elif close := nearest_queue_name(name, self._queues, sees):
            hint = f"did you mean {close!r}? (srmp-spark queues lists the names)"
        else:
            return unknown
        return ApiError(unknown.status, unknown.code, unknown.message, hint)

    def find_base(self, text: str) -> Queue:
        """:meth:`find` for what can be done to a queue alone. Raises a 400 for a journal."""
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
        """A queue that exists in store and engine."""
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
        """Count a subqueue that remote readers made as a queue like any other."""
        found = self._subqueues.get(_base_of(name), {})
        found.pop(name, None)
        if not found:
            self._subqueues.pop(_base_of(name), None)

    def remove(self, name: str) -> None:
        """A queue that is gone; calls that wait for it wake up."""
        queue = self._queues.pop(name)
        self._in_order = None
        self.note_declared(name)
        queue.wake()
        if queue.journal is not None:
            queue.journal.wake()


def _base_of(name: str) -> str:
    return name.partition(";")[0]
