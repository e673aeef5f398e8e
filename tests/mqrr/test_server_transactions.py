"""Receiving in a transaction ([MS-MQRR] 3.1.4.12 to 3.1.4.15), ended by a coordinator that the test plays."""

from __future__ import annotations

import pytest
from server_kit import Box, World, lookup_id

from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.ndr.methods import RR_NACK, EnlistRequest, HandleRequest, SetClassRequest
from srmp_spark.mqrr.ndr.receive import NO_TRANSACTION
from srmp_spark.mqrr.queue_format import queue_format_of
from srmp_spark.mqrr.server.effects import Reason
from srmp_spark.mqrr.server.limits import TIMED_OUT_KEPT
from srmp_spark.mqrr.server.transactions import Transactions
from srmp_spark.mqrr.status import Status

TX, OTHER = b"transaction one!", b"transaction two!"
ORDERS = queue_format_of(r"DIRECT=OS:host\private$\orders")


def enlist(reader, transaction=TX):
    return Status(reader.ask(12, EnlistRequest(transaction, b"a token", ORDERS)).status)


@pytest.fixture
def world() -> World:
    world = World(Box(transactional=True), coordinator=True)
    world.came(0, 0, 0)
    return world


@pytest.fixture
def one(world):
    reader = world.reader("one").opened()
    assert enlist(reader) == Status.MQ_OK
    return reader


def take(reader, transaction=TX, **more):
    """Receive in the transaction, and acknowledge."""
    found = reader.get(transaction=transaction, **more)
    assert reader.end(opnum=15) == Status.MQ_OK
    return found


def test_a_commit_removes_what_was_acknowledged(world, one):
    assert [take(one), take(one)] == [1, 2]
    assert world.taken == [], "acknowledged is not committed"
    world.do(world.server.outcome(TX, committed=True))
    assert world.reasons() == [(1, Reason.RECEIVED), (2, Reason.RECEIVED)]
    assert world.committed == [TX]


def test_an_abort_gives_everything_back(world, one):
    assert take(one) == 1
    two = world.reader("two").opened()
    assert two.get(request=1) == 2
    world.do(world.server.outcome(TX, committed=False))
    assert two.get(request=2) == 1


def test_no_outcome_in_five_minutes_is_an_abort(world, one):
    assert take(one) == 1
    world.wait(299)
    assert take(one) == 2
    world.wait(2)
    assert world.reader("two").opened().get() == 1
    world.do(world.server.outcome(TX, committed=True))
    assert world.taken == []


def test_a_commit_that_comes_too_late_is_told_so(world, one):
    """A coordinator that hears nothing would wait for ever, or believe that the messages are received."""
    assert take(one) == 1
    world.wait(301)
    world.do(world.server.outcome(TX, committed=True))
    assert (world.committed, world.undone, world.taken) == ([], [TX], [])
    world.do(world.server.outcome(TX, committed=True))
    assert world.undone == [TX], "once"


def test_an_abort_that_comes_too_late_is_what_it_wants(world, one):
    world.wait(301)
    world.do(world.server.outcome(TX, committed=False))
    world.do(world.server.outcome(TX, committed=True))
    assert (world.committed, world.undone) == ([], [])


def test_a_transaction_that_is_enlisted_anew_is_not_late(world, one):
    world.wait(301)
    assert enlist(one) == Status.MQ_OK
    assert take(one) == 1
    world.do(world.server.outcome(TX, committed=True))
    assert (world.committed, world.undone) == ([TX], [])


def test_transactions_that_timed_out_are_remembered_up_to_a_limit():
    transactions = Transactions(coordinator=True)
    names = [number.to_bytes(16, "big") for number in range(TIMED_OUT_KEPT + 2)]
    for name in names:
        transactions.timed_out(name)
    assert [
        transactions.came_too_late(each) for each in (names[0], names[1], names[2], names[-1])
    ] == [
        False,
        False,
        True,
        True,
    ]


def test_what_was_not_acknowledged_is_not_committed(world, one):
    assert one.get(transaction=TX) == 1
    world.do(world.server.outcome(TX, committed=True))
    assert world.taken == []
    assert world.reader("two").opened().get() == 1


def test_a_reader_that_is_gone_leaves_what_it_acknowledged_to_the_coordinator(world, one):
    assert take(one) == 1
    assert one.get(transaction=TX) == 2
    one.gone()
    two = world.reader("two").opened()
    assert two.get() == 2
    world.do(world.server.outcome(TX, committed=True))
    assert world.reasons() == [(1, Reason.RECEIVED)]
    assert world.open == [(world.box, True)]


