"""The world of one schedule: queue managers, queues, queries, commands and the model.

The world carries out events and reports them to the model.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import logging
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.commands.messages import _receive
from tests.kit.queries.inside import Processes, inside
from tests.kit.queries.query import Asked, Query
from tests.kit.queries.store import StoredQueueManager
from tests.kit.queries.truth import BrokenPromiseError, Log, Row, Rows, Truth
from tests.kit.sim_clock import SimClock

QUEUE_MANAGERS = ("A", "B")
CONSUMERS = ("default", "audit")
SCHEDULES_OF_A_STORE = 400
"""Number of schedules after which a store's directory is replaced.

Deleted queues leave traces in the directory. After a thousand deleted queues a store would behave
differently.
"""
RESTORES_OF_A_STORE = 3
"""Number of restores after which a store's directory is replaced.

Sixteen restores would use up all message identifiers.
"""
# The stores make their own directory in it.
MEMORY = Path("/dev/shm")  # noqa: S108
"""A file system in memory, where a sync costs nothing. The stores are in it if it exists."""


class _Said(logging.Handler):
    """Collects the lines that srmp-spark logs as warnings or errors."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


class RunningManager(Protocol):
    """A queue manager of a schedule."""

    guid: str
    url: str
    is_away: bool

    def end(self, queue: str) -> int:
        """Return the last sequence of a queue, by its full name."""

    def marks(self, queue: str, consumer: str) -> list[tuple[int, int]]:
        """Return the received rows of a consumer as pairs of sequences, both included."""

    def restart(self) -> None:
        """Stop the queue manager and open its data directory again."""

    def restore(self, lose: Callable[[str], int]) -> dict[str, int]:
        """Stop the queue manager and continue with a restored data directory.

        See :func:`.store.restored` for ``lose`` and the result.
        """


class Managers(Protocol):
    """The queue managers and the clock that schedules need."""

    clock: SimClock
    processes: Processes
    happened: Counter[str]
    """How often each interesting event happened.

    Schedules in which an event never happens prove nothing about the event.
    """

    @property
    def managers(self) -> Mapping[str, RunningManager]:
        """Return the queue managers by name."""

    def next_schedule(self) -> int:
        """Count the schedules up, and return the number of the next one.

        The number is a part of the names of the schedule's queues.
        """


