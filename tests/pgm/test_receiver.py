"""The receiver: RFC 3208 6 and 9, [MC-MQSRM] 2.1.3.1 and <3>, sentence by sentence."""

from __future__ import annotations

import pytest
from pgm_kit import DPORT, GROUP, RECEIVER, SOURCE, TSI, Listener, listening, told

from srmp_spark.errors import ConfigurationError, LocalProtocolError
from srmp_spark.pgm.outputs import DataLost, LossReason, Multicast, Unicast
from srmp_spark.pgm.receiving.receive_window import MISSING_WINDOWS
from srmp_spark.pgm.receiving.repair_states import TRANSITIONS, RepairEvent, RepairState
from srmp_spark.pgm.receiving.repairs import Repair
from srmp_spark.pgm.settings import PgmReceiverSettings
from srmp_spark.pgm.wire.addresses import Tsi, nla_of
from srmp_spark.pgm.wire.decoder import decode
from srmp_spark.pgm.wire.limits import NAK_LIST_MAX
from srmp_spark.pgm.wire.packets import Data, Nak, Options, PacketType, Reset, Spm
from srmp_spark.pgm.wire.sequence import unwrap, wrap

TRAIL, RETRIES, LIMIT = LossReason.TRAIL, LossReason.RETRIES, LossReason.LIMIT


def test_the_constants_are_those_of_the_document() -> None:
    """[MC-MQSRM] 2.1.3.1, the table; NAK_RB_IVL below it."""
    s = PgmReceiverSettings()
    assert (s.nak_rpt_ivl, s.nak_rdata_ivl, s.nak_ncf_retries, s.nak_data_retries) == (
        0.75,
        2,
        10,
        10,
    )
    assert s.nak_rb_ivl == (0.01, 0.05)


# --- data -----------------------------------------------------------------------------------------------------------------


def test_contiguous_data_are_told_at_once_and_duplicates_never() -> None:
    """RFC 3208 6.1."""
    listener = listening()
    assert told(listener.odata(0)) == [b"apdu 0"]
    assert told(listener.odata(1)) == [b"apdu 1"]
    assert told(listener.odata(1)) == told(listener.odata(0, is_repair=True)) == []


def test_data_are_told_in_the_order_sent_not_received() -> None:
    """6.1, and [MC-MQSRM] <3>: "only in the order sent, not in the order received"."""
    listener = listening()
    assert told(listener.odata(2)) == told(listener.odata(1)) == told(listener.odata(2)) == []
    assert told(listener.odata(0)) == [b"apdu 0", b"apdu 1", b"apdu 2"]


def test_reception_begins_with_the_first_data_and_nothing_before_is_asked_for() -> None:
    """6.1: "the receiver MUST only request repairs for sequence numbers subsequent to RXW_TRAIL_INIT"."""
    listener = Listener()
    assert told(listener.odata(100, trail=3)) == [("from", 100), b"apdu 100"]
    listener.spm(3, 100)
    assert listener.asks(5.0) == []
    assert told(listener.odata(99, trail=3)) == []


def test_reception_begins_behind_the_lead_of_an_spm() -> None:
    """So the first data are missed when they are lost."""
    listener = Listener()
    assert told(listener.spm(3, 100)) == [("from", 101)]
    listener.odata(102, trail=3)
    assert [numbers for _, numbers in listener.asks(0.1)] == [(101,)]


def test_an_spm_without_a_window_begins_nothing() -> None:
    """8.1: "If SPM_TRAIL == 0 and SPM_LEAD == 0x80000000"."""
    listener = Listener()
    assert told(listener.spm(0, 0x80000000)) == []
    assert told(listener.odata(5)) == [("from", 5), b"apdu 5"]


def test_opt_join_begins_earlier() -> None:
    """9.4.2, and not earlier than the trail."""
    for join, trail, honour, first in (
        (95, 90, True, 95),
        (85, 90, True, 90),
        (95, 90, False, 101),
        (101, 90, True, 101),
    ):
        listener = Listener(honour_join=honour)
        assert told(listener.spm(trail, 100, options=Options(join=join))) == [("from", first)]
        expected = tuple(range(first, 101))
        assert [numbers for _, numbers in listener.asks(0.1)] == ([expected] if expected else [])


