"""[MC-MQSRM] 3.1.2.3 and 3.1.6.3, Stream Receipt Coalescing Timer; 3.1.1.3.2, what a stream receipt says."""

from __future__ import annotations

import pytest

from srmp_spark.srmp.receiving.receiver import ReceiverSettings
from tests.kit.playbook import (
    SENDER,
    STREAM,
    Playbook,
    commit_begins,
    commit_ends,
    delivered,
    failed,
    given_up,
    ok,
    operator,
    post,
    repeated,
    restart,
    row,
    stream_message,
    stream_receipt,
    synced,
    tick,
)

LEDGER = "private$/ledger"


def test_the_timer_starts_when_the_message_is_durably_stored_and_runs_500_milliseconds() -> None:
    """ "The protocol MUST start the timer when it receives a stream message and durably stores it to disk"."""
    assert (
        Playbook()
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> tick(3)  # a slow disk
        >> synced()
        << ok()
        >> tick(0.499)
        >> tick(0.001)
        << stream_receipt(last_ordinal=1)
        >> delivered()
        >> tick(
            3600
        )  # "MUST stop the Stream Receipt Coalescing Timer" (3.1.6.3): nothing is owed any more
    )


def test_a_further_message_delays_the_receipt_another_500_milliseconds() -> None:
    assert (
        Playbook()
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> synced()
        << ok()
        >> tick(0.4)
        >> post(stream_message(2))
        << row(LEDGER, 2)
        >> synced()
        << ok()
        >> tick(0.499)
        >> tick(0.001)
        << stream_receipt(last_ordinal=2)
    )


def _steady(playbook: Playbook, first: int, count: int, every: float) -> list[tuple[float, str]]:
    """A message every ``every`` seconds: when which receipt left, in seconds from the first; each is delivered at once."""
    begin = playbook.clock.now
    receipts = []
    for number in range(first, first + count):
        playbook.step(post(stream_message(number)))
        playbook.step(synced())
        for _ in range(round(every * 100)):
            for output in playbook.step(tick(0.01)):
                receipts.append((round(playbook.clock.now - begin, 2), str(output)))
                playbook.step(delivered())
    return receipts


def test_delays_end_10_seconds_after_the_first_message_that_is_not_acknowledged() -> None:
    """3.1.1.3.2: "This process continues and can delay the stream receipt up to 10 seconds"."""
    playbook = Playbook()
    assert _steady(playbook, 1, 75, 0.4) == [
        # Messages 24 and 25 have not been stored for 500 ms; the samples that tell lie at 8.8 and 9.6 s.
        (10.0, str(stream_receipt(last_ordinal=23))),
        (18.8, str(stream_receipt(last_ordinal=45))),
        (27.6, str(stream_receipt(last_ordinal=67))),
    ]


@pytest.mark.parametrize("every", [0.01, 0.07, 0.4, 0.49])
def test_a_receipt_comes_half_a_second_to_ten_and_a_half_after_every_message_it_covers(
    every: float,
) -> None:
    """3.1.1.3.2: "a minimum of 500 milliseconds", also for the message that arrives just before the 10 s are over."""
    count = int(25 / every)
    covered = 0
    for at, receipt in _steady(Playbook(), 1, count, every):
        last = int(receipt.split("last_ordinal=")[1].split()[0])
        step = round(every * 100) / 100
        assert at - (last - 1) * step >= 0.49  # the clock of this test ticks in hundredths
        assert at - covered * step <= 10.51
        covered = last
    assert covered > count / 2


def test_a_stream_that_was_idle_for_an_hour_coalesces_as_ever() -> None:
    """The text clears UnackedStreamMessageArrivalTime only after ten seconds: the next receipt would not wait at all."""
    assert (
        Playbook()
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> synced()
        << ok()
        >> tick(0.5)
        << stream_receipt(last_ordinal=1)
        >> delivered()
        >> tick(3600)
        >> post(stream_message(2))
        << row(LEDGER, 2)
        >> synced()
        << ok()
        >> tick(0.4)
        >> post(stream_message(3))
        << row(LEDGER, 3)
        >> synced()
        << ok()
        >> tick(0.499)
        >> tick(0.001)
        << stream_receipt(last_ordinal=3)
    )