class Stores:
    """The queue managers of a process, with a simulated clock.

    Many schedules use them in turn; each schedule has its own queues.
    """

    def __init__(self) -> None:
        self.clock = SimClock()
        self.processes = Processes()
        self.schedules = 0
        self.happened: Counter[str] = Counter()
        self._loop = asyncio.new_event_loop()
        self._directory = Path(
            tempfile.mkdtemp(prefix="srmp-queries-", dir=MEMORY if MEMORY.is_dir() else None)
        )
        self._made = 0
        self.managers: dict[str, StoredQueueManager] = {}
        self._by_url: dict[str, StoredQueueManager] = {}
        self._make()

    def _make(self) -> None:
        self._made += 1
        for name in QUEUE_MANAGERS:
            url = f"http://127.0.0.1:{9000 + QUEUE_MANAGERS.index(name)}"
            directory = self._directory / f"{name}{self._made}"
            self.managers[name] = self._by_url[url] = StoredQueueManager(
                directory, url, self.clock, self._loop
            )

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Make every client of the process call these queue managers, in this context."""
        with inside(self._by_url, self.clock, self.processes):
            yield

    def next_schedule(self) -> int:
        """Count the schedules up, and return the number of the next one.

        The number is a part of the names of the schedule's queues. Stores with too many schedules
        or restores are replaced by new ones before.
        """
        self.schedules += 1
        worn = any(each.restores >= RESTORES_OF_A_STORE for each in self.managers.values())
        if worn or self.schedules % SCHEDULES_OF_A_STORE == 0:
            self._close()
            self._make()
        return self.schedules

    def _close(self) -> None:
        for each in self.managers.values():
            each.close()
        for folder in self._directory.iterdir():
            shutil.rmtree(folder)

    def close(self) -> None:
        """Stop the queue managers and remove their directories."""
        self._close()
        self._loop.close()
        self._directory.rmdir()


class World:
    """The surroundings of one schedule, in which its steps are carried out.

    A step that is impossible now does nothing: its queue is missing, or its queue manager is away.
    ``note`` gets each line of the story.
    """

    def __init__(
        self,
        stores: Managers,
        note: Callable[[str], object] = lambda line: None,
        make_query: Callable[[World, str], Query] = Query,
    ) -> None:
        self.note = note
        self._make_query = make_query
        self.clock = stores.clock
        self.processes = stores.processes
        self.truth = Truth()
        self.happened = stores.happened
        self.queries: dict[str, Query] = {}
        self.broken: set[Log] = set()
        """Queues that were deleted; a query that has read them may stop."""
        self.log: list[str] = []
        """Lines that were logged in this micro-step."""
        self._managers = stores.managers
        self._prefix = f"private$/s{stores.next_schedule()}-"
        self._names = {each.guid: name for name, each in self._managers.items()}
        self._queues: set[Log] = set()
        self._labels: dict[Row, str] = {}
        self._used = {CONSUMERS[0]}

    # --- names ------------------------------------------------------------------------------------

    def full_name(self, queue: str) -> str:
        """Return the name of a queue at its queue manager, for its short name ``queue``."""
        return self._prefix + queue

    def url(self, queue_manager: str) -> str:
        """Return the URL of the API of a queue manager, by its name."""
        return self._managers[queue_manager].url

    def log_of(self, guid: str, queue: str) -> Log:
        """Return the log for the GUID of a queue manager and the full name of a queue."""
        return Log(self._names[guid], queue[len(self._prefix) :])

    def row(self, guid: str, queue: str, sequence: int, label: str) -> Row:
        """Return the row of the model for a row that a query has read.

        Raises :class:`BrokenPromiseError` if another message has this sequence.
        """
        row = Row(self.log_of(guid, queue), sequence)
        if self._labels.get(row, label) != label:
            raise BrokenPromiseError(
                f"row {row} was message {self._labels[row]!r} and is {label!r}"
            )
        return row

    def was_said(self, what: str, log: Log) -> bool:
        """Return whether the log of this micro-step reports ``what`` about a queue.

        A line must have both texts: ``what`` and the name of the queue.
        """
        return any(what in line and self.full_name(log.queue) in line for line in self.log)

    # --- what there is ----------------------------------------------------------------------------

    def is_away(self, queue_manager: str) -> bool:
        """Return whether no client can reach the queue manager."""
        return self._managers[queue_manager].is_away

    def here(self, queue_managers: tuple[str, ...]) -> set[Log]:
        """Return the queues of those given queue managers that clients can reach now."""
        reached = {each for each in queue_managers if not self.is_away(each)}
        return {log for log in self._queues if log.queue_manager in reached}

    def exists(self, log: Log) -> bool:
        """Return whether the queue exists now."""
        return log in self._queues

    def marks(self, log: Log, consumer: str) -> Rows:
        """Return the existing rows of a queue that a consumer has received.

        The result is the queue manager's own report, which the caller judges.
        """
        runs = self._managers[log.queue_manager].marks(self.full_name(log.queue), consumer)
        rows = self.truth.of(log)
        return frozenset(
            row for row in rows if any(first <= row.sequence <= last for first, last in runs)
        )

    # --- what happens -----------------------------------------------------------------------------

    def client(self, queue_manager: str) -> QueueManagerClient:
        """Return a client of the API of a queue manager, by its name."""
        return QueueManagerClient(self.url(queue_manager))

    def make_queue(self, log: Log) -> None:
        """Make a queue, unless it exists or its queue manager is away."""
        if log not in self._queues and not self.is_away(log.queue_manager):
            self.client(log.queue_manager).put_queue(self.full_name(log.queue))
            self._queues.add(log)

    def arrive(self, log: Log, priorities: tuple[int, ...]) -> None:
        """Send messages with these priorities to a queue, in one commit."""
        if log not in self._queues or self.is_away(log.queue_manager):
            return
        client, name = self.client(log.queue_manager), self.full_name(log.queue)
        labels = [f"{log} {len(self._labels) + n}" for n in range(len(priorities))]
        client.send(
            name,
            [
                {"label": label, "priority": each}
                for label, each in zip(labels, priorities, strict=True)
            ],
        )
        last = self._managers[log.queue_manager].end(name)
        rows = [Row(log, last - len(labels) + 1 + n) for n in range(len(labels))]
        self._labels.update(zip(rows, labels, strict=True))
        self.happened["rows arrived"] += len(rows)
        self.truth.arrived(frozenset(rows))
        self.note(f"  {', '.join(map(str, rows))}")

    def delete(self, log: Log) -> None:
        """Delete a queue with its rows and consumers."""
        if log in self._queues and not self.is_away(log.queue_manager):
            self.happened["a queue was deleted"] += 1
            self.client(log.queue_manager).delete_queue(self.full_name(log.queue))
            self._queues.discard(log)
            self.broken.add(log)
            self._leases_end()
            self.truth.went(self.truth.of(log))

    def purge(self, log: Log) -> None:
        """Purge the rows that the default consumer has not received."""
        if log in self._queues and not self.is_away(log.queue_manager):
            kept = self.marks(log, "default")
            self.happened["a queue was purged"] += 1
            self.client(log.queue_manager).purge(self.full_name(log.queue))
            self.truth.went(self.truth.of(log) - kept)

    def receive(self, log: Log, consumer: str, count: int) -> None:
        """Receive at most ``count`` rows by priority with ``srmp-spark receive``.

        Nothing happens if a living query holds the consumer, because the command would be refused.
        Raises :class:`BrokenPromiseError` if a row had been received before.
        """
        if log not in self._queues or self.is_away(log.queue_manager):
            return
        if any(each.holds == consumer for each in self.queries.values()):
            return
        self._used.add(consumer)
        process = self.processes.begin()
        arguments = argparse.Namespace(
            api=self.url(log.queue_manager),
            token_file=None,
            allow_plain_token=False,
            table=False,
            body="none",
            after=None,
            queue=self.full_name(log.queue),
            consumer=consumer,
            max=count,
            reject=False,
        )
        marks = self.marks(log, consumer)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            _receive(arguments)
        self.processes.end(process)
        rows = [Row(log, json.loads(line)["sequence"]) for line in printed.getvalue().splitlines()]
        self.note(f"  {', '.join(map(str, rows)) or 'nothing'}")
        self.happened["rows were received by command"] += len(rows)
        self.truth.took(consumer, frozenset(rows), marks)

    def leave(self, queue_manager: str) -> None:
        """Make a queue manager unreachable for clients."""
        self._managers[queue_manager].is_away = True

    def come_back(self, queue_manager: str) -> None:
        """Make a queue manager reachable for clients again."""
        self._managers[queue_manager].is_away = False

    def restart(self, queue_manager: str) -> None:
        """Stop a queue manager and start it again."""
        self.happened["a queue manager was restarted"] += 1
        self._managers[queue_manager].restart()

    def restore(self, queue_manager: str, lose: frozenset[str]) -> None:
        """Restore a queue manager.

        The newest commit of the queues in ``lose`` (short names) is lost.
        """
        names = {self.full_name(each) for each in lose}
        self._leases_end()
        self.happened["a queue manager was restored"] += 1
        lost_from = self._managers[queue_manager].restore(lambda name: int(name in names))
        for log in self._queues:
            if log.queue_manager == queue_manager:
                first = lost_from[self.full_name(log.queue)]
                lost = frozenset(row for row in self.truth.of(log) if row.sequence >= first)
                self.happened["rows were lost with a disk"] += len(lost)
                self.truth.went(lost)

    def _leases_end(self) -> None:
        for query in self.queries.values():
            if query.life is not None:
                query.life.has_lost_leases = True

    def query(self, name: str) -> Query:
        """Return the query of the checkpoint ``name``; the first call makes it."""
        self._used |= {
            each.asked.consumer for each in self.queries.values() if each.asked is not None
        }
        found = self.queries.get(name)
        if found is None:
            found = self.queries[name] = self._make_query(self, name)
        return found

    # --- the end ----------------------------------------------------------------------------------

    def settle(self) -> None:
        """End the schedule and judge it.

        All queue managers become reachable. Each query that has planned a batch runs to the end,
        and a new query of each consumer reads what is left. Raises :class:`BrokenPromiseError` if a
        promise is broken.
        """
        for name in self._managers:
            self.come_back(name)
        for query in self.queries.values():
            query.stop()
        self.check_marks()
        for name, query in self.queries.items():
            if query.asked is not None and query.offsets:
                self.note(
                    f"at the end {name} goes on to the end, as AvailableNow with "
                    "failOnDataLoss=false"
                )
                self._run_to_the_end(query, query.asked)
        self.check_marks()
        for consumer in CONSUMERS:
            if consumer in self._used:
                self._read_what_waits(consumer)

    def _run_to_the_end(self, query: Query, asked: Asked) -> None:
        there = {log.queue for log in self._queues if log.queue_manager in asked.queue_managers}
        if not query.begins_anew:
            there |= {log.queue for log in self.truth.checkpoint(query.name).met}
        queues = tuple(each for each in asked.queues if each == "*" or each in there) or ("*",)
        starting = asked.starting
        if not isinstance(starting, str):
            starting = "unreceived"
        last = Asked(
            asked.queue_managers,
            queues,
            starting,
            asked.read_mode,
            asked.consumer,
            asked.max_rows,
            available_now=True,
            fail_on_data_loss=False,
        )
        query.start(last)
        if not query.to_the_end():
            raise BrokenPromiseError(f"{query.name} cannot go on to the end")
        query.stop()
        self.truth.check_whole(query.name, {log for log in self._queues if last.names(log)})

    def _read_what_waits(self, consumer: str) -> None:
        """Check that a new query of a consumer reads exactly the rows that wait for this consumer.

        These are the rows that the consumer has not received. Raises :class:`BrokenPromiseError`
        otherwise.
        """
        waiting = {
            row for log in self._queues for row in self.truth.of(log) - self.marks(log, consumer)
        }
        query = self.query(f"new-{consumer}")
        self.note(f"at the end a new query of {consumer} reads what waits")
        query.start(Asked(tuple(self._managers), ("*",), consumer=consumer, available_now=True))
        if not query.to_the_end():
            raise BrokenPromiseError(f"a new query of {consumer} cannot read")
        query.stop()
        had = self.truth.checkpoint(query.name).had
        if had != waiting:
            raise BrokenPromiseError(
                f"a new query of {consumer} was to read {sorted(waiting)} and read {sorted(had)}"
            )
        self.check_marks()

    def check_marks(self) -> None:
        """Check the received rows of every consumer with the model.

        Raises :class:`BrokenPromiseError` if they contradict the model.
        """
        for consumer in CONSUMERS:
            marks = frozenset().union(*(self.marks(log, consumer) for log in self._queues))
            self.truth.check_marks(consumer, marks)

    def remove_queues(self) -> None:
        """Stop the queries and delete the queues, so that another schedule can follow."""
        for name in self._managers:
            self.come_back(name)
        for query in self.queries.values():
            query.stop()
        for log in sorted(self._queues):
            self.client(log.queue_manager).delete_queue(self.full_name(log.queue))
        self._queues.clear()


@contextlib.contextmanager
def heard(world: World) -> Iterator[None]:
    """Collect the lines that the reader logs in ``world.log`` while the context lasts."""
    said = _Said()
    world.log = said.lines
    logger = logging.getLogger("srmp_spark")
    propagate = logger.propagate
    logger.addHandler(said)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(said)
        logger.propagate = propagate
