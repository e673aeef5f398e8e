"""The source: RFC 3208 5, 9, 16 and [MC-MQSRM] 2.1.3.1, sentence by sentence."""

from __future__ import annotations

import pytest
from pgm_kit import DPORT, GROUP, RECEIVER, SOURCE, TSI, Sender

from srmp_spark.errors import ConfigurationError, LocalProtocolError
from srmp_spark.pgm.outputs import Multicast
from srmp_spark.pgm.sending.source_states import TRANSITIONS, PgmSourceEvent, PgmSourceState
from srmp_spark.pgm.sending.spm_schedule import SPMS_AT_START
from srmp_spark.pgm.settings import PgmSourceSettings
from srmp_spark.pgm.wire.encoder import encode
from srmp_spark.pgm.wire.limits import APDU_SENT_MAX
from srmp_spark.pgm.wire.packets import (
    Data,
    Fragment,
    Nak,
    Options,
    Packet,
    PacketType,
    Reset,
    Spm,
    Spmr,
)

FAST = {"txw_max_rte": 1e7}


def data_of(packets: list[Packet]) -> list[Data]:
    return [packet for packet in packets if isinstance(packet, Data)]


def spms_of(left: list[tuple[float, Packet]]) -> list[tuple[float, Spm]]:
    return [(round(at - 1000.0, 6), packet) for at, packet in left if isinstance(packet, Spm)]


def test_the_constants_are_those_of_the_document() -> None:
    """[MC-MQSRM] 2.1.3.1, the table."""
    s = PgmSourceSettings()
    assert (s.txw_max_rte, s.txw_secs, s.txw_adv_secs, s.txw_adv_ivl) == (70_000, 300, 45, 45)
    assert (s.ihb_min, s.ihb_max, s.token_bucket) == (1, 15, 0.040)
    assert (s.ambient_spm_packets, s.ambient_spm_ivl, s.rdata_delay) == (50, 0.5, 0.060)


# --- data ---------------------------------------------------------------------------------------------------------------------


def test_three_spms_go_before_the_first_data_and_say_that_the_window_is_empty() -> None:
    """As many as OpenPGM sends: nobody asks for repairs before one of them came (RFC 3208 6.2), and one may be lost."""
    sender = Sender(first=7)
    sender.source.send(b"hello")
    begin = [Spm(TSI, DPORT, number, 7, 6, SOURCE) for number in range(SPMS_AT_START)]
    assert sender.says() == [*begin, Data(False, TSI, DPORT, 7, 7, b"hello")]
    assert Sender(first=0).says()[0] == Spm(TSI, DPORT, 0, 0, 2**32 - 1, SOURCE)
    assert [at for at, _ in spms_of(Sender().until(1001.2))] == [0.0] * SPMS_AT_START + [0.5, 1.0]


def test_apdus_are_cut_into_fragments_and_one_that_fits_has_no_option() -> None:
    """9.2.2. OpenPGM crashes on OPT_FRAGMENT in a packet that holds the whole APDU."""
    sender = Sender(tpdu_max=144, **FAST)
    whole, longer, cut = b"x" * 120, b"y" * 121, b"z" * 250
    for apdu in (whole, longer, cut):
        sender.source.send(apdu)
    data = data_of(sender.says())
    assert [(each.sequence_number, len(each.payload), each.options.fragment) for each in data] == [
        (0, 120, None), (1, 100, Fragment(1, 0, 121)), (2, 21, Fragment(1, 100, 121)),
        (3, 100, Fragment(3, 0, 250)), (4, 100, Fragment(3, 100, 250)), (5, 50, Fragment(3, 200, 250)),
    ]  # fmt: skip
    assert b"".join(each.payload for each in data) == whole + longer + cut
    assert {len(encode(each)) for each in data[1:2] + data[3:5]} == {144}


