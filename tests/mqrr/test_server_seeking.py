"""Lookup identifiers and cursors ([MS-MQDMPR] 3.1.7.3.2, 3.1.7.3.3, 3.2), and the traps of them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from server_kit import Box, Reader, World, lookup_id

from srmp_spark.mqrr.actions import LOOKUPS, RECEIVES, Action
from srmp_spark.mqrr.lookup_identifier import rebuilt
from srmp_spark.mqrr.ndr.methods import RR_NACK, HandleNumberRequest
from srmp_spark.mqrr.server.effects import ReadMessage
from srmp_spark.mqrr.status import Status

A = Action
NOT_FOUND = Status.MQ_ERROR_MESSAGE_NOT_FOUND


@pytest.fixture
def world() -> World:
    """Five messages; in the order of MSMQ: 2 (priority 7), 1, 3 and 5 (priority 3), 4 (priority 0)."""
    world = World()
    world.came(3, 7, 3, 0, 3)
    return world


# --- lookup identifiers -----------------------------------------------------------------------------------------------------


def test_what_a_reader_rebuilds_from_an_answer_finds_the_message_again(world):
    """T3, T20: pSequenceId has the low seven bytes, also of a peek."""
    one = world.reader().peeking()
    sequence = one.get(A.PEEK_CURRENT)
    assert one.get(A.LOOKUP_PEEK_CURRENT, lookup_id=rebuilt(sequence, priority=7)) == 2
    assert one.get(A.LOOKUP_PEEK_CURRENT, lookup_id=sequence) == 2, (
        "of priority 7 the high byte is 0"
    )
    assert one.get(A.LOOKUP_PEEK_CURRENT, lookup_id=rebuilt(sequence, priority=3)) == NOT_FOUND


def test_next_and_previous_go_by_priority_and_then_by_arrival(world):
    one = world.reader().peeking()
    order = [(2, 7), (1, 3), (3, 3), (5, 3), (4, 0)]
    for (sequence, priority), (following, _) in pairwise(order):
        assert one.get(A.LOOKUP_PEEK_NEXT, lookup_id=lookup_id(sequence, priority)) == following
    for (before, _), (sequence, priority) in pairwise(order):
        assert one.get(A.LOOKUP_PEEK_PREV, lookup_id=lookup_id(sequence, priority)) == before


def test_the_end_of_the_queue_is_not_found_in_both_directions(world):
    """T16: the text returns no message with MQ_OK, and would search before the head."""
    one = world.reader().peeking()
    assert one.get(A.LOOKUP_PEEK_NEXT, lookup_id=lookup_id(4, 0)) == NOT_FOUND
    assert one.get(A.LOOKUP_PEEK_PREV, lookup_id=lookup_id(2, 7)) == NOT_FOUND


def test_an_anchor_that_is_gone_is_not_found(world):
    """T15: who walks a queue must look at the anchor, and begin anew when it is gone."""
    one = world.reader().opened()
    assert one.receive() == 2
    assert one.get(A.LOOKUP_PEEK_NEXT, lookup_id=lookup_id(2, 7)) == NOT_FOUND
    assert one.get(A.LOOKUP_PEEK_CURRENT, lookup_id=lookup_id(2, 7)) == NOT_FOUND


def test_a_locked_anchor_is_an_anchor(world):
    one, two = world.reader("one").opened(), world.reader("two").peeking()
    assert one.get() == 2
    assert two.get(A.LOOKUP_PEEK_NEXT, lookup_id=lookup_id(2, 7)) == 1


def test_only_a_peek_tells_locked_from_gone(world):
    """reference: believing NOT_FOUND of a receive doubles messages."""
    one, two = world.reader("one").opened(), world.reader("two").opened()
    assert one.get() == 2
    assert two.get(A.LOOKUP_RECEIVE_CURRENT, lookup_id=lookup_id(2, 7)) == NOT_FOUND
    assert (
        two.get(A.LOOKUP_PEEK_CURRENT, lookup_id=lookup_id(2, 7))
        == Status.MQ_ERROR_TRANSACTION_USAGE
    )
    assert one.end() == Status.MQ_OK
    assert two.get(A.LOOKUP_PEEK_CURRENT, lookup_id=lookup_id(2, 7)) == NOT_FOUND


def test_next_passes_over_what_is_locked(world):
    one, two = world.reader("one").opened(), world.reader("two").peeking()
    assert one.get(A.LOOKUP_RECEIVE_CURRENT, lookup_id=lookup_id(1)) == 1
    assert two.get(A.LOOKUP_PEEK_NEXT, lookup_id=lookup_id(2, 7)) == 3


def test_a_message_that_comes_back_has_its_old_place(world):
    """T13: "greater than the last one" would miss it."""
    one, two = world.reader("one").opened(), world.reader("two").peeking()
    assert one.get() == 2
    assert two.get(A.PEEK_CURRENT) == 1
    assert one.end(ack=RR_NACK) == Status.MQ_OK
    assert two.get(A.LOOKUP_PEEK_NEXT, lookup_id=lookup_id(1)) == 3
    assert two.get(A.PEEK_CURRENT) == 2


def test_receive_prev_takes_a_lookup_identifier(world):
    """T21: its row in the table of 3.1.4.7 demands 0."""
    one = world.reader().opened()
    assert one.get(A.LOOKUP_RECEIVE_PREV) == Status.MQ_ERROR_INVALID_PARAMETER
    assert one.get(A.LOOKUP_RECEIVE_PREV, lookup_id=lookup_id(1)) == 2


@pytest.mark.parametrize("action", sorted(LOOKUPS))
def test_a_lookup_has_no_cursor_and_does_not_wait(world, action):
    one = world.reader().opened()
    cursor = one.cursor()
    assert (
        one.get(action, lookup_id=lookup_id(1), cursor=cursor) == Status.MQ_ERROR_INVALID_PARAMETER
    )
    assert (
        one.get(action, lookup_id=lookup_id(1), timeout_ms=1) == Status.MQ_ERROR_INVALID_PARAMETER
    )
    assert one.get(action) == Status.MQ_ERROR_INVALID_PARAMETER


@pytest.mark.parametrize("action", sorted(set(Action) - LOOKUPS))
def test_all_other_actions_have_no_lookup_identifier(world, action):
    assert (
        world.reader().opened().get(action, lookup_id=lookup_id(1))
        == Status.MQ_ERROR_INVALID_PARAMETER
    )


@pytest.mark.parametrize("action", [1, 0x80000002, 0x40000013, 0x40000020 | 0x80000000, 0xFFFFFFFF])
def test_an_unknown_action_is_an_invalid_parameter(world, action):
    assert world.reader().opened().get(action) == Status.MQ_ERROR_INVALID_PARAMETER


# --- cursors ----------------------------------------------------------------------------------------------------------------


def test_a_cursor_walks_the_queue(world):
    one = world.reader().peeking()
    cursor = one.cursor()
    seen = [one.get(A.PEEK_CURRENT, cursor=cursor)]
    while isinstance(found := one.get(A.PEEK_NEXT, cursor=cursor), int) and not isinstance(
        found, Status
    ):
        seen.append(found)
    assert seen == [2, 1, 3, 5, 4]
    assert found == Status.MQ_ERROR_IO_TIMEOUT
    assert one.get(A.PEEK_CURRENT, cursor=cursor) == 4, (
        "the end of the queue leaves the cursor where it was"
    )


def test_peek_next_of_a_new_cursor_is_illegal_and_without_one_invalid(world):
    one = world.reader().peeking()
    assert one.get(A.PEEK_NEXT, cursor=one.cursor()) == Status.MQ_ERROR_ILLEGAL_CURSOR_ACTION
    assert one.get(A.PEEK_NEXT) == Status.MQ_ERROR_INVALID_PARAMETER


def test_an_unknown_cursor_is_the_ntstatus(world):
    assert world.reader().peeking().get(A.PEEK_CURRENT, cursor=99) == Status.STATUS_INVALID_HANDLE


def test_a_closed_cursor_is_none(world):
    one = world.reader().peeking()
    cursor, other = one.cursor(), one.cursor()
    close = HandleNumberRequest(one.handle, cursor)
    assert one.ask(5, close).status == Status.MQ_OK
    assert one.ask(5, close).status == Status.MQ_ERROR_INVALID_HANDLE
    assert one.get(A.PEEK_CURRENT, cursor=cursor) == Status.STATUS_INVALID_HANDLE
    assert one.get(A.PEEK_CURRENT, cursor=other) == 2
    third = one.cursor()
    assert third not in (cursor, other)
    assert one.get(A.PEEK_NEXT, cursor=other) == 1
    assert one.get(A.PEEK_CURRENT, cursor=third) == 2


def test_a_cursor_of_another_handle_is_unknown(world):
    one, two = world.reader("one").peeking(), world.reader("two").peeking()
    cursor = one.cursor()
    assert two.get(A.PEEK_CURRENT, cursor=cursor) == Status.STATUS_INVALID_HANDLE
    close = HandleNumberRequest(two.handle, cursor)
    assert two.ask(5, close).status == Status.MQ_ERROR_INVALID_HANDLE
    assert one.get(A.PEEK_CURRENT, cursor=cursor) == 2, "it is open as before"


def test_a_message_that_somebody_took_is_already_received(world):
    one, two = world.reader("one").opened(), world.reader("two").opened()
    cursor = one.cursor()
    assert one.get(A.PEEK_CURRENT, cursor=cursor) == 2
    assert two.receive() == 2
    assert one.get(A.PEEK_CURRENT, cursor=cursor) == Status.MQ_ERROR_MESSAGE_ALREADY_RECEIVED
    assert one.get(A.RECEIVE, cursor=cursor) == Status.MQ_ERROR_MESSAGE_ALREADY_RECEIVED
    assert one.get(A.PEEK_NEXT, cursor=cursor) == 1, "it goes on behind the place where it stood"


def test_a_receive_at_a_cursor_takes_what_it_showed_and_stands_before_the_next(world):
    one = world.reader().opened()
    cursor = one.cursor()
    one.get(A.PEEK_CURRENT, cursor=cursor)
    assert one.get(A.PEEK_NEXT, cursor=cursor) == 1
    assert one.receive(cursor=cursor) == 1
    assert one.get(A.PEEK_NEXT, cursor=cursor) == Status.MQ_ERROR_ILLEGAL_CURSOR_ACTION
    assert one.get(A.PEEK_CURRENT, cursor=cursor) == 3
    assert one.get(A.RECEIVE) == 2, "what it passed by is still there"


def test_at_the_end_a_receive_at_a_cursor_is_not_found_and_without_one_a_time_out():
    """T17: a reader takes both for "empty"."""
    one = World().reader().opened()
    assert one.get(A.RECEIVE, cursor=one.cursor()) == NOT_FOUND
    assert one.get(A.PEEK_CURRENT, cursor=one.cursor()) == Status.MQ_ERROR_IO_TIMEOUT
    assert one.get(A.RECEIVE) == Status.MQ_ERROR_IO_TIMEOUT


def test_a_waiting_cursor_gets_what_comes_wherever_it_stands(world):
    """A message of higher priority stands behind its back; it would never see it."""
    one = world.reader().peeking()
    cursor = one.cursor()
    while not isinstance(
        one.get(A.PEEK_NEXT if world.answers and cursor < 0 else A.PEEK_CURRENT, cursor=cursor),
        Status,
    ):
        if isinstance(one.get(A.PEEK_NEXT, cursor=cursor), Status):
            break
    call = one.start(A.PEEK_NEXT, cursor=cursor, timeout_ms=60_000)
    assert one.shown(call) is None
    world.came(7)
    assert one.shown(call) == (6, "body 6")
    assert one.get(A.PEEK_NEXT, cursor=cursor) == 1, "and goes on from there"


def test_a_receive_that_waits_at_a_cursor_gets_what_comes_and_nothing_that_it_passed(world):
    one = world.reader().opened()
    cursor = one.cursor()
    seen = [one.get(A.PEEK_CURRENT, cursor=cursor)]
    seen += [one.get(A.PEEK_NEXT, cursor=cursor) for _ in range(4)]
    assert seen == [2, 1, 3, 5, 4]
    assert one.receive(cursor=cursor) == 4
    call = one.start(A.RECEIVE, cursor=cursor, timeout_ms=60_000)
    assert one.shown(call) is None
    world.came(0)
    assert one.shown(call) == (6, "body 6")
    assert one.end() == Status.MQ_OK
    assert list(one.all()) == [2, 1, 3, 5]


@pytest.mark.parametrize("action", [A.PEEK_CURRENT, A.RECEIVE])
def test_a_wait_that_ended_leaves_the_cursor_as_it_was(action):
    """Against 3.2.7.6 as printed, after which no message would ever be behind it."""
    world = World()
    one = world.reader().opened()
    cursor = one.cursor()
    call = one.start(action, cursor=cursor, timeout_ms=1_000)
    world.wait(2)
    assert one.shown(call) == Status.MQ_ERROR_IO_TIMEOUT
    world.came(3)
    assert one.get(action, cursor=cursor) == 1


def test_a_cursor_at_which_a_call_waits_serves_no_other():
    world = World()
    one = world.reader().opened()
    cursor = one.cursor()
    call = one.start(A.PEEK_CURRENT, cursor=cursor, timeout_ms=60_000, request=8)
    assert one.get(A.PEEK_CURRENT, cursor=cursor) == Status.MQ_ERROR_ILLEGAL_CURSOR_ACTION
    assert one.ask(5, HandleNumberRequest(one.handle, cursor)).status == Status.MQ_OK
    assert one.shown(call) == Status.MQ_ERROR_OPERATION_CANCELLED, "closing it ends the wait"
    assert (
        one.ask(5, HandleNumberRequest(one.handle, cursor)).status == Status.MQ_ERROR_INVALID_HANDLE
    )


def reading(
    world: World, reader: Reader, action: Action, **more: Any
) -> tuple[int, Callable[..., None]]:
    """A call whose message is being read by the owner, and what lets it leave the queue before that is done."""
    world.hold = (ReadMessage,)
    call = reader.start(action, **more)
    world.hold = ()
    asked = world.held.popleft()

    def leaves() -> None:
        world.box.left.add(asked.sequence)
        world.do_now(asked)

    return call, leaves


@pytest.mark.parametrize("action", [A.PEEK_CURRENT, A.RECEIVE])
def test_what_a_cursor_showed_and_leaves_while_it_is_read_again_is_already_received(world, action):
    """3.2.7.2, 3.2.7.4: a READ cursor gives its message or none. Who looked and then receives must not get the next one."""
    one = world.reader().opened()
    cursor = one.cursor()
    assert one.get(A.PEEK_CURRENT, cursor=cursor) == 2
    call, leaves = reading(world, one, action, cursor=cursor)
    leaves()
    assert one.shown(call) == Status.MQ_ERROR_MESSAGE_ALREADY_RECEIVED
    assert one.end() == Status.MQ_ERROR_INVALID_HANDLE, "nothing is locked"
    assert one.get(A.PEEK_NEXT, cursor=cursor) == 1


def test_a_message_that_a_cursor_was_about_to_show_is_passed_over(world):
    one = world.reader().opened()
    cursor = one.cursor()
    for action, expected in ((A.PEEK_CURRENT, 1), (A.PEEK_NEXT, 5)):
        call, leaves = reading(world, one, action, cursor=cursor)
        leaves()  # 2, then 3
        assert one.shown(call) == (expected, f"body {expected}")
    assert one.receive(cursor=cursor) == 5


def test_a_cursor_that_showed_nothing_is_where_it_was():
    """The only message left unread: the call is told that there is none, and the next one begins where this one did."""
    world = World()
    world.came(3)
    one = world.reader().peeking()
    cursor = one.cursor()
    call, leaves = reading(world, one, A.PEEK_CURRENT, cursor=cursor)
    leaves()
    assert one.shown(call) == Status.MQ_ERROR_IO_TIMEOUT
    world.came(3)
    assert one.get(A.PEEK_NEXT, cursor=cursor) == Status.MQ_ERROR_ILLEGAL_CURSOR_ACTION, (
        "nothing was shown"
    )
    assert one.get(A.PEEK_CURRENT, cursor=cursor) == 2


@pytest.mark.parametrize("action", [A.PEEK_CURRENT, A.RECEIVE])
def test_a_call_whose_message_left_does_not_wait_where_another_one_does(action):
    """Over two connections of a client: the second call waits at the cursor while the first one's message is read."""
    world = World()
    world.came(3)
    one = world.reader().opened()
    cursor = one.cursor()
    first, leaves = reading(world, one, action, cursor=cursor, timeout_ms=60_000)
    more = A.PEEK_NEXT if action is A.PEEK_CURRENT else A.RECEIVE
    second = one.start(more, cursor=cursor, timeout_ms=60_000)
    assert one.shown(second) is None
    leaves()
    assert one.shown(first) == Status.MQ_ERROR_ILLEGAL_CURSOR_ACTION
    assert one.get(A.PEEK_CURRENT, cursor=cursor) == Status.MQ_ERROR_ILLEGAL_CURSOR_ACTION, (
        "the second one still waits"
    )
    world.came(3)
    assert one.shown(second) == (2, "body 2")


