"""Simulates, for one seed, dead letters that are delivered to the queues of applications.

The main process's :class:`~srmp_spark.queue_manager.sender.dead_letters.DeadLetters` and the
outbox's :class:`~srmp_spark.store.outbox.tables.letter_cursors.LetterCursors` run as they are. The
queues, the letters and the commands between the two processes are simulated. Either process is
killed at times. Messages become dead letters for several queues, each of which is paused or full at
times. Two rules must hold:

- At the end each letter is one row of its queue, in the order in which the letters died.
- A letter for a queue that accepts messages is a row within :data:`LATE_S`, whatever happens to
  other queues.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from srmp_spark.errors import ApiError
from srmp_spark.queue_manager.admission.gate import Gate
from srmp_spark.queue_manager.sender.crossing import (
    ApplicationLetter,
    FindLetterQueues,
    LetterGroup,
    LetterQueues,
    NextLetters,
)
from srmp_spark.queue_manager.sender.dead_letters import RETRY_SECONDS, DeadLetters
from srmp_spark.store.outbox.tables.letter_cursors import LetterCursors
from srmp_spark.store.outbox.tables.schema import ADDED, DDL
from tests.kit.wayout.virtual_loop import VirtualLoop, run_virtual

LATE_S = 2 * RETRY_SECONDS
"""Longest time in seconds until a letter is stored in a queue that accepts it.

The queue may have been held a moment ago, and every other queue has its turn.
"""
TROUBLE_S = 120.0
END_S = 120.0
LETTERS_MAX = 40
TAKE_S_MAX = 0.2
GUID = "aaaaaaaa-0000-4000-8000-000000000009"


class _Tables:
    """The outbox's database in memory, as :class:`LetterCursors` uses it."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        self.letters_for: set[str] = set()
        self.connection.executescript(DDL)
        for statement in ADDED:
            self.connection.execute(statement)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        self.connection.execute("BEGIN")
        yield self.connection
        self.connection.execute("COMMIT")

    def bury(self, target: str) -> int:
        """Insert a group with one dead letter for queue ``target``, and return its number."""
        self.letters_for.add(target)
        cursor = self.connection.execute(
            "INSERT INTO moved(fate, destination, kind, stream_ordinal, base, serials, "
            "ids_base, application, batch, "
            "enqueued_at, reason, in_doubt, moved_at, target, rows, bytes, position, data_id) "
            "VALUES ('dead', 'd', 'stream', '1', 0, x'', 0, 'a', 'b', 0, 'refused', 0, 0, "
            "?, 1, 0, 0, 0)",
            (target,),
        )
        assert cursor.lastrowid is not None
        return cursor.lastrowid


@dataclass(slots=True)
class _Queue:
    """One queue of an application.

    ``rows`` has the numbers of the stored letters. ``died`` and ``stored`` map a letter to the time
    of its death and of its storing.
    """

    rows: list[int] = field(default_factory=list)
    died: dict[int, float] = field(default_factory=dict)
    stored: dict[int, float] = field(default_factory=dict)
    is_shut: bool = False
    shut_until: float = 0.0


@dataclass(slots=True)
class LettersLife:
    """One run of the simulation with dead letters."""

    seed: int
    problems: list[str] = field(default_factory=list)
    marks: Counter[str] = field(default_factory=Counter)
    """Event name → how many times the event happened."""

    def run(self, planted: AbstractContextManager[object] | None = None) -> LettersLife:
        """Run the simulation with the bug ``planted``, if there is one. Return this object.

        The problems are in ``problems``, one text each.
        """
        log = logging.getLogger("srmp_spark")
        level = log.level
        log.setLevel(logging.CRITICAL)
        try:
            with planted or nullcontext():
                _, bugs = run_virtual(cast("Any", None), _Living(self).main)
        finally:
            log.setLevel(level)
        self.problems += [f"nobody caught {bug}" for bug in bugs]
        return self


class _SimDeadLetters(DeadLetters):
    """The main process's dead-letter delivery, with simulated queues."""

    living: _Living

    async def _take(self, name: str, letters: list[ApplicationLetter]) -> bool:
        # The simulation counts letters in the field of a length.
        why = await self.living.store(name, [letter.head_length for letter in letters])
        return True if why is None else self._not_yet(name, why)


