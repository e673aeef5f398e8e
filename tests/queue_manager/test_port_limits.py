"""How many connections a port has, how many of them one address, and how the process' descriptors are shared."""

from __future__ import annotations

import resource

import pytest

from srmp_spark.errors import ConfigurationError
from srmp_spark.queue_manager.srmp_port.http_limits import CONNECTIONS_MAX
from srmp_spark.queue_manager.srmp_port.port_limits import (
    API_CONNECTIONS_MAX,
    RPC_CONNECTIONS_MAX,
    ConnectionRoom,
    payer_of,
)
from srmp_spark.queue_manager.srmp_port.sockets import (
    DESCRIPTORS_MIN,
    DESCRIPTORS_RESERVED,
    share_descriptors,
)


class TestShares:
    def test_an_address_has_a_share_whatever_the_others_have(self) -> None:
        room = ConnectionRoom(8, 4)
        for number in range(2):
            assert room.admits("192.0.2.1")
            room.enter(number, "192.0.2.1")
        assert not room.admits("192.0.2.1")
        assert room.admits("192.0.2.2")
        room.leave(0)
        assert room.admits("192.0.2.1")

    def test_an_address_of_ipv6_counts_by_its_network(self) -> None:
        assert payer_of("2001:db8:0:1::5") == payer_of("2001:db8:0:1:ffff::6")
        assert payer_of("2001:db8:0:1::5") != payer_of("2001:db8:0:2::5")
        assert payer_of("::ffff:192.0.2.1") == payer_of("192.0.2.1")

    @pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
    def test_loopback_is_a_proxy_and_may_fill_the_port(self, host: str) -> None:
        room = ConnectionRoom(8, 4)
        for number in range(8):
            assert room.admits(host)
            room.enter(number, host)
        assert room.is_full

    def test_who_left_was_counted_once(self) -> None:
        room = ConnectionRoom(4, 4)
        room.enter("a", "192.0.2.1")
        room.leave("a")
        room.leave("a")
        assert room.admits("192.0.2.1")
        assert len(room) == 0


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The limit of open files, as a system of our own has it."""
    now = [(1_024, 1_048_576)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: now[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: now.append(both))
    return now


class TestDescriptors:
    def test_the_sum_of_all_ports_fits_into_the_limit(self, limits: list[tuple[int, int]]) -> None:
        found = share_descriptors(rpc=True, mapper=True)
        assert (found.srmp, found.api) == (CONNECTIONS_MAX, API_CONNECTIONS_MAX)
        assert (found.rpc, found.mapper) == (RPC_CONNECTIONS_MAX, RPC_CONNECTIONS_MAX)
        for process in ((found.srmp, found.api), (found.rpc, found.mapper), (found.wsrm,)):
            assert sum(process) + DESCRIPTORS_RESERVED <= limits[-1][0]

    @pytest.mark.parametrize("hard", [400, 1_024, 4_096, 10_000])
    def test_a_low_limit_is_shared_by_the_ports_of_a_process(
        self, limits: list[tuple[int, int]], hard: int
    ) -> None:
        limits[:] = [(256, hard)]
        found = share_descriptors(rpc=True, mapper=True)
        for process in ((found.srmp, found.api), (found.rpc, found.mapper), (found.wsrm,)):
            assert sum(process) + DESCRIPTORS_RESERVED <= hard
        assert min(found) >= 8

    def test_a_port_that_is_not_there_has_none(self, limits: list[tuple[int, int]]) -> None:
        limits[:] = [(256, 1_024)]
        found = share_descriptors(rpc=False, mapper=False)
        assert found[2:4] == (0, 0)
        assert sum(found[:2]) + DESCRIPTORS_RESERVED <= 1_024

    def test_next_to_none_is_an_error_that_says_what_to_do(
        self, limits: list[tuple[int, int]]
    ) -> None:
        limits[:] = [(256, DESCRIPTORS_RESERVED + DESCRIPTORS_MIN - 1)]
        with pytest.raises(ConfigurationError, match="ulimit -n"):
            share_descriptors(rpc=False, mapper=False)
