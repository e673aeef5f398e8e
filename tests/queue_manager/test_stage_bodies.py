"""A stage that comes in: whose file it is while threads write it down."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from io import RawIOBase
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from srmp_spark.errors import ApiError
from srmp_spark.queue_manager.api import outbox, stage_turns
from srmp_spark.queue_manager.api.outbox import OutboxApi
from srmp_spark.queue_manager.api.stage_turns import (
    STAGE_RATE_MIN,
    STAGE_RATE_SECONDS,
    STAGES_AT_ONCE,
    STAGES_OF_TOKEN_MAX,
    StageTurn,
    StageTurns,
)

WAIT_S = 60.0


class Clock:
    """Seconds as a test sets them."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize("step", ["_write", "_finish"])
def test_a_call_that_is_cut_off_closes_its_file_when_nobody_writes_to_it_any_more(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of the process. A descriptor that is closed under a thread may be another file's when the thread writes."""
    started, go_on = threading.Event(), threading.Event()
    told: list[str] = []
    before = getattr(outbox, step)
    give_up = outbox._give_up

    def slow(file: RawIOBase, *args: Any) -> None:
        started.set()
        assert go_on.wait(WAIT_S)
        assert not file.closed
        before(file, *args)
        told.append("written")

    def told_give_up(file: RawIOBase, path: Path) -> None:
        told.append("given up")
        give_up(file, path)

    monkeypatch.setattr(outbox, step, slow)
    monkeypatch.setattr(outbox, "_give_up", told_give_up)

    async def run() -> None:
        events: Sequence[dict[str, Any]] = [
            {"type": "http.request", "body": b"x" * 100, "more_body": False}
        ]
        left = iter(events)

        async def receive() -> dict[str, Any]:
            return next(left)

        manager = SimpleNamespace(outgoing=SimpleNamespace(folder=tmp_path), clock=Clock())
        request, turn = (
            cast("Any", SimpleNamespace(receive=receive)),
            StageTurn(None, time.monotonic),
        )
        task = asyncio.create_task(OutboxApi(cast("Any", manager))._receive(request, turn))
        while not started.is_set() and not task.done():
            await asyncio.sleep(0.01)
        assert not task.done()
        task.cancel()
        for _ in range(20):
            await asyncio.sleep(0.01)
        early = list(told)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, WAIT_S)
        assert early == []

    asyncio.run(run())
    assert told == ["written", "given up"]


class Stages:
    """Stages whose bodies come in as the test says."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.turns = StageTurns(self.clock.monotonic)
        self.at_once = 0
        self.refused: list[ApiError] = []

    def begin(self, caller: str | None) -> tuple[asyncio.Task[None], asyncio.Queue[dict[str, Any]]]:
        body: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        return asyncio.create_task(self._stage(caller, body)), body

    async def _stage(self, caller: str | None, body: asyncio.Queue[dict[str, Any]]) -> None:
        async with self.turns.turn(caller) as turn:
            self.at_once += 1
            try:
                while (await turn.next_event(body.get))["more_body"]:
                    pass
            except ApiError as error:
                self.refused.append(error)
            finally:
                self.at_once -= 1

    @staticmethod
    async def settle(seconds: float = 0.0) -> None:
        await asyncio.sleep(seconds)
        for _ in range(20):
            await asyncio.sleep(0)


LAST = {"body": b"", "more_body": False}


def test_slow_stages_of_one_token_leave_half_of_the_places_to_others() -> None:
    async def run() -> None:
        stages = Stages()
        slow = [stages.begin("slow") for _ in range(STAGES_AT_ONCE + 6)]
        await stages.settle()
        assert stages.at_once == STAGES_OF_TOKEN_MAX == STAGES_AT_ONCE // 2
        for caller in ("good", None):
            task, body = stages.begin(caller)
            body.put_nowait(LAST)
            await asyncio.wait_for(task, WAIT_S)
        waiting, _ = slow[-1]
        waiting.cancel()  # its caller went away
        for _, body in slow[:-1]:
            body.put_nowait(LAST)
        await asyncio.wait_for(asyncio.gather(*(task for task, _ in slow[:-1])), WAIT_S)
        assert (stages.at_once, stages.turns._shares.waiting, stages.refused) == (0, 0, [])

    asyncio.run(run())


def test_a_body_below_the_rate_is_given_up_for_a_stage_that_waits_and_for_nobody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stage_turns, "LOOK_SECONDS", 0.01)

    async def run() -> None:
        stages = Stages()
        slow = [stages.begin("all") for _ in range(STAGES_OF_TOKEN_MAX - 1)]
        fast, body = stages.begin("all")
        await stages.settle()
        for _, each in slow:
            each.put_nowait({"body": bytes(4_000), "more_body": True})
        body.put_nowait(
            {"body": bytes(int(STAGE_RATE_MIN * STAGE_RATE_SECONDS) + 1), "more_body": True}
        )
        await stages.settle()
        stages.clock.now += STAGE_RATE_SECONDS
        await stages.settle(0.1)
        assert stages.refused == [], "nobody waits"
        others = [stages.begin("other") for _ in range(STAGES_OF_TOKEN_MAX + 1)]
        stages.clock.now += 1
        await stages.settle(0.1)
        assert stages.refused == [], (
            "who waits for a stage of its own token gets no place of others"
        )
        for _, each in others:
            each.put_nowait(LAST)
        await asyncio.wait_for(asyncio.gather(*(task for task, _ in others)), WAIT_S)
        good, good_body = stages.begin("all")
        good_body.put_nowait(LAST)
        stages.clock.now += 1
        await asyncio.wait_for(good, WAIT_S)
        assert [(each.status, each.code) for each in stages.refused] == [(503, "stage-too-slow")], (
            "one for each that waits"
        )
        assert not fast.done()
        for _, each in [*slow, (fast, body)]:
            each.put_nowait(LAST)
        await asyncio.wait_for(asyncio.gather(fast, *(task for task, _ in slow)), WAIT_S)

    asyncio.run(run())