class _Living:
    def __init__(self, life: LettersLife) -> None:
        self._life = life
        self._random = random = Random(f"letters {life.seed}")
        self._tables = _Tables()
        self._cursors = LetterCursors(cast("Any", self._tables), self._tables.letters_for)
        self._queues = {
            f"private$/{name}": _Queue() for name in random.sample("abcdef", random.randint(2, 5))
        }
        self._sender_is_away_until = 0.0
        self._last_kill = 0.0
        self._letters: _SimDeadLetters
        self._dead_came: asyncio.Event
        self._loop: VirtualLoop

    async def main(self, loop: VirtualLoop) -> None:
        random, self._loop = self._random, loop
        self._start()
        events: list[tuple[float, str]] = [
            (random.uniform(0.0, TROUBLE_S), "die") for _ in range(random.randint(1, LETTERS_MAX))
        ]
        events += [(random.uniform(0.0, TROUBLE_S), "shut") for _ in range(random.randint(0, 4))]
        events += [
            (random.uniform(0.0, TROUBLE_S), "kill") for _ in range(random.choice((0, 0, 1, 3)))
        ]
        begun = loop.time()
        for at, what in sorted(events):
            await asyncio.sleep(max(0.0, begun + at - loop.time()))
            await getattr(self, f"_{what}")()
        await asyncio.sleep(max(0.0, begun + TROUBLE_S - loop.time()))
        for queue in self._queues.values():
            self._open(queue)
        await asyncio.sleep(END_S)
        await self._letters.close()
        self._judge()

    def _start(self) -> None:
        self._dead_came = asyncio.Event()
        manager = SimpleNamespace(
            directory=SimpleNamespace(queue_manager=GUID),
            outgoing=SimpleNamespace(link=self, dead_came=self._dead_came),
            gate=Gate(),
        )
        self._letters = _SimDeadLetters(cast("Any", manager))
        self._letters.living = self
        self._letters.start()
        self._dead_came.set()

    # --- events -----------------------------------------------------------------------------------

    async def _die(self) -> None:
        """Turn up to three messages into dead letters, and wake the delivery as the sender does."""
        for _ in range(self._random.choice((1, 1, 3))):
            name = self._random.choice(list(self._queues))
            self._queues[name].died[self._tables.bury(name)] = self._loop.time()
        self._dead_came.set()

    async def _shut(self) -> None:
        queue = self._random.choice(list(self._queues.values()))
        queue.is_shut = True
        self._life.marks["queue-shut"] += 1
        self._loop.call_later(self._random.uniform(1.0, TROUBLE_S), self._open, queue)

    def _open(self, queue: _Queue) -> None:
        if queue.is_shut:
            queue.is_shut, queue.shut_until = False, self._loop.time()

    async def _kill(self) -> None:
        self._last_kill = self._loop.time()
        if self._random.random() < 0.5:
            self._life.marks["sender-killed"] += 1
            self._cursors = LetterCursors(cast("Any", self._tables), self._tables.letters_for)
            self._sender_is_away_until = self._loop.time() + self._random.uniform(0.0, 2.0)
            self._loop.call_at(self._sender_is_away_until, self._dead_came.set)
        else:
            self._life.marks["main-killed"] += 1
            await self._letters.close()
            self._start()

    # --- commands between the processes -----------------------------------------------------------

    async def ask_long(
        self, command: FindLetterQueues | NextLetters, kind: type[object], *, seconds: float
    ) -> LetterQueues | LetterGroup:
        """Answer a command of the main process as the sender process does.

        Raises :class:`ApiError` while the sender process is away after a kill.
        """
        await asyncio.sleep(0.001)
        if self._loop.time() < self._sender_is_away_until:
            raise ApiError(503, "sender-unavailable", "the sender process is being restarted")
        if isinstance(command, FindLetterQueues):
            return LetterQueues(self._cursors.queues(command.after))
        self._cursors.handed(command.queue, command.handed)
        number = self._cursors.next(command.queue)
        return LetterGroup(number, [] if number is None else [ApplicationLetter(b"", number)])

    async def store(self, name: str, numbers: list[int]) -> str | None:
        """Store letters in the queue ``name`` as the engine does: each number becomes a row once.

        Return ``"paused"`` if the queue accepts none now, otherwise ``None``.
        """
        queue = self._queues[name]
        if queue.is_shut:
            self._life.marks["held"] += 1
            return "paused"
        await asyncio.sleep(self._random.uniform(0.0, TAKE_S_MAX))
        for number in numbers:
            if number in queue.stored:
                self._life.marks["handed-again"] += 1
            else:
                queue.rows.append(number)
                queue.stored[number] = self._loop.time()
                self._life.marks["stored"] += 1
        return None

    # --- rules ------------------------------------------------------------------------------------

    def _judge(self) -> None:
        for name, queue in self._queues.items():
            if queue.rows != list(queue.died):
                lost = [number for number in queue.died if number not in queue.stored]
                self._life.problems.append(
                    f"{name}: lost {lost}" if lost else f"{name}: out of order {queue.rows}"
                )
            for number, at in queue.stored.items():
                since = max(queue.died[number], queue.shut_until, self._last_kill)
                if at - since > LATE_S:
                    self._life.problems.append(
                        f"{name}: letter {number} was late: {at - since:.1f} s"
                    )
