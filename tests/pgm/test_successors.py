"""A source that begins anew under its old TSI, and SPMs that lie elsewhere than in sequence (RFC 3208 3.1, 6.2)."""

from __future__ import annotations

from typing import Any

import pytest
from pgm_kit import DPORT, OTHER, SOURCE, TSI, Listener, listening, told

from srmp_spark.pgm.outputs import EndReason, LossReason, Unicast
from srmp_spark.pgm.receiving.session_states import SessionState
from srmp_spark.pgm.receiving.spm_sequence import SUCCESSOR_SILENCE_S, SpmPlace, SpmSequence
from srmp_spark.pgm.settings import REPLACED_AFTER
from srmp_spark.pgm.wire.addresses import nla_of
from srmp_spark.pgm.wire.packets import Options, Spm
from srmp_spark.pgm.wire.sequence import wrap

NEXT, LATE, ANEW = SpmPlace.NEXT, SpmPlace.LATE, SpmPlace.ANEW
RESTARTED = LossReason.RESTARTED


def spm(number: int, lead: int, trail: int = 0, **more: Any) -> Spm:
    return Spm(TSI, DPORT, number, trail, wrap(lead), SOURCE)._replace(**more)


def places(*said: tuple[float, int, int]) -> list[SpmPlace]:
    """What becomes of SPMs (at, number, lead)."""
    sequence = SpmSequence()
    return [sequence.place(spm(number & 0xFFFFFFFF, lead), at) for at, number, lead in said]


# --- the sequence -----------------------------------------------------------------------------------------------------------


def test_in_sequence_is_greater_and_within_half_the_number_space() -> None:
    """6.2, also across the wrap."""
    assert places((0, 2**32 - 2, 0), (1, 2**32 - 1, 0), (2, 0, 0), (3, 2**31 - 1, 9)) == [NEXT] * 4
    assert places((0, 5, 0), (1, 5 + 2**31, 0), (1, 5 + 2**31 - 1, 0)) == [NEXT, LATE, NEXT]


def test_copies_that_the_network_held_back_are_late_however_many() -> None:
    """A burst of old ones right behind a new one."""
    assert places((0, 50, 9), (0.1, 40, 5), (0.2, 41, 6), (0.3, 42, 6), (0.4, 51, 9)) == [
        NEXT,
        LATE,
        LATE,
        LATE,
        NEXT,
    ]


def test_a_successor_is_believed_when_two_ascend_after_the_silence() -> None:
    at = SUCCESSOR_SILENCE_S
    assert places((0, 50, 9), (at, 0, -1), (at + 0.01, 1, -1)) == [NEXT, LATE, ANEW]
    assert places((0, 50, 9), (at, 1, -1), (at + 0.01, 1, -1), (at + 0.02, 1, -1)) == [
        NEXT,
        LATE,
        LATE,
        LATE,
    ], "one, doubled"
    assert places((0, 50, 9), (at, 1, -1), (at + 0.01, 0, -1), (at + 0.02, 1, -1)) == [
        NEXT,
        LATE,
        LATE,
        ANEW,
    ]


def test_one_in_sequence_proves_that_the_old_source_lives() -> None:
    at = SUCCESSOR_SILENCE_S
    said = [(0, 50, 9), (at, 0, -1), (at + 0.01, 51, 9), (at + 0.02, 1, -1), (at + 0.03, 2, -1)]
    assert places(*said) == [NEXT, LATE, NEXT, LATE, LATE]


def test_a_lead_that_goes_back_is_of_somebody_else_whatever_the_number() -> None:
    """One source counts SPMs and data upwards."""
    assert places((0, 50, 900), (1, 51, 4), (1.1, 52, 5)) == [NEXT, LATE, ANEW]


# --- sessions ---------------------------------------------------------------------------------------------------------------


def restarted(listener: Listener, *leads: int, **more: Any) -> list[Any]:
    """Half a second later a successor begins, with an SPM for each lead."""
    listener.now += SUCCESSOR_SILENCE_S
    return [
        short
        for number, lead in enumerate(leads)
        for short in told(listener.hears(spm(number, lead, **more)))
    ]


def with_a_gap() -> Listener:
    """0 to 7 are sent, 3 is missing, 5 to 7 are known by an SPM."""
    listener = listening()
    for number in (0, 1, 2, 4):
        listener.odata(number)
    listener.spm(0, 7)
    return listener


def test_a_restarted_source_has_a_session_of_its_own_and_the_loss_of_the_old_one_is_told() -> None:
    listener = with_a_gap()
    assert restarted(listener, -1, -1) == [
        (3, 3, RESTARTED), b"apdu 4", (5, 7, RESTARTED), EndReason.RESTARTED, ("from", 0),
    ]  # fmt: skip
    assert told(listener.odata(0, b"new")) == [b"new"]
    (session,) = listener.receiver
    assert session.state is SessionState.OPEN


