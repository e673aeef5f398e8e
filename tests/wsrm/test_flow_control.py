"""[MS-WSRVCRM] 3.1 and 3.2, every state with every event, against models that are written as the text is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srmp_spark.errors import LocalProtocolError
from srmp_spark.wsrm.elements import ABSENT
from srmp_spark.wsrm.flow_control import FlowControl, FlowControlState
from srmp_spark.wsrm.limits import BUFFER_INITIAL, BUFFER_LIMIT, POLL_INTERVAL
from srmp_spark.wsrm.polling_states import TRANSITIONS, Polling, PollingEvent, PollingState, moved, seq_ack_received

NOT_POLLING, POLLING, OVER = PollingState.NOT_POLLING, PollingState.POLLING, PollingState.OVER

# --- 3.1: the destination ---------------------------------------------------------------------------------------------------


def test_initialization_of_the_destination() -> None:
    """3.1.3 with its notes <1> and <2>: what .NET begins with, and the most that it can be told."""
    afco = FlowControl()
    assert afco.state is FlowControlState.FLOW_CONTROL_STATE
    assert (afco.get_buffer_remaining(), afco.maximum) == (BUFFER_INITIAL, BUFFER_INITIAL) == (8, 8)
    assert FlowControl(BUFFER_LIMIT).get_buffer_remaining() == 4096
    for wrong in (0, -1, BUFFER_LIMIT + 1):
        with pytest.raises(LocalProtocolError):
            FlowControl(wrong)


def test_get_buffer_remaining_changes_nothing() -> None:
    """3.1.7.1."""
    afco = FlowControl(3, 2)
    assert [afco.get_buffer_remaining() for _ in range(3)] == [2, 2, 2]


@pytest.mark.parametrize(("remaining", "after"), [(0, 1), (1, 2), (2, 2)])
def test_message_processed_adds_one_up_to_the_maximum(remaining: int, after: int) -> None:
    """3.1.7.2."""
    afco = FlowControl(2, remaining)
    afco.message_processed()
    assert afco.get_buffer_remaining() == after


@pytest.mark.parametrize(("remaining", "after"), [(0, 0), (1, 0), (2, 1)])
def test_message_received_takes_one_down_to_nothing(remaining: int, after: int) -> None:
    """3.1.7.3."""
    afco = FlowControl(2, remaining)
    afco.message_received()
    assert afco.get_buffer_remaining() == after


@pytest.mark.parametrize("new", [-1, 0, 1, 2, 3])
def test_set_buffer_remaining_sets_what_it_can_be(new: int) -> None:
    """3.1.7.4; 3.1.1: the value is never negative, 3.1.3: nor above the maximum."""
    afco = FlowControl(2, 1)
    if 0 <= new <= 2:
        afco.set_buffer_remaining(new)
        assert afco.get_buffer_remaining() == new
    else:
        with pytest.raises(LocalProtocolError):
            afco.set_buffer_remaining(new)
        assert afco.get_buffer_remaining() == 1


@given(st.integers(1, 40), st.lists(st.sampled_from(["received", "processed", "set"]) | st.integers(0, 40), max_size=120))
def test_the_flow_control_object_is_its_model(maximum: int, events: list[str | int]) -> None:
    afco, model = FlowControl(maximum), maximum
    for event in events:
        if event == "received":
            afco.message_received()
            model = model - 1 if model > 0 else model
        elif event == "processed":
            afco.message_processed()
            model = model + 1 if model < maximum else model
        elif isinstance(event, int):
            afco.set_buffer_remaining(min(event, maximum))
            model = min(event, maximum)
        assert afco.get_buffer_remaining() == model
        assert afco.state is FlowControlState.FLOW_CONTROL_STATE


# --- 3.2: the source --------------------------------------------------------------------------------------------------------

BY_THE_TEXT = [
    # 3.2.7.1: (state, BufferRemaining, state after it, timer runs)
    (POLLING, 1, NOT_POLLING, False),
    (POLLING, 2**31 - 1, NOT_POLLING, False),
    (POLLING, 0, POLLING, True),
    (POLLING, ABSENT, POLLING, True),
    (NOT_POLLING, 1, NOT_POLLING, False),
    (NOT_POLLING, 2**31 - 1, NOT_POLLING, False),
    (NOT_POLLING, 0, POLLING, True),
    (NOT_POLLING, ABSENT, NOT_POLLING, False),
]


def test_initialization_of_the_source() -> None:
    """3.2.3: NOT_POLLING, and POLLING_TIMER is not started."""
    polling = Polling(POLL_INTERVAL)
    assert (polling.state, polling.deadline, polling.interval) == (NOT_POLLING, None, 30.0)
    assert not polling.expired(1e9)


@pytest.mark.parametrize(("state", "remaining", "after", "runs"), BY_THE_TEXT)
def test_seq_ack_received(state: PollingState, remaining: int, after: PollingState, runs: bool) -> None:
    """3.2.7.1."""
    polling = Polling(30.0, state, now=100.0)
    polling.acknowledged(remaining, 110.0)
    assert polling.state is after
    assert (polling.deadline is not None) is runs


def test_an_acknowledgement_of_0_starts_the_timer_and_another_does_not_put_it_off() -> None:
    """3.2.7.1 resets it on the way into POLLING only; if each 0 did, a destination that says 0 often would never be asked."""
    polling = Polling(30.0)
    polling.acknowledged(0, 10.0)
    assert polling.deadline == 40.0
    polling.acknowledged(0, 25.0)
    polling.acknowledged(ABSENT, 30.0)
    assert polling.deadline == 40.0


@pytest.mark.parametrize("state", PollingState)
def test_seq_terminated_stops_the_timer(state: PollingState) -> None:
    """3.2.7.2."""
    polling = Polling(30.0, state, now=0.0)
    polling.terminated()
    assert (polling.state, polling.deadline) == (OVER, None)
    assert not polling.expired(1e9)
    polling.acknowledged(0, 5.0)
    assert polling.deadline is None, "what comes late starts nothing"


def test_polling_timer_expired_comes_every_30_seconds_until_there_is_room() -> None:
    """3.2.6.1."""
    polling = Polling(POLL_INTERVAL)
    polling.acknowledged(0, 0.0)
    asked = [second for second in range(1, 100) if polling.expired(float(second))]
    assert asked == [30, 60, 90]
    polling.acknowledged(5, 100.0)
    assert not any(polling.expired(float(second)) for second in range(100, 200))


def test_a_source_that_polled_polls_after_a_restart() -> None:
    polling = Polling(30.0, POLLING, now=1_000.0)
    assert not polling.expired(1_029.0)
    assert polling.expired(1_030.0)


@pytest.mark.parametrize("state", PollingState)
@pytest.mark.parametrize("event", PollingEvent)
def test_every_state_knows_every_event_that_it_can_meet(state: PollingState, event: PollingEvent) -> None:
    """3.2.1.1 and 3.2.1.2 list them: the timer expires in POLLING alone."""
    possible = event is not PollingEvent.POLLING_TIMER_EXPIRED or state is POLLING
    assert ((state, event) in TRANSITIONS) is possible
    if not possible:
        with pytest.raises(LocalProtocolError):
            moved(state, event)


_ARGUMENTS = st.sampled_from([ABSENT, 0, 1, 8, 2**31 - 1])


@given(st.lists(_ARGUMENTS | st.floats(0.1, 100.0) | st.just("terminated"), max_size=80))
def test_the_source_is_its_model(events: list[float | int | str]) -> None:
    """The model: a flag, and the time of the next AckRequested."""
    polling, now, asks_at, is_over = Polling(30.0), 0.0, None, False
    for event in events:
        if event == "terminated":
            polling.terminated()
            asks_at, is_over = None, True
        elif isinstance(event, float):
            now += event
            is_due = asks_at is not None and now >= asks_at
            assert polling.expired(now) is is_due
            asks_at = now + 30.0 if is_due else asks_at
        elif isinstance(event, int):
            polling.acknowledged(event, now)
            if event > 0:
                asks_at = None
            elif event == 0 and not is_over and asks_at is None:
                asks_at = now + 30.0
        assert polling.deadline == asks_at
        assert polling.state is (OVER if is_over else NOT_POLLING if asks_at is None else POLLING)


def test_the_argument_of_seq_ack_received() -> None:
    assert [seq_ack_received(value).name for value in (ABSENT, 0, 1)] == [
        "SEQ_ACK_RECEIVED_ABSENT", "SEQ_ACK_RECEIVED_0", "SEQ_ACK_RECEIVED_ABOVE_0",
    ]  # fmt: skip
