"""The sockets of PGM on loopback: raw IP and UDP, groups, options, and what a wrong flag or a missing right says."""

from __future__ import annotations

import select
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from multicast_kit import needs_raw

from srmp_spark.errors import ConfigurationError
from srmp_spark.pgm.wire.addresses import Nla, nla_of
from srmp_spark.pgm.wire.packets import PacketType
from srmp_spark.queue_manager.multicast.interfaces import find_interface
from srmp_spark.queue_manager.multicast.settings import Encapsulation
from srmp_spark.queue_manager.multicast.sockets import READ_MAX, UPSTREAM, Inlet, Outlet, tpdu_of
from srmp_spark.testing.foreign.ports import kept_port
from tests.kit.pgm.raw_sockets import may_be_raw

GROUP, OTHER_GROUP = "239.192.77.2", "239.192.77.3"
LO = find_interface("lo")
ENCAPSULATIONS = [pytest.param("udp"), pytest.param("raw", marks=needs_raw)]


@pytest.fixture(params=ENCAPSULATIONS)
def encapsulation(request: pytest.FixtureRequest) -> Encapsulation:
    return Encapsulation.parse("raw" if request.param == "raw" else f"udp:{kept_port()}")


@pytest.fixture
def ends(encapsulation: Encapsulation) -> Iterator[tuple[Outlet, Inlet]]:
    outlet = Outlet(encapsulation, LO, GROUP, 1, is_source=True)
    inlet = Inlet.of_group(encapsulation, LO, GROUP)
    yield outlet, inlet
    outlet.close()
    inlet.close()


def read(inlet: Inlet, count: int) -> list[tuple[bytes, Nla]]:
    found: list[tuple[bytes, Nla]] = []
    end = time.monotonic() + 20
    while len(found) < count and time.monotonic() < end:
        select.select([inlet], [], [], 0.1)
        found += inlet.read()
    return found


def packets(*sizes: int) -> list[bytes]:
    return [bytes([number & 255]) * size for number, size in enumerate(sizes)]


def test_packets_come_as_they_left_with_the_address_of_the_interface(
    ends: tuple[Outlet, Inlet],
) -> None:
    """Also those that left as one pack: equal ones, a shorter one behind them, a longer one, one alone."""
    outlet, inlet = ends
    sent = packets(*[1_400] * 100, 900, 1_472, 1_472, 20, 1_000)
    outlet.multicast(sent)
    assert read(inlet, len(sent)) == [(packet, nla_of("127.0.0.1")) for packet in sent]
    assert (outlet.is_blocked, outlet.error) == (False, None)


def test_whoever_reads_learns_that_there_is_more(encapsulation: Encapsulation) -> None:
    outlet = Outlet(encapsulation, LO, GROUP, 1, is_source=True, packs=False)
    inlet, witness = (
        Inlet.of_group(encapsulation, LO, GROUP),
        Inlet.of_group(encapsulation, LO, GROUP),
    )
    assert (inlet.read(), inlet.is_behind, inlet.errors) == ([], False, 0)
    sent = packets(*range(1, 1_401, 7))
    outlet.multicast(sent)
    assert len(read(witness, len(sent))) == len(sent), "all are in the kernel's buffers"
    witness.close()
    assert len(read(inlet, 1)) == READ_MAX
    assert inlet.is_behind
    assert len(read(inlet, len(sent) - READ_MAX)) == len(sent) - READ_MAX
    assert not inlet.is_behind
    inlet.close()
    outlet.close()


def test_nothing_of_another_group_comes(
    encapsulation: Encapsulation, ends: tuple[Outlet, Inlet]
) -> None:
    other = Outlet(encapsulation, LO, OTHER_GROUP, 1, is_source=True)
    member = Inlet.of_group(encapsulation, LO, OTHER_GROUP)
    other.multicast([b"of another group"])
    ends[0].multicast([b"of this one"])
    assert [packet for packet, _ in read(ends[1], 1)] == [b"of this one"]
    assert [packet for packet, _ in read(member, 1)] == [b"of another group"]
    other.close()
    member.close()


def test_what_is_sent_to_the_source_alone_comes_by_its_outlet(
    encapsulation: Encapsulation, ends: tuple[Outlet, Inlet]
) -> None:
    receiver = Outlet(encapsulation, LO, GROUP, 1, is_source=False)
    receiver.unicast(b"a NAK", nla_of("127.0.0.1"))
    assert read(ends[0].inlet, 1) == [(b"a NAK", nla_of("127.0.0.1"))]
    receiver.close()