def test_the_numbers_wrap() -> None:
    sender = Sender(first=2**32 - 1, **FAST)
    sender.source.send(b"a")
    sender.source.send(b"b")
    assert [(each.sequence_number, each.trail) for each in data_of(sender.says())] == [
        (2**32 - 1,) * 2,
        (0, 2**32 - 1),
    ]
    sender.now += 0.5
    assert sender.says() == [Spm(TSI, DPORT, SPMS_AT_START, 2**32 - 1, 0, SOURCE)]
    assert sender.hears(0, 2**32 - 1) == [
        Nak(PacketType.NCF, TSI, DPORT, 0, SOURCE, GROUP, Options(nak_list=(2**32 - 1,)))
    ]
    sender.now += 0.06
    assert [(each.is_repair, each.payload) for each in data_of(sender.says())] == [
        (True, b"a"),
        (True, b"b"),
    ], "the oldest first"


def test_an_apdu_has_at_most_64_kilobytes() -> None:
    """[MC-MQSRM] 2.1.3.1: "limit the size of application data packets (APDUs) to 64 kilobytes"."""
    sender = Sender()
    sender.source.send(bytes(APDU_SENT_MAX))
    for apdu in (b"", bytes(APDU_SENT_MAX + 1)):
        with pytest.raises(LocalProtocolError, match="1 to 65535 octets"):
            sender.source.send(apdu)


def test_what_finds_no_room_is_refused_until_something_left() -> None:
    sender = Sender(queue_bytes_max=65_536, **FAST)
    sender.source.send(b"a" * 60_000)
    assert not sender.source.has_room(6_000)
    with pytest.raises(LocalProtocolError, match="has_room"):
        sender.source.send(b"b" * 6_000)
    sender.says()
    assert sender.source.has_room(6_000)


def test_router_alert_is_on_spms_ncfs_and_repairs() -> None:
    """RFC 3208 4."""
    sender = Sender(**FAST)
    sender.source.send(b"a")
    assert [out.router_alert for out in sender.source.poll(sender.now)] == [
        True
    ] * SPMS_AT_START + [False]
    nak = Nak(PacketType.NAK, TSI, DPORT, 0, SOURCE, GROUP)
    assert [out.router_alert for out in sender.source.receive(nak, sender.now)] == [True]
    assert [out.router_alert for out in sender.source.poll(sender.now)] == [True]


# --- the rate -----------------------------------------------------------------------------------------------------------------


def test_no_more_leaves_than_the_token_bucket_allows() -> None:
    """RFC 3208 5.1.2, with 70 KB/s and 40 ms: "over any arbitrarily chosen interval"."""
    sender = Sender()
    sender.source.send(bytes(60_000))
    sender.says()
    for _ in range(3):
        sender.hears(0, 1)
    left = [(at, len(encode(packet))) for at, packet in sender.until(1002.0)]
    assert sum(size for _, size in left) > 60_000, "repairs too"
    for begin, (from_at, _) in enumerate(left):
        octets = 0
        for at, size in left[begin:]:
            octets += size
            assert octets <= 2800 + (at - from_at) * 70_000 + 1


def test_a_packet_larger_than_the_bucket_leaves_all_the_same() -> None:
    """OpenPGM admits none that is larger than its bucket, for ever."""
    sender = Sender(txw_max_rte=1000.0)
    for _ in range(3):
        sender.source.send(bytes(1400))
    left = sender.until(1010.0)
    assert len(data_of([packet for _, packet in left])) == 3


def test_ncfs_go_first_then_spms_then_data_and_repairs_take_turns_with_new_data() -> None:
    """RFC 3208 5.1.3."""
    sender = Sender(**FAST, ncf_repeat_ivl=0.01)
    for number in range(4):
        sender.source.send(b"%d" % number)
    sender.says()
    assert [packet.sequence_number for packet in sender.hears(0, 1, 2)] == [0], "at once"
    sender.now += 0.005
    assert sender.hears(0, 1, 2) == [], "once more at the end of NCF_REPEAT_IVL"
    sender.now += 0.5
    sender.source.send(b"4")
    sender.source.send(b"5")
    kinds = [
        (type(p).__name__, getattr(p, "is_repair", None), p.sequence_number) for p in sender.says()
    ]
    assert kinds == [
        ("Nak", None, 0), ("Spm", None, SPMS_AT_START),
        ("Data", True, 0), ("Data", False, 4), ("Data", True, 1), ("Data", False, 5), ("Data", True, 2),
    ]  # fmt: skip


# --- SPMs ---------------------------------------------------------------------------------------------------------------------


