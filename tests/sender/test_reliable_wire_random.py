"""The wire of a reliable session under whatever happens: operators, kills, lost answers, a service that forgets.

A model of the engine hands messages out and takes them back, a model of a service counts what it delivers, and time is the
loop's own. No message may be lost; none may be delivered twice but by an operator's word about one that was in doubt.
"""

from __future__ import annotations

import asyncio
import random
import selectors
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from session_kit import GUID, KEY, URL, answer, answer_to_the_end, send_of

from srmp_spark.queue_manager.posting.http_answer import PeerAnswer
from srmp_spark.queue_manager.sender.reliable import reliable_wire, session_source
from srmp_spark.queue_manager.sender.reliable.reliable_wire import ReliableWire
from srmp_spark.queue_manager.sender.reliable.session_book import SessionBook
from srmp_spark.queue_manager.sender.reliable.soap_connection import NoAnswerError, SoapAnswer
from srmp_spark.srmp.sending.outgoing_effects import QueueKey, Send
from srmp_spark.store.outbox.tables.sessions import SessionRow, runs_of, serials_of
from srmp_spark.wsrm.codec.elements import (
    CloseSequence,
    CreateSequence,
    CreateSequenceResponse,
    SequenceAcknowledgement,
    SoapMessage,
    TerminateSequence,
)
from srmp_spark.wsrm.codec.encoder import encode
from srmp_spark.wsrm.codec.faults import FaultCode, fault_of

COUNT = 12
WINDOW = 4
TROUBLES = 25
"""After so many things that go wrong nothing more does, and all must be delivered."""
SEEDS = 300


class Loop(asyncio.SelectorEventLoop):
    """Where nothing is to be done, time passes at once."""

    def __init__(self) -> None:
        self.now = 1_000.0
        loop = self

        class Selector(selectors.SelectSelector):
            def select(self, timeout: float | None = None) -> list[Any]:
                assert timeout is not None, "nothing will ever happen again"
                loop.now += max(timeout, 1e-6)  # else a wait below a float's step would never end
                return super().select(0)

        super().__init__(Selector())

    def time(self) -> float:
        return self.now


class Clock:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        return self._loop.now

    def time_ns(self) -> int:
        return int(self._loop.now * 1e9)


