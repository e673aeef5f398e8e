"""R_OpenQueueForMove and R_MoveMessage ([MS-MQRR] 3.1.4.10, 3.1.4.11): between a queue and its subqueues."""

from __future__ import annotations

import pytest
from server_kit import Box, World, lookup_id
from test_server_transactions import OTHER, TX, enlist, take

from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.ndr.methods import (
    ACCESS_MOVE,
    ACCESS_RECEIVE,
    SHARE_DENY_SHARE,
    HandleRequest,
    OpenRequest,
    SetClassRequest,
)
from srmp_spark.mqrr.queue_format import queue_format_of
from srmp_spark.mqrr.server.effects import Reason, Take
from srmp_spark.mqrr.server.moving import related
from srmp_spark.mqrr.status import Status

ORDERS, RETRY, POISON = "private$/orders", "private$/orders;retry", "private$/orders;poison"


def made(*, transactional: bool = False, **more) -> World:
    boxes = [
        Box(name, transactional=transactional) for name in (ORDERS, RETRY, POISON, "private$/other")
    ]
    return World(*boxes, coordinator=transactional, **more)


@pytest.fixture
def world() -> World:
    world = made()
    world.came(3, 7, 3)
    return world


@pytest.fixture
def in_transactions() -> World:
    world = made(transactional=True)
    world.came(0, 0, 0)
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
    assert [reason for _, reason in world.reasons()][:3] == [Reason.MOVED] * 3


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


def test_a_move_context_is_random_and_its_clients_own(world):
    one, two = world.reader("one").opened(), world.reader("two").opened()
    first, second = one.open_for_move(named(RETRY)), one.open_for_move(named(RETRY))
    assert first.move_context != second.move_context
    assert two.move(first.move_context, lookup_id(1)) == Status.MQ_ERROR_INVALID_HANDLE
    assert one.move(first.move_context + 100, lookup_id(1)) == Status.MQ_ERROR_INVALID_HANDLE
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
    world.do(world.server.lost(world.boxes[named(RETRY)], Status.MQ_ERROR_QUEUE_DELETED))
    assert one.move(number, lookup_id(1)) == Status.MQ_ERROR_QUEUE_DELETED


# --- in a transaction --------------------------------------------------------------------------------------------------------


def test_a_move_in_a_transaction_is_provisional_until_its_outcome(in_transactions):
    world = in_transactions
    one, two = world.reader("one").opened(), world.reader("two").opened()
    assert enlist(one) == enlist(one, OTHER) == Status.MQ_OK
    number = context(one, RETRY)
    assert one.move(number, lookup_id(1, 0), TX) == Status.MQ_OK
    assert one.move(number, lookup_id(2, 0), OTHER) == Status.MQ_OK
    assert world.moved == []
    assert (
        two.get(Action.LOOKUP_PEEK_CURRENT, lookup_id=lookup_id(1, 0))
        == Status.MQ_ERROR_TRANSACTION_USAGE
    )
    assert (
        one.move(number, lookup_id(1, 0), OTHER) == Status.MQ_ERROR_MESSAGE_LOCKED_UNDER_TRANSACTION
    )
    world.do(world.server.outcome(TX, committed=True))
    world.do(world.server.outcome(OTHER, committed=False))
    assert world.moved == [(ORDERS, 1, RETRY, 1)]
    assert world.committed == [TX]
    assert (two.get(request=1), two.get(request=2)) == (2, 3)


def test_what_is_received_and_what_is_moved_is_stored_together(in_transactions):
    world = in_transactions
    one = world.reader().opened()
    assert enlist(one) == Status.MQ_OK
    assert take(one) == 1
    assert one.move(context(one, RETRY), lookup_id(2, 0), TX) == Status.MQ_OK
    world.hold = (Take,)
    world.do(world.server.outcome(TX, committed=True))
    (stored,) = world.held
    assert [(each.sequence, each.reason) for each in stored.messages] == [
        (1, Reason.RECEIVED),
        (2, Reason.MOVED),
    ]


def test_a_client_that_is_gone_leaves_its_moves_to_the_coordinator(in_transactions):
    world = in_transactions
    one = world.reader().opened()
    assert enlist(one) == Status.MQ_OK
    assert one.move(context(one, RETRY), lookup_id(1, 0), TX) == Status.MQ_OK
    one.gone()
    world.do(world.server.outcome(TX, committed=True))
    assert world.moved == [(ORDERS, 1, RETRY, 1)]
    assert world.open == []


def test_a_move_without_an_outcome_is_aborted_after_five_minutes(in_transactions):
    world = in_transactions
    one = world.reader().opened()
    assert enlist(one) == Status.MQ_OK
    assert one.move(context(one, RETRY), lookup_id(1, 0), TX) == Status.MQ_OK
    world.wait(301)
    assert one.get() == 1
    assert world.moved == []


def test_a_purge_takes_what_was_to_be_moved(in_transactions):
    world = in_transactions
    one = world.reader().opened()
    assert enlist(one) == Status.MQ_OK
    assert one.move(context(one, RETRY), lookup_id(1, 0), TX) == Status.MQ_OK
    assert one.ask(6, HandleRequest(one.handle)).status == Status.MQ_OK
    world.do(world.server.outcome(TX, committed=True))
    assert world.reasons() == [(1, Reason.PURGED)]
    assert world.moved == []


def test_a_message_that_is_moved_is_not_rejected(in_transactions):
    world = in_transactions
    one = world.reader().opened()
    assert enlist(one) == Status.MQ_OK
    assert one.move(context(one, RETRY), lookup_id(1, 0), TX) == Status.MQ_OK
    assert (
        one.ask(14, SetClassRequest(one.handle, lookup_id(1, 0), 0xC004)).status
        == Status.MQ_ERROR_TRANSACTION_USAGE
    )


def test_transactions_of_moves_are_enlisted_and_of_transactional_queues(world, in_transactions):
    one = world.reader().opened()
    assert one.move(context(one, RETRY), lookup_id(1), TX) == Status.MQ_ERROR_TRANSACTION_USAGE
    one = in_transactions.reader().opened()
    number = context(one, RETRY)
    assert one.move(number, lookup_id(1, 0), TX) == Status.MQ_ERROR_TRANSACTION_SEQUENCE
    assert one.move(number, lookup_id(1, 0)) == Status.MQ_OK, (
        "without a transaction it is moved at once"
    )