def test_ambient_spms_come_after_half_a_second_or_fifty_packets() -> None:
    """[MC-MQSRM] 2.1.3.1: "either 50 data packets … or 0.5 seconds …, whichever comes sooner"."""
    sender = Sender(**FAST)
    assert [at for at, _ in spms_of(sender.until(1002.2))][SPMS_AT_START - 1 :] == [
        0.0,
        0.5,
        1.0,
        1.5,
        2.0,
    ]
    for _ in range(120):
        sender.source.send(b"x")
    packets = sender.says()
    places = [place for place, packet in enumerate(packets) if isinstance(packet, Spm)]
    assert places == [50, 101]
    numbers = [packet.sequence_number for packet in packets if isinstance(packet, Spm)]
    assert numbers == [SPMS_AT_START + 4, SPMS_AT_START + 5], "in unit increments"


def test_heartbeats_double_from_ihb_min_to_ihb_max_and_begin_anew_with_data() -> None:
    """RFC 3208 5.1.5, with the ambient SPMs an hour apart."""
    sender = Sender(ambient_spm_ivl=3600.0, **FAST)
    beats = [at for at, _ in spms_of(sender.until(1060.0))][SPMS_AT_START - 1 :]
    assert beats == [0.0, 1.0, 3.0, 7.0, 15.0, 30.0, 45.0, 60.0]
    sender.source.send(b"x")
    assert [at for at, _ in spms_of(sender.until(1068.0))] == [61.0, 63.0, 67.0]


def test_an_spmr_is_answered_at_once_and_once_in_ihb_min() -> None:
    """RFC 3208 13.4. Section 13 is left out by 2.1.3, but OpenPGM's receivers ask."""
    sender = Sender(ambient_spm_ivl=3600.0, ihb_min=5.0)
    sender.says()
    for tenth in range(1, 53):
        sender.now = 1000.0 + tenth / 10
        sender.source.receive(Spmr(TSI, DPORT), sender.now)
        assert bool(sender.says()) == (tenth in (1, 51)), tenth


# --- NAKs and repairs ---------------------------------------------------------------------------------------------------------


def sent(count: int, **settings: float) -> Sender:
    sender = Sender(**{**FAST, **settings})
    for number in range(count):
        sender.source.send(b"%d" % number)
    assert len(data_of(sender.says())) == count
    return sender


def test_an_ncf_answers_any_nak_at_once_with_the_same_list() -> None:
    """RFC 3208 5.2 and 9.3.4: "any NAK it receives", so those outside the window too; RDATA only within (5.3)."""
    sender = sent(5)
    assert sender.hears(1, 3, 4) == [
        Nak(PacketType.NCF, TSI, DPORT, 1, SOURCE, GROUP, Options(nak_list=(3, 4)))
    ]
    assert sender.hears(500) == [Nak(PacketType.NCF, TSI, DPORT, 500, SOURCE, GROUP)]
    sender.now += 0.06
    assert [each.sequence_number for each in data_of(sender.says())] == [1, 3, 4]
    assert sender.source.counts["nak outside the window"] == 1


def test_a_repair_carries_the_trail_of_now() -> None:
    """RFC 3208 3.6.2.2: "updated to the most current value when the repair is sent"."""
    sender = sent(3, txw_secs=10.0, txw_adv_secs=2.0, txw_adv_ivl=2.0)
    sender.until(1009.0)
    sender.source.send(b"new")
    sender.until(1011.0)
    assert sender.source.window.trail == 3
    sender.hears(3)
    assert [
        (each.sequence_number, each.trail, each.payload) for each in data_of(sender.says())
    ] == [(3, 3, b"new")]


def test_rdata_waits_by_the_formula() -> None:
    """[MC-MQSRM] 2.1.3.1: ((RDataSequenceNumber - Trailing) * 60 msecs) / (LastODataSent - Trailing + 1)."""
    sender = sent(60, ambient_spm_ivl=3600.0)
    sender.hears(0, 30, 59)
    begin = sender.now
    repairs = [(round(at - begin, 6), packet.sequence_number)
               for at, packet in sender.until(begin + 0.5) if isinstance(packet, Data)]  # fmt: skip
    assert repairs == [(0.0, 0), (0.030, 30), (0.059, 59)]


