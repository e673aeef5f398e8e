"""Dead letters of an application's streams become rows of its queue: when there is room, in order, each once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_marks_and_queues import rig

from srmp_spark.errors import ApiError
from srmp_spark.message import Arrival, Message, StreamId, StreamPosition
from srmp_spark.queue_manager.queues.own_messages import OwnMessageAnswer
from srmp_spark.queue_manager.sender import dead_letters
from srmp_spark.queue_manager.sender.crossing import (
    ApplicationLetter,
    FindLetterQueues,
    LetterGroup,
    LetterQueues,
    NextLetters,
)
from srmp_spark.queue_manager.sender.dead_letters import DeadLetters
from srmp_spark.queue_manager.service import QueueManager
from srmp_spark.srmp.codec.decoder import decode
from srmp_spark.srmp.codec.encoder import encode, http_head
from srmp_spark.srmp.receiving.effects import Refused

FAILED, OTHER = "private$/failed", "private$/other"
TO = "http://elsewhere.example/msmq/private$/in"


class Sender:
    """Hands over what it has; what it was told to be stored is gone."""

    def __init__(self, manager: QueueManager) -> None:
        self.guid = manager.directory.queue_manager
        self.groups: dict[int, LetterGroup] = {}
        self.queue_of: dict[int, str] = {}
        self.asked: list[str] = []
        self.is_away = False
        self.forgets = False

    def has(self, number: int, *numbers: int, queue: str = FAILED, **fields: Any) -> None:
        self.groups[number] = LetterGroup(number, [self._letter(n, **fields) for n in numbers])
        self.queue_of[number] = queue

    def _letter(self, number: int, **fields: Any) -> ApplicationLetter:
        asks = {
            "delivery_receipt_to": TO,
            "commitment_receipt_to": TO,
            "commitment_negative": True,
            "dead_letter": True,
        }
        message = Message(
            TO,
            "MSMQ:label",
            self.guid,
            number,
            has_msmq=True,
            durable=True,
            body=b"%d" % number,
            **asks,
            **fields,
        )
        content_type, content = encode(message, boundary="b")
        head = http_head("/msmq/private$/in", "elsewhere.example", content_type, len(content))
        return ApplicationLetter(head + content, len(head))

    async def ask_long(self, command: Any, kind: type[Any], *, seconds: float) -> Any:
        await asyncio.sleep(0)
        if self.is_away:
            raise ApiError(503, "sender-unavailable", "the sender process is being restarted")
        if isinstance(command, FindLetterQueues):
            names = {self.queue_of[each] for each in self.groups}
            return LetterQueues(sorted(name for name in names if name > command.after)[:2])
        queue, handed = command.queue, command.handed
        self.asked.append(queue)
        mine = [each for each in sorted(self.groups) if self.queue_of[each] == queue]
        if handed and not self.forgets:
            for number in [each for each in mine if each <= handed]:
                del self.groups[number]
        left = [each for each in mine if each > handed]
        return self.groups[left[0]] if left else LetterGroup(None, [])


def run(
    folder: Path,
    test: Callable[[QueueManager, Sender, DeadLetters], Awaitable[None]],
    **settings: Any,
) -> None:
    async def body(manager: QueueManager) -> None:
        sender = Sender(manager)
        manager.outgoing = SimpleNamespace(link=sender, dead_came=asyncio.Event())  # type: ignore[assignment]  # all that is asked of it
        letters = DeadLetters(manager)
        letters.start()
        try:
            await asyncio.wait_for(test(manager, sender, letters), 10)
        finally:
            await letters.close()

    queues = [f"{FAILED}:transactional", f"{OTHER}:transactional", "private$/plain"]
    rig(folder, body, queue=queues, host_name=["h"], **settings)


async def until(condition: Callable[[], Any]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def end(manager: QueueManager, queue: str = FAILED) -> int:
    return manager.catalogue.find(queue).end


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "RETRY_SECONDS", 0.02)


def test_group_by_group_and_nobody_is_told_of_their_end_again(tmp_path: Path) -> None:
    async def test(manager: QueueManager, sender: Sender, letters: DeadLetters) -> None:
        sender.has(4, 1, 2, 3)
        sender.has(7, 9)
        manager.outgoing.dead_came.set()
        await until(lambda: not sender.groups)
        assert end(manager) == 4
        writer = manager.directory.writer
        for table in ("undecided", "decided_receipts", "owed_receipts"):
            assert writer.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table

    run(tmp_path / "d", test)


def test_what_is_handed_over_once_more_makes_no_second_row(tmp_path: Path) -> None:
    """The sender ended before it noted that they are stored; and the queue manager may have, too."""

    async def first(manager: QueueManager, sender: Sender, letters: DeadLetters) -> None:
        sender.forgets = True
        sender.has(4, 1, 2, 3)
        for _ in range(2):
            manager.outgoing.dead_came.set()
            await until(lambda: not letters._is_woken.is_set() and end(manager) == 3)
            await asyncio.sleep(0.05)
        assert end(manager) == 3

    async def second(manager: QueueManager, sender: Sender, letters: DeadLetters) -> None:
        sender.has(4, 1, 2, 3)
        sender.has(5, 4)
        manager.outgoing.dead_came.set()
        await until(lambda: not sender.groups)
        assert end(manager) == 4

    run(tmp_path / "d", first)
    run(tmp_path / "d", second)


def test_they_wait_for_a_queue_that_is_paused_or_full_and_for_a_sender_that_is_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(manager: QueueManager, sender: Sender, letters: DeadLetters) -> None:
        sender.is_away = True
        sender.has(1, 1, 2)
        manager.outgoing.dead_came.set()
        await asyncio.sleep(0.05)
        await manager.queues.pause(FAILED, paused=True)
        sender.is_away = False
        await until(lambda: 'reason="the queue refuses the message: paused"' in caplog.text)
        await asyncio.sleep(0.1)
        assert caplog.text.count("dead_letters.not_stored") == 1, "told once"
        await manager.queues.pause(FAILED, paused=False)
        await until(lambda: not sender.groups)
        assert end(manager) == 2
        sender.has(3, 3)
        manager.outgoing.dead_came.set()
        await until(lambda: 'reason="the queue refuses the message: quota"' in caplog.text)
        assert sender.groups
        assert end(manager) == 2
        assert await manager.queues.purge(FAILED) == 2
        await until(lambda: not sender.groups)
        assert end(manager) == 3

    run(tmp_path / "d", test, queue_quota_bytes=100)


def test_a_queue_that_is_paused_or_full_holds_its_own_letters_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The letters of other queues go on at once, those that come later too, and the held queue is not read again and again."""
    monkeypatch.setattr(dead_letters, "RETRY_SECONDS", 30.0)

    async def test(manager: QueueManager, sender: Sender, letters: DeadLetters) -> None:
        await manager.queues.pause(FAILED, paused=True)
        sender.has(1, 1, 2)
        sender.has(2, 3, queue=OTHER)
        sender.has(3, 4)
        manager.outgoing.dead_came.set()
        await until(lambda: end(manager, OTHER) == 1)
        sender.has(4, 5, queue=OTHER)
        manager.outgoing.dead_came.set()
        await until(lambda: end(manager, OTHER) == 2)
        assert sender.asked.count(FAILED) == 1
        assert caplog.text.count("dead_letters.not_stored") == 1, "told once"

        await manager.queues.pause(FAILED, paused=False)
        monkeypatch.setattr(dead_letters, "RETRY_SECONDS", 0.02)
        letters._held.clear()  # its 30 seconds are over
        manager.outgoing.dead_came.set()
        await until(lambda: not sender.groups)
        assert (end(manager), end(manager, OTHER)) == (3, 2)

    run(tmp_path / "d", test)


