"""The source: never more in flight than there is room for, nothing lost, nothing believed that cannot be true."""

from __future__ import annotations

from itertools import count

import pytest
from wsrm_kit import SEQUENCE, VERSIONS, schema_faults

from srmp_spark.errors import ConfigurationError, LocalProtocolError
from srmp_spark.wsrm.elements import (
    ABSENT,
    CloseSequence,
    CloseSequenceResponse,
    CreateSequenceResponse,
    SequenceAcknowledgement,
    SoapMessage,
    TerminateSequence,
    TerminateSequenceResponse,
)
from srmp_spark.wsrm.encoder import encode
from srmp_spark.wsrm.faults import FaultCode, fault_of
from srmp_spark.wsrm.limits import WINDOW_MAX
from srmp_spark.wsrm.namespaces import AddressingVersion, RmVersion, SoapVersion
from srmp_spark.wsrm.outgoing_states import ENDS, TRANSITIONS, SourceEvent, SourceState, moved
from srmp_spark.wsrm.polling_states import PollingState
from srmp_spark.wsrm.source import Source
from srmp_spark.wsrm.source_effects import (
    END_TRIES,
    Acknowledged,
    AcknowledgementRefused,
    Ended,
    Failed,
    Output,
    Purpose,
    SourceRecord,
    SourceSettings,
    Transmit,
)

OLD, NEW = VERSIONS[3], VERSIONS[-1]


class Bench:
    """A source with a sequence, and what it sent."""

    def __init__(self, window: int = 100, versions: tuple[SoapVersion, AddressingVersion, RmVersion] = NEW) -> None:
        soap, addressing, rm = versions
        self.versions = versions
        self.settings = SourceSettings(to="http://service.example/", soap=soap, addressing=addressing, rm=rm, window=window)
        self.now = 0.0
        numbers = count(1)
        self.new_message_id = lambda: f"urn:uuid:{next(numbers)}"
        record = SourceRecord(create_id="urn:uuid:create")
        self.source = Source(self.settings, record, self.now, new_message_id=self.new_message_id)
        (create,) = self.source.due(self.now)
        assert isinstance(create, Transmit)
        assert create.purpose is Purpose.CREATE
        assert self.hear(content=CreateSequenceResponse(SEQUENCE), relates_to="urn:uuid:create") == []

    def hear(self, **fields: object) -> list[Output]:
        soap, addressing, rm = self.versions
        known = {"soap": soap, "addressing": addressing, "rm": rm, "action": "urn:answer"}
        return self.source.receive(SoapMessage(**(known | fields)), self.now)  # type: ignore[arg-type]

    def send(self, messages: int = 1) -> list[int]:
        """The numbers that left at once."""
        return [n for _ in range(messages) for n in numbers(self.source.send("urn:do", b"<m/>", self.now)[1])]

    def ack(self, *ranges: tuple[int, int], buffer: int = ABSENT, **more: object) -> list[Output]:
        return self.hear(acknowledgements=(SequenceAcknowledgement(SEQUENCE, ranges, buffer_remaining=buffer, **more),))  # type: ignore[arg-type]

    def pass_time(self, seconds: float) -> list[tuple[float, Transmit]]:
        """Everything that leaves in so long, with its time."""
        end, out = self.now + seconds, []
        while (due := self.source.next_due()) is not None and due <= end:
            self.now = max(due, self.now)
            out += [(self.now, each) for each in self.source.due(self.now) if isinstance(each, Transmit)]
        self.now = end
        return out

    def restart(self) -> None:
        self.source = Source(self.settings, self.source.record, self.now, new_message_id=self.new_message_id,
                             messages=self.source.unacknowledged)  # fmt: skip


def creating() -> Source:
    """A source that has no sequence yet."""
    record = SourceRecord(create_id="urn:uuid:c")
    return Source(SourceSettings(to="http://x.example/"), record, 0.0, new_message_id=lambda: "urn:uuid:n")


def numbers(outputs: list[Output]) -> list[int]:
    return [each.number for each in outputs if isinstance(each, Transmit) and each.purpose is Purpose.MESSAGE]


def polls(sent: list[tuple[float, Transmit]]) -> list[float]:
    return [when for when, each in sent if each.purpose is Purpose.POLL]


# --- flow control, [MS-WSRVCRM] 3.2 -----------------------------------------------------------------------------------------