def test_numbers_wrap() -> None:
    listener = Listener()
    last = 2**32 - 1
    assert told(listener.spm(last - 5, last - 1)) == [("from", last)]
    assert told(listener.odata(1, trail=last - 5)) == []
    assert listener.asks(0.1) == [(0.05, (last, 0))]
    assert told(listener.odata(0, trail=last)) == []
    assert told(listener.odata(last, trail=last)) == [b"apdu %d" % last, b"apdu 0", b"apdu 1"]


def test_a_number_of_the_wire_is_the_nearest() -> None:
    for near in (0, 5, 2**31, 2**32 - 1, 2**32, 7 * 2**32 + 3):
        for away in (-(2**31), -1, 0, 1, 2**31 - 1):
            assert unwrap(wrap(near + away), near) == near + away


# --- NAKs -----------------------------------------------------------------------------------------------------------------


def test_a_missing_number_is_asked_for_after_a_back_off() -> None:
    """6.3: detected by the next data, unicast to SPM_PATH, and multicast with TTL 1 ([MC-MQSRM] <3> of 6.3)."""
    listener = listening()
    listener.odata(2)
    assert listener.receiver.next_timer() == listener.now + 0.05
    naks = listener.receiver.poll(listener.now + 0.05)
    packet = naks[0].packet
    assert naks == [Unicast(SOURCE, packet), Multicast(packet)]
    assert decode(packet) == Nak(
        PacketType.NAK, TSI, DPORT, 0, SOURCE, GROUP, Options(nak_list=(1,))
    )
    alone = listening(multicast_naks=False)
    alone.odata(2)
    assert [type(out) for out in alone.receiver.poll(alone.now + 0.05)] == [Unicast]


def test_naks_go_to_the_path_of_the_newest_spm_where_it_is_trusted() -> None:
    """6.2: "MUST use the most recent SPM to determine the NLA of the upstream PGM network element"."""
    listener = listening(trust_spm_path=True)
    listener.odata(1)
    listener.spm(0, 1, path=RECEIVER)
    listener.spm(0, 1, path=GROUP, sequence_number=1)
    assert [
        out.to for _, out in listener.until(listener.now + 0.1) if isinstance(out, Unicast)
    ] == [RECEIVER]


def test_naks_go_to_nobody_whom_a_forged_spm_names() -> None:
    listener = listening()
    listener.odata(1)
    listener.spm(0, 1, path=RECEIVER)
    assert [
        out.to for _, out in listener.until(listener.now + 0.1) if isinstance(out, Unicast)
    ] == [SOURCE]


def test_many_sessions_ask_no_more_often_than_two() -> None:
    """A session is made up with one packet: 64 of them asked 6,400 times a second."""
    listener = listening(nak_rate_max=100.0, nak_rate_all_max=200.0, sessions_max=64)
    for number in range(60):
        made_up = Tsi(b"forged", number + 1)
        listener.spm(0, 10_000, tsi=made_up)
        listener.odata(
            10_500, tsi=made_up
        )  # 500 are missing: more than all of them may be asked for in three seconds
    asked = [out for _, out in listener.until(listener.now + 3.0) if isinstance(out, Unicast)]
    assert 200 <= len(asked) <= 3 * 200 + 20


def test_nothing_is_asked_for_before_the_first_spm() -> None:
    """6.2: "MUST NOT initiate repair requests until it has received at least one SPM"."""
    listener = Listener()
    listener.odata(0)
    listener.odata(2)
    assert listener.asks(30.0) == []
    listener.spm(0, 2)
    assert listener.asks(0.1) == [(0.05, (1,))]


def test_loss_is_detected_by_the_lead_of_an_spm() -> None:
    """6.3: "by comparing SPM_LEAD … with the leading edge of contiguous data"."""
    listener = listening()
    listener.odata(0)
    listener.spm(0, 2)
    assert listener.asks(0.1) == [(0.05, (1, 2))]


