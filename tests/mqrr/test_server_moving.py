"""R_OpenQueueForMove and R_MoveMessage ([MS-MQRR] 3.1.4.10, 3.1.4.11): between a queue and its subqueues."""

from __future__ import annotations

import pytest
from server_kit import Box, World, lookup_id

from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.ndr.methods import (
    ACCESS_MOVE,
    ACCESS_RECEIVE,
    SHARE_DENY_SHARE,
    HandleRequest,
    OpenRequest,
)
from srmp_spark.mqrr.queue_format import queue_format_of
from srmp_spark.mqrr.server.effects import RemovalReason, Take
from srmp_spark.mqrr.server.moving import related
from srmp_spark.mqrr.status import Status

ORDERS, RETRY, POISON = "private$/orders", "private$/orders;retry", "private$/orders;poison"


def made(*, transactional: bool = False, **more) -> World:
    boxes = [
        Box(name, transactional=transactional) for name in (ORDERS, RETRY, POISON, "private$/other")
    ]
    return World(*boxes, **more)


@pytest.fixture
def world() -> World:
    world = made()
    world.came(3, 7, 3)
    return world


def named(queue: str) -> str:
    return queue.replace("/", "\\")


def context(reader, queue: str) -> int:
    return int(reader.open_for_move(named(queue)).move_context)


def test_a_message_is_moved_to_a_subqueue_back_and_between_two(world):
    one = world.reader("one").opened()
    two = world.reader("two").opened(name=named(RETRY))
    assert one.move(context(one, RETRY), lookup_id(2, 7)) == Status.MQ_OK
    assert two.shown(two.start(Action.PEEK_CURRENT)) == (1, "body 1")
    assert two.move(context(two, POISON), lookup_id(1, 7)) == Status.MQ_OK
    three = world.reader("three").opened(name=named(POISON))
    assert three.move(context(three, ORDERS), lookup_id(1, 7)) == Status.MQ_OK
    assert two.get() == three.get() == Status.MQ_ERROR_IO_TIMEOUT
    assert list(one.all()) == [4, 1, 3], "priority counts where it came back to"
    assert world.moved == [(ORDERS, 2, RETRY, 1), (RETRY, 1, POISON, 1), (POISON, 1, ORDERS, 4)]
    assert [reason for _, reason in world.reasons()][:3] == [RemovalReason.MOVED] * 3


def test_a_move_is_answered_when_it_is_stored():
    world = made(hold=(Take,))
    world.came(3)
    one, two = world.reader("one").opened(), world.reader("two").opened()
    number = context(one, RETRY)
    assert one.move(number, lookup_id(1)) is None, "answered before the disk holds it"
    assert two.get() == Status.MQ_ERROR_IO_TIMEOUT
    assert (
        two.move(context(two, POISON), lookup_id(1))
        == Status.MQ_ERROR_MESSAGE_LOCKED_UNDER_TRANSACTION
    )
    world.release()
    assert world.moved == [(ORDERS, 1, RETRY, 1)]
    assert one.move(number, lookup_id(1)) == Status.MQ_ERROR_MESSAGE_NOT_FOUND


def test_a_move_that_cannot_be_stored_is_told_and_the_message_is_where_it_was(world):
    world.refuse = Status.MQ_ERROR_QUEUE_NOT_AVAILABLE
    one = world.reader().opened()
    assert one.move(context(one, RETRY), lookup_id(1)) == Status.MQ_ERROR_QUEUE_NOT_AVAILABLE
    world.refuse = None
    assert list(one.all()) == [2, 1, 3]
    assert world.moved == []


@pytest.mark.parametrize("target", ["private$/other", ORDERS])
def test_queues_that_are_not_related_are_an_invalid_parameter(world, target):
    one = world.reader().opened()
    assert one.move(context(one, target), lookup_id(1)) == Status.STATUS_INVALID_PARAMETER
    assert world.taken == []


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("orders", "orders;a", True),
        ("orders;a", "orders", True),
        ("orders;a", "orders;b", True),
        ("orders;a", "orders;a", False),
        ("orders", "order;a", False),
        ("orders", "private$/orders;a", False),
        ("orders;journal", "orders", False),
        ("orders", "orders;journal", False),
    ],
)
def test_a_parent_is_the_name_without_the_part_behind_the_semicolon(source, target, expected):
    assert related(source, target) is expected


def test_a_source_needs_receive_access(world):
    looker = world.reader().peeking()
    assert looker.move(context(looker, RETRY), lookup_id(1)) == Status.MQ_ERROR_ACCESS_DENIED


