"""The table of a stream receipt's states: every pair of state and event, allowed and refused; and the heap of timers."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srmp_spark.errors import LocalProtocolError
from srmp_spark.srmp.receiving.incoming_streams import (
    STREAM_RECEIPT_DELAY_S_MAX,
    TRANSITIONS,
    IncomingStream,
    IncomingStreams,
    ReceiptEvent,
    ReceiptState,
)
from srmp_spark.srmp.receiving.stream_effects import IncomingStreamRow
from tests.kit.playbook import (
    SENDER,
    STREAM,
    Playbook,
    delivered,
    failed,
    post,
    stream_message,
    synced,
    tick,
)

ROW = IncomingStreamRow(
    "private$/ledger",
    SENDER,
    STREAM,
    3,
    3,
    "http://machine1/msmq/q",
    "192.0.2.1:1",
    None,
    0,
    0,
    0,
    None,
)


@pytest.mark.parametrize(
    ("state", "event"),
    [*itertools.product(ReceiptState, ReceiptEvent)],
    ids=lambda member: member.name,
)
def test_every_pair_is_in_the_table_or_refused(state: ReceiptState, event: ReceiptEvent) -> None:
    stream = IncomingStream(ROW)
    stream.receipt = state
    if (state, event) in TRANSITIONS:
        stream._move(event)
        assert stream.receipt is TRANSITIONS[state, event]
    else:
        with pytest.raises(
            LocalProtocolError,
            match=f"{event.name} cannot happen to <IncomingStream .* {state.name}",
        ):
            stream._move(event)


def test_every_state_can_be_reached_and_left() -> None:
    assert set(TRANSITIONS.values()) == set(ReceiptState)
    assert {state for state, _ in TRANSITIONS} == set(ReceiptState)


def test_repr_says_all() -> None:
    stream = IncomingStream(ROW)
    stream.stored(STREAM, 3, 10.0)
    assert repr(stream) == (
        f"<IncomingStream private$/ledger uid:{SENDER}\\{STREAM} sequence_number=3 "
        "committed=3 acknowledged=3 "
        "COALESCING until 10.500>"
    )


def test_many_streams_one_heap() -> None:
    rows = [ROW._replace(guid=f"{number:08x}-0000-4000-8000-000000000000") for number in range(100)]
    streams = IncomingStreams.load(rows)
    for delay, stream in enumerate(streams):
        stream.stored(STREAM, 3, 1000.0 - delay)
        streams.arm(stream)
    assert streams.next_timer() == 1000.0 - 99 + 0.5
    order = []
    for now in range(890, 1010):
        order += [receipt.stream_id.guid for receipt in streams.due(now)]
    assert order == [row.guid for row in reversed(rows)]
    assert streams.next_timer() is None


def test_a_timer_that_moves_forward_is_not_missed() -> None:
    """A retry in 20 s, then a new stream that must be acknowledged in half a second."""
    streams = IncomingStreams.load([ROW])
    (stream,) = streams
    stream.stored(STREAM, 3, 0.0)
    streams.arm(stream)
    (receipt,) = streams.due(0.5)
    stream.receipt_failed(0.5, 20.0, permanent=False)
    streams.arm(stream)
    assert streams.next_timer() == 20.5
    stream.receipt = ReceiptState.NOTHING_OWED
    stream.stored(STREAM, 3, 1.0)
    streams.arm(stream)
    assert streams.next_timer() == 1.5
    assert len(streams.due(1.5)) == 1
    assert streams.due(100.0) == []
    assert receipt.last_ordinal == 3


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("message"), st.integers(1, 4)),
        st.tuples(st.just("tick"), st.floats(0.01, 3.0)),
        st.tuples(st.just("delivered"), st.just(0)),
        st.tuples(st.just("failed"), st.just(0)),
    ),
    max_size=60,
)


@given(STEPS)
@settings(max_examples=60, deadline=None)
def test_a_receipt_leaves_within_ten_seconds_of_the_first_message_that_awaits_one(
    steps: list[tuple[str, float]],
) -> None:
    """Whatever happens in between, unless one is under way or the last one failed; and never within half a second of the last
    message unless the ten seconds are over."""
    playbook = Playbook()
    position = acknowledged = 0
    waiting_since: float | None = None
    last_stored = 0.0
    for what, amount in steps:
        begin = playbook.clock.now
        (stream,) = playbook.receiver.streams or (None,)
        if what == "message":
            previous, position = position, position + int(amount)
            if previous == 0:
                position = 1
            playbook.step(post(stream_message(position, previous=previous)))
            playbook.step(synced())
            last_stored = begin
            waiting_since = begin if waiting_since is None else waiting_since
        elif what == "tick":
            for output in playbook.step(tick(amount)):
                assert f"last_ordinal={position} " in str(output)
                acknowledged = position
                waiting_since = None
        elif stream is not None and stream.receipt_on_its_way:
            playbook.step(delivered() if what == "delivered" else failed())
            if what == "failed":
                waiting_since = None
        if stream is not None and stream.receipt is ReceiptState.COALESCING:
            assert stream.deadline <= last_stored + 0.5 + 1e-9
            assert (
                waiting_since is None
                or stream.deadline <= waiting_since + STREAM_RECEIPT_DELAY_S_MAX + 1e-9
            )
            # What was stored while a receipt was under way may be overdue at its delivery: it leaves at the next tick.
            assert what != "tick" or playbook.clock.now <= stream.deadline + 1e-9
    assert acknowledged <= position
