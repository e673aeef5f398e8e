"""The three tables of the RemoteRead server, and the order of a queue against a plain list."""

from __future__ import annotations

import random

import pytest
from server_kit import Box

from srmp_spark.errors import LocalProtocolError
from srmp_spark.mqrr.queue_format import QueueFormat, QueueFormatType, QueueSuffix, queue_format_of
from srmp_spark.mqrr.server import cursors, position_states, requests
from srmp_spark.mqrr.server.cursors import Cursor, CursorEvent, CursorState
from srmp_spark.mqrr.server.position_states import PositionEvent, PositionState
from srmp_spark.mqrr.server.positions import START, ArrivedRun, Positions
from srmp_spark.mqrr.server.requests import RequestEvent, RequestState
from srmp_spark.mqrr.server.shared_queue import SharedQueue
from srmp_spark.mqrr.server.which_queue import CannotOpenError, WhichQueue, which_queue
from srmp_spark.mqrr.status import Status

TABLES = [
    (position_states.TRANSITIONS, PositionState, PositionEvent, PositionState.AVAILABLE),
    (requests.TRANSITIONS, RequestState, RequestEvent, RequestState.WAITING),
    (cursors.TRANSITIONS, CursorState, CursorEvent, CursorState.UNREAD),
]


@pytest.mark.parametrize(
    ("table", "states", "events", "first"), TABLES, ids=["position", "request", "cursor"]
)
def test_every_state_is_reached_and_every_event_is_used(table, states, events, first):
    reached, grown = {first}, True
    while grown:
        grown = False
        for (state, _), target in table.items():
            if state in reached and target not in reached:
                reached.add(target)
                grown = True
    assert reached == set(states)
    assert {event for _, event in table} == set(events)


def test_only_a_stored_removal_or_somebody_else_makes_a_message_go():
    into_gone = {
        event
        for (state, event), to in position_states.TRANSITIONS.items()
        if to is PositionState.GONE
    }
    assert into_gone == {PositionEvent.STORED, PositionEvent.VANISHED}
    from_locked = {
        to
        for (state, _), to in position_states.TRANSITIONS.items()
        if state is PositionState.LOCKED
    }
    assert PositionState.AVAILABLE in from_locked


def test_what_cannot_happen_is_an_error():
    queue = SharedQueue(Box())
    with pytest.raises(
        LocalProtocolError, match="STORED cannot happen to a message that is AVAILABLE"
    ):
        queue.move(1, PositionEvent.STORED)
    with pytest.raises(LocalProtocolError, match="cannot happen to a cursor that is UNREAD"):
        Cursor(1).move(CursorEvent.GAVE_UP_READ)


def test_the_order_of_a_queue_is_that_of_a_sorted_list():
    """1,000 random queues: what follows, what precedes, what is there."""
    rng = random.Random(20261122)
    for _ in range(1_000):
        positions, model, sequence, dropped, removed = Positions(), set(), 0, 0, set()
        for _ in range(rng.randrange(1, 30)):
            what = rng.random()
            if what < 0.6:
                size, priority = rng.randrange(1, 4), rng.randrange(8)
                positions.add([ArrivedRun(priority, sequence + 1, sequence + size)])
                model |= {
                    (7 - priority) << 56 | n for n in range(sequence + 1, sequence + size + 1)
                }
                sequence += size + rng.randrange(2)
            elif what < 0.8 and model:
                gone = rng.choice(sorted(model))
                positions.remove(gone)
                model.remove(gone)
                removed.add(gone)
            elif what < 0.95 and removed:
                back = rng.choice(sorted(removed))
                positions.put_back(back)
                model |= {back} if back & (1 << 56) - 1 > dropped else set()
            else:
                low = rng.randrange(sequence + 1)
                positions.drop_through(low)
                dropped = max(dropped, low)
                model = {each for each in model if each & (1 << 56) - 1 > low}
        assert len(positions) == len(model)
        ordered = sorted(model)
        walked, at = [], START
        while (found := positions.following(at)) is not None:
            walked.append(found)
            at = found
        assert walked == ordered
        walked, at = [], 8 << 56
        while (found := positions.preceding(at)) is not None:
            walked.append(found)
            at = found
        assert walked == ordered[::-1]
        for each in range(8):
            probe = each << 56 | rng.randrange(sequence + 2)
            assert (probe in positions) == (probe in model)
            assert positions.following(probe) == min((n for n in model if n > probe), default=None)
            assert positions.preceding(probe) == max((n for n in model if n < probe), default=None)