def test_what_is_only_late_is_not_asked_for() -> None:
    """6.3: "temper the initiation of NAK generation to account for simple mis-ordering"."""
    listener = listening()
    listener.odata(1)
    listener.now += 0.04
    listener.odata(0)
    assert listener.asks(5.0) == []


def test_a_nak_is_repeated_every_nak_rpt_ivl_until_it_is_confirmed() -> None:
    listener = listening()
    listener.odata(1)
    assert listener.asks(2.0) == [(0.05, (0,)), (0.85, (0,)), (1.65, (0,))]
    listener.ncf(0)
    assert listener.asks(2.04) == []
    assert listener.asks(0.1) == [(0.01, (0,))]
    assert told(listener.odata(0, is_repair=True)) == [b"apdu 0", b"apdu 1"]
    assert listener.asks(20.0) == []


def test_after_the_retries_the_number_is_lost() -> None:
    """6.3: "Cancellation of NAK generation indicates unrecoverable data loss"."""
    listener = listening(session_idle=60.0)
    listener.odata(3)
    out = listener.until(1030.0)
    naks = [at for at, each in out if isinstance(each, Unicast)]
    assert len(naks) == 11, "one, and NAK_NCF_RETRIES more"
    events = [
        (round(at - 1000.0, 3), told([each])) for at, each in out if not isinstance(each, Unicast)
    ]
    assert events == [(8.8, [(0, 2, RETRIES)]), (8.8, [b"apdu 3"])]
    confirmed = listening(session_idle=60.0)
    confirmed.odata(1)
    count, lost = 0, []
    while not lost:
        for _, each in confirmed.until(confirmed.now + 0.1):
            if isinstance(each, Unicast):
                count += 1
                confirmed.ncf(0)
            else:
                lost += told([each])
    assert (count, lost) == (11, [(0, 0, RETRIES), b"apdu 1"])


def test_a_matching_ncf_or_nak_suppresses_ours() -> None:
    """6.3: NAK suppression; both restart the wait, an NCF for NAK_RDATA_IVL, a NAK for NAK_RPT_IVL."""
    for kind, again in ((PacketType.NCF, 2.05), (PacketType.NAK, 0.8)):
        listener = listening()
        listener.odata(1)
        listener.ncf(0, kind=kind)
        assert listener.asks(again + 0.01) == [(again, (0,))]


def test_naks_of_others_while_we_wait_for_data_begin_the_wait_anew() -> None:
    listener = listening()
    listener.odata(1)
    listener.ncf(0)
    for _ in range(5):
        assert listener.asks(1.9) == []
        listener.ncf(0, kind=PacketType.NAK)
    assert listener.asks(2.1) == [(2.05, (0,))]


def test_others_cannot_keep_us_waiting_for_ever() -> None:
    """repair_secs: each NCF begins the wait anew, by the letter of the RFC without end."""
    listener = listening(repair_secs=20.0, session_idle=60.0)
    listener.odata(1)
    out = []
    while not out:
        listener.ncf(0)
        out = [
            each for _, each in listener.until(listener.now + 1.0) if not isinstance(each, Unicast)
        ]
    assert told(out) == [(0, 0, RETRIES), b"apdu 1"]
    assert listener.now == pytest.approx(1020.0, abs=1.0)


def test_ncfs_and_naks_for_what_came_or_is_outside_are_discarded() -> None:
    """6.3: "MUST discard any NCFs or NAKs it hears for data packets outside the transmit window or … received"."""
    listener = listening()
    listener.odata(0)
    listener.odata(2)
    for number in (0, 2, 77, 2**31, 2**32 - 1):
        assert listener.ncf(number) == []
    assert listener.asks(0.1) == [(0.05, (1,))]


def test_a_list_has_at_most_sixty_three_numbers_oldest_first() -> None:
    """9.3, and 6.3: "in order from oldest to most recent"."""
    listener = listening()
    listener.odata(150)
    asked = [numbers for _, numbers in listener.asks(0.1)]
    assert [len(numbers) for numbers in asked] == [NAK_LIST_MAX + 1, NAK_LIST_MAX + 1, 24]
    assert sum(asked, ()) == tuple(range(150))


