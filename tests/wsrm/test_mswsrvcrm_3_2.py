"""[MS-WSRVCRM] 3.2: the source under flow control, each state and event by its name."""

from __future__ import annotations

from itertools import product

import pytest
from roles_kit import NEW, OLD, Versions
from wsrm_kit import schema_faults

from srmp_spark.errors import LocalProtocolError
from srmp_spark.wsrm.codec.decoder import decode
from srmp_spark.wsrm.codec.elements import (
    ABSENT,
    CloseSequenceResponse,
    CreateSequenceResponse,
    SequenceAcknowledgement,
    SoapMessage,
    TerminateSequenceResponse,
)
from srmp_spark.wsrm.codec.encoder import encode
from srmp_spark.wsrm.sending.polling import Polling
from srmp_spark.wsrm.sending.polling_states import (
    TRANSITIONS,
    PollingEvent,
    PollingState,
    Timer,
    event_of,
)
from srmp_spark.wsrm.sending.source import RmSource
from srmp_spark.wsrm.sending.source_effects import (
    Control,
    Event,
    RmSourceSettings,
    Suspicious,
    Transmit,
)
from srmp_spark.wsrm.sending.source_states import RmSourceState

THERE = "http://service.example/"
BOTH = pytest.mark.parametrize("versions", [OLD, NEW], ids=["1.0", "1.1"])
STATES = (PollingState.NOT_POLLING, PollingState.POLLING, PollingState.TERMINATED)
VALUES = {1: "room", 7: "room", 2**31 - 1: "room", 0: "full", ABSENT: "silent"}


def polling_in(state: PollingState, now: float = 0.0) -> Polling:
    polling = Polling()
    if state is PollingState.POLLING:
        polling.seq_ack_received(0, now)
    elif state is PollingState.TERMINATED:
        polling.seq_terminated(now)
    assert polling.state is state
    return polling


class Sender:
    """A source, and a peer that says what a test wants."""

    def __init__(self, versions: Versions = NEW, window: int = 4096, **settings: object) -> None:
        soap, addressing, rm = versions
        self.now = 1000.0
        self.settings = RmSourceSettings(
            to=THERE, soap=soap, addressing=addressing, rm=rm, window=window, **settings
        )  # type: ignore[arg-type]
        self.source = RmSource(self.settings, "urn:uuid:c", self.now)

    def heard(self, **more: object) -> list[Event]:
        settings = self.settings
        answer = SoapMessage(
            soap=settings.soap, addressing=settings.addressing, rm=settings.rm, action="urn:x", **more  # type: ignore[arg-type]
        )  # fmt: skip
        return self.source.received(answer, self.now)

    def open(self, count: int = 0) -> Sender:
        self.poll()
        self.heard(content=CreateSequenceResponse("urn:s"), relates_to="urn:uuid:c")
        if count:
            self.source.enqueue(count)
        return self

    def poll(self) -> list[Transmit | Control]:
        outputs = self.source.poll(self.now)
        for output in outputs:
            if isinstance(output, Transmit):
                sent = self.source.envelope(output, "urn:a", b"<x/>", f"urn:uuid:{output.number}")
            else:
                sent = output.message
            assert schema_faults(encode(sent)) == []
        return outputs

    def new(self) -> list[int]:
        """Numbers that leave now for the first time."""
        return [
            each.number for each in self.poll() if isinstance(each, Transmit) and not each.is_again
        ]

    def ack(
        self, upper: int, remaining: int = ABSENT, lower: int = 1, *, is_final: bool = False
    ) -> list[Event]:
        """An acknowledgement as its bytes say it, with or without the element."""
        ranges = ((lower, upper),) if upper else ()
        ack = SequenceAcknowledgement("urn:s", ranges, (), is_final, remaining)
        settings = self.settings
        sent = SoapMessage(
            soap=settings.soap, addressing=settings.addressing, rm=settings.rm, action="urn:x", acknowledgements=(ack,)
        )  # fmt: skip
        return self.source.received(decode(encode(sent)), self.now)

    def asks(self, seconds: float, step: float = 1.0) -> list[float]:
        """When AckRequested goes out by itself within the next ``seconds``, counted from here."""
        begin, times = self.now, []
        while self.now < begin + seconds:
            self.now += step
            for output in self.source.poll(self.now):
                if isinstance(output, Control) and output.message.action.endswith("/AckRequested"):
                    assert output.message.ack_requested[0].identifier == "urn:s"
                    times.append(self.now - begin)
        return times


# --- initialization ---------------------------------------------------------------------------------------------------------


def test_it_starts_in_not_polling_and_the_timer_is_not_started() -> None:
    """3.2.3; <3>: .NET's interval is 30 seconds."""
    polling = Polling()
    assert polling.state is PollingState.NOT_POLLING
    assert polling.timer_at is None
    assert polling.interval == 30.0
    assert Polling(5.0).interval == 5.0