def test_a_number_that_waits_already_is_repaired_once() -> None:
    """ "To accommodate the arrival of additional negative acknowledgments"."""
    sender = sent(10)
    for _ in range(5):
        sender.hears(8)
    left = [packet for _, packet in sender.until(1000.4)]
    assert [each.sequence_number for each in data_of(left)] == [8]
    sender.hears(8)
    assert [
        each.sequence_number for each in data_of([packet for _, packet in sender.until(1000.9)])
    ] == [8], "again, later"


def test_a_storm_of_naks_is_no_storm_of_ncfs() -> None:
    """RFC 3208 5.2: identical ones share, and beyond ncf_rate_max none goes."""
    sender = sent(100, ncf_rate_max=50.0)
    assert [len(sender.hears(7)), len(sender.hears(7))] == [1, 0], "the same NAK by the group"
    sender.now += 0.02
    assert not [p for p in sender.says() if isinstance(p, Nak)], "it is one NAK"
    at_once = 0
    for _ in range(1000):
        at_once += len(sender.hears(7))
        sender.now += 1e-5
    assert at_once == 1
    sender.now += 0.02
    assert len([p for p in sender.says() if isinstance(p, Nak)]) == 1
    assert sum(len(sender.hears(number)) for number in range(100)) <= 50 * 0.1 + 1
    assert sender.source.counts["ncf held back"] >= 1090


def test_naks_for_others_and_other_packets_are_passed_over() -> None:
    sender = sent(3)
    assert sender.hears(1, source=RECEIVER) == []
    assert sender.hears(1, group=RECEIVER) == []
    assert sender.hears(1, destination_port=1) == []
    assert sender.hears(1, tsi=TSI._replace(source_port=1)) == []
    assert sender.hears(1, kind=PacketType.NNAK) == []
    sender.now += 0.1
    assert data_of(sender.says()) == []


# --- the window ---------------------------------------------------------------------------------------------------------------


def test_the_trail_moves_every_txw_adv_ivl_past_what_is_older_than_the_window() -> None:
    """[MC-MQSRM] 2.1.3.1: "advance the transmit window every TXW_ADV_IVL"; between 85 % and all of TXW_SECS is kept."""
    sender = Sender(txw_max_rte=1e6)
    advanced, longest = [], 0
    for second in range(1, 700):
        sender.source.send(b"x")
        trail = sender.source.window.trail
        sender.until(1000.0 + second)
        longest = max(longest, len(sender.source.window))
        if sender.source.window.trail > trail:
            advanced.append((second, second - sender.source.window.trail))
    assert advanced == [(at, 254) for at in range(270, 700, 45)], (
        "(when, age of the oldest that is kept)"
    )
    assert 290 < longest <= 300


def test_an_idle_window_closes_until_it_is_empty() -> None:
    """RFC 3208 3.5: "until SPM_TRAIL is equal to SPM_LEAD plus one"."""
    sender = sent(3)
    last = spms_of(sender.until(1400.0))[-1][1]
    assert (last.trail, last.lead) == (3, 2)
    assert sender.source.window.octets == 0


def test_the_trail_waits_for_the_first_pending_nak() -> None:
    """[MC-MQSRM] 2.1.3.1: "In this case, the trailing edge only advances up to the first pending NAK request"."""
    sender = sent(
        10,
        txw_secs=10.0,
        txw_adv_secs=1.0,
        txw_adv_ivl=1.0,
        advance_delay_max=5.0,
        rdata_delay=60.0,
    )
    sender.until(1008.5)
    sender.hears(4)
    sender.until(1009.5)
    assert sender.source.window.trail == 4, "RDATA for 4 is delayed by the test's 60 s * 4 / 10"
    sender.until(1014.5)
    assert sender.source.window.trail == 4
    sender.until(1016.5)
    assert sender.source.window.trail == 10, "advance_delay_max is over"
    assert data_of([packet for _, packet in sender.until(1040.0)]) == [], (
        "what the window lost is repaired no more"
    )