def test_a_list_in_an_ncf_counts_for_each_of_its_numbers() -> None:
    listener = listening()
    listener.odata(4)
    listener.ncf(0, 2, 3)
    assert listener.asks(0.1) == [(0.05, (1,))]


def test_no_more_naks_than_nak_rate_max() -> None:
    listener = listening(nak_rate_max=10.0, session_idle=600.0)
    listener.odata(5000)
    asked = listener.asks(4.0)
    for begin, (from_at, _) in enumerate(asked):
        for count, (at, _) in enumerate(asked[begin:], 1):
            assert count <= 1 + 10.0 * (at - from_at) + 1e-6
    assert 35 < len(asked) < 45
    assert asked[0][1][0] == 0


# --- the window -------------------------------------------------------------------------------------------------------------


def test_when_the_trail_moves_what_is_missing_before_it_is_lost() -> None:
    """6.3: "if the trailing edge of the window moves beyond the sequence number, data recovery … terminates"."""
    for by_spm in (True, False):
        listener = listening()
        listener.odata(2)
        listener.odata(5)
        out = listener.spm(4, 5) if by_spm else listener.odata(6, trail=4)
        assert told(out) == [(0, 1, TRAIL), b"apdu 2", (3, 3, TRAIL)]
        assert [numbers for _, numbers in listener.asks(0.1)] == [(4,)]
        assert told(listener.odata(3, trail=3)) == [], "outside the window"


def test_a_window_that_moved_on_without_us_is_one_exact_range() -> None:
    """Numbers that we never heard of are lost too."""
    listener = listening()
    listener.odata(0)
    assert told(listener.spm(1_000_000, 999_999)) == [(1, 999_999, TRAIL)]
    assert told(listener.odata(1_000_000, trail=1_000_000)) == [b"apdu 1000000"]
    lost = listener.spm(2**31, 2**31 - 1)[0]
    assert isinstance(lost, DataLost)
    assert lost.packets == 2**31 - 1_000_001


def test_values_of_a_window_that_are_less_than_known_are_ignored() -> None:
    """6.2: and "the rest of the packet SHOULD be processed as normal"."""
    listener = listening(trust_spm_path=True)
    listener.odata(0)
    listener.odata(5, trail=3)
    assert told(listener.spm(1, 2, path=RECEIVER)) == []
    assert [
        out.to for _, out in listener.until(listener.now + 0.1) if isinstance(out, Unicast)
    ] == [RECEIVER]


def test_spms_out_of_sequence_are_discarded() -> None:
    """6.2: "greater than that of the most recent in-sequence SPM and within half the PGM number space"."""
    listener = listening()
    assert told(listener.hears(Spm(TSI, DPORT, 2**32 - 5, 9, 8, SOURCE))) == []
    assert told(listener.hears(Spm(TSI, DPORT, 1, 9, 8, SOURCE))) == []
    assert told(listener.hears(Spm(TSI, DPORT, 2, 9, 8, SOURCE))) == [(0, 8, TRAIL)]


def test_a_number_too_far_ahead_gives_up_the_oldest() -> None:
    """RXW_SQNS_MAX: one forged packet must not cost a list of 2^31 numbers."""
    listener = listening(rxw_sqns_max=10)
    listener.odata(1)
    assert told(listener.odata(2**30, trail=0)) == [
        (0, 0, LIMIT),
        b"apdu 1",
        (2, 2**30 - 10, LIMIT),
    ]
    assert len(listener.asks(0.1)[0][1]) == 9


def test_no_more_octets_are_held_than_the_limits() -> None:
    listener = listening(rxw_bytes_max=100_000, session_idle=60.0)
    out = []
    for number in range(1, 200):
        out += listener.odata(number, b"x" * 1000)
        (session,) = listener.receiver
        assert session.window is not None
        assert session.window.octets <= 100_000
    assert told(out)[0] == (0, 0, LIMIT)
    assert told(out)[1:] == [b"x" * 1000] * 199


def test_a_list_of_missing_numbers_counts_too() -> None:
    """Nothing is held behind them: the older half is given up, and again."""
    listener = listening(rxw_bytes_max=100_000)
    assert told(listener.odata(10_000)) == [(0, 9842, LIMIT)]
    (session,) = listener.receiver
    assert session.window is not None
    assert (session.window.next, session.window.octets <= 100_000) == (9843, True)