def test_messages_come_behind_those_that_are_there():
    positions = Positions()
    positions.add([ArrivedRun(3, 5, 9)])
    for wrong in (
        ArrivedRun(3, 9, 10),
        ArrivedRun(8, 11, 11),
        ArrivedRun(3, 12, 11),
        ArrivedRun(3, 0, 1),
    ):
        with pytest.raises(LocalProtocolError):
            positions.add([wrong])


def test_a_million_messages_of_mixed_priority_are_taken_in_order_without_moving_the_rest():
    positions = Positions()
    positions.add(ArrivedRun(n % 8, n, n) for n in range(1, 100_001))
    at, count = START, 0
    while (found := positions.following(at)) is not None:
        positions.remove(found)
        at, count = found, count + 1
    assert count == 100_000
    assert len(positions) == 0


# --- which queue ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "host", "queue"),
    [
        (r"DIRECT=OS:host\private$\orders", "host", "private$\\orders"),
        (r"DIRECT=TCP:192.0.2.1\orders", "192.0.2.1", "orders"),
        (r"DIRECT=OS:host\private$\orders;JOURNAL", "host", "private$\\orders;journal"),
        (r"DIRECT=OS:host\private$\orders;Retry", "host", "private$\\orders;Retry"),
    ],
)
def test_a_direct_name_is_a_host_and_a_queue(name, host, queue):
    assert which_queue(queue_format_of(name)) == WhichQueue(host, queue)


def test_a_journal_may_stand_in_the_suffix_alone():
    """T37."""
    queue = QueueFormat(
        QueueFormatType.DIRECT, QueueSuffix.JOURNAL | 0x80, text=r"OS:host\private$\orders"
    )
    assert which_queue(queue) == WhichQueue("host", "private$\\orders;journal")


GUID = "6b29fc40-ca47-1067-b31d-00dd010662da"


@pytest.mark.parametrize(
    ("queue", "status"),
    [
        (
            QueueFormat(QueueFormatType.DL, guid=GUID),
            Status.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
        ),
        (QueueFormat(QueueFormatType.MULTICAST), Status.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION),
        (
            QueueFormat(QueueFormatType.CONNECTOR, guid=GUID),
            Status.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
        ),
        (QueueFormat(0), Status.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION),
        (QueueFormat(99), Status.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION),
        (
            QueueFormat(QueueFormatType.DIRECT, text="HTTP://host/msmq/q"),
            Status.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
        ),
        (QueueFormat(QueueFormatType.DIRECT, text="OS:host"), Status.MQ_ERROR_ILLEGAL_FORMATNAME),
        (QueueFormat(QueueFormatType.MACHINE, guid=GUID), Status.MQ_ERROR_INVALID_PARAMETER),
        (QueueFormat(QueueFormatType.MACHINE, 0x82, guid=GUID), Status.MQ_ERROR_QUEUE_NOT_FOUND),
        (QueueFormat(QueueFormatType.PUBLIC, guid=GUID), Status.MQ_ERROR_QUEUE_NOT_FOUND),
        (
            QueueFormat(QueueFormatType.PRIVATE, guid=GUID, number=5),
            Status.MQ_ERROR_QUEUE_NOT_FOUND,
        ),
        (
            QueueFormat(QueueFormatType.SUBQUEUE, 5, text="OS:host\\q;"),
            Status.MQ_ERROR_ILLEGAL_FORMATNAME,
        ),
        (
            QueueFormat(QueueFormatType.DIRECT, 0x0F, text=r"OS:host\q"),
            Status.MQ_ERROR_INVALID_PARAMETER,
        ),
    ],
)
def test_what_is_not_opened(queue, status):
    """T36 and the names that no queue of ours has."""
    with pytest.raises(CannotOpenError) as error:
        which_queue(queue)
    assert error.value.status == status