def test_a_receipt_names_only_what_is_on_stable_storage() -> None:
    """ "The receiving QM MUST durably store a stream message to disk before sending a stream receipt"."""
    assert (
        Playbook()
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> synced()
        << ok()
        >> post(stream_message(2))
        << row(LEDGER, 2)
        >> commit_begins()
        >> post(stream_message(3))
        << row(LEDGER, 3)
        >> tick(0.5)
        << stream_receipt(last_ordinal=1)
        >> commit_ends()
        << ok()
        >> delivered()
        >> tick(0.5)
        << stream_receipt(last_ordinal=2)
    )


def test_a_receipt_stops_before_a_gap() -> None:
    """ "if it receives messages 1, 2, and 4 within a sequence, it cannot send a receipt for message 4"."""
    assert (
        Playbook()
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> post(stream_message(2))
        << row(LEDGER, 2)
        >> post(stream_message(4))
        << repeated("gap")
        >> synced()
        << ok(3)
        >> tick(0.5)
        << stream_receipt(last_ordinal=2)
    )


def test_a_gap_that_previous_allows_is_no_gap_for_receipts() -> None:
    """Taken literally ("no gaps in sequence numbers", 3.1.6.3) one expired message would end all receipts."""
    assert (
        Playbook()
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> post(stream_message(4, previous=1))
        << row(LEDGER, 2)
        >> synced()
        << ok(2)
        >> tick(0.5)
        << stream_receipt(last_ordinal=4)
    )


def test_a_repeat_of_an_accepted_position_asks_for_the_receipt_again() -> None:
    """Ours: 3.1.5.1.6.3 ignores it, and one receipt that the sender lost stops the stream for ever."""
    assert (
        Playbook()
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> synced()
        << ok()
        >> tick(0.5)
        << stream_receipt(last_ordinal=1)
        >> delivered()
        >> tick(30)
        >> post(stream_message(1))
        << repeated("position")
        >> synced()
        << ok()
        >> tick(0.499)
        >> tick(0.001)
        << stream_receipt(last_ordinal=1)
        >> delivered()
        >> tick(3600)
    )


def test_a_gap_and_a_late_copy_ask_for_no_receipt() -> None:
    assert (
        Playbook()
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> synced()
        << ok()
        >> tick(0.5)
        << stream_receipt(last_ordinal=1)
        >> delivered()
        >> post(stream_message(3))
        << repeated("gap")
        >> post(stream_message(1, stream=STREAM - 1))
        << repeated("stale")
        >> synced()
        << ok(2)
        >> tick(3600)
    )


def test_a_receipt_that_failed_goes_out_again_after_the_retransmission_timeout() -> None:
    assert (
        Playbook()
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> synced()
        << ok()
        >> tick(0.5)
        << stream_receipt(last_ordinal=1)
        >> tick(4)
        >> failed()
        >> tick(19.999)
        >> tick(0.001)
        << stream_receipt(last_ordinal=1)
        >> delivered()
        >> tick(3600)
    )


def test_the_retransmission_timeout_is_a_setting() -> None:
    assert (
        Playbook(ReceiverSettings(retransmission_timeout=5))
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> synced()
        << ok()
        >> tick(0.5)
        << stream_receipt(last_ordinal=1)
        >> failed()
        >> tick(4.999)
        >> tick(0.001)
        << stream_receipt(last_ordinal=1)
    )


def test_a_message_of_the_stream_shows_that_the_peer_lives_and_ends_the_wait_for_the_retry() -> (
    None
):
    """Else one lost receipt would hold up the next ones beyond the ten seconds of 3.1.1.3.2."""
    assert (
        Playbook()
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> synced()
        << ok()
        >> tick(0.5)
        << stream_receipt(last_ordinal=1)
        >> failed()
        >> tick(3)
        >> post(stream_message(2))
        << row(LEDGER, 2)
        >> synced()
        << ok()
        >> tick(0.499)
        >> tick(0.001)
        << stream_receipt(last_ordinal=2)
        >> failed()
        >> post(stream_message(2))
        << repeated("position")
        >> synced()
        << ok()
        >> tick(0.5)
        << stream_receipt(last_ordinal=2)
    )


