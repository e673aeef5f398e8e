"""What waits, and what does not, when the outbox cannot take what is to be forwarded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from srmp_spark.clock import SystemClock
from srmp_spark.errors import ApiError, StoreError
from srmp_spark.message import Message
from srmp_spark.queue_manager.sender import dispatcher as dispatcher_module
from srmp_spark.queue_manager.sender import forwarder as forwarder_module
from srmp_spark.queue_manager.sender.crossing import (
    SENDER_COMMANDS,
    FindStates,
    ForwardingHeld,
    MessageStates,
)
from srmp_spark.queue_manager.sender.dispatcher import Dispatcher
from srmp_spark.queue_manager.sender.forwarder import Forwarder, ForwardRows
from srmp_spark.queue_manager.sender.link import Outgoing
from srmp_spark.queue_manager.sender.send_commands import SendCommands
from srmp_spark.queue_manager.sender.store_thread import StoreThread
from srmp_spark.srmp.sending import outgoing_room
from srmp_spark.srmp.sending.outgoing_states import SenderSettings
from srmp_spark.srmp.sending.sender import Sender
from srmp_spark.store.outbox.errors import NO_ROOM, BatchError
from srmp_spark.store.outbox.outbox import Outbox
from srmp_spark.store.outbox.preparing.forwarded import ForwardedBatch, MessageToForward
from srmp_spark.store.outbox.tables.forward_place import ForwardPlace, read_to

QM, SENDER = "caf195ea-615c-4264-ae08-11a4e60194c0", "2744e4e1-2b48-43e8-b441-42745f280d53"
TO = "http://127.0.0.1:9/msmq/private$/q"


class Rows:
    """A log of messages that is all there from the beginning."""

    def __init__(self, *destinations: str) -> None:
        self.rows = [
            MessageToForward(
                Message(to, "MSMQ:", SENDER, number, has_msmq=True, source_qm=SENDER),
                to,
                "",
                number,
                b"POST",
                "forward 192.0.2.7",
            )
            for number, to in enumerate(destinations, 1)
        ]

    def read(self, after: ForwardPlace | None) -> ForwardRows:
        begin = 0 if after is None else after.sequence
        more = self.rows[begin : begin + 1]
        return ForwardRows(
            list(more),
            ForwardPlace("e", begin + len(more)) if more else after,
            more=begin + 1 < len(self.rows),
        )


def run(
    folder: Path,
    rows: Rows,
    body: Callable[[Forwarder, Outbox, Dispatcher, asyncio.Queue[ForwardPlace]], Awaitable[None]],
) -> None:
    async def main() -> None:
        async def reserve(count: int) -> int:
            return 1

        clock, fatal, told = SystemClock(), list[StoreError](), asyncio.Queue[ForwardPlace]()
        outbox = Outbox.open(folder, queue_manager=QM, epoch="e", at=clock.utc())
        store = StoreThread(asyncio.get_running_loop(), fatal.append)
        sender = Sender.load(
            QM, SenderSettings(), outbox.queue_rows(), outbox.proof(), finals=outbox.finals(),
            last_stream_ordinal=outbox.last_stream_ordinal, serials_after=outbox.serials_after,
        )  # fmt: skip
        dispatcher = Dispatcher(outbox, sender, store, cast("Any", None), clock, receipts_url="http://h.example/o",
                                receipts_read_to=0, reserve=reserve)  # fmt: skip
        forwarder = Forwarder(dispatcher, outbox, cast("Any", rows), None, told.put_nowait)
        task = asyncio.create_task(forwarder.run())
        try:
            await asyncio.wait_for(body(forwarder, outbox, dispatcher, told), 20)
            assert fatal == []
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await dispatcher.transports.stop()
            await store.run(outbox.close)

    asyncio.run(main())


async def reached(told: asyncio.Queue[ForwardPlace], sequence: int) -> None:
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

    async def body(
        _: Forwarder, outbox: Outbox, dispatcher: Dispatcher, told: asyncio.Queue[ForwardPlace]
    ) -> None:
        await reached(told, 2)
        assert read_to(outbox.database) == ForwardPlace("e", 2)
        assert len(dispatcher.sender) == 1

    run(tmp_path, Rows(TO, TO), body)
    assert len(tries) == 5
    assert caplog.text.count("the disk is full") == 1, "told once, not at each try"


def test_a_cursor_that_another_try_moved_is_read_on_from(tmp_path: Path) -> None:
    """As after a commit whose caller was told of an error: its rows are outgoing, and stay so once."""

    async def body(
        found: Forwarder, outbox: Outbox, dispatcher: Dispatcher, told: asyncio.Queue[ForwardPlace]
    ) -> None:
        await reached(told, 2)
        found._read_to = ForwardPlace("e", 1)
        found.note_new_rows()
        while found._read_to != ForwardPlace("e", 2):
            await asyncio.sleep(0.01)
        (queue,) = dispatcher.sender
        assert queue.end == 2

    run(tmp_path, Rows(TO, TO), body)


def test_a_row_for_a_destination_without_room_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is forwarded was answered 200: it always finds room, and takes none of others."""
    monkeypatch.setattr(outgoing_room, "OTHERS_MAX", 2)
    forwarded = Rows()

    async def body(
        found: Forwarder, outbox: Outbox, dispatcher: Dispatcher, told: asyncio.Queue[ForwardPlace]
    ) -> None:
        rows = [
            {"body": b"x", "destination": f"{TO}-of-a-sink{n}", "delivery": "recoverable"}
            for n in range(3)
        ]
        for n in range(2):
            committed = await dispatcher.commit(
                lambda at, n=n: outbox.prepare_rows("a", f"{n}", [rows[n]], at)
            )
            assert not committed.without_room
        forwarded.rows += Rows(TO, TO, TO + "2", TO).rows
        found.note_new_rows()
        await reached(told, 4)
        assert outbox.database.connection.execute("SELECT destination FROM moved").fetchall() == []
        assert [
            getattr(dispatcher.sender.get(*key, "plain"), "end", 0) for key in ((TO,), (TO + "2",))
        ] == [3, 1]
        committed = await dispatcher.commit(
            lambda at: outbox.prepare_rows("a", "3", [rows[0], rows[2]], at)
        )
        assert [key.destination for key in committed.without_room] == [rows[2]["destination"]]
        dispatcher.sender.drop(str(rows[0]["destination"]), "plain", 1)
        committed = await dispatcher.commit(lambda at: outbox.prepare_rows("a", "4", [rows[2]], at))
        assert not committed.without_room, "what is forwarded has taken no place of others"

    run(tmp_path, forwarded, body)


