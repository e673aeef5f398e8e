"""What must not stop the dispatcher for ever: a bug in a write, a lost answer, receipts that cannot be read."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from srmp_spark.clock import SystemClock
from srmp_spark.errors import ApiError, StoreError
from srmp_spark.message import CLASS_NACK_Q_PURGED, CLASS_ORDER_ACK, Message, Receipt, StreamId
from srmp_spark.queue_manager.queues.identifiers import Identifiers
from srmp_spark.queue_manager.sender import commands, dispatcher, link
from srmp_spark.queue_manager.sender.commands import SenderCommands
from srmp_spark.queue_manager.sender.crossing import (
    SENDER_EVENTS,
    FindStates,
    IdentifiersRefused,
    IdentifiersReserved,
    MessageStates,
    ReceiptsArrived,
    ReceiptsNoted,
    ReserveIdentifiers,
    SenderCommand,
    SendMessages,
)
from srmp_spark.queue_manager.sender.dispatcher import Dispatcher
from srmp_spark.queue_manager.sender.link import Outgoing
from srmp_spark.queue_manager.sender.receipts import FoundReceipts, read_to
from srmp_spark.queue_manager.sender.send_commands import SendCommands
from srmp_spark.queue_manager.sender.store_thread import StoreThread
from srmp_spark.srmp.codec.message_types import ORDERING_ACK_ACTION
from srmp_spark.srmp.sending.outgoing_effects import ReceiptVerdict
from srmp_spark.srmp.sending.outgoing_room import OutgoingRoom
from srmp_spark.srmp.sending.outgoing_stream import OutgoingStream
from srmp_spark.srmp.sending.sender import Sender
from srmp_spark.store.outbox.errors import BatchError
from srmp_spark.store.outbox.outbox import Outbox
from tests.kit.foreign.destination import Destination

QM = "3F2504E0-4F89-11D3-9A0C-0305E82C3301"
ROW = {"body": b"x", "destination": "http://127.0.0.1:9/msmq/private$/q"}


class Receipts:
    """A log that cannot be read the first time."""

    def __init__(self) -> None:
        self.reads = 0

    def read(self, after: int) -> FoundReceipts:
        self.reads += 1
        if self.reads == 1:
            raise OSError("no descriptors")
        return FoundReceipts(after, [], more=False)


def with_dispatcher(
    folder: Path, body: Callable[[Dispatcher, Outbox, list[StoreError], Receipts], Awaitable[None]], first: int = 1,
    *, sender: Sender | None = None, stored: object = None,
) -> None:  # fmt: skip
    async def reserve(count: int) -> int:
        return first

    async def run() -> None:
        clock, fatal, receipts = SystemClock(), list[StoreError](), Receipts()
        outbox = Outbox.open(folder, queue_manager=QM, epoch="e", at=clock.utc())
        store = StoreThread(asyncio.get_running_loop(), fatal.append)
        engine, receipt_log = (
            sender if sender is not None else Sender(QM.lower()),
            cast("Any", stored or receipts),
        )
        found = Dispatcher(outbox, engine, store, receipt_log, clock, receipts_url="http://h.example/o", receipts_read_to=0,
                           reserve=reserve)  # fmt: skip
        try:
            await body(found, outbox, fatal, receipts)
        finally:
            await found.transports.stop()
            await store.run(outbox.close)

    asyncio.run(run())


def test_a_bug_in_a_write_ends_the_process(tmp_path: Path) -> None:
    async def body(found: Dispatcher, outbox: Outbox, fatal: list[StoreError], _: Receipts) -> None:
        with pytest.raises(StoreError):  # the process would be gone
            await found.commit(partial(outbox.prepare_rows, "a", "1", [ROW]))
        assert len(fatal) == 1

    with_dispatcher(tmp_path, body, first=2**32)


def test_a_stage_that_cannot_be_deleted_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(found: Dispatcher, outbox: Outbox, fatal: list[StoreError], _: Receipts) -> None:
        def unlink(path: Path, missing_ok: bool = False) -> None:
            raise PermissionError(path)

        monkeypatch.setattr(Path, "unlink", unlink)
        for batch in ("1", "2"):
            committed = await asyncio.wait_for(
                found.commit(partial(outbox.prepare_rows, "a", batch, [ROW])), 10
            )
            assert committed.result.new == 1
        assert fatal == []

    with_dispatcher(tmp_path, body)


def test_receipts_that_could_not_be_read_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "RECEIPTS_RETRY_SECONDS", 0.01)

    async def body(
        found: Dispatcher, outbox: Outbox, fatal: list[StoreError], receipts: Receipts
    ) -> None:
        found.receipts_came()
        for _ in range(200):
            await asyncio.sleep(0.01)
            if receipts.reads > 1:
                break
        assert receipts.reads == 2

    with_dispatcher(tmp_path, body)


def test_how_far_the_receipts_were_read_is_told_when_it_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention deletes them then: not before, and not where nothing was read (an older copy may have replaced the log)."""
    monkeypatch.setattr(dispatcher, "RECEIPTS_NOTED_SECONDS", 0.01)
    monkeypatch.setattr(dispatcher, "RECEIPTS_RETRY_SECONDS", 60.0)

    class Seven:
        def read(self, after: int) -> FoundReceipts:
            return FoundReceipts(7, [], more=False)

    async def told(found: Dispatcher, outbox: Outbox, fatal: list[StoreError], _: Receipts) -> None:
        noted: asyncio.Queue[tuple[int, int]] = asyncio.Queue()
        found.on_receipts_noted = lambda to: noted.put_nowait((to, read_to(outbox.database)))
        found.receipts_came()
        assert await asyncio.wait_for(noted.get(), 20) == (7, 7)
        found.receipts_came()
        assert await asyncio.wait_for(noted.get(), 20) == (7, 7), (
            "again: the one who was told may have been started again"
        )

    async def not_told(
        found: Dispatcher, outbox: Outbox, fatal: list[StoreError], receipts: Receipts
    ) -> None:
        found.on_receipts_noted = lambda to: pytest.fail("nothing was read")
        found.receipts_came()
        while not receipts.reads:
            await asyncio.sleep(0.01)
        await found.note_receipts()
        await found.stop()

    for name, body, stored in (("a", told, Seven()), ("b", not_told, None)):
        (tmp_path / name).mkdir()
        with_dispatcher(tmp_path / name, body, stored=stored)


