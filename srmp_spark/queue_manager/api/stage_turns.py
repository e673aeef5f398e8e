"""Places for the bodies of stages, with a share for each API token and a least rate.

A stage is the file with the rows of one task of a batch (:mod:`.outbox`). A slow body costs nothing
while no other stage waits for its place. Once a stage waits, bodies below the rate are ended, one
for each stage that waits, the slowest first.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from srmp_spark.errors import ApiError
from srmp_spark.queue_manager.shares import Shares

STAGES_AT_ONCE = 64
"""Most stages whose bodies are received at once; further stages wait.

A cluster with this number of cores has this number of tasks.
"""
STAGES_OF_TOKEN_MAX = STAGES_AT_ONCE // 2
"""Stages of one API token whose bodies are received at once; further stages wait.

The limit is half, so that slow stages delay only the sinks of their own token.
"""
STAGE_RATE_MIN = 16 * 1_024
"""Least rate of a stage's body while others wait for its place, in bytes per second.

A slower stage is answered 503, and the sink sends the stage again from the data that it kept. A
task first sends 8 MiB of ready rows, then the rows that the task still computes. A task at this
rate would need nine minutes for 8 MiB.
"""
STAGE_RATE_SECONDS = 10.0
"""Seconds of waiting for the body over which its rate is averaged.

Any body has this time before its rate counts. Time in which this process writes to the disk is not
counted.
"""
STAGE_AHEAD_SECONDS = 60.0
"""Longest time for which bytes above the least rate count later, in seconds.

A task may pause between two batches of rows.
"""
LOOK_SECONDS = 1.0
"""Interval at which slow stages are searched for while a stage waits, in seconds."""


class StageTurn:
    """A place for one stage whose body is being received.

    ``clock`` returns monotonic seconds.
    """

    def __init__(self, caller: str | None, clock: Callable[[], float]) -> None:
        self.caller = caller
        self._clock = clock
        self._bytes = 0.0
        self._waited = 0.0
        self._waits_since: float | None = None
        self._task: asyncio.Task[Any] | None = None
        """The task that waits for the body now and can be cancelled, or ``None``."""
        self._is_given_up = False

    async def next_event(
        self, receive: Callable[[], Awaitable[MutableMapping[str, Any]]]
    ) -> MutableMapping[str, Any]:
        """Wait for the next ASGI event of the body, and return it.

        Raises a 503 if the body is too slow and others need the place. The caller may send the
        stage again and wait for a place.
        """
        self._waits_since = self._clock()
        self._task = asyncio.current_task()
        try:
            event = await receive()
        except asyncio.CancelledError:
            if not self._is_given_up or _is_cancelled_again(self._task):
                raise
            raise ApiError(
                503,
                "stage-too-slow",
                f"the body was received at less than STAGE_RATE_MIN = {STAGE_RATE_MIN} bytes a "
                "second while other stages waited",
                "send the stage again once its rows are there, or let fewer tasks write at once",
            ) from None
        finally:
            self._task = None
            self._waited += self._clock() - self._waits_since
            self._waits_since = None
        self._bytes += len(event.get("body", b""))
        return event

    def slow_rate(self) -> float | None:
        """Return the body's rate in bytes per second if it is below STAGE_RATE_MIN, else ``None``.

        The rate is the mean of at least STAGE_RATE_SECONDS of waiting; before that the result is
        ``None``. If the rate is high enough, this call begins to count again, with a credit of at
        most STAGE_AHEAD_SECONDS.
        """
        waited = (
            self._waited
            if self._waits_since is None
            else self._waited + self._clock() - self._waits_since
        )
        if waited < STAGE_RATE_SECONDS:
            return None
        ahead = self._bytes - STAGE_RATE_MIN * waited
        if ahead < 0:
            return self._bytes / waited
        self._bytes, self._waited = min(ahead, STAGE_RATE_MIN * STAGE_AHEAD_SECONDS), 0.0
        if self._waits_since is not None:
            self._waits_since = self._clock()
        return None

    def give_up(self) -> None:
        """End the reception of the body, which raises a 503 in :meth:`next_event`.

        Nothing happens unless a task waits for the body now: writes to the disk continue.
        """
        if self._task is not None and not self._is_given_up:
            self._is_given_up = True
            self._task.cancel()


def _is_cancelled_again(task: asyncio.Task[Any] | None) -> bool:
    """Take back one cancellation of a task, and return whether another one remains.

    Python 3.10 does not count cancellations; with it the result is ``False``.
    """
    uncancel: Callable[[], int] = getattr(task, "uncancel", lambda: 0)
    return uncancel() > 0


class StageTurns:
    """Gives places to the stages whose bodies are received, and makes others wait.

    ``clock`` returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._shares: Shares[asyncio.Event] = Shares(STAGES_AT_ONCE, STAGES_OF_TOKEN_MAX)
        self._turns: set[StageTurn] = set()
        self._looked_at = -math.inf

    @asynccontextmanager
    async def turn(self, caller: str | None) -> AsyncGenerator[StageTurn, None]:
        """Wait for a place among the stages of ``caller``, and hold it in the context.

        ``caller`` is the name of the API token, or ``None`` without a token. The wait has no limit
        of its own, but ends slow bodies.
        """
        await self._wait(caller)
        turn = StageTurn(caller, self._clock)
        self._turns.add(turn)
        try:
            yield turn
        finally:
            self._turns.discard(turn)
            self._start(self._shares.leave(caller))

    async def _wait(self, caller: str | None) -> None:
        admitted = asyncio.Event()
        self._start(self._shares.enter(caller, admitted))
        try:
            while not admitted.is_set():
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(admitted.wait(), LOOK_SECONDS)
                    break
                self._look()
        except BaseException:
            if not self._shares.withdraw(caller, admitted):
                # The stage got its place in the same turn of the loop.
                self._start(self._shares.leave(caller))
            raise

    @staticmethod
    def _start(admitted: list[asyncio.Event]) -> None:
        for each in admitted:
            each.set()

    def _look(self) -> None:
        """End slow bodies, one for each stage that waits, the slowest first.

        One call serves all stages that wait, so a call within LOOK_SECONDS of the last one does
        nothing.
        """
        now = self._clock()
        if now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        rates = [
            (turn.slow_rate(), turn) for turn in self._turns if self._shares.is_wanted(turn.caller)
        ]
        slow = [(rate, turn) for rate, turn in rates if rate is not None]
        slow.sort(key=lambda each: each[0])
        for _, turn in slow[: self._shares.waiting]:
            turn.give_up()
