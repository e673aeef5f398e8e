"""Sessions of a receiver: APDUs, ends, and who is who (RFC 3208 9, [MC-MQSRM] 2.1.3.1 and <3>)."""

from __future__ import annotations

import pytest
from pgm_kit import DPORT, GROUP, RECEIVER, SOURCE, TSI, Listener, captured, listening, told

from srmp_spark.pgm.outputs import Apdu, DataLost, EndReason, LossReason, Unicast
from srmp_spark.pgm.receiving.receive_window import DELIVERED_AT_ONCE, DELIVERED_PER_PACKET
from srmp_spark.pgm.receiving.receiver import PgmReceiver
from srmp_spark.pgm.wire.addresses import nla_of
from srmp_spark.pgm.wire.decoder import decode
from srmp_spark.pgm.wire.limits import APDU_MAX
from srmp_spark.pgm.wire.packets import (
    Data,
    Fragment,
    Nak,
    Options,
    Packet,
    PacketType,
    Poll,
    Polr,
    Reset,
    Spmr,
)

TRAIL = LossReason.TRAIL


# --- APDUs ------------------------------------------------------------------------------------------------------------------


def part(first: int, offset: int, length: int) -> Options:
    return Options(fragment=Fragment(first, offset, length))


def test_fragments_become_their_apdu() -> None:
    """9.2.3."""
    listener = listening()
    out = listener.odata(0, b"abc", options=part(0, 0, 8))
    out += listener.odata(2, b"gh", options=part(0, 6, 8))
    assert told(out) == []
    out = listener.odata(1, b"def", options=part(0, 3, 8))
    assert [(each.first, each.last, each.data) for each in out if isinstance(each, Apdu)] == [
        (0, 2, b"abcdefgh")
    ]


def test_an_apdu_is_assembled_across_increments_of_the_window() -> None:
    """9.2: "APDUs MAY be reassembled across increments of the transmit window"."""
    listener = listening()
    listener.odata(0, b"abc", options=part(0, 0, 6))
    assert told(listener.spm(1, 1)) == []
    assert told(listener.odata(1, b"def", trail=1, options=part(0, 3, 6))) == [b"abcdef"]


def test_opt_fragment_on_a_whole_apdu_is_taken() -> None:
    """OpenPGM's receiver crashes on it."""
    listener = listening()
    assert told(listener.odata(0, b"whole", options=part(0, 0, 5))) == [b"whole"]


def test_offsets_are_not_asked() -> None:
    """OpenPGM's sender goes on counting them; First Sequence Number and the length tell the same."""
    listener = listening()
    listener.odata(0, b"abc", options=part(0, 3000, 6))
    assert told(listener.odata(1, b"def", options=part(0, 3003, 6))) == [b"abcdef"]
    listener.odata(2, b"abc", options=part(777, 0, 6))
    assert told(listener.odata(3, b"def", options=part(777, 3, 6))) == [b"abcdef"], (
        "the other field wrong"
    )


def test_a_lost_fragment_loses_its_whole_apdu_and_each_number_is_told_once() -> None:
    listener = listening()
    for number in (0, 1, 3, 4):
        listener.odata(number, b"ab", options=part(0, 2 * number, 10))
    listener.odata(5)
    assert told(listener.spm(3, 5)) == [
        (0, 1, LossReason.INCOMPLETE), (2, 2, TRAIL), (3, 4, LossReason.INCOMPLETE), b"apdu 5",
    ]  # fmt: skip


def test_an_apdu_that_began_before_we_joined_is_told_as_that() -> None:
    listener = Listener()
    assert told(listener.odata(7, b"ab", options=part(5, 4, 8))) == [
        ("from", 7),
        (7, 7, LossReason.JOINED),
    ]
    assert told(listener.odata(8, b"ab", options=part(5, 6, 8))) == [(8, 8, LossReason.JOINED)]
    assert told(listener.odata(9)) == [b"apdu 9"]


def test_fragments_that_make_no_apdu_are_told() -> None:
    listener = listening()
    assert told(
        listener.odata(0, b"abc", options=part(0, 0, 5))
        + listener.odata(1, b"def", options=part(0, 3, 5))
    ) == [(0, 1, LossReason.BROKEN)]
    out = listener.odata(2, b"abc", options=part(2, 0, 5)) + listener.odata(3)
    assert told(out) == [(2, 2, LossReason.INCOMPLETE), b"apdu 3"], "its rest never came"
    assert told(listener.odata(4, b"abc", options=part(2, 3, 5))) == [(4, 4, LossReason.INCOMPLETE)]