# --- the table --------------------------------------------------------------------------------------------------------------


def test_every_pair_of_the_figure_is_in_the_table_and_the_timer_runs_in_polling_alone() -> None:
    absent = set(product(PollingState, PollingEvent)) - set(TRANSITIONS)
    assert absent == {
        (state, PollingEvent.POLLING_TIMER_EXPIRED)
        for state in PollingState
        if state is not PollingState.POLLING
    }
    for (before, event), step in TRANSITIONS.items():
        starts = step.state is PollingState.POLLING and before is not PollingState.POLLING
        stops = before is PollingState.POLLING and step.state is not PollingState.POLLING
        restarts = event is PollingEvent.POLLING_TIMER_EXPIRED
        expected = (
            Timer.STARTED
            if starts
            else Timer.STOPPED
            if stops
            else Timer.RESTARTED
            if restarts
            else Timer.LEFT
        )
        assert step.timer is expected
    polling = Polling()
    with pytest.raises(LocalProtocolError, match="POLLING_TIMER_EXPIRED cannot happen to"):
        polling._happened(PollingEvent.POLLING_TIMER_EXPIRED, 0.0)


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
@pytest.mark.parametrize("value", VALUES)
def test_seq_ack_received_in_every_state_with_every_value(state: PollingState, value: int) -> None:
    """3.2.7.1, as a model: greater than 0 stops polling, 0 starts it, -1 changes nothing."""
    polling = polling_in(state, now=100.0)
    timer = polling.timer_at
    polling.seq_ack_received(value, 200.0)
    if state is PollingState.TERMINATED:
        assert (polling.state, polling.timer_at) == (state, None)
    elif value > 0:
        assert (polling.state, polling.timer_at) == (PollingState.NOT_POLLING, None)
    elif value == 0 and state is PollingState.NOT_POLLING:
        assert (polling.state, polling.timer_at) == (PollingState.POLLING, 230.0)
    elif value == 0:
        assert (polling.state, polling.timer_at) == (PollingState.POLLING, timer)
    else:
        assert (polling.state, polling.timer_at) == (state, timer)
    assert event_of(value).name == f"SEQ_ACK_RECEIVED_{VALUES[value].upper()}"


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_seq_terminated_in_every_state_stops_the_timer(state: PollingState) -> None:
    """3.2.7.2."""
    polling = polling_in(state)
    polling.seq_terminated(10.0)
    assert (polling.state, polling.timer_at) == (PollingState.TERMINATED, None)
    assert not polling.polling_timer_expired(1e9)
    assert not polling.allows(0)


def test_polling_timer_expired_restarts_the_timer_and_asks() -> None:
    """3.2.6.1."""
    polling = polling_in(PollingState.POLLING, now=100.0)
    assert not polling.polling_timer_expired(129.9)
    assert polling.polling_timer_expired(130.0)
    assert (polling.state, polling.timer_at) == (PollingState.POLLING, 160.0)
    assert not polling.polling_timer_expired(159.0)
    assert polling.polling_timer_expired(170.0)
    assert polling.timer_at == 200.0


# --- the source -------------------------------------------------------------------------------------------------------------


@BOTH
def test_0_then_silence_asks_every_30_seconds_and_sends_nothing_new(versions: Versions) -> None:
    """3.2.1.2, 3.2.2.1, 3.2.6.1; section 10 item 3 of our notes: none after the end."""
    sender = Sender(versions).open(3)
    assert sender.new() == [1, 2, 3]
    sender.ack(3, 0)
    sender.source.enqueue(5)
    assert sender.new() == []
    assert sender.source.next_timer() == sender.now + 30.0, "who drives the source calls it then"
    assert sender.asks(100) == [30.0, 60.0, 90.0]
    assert sender.source.sent == 3
    sender.ack(3, 9)
    assert sender.new() == [4, 5, 6, 7, 8]
    assert sender.asks(100) == []


def test_polling_goes_on_while_the_sequence_is_closed_and_stops_when_it_is_terminated() -> None:
    """3.2.7.2."""
    sender = Sender().open(1)
    sender.poll()
    sender.source.end(sender.now)
    sender.ack(1, 0)
    assert sender.source.state is RmSourceState.CLOSING
    assert sender.asks(61) == [30.0, 60.0]
    sender.heard(content=CloseSequenceResponse("urn:s"))
    assert sender.asks(61) == [29.0, 59.0]
    sender.heard(content=TerminateSequenceResponse("urn:s"))
    assert sender.source.state is RmSourceState.TERMINATED
    assert sender.source.polling.state is PollingState.TERMINATED
    assert sender.asks(100) == []
    assert sender.source.next_timer() is None


