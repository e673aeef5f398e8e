"""A session that goes on in another receiver: the process of the earlier one has died."""

from __future__ import annotations

from pgm_kit import SOURCE, TSI, Listener, listening, told

from srmp_spark.pgm.outputs import DataLost, EndReason, LossReason
from srmp_spark.pgm.settings import SESSION_IDLE
from srmp_spark.pgm.wire.addresses import SessionKey

KEY = SessionKey(SOURCE, TSI)


def resumed(first: int, **settings: int) -> Listener:
    listener = Listener(**settings)
    assert told(listener.receiver.resume(KEY, first, listener.now)) == [("from", first)]
    return listener


def test_what_was_missed_meanwhile_is_asked_for_and_told_in_order() -> None:
    listener = resumed(5)
    assert told(listener.odata(8)) == [], "5 to 7 come first"
    assert listener.asks(1.0) == [], "nobody is asked before an SPM has said where"
    assert told(listener.spm(0, 8)) == []
    assert [numbers for _, numbers in listener.asks(0.1)] == [(5, 6, 7)]
    for number in (5, 6):
        listener.odata(number)
    assert told(listener.odata(7)) == [b"apdu 7", b"apdu 8"]


def test_what_the_source_no_longer_keeps_is_told_as_lost() -> None:
    listener = resumed(5)
    out = listener.spm(9, 10)
    assert [each for each in out if isinstance(each, DataLost)] == [
        DataLost(KEY, 5, 8, LossReason.TRAIL)
    ]
    assert told(listener.odata(9, trail=9)) == [b"apdu 9"]


def test_what_was_told_before_is_not_told_again() -> None:
    listener = resumed(5)
    assert [told(listener.odata(number)) for number in (3, 4, 5)] == [[], [], [b"apdu 5"]]


def test_numbers_go_on_over_the_wrap() -> None:
    listener = resumed(2**32 - 1)
    assert told(listener.odata(2**32 - 1, trail=2**32 - 5)) == [b"apdu %d" % (2**32 - 1)]
    assert told(listener.odata(0, trail=2**32 - 5)) == [b"apdu 0"]


def test_a_source_that_began_anew_meanwhile_is_heard_from_its_beginning() -> None:
    """Its numbers lie before those of its predecessor, and would pass for copies of them."""
    listener = resumed(1_000)
    assert told(listener.odata(0)) == []
    out = told(listener.spm(0, 1))
    assert out == [EndReason.RESTARTED, ("from", 0)]
    assert [numbers for _, numbers in listener.asks(0.1)] == [(0, 1)]
    assert told(listener.odata(0)) + told(listener.odata(1)) == [b"apdu 0", b"apdu 1"]


def test_the_same_source_is_not_taken_for_another_one() -> None:
    """It has sent nothing since: its lead is the number before the next one."""
    listener = resumed(5)
    assert told(listener.spm(0, 4)) == []
    assert told(listener.spm(0, 4)) == []
    assert told(listener.odata(5)) == [b"apdu 5"]


def test_one_that_is_silent_ends_and_one_without_room_begins_when_it_is_heard() -> None:
    listener = resumed(5)
    out = [output for _, output in listener.until(listener.now + SESSION_IDLE + 1)]
    assert told(out) == [EndReason.SILENT]
    full = listening(sessions_max=1)
    other = KEY._replace(tsi=TSI._replace(source_port=9))
    assert full.receiver.resume(other, 5, full.now) == []
    assert [session.key for session in full.receiver] == [KEY]
    assert full.receiver.resume(KEY, 7, full.now) == [], "it is heard already"