@pytest.mark.parametrize("where", ["sender process", "queue manager"])
def test_a_bug_in_one_letter_holds_its_queue_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    async def test(manager: QueueManager, sender: Sender, letters: DeadLetters) -> None:
        ask, decoded = sender.ask_long, dead_letters.decode
        is_there = True

        async def answers(command: Any, kind: type[Any], *, seconds: float) -> Any:
            if is_there and where == "sender process" and command == NextLetters(FAILED, 0):
                raise ApiError(503, "sender", "KeyError('a bug')")
            return await ask(command, kind, seconds=seconds)

        def decodes(content_type: str, content: bytes) -> Message:
            message = decoded(content_type, content)
            if is_there and message.body == b"1":
                raise KeyError("a bug")
            return message

        sender.ask_long = answers  # type: ignore[method-assign]  # what is wrong here
        if where == "queue manager":
            monkeypatch.setattr(dead_letters, "decode", decodes)
        sender.has(1, 1)
        sender.has(2, 2, queue=OTHER)
        manager.outgoing.dead_came.set()
        await until(lambda: end(manager, OTHER) == 1)
        await asyncio.sleep(0.1)
        sender.has(3, 3, queue=OTHER)
        manager.outgoing.dead_came.set()
        await until(lambda: end(manager, OTHER) == 2)
        assert end(manager) == 0
        assert caplog.text.count("a bug") <= 4, "told once, and not at each try"
        is_there = False
        await until(lambda: end(manager) == 1)

    run(tmp_path / "d", test)