def test_a_full_window_suspends_new_data() -> None:
    """RFC 3208 16.2: "further transmissions would be suspended until the transmit window can be advanced"."""
    sender = Sender(**FAST, txw_sqns_max=3, txw_secs=10.0, txw_adv_secs=2.0, txw_adv_ivl=2.0)
    for _ in range(5):
        sender.source.send(b"x")
    assert len(data_of(sender.says())) == 3
    left = [
        (round(at - 1000.0, 3), p.sequence_number)
        for at, p in sender.until(1020.0)
        if isinstance(p, Data)
    ]
    assert left == [(8.0, 3), (8.0, 4)]
    octets = Sender(**FAST, txw_bytes_max=65_536)
    octets.source.send(bytes(65_000))
    octets.source.send(b"x")
    assert octets.source.window.octets <= 65_536 + 1800
    octets.says()
    assert not octets.source.has_room(2**20)


# --- ends ---------------------------------------------------------------------------------------------------------------------


def test_fin_follows_the_last_data_at_once_and_repairs_go_on_for_txw_secs() -> None:
    """RFC 3208 9.7.2."""
    sender = Sender(**FAST, txw_secs=10.0, txw_adv_secs=2.0, txw_adv_ivl=2.0)
    sender.says()
    sender.source.send(b"last")
    sender.source.close(sender.now)
    assert sender.says() == [
        Data(False, TSI, DPORT, 0, 0, b"last"), Spm(TSI, DPORT, SPMS_AT_START, 0, 0, SOURCE, Options(fin=True)),
    ]  # fmt: skip
    with pytest.raises(LocalProtocolError, match="SEND cannot happen"):
        sender.source.send(b"more")
    sender.now += 1.0
    assert len(sender.hears(0)) == 1
    assert Data(True, TSI, DPORT, 0, 0, b"last") in sender.says()
    left = spms_of(sender.until(1100.0))
    assert all(spm.options.fin for _, spm in left)
    assert left[-1][0] == pytest.approx(10.0, abs=0.6)
    assert (sender.source.state, sender.source.next_timer()) == (PgmSourceState.CLOSED, None)


def test_a_reset_is_told_at_once_and_naks_are_not_processed() -> None:
    """[MC-MQSRM] <3> of 9.8.2: "terminated immediately by the source, and subsequent NAKs are not processed"."""
    sender = Sender(txw_max_rte=2000.0)
    sender.source.send(bytes(5000))
    sender.says()
    assert [len(sender.hears(0)), len(sender.hears(0))] == [1, 0], (
        "the second would be confirmed a little later"
    )
    sender.source.reset(sender.now, 9)
    sender.source.reset(sender.now, 10)
    assert sender.hears(0) == []
    left = sender.until(1310.0)
    assert {type(packet) for _, packet in left} == {Spm}
    assert {packet.options for _, packet in left if isinstance(packet, Spm)} == {
        Options(reset=Reset(True, 9))
    }
    assert sender.source.state is PgmSourceState.CLOSED
    sender.source.close(sender.now)
    sender.source.reset(sender.now)


@pytest.mark.parametrize("state", PgmSourceState)
@pytest.mark.parametrize("event", PgmSourceEvent)
def test_every_pair_of_the_table(state: PgmSourceState, event: PgmSourceEvent) -> None:
    source = Sender().source
    source.state = state
    if (state, event) in TRANSITIONS:
        source._move(event)
        assert source.state is TRANSITIONS[state, event]
    else:
        with pytest.raises(LocalProtocolError, match=f"{event.name} cannot happen to <Source"):
            source._move(event)


def test_opt_join_tells_how_much_a_late_receiver_may_ask_for() -> None:
    """RFC 3208 9.4; RM_LATEJOIN of Windows is such a percentage."""
    sender = sent(10, join_percent=50)
    sender.now += 0.5
    assert [packet.options.join for packet in sender.says() if isinstance(packet, Spm)] == [5]


@pytest.mark.parametrize(
    "wrong",
    [
        {"txw_max_rte": 0}, {"txw_adv_secs": 300.0}, {"tpdu_max": 63}, {"join_percent": 76}, {"ihb_max": 0.5},
        {"queue_bytes_max": 65_535}, {"rdata_delay": -1}, {"txw_sqns_max": 2**31},
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError):
        PgmSourceSettings(**wrong)  # type: ignore[arg-type]


def test_outputs_are_multicast() -> None:
    assert all(isinstance(out, Multicast) for out in sent(1).source.poll(1001.0))
