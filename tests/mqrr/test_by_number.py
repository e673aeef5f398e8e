"""A walk by lookup identifiers: what each answer means, over connections that break, of servers that number in either way."""

from __future__ import annotations

import random

import pytest

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.by_number import ByNumber, LookupPlace, Tells
from srmp_spark.mqrr.lookup_identifier import rebuilt, sequence_of


class Server:
    """A queue in its order. With ``counts_alone`` it is of the other reading: the high byte of its numbers is 0."""

    def __init__(self, priorities: list[int], *, counts_alone: bool = False) -> None:
        self.counts_alone = counts_alone
        self.there = {
            n: LookupPlace(rebuilt(n, priority=priority), f"m{n}")
            for n, priority in enumerate(priorities, 1)
        }

    def by_number(self) -> dict[int, LookupPlace]:
        return {
            sequence_of(each.lookup_id) if self.counts_alone else each.lookup_id: each
            for each in self.there.values()
        }

    def answer(self, call: tuple[Action, int]) -> LookupPlace | None:
        action, lookup_id = call
        known = self.by_number()
        if action is Action.PEEK_CURRENT:
            return min(self.there.values(), default=None)
        if action is Action.LOOKUP_PEEK_CURRENT or lookup_id not in known:
            return known.get(lookup_id)
        behind = [number for number in known if number > lookup_id]
        return known[min(behind)] if behind else None


def walk(
    server: Server, by_number: ByNumber, told: list[LookupPlace], calls: int = 10_000
) -> Tells:
    """One connection that carries so many calls."""
    by_number.connected()
    for _ in range(calls):
        found = server.answer(by_number.call())
        tells = by_number.nothing() if found is None else by_number.found(found)
        if tells is Tells.MESSAGE:
            told.append(found)
        elif tells is not Tells.AGAIN:
            return tells
    return Tells.AGAIN


@pytest.mark.parametrize("calls", [1, 2, 3, 7])
def test_all_are_told_in_order_however_few_calls_a_connection_carries(calls: int) -> None:
    rng = random.Random(calls)
    server, by_number, told = Server([rng.randrange(8) for _ in range(60)]), ByNumber(), []
    for _ in range(200):
        if walk(server, by_number, told, calls) is Tells.OVER:
            break
    else:
        assert calls == 1, "that the end is the end takes a second call"
    assert told == sorted(server.there.values())


def test_the_other_reading_is_noticed_before_anything_is_passed_over() -> None:
    """Its numbers go by arrival, its order by priority: what stands behind a number is not what comes next."""
    for priorities in ([7, 3, 7, 3], [3, 7, 3], [3, 3], [7, 7]):
        server, by_number, told = Server(priorities, counts_alone=True), ByNumber(), []
        assert walk(server, by_number, told) is Tells.NOWHERE, priorities
        in_order = sorted(server.there.values())
        assert told == in_order[: len(told)], priorities


def test_what_was_received_meanwhile_is_stepped_back_over() -> None:
    server, by_number, told = Server([3] * 20), ByNumber(), []
    walk(server, by_number, told, 10)
    for number in (8, 9, 10):
        del server.there[number]
    assert walk(server, by_number, told) is Tells.OVER
    assert [sequence_of(each.lookup_id) for each in told] == [*range(1, 21)]
    for number in range(2, 21):
        server.there.pop(number, None)
    assert walk(server, by_number, told) is Tells.NOWHERE, (
        "none of those that are remembered is there"
    )


def test_one_that_is_locked_is_there() -> None:
    by_number = ByNumber()
    by_number.connected()
    assert by_number.found(LookupPlace(rebuilt(1, priority=3), "a")) is Tells.MESSAGE
    assert by_number.nothing() is Tells.AGAIN
    assert by_number.nothing(held=True) is Tells.OVER


def test_a_server_that_goes_in_circles_is_told() -> None:
    by_number = ByNumber()
    by_number.connected()
    place = LookupPlace(rebuilt(5, priority=3), "a")
    assert by_number.found(place) is Tells.MESSAGE
    for wrong in (place, LookupPlace(rebuilt(4, priority=3), "b")):
        with pytest.raises(RemoteProtocolError, match="does not go on"):
            by_number.found(wrong)


def test_a_server_that_takes_back_what_it_showed_ends_the_walk() -> None:
    """It shows the next one and then knows nothing of it, again and again: no connection is walked without end."""
    by_number, steps = ByNumber(), 0
    by_number.connected()
    assert by_number.found(LookupPlace(rebuilt(1, priority=3), "1")) is Tells.MESSAGE
    while True:
        steps += 1
        assert steps < 100
        assert by_number.found(LookupPlace(rebuilt(2, priority=3), "2")) is Tells.MESSAGE
        assert by_number.nothing() is Tells.AGAIN
        if by_number.nothing() is Tells.NOWHERE:
            break
