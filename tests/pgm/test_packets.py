"""RFC 3208 8 and 9: what a packet looks like, both ways; OpenPGM's own packets; lengths that lie."""

from __future__ import annotations

from random import Random

import pytest
from pgm_kit import DPORT, GROUP, SOURCE, TSI, samples

from srmp_spark.errors import LimitExceededError, LocalProtocolError, RemoteProtocolError
from srmp_spark.pgm.wire.addresses import Tsi, nla_of
from srmp_spark.pgm.wire.checksum import checksum, sum_of
from srmp_spark.pgm.wire.decoder import decode
from srmp_spark.pgm.wire.encoder import DataEncoder, encode
from srmp_spark.pgm.wire.limits import NAK_LIST_MAX, OPTIONS_MAX, TPDU_MAX, TXW_SQNS_MAX
from srmp_spark.pgm.wire.packets import (
    NO_OPTIONS,
    Data,
    Fragment,
    Nak,
    Options,
    Packet,
    PacketType,
    Poll,
    Polr,
    Reset,
    Spm,
    Spmr,
)

SIX = nla_of("2001:db8::7")
OPENPGM = samples()


def spm(**more: object) -> Spm:
    return Spm(TSI, DPORT, 7, 10, 20, SOURCE)._replace(**more)


def odata(payload: bytes = b"hello", **more: object) -> Data:
    return Data(False, TSI, DPORT, 20, 10, payload)._replace(**more)


def nak(**more: object) -> Nak:
    return Nak(PacketType.NAK, TSI, DPORT, 12, SOURCE, GROUP)._replace(**more)


def summed(packet: bytes) -> bytes:
    """``packet`` with its checksum right: to get past the first check."""
    packet = packet[:6] + b"\0\0" + packet[8:]
    return packet[:6] + checksum(sum_of(packet)).to_bytes(2, "big") + packet[8:]


def with_options(packet: Packet, extensions: str) -> bytes:
    """``packet``, which has no options, with these octets for its extensions."""
    octets, options = encode(packet), bytes.fromhex(extensions)
    at = 24 if isinstance(packet, Data) else len(octets)
    return summed(octets[:5] + b"\x01" + octets[6:at] + options + octets[at:])


PACKETS: list[Packet] = [
    spm(), spm(path=SIX), spm(trail=0, lead=2**32 - 1), spm(trail=0, lead=0x80000000), spm(options=Options(fin=True)),
    spm(options=Options(join=3, fin=True, reset=Reset(True, 63))), spm(options=Options(reset=Reset(False, 0))),
    odata(), odata(b""), odata(b"odd"), odata(is_repair=True), odata(sequence_number=3, trail=2**32 - 5),
    odata(options=Options(fragment=Fragment(19, 5, 10))), odata(options=Options(join=1, syn=True, fin=True)),
    odata(bytes(TPDU_MAX - 24)), odata(b"x" * 8, tsi=Tsi(b"\xff" * 6, 65_535), destination_port=65_535),
    nak(), nak(type=PacketType.NNAK), nak(type=PacketType.NCF, source=SIX, group=SIX),
    nak(options=Options(nak_list=(13,))), nak(type=PacketType.NCF, options=Options(nak_list=tuple(range(NAK_LIST_MAX)))),
    Spmr(TSI, DPORT), Poll(TSI, DPORT, 1, 2, 0, SOURCE, 250_000, 0xDEADBEEF, 0xFF), Polr(TSI, DPORT, 1, 2),
]  # fmt: skip


@pytest.mark.parametrize("packet", PACKETS, ids=lambda packet: str(packet)[:60])
def test_what_is_written_is_read(packet: Packet) -> None:
    octets = encode(packet)
    assert decode(octets) == packet
    assert sum_of(octets) == 0, "the checksum of the whole packet"
    assert octets[6:8] != b"\0\0", "0 would mean that there is none"


@pytest.mark.parametrize("name", OPENPGM)
def test_openpgms_packets_are_read_and_written_octet_by_octet(name: str) -> None:
    octets = OPENPGM[name]
    packet = decode(octets)
    if name == "cap_raw_nak_with_options":
        # The reserved octet of OPT_NAK_LIST is not initialised by OpenPGM: 0x0a here.
        assert octets[42:44] == b"\x0a\x00"
        octets = summed(octets[:42] + b"\0\0" + octets[44:])
    assert encode(packet) == octets