class Service:
    """Once and in the order of each sequence, as WS-ReliableMessaging says; forgets everything now and then."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._made: dict[str, str] = {}
        self._sequences: dict[str, dict[int, str]] = {}
        self._delivered_to: dict[str, int] = {}
        self.delivered: list[str] = []

    def forget(self) -> None:
        self._made.clear()
        self._sequences.clear()

    async def post(self, message: SoapMessage) -> SoapAnswer:
        world = self._world
        await asyncio.sleep(world.dice.choice((0.0, 0.01, 0.3)))
        trouble = world.trouble(0.25)
        if trouble and world.dice.random() < 0.2:
            raise NoAnswerError("refused", left=False)
        if trouble and world.dice.random() < 0.3:
            raise NoAnswerError("cut off", left=True)
        if trouble and world.dice.random() < 0.2:
            return SoapAnswer(503, "busy", b"", False)
        if trouble and world.dice.random() < 0.2:
            self.forget()
        said = self._do(message)
        await asyncio.sleep(world.dice.choice((0.0, 0.01, 0.3)))
        if trouble and world.dice.random() < 0.5:
            raise NoAnswerError("the answer is lost", left=True)
        return SoapAnswer(200, "", encode(said), False)

    def _do(self, message: SoapMessage) -> SoapMessage:
        assert message.rm is not None
        content = message.content
        if isinstance(content, CreateSequence):
            name = self._made.setdefault(
                message.message_id, f"urn:s{self._world.dice.getrandbits(60)}"
            )
            self._sequences.setdefault(name, {})
            return answer(message, content=CreateSequenceResponse(name))
        ended = isinstance(content, CloseSequence | TerminateSequence)
        name = (
            content.identifier
            if ended
            else (message.sequence or message.ack_requested[0]).identifier
        )
        has = self._sequences.get(name)
        if has is None:
            return answer(message, content=fault_of(FaultCode.UNKNOWN_SEQUENCE, message.rm, name))
        if message.sequence is not None and message.sequence.number not in has:
            has[message.sequence.number] = message.message_id
            while (ready := has.get(self._delivered_to.get(name, 0) + 1)) is not None:
                self._delivered_to[name] = self._delivered_to.get(name, 0) + 1
                self.delivered.append(ready)
        last = self._delivered_to.get(
            name, 0
        )  # what it holds behind a gap, it does not acknowledge: it may forget that
        if isinstance(content, TerminateSequence):
            del self._sequences[name]
        if (ends := answer_to_the_end(message)) is not None:
            return ends
        room = self._world.dice.choice((0, 1, 2, 8)) if self._world.is_bad else 8
        return answer(
            message,
            acknowledgements=(
                SequenceAcknowledgement(name, ((1, last),) if last else (), buffer_remaining=room),
            ),
        )

    def close(self) -> None:
        """Nothing is open."""


class World:
    """The engine's part: what waits, what was handed out, what is stored."""

    def __init__(self, seed: int, loop: Loop) -> None:
        self.loop = loop
        self.dice = random.Random(seed)
        self.left = TROUBLES
        self.service = Service(self)
        self.waiting = list(range(1, COUNT + 1))
        self.under_way: dict[int, Send] = {}
        self.finished: set[int] = set()
        self.stored_finished: set[int] = set()
        self.stored_row: SessionRow | None = None
        self.is_held = self.stored_held = False
        self.allowed: set[int] = set()
        """Those that an operator sent again although they were in doubt."""
        self._writing = False
        self._wanted = False
        self._life = 0
        self.wire = self._new_wire(None)

    @property
    def is_bad(self) -> bool:
        return self.left > 0

    def trouble(self, chance: float) -> bool:
        if self.left <= 0 or self.dice.random() >= chance:
            return False
        self.left -= 1
        return True

    def _new_wire(self, row: SessionRow | None) -> ReliableWire:
        return ReliableWire(
            KEY, URL, self, self.service, poll_interval=1.0, late_at=lambda: 0, row=row
        )  # type: ignore[arg-type]  # doubles

    # --- what the wire tells --------------------------------------------------------------------------------------------------

    def _ended(self, send: Send) -> int:
        assert self.under_way.pop(send.serial, None) is send, (
            f"the end of {send.serial} is told twice"
        )
        return send.serial

    def on_answer(self, send: Send, _: PeerAnswer) -> None:
        self.finished.add(self._ended(send))
        self.write()

    def on_failure(self, send: Send, why: str, left: bool) -> None:
        self.waiting.append(self._ended(send))
        self.waiting.sort()

    def on_expired(self, send: Send) -> None:
        raise AssertionError("none has a time")

    def on_left(self, send: Send) -> None:
        assert send.serial in self.under_way

    def on_trouble(self, key: QueueKey, why: str | None) -> None:
        """People read it."""

    def on_lost(self, key: QueueKey, why: str) -> None:
        self.is_held = True
        self.wire.close("held")
        self.write()

    def on_change(self, key: QueueKey) -> None:
        self.loop.call_soon(self.write)

    # --- the store ------------------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """One transaction at a time: the engine's part is taken before the session's."""
        if self._writing:
            self._wanted = True
            return
        self._writing, self._wanted = True, False
        finished, is_held = set(self.finished), self.is_held
        row = self.wire.take_change()
        self.loop.call_later(
            self.dice.choice((0.001, 0.05)), self._written, self._life, finished, is_held, row
        )

    def _written(
        self, life: int, finished: set[int], is_held: bool, row: SessionRow | None
    ) -> None:
        if life != self._life:
            return  # killed before its sync
        self.stored_finished, self.stored_held, self.stored_row = finished, is_held, row
        self._writing = False
        self.wire.stored()
        if self._wanted:
            self.write()

    # --- what happens ---------------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        while self.waiting and not self.is_held and len(self.under_way) < WINDOW:
            serial = self.waiting.pop(0)
            self.under_way[serial] = send_of(serial)
            self.wire.post(self.under_way[serial])

    def kill(self) -> None:
        self._life += 1
        self.wire.end()
        self.under_way.clear()
        self.finished, self.is_held, self._writing = (
            set(self.stored_finished),
            self.stored_held,
            False,
        )
        self.waiting = [serial for serial in range(1, COUNT + 1) if serial not in self.finished]
        row = self.stored_row
        if row is not None:  # as the outbox reads it
            left = {
                number: serial
                for number, serial in serials_of(row.numbers).items()
                if serial not in self.finished
            }
            row = row._replace(numbers=runs_of(left))
        self.wire = self._new_wire(row)

    def pause(self) -> None:
        self.is_held = True
        self.wire.close("paused")
        self.write()

    def go_on(self) -> None:
        """An operator lets it go on; where a sequence is lost, what is in doubt goes again by that word."""
        if self.wire._lost_because:
            self.allowed |= {
                serial for number, serial in self.wire._book.saved().items() if number > 0
            }
        self.is_held = False
        self.wire.hurry()
        self.write()

    async def live(self) -> None:
        for turn in range(4_000):
            self.pump()
            if len(self.finished) == COUNT and not self.is_bad:
                break
            await asyncio.sleep(self.dice.choice((0.001, 0.02, 0.4)))
            if self.trouble(0.03):
                self.kill()
            if not self.is_held and self.trouble(0.05):
                self.pause()
            elif self.is_held and (self.dice.random() < 0.1 or not self.is_bad):
                if self.dice.random() < 0.5:
                    await asyncio.sleep(30)  # the sequence may end meanwhile
                self.go_on()
            if self.is_bad and self.dice.random() < 0.02:
                await asyncio.sleep(30)
            if turn > 500:
                self.left = 0
        self.wire.end()


