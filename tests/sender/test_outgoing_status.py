"""What ``status`` says of what goes out while it changes: whoever watches a drain must not see it end before it does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from srmp_spark.clock import SystemClock
from srmp_spark.errors import ApiError
from srmp_spark.names import LocalHosts
from srmp_spark.queue_manager.configuration.config import load
from srmp_spark.queue_manager.sender import link as link_module
from srmp_spark.queue_manager.sender.crossing import (
    GetStatus,
    RowsForwarded,
    SenderCommand,
    SenderStatus,
)
from srmp_spark.queue_manager.sender.link import Outgoing, OutgoingEvents
from srmp_spark.store.directory import DataDirectory

FORWARDED = RowsForwarded("e", 11)


class Child:
    """Says what it is told to say."""

    def __init__(self) -> None:
        self.queued = 0
        self.asked = 0
        self.is_away = False
        self.meanwhile: Callable[[], None] = lambda: None

    async def ask_long(
        self, command: SenderCommand, kind: type[SenderStatus], *, seconds: float
    ) -> SenderStatus:
        assert command == GetStatus()
        self.asked += 1
        if self.is_away:
            raise ApiError(503, "sender-unavailable", "the sender process is being restarted")
        found = SenderStatus([{"queued": self.queued}], [], {})
        self.meanwhile()
        return found


def run(tmp_path: Path, test: Callable[[Outgoing, Child], Awaitable[None]]) -> None:
    async def main() -> None:
        with DataDirectory.open(tmp_path / "d", now=SystemClock().utc()) as directory:
            config = load({"data_dir": str(tmp_path / "d")}, {})
            core: Any = SimpleNamespace(
                config=config,
                directory=directory,
                identifiers=None,
                public_base="http://h",
                hosts=LocalHosts(frozenset()),
            )

            async def forwarded(epoch: str, to: int) -> None:
                assert (epoch, to) == ("e", 11)

            events = OutgoingEvents(
                forwarded=forwarded,
                forward_holding=lambda holding, empty, begins: None,
                order_queue_read=lambda to: None,
            )
            outgoing = Outgoing(core, events, forward_end=0, forward_waiting=0)
            child = Child()
            outgoing.link = cast("Any", child)
            await test(outgoing, child)

    asyncio.run(main())


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "STATUS_KEPT_SECONDS", 1_000.0)


def test_a_second_question_gets_the_same_answer(tmp_path: Path) -> None:
    async def test(outgoing: Outgoing, child: Child) -> None:
        assert outgoing.seen_at is None
        assert await outgoing.status() == [{"queued": 0}]
        seen_at = outgoing.seen_at
        child.queued = 11
        assert await outgoing.status() == [{"queued": 0}]
        assert (child.asked, outgoing.seen_at) == (1, seen_at)

    run(tmp_path, test)


def test_but_not_after_rows_of_the_forward_queue_became_outgoing(tmp_path: Path) -> None:
    """They count as received there from now on: an answer from before would have them nowhere."""

    async def test(outgoing: Outgoing, child: Child) -> None:
        await outgoing.status()
        child.queued = 11
        outgoing._on_event(FORWARDED)
        assert await outgoing.status() == [{"queued": 11}]

    run(tmp_path, test)


def test_nor_if_they_did_while_it_was_asked(tmp_path: Path) -> None:
    async def test(outgoing: Outgoing, child: Child) -> None:
        child.meanwhile = lambda: outgoing._on_event(FORWARDED)
        assert await outgoing.status() == [{"queued": 0}], (
            "what it said is what was true when it said so"
        )
        child.meanwhile, child.queued = (lambda: None), 11
        assert await outgoing.status() == [{"queued": 11}]
        assert child.asked == 2

    run(tmp_path, test)


def test_what_a_sender_said_that_is_gone_has_the_time_when_it_did(tmp_path: Path) -> None:
    async def test(outgoing: Outgoing, child: Child) -> None:
        await outgoing.status()
        seen_at = outgoing.seen_at
        assert seen_at is not None
        outgoing._on_event(FORWARDED)
        child.is_away = True
        assert await outgoing.status() == [{"queued": 0}]
        assert outgoing.seen_at == seen_at
        child.is_away, child.queued = False, 11
        assert await outgoing.status() == [{"queued": 11}]
        assert outgoing.seen_at is not None
        assert outgoing.seen_at > seen_at

    run(tmp_path, test)
