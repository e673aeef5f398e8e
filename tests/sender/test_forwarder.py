"""What waits, and what does not, when the outbox cannot take what is to be forwarded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from srmp_spark.clock import SystemClock
from srmp_spark.errors import ApiError, StoreError
from srmp_spark.message import Message
from srmp_spark.queue_manager.sender import forwarder as forwarder_module
from srmp_spark.queue_manager.sender.dispatcher import Dispatcher
from srmp_spark.queue_manager.sender.forwarder import Forwarder, Read
from srmp_spark.queue_manager.sender.link import Outgoing
from srmp_spark.queue_manager.sender.store_thread import StoreThread
from srmp_spark.srmp.sender import DESTINATIONS_MAX, Sender
from srmp_spark.store.outbox import forwarded
from srmp_spark.store.outbox.errors import NO_ROOM, BatchError
from srmp_spark.store.outbox.forward_place import Cursor, read_to
from srmp_spark.store.outbox.forwarded import FORWARD_OUTGOING_MAX, ForwardedBatch, Incoming
from srmp_spark.store.outbox.outbox import Outbox

QM, SENDER = "caf195ea-615c-4264-ae08-11a4e60194c0", "2744e4e1-2b48-43e8-b441-42745f280d53"
TO = "http://127.0.0.1:9/msmq/private$/q"


class Rows:
    """A log of messages that is all there from the beginning."""

    def __init__(self, *destinations: str) -> None:
        self.rows = [
            Incoming(Message(to, "MSMQ:", SENDER, number, has_msmq=True, source_qm=SENDER), to, "", number, b"POST")
            for number, to in enumerate(destinations, 1)
        ]

    def read(self, after: Cursor | None) -> Read:
        begin = 0 if after is None else after.sequence
        more = self.rows[begin : begin + 1]
        return Read(list(more), Cursor("e", begin + len(more)) if more else after, more=begin + 1 < len(self.rows))


def run(
    folder: Path, rows: Rows, body: Callable[[Forwarder, Outbox, Dispatcher, asyncio.Queue[Cursor]], Awaitable[None]]
) -> None:
    async def main() -> None:
        async def reserve(count: int) -> int:
            return 1

        clock, fatal, told = SystemClock(), list[StoreError](), asyncio.Queue[Cursor]()
        outbox = Outbox.open(folder, queue_manager=QM, epoch="e", at=clock.utc())
        store = StoreThread(asyncio.get_running_loop(), fatal.append)
        dispatcher = Dispatcher(outbox, Sender(QM), store, cast("Any", None), clock, receipts_url="http://h.example/o",
                                receipts_read_to=0, reserve=reserve)  # fmt: skip
        forwarder = Forwarder(dispatcher, outbox, cast("Any", rows), None, told.put_nowait)
        task = asyncio.create_task(forwarder.run())
        try:
            await asyncio.wait_for(body(forwarder, outbox, dispatcher, told), 20)
            assert fatal == []
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await dispatcher.connections.stop()
            await store.run(outbox.close)

    asyncio.run(main())


async def reached(told: asyncio.Queue[Cursor], sequence: int) -> None:
    while (await told.get()).sequence < sequence:
        pass


def test_what_finds_no_room_waits_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(forwarder_module, "RETRY_SECONDS", 0.01)
    tries = []

    def check(batch: ForwardedBatch) -> None:
        tries.append(batch)
        if len(tries) <= 3:
            raise BatchError(503, NO_ROOM, "the disk is full")

    monkeypatch.setattr(ForwardedBatch, "_check_room", check)

    async def body(_: Forwarder, outbox: Outbox, dispatcher: Dispatcher, told: asyncio.Queue[Cursor]) -> None:
        await reached(told, 2)
        assert read_to(outbox.database) == Cursor("e", 2)
        assert len(dispatcher.sender) == 1

    run(tmp_path, Rows(TO, TO), body)
    assert len(tries) == 5
    assert caplog.text.count("the disk is full") == 1, "told once, not at each try"


def test_a_cursor_that_another_try_moved_is_read_on_from(tmp_path: Path) -> None:
    """As after a commit whose caller was told of an error: its rows are outgoing, and stay so once."""

    async def body(found: Forwarder, outbox: Outbox, dispatcher: Dispatcher, told: asyncio.Queue[Cursor]) -> None:
        await reached(told, 2)
        found._read_to = Cursor("e", 1)
        found.came()
        while found._read_to != Cursor("e", 2):
            await asyncio.sleep(0.01)
        (queue,) = dispatcher.sender
        assert queue.end == 2

    run(tmp_path, Rows(TO, TO), body)


def test_new_destinations_wait_before_a_sink_would_find_none_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert FORWARD_OUTGOING_MAX < DESTINATIONS_MAX
    monkeypatch.setattr(forwarder_module, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(forwarded.ForwardedBatch, "destinations_max", 1)

    async def body(found: Forwarder, outbox: Outbox, dispatcher: Dispatcher, told: asyncio.Queue[Cursor]) -> None:
        await reached(told, 2)
        while "too-many-destinations" not in found._told:
            await asyncio.sleep(0.01)
        assert "streams drop" in found._told
        row = {"body": b"x", "destination": "http://127.0.0.1:9/msmq/private$/of-a-sink"}
        await dispatcher.commit(lambda at: outbox.prepare_rows("a", "1", [row], at))
        assert len(dispatcher.sender) == 2, "the sink has its own"
        monkeypatch.undo()
        await reached(told, 3)

    run(tmp_path, Rows(TO, TO, TO + "2"), body)


def test_how_far_it_is_is_told_again_when_there_is_nothing_new(tmp_path: Path) -> None:
    """The main process may have missed it, and would count these rows as waiting until the next message."""

    async def body(found: Forwarder, outbox: Outbox, dispatcher: Dispatcher, told: asyncio.Queue[Cursor]) -> None:
        await reached(told, 2)
        assert told.empty()
        found.came()
        assert await told.get() == Cursor("e", 2)

    run(tmp_path, Rows(TO, TO), body)


def test_what_is_held_is_not_taken_over_until_it_is_released(tmp_path: Path) -> None:
    """A purge says how many messages it gave up: none of them may become outgoing meanwhile."""
    rows = Rows(TO, TO)

    async def body(found: Forwarder, outbox: Outbox, _: Dispatcher, told: asyncio.Queue[Cursor]) -> None:
        await reached(told, 2)
        assert await found.hold() == Cursor("e", 2)
        rows.rows.append(rows.rows[0]._replace(sequence=3))
        found.came()
        await asyncio.sleep(0.2)
        assert read_to(outbox.database) == Cursor("e", 2)
        found.release()
        await reached(told, 3)

    run(tmp_path, rows, body)


def test_who_holds_and_dies_holds_nothing_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarder_module, "HOLD_SECONDS", 0.1)
    rows = Rows(TO)

    async def body(found: Forwarder, _: Outbox, __: Dispatcher, told: asyncio.Queue[Cursor]) -> None:
        await reached(told, 1)
        await found.hold()
        rows.rows.append(rows.rows[0]._replace(sequence=2))
        found.came()
        await reached(told, 2)

    run(tmp_path, rows, body)


@pytest.mark.parametrize("answers", [True, False])
def test_before_a_purge_what_is_outgoing_counts_as_received(answers: bool, caplog: pytest.LogCaptureFixture) -> None:
    """The event that tells so may still be on its way. A sender process that is away does not keep an operator from purging."""
    happened: list[object] = []

    class Link:
        is_up = True

        async def ask(self, command: dict[str, str], *, seconds: float) -> dict[str, Any]:
            happened.append(command["op"])
            if not answers:
                raise ApiError(503, "sender-unavailable", "the sender process is away")
            return {"forwarded": ["e", 5]}

        def tell(self, command: dict[str, str]) -> bool:
            happened.append(command["op"])
            return True

    async def forwarded(epoch: str, to: int) -> None:
        happened.append((epoch, to))

    async def main() -> None:
        outgoing = Outgoing.__new__(Outgoing)
        outgoing.link, outgoing.forwarded = cast("Any", Link()), forwarded
        async with outgoing.forwarding_held():
            happened.append("purge")

    asyncio.run(main())
    assert happened == ["hold-forwarding", *([("e", 5)] if answers else []), "purge", "release-forwarding"]
    assert ("purge.uncertain" in caplog.text) is not answers
