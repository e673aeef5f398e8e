"""The wire of a reliable session alone: every message that was handed to it comes back once, whatever happens in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from session_kit import KEY, URL, answer, answer_to_the_end, send_of

from srmp_spark.queue_manager.posting.http_answer import PeerAnswer
from srmp_spark.queue_manager.sender.reliable import reliable_wire
from srmp_spark.queue_manager.sender.reliable.reliable_wire import ReliableWire
from srmp_spark.queue_manager.sender.reliable.soap_connection import NoAnswerError, SoapAnswer
from srmp_spark.srmp.sending.outgoing_effects import QueueKey, Send
from srmp_spark.store.outbox.tables.sessions import SessionRow
from srmp_spark.wsrm.codec.elements import (
    CreateSequence,
    CreateSequenceResponse,
    SequenceAcknowledgement,
    SoapMessage,
)
from srmp_spark.wsrm.codec.encoder import encode
from srmp_spark.wsrm.codec.faults import FaultCode, fault_of


class Owner:
    """Notes what becomes of each, and holds the queue as the dispatcher does."""

    def __init__(self) -> None:
        self.ends: list[tuple[int, str]] = []
        self.lost = ""
        self.trouble: str | None = None
        self.writes = True
        self.wire: ReliableWire

    def on_answer(self, send: Send, answer: PeerAnswer) -> None:
        self.ends.append((send.serial, "acknowledged"))

    def on_failure(self, send: Send, why: str, left: bool) -> None:
        self.ends.append((send.serial, "in doubt" if left else "not sent"))

    def on_expired(self, send: Send) -> None:
        self.ends.append((send.serial, "expired"))

    def on_left(self, send: Send) -> None:
        pass

    def on_trouble(self, key: QueueKey, why: str | None) -> None:
        self.trouble = why

    def on_lost(self, key: QueueKey, why: str) -> None:
        self.lost = why
        self.wire.close("held")

    def on_change(self, key: QueueKey) -> None:
        asyncio.get_running_loop().call_soon(self._write)

    def _write(self) -> None:
        if self.writes:
            self.wire.take_change()
            self.wire.stored()


class Connection:
    """Answers by a script."""

    def __init__(self, script: Callable[[SoapMessage], SoapMessage | None]) -> None:
        self._script = script

    async def post(self, message: SoapMessage) -> SoapAnswer:
        await asyncio.sleep(0)
        answer = self._script(message)
        if answer is None:
            raise NoAnswerError("cut off", left=True)
        return SoapAnswer(200, "", encode(answer), False)

    def close(self) -> None:
        pass


async def until(condition: Callable[[], Any]) -> None:
    for _ in range(2_000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not happen")


def test_what_is_about_to_get_a_number_comes_back_when_the_sequence_is_lost() -> None:
    """Its number is planned and not written yet, and the fault comes: it must not stay with a wire that has no sequence."""

    async def run() -> None:
        owner = Owner()
        is_lost = [False]

        def script(message: SoapMessage) -> SoapMessage | None:
            if isinstance(message.content, CreateSequence):
                return answer(message, content=CreateSequenceResponse("urn:s"))
            if not is_lost[0]:
                return None
            assert message.rm is not None
            return answer(
                message, content=fault_of(FaultCode.UNKNOWN_SEQUENCE, message.rm, "urn:s")
            )

        wire = owner.wire = ReliableWire(
            KEY, URL, owner, Connection(script), poll_interval=30.0, late_at=lambda: 0
        )  # type: ignore[arg-type]  # a double
        wire.post(send_of(1))
        await until(lambda: wire._book.doubt == {1})
        owner.writes = False
        wire.post(send_of(2))
        await until(lambda: wire._planned is not None and wire._planned.numbered)
        is_lost[0] = True
        wire.hurry()
        await until(lambda: owner.lost)
        assert sorted(owner.ends) == [(1, "in doubt"), (2, "not sent")]
        wire.end()

    asyncio.run(run())


class Paused:
    """A service that has the first message when its queue is put on hold, and acknowledges it then."""

    def __init__(self) -> None:
        self.owner = Owner()
        self.created: list[str] = []
        self.got: list[tuple[str, int]] = []
        self.forgot = False
        self.answers = asyncio.Event()

    def wire(self, row: SessionRow | None = None) -> ReliableWire:
        wire = ReliableWire(
            KEY, URL, self.owner, self, poll_interval=0.1, late_at=lambda: 0, row=row
        )  # type: ignore[arg-type]  # doubles
        self.owner.wire = wire
        return wire

    async def post(self, message: SoapMessage) -> SoapAnswer:
        if message.sequence is not None:
            await self.answers.wait()
        return SoapAnswer(200, "", encode(self._answer(message)), False)

    def _answer(self, message: SoapMessage) -> SoapMessage:
        assert message.rm is not None
        content = message.content
        if isinstance(content, CreateSequence):
            self.created.append(f"urn:s{len(self.created) + 1}")
            return answer(message, content=CreateSequenceResponse(self.created[-1]))
        if self.forgot:
            return answer(
                message, content=fault_of(FaultCode.UNKNOWN_SEQUENCE, message.rm, self.created[-1])
            )
        if (ends := answer_to_the_end(message)) is not None:
            return ends
        if message.sequence is not None:
            self.got.append((message.sequence.identifier, message.sequence.number))
        taken = sum(identifier == self.created[-1] for identifier, _ in self.got)
        room = 1 if message.sequence is None else 0
        return answer(
            message,
            acknowledgements=(
                SequenceAcknowledgement(self.created[-1], ((1, taken),), buffer_remaining=room),
            ),
        )

    def close(self) -> None:
        pass

    async def acknowledged_on_hold(self) -> ReliableWire:
        wire = self.wire()
        wire.post(send_of(1))
        await until(lambda: wire._book.doubt == {1})
        wire.close("paused")
        assert self.owner.ends == [(1, "in doubt")]
        self.answers.set()
        await until(lambda: self.got and not wire._book.serials)
        return wire

    async def goes_on(self, wire: ReliableWire) -> None:
        wire.post(send_of(1))
        wire.post(send_of(2))
        await until(lambda: self.owner.ends[1:] == [(1, "acknowledged"), (2, "acknowledged")])
        assert len(self.got) == 2, "the first one was not sent again"
        wire.end()


def test_what_was_acknowledged_on_hold_is_not_sent_again_though_its_sequence_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reliable_wire, "IDLE_SECONDS", 0.1)

    async def run() -> None:
        paused = Paused()
        wire = await paused.acknowledged_on_hold()
        await until(lambda: wire.source is None)
        assert not wire.is_over, "it knows what was taken"
        await paused.goes_on(wire)
        assert paused.created == ["urn:s1", "urn:s2"]

    asyncio.run(run())


@pytest.mark.parametrize("has_ended", [True, False])
def test_nor_after_a_restart(monkeypatch: pytest.MonkeyPatch, has_ended: bool) -> None:
    monkeypatch.setattr(reliable_wire, "IDLE_SECONDS", 0.1 if has_ended else 60.0)

    async def run() -> None:
        paused = Paused()
        wire = await paused.acknowledged_on_hold()
        if has_ended:
            await until(lambda: wire.source is None)
        row = wire.take_change()
        assert row is not None
        assert (row.identifier, [run.serial for run in row.numbers]) == (
            "" if has_ended else "urn:s1",
            [1],
        )
        wire.end()
        await paused.goes_on(paused.wire(row))
        assert paused.created == ["urn:s1", "urn:s2"][: 1 + has_ended]

    asyncio.run(run())


def test_nor_when_the_service_loses_the_sequence_meanwhile() -> None:
    async def run() -> None:
        paused = Paused()
        wire = await paused.acknowledged_on_hold()
        assert wire.source is not None
        paused.forgot = True
        wire.hurry()  # it asks for room
        await until(lambda: wire.source is None)
        assert not paused.owner.lost, "nothing is in doubt"
        paused.forgot = False
        await paused.goes_on(wire)

    asyncio.run(run())


def test_what_an_operator_drops_is_known_no_more() -> None:
    async def run() -> None:
        paused = Paused()
        wire = await paused.acknowledged_on_hold()
        wire.give_up()
        await until(lambda: wire.is_over)
        wire.end()

    asyncio.run(run())


def test_a_message_held_and_let_go_while_its_number_is_written_gets_no_second_number() -> None:
    async def run() -> None:
        owner = Owner()
        numbers: list[int] = []

        def script(message: SoapMessage) -> SoapMessage | None:
            if isinstance(message.content, CreateSequence):
                return answer(message, content=CreateSequenceResponse("urn:s"))
            assert message.sequence is not None
            numbers.append(message.sequence.number)
            acknowledgement = SequenceAcknowledgement("urn:s", ((1, message.sequence.number),))
            return answer(message, acknowledgements=(acknowledgement,))

        wire = owner.wire = ReliableWire(
            KEY, URL, owner, Connection(script), poll_interval=30.0, late_at=lambda: 0
        )  # type: ignore[arg-type]  # a double
        wire.post(send_of(1))
        await until(lambda: owner.ends == [(1, "acknowledged")])
        owner.writes = False
        wire.post(send_of(2))
        await until(lambda: wire._planned is not None and wire._planned.numbered)
        wire.take_change()  # it is being written
        wire.close("held")
        assert owner.ends[1:] == [(2, "not sent")]
        wire.post(send_of(2))
        wire.stored()
        owner.writes = True
        await until(lambda: owner.ends[2:] == [(2, "acknowledged")])
        wire.post(send_of(3))
        await until(lambda: owner.ends[3:] == [(3, "acknowledged")])
        assert numbers == [1, 2, 3]
        wire.end()

    asyncio.run(run())


def test_a_service_that_knows_none_of_its_own_sequences_is_not_asked_for_ever_more_of_them() -> (
    None
):
    """Several servers behind one address: one makes the sequence, the next one never heard of it."""

    async def run() -> None:
        owner = Owner()
        created: list[str] = []
        forgets = [True]

        def script(message: SoapMessage) -> SoapMessage | None:
            assert message.rm is not None
            if isinstance(message.content, CreateSequence):
                created.append(f"urn:s{len(created) + 1}")
                return answer(message, content=CreateSequenceResponse(created[-1]))
            if forgets[0]:
                return answer(
                    message, content=fault_of(FaultCode.UNKNOWN_SEQUENCE, message.rm, created[-1])
                )
            return answer(
                message, acknowledgements=(SequenceAcknowledgement(created[-1], ((1, 1),)),)
            )

        wire = owner.wire = ReliableWire(
            KEY, URL, owner, Connection(script), poll_interval=30.0, late_at=lambda: 0
        )  # type: ignore[arg-type]  # a double
        wire.post(send_of(1))
        await until(lambda: owner.ends == [(1, "not sent")])
        assert created == ["urn:s1", "urn:s2"]
        assert owner.trouble is not None
        assert "several servers" in owner.trouble
        assert "UnknownSequence" in owner.trouble
        wire.post(send_of(1))  # as the engine does after its pause
        await until(lambda: owner.ends == [(1, "not sent")] * 2)
        assert len(created) == 3
        assert owner.trouble is not None, "nothing was acknowledged since"
        forgets[0] = False
        wire.post(send_of(1))
        await until(lambda: owner.ends[2:] == [(1, "acknowledged")])
        await until(lambda: owner.trouble is None)
        wire.end()

    asyncio.run(run())


def test_a_service_that_was_started_again_loses_one_sequence_and_nobody_waits() -> None:
    async def run() -> None:
        owner = Owner()
        created: list[str] = []

        def script(message: SoapMessage) -> SoapMessage | None:
            assert message.rm is not None
            if isinstance(message.content, CreateSequence):
                created.append(f"urn:s{len(created) + 1}")
                return answer(message, content=CreateSequenceResponse(created[-1]))
            if len(created) == 1:
                return answer(
                    message, content=fault_of(FaultCode.UNKNOWN_SEQUENCE, message.rm, "urn:s1")
                )
            return answer(
                message, acknowledgements=(SequenceAcknowledgement(created[-1], ((1, 1),)),)
            )

        wire = owner.wire = ReliableWire(
            KEY, URL, owner, Connection(script), poll_interval=30.0, late_at=lambda: 0
        )  # type: ignore[arg-type]  # a double
        wire.post(send_of(1))
        await until(lambda: owner.ends == [(1, "acknowledged")])
        assert len(created) == 2
        wire.end()

    asyncio.run(run())


def test_an_address_without_reliable_sessions_is_told_at_the_first_answer() -> None:
    async def run() -> None:
        owner = Owner()
        wire = owner.wire = ReliableWire(
            KEY, URL, owner, Connection(answer), poll_interval=30.0, late_at=lambda: 0
        )  # type: ignore[arg-type]  # a double
        wire.post(send_of(1))
        await until(lambda: owner.ends == [(1, "not sent")])
        assert owner.trouble is not None
        assert "no CreateSequenceResponse" in owner.trouble
        wire.end()

    asyncio.run(run())
