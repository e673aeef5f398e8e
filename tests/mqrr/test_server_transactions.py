"""Calls that name a transaction ([MS-MQRR] 3.1.4.12 to 3.1.4.15) are refused, and change nothing."""

from __future__ import annotations

import pytest
from server_kit import Box, World, lookup_id

from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.ndr.methods import RR_NACK, EnlistRequest, SetClassRequest
from srmp_spark.mqrr.ndr.receive import NO_TRANSACTION
from srmp_spark.mqrr.queue_format import queue_format_of
from srmp_spark.mqrr.server.effects import RemovalReason
from srmp_spark.mqrr.status import Status

TX = b"transaction one!"


@pytest.fixture
def world() -> World:
    world = World(Box(transactional=True))
    world.came(0, 0, 0)
    return world


@pytest.mark.parametrize("queue", ["orders", "unknown"])
def test_no_transaction_is_enlisted(world, queue):
    """There is no coordinator. The queue that the call names is not looked at."""
    reader = world.reader().opened()
    asked = EnlistRequest(TX, b"a token", queue_format_of(rf"DIRECT=OS:host\private$\{queue}"))
    assert reader.ask(12, asked).status == Status.MQ_ERROR_TRANSACTION_ENLIST
    nameless = asked._replace(transaction=NO_TRANSACTION)
    assert reader.ask(12, nameless).status == Status.MQ_ERROR_INVALID_PARAMETER


def test_no_message_is_received_in_a_transaction(world):
    one = world.reader().opened()
    assert one.get(transaction=TX) == Status.MQ_ERROR_TRANSACTION_SEQUENCE
    assert one.get(Action.PEEK_CURRENT, transaction=TX) == Status.MQ_ERROR_TRANSACTION_USAGE
    next_of_nothing = one.get(Action.PEEK_NEXT, transaction=TX, cursor=one.cursor())
    assert next_of_nothing == Status.MQ_ERROR_TRANSACTION_USAGE, (
        "3.1.4.13 looks at the action before the cursor does"
    )
    plain = World()
    plain.came(3)
    assert plain.reader().opened().get(transaction=TX) == Status.MQ_ERROR_TRANSACTION_USAGE
    assert world.taken == plain.taken == []
    assert one.get() == 1, "it is not locked"


def test_without_a_transaction_it_is_a_receive_like_any(world):
    """T12: a zero XACTUOW is "no transaction"."""
    reader = world.reader().opened()
    assert reader.get(transaction=NO_TRANSACTION) == 1
    assert reader.end(opnum=15) == Status.MQ_OK
    assert reader.get(transaction=NO_TRANSACTION) == 2
    assert reader.end(ack=RR_NACK, opnum=15) == Status.MQ_OK
    assert world.reasons() == [(1, RemovalReason.RECEIVED)]
    assert reader.get() == 2


def test_no_class_is_set_without_a_transaction(world):
    """3.1.4.14: the handle was opened with MQ_RECEIVE_ACCESS."""
    one = world.reader("one").opened()
    assert one.get() == 1
    reject = SetClassRequest(one.handle, lookup_id(1, 0), 0xC004)

    def status(reader=one, **more) -> Status:
        return Status(reader.ask(14, reject._replace(handle=reader.handle, **more)).status)

    assert status() == status(message_class=0) == Status.MQ_ERROR_TRANSACTION_USAGE
    assert status(lookup_id=lookup_id(3, 0)) == Status.MQ_ERROR_TRANSACTION_USAGE
    assert status(lookup_id=lookup_id(9, 0)) == Status.MQ_ERROR_MESSAGE_NOT_FOUND
    assert status(message_class=1) == Status.MQ_ERROR_INVALID_PARAMETER
    assert status(world.reader("two").peeking()) == Status.MQ_ERROR_INVALID_HANDLE
    assert one.end() == Status.MQ_OK
    assert world.reasons() == [(1, RemovalReason.RECEIVED)]