def test_a_call_whose_message_left_does_not_wait_at_a_cursor_that_was_closed():
    world = World()
    world.came(3)
    one = world.reader().opened()
    cursor = one.cursor()
    call, leaves = reading(world, one, A.PEEK_CURRENT, cursor=cursor, timeout_ms=60_000)
    assert one.ask(5, HandleNumberRequest(one.handle, cursor)).status == Status.MQ_OK
    leaves()
    assert one.shown(call) == Status.MQ_ERROR_OPERATION_CANCELLED


def test_a_call_whose_message_left_does_not_wait_for_a_caller_that_is_gone():
    """It would hold a place among those who wait, and lock what comes for nobody."""
    world = World()
    world.came(3)
    one = world.reader().opened()
    call, leaves = reading(world, one, A.RECEIVE, timeout_ms=0xFFFFFFFF)
    world.do(world.server.calls_gone(one.name, [call]))
    leaves()
    assert one.cancel(one.last) == Status.STATUS_NOT_FOUND, "nothing waits"


def test_all_receives_are_of_three_lookups_and_the_plain_one():
    assert sorted(RECEIVES) == [0, 0x40000020, 0x40000021, 0x40000022]


# --- many locks ---------------------------------------------------------------------------------------------------------------


class Counting(Box):
    """Counts what is asked of it."""

    asked = 0

    def has_left(self, sequence: int) -> bool:
        self.asked += 1
        return super().has_left(sequence)