def test_what_openpgms_packets_say() -> None:
    assert decode(OPENPGM["cap_fin_spm"]) == Spm(TSI, DPORT, 0, 0, 2**32 - 1, SOURCE)
    assert decode(OPENPGM["cap_fin_spm_with_options"]) == Spm(
        TSI, DPORT, 7, 0, 5, SOURCE, Options(fin=True)
    )
    assert decode(OPENPGM["cap_raw_nak"]) == Nak(PacketType.NAK, TSI, DPORT, 2, SOURCE, GROUP)
    assert decode(OPENPGM["cap_raw_ncf_with_options"]) == Nak(
        PacketType.NCF, TSI, DPORT, 17, SOURCE, GROUP, Options(nak_list=(18,))
    )
    rdata = decode(OPENPGM["cap_raw_rdata_with_options"])
    assert isinstance(rdata, Data)
    assert (rdata.is_repair, rdata.sequence_number, rdata.options.fragment) == (
        True,
        2,
        Fragment(0, 2872, 3000),
    )


def test_openpgm_goes_on_counting_offsets_from_one_apdu_to_the_next() -> None:
    """9.2.2 wants the offset in the original APDU. So a reader goes by First Sequence Number and the length alone."""
    data = decode(OPENPGM["cap_fin_odata_with_a_wrong_offset"])
    assert isinstance(data, Data)
    assert (data.sequence_number, data.options.fragment) == (5, Fragment(3, 5872, 3000))
    assert len(data.payload) == 128


def test_upstream_packets_have_their_ports_the_other_way_round() -> None:
    """8.3: "This makes DPORT the protocol endpoint in the recipient host"."""
    down, up = (TSI.source_port, DPORT), (DPORT, TSI.source_port)
    for packet, ports in ((spm(), down), (odata(), down), (nak(type=PacketType.NCF), down), (nak(), up), (Spmr(TSI, DPORT), up),
                          (nak(type=PacketType.NNAK), up), (Polr(TSI, DPORT, 1, 2), up)):  # fmt: skip
        octets = encode(packet)
        assert (int.from_bytes(octets[:2], "big"), int.from_bytes(octets[2:4], "big")) == ports, (
            packet
        )


def test_a_packet_that_changed_on_the_way_is_refused() -> None:
    octets = encode(odata(b"some payload"))
    for bit in range(len(octets) * 8):
        changed = bytearray(octets)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(RemoteProtocolError):
            decode(bytes(changed))


def test_the_checksum_is_mandatory_on_data_alone() -> None:
    for packet in PACKETS:
        octets = encode(packet)
        without = octets[:6] + b"\0\0" + octets[8:]
        if isinstance(packet, Data):
            with pytest.raises(RemoteProtocolError, match="without a checksum"):
                decode(without)
        else:
            assert decode(without) == packet


def test_a_sum_of_zero_is_sent_as_all_ones() -> None:
    assert checksum(0) == 0xFFFF
    assert checksum(0xFFFF) == 0xFFFF
    assert checksum(0xFFFE) == 0x0001
    assert sum_of(b"\x01\x02\x03") == 0x0102 + 0x0300


@pytest.mark.parametrize("packet", PACKETS, ids=lambda packet: str(packet)[:60])
def test_no_packet_can_be_cut_short(packet: Packet) -> None:
    octets = encode(packet)
    for length in range(min(len(octets), 300)):
        with pytest.raises(RemoteProtocolError):
            decode(summed(octets[:length]) if length >= 8 else octets[:length])


HOSTILE = {
    "no option behind OPT_LENGTH": "00040004",
    "OPT_LENGTH beyond the packet": "0004ffff 8e040000",
    "OPT_LENGTH shorter than itself": "00040003 8e040000",
    "OPT_LENGTH of zero": "00040000 8e040000",
    "OPT_LENGTH has a length of its own": "00080008 8e040000",
    "OPT_LENGTH is not the first": "8e040000 00040008",
    "an option of length 0": "00040008 8e000000",
    "an option shorter than its head": "00040008 8e030000",
    "an option longer than all of them": "00040008 8e050000",
    "an option of 255 octets": "00040008 81ff0000",
    "OPT_FRAGMENT of 12 octets": "00040010 810c0000 0000000000000000",
    "OPT_FIN of 8 octets": "0004000c 8e080000 00000000",
    "no OPT_END": "00040008 0e040000",
    "OPT_END before the end": "0004000c 8e040000 8d040000",
    "the same option twice": "0004000c 0e040000 8e040000",
    "an unknown option past the end": "0004000c a1090000 00000000",
}


