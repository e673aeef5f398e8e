"""A walk has several peeks under way at once ([MS-MQRR] 3.1.4.7 MQ_ACTION_PEEK_NEXT over a connection with PFC_CONC_MPX)."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest
from remote_kit import Served, opened

from srmp_spark.client.remote_queue import RemoteMachine, RemoteQueue
from srmp_spark.client.walking import PEEKS_OF_A_ROUND, ROUNDS_AT_ONCE
from srmp_spark.errors import RemoteProtocolError, RemoteReadError
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.ndr.methods import Parameters
from srmp_spark.mqrr.ndr.receive import StartReceiveRequest, StartReceiveResponse, failure
from srmp_spark.mqrr.ndr.stub import ContextHandle
from srmp_spark.mqrr.packets.base_header import BaseHeader
from srmp_spark.mqrr.packets.message_packet import MessagePacket
from srmp_spark.mqrr.packets.message_properties_header import MessagePropertiesHeader
from srmp_spark.mqrr.packets.queue_names import direct_queue
from srmp_spark.mqrr.packets.sections import SectionBuffer, SectionType
from srmp_spark.mqrr.packets.user_header import UserHeader
from srmp_spark.mqrr.status import Status

CLOSE_CURSOR = 5
BOTH_ROUNDS = ROUNDS_AT_ONCE * PEEKS_OF_A_ROUND
GUID = "11223344-5566-7788-99aa-bbccddeeff00"


def message(sequence_id: int, priority: int = 3) -> StartReceiveResponse:
    user = UserHeader(
        source_queue_manager=GUID,
        message_id=sequence_id,
        sent_time=1_790_000_000,
        destination_queue=direct_queue(r"OS:host\q"),
    )
    packet = MessagePacket(
        base=BaseHeader(priority=priority),
        user=user,
        properties=MessagePropertiesHeader(message_body=b"a body"),
    ).encode()
    return StartReceiveResponse(
        1_790_000_000,
        sequence_id,
        (SectionBuffer(SectionType.FULL_PACKET, len(packet), packet),),
        0,
    )


class Machine:
    """Another queue manager, as scripted: ``answers`` is asked for each round of calls, when the first answer of it is."""

    def __init__(
        self,
        answers: Callable[[int], list[StartReceiveResponse]],
        at_once: int = ROUNDS_AT_ONCE * PEEKS_OF_A_ROUND,
    ) -> None:
        self.host = "scripted"
        self.calls_at_once = at_once
        self.rounds: list[int] = []
        self.actions: list[Action] = []
        self.left_alone = 0
        self.closed = False
        self._answers = answers
        self._asked = 0
        self._unanswered: list[int] = []
        self._said: list[StartReceiveResponse] = []

    def checked(self, opnum: int, _asked: Parameters) -> Any:
        self.closed |= opnum == CLOSE_CURSOR
        return type("Cursor", (), {"cursor": 1})

    def begin(
        self, opnum: int, asked: Parameters, *, more: bool
    ) -> Callable[[], StartReceiveResponse]:
        assert opnum == 7
        assert isinstance(asked, StartReceiveRequest)
        self.actions.append(Action(asked.action))
        self._asked += 1
        self.left_alone += 1
        if not more:
            self.rounds.append(self._asked)
            self._unanswered.append(self._asked)
            self._asked = 0
        return self._answer

    def _answer(self) -> StartReceiveResponse:
        self.left_alone -= 1
        if not self._said:
            asked = self._unanswered.pop(0)
            self._said = self._answers(asked)
            assert len(self._said) == asked
        return self._said.pop(0)

    def walk(self, **how: Any) -> list[int]:
        queue = RemoteQueue(cast("RemoteMachine", self), ContextHandle(0, bytes(16)), "a queue")
        return [each.sequence_id for each in queue.walk(**how)]


def in_order(
    count: int, *, end: Status = Status.MQ_ERROR_IO_TIMEOUT
) -> Callable[[int], list[StartReceiveResponse]]:
    """A machine that does one call after the other."""
    waiting = [message(number) for number in range(1, count + 1)]

    def answers(asked: int) -> list[StartReceiveResponse]:
        found, waiting[:] = waiting[:asked], waiting[asked:]
        return found + [failure(end)] * (asked - len(found))

    return answers


@pytest.mark.parametrize(
    "count", [0, 1, 2, PEEKS_OF_A_ROUND, PEEKS_OF_A_ROUND + 1, 3 * PEEKS_OF_A_ROUND + 5]
)
@pytest.mark.parametrize("end", [Status.MQ_ERROR_IO_TIMEOUT, Status.MQ_ERROR_MESSAGE_NOT_FOUND])
def test_all_are_shown_once_and_in_order(count: int, end: Status):
    machine = Machine(in_order(count, end=end))
    assert machine.walk() == list(range(1, count + 1))
    assert machine.actions[0] is Action.PEEK_CURRENT
    assert set(machine.actions[1:]) <= {Action.PEEK_NEXT}
    assert machine.rounds[1:] == [PEEKS_OF_A_ROUND] * len(machine.rounds[1:])
    assert machine.closed
    assert not machine.left_alone


def test_a_machine_that_allows_one_call_at_a_time_gets_one():
    """[MS-RPCE] 3.3.1.5.8: without multiplexing no request before the last one's answer."""
    machine = Machine(in_order(40), at_once=1)
    assert machine.walk() == list(range(1, 41))
    assert set(machine.rounds) == {1}