def violation(seed: int, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """What went wrong under this seed."""
    loop = Loop()
    clock = Clock(loop)
    monkeypatch.setattr(reliable_wire, "time", clock)
    monkeypatch.setattr(session_source, "time", clock)

    async def live() -> World:
        world = World(seed, loop)
        await world.live()
        return world

    asyncio.set_event_loop(loop)
    try:
        world = loop.run_until_complete(live())
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    everything = set(range(1, COUNT + 1))
    delivered = [SERIALS[each] for each in world.service.delivered]
    doubled = {serial for serial in delivered if delivered.count(serial) > 1} - world.allowed
    told = f"seed {seed}, {delivered}, {world.wire!r}: "
    if everything - set(delivered):
        return f"{told}never delivered: {everything - set(delivered)}"
    if doubled:
        return f"{told}delivered twice: {doubled}"
    return (
        None
        if world.finished == everything
        else f"{told}still waiting: {everything - world.finished}"
    )


@pytest.mark.parametrize("part", range(3))
def test_nothing_is_lost_and_nothing_doubled(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(part, SEEDS, 3):
        assert violation(seed, monkeypatch) is None


@pytest.mark.parametrize("name", ["take", "doubtful", "saved"])
def test_what_is_broken_on_purpose_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is acknowledged on hold is forgotten; nothing is ever in doubt; what was taken is not saved."""
    broken: dict[str, Callable[..., Any]] = {
        "take": lambda self, number: False,
        "doubtful": lambda self: [],
        "saved": lambda self: dict(self.serials),
    }
    monkeypatch.setattr(SessionBook, name, broken[name])
    assert any(violation(seed, monkeypatch) for seed in range(10 * SEEDS))


SERIALS = {
    f"urn:uuid:{uuid.uuid5(uuid.UUID(GUID), str(send_of(serial).message.uniquifier))}": serial
    for serial in range(1, COUNT + 1)
}
"""By MessageID."""