def test_rows_without_room_need_no_record_and_fail_no_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """However many destinations a batch names: those without room leave nothing but their dead letters, told as such."""
    monkeypatch.setattr(outgoing_room, "OTHERS_MAX", 2)
    monkeypatch.setattr(dispatcher_module, "BATCH_RECORDS_MAX", 5)
    monkeypatch.setattr(dispatcher_module, "NO_ROOM_TOLD_MAX", 10)
    urls = [f"{TO}{n}" for n in range(20)]
    serials: list[int] = []

    async def life(batch: str, outbox: Outbox, dispatcher: Dispatcher) -> None:
        rows = [
            {"body": b"%d" % n, "destination": url, "delivery": "recoverable"}
            for n, url in enumerate(urls)
        ]
        committed = await dispatcher.commit(lambda at: outbox.prepare_rows("a", batch, rows, at))
        assert sorted(key.destination for key in committed.without_room) == sorted(urls[2:])
        assert sorted(queue.key.destination for queue in dispatcher.sender) == urls[:2]
        commands = SendCommands(outbox, dispatcher._store, dispatcher)
        for given in committed.enqueued:
            asked = FindStates(given.key.destination, "plain", [given.first], 0)
            (state,) = (await commands.state(asked)).states
            assert (state == "dead") == (given.key in committed.without_room)
        serials.extend(
            given.first for given in committed.enqueued if given.key in committed.without_room
        )
        found = outbox.database.connection.execute(
            "SELECT destination, reason, in_doubt, rows FROM moved"
        ).fetchall()
        assert set(found) == {(url, "no-room", 0, 1) for url in urls[2:]}
        assert outbox.database.connection.execute(
            "SELECT count(*) FROM parts WHERE queue_id IS NULL"
        ).fetchone() == (0,)

    async def first(
        _: Forwarder, outbox: Outbox, dispatcher: Dispatcher, told: asyncio.Queue[ForwardPlace]
    ) -> None:
        await life("1", outbox, dispatcher)

    async def second(
        _: Forwarder, outbox: Outbox, dispatcher: Dispatcher, told: asyncio.Queue[ForwardPlace]
    ) -> None:
        await life("2", outbox, dispatcher)
        for url in urls[:2]:
            dispatcher.sender.drop(url, "plain", 1)
        await dispatcher.written()
        (given,) = (await dispatcher.commit(lambda at: outbox.prepare_rows(
            "a", "3", [{"body": b"x", "destination": urls[2], "delivery": "recoverable"}], at
        ))).enqueued  # fmt: skip
        assert given.first > max(serials), "no serial is given out twice"

    run(tmp_path, Rows(), first)
    run(tmp_path, Rows(), second)
    assert len(set(serials)) == len(serials) == 36
    assert caplog.text.count("sender.no_room destinations=18") == 2
    assert caplog.text.count("reason=no-room") == 20, "the first ten of each batch"