def test_an_apdu_above_64_kilobytes_is_refused_without_being_kept() -> None:
    """[MC-MQSRM] 2.1.3.1: "to protect the server from denial of service attacks"."""
    listener = listening()
    piece = bytes(32_768)
    for number, offset in ((0, 0), (1, 32_768)):
        out = listener.odata(number, piece, options=part(0, offset, APDU_MAX))
    assert told(out) == [bytes(APDU_MAX)]
    for number, offset in ((2, 0), (3, 32_768), (4, 65_536)):
        assert told(listener.odata(number, piece, options=part(2, offset, APDU_MAX + 1))) == [
            (number, number, LossReason.TOO_LARGE)
        ]
    assert told(listener.odata(5, piece, options=part(5, 0, 2**32 - 1))) == [
        (5, 5, LossReason.TOO_LARGE)
    ]


# --- many at once -----------------------------------------------------------------------------------------------------------


def test_what_a_repair_sets_free_is_told_in_steps_that_leave_time_to_read() -> None:
    """All of it in one step lasted longer than the kernel's buffer had room, so that one loss became many."""
    listener, count = listening(), 1_000
    for number in range(1, count):
        assert told(listener.odata(number)) == []
    found = told(listener.odata(0))
    assert len(found) == DELIVERED_AT_ONCE
    found += told(listener.odata(count))
    assert len(found) == DELIVERED_AT_ONCE + DELIVERED_PER_PACKET, (
        "who comes meanwhile takes some along"
    )
    (session,) = listener.receiver
    while session.window is not None and session.window.has_ready:
        assert listener.receiver.next_timer() <= listener.now, "without waiting for anything"
        step = told(listener.receiver.poll(listener.now))
        assert 0 < len(step) <= DELIVERED_AT_ONCE
        found += step
    assert found == [b"apdu %d" % number for number in range(count + 1)]
    assert listener.receiver.budget.used == 0


def test_what_is_ready_counts_as_held_and_is_told_before_anything_is_given_up() -> None:
    listener = listening(rxw_bytes_max=100_000)
    for number in range(1, 80):
        listener.odata(number, bytes(800))
    listener.odata(0)
    (session,) = listener.receiver
    assert session.window is not None
    out = listener.odata(81)
    for number in range(82, 200):
        out += listener.odata(number, bytes(800))
    assert [each.last for each in out if isinstance(each, DataLost)] == [80], (
        "what is missing, and nothing that came"
    )
    assert session.window.octets <= 100_000


# --- ends -------------------------------------------------------------------------------------------------------------------


def test_fin_ends_the_session_when_all_is_told() -> None:
    """9.7.1: "It MAY still try to solicit retransmissions within the existing transmit window"."""
    listener = listening()
    listener.odata(1)
    assert told(listener.spm(0, 2, options=Options(fin=True))) == []
    assert listener.asks(0.1) == [(0.05, (0, 2))]
    assert told(listener.odata(2)) == []
    assert told(listener.odata(0)) == [b"apdu 0", b"apdu 1", b"apdu 2", EndReason.FINISHED]
    assert told(listener.spm(0, 2, options=Options(fin=True))) == [], "they go on for TXW_SECS"
    assert told(listener.odata(3)) == []


def test_fin_on_the_last_data() -> None:
    listener = listening()
    assert told(listener.odata(0, options=Options(fin=True))) == [b"apdu 0", EndReason.FINISHED]


def test_fin_when_the_rest_is_lost() -> None:
    listener = listening()
    listener.odata(1, b"ab", options=part(1, 0, 4))
    listener.spm(0, 1, options=Options(fin=True))
    assert told(listener.spm(2, 1, options=Options(fin=True))) == [
        (0, 0, TRAIL), (1, 1, LossReason.INCOMPLETE), EndReason.FINISHED,
    ]  # fmt: skip


def test_data_after_fin_and_before_the_end_are_told() -> None:
    """OpenPGM takes them too."""
    listener = listening()
    listener.spm(0, 0, options=Options(fin=True))
    listener.odata(1)
    assert told(listener.odata(0)) == [b"apdu 0", b"apdu 1", EndReason.FINISHED]