def test_how_far_the_receipts_were_read_is_noted_while_more_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who floods the order queue must not keep retention from emptying it, nor fill it up for all others."""
    monkeypatch.setattr(dispatcher, "RECEIPTS_NOTED_SECONDS", 0.01)

    class Flood:
        def read(self, after: int) -> FoundReceipts:
            time.sleep(0.001)
            return FoundReceipts(after + 1, [], more=True)

    async def body(found: Dispatcher, outbox: Outbox, fatal: list[StoreError], _: Receipts) -> None:
        noted: asyncio.Queue[tuple[int, int]] = asyncio.Queue()
        found.on_receipts_noted = lambda to: noted.put_nowait((to, read_to(outbox.database)))
        found.receipts_came()
        marks = [await asyncio.wait_for(noted.get(), 60) for _ in range(3)]
        assert all(0 < told <= stored for told, stored in marks)
        assert marks[0] < marks[1] < marks[2]
        await found.stop()

    with_dispatcher(tmp_path, body, stored=Flood())


def test_nothing_is_sent_before_the_receipts_were_read_that_came_earlier(tmp_path: Path) -> None:
    """What they acknowledge was answered 200 to the peer, which must not see it again."""
    may_read = threading.Event()

    class Slow:
        def read(self, after: int) -> FoundReceipts:
            assert may_read.wait(20)
            return FoundReceipts(after, [], more=False)

    with Destination(queues={"private$/q": True}) as peer:

        async def body(
            found: Dispatcher, outbox: Outbox, fatal: list[StoreError], _: Receipts
        ) -> None:
            found.receipts_came()
            row = {"body": b"x", "destination": peer.url("private$/q")}
            await found.commit(partial(outbox.prepare_rows, "a", "1", [row]))
            await asyncio.sleep(0.3)
            assert peer.journal == []
            may_read.set()
            assert await asyncio.to_thread(peer.wait, 1, 20)

        with_dispatcher(tmp_path, body, stored=Slow())


class SickSender(Sender):
    """Has a bug that one receipt shows."""

    def __init__(self) -> None:
        super().__init__(QM.lower())
        self.heard: list[int] = []

    def receipt(self, message: Message, now: float, at: int) -> ReceiptVerdict | None:
        if message.uniquifier == 2:
            raise StopIteration
        self.heard.append(message.uniquifier)
        return super().receipt(message, now, at)


def test_a_receipt_that_shows_a_bug_stops_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One for any destination would stop those of all, and be read again for ever."""
    receipt = Receipt("stream", stream_id=StreamId(QM.lower(), 1), last_ordinal=1)
    messages = [
        Message("http://h.example/o", ORDERING_ACK_ACTION, lineage=QM.lower(), uniquifier=n, has_msmq=True,
                message_class=CLASS_ORDER_ACK, receipt=receipt)
        for n in (1, 2, 3)
    ]  # fmt: skip

    class Log:
        def __init__(self) -> None:
            self.after: list[int] = []

        def read(self, after: int) -> FoundReceipts:
            self.after.append(after)
            return (
                FoundReceipts(3, messages, more=True)
                if after < 3
                else FoundReceipts(3, [], more=False)
            )

    stored, sender = Log(), SickSender()

    async def body(found: Dispatcher, outbox: Outbox, fatal: list[StoreError], _: Receipts) -> None:
        found.receipts_came()
        for _turn in range(500):
            await asyncio.sleep(0.01)
            if len(stored.after) > 1:
                break
        assert stored.after[:2] == [0, 3]
        await found.written()
        assert fatal == []

    with_dispatcher(tmp_path, body, sender=sender, stored=stored)
    assert sender.heard == [1, 3]
    assert sender.receipts == {"another-stream": 2, "failed": 1}
    assert "sender.receipt_failed" in caplog.text
    assert f"last_ordinal=1 id={messages[1].id}" in caplog.text