def test_0_then_5_lets_exactly_five_go() -> None:
    bench = Bench()
    bench.send()
    assert bench.ack((1, 1), buffer=0) == [Acknowledged((1,))]
    assert bench.send(10) == []
    assert numbers(bench.ack((1, 1), buffer=5)) == [2, 3, 4, 5, 6]
    assert numbers(bench.ack((1, 3), buffer=3)) == [], "4, 5 and 6 are on their way into the three places"
    assert numbers(bench.ack((1, 6), buffer=1)) == [7]


def test_0_then_silence_asks_every_30_seconds_and_sends_nothing_new() -> None:
    bench = Bench()
    bench.send()
    bench.ack((1, 1), buffer=0)
    assert bench.send(3) == []
    sent = bench.pass_time(100.0)
    assert polls(sent) == [30.0, 60.0, 90.0]
    assert len(sent) == 3
    poll = sent[0][1].message
    assert [each.identifier for each in poll.ack_requested] == [SEQUENCE]
    assert schema_faults(encode(poll), NEW[2], NEW[1]) == []


def test_while_polling_what_left_goes_again_and_nothing_new_does() -> None:
    bench = Bench()
    bench.send(3)
    bench.ack((1, 2), buffer=0)
    bench.send()
    again = [each for _, each in bench.pass_time(29.0)]
    assert {each.number for each in again} == {3}
    assert all(each.message.ack_requested for each in again), "Metro tells an acknowledgement once, and then only when asked"


@pytest.mark.parametrize("is_polling", [False, True])
def test_an_acknowledgement_without_buffer_remaining_changes_nothing(is_polling: bool) -> None:
    bench = Bench()
    bench.send(2)
    bench.ack((1, 1), buffer=0 if is_polling else 3)
    bench.ack((1, 2))
    assert bench.source.record.polling is (PollingState.POLLING if is_polling else PollingState.NOT_POLLING)
    assert bench.send() == ([] if is_polling else [3])


def test_without_any_buffer_remaining_the_window_alone_counts() -> None:
    bench = Bench(window=4)
    assert bench.send(10) == [1, 2, 3, 4]
    assert numbers(bench.ack((1, 2))) == [5, 6]


def test_an_older_acknowledgement_counts_for_nothing() -> None:
    """(1-5, 0) that arrives after (1-6, 3)."""
    bench = Bench()
    bench.send(6)
    bench.ack((1, 6), buffer=3)
    before = bench.source.record
    assert bench.ack((1, 5), buffer=0) == []
    assert bench.ack((1, 5), buffer=4096) == []
    assert bench.source.record == before


def test_polling_goes_on_after_a_restart_and_no_more_than_the_room_leaves() -> None:
    bench = Bench()
    bench.send(3)
    bench.ack((1, 2), buffer=0)
    bench.send(5)
    bench.pass_time(10.0)
    bench.restart()
    sent = bench.pass_time(60.0)
    assert polls(sent) == [40.0, 70.0]
    assert {each.number for _, each in sent if each.purpose is Purpose.MESSAGE} == {3}
    assert numbers(bench.ack((1, 3), buffer=2)) == [4, 5]
    bench.restart()
    assert {each.number for _, each in bench.pass_time(60.0)} == {4, 5}, "those are on their way, and take the room"


def test_terminate_ends_polling() -> None:
    bench = Bench()
    bench.send()
    bench.source.finish(bench.now)
    (acknowledged, close) = bench.ack((1, 1), buffer=0)
    assert acknowledged == Acknowledged((1,))
    assert isinstance(close, Transmit)
    bench.hear(content=CloseSequenceResponse(SEQUENCE))
    assert bench.hear(content=TerminateSequenceResponse(SEQUENCE)) == [Ended()]
    assert bench.source.record.polling is PollingState.OVER
    assert bench.pass_time(1_000.0) == []


def test_the_message_that_fills_the_room_asks_for_an_acknowledgement() -> None:
    bench = Bench()
    bench.send()
    bench.ack((1, 1), buffer=2)
    sent = [out for _ in range(2) for out in bench.source.send("urn:do", b"", bench.now)[1]]
    assert [bool(each.message.ack_requested) for each in sent if isinstance(each, Transmit)] == [False, True]