def test_rst_ends_the_session_at_once() -> None:
    """[MC-MQSRM] <3> of 9.8.1: "immediately without attempting to recover any pending data"."""
    for no_naks in (True, False):
        listener = listening()
        listener.odata(1)
        assert told(listener.spm(0, 3, options=Options(reset=Reset(no_naks, 5)))) == [
            (0, 0, LossReason.RESET), b"apdu 1", (2, 3, LossReason.RESET), EndReason.RESET,
        ]  # fmt: skip
        assert listener.asks(20.0) == []


def test_a_source_that_fell_silent_ends_and_may_begin_anew() -> None:
    listener = listening(session_idle=30.0, repair_secs=100.0, nak_ncf_retries=1000)
    listener.odata(1)
    out = [each for _, each in listener.until(1031.0) if not isinstance(each, Unicast)]
    assert told(out) == [(0, 0, LossReason.SILENT), b"apdu 1", EndReason.SILENT]
    assert listener.receiver.budget.used == 0
    assert told(listener.odata(7)) == [("from", 7), b"apdu 7"]


@pytest.mark.parametrize("end", [EndReason.SILENT, EndReason.RESET])
def test_an_apdu_that_the_end_cut_off_is_lost_by_the_end(end: EndReason) -> None:
    """No other part of it is known to be lost: its last packets were never heard of (seed 23100 of the simulation)."""
    listener = listening(session_idle=30.0)
    half = Options(fragment=Fragment(0, 0, 20))
    listener.odata(0, b"0123456789", options=half)
    if end is EndReason.RESET:
        out = listener.spm(0, 0, options=Options(reset=Reset()))
    else:
        out = [each for _, each in listener.until(1031.0)]
    assert told(out) == [(0, 0, LossReason[end.name]), end]


# --- who is who -------------------------------------------------------------------------------------------------------------


def test_sources_with_one_tsi_are_told_apart_by_their_address() -> None:
    """libzmq's GSI was the same in every run."""
    listener = listening()
    assert told(listener.hears(Data(False, TSI, DPORT, 70, 70, b"other"), RECEIVER)) == [
        ("from", 70),
        b"other",
    ]
    assert told(listener.odata(0)) == [b"apdu 0"]
    assert len(listener.receiver) == 2


@pytest.mark.parametrize(
    "packet",
    [
        Nak(PacketType.NNAK, TSI, DPORT, 0, SOURCE, GROUP), Nak(PacketType.NCF, TSI, DPORT, 0, RECEIVER, GROUP),
        Nak(PacketType.NCF, TSI, DPORT, 0, SOURCE, RECEIVER), Spmr(TSI, DPORT), Polr(TSI, DPORT, 1, 1),
        Poll(TSI, DPORT, 1, 0, 0, SOURCE, 0, 0, 0), Data(False, TSI, DPORT + 1, 0, 0, b"x"),
    ],
)  # fmt: skip
def test_what_is_not_for_a_receiver_changes_nothing(packet: Packet) -> None:
    """POLLs too: [MC-MQSRM] 2.1.3 leaves section 14 out."""
    listener = listening()
    listener.odata(1)
    assert listener.hears(packet) == []
    assert listener.asks(0.1) == [(0.05, (0,))]
    assert listener.receiver.counts.total() == 1


def test_an_ncf_comes_from_the_address_of_the_source() -> None:
    """8.3, from network elements too. Anybody else could keep us from asking."""
    listener = listening()
    listener.odata(1)
    assert listener.hears(Nak(PacketType.NCF, TSI, DPORT, 0, SOURCE, GROUP), RECEIVER) == []
    assert listener.asks(0.1) == [(0.05, (0,))]
    assert listener.receiver.counts == {"ncf from another address": 1}


def test_a_session_of_openpgm() -> None:
    receiver, out = PgmReceiver(DPORT, nla_of("239.192.9.1"), lambda low, high: high), []
    for at, source, octets in captured():
        out += receiver.receive(decode(octets), source, at)
    assert [told([each]) if not isinstance(each, Apdu) else (each.first, each.last, len(each.data)) for each in out] == [
        [("from", 0)], (0, 2, 3000), (3, 5, 3000), [EndReason.FINISHED],
    ]  # fmt: skip