def test_a_message_that_is_not_there_or_locked_is_not_moved(world):
    one, two = world.reader("one").opened(), world.reader("two").opened()
    number = context(one, RETRY)
    assert one.move(number, lookup_id(9)) == Status.MQ_ERROR_MESSAGE_NOT_FOUND
    assert two.get() == 2
    assert one.move(number, lookup_id(2, 7)) == Status.MQ_ERROR_MESSAGE_LOCKED_UNDER_TRANSACTION
    assert two.end() == Status.MQ_OK
    assert one.move(number, lookup_id(2, 7)) == Status.MQ_ERROR_MESSAGE_NOT_FOUND
    assert one.move(number, lookup_id(3)) == Status.MQ_OK
    assert world.moved == [(ORDERS, 3, RETRY, 1)], "and not the first one of the queue"


def test_a_move_context_is_random_and_its_clients_own(world):
    one, two = world.reader("one").opened(), world.reader("two").opened()
    first, second = one.open_for_move(named(RETRY)), one.open_for_move(named(RETRY))
    assert first.move_context != second.move_context
    assert two.move(first.move_context, lookup_id(1)) == Status.MQ_ERROR_INVALID_HANDLE
    for unknown in (first.move_context + 100, 0):
        assert one.move(unknown, lookup_id(1)) == Status.MQ_ERROR_INVALID_HANDLE
    assert one.ask(3, HandleRequest(first.handle)).status == Status.MQ_OK
    assert one.move(first.move_context, lookup_id(1)) == Status.MQ_ERROR_INVALID_HANDLE, (
        "it is closed"
    )
    assert one.move(second.move_context, lookup_id(1)) == Status.MQ_OK
    one.gone()
    assert two.move(second.move_context, lookup_id(3)) == Status.MQ_ERROR_INVALID_HANDLE, (
        "it was run down"
    )
    assert len(world.open) == 1


def test_a_handle_for_moving_reads_nothing(world):
    one = world.reader()
    one.handle = one.open_for_move(named(ORDERS)).handle
    for action in (Action.RECEIVE, Action.PEEK_CURRENT):
        assert one.get(action) == Status.MQ_ERROR_ACCESS_DENIED
    assert one.ask(6, HandleRequest(one.handle)).status == Status.STATUS_ACCESS_DENIED


def test_a_queue_for_move_has_one_access_and_one_share_mode(world):
    one = world.reader()
    retry = queue_format_of(rf"DIRECT=OS:host\{named(RETRY)}")
    assert one.ask(11, OpenRequest(retry, ACCESS_RECEIVE)) == Status.MQ_ERROR_INVALID_PARAMETER
    assert (
        one.ask(11, OpenRequest(retry, ACCESS_MOVE, SHARE_DENY_SHARE))
        == Status.MQ_ERROR_INVALID_PARAMETER
    )
    assert one.ask(2, OpenRequest(retry, ACCESS_MOVE)) == Status.MQ_ERROR_INVALID_PARAMETER
    assert one.ask(11, OpenRequest(retry, ACCESS_MOVE)).move_context > 0


def test_a_queue_that_is_not_there_is_none_to_move_to(world):
    assert (
        world.reader().open_for_move(r"private$\orders;unknown") == Status.MQ_ERROR_QUEUE_NOT_FOUND
    )


def test_a_queue_that_was_deleted_takes_nothing(world):
    one = world.reader().opened()
    number = context(one, RETRY)
    world.do(world.server.end_use(world.boxes[named(RETRY)], Status.MQ_ERROR_QUEUE_DELETED))
    assert one.move(number, lookup_id(1)) == Status.MQ_ERROR_QUEUE_DELETED


def test_no_message_is_moved_in_a_transaction(world):
    one, tx = world.reader().opened(), b"transaction one!"
    assert one.move(context(one, RETRY), lookup_id(1), tx) == Status.MQ_ERROR_TRANSACTION_USAGE
    other = made(transactional=True)
    other.came(0)
    one = other.reader().opened()
    number = context(one, RETRY)
    assert one.move(number, lookup_id(9, 0), tx) == Status.MQ_ERROR_MESSAGE_NOT_FOUND
    assert one.move(number, lookup_id(1, 0), tx) == Status.MQ_ERROR_TRANSACTION_SEQUENCE
    assert one.move(number, lookup_id(1, 0)) == Status.MQ_OK, (
        "without a transaction it is moved at once"
    )


def test_a_purge_spares_what_is_being_moved():
    world = made(hold=(Take,))
    world.came(3)
    one = world.reader().opened()
    assert one.move(context(one, RETRY), lookup_id(1)) is None
    assert one.ask(6, HandleRequest(one.handle)).status == Status.MQ_OK
    world.release()
    assert world.moved == [(ORDERS, 1, RETRY, 1)]