def test_a_reader_that_locks_many_does_not_pass_by_all_of_them_for_each():
    box = Counting()
    world = World(box)
    world.came(*[3] * 400)
    one = world.reader().opened()
    assert [one.get() for _ in range(400)] == list(range(1, 401))
    assert box.asked < 10 * 400


def test_what_is_given_back_or_comes_with_a_higher_priority_is_first_again(world):
    """Whatever was passed by before."""
    one = world.reader().opened()
    requests = {}
    for expected in (2, 1, 3):
        request = len(requests) + 100
        assert one.get(request=request) == expected
        requests[expected] = request
    assert one.end(requests[1], RR_NACK) == Status.MQ_OK
    assert one.get(request=200) == 1
    world.came(7)
    assert one.get(request=201) == 6
    assert one.end(requests[2], RR_NACK) == Status.MQ_OK
    assert [one.get(request=300 + n) for n in range(3)] == [2, 5, 4]


@pytest.mark.parametrize("action", [Action.LOOKUP_PEEK_PREV, Action.LOOKUP_PEEK_NEXT])
def test_a_step_over_what_others_hold_is_one_step(action):
    """Backward from the tail, and forward from the head while what stands there is given back and locked again."""
    box = Counting()
    world = World(box)
    world.came(*[3] * 400)
    one, other = world.reader().opened(), world.reader().opened()
    for n in range(399):
        assert one.get(request=n + 1) == n + 1
    anchor, box.asked = rebuilt(400 if action is Action.LOOKUP_PEEK_PREV else 2, priority=3), 0
    for _ in range(30):
        assert one.end(1, RR_NACK) == Status.MQ_OK
        assert other.get(action, lookup_id=anchor) == (
            1 if action is Action.LOOKUP_PEEK_PREV else 400
        )
        assert one.get(request=1) == 1
    assert box.asked < 30 * 20
