"""Random schedules: each seed gives one list of steps.

Everything is drawn in this module. Nothing is random when the steps are taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from tests.kit.queries.query import Asked
from tests.kit.queries.steps import (
    Advance,
    Arrive,
    ComeBack,
    Crash,
    Delete,
    Leave,
    MakeQueue,
    Purge,
    Receive,
    Restart,
    Restore,
    Start,
    Step,
    Stop,
)
from tests.kit.queries.truth import Log
from tests.kit.queries.world import CONSUMERS, QUEUE_MANAGERS

QUEUES = ("orders", "old", "bills")
MISSPELT = "ordres"
STEPS_MIN, STEPS_MAX = 6, 18
SHORT_MIN, SHORT_MAX = 4, 8
"""Fewest and most random steps of a schedule for Spark."""
TO_THE_END = 30
"""Number of micro-steps: more than a query of a schedule ever needs."""
OF_QUERIES = {"Advance": 30, "Start": 22, "Stop": 3, "Crash": 5}
OF_QUEUES = {"MakeQueue": 5, "Arrive": 20, "Receive": 10, "Purge": 3, "Delete": 3}
"""Weights of the steps of queues, relative to the steps of queries and queue managers."""
OF_QUEUE_MANAGERS = {"Restart": 2, "Restore": 2, "Leave": 3, "ComeBack": 4}
HAS_TROUBLE_SHARE = 0.35
"""Share of the schedules in which queue managers restart, are restored, or are away."""
TWO_QUEUE_MANAGERS_SHARE = 0.35


class Drawing:
    """One schedule while it is drawn."""

    def __init__(self, seed: int | str) -> None:
        self.random = random = Random(seed)
        self.managers = (
            QUEUE_MANAGERS if random.random() < TWO_QUEUE_MANAGERS_SHARE else QUEUE_MANAGERS[:1]
        )
        self.queues = QUEUES[: random.choice((1, 2, 2, 3))]
        self.checkpoints = ("query 1", "query 2")[: random.choice((1, 2, 2))]
        self.consumers = CONSUMERS[: random.choice((1, 1, 2))]
        self.weights = OF_QUEUES | OF_QUERIES
        if random.random() < HAS_TROUBLE_SHARE:
            self.weights |= OF_QUEUE_MANAGERS
        self.asked: dict[str, Asked] = {}
        self.made: set[Log] = set()

    def steps(self, least: int = STEPS_MIN, most: int = STEPS_MAX) -> list[Step]:
        """Return the whole schedule: first messages, then ``least`` to ``most`` random steps."""
        random = self.random
        found: list[Step] = []
        for log in self._logs():
            if random.random() < 0.85:
                self.made.add(log)
                found += [MakeQueue(log), *([self._arrive(log)] if random.random() < 0.7 else [])]
        names, weights = list(self.weights), list(self.weights.values())
        for _ in range(random.randint(least, most)):
            found += self._draw(random.choices(names, weights)[0])
        return found

    def _logs(self) -> list[Log]:
        return [Log(manager, queue) for queue in self.queues for manager in self.managers]

    def _arrive(self, log: Log) -> Arrive:
        return Arrive(
            log, tuple(self.random.choice((3, 3, 3, 6)) for _ in range(self.random.randint(1, 4)))
        )

    def _draw(self, kind: str) -> list[Step]:
        random = self.random
        log, checkpoint, manager = (
            random.choice(self._logs()),
            random.choice(self.checkpoints),
            random.choice(self.managers),
        )
        if kind == "Start":
            steps: list[Step] = [Start(checkpoint, self._asked(checkpoint))]
            if random.random() < 0.7:
                steps.append(
                    Advance(checkpoint, random.choice((1, 2, 3, 4, 4, 5, TO_THE_END, TO_THE_END)))
                )
            return steps
        if kind == "MakeQueue":
            return self._make_queue()
        if kind == "Delete":
            self.made.discard(log)
        draw: dict[str, Callable[[], Step]] = {
            "Arrive": lambda: self._arrive(log),
            "Receive": lambda: Receive(log, random.choice(self.consumers), random.randint(1, 2)),
            "Advance": lambda: Advance(checkpoint, random.choice((1, 1, 2, 3, 4, TO_THE_END))),
            "Stop": lambda: Stop(checkpoint),
            "Crash": lambda: Crash(checkpoint),
            "Purge": lambda: Purge(log),
            "Delete": lambda: Delete(log),
            "Restart": lambda: Restart(manager),
            "Restore": lambda: Restore(
                manager, frozenset({log.queue}) if random.random() < 0.5 else frozenset()
            ),
            "Leave": lambda: Leave(manager),
            "ComeBack": lambda: ComeBack(manager),
        }
        return [draw[kind]()]

    def _make_queue(self) -> list[Step]:
        missing = [log for log in self._logs() if log not in self.made]
        if not missing:
            return []
        log = self.random.choice(missing)
        self.made.add(log)
        return [MakeQueue(log), self._arrive(log)]

    def _asked(self, checkpoint: str) -> Asked:
        """Return the options of a start of ``checkpoint``.

        They are mostly those of its last start, with up to two changes.
        """
        random, before = self.random, self.asked.get(checkpoint)
        asked = (
            Asked(self.managers, self._queues(), consumer=self.consumers[0])
            if before is None
            else before
        )
        for _ in range(random.choice((0, 1, 1, 2)) if before is not None else 4):
            asked = self._changed(asked)
        if not isinstance(asked.starting, str):
            named = self.queues if "*" in asked.queues else asked.queues
            asked = replace(
                asked,
                starting=tuple((queue, random.choice((-2, -1, -1, 1, 1, 2, 3))) for queue in named),
            )
        self.asked[checkpoint] = asked
        if random.random() < 0.06:
            return replace(asked, queues=(MISSPELT, *asked.queues[1:]))
        return asked

    def _queues(self) -> tuple[str, ...]:
        if self.random.random() < 0.3:
            return ("*",)
        return tuple(
            sorted(self.random.sample(self.queues, self.random.randint(1, len(self.queues))))
        )

    def _changed(self, asked: Asked) -> Asked:
        random = self.random
        what = random.choice(
            (
                "queues",
                "starting",
                "read_mode",
                "consumer",
                "max_rows",
                "available_now",
                "fail",
                "managers",
            )
        )
        if what == "queues":
            return replace(asked, queues=self._queues())
        if what == "starting":
            starting = random.choice(
                ("unreceived", "unreceived", "latest", "latest", "earliest", ())
            )
            return replace(asked, starting=starting)
        if what == "read_mode":
            return replace(asked, read_mode=random.choice(("receive", "receive", "peek")))
        if what == "consumer":
            return replace(asked, consumer=random.choice(self.consumers))
        if what == "max_rows":
            return replace(asked, max_rows=random.choice((None, 1, 2, 3)))
        if what == "available_now":
            return replace(asked, available_now=random.random() < 0.5)
        if what == "fail":
            return replace(asked, fail_on_data_loss=random.random() < 0.6)
        return asked


def schedule(seed: int | str) -> list[Step]:
    """Return the schedule of a seed."""
    return Drawing(seed).steps()


def short_schedule(seed: int | str) -> list[Step]:
    """Return the schedule of a seed for Spark, with few steps, because each run takes seconds."""
    drawing = Drawing(f"short {seed}")
    # A query that reaches no queue manager tries for half a minute.
    if len(drawing.managers) == 1:
        drawing.weights |= {"Leave": 0, "ComeBack": 0}
    return drawing.steps(SHORT_MIN, SHORT_MAX)