def test_identifiers_that_never_come_are_a_503(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "RESERVE_SECONDS", 0.05)

    async def run() -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with ours, theirs:
            outbox = SimpleNamespace(
                stages=SimpleNamespace(folder=Path("nowhere"), multicast=False)
            )
            dispatcher = SimpleNamespace(sender=SimpleNamespace(room=OutgoingRoom()))
            found = SenderCommands(ours, *cast("Any", [outbox, None, dispatcher, None]))
            with pytest.raises(ApiError) as raised:
                await found.reserve(7)
            assert raised.value.status == 503
            asked = SENDER_EVENTS.decode(theirs.recv(1000))
            assert isinstance(asked, ReserveIdentifiers)
            assert asked.count == 7

    asyncio.run(run())


def test_identifiers_end_with_a_503() -> None:
    with pytest.raises(ApiError) as raised:
        asyncio.run(Identifiers(cast("Any", None), "message_id", 2**32 - 11).reserve(11))
    assert raised.value.code == "identifiers-used-up"


class Busy:
    """A link that takes nothing at first."""

    is_up = True

    def __init__(self) -> None:
        self.refused = 0
        self.told: list[SenderCommand] = []

    def tell(self, command: SenderCommand) -> bool:
        if self.refused < 3:
            self.refused += 1
            return False
        self.told.append(command)
        return True


TROUBLES = [
    None,
    StoreError("disk"),
    RuntimeError("bug"),
    ApiError(503, "used-up", "no more", "begin anew"),
]


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_child_that_has_too_much_to_do_is_told_again(
    monkeypatch: pytest.MonkeyPatch, trouble: Exception | None
) -> None:
    monkeypatch.setattr(link, "TELL_AGAIN_SECONDS", 0.01)

    async def reserve(count: int) -> int:
        if trouble is not None:
            raise trouble
        return 5

    async def run() -> None:
        outgoing = Outgoing.__new__(Outgoing)
        outgoing.link = busy = cast("Any", Busy())
        outgoing._identifiers = cast("Any", SimpleNamespace(reserve=reserve))
        outgoing._again, outgoing._untold = None, {}
        noted: list[int] = []
        outgoing._events = cast("Any", SimpleNamespace(order_queue_read=noted.append))
        await outgoing._reserve(1, 2)
        told: SenderCommand = IdentifiersReserved(1, 5)
        if isinstance(trouble, ApiError):
            told = IdentifiersRefused(1, 503, "used-up", "no more", "begin anew")
        elif trouble is not None:
            told = IdentifiersRefused(1, 503, "store", str(trouble), "")
        assert busy.told == [told]
        busy.refused = 0
        outgoing.receipts_came()
        while len(busy.told) < 2:  # the time-out of the test is the limit
            await asyncio.sleep(0.01)
        assert busy.told[1:] == [ReceiptsArrived()]
        outgoing._on_event(ReceiptsNoted(7))
        assert outgoing.receipts_noted == 7
        assert noted == [7]

    asyncio.run(run())


