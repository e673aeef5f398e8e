"""Connections of remote readers in the main process: which answers count, and what a gateway's death ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import pytest

from srmp_spark.mqrr.rpc.server_events import CallReceived
from srmp_spark.mqrr.status import Status
from srmp_spark.queue_manager.remote_read.crossing import (
    AnswersTaken,
    AssociationEnded,
    Called,
    CallWasCancelled,
    CallWasOrphaned,
    ConnectionEnded,
    Responded,
    RespondedWithFault,
)
from srmp_spark.queue_manager.remote_read.readers import (
    ANSWERS_MAX,
    ANSWERS_OF_ONE_MAX,
    Readers,
    ServedReader,
)


class Way:
    """The way to a gateway."""

    def __init__(self) -> None:
        self.sent: list[Responded | RespondedWithFault] = []
        self.is_congested = False
        self.is_open = True

    def send(self, message: Responded | RespondedWithFault) -> bool:
        if self.is_open:
            self.sent.append(message)
        return self.is_open


class Service:
    """What is called, written down."""

    def __init__(self) -> None:
        self.connections: dict[Hashable, Any] = {}
        self.events: list[tuple[Any, ...]] = []
        self.received: list[CallReceived] = []
        self.rooms = 0

    def connected(self, key: Hashable, answers: Any) -> None:
        self.connections[key] = answers

    def disconnected(self, key: Hashable, calls: Iterable[int]) -> None:
        del self.connections[key]
        self.events.append(("disconnected", tuple(calls)))

    def has_room(self) -> None:
        self.rooms += 1

    def call(self, key: Hashable, received: CallReceived) -> None:
        if received.opnum == 99:
            raise ZeroDivisionError
        self.received.append(received)

    def cancelled(self, key: Hashable, call_id: int) -> None:
        self.events.append(("cancelled", call_id))

    def orphaned(self, key: Hashable, call_id: int) -> None:
        self.events.append(("orphaned", call_id))

    def run_down(self, descriptors: Iterable[Any]) -> None:
        self.events.append(("run down", tuple(descriptors)))


class Scene:
    def __init__(self) -> None:
        self.service = Service()
        self.way = Way()
        self.readers = Readers(self.service)  # type: ignore[arg-type]

    def call(
        self,
        connection: int,
        call_id: int,
        *,
        association: int = 100,
        opnum: int = 7,
        taken: int = 0,
    ) -> ServedReader:
        asked = Called(
            connection, "192.0.2.1", association, call_id, False, opnum, b"stub", None, 1, taken
        )
        self.readers.called(asked, self.way)
        return self.readers._readers[connection]


def played(dialogue: Callable[[Scene], Any]) -> None:
    async def main() -> None:
        found = dialogue(Scene())
        if found is not None:
            await found

    asyncio.run(main())


def test_an_answer_counts_until_its_reader_has_taken_it() -> None:
    def dialogue(scene: Scene) -> None:
        reader = scene.call(1, 1)
        reader.respond(1, bytes(ANSWERS_OF_ONE_MAX))
        assert not reader.has_room()
        scene.readers.answers_taken(AnswersTaken(1, ANSWERS_OF_ONE_MAX - 1))
        assert (reader.untaken, scene.readers.untaken, scene.service.rooms) == (1, 1, 1)
        assert reader.has_room()
        scene.readers.answers_taken(AnswersTaken(1, 5))  # what was reported before is no news
        assert (reader.untaken, scene.service.rooms) == (1, 1)
        scene.call(1, 2, taken=ANSWERS_OF_ONE_MAX)
        assert (reader.untaken, scene.readers.untaken, scene.service.rooms) == (0, 0, 2)

    played(dialogue)


def test_all_readers_together_have_a_limit_and_one_that_has_taken_all_is_served_beyond_it() -> None:
    def dialogue(scene: Scene) -> None:
        for connection in range(1, ANSWERS_MAX // (ANSWERS_OF_ONE_MAX - 1) + 2):
            scene.call(connection, 1).respond(1, bytes(ANSWERS_OF_ONE_MAX - 1))
        assert scene.readers.untaken >= ANSWERS_MAX
        assert not scene.call(1, 2).has_room()
        assert scene.call(5_000, 1).has_room()
        scene.readers.connection_ended(ConnectionEnded(2))
        assert scene.readers.untaken < ANSWERS_MAX
        assert scene.call(1, 3).has_room()

    played(dialogue)


def test_nothing_is_read_for_anybody_while_the_channel_is_congested_or_gone() -> None:
    def dialogue(scene: Scene) -> None:
        reader = scene.call(1, 1)
        scene.way.is_congested = True
        assert not reader.has_room()
        scene.way.is_congested = False
        assert reader.has_room()
        scene.way.is_open = False
        assert not reader.has_room()
        reader.respond(1, b"lost")
        assert reader.untaken == 0, "it waits nowhere"

    played(dialogue)


def test_a_call_is_answered_once_and_not_at_all_when_nobody_waits() -> None:
    def dialogue(scene: Scene) -> None:
        reader = scene.call(1, 1)
        association = scene.service.received[0].association
        association.open("a queue")
        reader.respond(1, b"answer")
        reader.respond(1, b"again")
        assert scene.way.sent == [Responded(1, 1, b"answer", 1)]
        scene.call(1, 2)
        scene.readers.cancelled(CallWasCancelled(1, 1))  # its answer has crossed it
        scene.readers.cancelled(CallWasCancelled(1, 2))
        scene.readers.orphaned(CallWasOrphaned(1, 2))
        scene.readers.orphaned(CallWasOrphaned(1, 2))
        assert scene.service.events == [("cancelled", 2), ("orphaned", 2)]
        reader.respond(2, b"nobody waits")
        reader.fail(2, 5)
        assert len(scene.way.sent) == 1

    played(dialogue)


def test_a_bug_of_ours_in_one_call_is_a_fault_of_that_call() -> None:
    def dialogue(scene: Scene) -> None:
        with pytest.raises(ZeroDivisionError):
            scene.call(1, 1, opnum=99)
        assert scene.way.sent == [RespondedWithFault(1, 1, Status.NCA_S_FAULT_UNSPEC)]
        scene.call(1, 2).respond(2, b"")
        assert scene.way.sent[1:] == [Responded(1, 2, b"", 0)]

    played(dialogue)


def test_handles_outlive_their_connection_and_are_run_down_with_the_association() -> None:
    def dialogue(scene: Scene) -> None:
        scene.call(1, 1)
        scene.call(2, 1)
        association = scene.service.received[0].association
        assert scene.service.received[1].association is association
        association.open("a queue")
        scene.readers.connection_ended(ConnectionEnded(1))
        assert scene.service.events == [("disconnected", (1,))]
        assert association.connections > 0
        scene.readers.connection_ended(ConnectionEnded(2))
        scene.readers.association_ended(AssociationEnded(100))
        assert scene.service.events[1:] == [("disconnected", (1,)), ("run down", ("a queue",))]
        assert association.connections == 0, "an open in progress is given up"
        scene.readers.association_ended(AssociationEnded(100))
        assert len(scene.service.events) == 3

    played(dialogue)


def test_a_gateway_s_death_ends_every_connection_and_then_every_association() -> None:
    async def dialogue(scene: Scene) -> None:
        old = [scene.call(connection, 1, association=connection) for connection in range(1, 2_001)]
        for received in scene.service.received:
            received.association.open(f"of {received.association.id}")
        old[0].respond(1, b"answer")
        scene.way.is_open = False
        scene.readers.on_gateway_lost()
        scene.way = Way()
        assert scene.call(1, 1, association=1) is not old[0], (
            "numbers of the next gateway are its own"
        )
        for _ in range(10_000):
            if len(scene.service.events) == 4_000:
                break
            await asyncio.sleep(0)
        assert [each[0] for each in scene.service.events] == ["disconnected"] * 2_000 + [
            "run down"
        ] * 2_000
        assert scene.service.events[0] == ("disconnected", ()), "it was answered"
        assert scene.service.events[1] == ("disconnected", (1,))
        assert scene.service.events[2_000] == ("run down", ("of 1",))
        assert (len(scene.service.connections), scene.readers.untaken, len(scene.readers)) == (
            1,
            0,
            1,
        )
        old[1].respond(1, b"too late")
        assert scene.way.sent == []

    played(dialogue)


def test_a_close_ends_at_once_what_a_death_has_left_over() -> None:
    def dialogue(scene: Scene) -> None:
        for connection in range(1, 3_001):
            scene.call(connection, 1, association=connection)
        scene.readers.on_gateway_lost()
        scene.readers.close()
        assert len(scene.service.events) == 6_000
        assert scene.service.connections == {}

    played(dialogue)
