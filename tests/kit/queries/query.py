"""A streaming query without Spark: a checkpoint and the real reader.

The reader is called in the order in which Spark's engine calls it. One life of a query is a
process. Spark can be killed between the micro-steps of a life:

    begin    the reader is made; AvailableNow fixes its goal; a checkpoint without a batch
             asks for the initial offset
    plan     the next offset is written to the offset log, then the batch before the last one
             is reported (``commit``); or a batch that is in the offset log but not in the
             commit log is planned again
    read     the executors read the partitions, and the sink has the rows
    commit   the commit log has the batch

A sink accepts each position once, as the documentation requires. Therefore a batch that is read
again after a crash adds no row twice.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from srmp_spark.errors import ConfigurationError, DataLossError, SrmpSparkError
from srmp_spark.names import is_glob
from srmp_spark.spark.reading.stream_reader import SrmpStreamReader
from srmp_spark.spark.settings.options import parse
from tests.kit.queries.inside import Processes
from tests.kit.queries.truth import NO_ROWS, BrokenPromiseError, Log, Met, Row, Rows, Truth
from tests.kit.sim_clock import SimClock

PAUSE_SECONDS = 6.0
"""Seconds between two batches.

The pause is longer than a client remembers a listing of queues or an unreachable queue manager.
"""


class Surroundings(Protocol):
    """The surroundings of a query; :mod:`.world` implements them."""

    clock: SimClock
    processes: Processes
    truth: Truth
    log: list[str]
    broken: set[Log]
    happened: Counter[str]
    note: Callable[[str], object]

    def full_name(self, queue: str) -> str:
        """Return the name of a queue at its queue manager, for its short name ``queue``."""

    def url(self, queue_manager: str) -> str:
        """Return the URL of the API of a queue manager, by its name."""

    def is_away(self, queue_manager: str) -> bool:
        """Return whether no client can reach the queue manager."""

    def here(self, queue_managers: tuple[str, ...]) -> set[Log]:
        """Return the queues of those given queue managers that clients can reach now."""

    def marks(self, log: Log, consumer: str) -> Rows:
        """Return the rows of a queue that a consumer has received."""

    def log_of(self, guid: str, queue: str) -> Log:
        """Return the log for the GUID of a queue manager and the full name of a queue."""

    def row(self, guid: str, queue: str, sequence: int, label: str) -> Row:
        """Return the row of the model for a row that a query has read.

        Raises :class:`BrokenPromiseError` if another message has this sequence.
        """

    def was_said(self, what: str, log: Log) -> bool:
        """Return whether the log of this micro-step reports ``what`` about a queue.

        A line must have both texts: ``what`` and the name of the queue.
        """


MicroStep = Literal["begin", "plan", "read", "commit"]


@dataclass(frozen=True)
class Asked:
    """The options of one start of a query, with short names of queue managers and queues."""

    queue_managers: tuple[str, ...]
    queues: tuple[str, ...]
    """Short names of queues; ``*`` is the glob for all queues of the schedule."""
    starting: str | tuple[tuple[str, int], ...] = "unreceived"
    """A keyword, or pairs (queue, first sequence)."""
    read_mode: str = "receive"
    consumer: str = "default"
    max_rows: int | None = None
    available_now: bool = False
    fail_on_data_loss: bool = True

    def __str__(self) -> str:
        starting = (
            self.starting if isinstance(self.starting, str) else json.dumps(dict(self.starting))
        )
        parts = [
            f"queue={','.join(self.queues)}",
            f"startingOffsets={starting}",
            f"readMode={self.read_mode}",
        ]
        parts += [f"queueManager={','.join(self.queue_managers)}", f"consumer={self.consumer}"]
        parts += [] if self.max_rows is None else [f"maxOffsetsPerTrigger={self.max_rows}"]
        parts += ["trigger=availableNow"] if self.available_now else []
        parts += [] if self.fail_on_data_loss else ["failOnDataLoss=false"]
        return " ".join(parts)

    def spark_options(self, world: Surroundings) -> dict[str, str]:
        """Return the options as Spark passes them, with the names and URLs of ``world``."""
        starting = self.starting
        if not isinstance(starting, str):
            starting = json.dumps({world.full_name(queue): first for queue, first in starting})
        return {
            "queueManager": ",".join(world.url(each) for each in self.queue_managers),
            "queue": ",".join(world.full_name(each) for each in self.queues),
            "startingOffsets": starting,
            "readMode": self.read_mode,
            "consumer": self.consumer,
            "failOnDataLoss": str(self.fail_on_data_loss).lower(),
            **({} if self.max_rows is None else {"maxOffsetsPerTrigger": str(self.max_rows)}),
        }

    def names(self, log: Log) -> bool:
        """Return whether these options include the queue ``log``."""
        return log.queue_manager in self.queue_managers and any(
            is_glob(each) or each == log.queue for each in self.queues
        )


@dataclass(frozen=True)
class Seen:
    """The state of a queue at one moment: its rows, and the rows that the consumer had received."""

    rows: Rows
    marks: Rows

    def met(self, rule: str | int, now: Rows) -> Met:
        """Return the rows of the queue that a query leaves out, if the query begins by ``rule``.

        ``rule`` is ``earliest`` (-2), ``latest`` (-1), ``unreceived`` or the first sequence.
        ``now`` are the rows that the consumer has received when the query begins.
        """
        if rule == "latest" or rule == -1:
            return Met(self.rows, NO_ROWS)
        if rule == "unreceived":
            return Met(self.marks & self.rows, now)
        if rule == "earliest" or rule == -2:
            return Met(NO_ROWS, NO_ROWS)
        return Met(frozenset(row for row in self.rows if row.sequence < int(rule)), NO_ROWS)


@dataclass
class Life:
    """One process of a query.

    ``initial`` is the initial offset that Spark asked for, or ``None``.
    """

    asked: Asked
    reader: SrmpStreamReader
    process: str
    is_restart: bool
    """Whether the checkpoint is older than the process."""
    todo: MicroStep = "begin"
    initial: dict[str, Any] | None = None
    initial_met: dict[Log, Met] = field(default_factory=dict)
    goal: dict[Log, Seen] | None = None
    """With AvailableNow: the state of each queue when the process began."""
    looked: set[str] = field(default_factory=set)
    """Queue managers whose queues the process has seen."""
    has_planned: bool = False
    has_lost_leases: bool = False
    """Whether queues were deleted or restored during this life.

    The query may then fail with a request to register again, which a restart does.
    """
    start: dict[str, Any] = field(default_factory=dict)
    """The start offset of the planned batch."""


class Query:
    """One checkpoint and the lives of its query.

    ``offsets`` and ``commits`` are Spark's offset log and commit log. Methods raise
    :class:`BrokenPromiseError` if the query breaks a promise.
    """

    def __init__(self, world: Surroundings, name: str) -> None:
        self._world = world
        self.name = name
        self.asked: Asked | None = None
        """The options of the last start."""
        self.offsets: list[dict[str, Any]] = []
        self.commits: set[int] = set()
        self.life: Life | None = None

    @property
    def holds(self) -> str | None:
        """Return the consumer whose leases the query holds.

        Return ``None`` if the query has no process, or if it only peeks.
        """
        return (
            self.life.asked.consumer
            if self.life is not None and self.life.asked.read_mode == "receive"
            else None
        )

    @property
    def begins_anew(self) -> bool:
        """Return whether Spark asks for the initial offset.

        Spark asks if no batch is committed, and if no batch except the first was planned.
        """
        return not self.commits and len(self.offsets) <= 1

    # --- a life -----------------------------------------------------------------------------------

    def start(self, asked: Asked) -> None:
        """Begin a process of the query with the options ``asked``. No micro-step is taken."""
        process = self._world.processes.begin()
        reader = SrmpStreamReader(parse(asked.spark_options(self._world)))
        self.asked, self.life = asked, Life(asked, reader, process, bool(self.offsets))

    def stop(self) -> None:
        """End the process, if there is one, as Spark does: the reader releases its leases."""
        if self.life is not None:
            self.life.reader.stop()
            self._world.processes.end(self.life.process)
            self.life = None

    def crash(self) -> None:
        """Kill the process of the query, if there is one. The leases stay."""
        if self.life is not None:
            self._world.processes.end(self.life.process)
            self.life = None

    def go(self, count: int) -> None:
        """Take ``count`` micro-steps, or fewer if nothing is left to do."""
        for _ in range(count):
            if not self.advance():
                break

    def to_the_end(self) -> bool:
        """Take micro-steps until nothing is left to do. Return whether the query still lives then.

        The query has ended if a micro-step failed.
        """
        while self.advance():
            if self.life is None:
                return False
        return True

    def advance(self) -> bool:
        """Take one micro-step, and return whether there was something to do.

        A micro-step that fails ends the life. Raises :class:`BrokenPromiseError` if the failure, or
        a missing report, breaks a promise.
        """
        life = self.life
        if life is None:
            return False
        self._world.log.clear()
        self._world.processes.current = life.process
        try:
            return {
                "begin": self._begin,
                "plan": self._plan,
                "read": self._read,
                "commit": self._commit,
            }[life.todo](life)
        except SrmpSparkError as error:
            self._judge_end(life, error)
            self._world.note(f"  {self.name} ends: {type(error).__name__}: {error}")
            self.stop()
            return True

    def _begin(self, life: Life) -> bool:
        self._world.clock.now += PAUSE_SECONDS
        self._must_be_told(life)
        if life.asked.available_now:
            life.goal = self._seen(life)
            life.reader.prepareForTriggerAvailableNow()
        if self.begins_anew:
            seen = self._seen(life)
            life.initial = life.reader.initialOffset()
            life.initial_met = {
                log: each.met(self._rule(life, log, joined=True), each.marks)
                for log, each in seen.items()
            }
            self._should_have_told(life)
            self._may_leave_out_what_was_received(seen)
        life.todo = "plan"
        return True

    def _may_leave_out_what_was_received(self, seen: dict[Log, Seen]) -> None:
        """Permit the query to leave out rows that its consumer has received.

        ``seen`` has the queues. This is for a first batch that runs again, because the rows were
        received in the meantime.
        """
        met = self._world.truth.checkpoint(self.name).met
        for log, each in seen.items():
            if log in met:
                met[log] = replace(met[log], may_leave_out=met[log].may_leave_out | each.marks)

    def _plan(self, life: Life) -> bool:
        world, number = self._world, len(self.offsets) - 1
        world.clock.now += PAUSE_SECONDS
        if life.asked.read_mode == "receive":
            world.truth.checkpoint(self.name).consumers.add(life.asked.consumer)
        # A crash happened between the two logs, so the same batch runs again.
        if number >= 0 and number not in self.commits:
            world.happened["the first batch ran again" if number == 0 else "a batch ran again"] += 1
            before = self.offsets[number - 1] if number else life.initial
            assert before is not None
            life.start, life.todo = before, "read"
            return True
        start = self.offsets[-1] if self.offsets else life.initial
        assert start is not None
        self._must_be_told(life)
        newcomers = self._newcomers(life)
        end = life.reader.latestOffset(start, life.reader.getDefaultReadLimit())
        self._should_have_told(life)
        if life.asked.read_mode == "receive":
            world.truth.planned(self.name, life.asked.consumer, set(self._seen(life)))
        for log in newcomers:
            world.happened[
                "a queue joined" if self._is_restart(life, log) else "a queue appeared"
            ] += 1
        life.has_planned = True
        life.looked |= {each for each in life.asked.queue_managers if not world.is_away(each)}
        if self.offsets and _text(end) == _text(start):
            world.happened["nothing was new"] += 1
            return False
        checkpoint = world.truth.checkpoint(self.name)
        for log, met in {**(life.initial_met if not self.offsets else {}), **newcomers}.items():
            checkpoint.met.setdefault(log, met)
        self.offsets.append(json.loads(_text(end)))
        if len(self.offsets) > 1:
            life.reader.commit(self.offsets[-2])
        life.start, life.todo = start, "read"
        return True

    def _read(self, life: Life) -> bool:
        world, number = self._world, len(self.offsets) - 1
        rows: list[Row] = []
        for partition in life.reader.partitions(life.start, self.offsets[number]):
            executor = SrmpStreamReader(parse(life.asked.spark_options(world)))
            for batch in executor.read(partition):
                columns = (
                    batch.column(name).to_pylist()
                    for name in ("queue_manager", "queue", "sequence", "label")
                )
                rows += (world.row(*each) for each in zip(*columns, strict=True))
        # The queue manager that answers first decides the order of the logs: nothing promises one.
        told = sorted(rows, key=lambda row: str(row.log))
        world.note(f"  {self.name} reads batch {number}: {', '.join(map(str, told)) or 'nothing'}")
        world.truth.read(self.name, number, rows)
        world.happened["rows were read"] += len(rows)
        life.todo = "commit"
        return True

    def _commit(self, life: Life) -> bool:
        number = len(self.offsets) - 1
        self.commits.add(number)
        self._world.truth.committed(self.name, number, self.holds)
        life.todo = "plan"
        return True

    # --- where it begins --------------------------------------------------------------------------

    def _seen(self, life: Life) -> dict[Log, Seen]:
        world, asked = self._world, life.asked
        logs = (log for log in world.here(asked.queue_managers) if asked.names(log))
        return {log: Seen(world.truth.of(log), world.marks(log, asked.consumer)) for log in logs}

    def _newcomers(self, life: Life) -> dict[Log, Met]:
        world = self._world
        known = (
            set(world.truth.checkpoint(self.name).met) if self.offsets else set(life.initial_met)
        )
        now = self._seen(life)
        found = now if life.goal is None else life.goal
        return {
            log: each.met(
                self._rule(life, log, joined=self._is_restart(life, log)), now.get(log, each).marks
            )
            for log, each in found.items()
            if log not in known and not world.is_away(log.queue_manager)
        }

    def _is_restart(self, life: Life, log: Log) -> bool:
        """Return whether an existing queue joins a checkpoint that is older than this process.

        In a process that asked for the initial offset, these are the queues of that moment. In any
        other process, these are the queues of queue managers that the process sees for the first
        time.
        """
        if life.initial is not None:
            return life.is_restart and log in life.initial_met
        return life.is_restart and log.queue_manager not in life.looked

    @staticmethod
    def _rule(life: Life, log: Log, *, joined: bool) -> str | int:
        starting = life.asked.starting
        if starting == "unreceived":
            return starting
        if not joined:
            return "earliest"
        return (
            starting if isinstance(starting, str) else dict(starting).get(log.queue, "unreceived")
        )

    # --- what it must say -------------------------------------------------------------------------

    def _misspelt(self, life: Life) -> Iterator[str]:
        world, asked = self._world, life.asked
        # A queue manager that is away may have the queue.
        if any(world.is_away(each) for each in asked.queue_managers):
            return
        known = {log.queue for log in life.initial_met}
        if not self.begins_anew:
            known |= {log.queue for log in world.truth.checkpoint(self.name).met}
        there = {log.queue for log in world.here(asked.queue_managers)} | known
        yield from (each for each in asked.queues if not is_glob(each) and each not in there)

    def _lost(self, life: Life) -> set[Log]:
        """Return the queues that the checkpoint knows and that no longer exist.

        Queues of unreachable queue managers are left out.
        """
        world = self._world
        known = world.truth.checkpoint(self.name).met if self.offsets else life.initial_met
        there = set(world.here(life.asked.queue_managers))
        goal = None if life.goal is None else {log.queue_manager for log in life.goal}
        return {
            log
            for log in known
            if log not in there
            and life.asked.names(log)
            and not world.is_away(log.queue_manager)
            and (goal is None or log.queue_manager in goal)
        }

    def _must_be_told(self, life: Life) -> None:
        """Record the problems that the next micro-step must report.

        These are unknown names of queues, and lost queues.
        """
        self._names = [] if life.has_planned else list(self._misspelt(life))
        self._gone = self._lost(life) if life.todo == "plan" else set()

    def _should_have_told(self, life: Life) -> None:
        """Raise :class:`BrokenPromiseError` if a recorded problem was not reported.

        The problems are those of :meth:`_must_be_told`. The micro-step was successful.
        """
        if self._names:
            raise BrokenPromiseError(
                f"{self.name} reads {', '.join(self._names)}, which nobody has, and nobody is told"
            )
        if self._gone and life.asked.fail_on_data_loss:
            gone = ", ".join(map(str, self._gone))
            raise BrokenPromiseError(
                f"{self.name} goes on without {gone}, and failOnDataLoss is true"
            )
        unsaid = {log for log in self._gone if not life.has_planned and not self._was_said(log)}
        if unsaid:
            raise BrokenPromiseError(
                f"{self.name} goes on without {', '.join(map(str, unsaid))}, and the log "
                "does not say so"
            )

    def _was_said(self, log: Log) -> bool:
        """Return whether the log of this micro-step reports that rows of a queue are lost."""
        return self._world.was_said("data.lost", log)

    def _judge_end(self, life: Life, error: SrmpSparkError) -> None:
        """Raise :class:`BrokenPromiseError` unless an event explains the error.

        The error has ended the life of the query.
        """
        world, asked = self._world, life.asked
        world.happened[f"a query ended with {type(error).__name__}"] += 1
        known = set(world.truth.checkpoint(self.name).met) | set(life.initial_met)
        if any(world.is_away(each) for each in asked.queue_managers):
            return
        is_explained = False
        if isinstance(error, ConfigurationError):
            names_rows = not isinstance(asked.starting, str) and "startingOffsets" in str(error)
            is_explained = names_rows or bool(self._names or list(self._misspelt(life)))
        elif getattr(error, "code", None) == "not-registered":
            is_explained = life.has_lost_leases
        elif isinstance(error, DataLossError) or getattr(error, "status", None) == 404:
            is_explained = asked.fail_on_data_loss and bool(known & world.broken)
        if not is_explained:
            what = f"{type(error).__name__}: {error}"
            raise BrokenPromiseError(
                f"{self.name} ends, and nothing explains why: {what}"
            ) from error


def _text(offset: dict[str, Any]) -> str:
    """Return an offset as Spark stores and compares it."""
    return json.dumps(offset, separators=(",", ":"))
