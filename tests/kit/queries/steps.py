"""The steps of a schedule; each step can be taken in every state of the world.

A step that makes no sense in a state does nothing. Therefore a schedule stays valid when steps are
left out, which is how a failing schedule is shortened. ``str`` of a step is a line of the story.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tests.kit.queries.query import Asked
from tests.kit.queries.truth import Log
from tests.kit.queries.world import World


class Step(Protocol):
    """One event of a schedule."""

    def do(self, world: World) -> None:
        """Carry out the event in ``world``."""


@dataclass(frozen=True)
class MakeQueue:
    """An operator makes a queue."""

    log: Log

    def __str__(self) -> str:
        return f"queue {self.log} is made"

    def do(self, world: World) -> None:
        """Make the queue in ``world``."""
        world.make_queue(self.log)


@dataclass(frozen=True)
class Arrive:
    """Messages arrive in a queue, one for each priority."""

    log: Log
    priorities: tuple[int, ...]

    def __str__(self) -> str:
        return (
            f"{len(self.priorities)} messages arrive in {self.log}, priorities "
            f"{', '.join(map(str, self.priorities))}"
        )

    def do(self, world: World) -> None:
        """Store the messages in the queue."""
        world.arrive(self.log, self.priorities)


@dataclass(frozen=True)
class Delete:
    """An operator deletes a queue."""

    log: Log

    def __str__(self) -> str:
        return f"queue {self.log} is deleted"

    def do(self, world: World) -> None:
        """Delete the queue in ``world``, with its rows."""
        world.delete(self.log)


@dataclass(frozen=True)
class Purge:
    """An operator purges a queue."""

    log: Log

    def __str__(self) -> str:
        return f"queue {self.log} is purged"

    def do(self, world: World) -> None:
        """Purge the rows of the queue that the default consumer has not received."""
        world.purge(self.log)


@dataclass(frozen=True)
class Receive:
    """A user calls ``srmp-spark receive`` for at most ``count`` rows."""

    log: Log
    consumer: str
    count: int

    def __str__(self) -> str:
        return (
            f"`receive --consumer {self.consumer} --max {self.count}` takes rows of "
            f"{self.log} by priority"
        )

    def do(self, world: World) -> None:
        """Call the command ``srmp-spark receive``."""
        world.receive(self.log, self.consumer, self.count)


@dataclass(frozen=True)
class Leave:
    """A queue manager can no longer be reached."""

    queue_manager: str

    def __str__(self) -> str:
        return f"queue manager {self.queue_manager} is away"

    def do(self, world: World) -> None:
        """Make the queue manager unreachable for clients."""
        world.leave(self.queue_manager)


@dataclass(frozen=True)
class ComeBack:
    """A queue manager can be reached again."""

    queue_manager: str

    def __str__(self) -> str:
        return f"queue manager {self.queue_manager} is back"

    def do(self, world: World) -> None:
        """Make the queue manager reachable for clients again."""
        world.come_back(self.queue_manager)


@dataclass(frozen=True)
class Restart:
    """A queue manager is stopped and started again."""

    queue_manager: str

    def __str__(self) -> str:
        return f"queue manager {self.queue_manager} is started again"

    def do(self, world: World) -> None:
        """Restart the queue manager in ``world``."""
        world.restart(self.queue_manager)


@dataclass(frozen=True)
class Restore:
    """A queue manager's disk is lost, and an operator restores it.

    ``lose`` names the queues whose newest commit is lost.
    """

    queue_manager: str
    lose: frozenset[str]

    def __str__(self) -> str:
        without = (
            f", without the newest commit of {', '.join(sorted(self.lose))}" if self.lose else ""
        )
        return f"queue manager {self.queue_manager} is restored{without}"

    def do(self, world: World) -> None:
        """Restore the queue manager; the newest commit of the queues in ``lose`` is lost."""
        world.restore(self.queue_manager, self.lose)


@dataclass(frozen=True)
class Start:
    """A user starts a query.

    Before that, the step stops the query with the same checkpoint and the queries that hold its
    consumer.
    """

    checkpoint: str
    asked: Asked

    def __str__(self) -> str:
        return f"{self.checkpoint} starts: {self.asked}"

    def do(self, world: World) -> None:
        """Stop the queries that the new process would disturb, and start the query.

        These are the query of the same checkpoint and, if the query receives, those that hold its
        consumer.
        """
        query = world.query(self.checkpoint)
        for other in world.queries.values():
            if other is query or (
                self.asked.read_mode == "receive" and other.holds == self.asked.consumer
            ):
                other.stop()
        query.start(self.asked)


@dataclass(frozen=True)
class Advance:
    """A query continues by some micro-steps: begin, then plan, read and commit in turn."""

    checkpoint: str
    count: int

    def __str__(self) -> str:
        return f"{self.checkpoint} goes on by {self.count} of begin, plan, read, commit"

    def do(self, world: World) -> None:
        """Let the query take ``count`` micro-steps."""
        world.query(self.checkpoint).go(self.count)


@dataclass(frozen=True)
class Stop:
    """A user stops a query."""

    checkpoint: str

    def __str__(self) -> str:
        return f"{self.checkpoint} stops"

    def do(self, world: World) -> None:
        """Stop the query of the checkpoint."""
        world.query(self.checkpoint).stop()


@dataclass(frozen=True)
class Crash:
    """The process of a query is killed."""

    checkpoint: str

    def __str__(self) -> str:
        return f"{self.checkpoint} is killed"

    def do(self, world: World) -> None:
        """Kill the query of the checkpoint."""
        world.query(self.checkpoint).crash()