def test_after_an_error_all_messages_may_be_sent_again(tmp_path: Path) -> None:
    destination = ROW["destination"]

    def items(second: str) -> list[dict[str, Any]]:
        keyed = [
            {"destination": destination, "key": "a"},
            {"destination": destination, "key": "b", "label": second},
        ]
        return [
            {"body_base64": "", **each}
            for each in ({"destination": destination, "label": "no key"}, *keyed)
        ]

    async def body(found: Dispatcher, outbox: Outbox, fatal: list[StoreError], _: Receipts) -> None:
        messages = SendCommands(outbox, found._store, found)
        await messages.send(SendMessages(None, items("first")[2:]))
        with pytest.raises(ApiError) as raised:
            await messages.send(SendMessages(None, items("other")))
        assert raised.value.code == "key-conflict"
        assert "1 of 3 messages will be sent" in str(raised.value)
        answers = await messages.send(SendMessages(None, items("first")))
        assert [each.message_id is None for each in answers] == [False, True, True]
        (queue,) = found.sender
        assert queue.end == 3, "each of them once"
        with pytest.raises(BatchError):
            await messages.send(SendMessages(None, items("other")[2:]))
        assert fatal == []

    with_dispatcher(tmp_path, body)


def test_a_message_that_is_about_to_be_a_dead_letter_is_not_told_to_be_acknowledged(
    tmp_path: Path,
) -> None:
    """The engine knows the negative final receipt, the disk does not yet: who asks waits for the disk."""

    async def until(condition: Callable[[], bool]) -> None:
        for _ in range(1_000):
            if condition():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("ten seconds are over")

    async def body(found: Dispatcher, outbox: Outbox, fatal: list[StoreError], _: Receipts) -> None:
        found.receipts_came()  # sending begins
        with Destination(queues={"private$/q": True}, receipt_wait=0.1) as peer:
            url = peer.url("private$/q")
            await found.commit(
                partial(
                    outbox.prepare_rows, "a", "1", [ROW | {"destination": url}], dead_letter=True
                )
            )
            (queue,) = found.sender
            assert isinstance(queue, OutgoingStream)
            await until(lambda: sum(map(len, peer.queues.values())) == 1 and not queue.in_flight)

            def hear(receipt: Receipt, message_class: int, verdict: str) -> None:
                told = Message(
                    queue.receipts_url,
                    ORDERING_ACK_ACTION,
                    has_msmq=True,
                    message_class=message_class,
                    receipt=receipt,
                )
                assert found.sender.receipt(told, loop.time(), 0) == verdict
                found.work()

            stream_id, loop = StreamId(QM, queue.ordinal), asyncio.get_running_loop()
            hear(
                Receipt("stream", stream_id=stream_id, last_ordinal=1), CLASS_ORDER_ACK, "progress"
            )
            await found.written()
            slow = threading.Event()
            found._store.run(slow.wait)
            before = loop.create_task(found.written())
            await asyncio.sleep(0)  # a write is under way, what comes now is for the next
            final = Receipt(
                "final_stream",
                stream_id=stream_id,
                last_ordinal=1,
                lineage=QM,
                uniquifier=1,
                decision="negative",
            )
            hear(final, CLASS_NACK_Q_PURGED, "final")
            asked = FindStates(url, "stream", [1], 0)
            answer = loop.create_task(SendCommands(outbox, found._store, found).state(asked))
            await asyncio.sleep(0.1)
            slow.set()
            assert await answer == MessageStates(["dead"])
            await before
            assert fatal == []

    with_dispatcher(tmp_path, body)