def test_a_commit_that_cannot_be_stored_changes_nothing(world, one):
    assert [take(one), take(one)] == [1, 2]
    world.refuse = Status.MQ_ERROR_QUEUE_NOT_AVAILABLE
    world.do(world.server.outcome(TX, committed=True))
    assert world.committed == []
    assert world.reader("two").opened().get() == 1


def test_a_nack_takes_the_message_out_of_the_transaction(world, one):
    assert one.get(transaction=TX) == 1
    assert one.end(ack=RR_NACK, opnum=15) == Status.MQ_OK
    assert take(one) == 1
    world.do(world.server.outcome(TX, committed=True))
    assert world.reasons() == [(1, Reason.RECEIVED)]


def test_a_message_can_be_rejected_until_the_outcome(world, one):
    assert [take(one), take(one)] == [1, 2]
    reject = SetClassRequest(one.handle, lookup_id(2, 0), 0xC004)
    assert one.ask(14, reject).status == Status.MQ_OK
    assert one.ask(14, reject._replace(message_class=0)).status == Status.MQ_OK, "0 changes nothing"
    assert one.ask(14, reject._replace(message_class=1)).status == Status.MQ_ERROR_INVALID_PARAMETER
    assert (
        one.ask(14, reject._replace(lookup_id=lookup_id(3, 0))).status
        == Status.MQ_ERROR_TRANSACTION_USAGE
    )
    assert (
        one.ask(14, reject._replace(lookup_id=lookup_id(9, 0))).status
        == Status.MQ_ERROR_MESSAGE_NOT_FOUND
    )
    world.do(world.server.outcome(TX, committed=True))
    assert world.reasons() == [(1, Reason.RECEIVED), (2, Reason.REJECTED)]


def test_who_may_not_receive_rejects_nothing(world, one):
    """3.1.4.14: the handle was opened with MQ_RECEIVE_ACCESS; another client's message would be refused to its sender."""
    assert take(one) == 1
    looker = world.reader("two").peeking()
    reject = SetClassRequest(looker.handle, lookup_id(1, 0), 0xC004)
    assert looker.ask(14, reject).status == Status.MQ_ERROR_INVALID_HANDLE
    world.do(world.server.outcome(TX, committed=True))
    assert world.reasons() == [(1, Reason.RECEIVED)]


def test_a_purge_waits_for_the_transaction(world, one):
    assert take(one) == 1
    assert one.ask(6, HandleRequest(one.handle)).status == Status.MQ_OK
    assert world.box.left == {2, 3}
    world.do(world.server.outcome(TX, committed=False))
    assert world.reasons() == [(1, Reason.PURGED)]


def test_transactions_are_for_receives_of_transactional_queues_that_were_enlisted(world, one):
    assert one.get(Action.PEEK_CURRENT, transaction=TX) == Status.MQ_ERROR_TRANSACTION_USAGE
    next_of_nothing = one.get(Action.PEEK_NEXT, transaction=TX, cursor=one.cursor())
    assert next_of_nothing == Status.MQ_ERROR_TRANSACTION_USAGE, (
        "3.1.4.13 looks at the action before the cursor does"
    )
    assert one.get(transaction=OTHER) == Status.MQ_ERROR_TRANSACTION_SEQUENCE
    plain = World(coordinator=True)
    plain.came(3)
    reader = plain.reader().opened()
    assert enlist(reader) == Status.MQ_OK
    assert reader.get(transaction=TX) == Status.MQ_ERROR_TRANSACTION_USAGE


def test_without_a_transaction_it_is_a_receive_like_any(world):
    """T12: a zero XACTUOW is "no transaction"."""
    reader = world.reader().opened()
    assert reader.get(transaction=NO_TRANSACTION) == 1
    assert reader.end(opnum=15) == Status.MQ_OK
    assert world.reasons() == [(1, Reason.RECEIVED)]


def test_a_receive_in_a_transaction_is_not_ended_by_r_end_receive(world, one):
    assert one.get(transaction=TX) == 1
    assert one.end(opnum=9) == Status.MQ_ERROR_INVALID_PARAMETER
    assert one.end(opnum=15) == Status.MQ_OK


def test_without_a_coordinator_nothing_is_enlisted():
    world = World(Box(transactional=True))
    reader = world.reader().opened()
    assert enlist(reader) == Status.MQ_ERROR_TRANSACTION_ENLIST
    assert enlist(reader, NO_TRANSACTION) == Status.MQ_ERROR_INVALID_PARAMETER