# --- acknowledgements -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranges", [((1, 3),), ((2, 9),), ((1, 2), (4, 4))])
def test_numbers_that_never_left_make_an_acknowledgement_invalid(ranges: tuple[tuple[int, int], ...]) -> None:
    bench = Bench(window=2)
    bench.send(5)
    (refused,) = bench.ack(*ranges, buffer=9)
    assert isinstance(refused, AcknowledgementRefused)
    assert [each.number for each in bench.source.unacknowledged] == [1, 2, 3, 4, 5]
    assert bench.source.record.granted is None


def test_each_number_is_told_as_acknowledged_once() -> None:
    bench = Bench()
    bench.send(5)
    assert bench.ack((1, 1), (3, 3)) == [Acknowledged((1, 3))]
    assert bench.ack((1, 1), (3, 3)) == []
    assert bench.ack((1, 4)) == [Acknowledged((2, 4))]


def test_an_acknowledgement_of_another_sequence_is_nothing_to_us() -> None:
    bench = Bench()
    bench.send()
    assert bench.hear(acknowledgements=(SequenceAcknowledgement("urn:other", ((1, 1),), buffer_remaining=0),)) == []
    assert bench.source.record.polling is PollingState.NOT_POLLING


def test_a_nack_sends_at_once_and_acknowledges_nothing() -> None:
    bench = Bench()
    bench.send(4)
    assert numbers(bench.ack(nacks=(3, 3, 2))) == [2, 3]
    assert len(bench.source.unacknowledged) == 4


def test_a_message_goes_again_ever_more_slowly_and_is_always_the_same() -> None:
    bench = Bench()
    _, (first,) = bench.source.send("urn:do", b"<m/>", 0.0)
    assert isinstance(first, Transmit)
    sent = bench.pass_time(250.0)
    assert [when for when, _ in sent] == [2.0, 6.0, 14.0, 30.0, 62.0, 122.0, 182.0, 242.0]
    for _, again in sent:
        same = (again.message.body, again.message.message_id, again.message.sequence)
        assert same == (first.message.body, first.message.message_id, first.message.sequence)


# --- beginning and end ------------------------------------------------------------------------------------------------------


def test_a_sequence_is_asked_for_with_one_message_id_until_it_is_there() -> None:
    source = Source(
        SourceSettings(to="http://x.example/"), SourceRecord(create_id="urn:uuid:c"), 0.0, new_message_id=lambda: "urn:uuid:n"
    )
    tries = [out for when in (0.0, 2.0, 6.0) for out in source.due(when)]
    assert {each.message.message_id for each in tries if isinstance(each, Transmit)} == {"urn:uuid:c"}
    assert len(tries) == 3
    assert source.send("urn:do", b"", 6.0)[1] == []
    bench = Bench()
    assert bench.source.record.identifier == SEQUENCE
    bench.hear(content=CreateSequenceResponse("urn:another"), relates_to="urn:uuid:create")
    assert bench.source.record.identifier == SEQUENCE, "the first answer counts"


def test_an_answer_to_somebody_elses_create_sequence_is_not_ours() -> None:
    source = Source(
        SourceSettings(to="http://x.example/"), SourceRecord(create_id="urn:uuid:c"), 0.0, new_message_id=lambda: "urn:uuid:n"
    )
    soap, addressing, rm = NEW
    answer = SoapMessage(
        soap=soap, addressing=addressing, rm=rm, action="a", relates_to="urn:x", content=CreateSequenceResponse("urn:y")
    )
    assert source.receive(answer, 0.0) == []
    assert source.record.state is SourceState.CREATING


def test_the_end_in_1_1() -> None:
    bench = Bench()
    bench.send(2)
    assert bench.source.finish(bench.now) == []
    (_, close) = bench.ack((1, 2))
    assert isinstance(close, Transmit)
    assert close.message.content == CloseSequence(SEQUENCE, 2)
    (terminate,) = bench.hear(content=CloseSequenceResponse(SEQUENCE))
    assert isinstance(terminate, Transmit)
    assert terminate.message.content == TerminateSequence(SEQUENCE, 2), "LastMsgNumber stands in both"
    assert bench.source.accepted(Purpose.TERMINATE) == [], "1.1 answers TerminateSequence"
    assert bench.hear(content=TerminateSequenceResponse(SEQUENCE)) == [Ended()]
    with pytest.raises(LocalProtocolError):
        bench.source.send("urn:do", b"", bench.now)