@BOTH
@pytest.mark.parametrize("polls", [True, False], ids=["POLLING", "NOT_POLLING"])
def test_a_missing_element_changes_nothing_in_either_state(versions: Versions, polls: bool) -> None:
    """3.2.7.1: -1."""
    sender = Sender(versions).open(10)
    sender.ack(0, 2)
    assert sender.new() == [1, 2]
    sender.ack(1, 0 if polls else 2)
    before = sender.source.polling.state
    sender.ack(2)
    assert sender.source.polling.state is before
    assert sender.new() == ([] if polls else [3, 4])


def test_without_the_element_the_window_alone_counts() -> None:
    """CXF and Metro never send it."""
    sender = Sender(window=4).open(10)
    assert sender.new() == [1, 2, 3, 4]
    sender.ack(2)
    assert sender.new() == [5, 6]
    assert sender.source.polling.state is PollingState.NOT_POLLING


def test_0_then_5_lets_five_new_messages_out_and_no_sixth() -> None:
    """The value is a quota of what is on its way."""
    sender = Sender().open(1)
    sender.poll()
    sender.ack(1, 0)
    sender.source.enqueue(20)
    assert sender.new() == []
    sender.ack(1, 5)
    assert sender.new() == [2, 3, 4, 5, 6]
    sender.now += 0.5
    assert sender.new() == []
    sender.ack(3, 3)  # 4, 5 and 6 are on their way, and there is room for them
    assert sender.new() == []
    sender.ack(6, 2)
    assert sender.new() == [7, 8]


def test_resends_go_on_while_polling() -> None:
    """3.2.1.2 speaks of new messages."""
    sender = Sender(resend_first=2.0).open(2)
    assert sender.new() == [1, 2]
    sender.ack(1, 0)
    sender.source.enqueue(1)
    sender.now += 2.0
    assert sender.poll() == [Transmit(2, True, False, True)]


def test_an_old_acknowledgement_that_arrives_late_changes_nothing() -> None:
    """(1-5, 0) after (1-6, 3)."""
    sender = Sender().open(6)
    assert sender.new() == [1, 2, 3, 4, 5, 6]
    sender.ack(6, 3)
    assert sender.ack(5, 0) == []
    assert sender.source.polling.state is PollingState.NOT_POLLING
    assert not sender.source.in_flight
    sender.source.enqueue(5)
    assert sender.new() == [7, 8, 9]
    sender.ack(6, 0)  # the same numbers: it is not behind, and may be the newer one
    assert sender.source.polling.state is PollingState.POLLING


def test_an_invalid_element_is_refused_and_the_state_stays() -> None:
    """2.2.3; whatever else the message says still counts."""
    sender = Sender().open(2)
    sender.poll()
    sender.ack(1, 0)
    ack = SequenceAcknowledgement("urn:s", ((1, 2),), (), False, 7)
    good = SoapMessage(
        soap=NEW[0], addressing=NEW[1], rm=NEW[2], action="urn:x", acknowledgements=(ack,)
    )
    for bad in (b"-1", b"", b"x", b"2147483648"):
        events = sender.source.received(
            decode(encode(good).replace(b">7<", b">" + bad + b"<")), sender.now
        )
        assert [type(each) for each in events] == [Suspicious]
        assert sender.source.polling.state is PollingState.POLLING
    sender.source.received(decode(encode(good)), sender.now)
    assert sender.source.polling.state is PollingState.NOT_POLLING


@BOTH
def test_a_restart_while_polling_goes_on_polling_and_asks_at_once(versions: Versions) -> None:
    """An acknowledgement with room may have been lost meanwhile."""
    sender = Sender(versions).open(3)
    sender.poll()
    sender.ack(3, 0)
    sender.source.enqueue(2)
    sender.now += 500.0
    sender.source = RmSource.restored(sender.settings, sender.source.row(), sender.now)
    assert sender.source.polling.state is PollingState.POLLING
    (asked,) = sender.poll()
    assert isinstance(asked, Control)
    assert asked.message.ack_requested[0].identifier == "urn:s"
    assert sender.asks(61) == [30.0, 60.0]
    sender.ack(3, 1)
    assert sender.new() == [4]


@BOTH
def test_a_restart_while_not_polling_keeps_the_quota(versions: Versions) -> None:
    sender = Sender(versions).open(3)
    sender.ack(0, 2)
    assert sender.new() == [1, 2]
    row = sender.source.row()
    sender.source = RmSource.restored(sender.settings, row, sender.now)
    assert sender.source.row() == row
    assert [
        (each.number, each.is_again) for each in sender.poll() if isinstance(each, Transmit)
    ] == [(1, True), (2, True)]
    sender.ack(2, 1)
    assert sender.new() == [3]