def test_a_receipt_that_the_peer_refuses_for_good_waits_for_the_next_message() -> None:
    assert (
        Playbook()
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> synced()
        << ok()
        >> tick(0.5)
        << stream_receipt(last_ordinal=1)
        >> failed(permanent=True)
        << given_up(last_ordinal=1)
        >> tick(86400)
        >> post(stream_message(2))
        << row(LEDGER, 2)
        >> synced()
        << ok()
        >> tick(0.5)
        << stream_receipt(last_ordinal=2)
    )


def test_one_receipt_of_a_stream_is_under_way_at_a_time() -> None:
    assert (
        Playbook()
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> synced()
        << ok()
        >> tick(0.5)
        << stream_receipt(last_ordinal=1)
        >> post(stream_message(2))
        << row(LEDGER, 2)
        >> synced()
        << ok()
        >> tick(8)  # the first one is slow
        >> delivered()
        >> tick(0)
        << stream_receipt(last_ordinal=2)
    )


def test_the_receipt_of_an_ended_stream_says_nothing_about_the_next() -> None:
    playbook = Playbook()
    assert (
        playbook
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> post(stream_message(2))
        << row(LEDGER, 2)
        >> synced()
        << ok(2)
        >> tick(0.5)
        << stream_receipt(last_ordinal=2)
        >> post(stream_message(1, stream=STREAM + 1, uniquifier=7))
        << row(LEDGER, 3)
        >> synced()
        << ok()
        >> delivered()  # of the first stream, while the second is live
        >> tick(0.5)
        << stream_receipt(last_ordinal=1, stream=STREAM + 1)
        >> delivered()
    )
    (stream,) = playbook.receiver.streams
    assert stream.last_acknowledged == 1


def test_a_new_stream_does_not_wait_for_the_retry_of_the_old_ones_receipt() -> None:
    assert (
        Playbook()
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> synced()
        << ok()
        >> tick(0.5)
        << stream_receipt(last_ordinal=1)
        >> failed()
        >> post(stream_message(1, stream=STREAM + 1, uniquifier=7))
        << row(LEDGER, 2)
        >> synced()
        << ok()
        >> tick(0.5)
        << stream_receipt(last_ordinal=1, stream=STREAM + 1)
        >> delivered()
        >> tick(3600)
    )


def test_after_a_restart_a_receipt_is_owed_to_each_stream_until_it_was_delivered() -> None:
    """Nobody knows whether the last one arrived. 3.1.3.2 forgets what was acknowledged; we saved it."""
    assert (
        Playbook()
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> synced()
        << ok()
        >> tick(0.5)
        << stream_receipt(last_ordinal=1)
        >> restart()
        >> tick(0)
        << stream_receipt(last_ordinal=1)
        >> delivered()
        >> synced()
        >> restart()
        >> tick(3600)
    )


def test_what_a_crash_lost_is_never_acknowledged() -> None:
    assert (
        Playbook()
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> synced()
        << ok()
        >> post(stream_message(2))
        << row(LEDGER, 2)
        >> commit_begins()
        >> restart(commit_survives=False)
        >> tick(3600)
        << stream_receipt(last_ordinal=1)
        >> post(stream_message(2))
        << row(LEDGER, 2)
    )


def test_what_reached_the_disk_before_its_answer_left_is_acknowledged_and_not_doubled() -> None:
    assert (
        Playbook()
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> commit_begins()
        >> restart(commit_survives=True)
        >> tick(0)
        << stream_receipt(last_ordinal=1)
        >> post(stream_message(1))
        << repeated("position")
    )


def test_a_dropped_stream_owes_nothing() -> None:
    assert (
        Playbook()
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> synced()
        << ok()
        >> operator("drop", lambda receiver: receiver.drop_stream(LEDGER, SENDER))
        >> tick(3600)
    )


def test_the_result_of_a_receipt_may_come_after_its_stream_was_dropped() -> None:
    assert (
        Playbook()
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> synced()
        << ok()
        >> tick(0.5)
        << stream_receipt(last_ordinal=1)
        >> operator("drop", lambda receiver: receiver.drop_stream(LEDGER, SENDER))
        >> failed()
        >> post(stream_message(1, uniquifier=7))
        << row(LEDGER, 2)
        >> delivered()
        >> synced()
        << ok()
        >> tick(0.5)
        << stream_receipt(last_ordinal=1)
    )