def test_what_the_successor_sent_before_it_was_known_is_asked_for() -> None:
    """Its data are taken for duplicates until then."""
    listener = with_a_gap()
    restarted(listener, -1)
    assert told(listener.odata(0, b"new 0") + listener.odata(1, b"new 1")) == []
    assert told(listener.hears(spm(1, 1)))[-1] == ("from", 0)
    assert listener.asks(0.1) == [(0.05, (0, 1))]
    assert told(listener.odata(0, b"new 0") + listener.odata(1, b"new 1")) == [b"new 0", b"new 1"]


def test_data_that_came_before_the_first_spm_of_the_successor_are_asked_for_too() -> None:
    """Its three first SPMs were lost."""
    listener = with_a_gap()
    listener.odata(2, b"new")
    assert restarted(listener, 2, 4)[-1] == ("from", 2)
    assert listener.asks(0.1) == [(0.05, (2, 3, 4))]
    for lead, trail, first in ((4, 3, 3), (wrap(-1), 0, 0)):
        listener = with_a_gap()
        listener.odata(2, b"new")
        assert restarted(listener, lead, lead, trail=trail)[-1] == ("from", first), (
            "no more than it has, none that it has not"
        )


@pytest.mark.parametrize("fin", [True, False])
def test_a_source_that_ended_and_begins_anew_is_heard(fin: bool) -> None:
    """Its predecessor is remembered for as long as it is heard of, and its packets keep it in memory."""
    listener = listening()
    listener.odata(0)
    listener.spm(0, 0, options=Options(fin=True) if fin else Options())
    if not fin:
        assert (
            told(
                [
                    each
                    for _, each in listener.until(listener.now + listener.settings.session_idle - 1)
                ]
            )
            == []
        )
    assert restarted(listener, -1, -1)[-1] == ("from", 0)
    assert told(listener.odata(0, b"new")) == [b"new"]


def test_after_fin_an_spm_without_it_is_of_a_successor_whatever_its_number() -> None:
    """The old session was so short that its successor counts past it."""
    listener = listening()
    listener.odata(0)
    listener.spm(0, 0, options=Options(fin=True))
    assert told(listener.spm(0, 0, options=Options(fin=True))) == []
    assert told(listener.spm(0, 3)) == [("from", 4)]


def test_what_comes_right_after_the_silence_is_of_a_new_session() -> None:
    """It was dropped, and kept the session that had ended in memory, if it came before that was forgotten."""
    listener = listening(session_idle=30.0)
    listener.odata(0)
    assert told(listener.receiver.poll(listener.now + 30.0)) == [EndReason.SILENT]
    listener.now += 30.0
    assert told(listener.odata(7)) == [("from", 7), b"apdu 7"]


# --- SPM_PATH ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["2001:db8::1", "239.192.9.1", "255.255.255.255", "0.0.0.0"])
def test_an_spm_counts_whatever_its_path(path: str) -> None:
    """A path of IPv6 ended the reading of all that had come with it: there is no such address for an IPv4 socket."""
    listener = Listener(trust_spm_path=True)
    listener.odata(0)
    assert told(listener.spm(0, 2, path=nla_of(path))) == []
    (nak,) = [each for _, each in listener.until(listener.now + 0.1) if isinstance(each, Unicast)]
    assert nak.to == SOURCE, "NAKs go to the source itself"
    listener.spm(0, 2, path=OTHER)
    listener.spm(0, 3, path=nla_of(path))
    naks = [each for _, each in listener.until(listener.now + 1.5) if isinstance(each, Unicast)]
    assert {each.to for each in naks} == {OTHER}, "or where they went before"


# --- SESSIONS_MAX -----------------------------------------------------------------------------------------------------------


def test_where_all_places_are_taken_the_silent_one_makes_room_and_is_told() -> None:
    """Sources that somebody made up must not keep true ones out for SESSION_IDLE."""
    listener = listening(sessions_max=2)
    listener.odata(1)
    listener.now += 1.0
    assert told(listener.hears(spm(0, -1), OTHER)) == [("from", 0)]
    third = nla_of("10.99.0.9")
    assert told(listener.hears(spm(0, -1), third)) != [("from", 0)]
    listener.now = 1000.0 + REPLACED_AFTER
    assert told(listener.hears(spm(1, -1), third)) == [
        (0, 0, LossReason.SILENT), b"apdu 1", EndReason.SILENT, ("from", 0),
    ]  # fmt: skip
    assert len(listener.receiver) == 2
    assert (
        sum(session.window.octets for session in listener.receiver if session.window)
        == listener.receiver.budget.used
        == 0
    )