@pytest.mark.parametrize("extensions", HOSTILE.values(), ids=HOSTILE)
def test_options_whose_lengths_contradict_each_other_are_refused(extensions: str) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(with_options(odata(b""), extensions))


def test_cve_2023_28250_a_length_that_underflows() -> None:
    """An option length that is taken from a smaller one: every length of every option, whatever the others are."""
    fragmented = encode(odata(b"12345", options=Options(fragment=Fragment(20, 0, 9))))
    listed = encode(nak(options=Options(nak_list=(13, 14))))
    for octets, places in ((fragmented, (25, 26, 27, 29)), (listed, (37, 38, 39, 41))):
        for place in places:
            for value in range(256):
                if value == octets[place]:
                    continue
                with pytest.raises(RemoteProtocolError):
                    decode(summed(octets[:place] + bytes([value]) + octets[place + 1 :]))


def test_cve_2024_21357_a_list_longer_than_its_packet() -> None:
    """Counts that promise more than is there."""
    octets = encode(nak(options=Options(nak_list=(13, 14))))
    for count in (3, 62, 63):
        length = 4 + 4 * count
        lying = (
            octets[:38]
            + min(4 + length, 65_535).to_bytes(2, "big")
            + b"\x82"
            + bytes([length & 255])
            + octets[42:]
        )
        with pytest.raises(RemoteProtocolError):
            decode(summed(lying))
    for length in (4, 5, 6, 7, 9):
        with pytest.raises(RemoteProtocolError):
            decode(
                with_options(
                    nak(), f"{0x00040000 + 4 + length:08x} 82{length:02x}0000" + "00" * (length - 4)
                )
            )


def test_options_that_are_unknown_or_out_of_place_are_passed_over() -> None:
    """Only network elements look at the OPX bits (9). Windows sends options on ODATA that nobody here has seen."""
    assert decode(with_options(odata(), "0004000c a1080200 7a7a7a7a")) == odata()
    assert decode(with_options(odata(), "00040008 8f04007f")) == odata(), "OPT_RST is for SPMs"
    assert decode(
        with_options(spm(), "00040018 01100000 000000010000000200000003 8e0400ff")
    ) == spm(options=Options(fin=True))


def test_at_most_sixteen_options() -> None:
    def many(count: int) -> bytes:
        options = "21040000" * (count - 2) + "a1040000"
        return with_options(odata(), f"{0x00040000 + 4 * count:08x}{options}")

    assert decode(many(OPTIONS_MAX)) == odata()
    with pytest.raises(LimitExceededError, match="OPTIONS_MAX is 16, got 17"):
        decode(many(OPTIONS_MAX + 1))


def test_at_most_sixty_two_numbers_in_a_nak_list() -> None:
    length = 4 + 4 * (NAK_LIST_MAX + 1)
    with pytest.raises(RemoteProtocolError):
        decode(
            with_options(
                nak(),
                f"{0x00040000 + 4 + length:08x} 82{length & 255:02x}0000" + "00" * (length - 4),
            )
        )
    with pytest.raises(LocalProtocolError, match="NAK_LIST_MAX is 62, got 63"):
        encode(nak(options=Options(nak_list=tuple(range(63)))))


