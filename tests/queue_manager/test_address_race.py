"""A dead address of a host costs a quarter of a second, and not the whole time to connect (RFC 8305)."""

from __future__ import annotations

import asyncio
import time

import pytest

from srmp_spark.queue_manager.posting.address_race import (
    ADDRESSES_MAX,
    DELAY_SECONDS,
    Overlap,
    connect_first,
    interleaved,
)

V4, V6 = ["192.0.2.1", "192.0.2.2"], ["2001:db8::1", "2001:db8::2"]


class Net:
    """Addresses that swallow, refuse, or connect after a time."""

    def __init__(self, **after: float | None) -> None:
        """Seconds by number of the address; ``None``: refused; 1000: swallowed."""
        self.after = {f"192.0.2.{name[1:]}": seconds for name, seconds in after.items()}
        self.tried: list[str] = []
        self.closed: list[str] = []
        self.open = self.most = 0

    async def connect(self, address: str) -> str:
        self.tried.append(address)
        self.open += 1
        self.most = max(self.most, self.open)
        seconds = self.after[address]
        try:
            await asyncio.sleep(0 if seconds is None else seconds)
        except asyncio.CancelledError:
            self.open -= 1
            raise
        if seconds is None:
            self.open -= 1
            raise ConnectionRefusedError(address)
        return address

    def discard(self, connection: str) -> None:
        self.closed.append(connection)
        self.open -= 1


def race(net: Net, *, overlap: int = 32) -> tuple[str, float]:
    async def run() -> tuple[str, float]:
        begun = time.monotonic()
        shared = Overlap(overlap)
        try:
            address, connection = await connect_first(
                list(net.after), net.connect, net.discard, shared
            )
        finally:
            assert shared._left == overlap, "everything was given back"
        took = time.monotonic() - begun
        await asyncio.sleep(0.05)
        assert address == connection
        assert net.open == 1, "one connection is left"
        return address, took

    return asyncio.run(run())


def test_families_take_turns_and_the_resolver_s_first_one_is_first() -> None:
    assert interleaved([*V6, *V4]) == ["2001:db8::1", "192.0.2.1", "2001:db8::2", "192.0.2.2"]
    assert interleaved([V4[0], *V6]) == ["192.0.2.1", "2001:db8::1", "2001:db8::2"]
    assert len(interleaved([f"192.0.2.{n}" for n in range(100)])) == ADDRESSES_MAX
    assert interleaved(["fe80::1%eth0"]) == ["fe80::1%eth0"]


def test_a_first_address_that_swallows_costs_the_delay() -> None:
    net = Net(a1=1000.0, a2=0.0)
    address, took = race(net)
    assert address == "192.0.2.2"
    assert DELAY_SECONDS <= took < 4 * DELAY_SECONDS


def test_one_that_answers_in_time_is_the_only_one_that_is_tried() -> None:
    net = Net(a1=0.02, a2=0.0)
    assert race(net)[0] == "192.0.2.1"
    assert net.tried == ["192.0.2.1"]


def test_a_refusal_costs_nothing() -> None:
    net = Net(a1=None, a2=None, a3=0.0)
    address, took = race(net)
    assert (address, took < DELAY_SECONDS) == ("192.0.2.3", True)


def test_one_that_comes_too_late_is_closed() -> None:
    net = Net(a1=DELAY_SECONDS + 0.1, a2=0.1)
    race(net)
    assert net.most == 2


def test_without_descriptors_for_more_the_next_attempt_ends_the_one_before_it() -> None:
    net = Net(a1=1000.0, a2=1000.0, a3=0.0)
    assert race(net, overlap=0)[0] == "192.0.2.3"
    assert net.most == 1


def test_if_none_connects_the_last_one_tells() -> None:
    net = Net(a1=None, a2=None)
    with pytest.raises(ConnectionRefusedError, match=r"192\.0\.2\.2"):
        race(net)
    assert net.open == 0


def test_who_is_cancelled_leaves_nothing_open() -> None:
    net = Net(a1=1000.0, a2=1000.0)

    async def run() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(
                connect_first(list(net.after), net.connect, net.discard, Overlap(4)),
                2 * DELAY_SECONDS,
            )
        await asyncio.sleep(0.05)
        assert (net.open, len(net.tried)) == (0, 2)

    asyncio.run(run())