def test_calls_that_a_machine_did_in_another_order_are_told_in_the_order_of_the_queue():
    """By priority and arrival: the calls of one round may be carried out by several threads of it."""
    shuffled = [
        message(9, priority=3),
        message(2, priority=7),
        message(4, priority=5),
        message(3, priority=5),
    ]
    rounds = iter([[message(1, priority=7)], shuffled])

    def answers(asked: int) -> list[StartReceiveResponse]:
        found = next(rounds, [])
        return found + [failure(Status.MQ_ERROR_IO_TIMEOUT)] * (asked - len(found))

    assert Machine(answers).walk() == [1, 2, 3, 4, 9]


class Threads(Machine):
    """Carries out the calls that are under way in any order; each finds what is next in the queue."""

    def __init__(self, waiting: list[StartReceiveResponse], seed: int) -> None:
        super().__init__(lambda _: [])
        self._waiting, self._random = waiting, random.Random(seed)
        self._under_way: list[int] = []
        self._done: dict[int, StartReceiveResponse] = {}
        self._numbers = itertools.count()
        self.most_under_way = 0

    def begin(
        self, opnum: int, asked: Parameters, *, more: bool
    ) -> Callable[[], StartReceiveResponse]:
        super().begin(opnum, asked, more=more)
        number = next(self._numbers)
        self._under_way.append(number)
        self.most_under_way = max(self.most_under_way, len(self._under_way))
        return partial(self._done_by_now, number)

    def _done_by_now(self, number: int) -> StartReceiveResponse:
        self.left_alone -= 1
        while number not in self._done:
            one = self._under_way.pop(self._random.randrange(len(self._under_way)))
            self._done[one] = (
                self._waiting.pop(0) if self._waiting else failure(Status.MQ_ERROR_IO_TIMEOUT)
            )
        return self._done[number]


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_told_before_what_stands_before_it_though_two_rounds_are_under_way(seed: int):
    count = 40 * seed + 3
    machine = Threads(
        [message(number, priority=7 - number * 8 // (count + 1)) for number in range(1, count + 1)],
        seed,
    )
    assert machine.walk() == list(range(1, count + 1))
    assert not machine.left_alone
    assert machine.most_under_way <= BOTH_ROUNDS
    if count > machine.most_under_way:
        assert machine.most_under_way == BOTH_ROUNDS


def test_a_call_that_waits_at_the_cursor_refuses_the_others_and_they_are_made_again_one_by_one():
    """[MS-MQDMPR] 3.2: a cursor at which a call waits takes no other one; what came meanwhile is behind it."""
    later = in_order(30)
    again = iter([True])

    def answers(asked: int) -> list[StartReceiveResponse]:
        if asked == 1:
            return later(1)
        if not next(again, False):  # the round that was on its way already
            return [failure(Status.MQ_ERROR_ILLEGAL_CURSOR_ACTION)] * asked
        return later(2) + [failure(Status.MQ_ERROR_ILLEGAL_CURSOR_ACTION)] * (asked - 2)

    machine = Machine(answers)
    assert machine.walk() == list(range(1, 31))
    assert machine.rounds[: 1 + ROUNDS_AT_ONCE] == [1] + ROUNDS_AT_ONCE * [PEEKS_OF_A_ROUND]
    assert set(machine.rounds[1 + ROUNDS_AT_ONCE :]) == {1}


def test_a_lone_call_that_is_refused_at_the_cursor_is_an_error():
    with pytest.raises(RemoteReadError, match="MQ_ERROR_ILLEGAL_CURSOR_ACTION"):
        Machine(lambda asked: [failure(Status.MQ_ERROR_ILLEGAL_CURSOR_ACTION)] * asked).walk()


def test_a_refusal_in_a_round_is_an_error_and_no_answer_is_left_behind():
    def answers(asked: int) -> list[StartReceiveResponse]:
        if asked == 1:
            return [message(1)]
        return [
            message(2),
            failure(Status.MQ_ERROR_QUEUE_DELETED),
            *[message(n) for n in range(3, asked + 1)],
        ]

    machine = Machine(answers)
    with pytest.raises(RemoteReadError, match="MQ_ERROR_QUEUE_DELETED"):
        machine.walk()
    assert not machine.left_alone


def test_a_message_that_does_not_hold_together_is_passed_over_or_told():
    broken = StartReceiveResponse(0, 3, (), Status.MQ_OK)

    def machine() -> Machine:
        rounds = iter([[message(1)], [message(2), broken, message(4)]])

        def answers(asked: int) -> list[StartReceiveResponse]:
            found = next(rounds, [])
            return found + [failure(Status.MQ_ERROR_IO_TIMEOUT)] * (asked - len(found))

        return Machine(answers)

    told: list[RemoteProtocolError] = []
    assert machine().walk(unreadable=told.append) == [1, 2, 4]
    assert len(told) == 1
    strict = machine()
    with pytest.raises(RemoteProtocolError, match="without sections"):
        strict.walk()
    assert not strict.left_alone


def test_who_stops_halfway_leaves_the_connection_usable(served: Served):
    name = served.queue()
    served.send(name, *[3] * 40, *[6] * 30)
    with served.machine() as machine, opened(machine, name) as queue:
        assert machine.calls_at_once >= BOTH_ROUNDS
        begun = queue.walk()
        assert next(begun).packet.priority == 6
        begun.close()
        whole = [(each.packet.priority, each.sequence_id) for each in queue.walk()]
    assert whole == sorted(whole, key=lambda each: (-each[0], each[1]))
    assert len(whole) == 70