def test_other_packets_that_make_no_sense_are_refused() -> None:
    octets = encode(odata())
    for hostile, why in (
        (octets[:4] + b"\x44" + octets[5:], "type 0x44"),  # a version of 1
        (octets[:4] + b"\x14" + octets[5:], "type 0x14"),  # a reserved bit
        (octets[:4] + b"\x07" + octets[5:], "type 0x07"),
        (octets[:5] + b"\x80" + octets[6:], "parity"),
        (octets[:14] + b"\x00\x04" + octets[16:], "TSDU Length says 4, 5"),
        (octets[:14] + b"\xff\xff" + octets[16:], "TSDU Length says 65535"),
        (octets + b"\0\0", "TSDU Length says 5, 7"),
        (octets[:20] + b"\x00\x00\x00\x15" + octets[24:], "outside the window"),
        (encode(spm())[:28] + b"\x00\x03" + encode(spm())[30:], "address family 3"),
        (encode(spm())[:28] + b"\x00\x02" + encode(spm())[30:], "cut short"),
        (encode(odata(options=Options(fragment=Fragment(20, 0, 4)))), "longer than its APDU"),
        (encode(odata(b"", options=Options(fragment=Fragment(20, 0, 4)))), "without data"),
    ):  # fmt: skip
        with pytest.raises(RemoteProtocolError, match=why):
            decode(summed(hostile))
    assert decode(encode(spm(lead=9 + TXW_SQNS_MAX))) == spm(lead=9 + TXW_SQNS_MAX)
    with pytest.raises(RemoteProtocolError, match="a window from 10 to"):
        decode(encode(spm(lead=10 + TXW_SQNS_MAX)))
    with pytest.raises(LimitExceededError, match="TPDU_MAX"):
        decode(bytes(TPDU_MAX + 1))


def test_what_no_packet_can_hold_is_our_own_fault() -> None:
    for packet in (
        odata(sequence_number=2**32), odata(bytes(TPDU_MAX - 23)), spm(path=b"abc"), nak(tsi=Tsi(b"short", 1)),
        odata(options=Options(reset=Reset())), spm(options=Options(fragment=Fragment(0, 0, 1))), odata(destination_port=-1),
        spm(options=Options(reset=Reset(True, 64))),
    ):  # fmt: skip
        with pytest.raises(LocalProtocolError):
            encode(packet)


def plain_sum(data: bytes) -> int:
    """RFC 1071, word by word."""
    total = sum(
        int.from_bytes(data[at : at + 2].ljust(2, b"\0"), "big") for at in range(0, len(data), 2)
    )
    while total > 0xFFFF:
        total = (total >> 16) + (total & 0xFFFF)
    return total % 0xFFFF


@pytest.mark.parametrize(
    "length", [0, 1, 2, 255, 256, 257, 258, 719, 720, 721, 1439, 1440, 1441, 1472, 9000, 65_514]
)
def test_the_sum_is_that_of_words_at_any_length(length: int) -> None:
    random = Random(length)
    for data in (random.randbytes(length), b"\xff" * length, bytes(length)):
        assert sum_of(data) == plain_sum(data)


def test_data_are_written_in_haste_as_they_are_at_leisure() -> None:
    random = Random(7)
    for case in range(500):
        tsi = Tsi(
            random.choice((random.randbytes(6), b"\xff" * 6, bytes(6))), random.getrandbits(16)
        )
        port, number, trail = (
            random.getrandbits(16),
            random.getrandbits(32),
            random.choice((0, 2**32 - 1, random.getrandbits(32))),
        )
        payload = random.randbytes(random.choice((1, 2, 3, 1_428, random.randint(1, 2_000))))
        fragment = Fragment(*(random.getrandbits(32) for _ in range(3))) if case % 2 else None
        data = Data(
            bool(case % 3),
            tsi,
            port,
            number,
            trail,
            payload,
            Options(fragment=fragment) if fragment else NO_OPTIONS,
        )
        octets = DataEncoder(tsi, port).encode(
            number, trail, payload, sum_of(payload), fragment, is_repair=data.is_repair
        )
        assert octets == encode(data)
        assert octets[6:8] != b"\0\0"


def test_what_no_data_packet_can_hold_is_refused_in_haste_too() -> None:
    encoder, whole = DataEncoder(TSI, DPORT), TPDU_MAX - 24
    assert len(encoder.encode(0, 0, bytes(whole), 0, None, is_repair=False)) == TPDU_MAX
    for number, octets, fragment in (
        (0, whole + 1, None),
        (0, whole - 19, Fragment(0, 0, 1)),
        (2**32, 1, None),
    ):
        with pytest.raises(LocalProtocolError):
            encoder.encode(number, 0, bytes(octets), 0, fragment, is_repair=False)