def test_the_engine_discards_none_for_its_age(tmp_path: Path) -> None:
    """``--expired refuse`` is about what comes late; these have expired, and that is why they are here."""

    async def test(manager: QueueManager, sender: Sender, letters: DeadLetters) -> None:
        sender.has(1, 1, time_to_reach_queue=1_000_000, expires_at=1_000_000)
        manager.outgoing.dead_came.set()
        await until(lambda: not sender.groups)
        assert end(manager) == 1

    run(tmp_path / "d", test, expired="refuse")


def test_nobody_can_take_the_place_of_a_letter_before_it_comes(tmp_path: Path) -> None:
    """Anybody can compute the lineage of the letters and our stream's GUID: what comes over the wire with both holds none."""

    async def test(manager: QueueManager, sender: Sender, letters: DeadLetters) -> None:
        last = StreamId(manager.directory.queue_manager, 2**64 - 1)
        place = StreamPosition(last, 1, 0, start=True, send_receipts_to=TO)
        for n, queue, name in (
            (1, FAILED, "CN=mallory"),
            (2, "private$/plain", "CN=mallory"),
            (3, "private$/plain", None),
        ):
            stolen = Message(
                f"http://h/msmq/{queue}", "MSMQ:", letters._lineage, n, has_msmq=True, durable=True, priority=0,
                stream=place if queue == FAILED else None,
            )  # fmt: skip
            content_type, content = encode(stolen, boundary="b")
            head = http_head(f"/msmq/{queue}", "h", content_type, len(content))
            arrival = Arrival(1, "https", "192.0.2.66:1", name)
            manager.acceptor.take(
                decode(content_type, content),
                arrival,
                head + content,
                len(head),
                OwnMessageAnswer(),
            )
        taken = manager.receiver.queues[FAILED].end
        sender.has(4, 1, 2, 3)
        manager.outgoing.dead_came.set()
        await until(lambda: not sender.groups)
        assert end(manager) == taken + 3

    run(tmp_path / "d", test)


def test_a_queue_that_is_gone_holds_no_other_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(manager: QueueManager, sender: Sender, letters: DeadLetters) -> None:
        sender.has(1, 1, queue="private$/gone")
        sender.has(2, 2, queue="private$/plain")
        sender.has(3, 3)
        manager.outgoing.dead_came.set()
        await until(lambda: not sender.groups)
        assert end(manager) == 1
        assert "dead_letters.no_queue queue=private$/gone rows=1" in caplog.text
        assert "dead_letters.no_queue queue=private$/plain rows=1" in caplog.text

    run(tmp_path / "d", test)


def test_one_that_is_no_message_or_that_the_engine_refuses_holds_no_other_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(manager: QueueManager, sender: Sender, letters: DeadLetters) -> None:
        judge = manager.receiver._not_now
        refused = Refused(400, "no-good", "no good", "")
        monkeypatch.setattr(
            manager.receiver, "_not_now",
            lambda queue, message, arrival: refused if message.body == b"3" else judge(queue, message, arrival),
        )  # fmt: skip
        sender.has(1, 1, 2, 3, 4, 5)
        bad = ApplicationLetter(b"POST / HTTP/1.1\r\n\r\nno message", 19)
        sender.groups[1].letters[1] = bad
        sender.has(2, 6)
        manager.outgoing.dead_came.set()
        await until(lambda: not sender.groups)
        assert end(manager) == 4, "1, 4, 5 and 6"
        assert caplog.text.count("dead_letters.unreadable") == 1
        assert caplog.text.count("dead_letters.refused") == 1
        assert any(f"{letters._lineage}}}\\3" in record.getMessage() for record in caplog.records)

    run(tmp_path / "d", test)
