"""The steps of a schedule. Each can be taken in every state of the world: one that makes no sense there does nothing.

So a schedule stays one when steps are left out, which is how a failing one is made short. ``str`` is a line of the story.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tests.kit.queries.query import Asked
from tests.kit.queries.truth import Log
from tests.kit.queries.world import World


class Step(Protocol):
    """Something that happens."""

    def do(self, world: World) -> None:
        """Let it happen."""


@dataclass(frozen=True)
class MakeQueue:
    """Somebody makes a queue."""

    log: Log

    def __str__(self) -> str:
        return f"queue {self.log} is made"

    def do(self, world: World) -> None:
        """Make the queue."""
        world.make_queue(self.log)


@dataclass(frozen=True)
class Arrive:
    """Messages arrive."""

    log: Log
    priorities: tuple[int, ...]

    def __str__(self) -> str:
        return (
            f"{len(self.priorities)} messages arrive in {self.log}, priorities "
            f"{', '.join(map(str, self.priorities))}"
        )

    def do(self, world: World) -> None:
        """Store the messages."""
        world.arrive(self.log, self.priorities)


@dataclass(frozen=True)
class Delete:
    """Somebody deletes a queue."""

    log: Log

    def __str__(self) -> str:
        return f"queue {self.log} is deleted"

    def do(self, world: World) -> None:
        """Delete the queue."""
        world.delete(self.log)


@dataclass(frozen=True)
class Purge:
    """Somebody purges a queue."""

    log: Log

    def __str__(self) -> str:
        return f"queue {self.log} is purged"

    def do(self, world: World) -> None:
        """Purge the queue."""
        world.purge(self.log)


@dataclass(frozen=True)
class Receive:
    """Somebody calls ``srmp-spark receive``."""

    log: Log
    consumer: str
    count: int

    def __str__(self) -> str:
        return (
            f"`receive --consumer {self.consumer} --max {self.count}` takes rows of "
            f"{self.log} by priority"
        )

    def do(self, world: World) -> None:
        """Call the command."""
        world.receive(self.log, self.consumer, self.count)


@dataclass(frozen=True)
class Leave:
    """A queue manager is away."""

    queue_manager: str

    def __str__(self) -> str:
        return f"queue manager {self.queue_manager} is away"

    def do(self, world: World) -> None:
        """Let the queue manager be away."""
        world.leave(self.queue_manager)


@dataclass(frozen=True)
class ComeBack:
    """A queue manager is back."""

    queue_manager: str

    def __str__(self) -> str:
        return f"queue manager {self.queue_manager} is back"

    def do(self, world: World) -> None:
        """Let the queue manager be back."""
        world.come_back(self.queue_manager)


@dataclass(frozen=True)
class Restart:
    """A queue manager is started again."""

    queue_manager: str

    def __str__(self) -> str:
        return f"queue manager {self.queue_manager} is started again"

    def do(self, world: World) -> None:
        """Restart the queue manager."""
        world.restart(self.queue_manager)


@dataclass(frozen=True)
class Restore:
    """A queue manager's disk is lost."""

    queue_manager: str
    lose: frozenset[str]

    def __str__(self) -> str:
        without = (
            f", without the newest commit of {', '.join(sorted(self.lose))}" if self.lose else ""
        )
        return f"queue manager {self.queue_manager} is restored{without}"

    def do(self, world: World) -> None:
        """Restore the queue manager."""
        world.restore(self.queue_manager, self.lose)


@dataclass(frozen=True)
class Start:
    """Somebody starts a query, after ending the query that has the checkpoint, and those that hold its consumer."""

    checkpoint: str
    asked: Asked

    def __str__(self) -> str:
        return f"{self.checkpoint} starts: {self.asked}"

    def do(self, world: World) -> None:
        """Start the query."""
        query = world.query(self.checkpoint)
        for other in world.queries.values():
            if other is query or (
                self.asked.read_mode == "receive" and other.holds == self.asked.consumer
            ):
                other.stop()
        query.start(self.asked)


@dataclass(frozen=True)
class Advance:
    """A query goes on by some micro-steps: begin, then plan, read and commit in turn."""

    checkpoint: str
    count: int

    def __str__(self) -> str:
        return f"{self.checkpoint} goes on by {self.count} of begin, plan, read, commit"

    def do(self, world: World) -> None:
        """Let the query go on."""
        world.query(self.checkpoint).go(self.count)


@dataclass(frozen=True)
class Stop:
    """Somebody stops a query."""

    checkpoint: str

    def __str__(self) -> str:
        return f"{self.checkpoint} stops"

    def do(self, world: World) -> None:
        """Stop the query."""
        world.query(self.checkpoint).stop()


@dataclass(frozen=True)
class Crash:
    """A query is killed."""

    checkpoint: str

    def __str__(self) -> str:
        return f"{self.checkpoint} is killed"

    def do(self, world: World) -> None:
        """Kill the query."""
        world.query(self.checkpoint).crash()