def test_no_number_of_destinations_that_there_ever_were_is_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Idle ones are forgotten when their places are needed, and one that was forgotten begins anew behind its old serials."""
    monkeypatch.setattr(dispatcher_module, "DESTINATIONS_MAX", 5)
    monkeypatch.setattr(dispatcher_module, "FORGOTTEN_AT_ONCE", 2)
    monkeypatch.setattr(outgoing_room, "OTHERS_MAX", 5)

    async def body(
        found: Forwarder, outbox: Outbox, dispatcher: Dispatcher, told: asyncio.Queue[ForwardPlace]
    ) -> None:
        for n in range(40):
            row = {"body": b"x", "destination": f"{TO}{n % 20}", "delivery": "recoverable"}
            committed = await dispatcher.commit(
                lambda at, row=row, n=n: outbox.prepare_rows("a", str(n), [row], at)
            )
            (given,) = committed.enqueued
            assert not committed.without_room
            if n >= 20:
                assert given.first > 1, "no serial is given out twice"
            dispatcher.sender.drop(*given.key, at=n)
            await dispatcher.written()
            assert len(dispatcher.sender) <= 5
            assert len(dispatcher.sender.room) == 0
        (rows,) = outbox.database.connection.execute("SELECT count(*) FROM queues").fetchone()
        assert rows <= 5
        (dead,) = outbox.database.connection.execute(
            "SELECT count(*) FROM moved WHERE fate = 'dead'"
        ).fetchone()
        assert dead == 40

    run(tmp_path, Rows(), body)


def test_the_state_of_a_message_is_told_when_its_queue_was_forgotten(tmp_path: Path) -> None:
    async def body(
        _: Forwarder, outbox: Outbox, dispatcher: Dispatcher, told: asyncio.Queue[ForwardPlace]
    ) -> None:
        row = {"body": b"x", "destination": TO, "delivery": "recoverable"}
        (given,) = (
            await dispatcher.commit(lambda at: outbox.prepare_rows("a", "1", [row], at))
        ).enqueued
        dispatcher.sender.drop(*given.key, at=1)
        await dispatcher.written()
        assert dispatcher.sender.forget_idle(1, lambda key: True) == [given.key]
        await dispatcher.written()
        commands = SendCommands(outbox, dispatcher._store, dispatcher)
        asked = FindStates(TO, "plain", [given.first], 0)
        assert await commands.state(asked) == MessageStates(["dead"])
        with pytest.raises(ApiError, match="nothing waits for"):
            await commands.state(replace(asked, serials=[given.first + 1]))
        (again,) = (
            await dispatcher.commit(lambda at: outbox.prepare_rows("a", "2", [row], at))
        ).enqueued
        found = await commands.state(replace(asked, serials=[given.first, again.first]))
        assert found.states in (["dead", "queued"], ["dead", "sent"])

    run(tmp_path, Rows(), body)


@pytest.mark.parametrize("lives", [1, 2])
def test_no_state_is_made_up(tmp_path: Path, lives: int) -> None:
    """Of serials below those of forgotten queues, or of a restored outbox: nobody knows what became of them."""

    async def first(
        _: Forwarder, outbox: Outbox, dispatcher: Dispatcher, told: asyncio.Queue[ForwardPlace]
    ) -> None:
        dispatcher.sender.serials_after = 1 << 20
        row = {"body": b"x", "destination": TO, "delivery": "recoverable"}
        (given,) = (
            await dispatcher.commit(lambda at: outbox.prepare_rows("a", "1", [row], at))
        ).enqueued
        assert given.first == (1 << 20) + 1
        dispatcher.sender.drop(*given.key, at=1)
        await dispatcher.written()

    async def then(
        _: Forwarder, outbox: Outbox, dispatcher: Dispatcher, told: asyncio.Queue[ForwardPlace]
    ) -> None:
        dispatcher.sender.serials_after = 1 << 20
        commands = SendCommands(outbox, dispatcher._store, dispatcher)
        asked = FindStates(TO, "plain", [7], 0)
        with pytest.raises(ApiError, match="nothing waits for") as found:
            await commands.state(replace(asked, destination="http://never.example/msmq/private$/q"))
        assert found.value.status == 404
        if lives == 1:
            await first(_, outbox, dispatcher, told)
        with pytest.raises(
            ApiError, match=r"7 was never given out to .*, or what became of it is not known"
        ) as found:
            await commands.state(replace(asked, serials=[(1 << 20) + 1, 7]))
        assert (found.value.status, found.value.code) == (404, "unknown-serial")
        for serial in (0, -1, (1 << 20) + 2, 1 << 70):
            with pytest.raises(ApiError, match="was never given out"):
                await commands.state(replace(asked, serials=[serial]))
        with pytest.raises(ApiError, match="nothing of that kind"):
            await commands.state(replace(asked, kind="stream"))
        assert await commands.state(replace(asked, serials=[(1 << 20) + 1])) == MessageStates(
            ["dead"]
        )

    if lives == 2:
        run(tmp_path, Rows(), first)
    run(tmp_path, Rows(), then)


def test_a_queue_is_forgotten_and_made_anew_in_one_transaction(tmp_path: Path) -> None:
    """An operator drops a destination while a batch brings the next message for it."""

    async def body(
        _: Forwarder, outbox: Outbox, dispatcher: Dispatcher, told: asyncio.Queue[ForwardPlace]
    ) -> None:
        row = {"body": b"x", "destination": TO, "delivery": "recoverable"}
        (first,) = (
            await dispatcher.commit(lambda at: outbox.prepare_rows("a", "1", [row], at))
        ).enqueued
        dispatcher.sender.drop(*first.key, at=1)
        await dispatcher.written()
        assert dispatcher.sender.forget(*first.key)
        (second,) = (
            await dispatcher.commit(lambda at: outbox.prepare_rows("a", "2", [row], at))
        ).enqueued
        assert second.first == first.last + 1
        (found,) = outbox.queue_rows()
        assert (found.destination, found.acknowledged_to, found.end) == (
            TO,
            first.last,
            second.last,
        )

    run(tmp_path, Rows(), body)


def test_one_token_has_a_share_which_a_restart_does_not_renew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outgoing_room, "TOKEN_MAX", 2)

    async def give(
        outbox: Outbox, dispatcher: Dispatcher, batch: str, to: list[str], token: str | None
    ) -> list[str]:
        rows = [{"body": b"x", "destination": each, "delivery": "recoverable"} for each in to]
        origin = outgoing_room.origin_of_token(token)
        committed = await dispatcher.commit(
            lambda at: outbox.prepare_rows("a", batch, rows, at), origin
        )
        return sorted(key.destination for key in committed.without_room)

    async def first(
        _: Forwarder, outbox: Outbox, dispatcher: Dispatcher, told: asyncio.Queue[ForwardPlace]
    ) -> None:
        assert await give(outbox, dispatcher, "1", [TO + "1", TO + "2", TO + "3"], "greedy") == [
            TO + "3"
        ]
        assert await give(outbox, dispatcher, "2", [TO + "1"], "greedy") == [], (
            "a queue that holds messages takes more"
        )
        assert await give(outbox, dispatcher, "3", [TO + "3"], "other") == []

    async def second(
        _: Forwarder, outbox: Outbox, dispatcher: Dispatcher, told: asyncio.Queue[ForwardPlace]
    ) -> None:
        assert await give(outbox, dispatcher, "4", [TO + "4"], "greedy") == [TO + "4"]
        assert await give(outbox, dispatcher, "5", [TO + "4"], None) == []

    run(tmp_path, Rows(), first)
    run(tmp_path, Rows(), second)


def test_how_far_it_is_is_told_again_when_there_is_nothing_new(tmp_path: Path) -> None:
    """The main process may have missed it, and would count these rows as waiting until the next message."""

    async def body(
        found: Forwarder, outbox: Outbox, dispatcher: Dispatcher, told: asyncio.Queue[ForwardPlace]
    ) -> None:
        await reached(told, 2)
        assert told.empty()
        found.note_new_rows()
        assert await told.get() == ForwardPlace("e", 2)

    run(tmp_path, Rows(TO, TO), body)


def test_what_is_held_is_not_taken_over_until_it_is_released(tmp_path: Path) -> None:
    """A purge says how many messages it gave up: none of them may become outgoing meanwhile."""
    rows = Rows(TO, TO)

    async def body(
        found: Forwarder, outbox: Outbox, _: Dispatcher, told: asyncio.Queue[ForwardPlace]
    ) -> None:
        await reached(told, 2)
        assert await found.hold() == ForwardPlace("e", 2)
        rows.rows.append(rows.rows[0]._replace(sequence=3))
        found.note_new_rows()
        await asyncio.sleep(0.2)
        assert read_to(outbox.database) == ForwardPlace("e", 2)
        found.release()
        await reached(told, 3)

    run(tmp_path, rows, body)


def test_who_holds_and_dies_holds_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarder_module, "HOLD_SECONDS", 0.1)
    rows = Rows(TO)

    async def body(
        found: Forwarder, _: Outbox, __: Dispatcher, told: asyncio.Queue[ForwardPlace]
    ) -> None:
        await reached(told, 1)
        await found.hold()
        rows.rows.append(rows.rows[0]._replace(sequence=2))
        found.note_new_rows()
        await reached(told, 2)

    run(tmp_path, rows, body)


@pytest.mark.parametrize("answers", [True, False])
def test_before_a_purge_what_is_outgoing_counts_as_received(
    answers: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The event that tells so may still be on its way. A sender process that is away does not keep an operator from purging."""
    happened: list[object] = []

    class Link:
        is_up = True

        async def ask(self, command: Any, kind: type[Any], *, seconds: float) -> ForwardingHeld:
            happened.append(SENDER_COMMANDS.name_of(command))
            if not answers:
                raise ApiError(503, "sender-unavailable", "the sender process is away")
            return ForwardingHeld(("e", 5))

        def tell(self, command: Any) -> bool:
            happened.append(SENDER_COMMANDS.name_of(command))
            return True

    async def forwarded(epoch: str, to: int) -> None:
        happened.append((epoch, to))

    async def main() -> None:
        outgoing = Outgoing.__new__(Outgoing)
        outgoing.link = cast("Any", Link())
        outgoing._events = cast("Any", SimpleNamespace(forwarded=forwarded))
        async with outgoing.forwarding_held():
            happened.append("purge")

    asyncio.run(main())
    assert happened == [
        "hold-forwarding",
        *([("e", 5)] if answers else []),
        "purge",
        "release-forwarding",
    ]
    assert ("purge.uncertain" in caplog.text) is not answers