def test_the_end_in_1_0() -> None:
    bench = Bench(versions=OLD)
    bench.send(2)
    (last,) = bench.source.finish(bench.now)
    assert isinstance(last, Transmit)
    assert last.message.sequence is not None
    assert last.message.sequence.is_last
    assert (last.number, last.message.action) == (3, RmVersion.V1_0.action("LastMessage"))
    (_, terminate) = bench.ack((1, 3))
    assert isinstance(terminate, Transmit)
    assert terminate.message.content == TerminateSequence(SEQUENCE)
    assert bench.source.accepted(Purpose.TERMINATE) == [Ended()]


def test_an_end_without_an_answer_comes_after_some_tries() -> None:
    bench = Bench()
    bench.source.finish(bench.now)
    sent = bench.pass_time(3_600.0)
    tries = [each.purpose for _, each in sent]
    assert tries == [Purpose.CLOSE] * (END_TRIES - 1) + [Purpose.TERMINATE] * END_TRIES
    assert bench.source.record.state is SourceState.OVER


@pytest.mark.parametrize("code", [FaultCode.UNKNOWN_SEQUENCE, FaultCode.SEQUENCE_TERMINATED, FaultCode.SEQUENCE_CLOSED])
def test_a_sequence_that_is_gone_says_what_is_in_doubt(code: FaultCode) -> None:
    bench = Bench(window=3)
    bench.send(5)
    bench.ack((2, 2))
    assert bench.hear(content=fault_of(code, NEW[2], "urn:another")) == [], "somebody else's"
    (failed,) = bench.hear(content=fault_of(code, NEW[2], SEQUENCE))
    assert isinstance(failed, Failed)
    assert (failed.in_doubt, failed.unsent) == ((1, 3, 4), (5,))
    assert bench.pass_time(1_000.0) == []


def test_a_destination_that_closes_by_itself() -> None:
    bench = Bench()
    bench.send(3)
    acknowledged, failed = bench.ack((1, 1), is_final=True)
    assert acknowledged == Acknowledged((1,))
    assert isinstance(failed, Failed)
    assert failed.in_doubt == (2, 3)


def test_a_refused_sequence() -> None:
    source = Source(
        SourceSettings(to="http://x.example/"), SourceRecord(create_id="urn:uuid:c"), 0.0, new_message_id=lambda: "urn:uuid:n"
    )
    source.send("urn:do", b"", 0.0)
    soap, addressing, rm = NEW
    refusal = SoapMessage(soap=soap, addressing=addressing, rm=rm, action="a", relates_to="urn:uuid:c",
                          content=fault_of(FaultCode.CREATE_SEQUENCE_REFUSED, rm, reason="no"))  # fmt: skip
    assert source.receive(refusal, 0.0) == [Failed("no", (), (1,))]


@pytest.mark.parametrize("versions", VERSIONS, ids=lambda v: "-".join(each.name for each in v))
def test_everything_that_leaves_is_valid(versions: tuple[SoapVersion, AddressingVersion, RmVersion]) -> None:
    bench = Bench(versions=versions)
    out = bench.source.send("urn:do", b"<m/>", bench.now)[1] + bench.source.finish(bench.now)
    out += [each for _, each in bench.pass_time(10.0)]
    last = max(each.number for each in out if isinstance(each, Transmit))
    out += bench.ack((1, last), buffer=3) + bench.hear(content=CloseSequenceResponse(SEQUENCE))
    sent = [each for each in out if isinstance(each, Transmit)]
    assert {each.purpose for each in sent} >= {Purpose.MESSAGE, Purpose.TERMINATE}
    for each in sent:
        assert schema_faults(encode(each.message), versions[2], versions[1]) == []


def test_settings_that_make_no_sense() -> None:
    for wrong in ({"window": 0}, {"window": WINDOW_MAX + 1}, {"poll_interval": 0.0}, {"resend_max": 1.0},
                  {"addressing": AddressingVersion.V2004_08}):  # fmt: skip
        with pytest.raises(ConfigurationError):
            SourceSettings(to="http://x.example/", **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("state", SourceState)
def test_an_end_is_an_end(state: SourceState) -> None:
    possible = [event for event in SourceEvent if (state, event) in TRANSITIONS]
    assert (possible == []) is (state in ENDS)
    for event in set(SourceEvent) - set(possible):
        with pytest.raises(LocalProtocolError):
            moved(state, event)