def test_all_sessions_together_hold_no_more_than_the_budget_and_who_passes_it_pays() -> None:
    listener = Listener(buffer_bytes_max=100_000)
    addresses = [nla_of(f"10.0.0.{number}") for number in range(1, 5)]
    for source in addresses:
        listener.hears(Data(False, TSI, DPORT, 0, 0, b"x"), source)
    for number in range(2, 60):
        for source in addresses[: 4 if number < 10 else 1]:
            listener.hears(Data(False, TSI, DPORT, number, 0, b"x" * 1000), source)
            assert listener.receiver.budget.used <= 100_000
    windows = [session.window for session in listener.receiver]
    assert [window is not None and window.next for window in windows] == [60, 1, 1, 1]


def test_no_more_sessions_than_sessions_max() -> None:
    listener = Listener(sessions_max=3, session_idle=10.0)
    for number in range(5):
        listener.odata(0, tsi=TSI._replace(source_port=number))
    assert len(listener.receiver) == 3
    assert listener.receiver.counts["session refused"] == 2
    listener.hears(Spm(TSI._replace(source_port=1), DPORT, 0, 0, 0, SOURCE, Options(reset=Reset())))
    listener.odata(0, tsi=TSI._replace(source_port=9))
    assert {session.key.tsi.source_port for session in listener.receiver} == {0, 2, 9}, (
        "an ended one makes room"
    )
    listener.until(1100.0)
    assert len(listener.receiver) == 0
    assert listener.receiver.next_timer() is None


@pytest.mark.parametrize("state", RepairState)
@pytest.mark.parametrize("event", RepairEvent)
def test_every_pair_of_the_table_of_repairs(state: RepairState, event: RepairEvent) -> None:
    repair = Repair(0.0)
    repair.state = state
    if (state, event) in TRANSITIONS:
        repair.move(event)
        assert repair.state is TRANSITIONS[state, event]
    else:
        with pytest.raises(LocalProtocolError, match="cannot happen to a missing number"):
            repair.move(event)


@pytest.mark.parametrize(
    "wrong",
    [
        {"nak_rb_ivl": (0.05, 0.01)}, {"nak_rpt_ivl": 0}, {"nak_data_retries": -1}, {"sessions_max": 0}, {"rxw_sqns_max": 1},
        {"rxw_bytes_max": 1000}, {"nak_rate_max": 0},
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        PgmReceiverSettings(**wrong)  # type: ignore[arg-type]


def test_what_is_missing_faster_than_it_can_be_asked_for_is_given_up_and_told() -> None:
    """Each forged SPM made a list of RXW_SQNS_MAX numbers, 50 ms of work: twenty a second stopped the process."""
    listener = listening(rxw_sqns_max=100, nak_rate_max=1.0)
    lists: list[int] = []
    for jump in range(1, 201):
        listener.now += 0.001
        (session,) = listener.receiver
        assert session.window is not None
        before = session.window.lead
        listener.spm(0, 100 * jump - 1)
        lists.append(session.window.missing)
        assert session.window.lead == before + 100
    assert lists[:MISSING_WINDOWS] == [100] * MISSING_WINDOWS, (
        "as much at once as an outage leaves behind"
    )
    assert sum(lists[MISSING_WINDOWS:]) <= 2 * 63 * 0.2 + 1, "and what NAKs can ask for"
    out = listener.odata(100 * 200, trail=100 * 200)
    assert told(out)[-1] == b"apdu 20000"


def test_nothing_of_a_jump_is_given_up_without_a_word() -> None:
    listener = listening(rxw_sqns_max=100, nak_rate_max=1.0)
    found = []
    for jump in range(1, 51):
        found += listener.spm(0, 100 * jump - 1)
    found += listener.odata(5_000, trail=5_000)
    losses = [each for each in found if isinstance(each, DataLost)]
    assert [each.first for each in losses] == [0, *(each.last + 1 for each in losses[:-1])]
    assert losses[-1].last == 4_999