def test_a_source_hears_what_is_for_it_alone_of_its_group(encapsulation: Encapsulation) -> None:
    """All that it sends comes back by the group: the kernel keeps it away, packs too."""
    outlet = Outlet(encapsulation, LO, GROUP, 1, is_source=True)
    inlet = Inlet.of_group(encapsulation, LO, GROUP, only=UPSTREAM)
    everything = Inlet.of_group(encapsulation, LO, GROUP)
    by_type = [bytes(4) + bytes([kind]) + b"%03d" % kind for kind in range(256)]
    outlet.multicast([bytes(4) + b"\x04" + bytes(1_000)] * 100)
    outlet.multicast([b"ab"])
    for packet in by_type:
        outlet.multicast([packet])
    assert len(read(everything, 101 + len(by_type))) == 101 + len(by_type)
    assert [packet for packet, _ in read(inlet, 2)] == [
        by_type[PacketType.NAK],
        by_type[PacketType.SPMR],
    ]
    assert inlet.read() == []
    for each in (outlet, inlet, everything):
        each.close()


@needs_raw
def test_the_router_alert_option_is_no_part_of_the_packet() -> None:
    """RFC 3208 4: SPMs, NCFs and RDATA carry it; the IP header is four octets longer then."""
    raw = Encapsulation.parse("raw")
    outlet, inlet = Outlet(raw, LO, GROUP, 1, is_source=True), Inlet.of_group(raw, LO, GROUP)
    outlet.multicast([b"an SPM"], router_alert=True)
    outlet.multicast([b"ODATA"])
    assert [packet for packet, _ in read(inlet, 2)] == [b"an SPM", b"ODATA"]
    outlet.close()
    inlet.close()


def test_a_source_keeps_what_the_kernel_refuses_and_a_receiver_does_not(
    encapsulation: Encapsulation,
) -> None:
    source = Outlet(encapsulation, LO, GROUP, 1, is_source=True)
    receiver = Outlet(encapsulation, LO, GROUP, 1, is_source=False)
    for outlet in (source, receiver):
        outlet.multicast([bytes(65_530)])  # more than an IP datagram holds
        assert outlet.error is not None
        assert "too long" in outlet.error
    source.multicast([b"behind it"])
    assert source.is_blocked
    assert not source.flush()
    assert not receiver.is_blocked, (
        "it asks again, and must not be stopped by an address that somebody made up"
    )
    source.close()
    receiver.close()


def test_an_address_that_nobody_may_send_to_stops_no_receiver(encapsulation: Encapsulation) -> None:
    """The path in an SPM is the source's word: NAKs go there."""
    receiver = Outlet(encapsulation, LO, GROUP, 1, is_source=False)
    inlet = Inlet.of_group(encapsulation, LO, GROUP)
    for path in ("255.255.255.255", "0.0.0.0", "240.0.0.1", "2001:db8::1"):
        receiver.unicast(b"a NAK", nla_of(path))
    receiver.multicast([b"the next one"])
    assert [packet for packet, _ in read(inlet, 1)] == [b"the next one"]
    receiver.close()
    inlet.close()


def test_interfaces_go_by_name_or_address() -> None:
    assert find_interface("lo") == find_interface("127.0.0.1") == LO
    assert LO.address == "127.0.0.1"
    assert LO.mtu > 1_500
    with pytest.raises(
        ConfigurationError, match=r"no such interface is up here; there are .*lo \(127\.0\.0\.1\)"
    ):
        find_interface("nosuch0")
    with pytest.raises(ConfigurationError, match="no such interface"):
        find_interface("192.0.2.77")


def test_a_packet_fits_into_a_datagram_of_the_interface() -> None:
    udp, raw = Encapsulation.parse("udp:1"), Encapsulation.parse("raw")
    assert tpdu_of(1_472, udp, LO) == 1_472
    assert tpdu_of(1_472, udp, LO._replace(mtu=1_400)) == 1_372
    assert tpdu_of(9_000, raw, LO._replace(mtu=1_500)) == 1_476, "with the Router Alert option"


WITHOUT_RIGHTS = """
import os
from srmp_spark.errors import ConfigurationError
from srmp_spark.queue_manager.multicast.groups import check_multicast
from srmp_spark.queue_manager.multicast.settings import Encapsulation, PgmSettings
if os.getuid() == 0:
    os.setuid(65534)
try:
    check_multicast(PgmSettings(encapsulation=Encapsulation.parse("raw")))
except ConfigurationError as error:
    print(error)
"""


def test_raw_without_the_right_to_it_says_what_to_do() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_RIGHTS], capture_output=True, text=True, check=True
    )
    assert "CAP_NET_RAW" in done.stdout
    assert "AmbientCapabilities=CAP_NET_RAW" in done.stdout
    assert "--pgm udp:PORT" in done.stdout


def test_the_marks_of_this_file_tell_the_truth() -> None:
    """Where raw sockets are to be had the tests of raw IP run."""
    assert may_be_raw() is (subprocess.run(
        [sys.executable, "-c", "import socket; socket.socket(2, 3, 113)"], capture_output=True, check=False
    ).returncode == 0)  # fmt: skip
