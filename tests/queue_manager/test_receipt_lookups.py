"""Slow names of one peer cost no other peer its receipts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from srmp_spark.queue_manager.receipts import receipt_lookups
from srmp_spark.queue_manager.receipts.receipt_lookups import NOT_FOUND_SECONDS, ReceiptLookups


class Names:
    """A name server: what it is asked, and what it answers."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.at_once = 0
        self.most = 0
        self.now = 0.0
        self.slow = asyncio.Event()
        self.lookups = ReceiptLookups(lambda: self.now)

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            if host.startswith("slow"):
                await self.slow.wait()
            return () if host.startswith("none") else ("192.0.2.1",)
        finally:
            self.at_once -= 1

    def ask(
        self, host: str, peer: str = "peer", *, allowed: bool = False
    ) -> asyncio.Future[Sequence[str] | None]:
        return asyncio.ensure_future(
            self.lookups.addresses(self.resolve, host, 80, peer=peer, allowed=allowed)
        )

    async def is_asked(self, *hosts: str) -> bool:
        """Whether exactly these are looked up now, after a while on a busy machine."""
        for _ in range(500):
            if self.asked == list(hosts):
                break
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)  # no other follows
        return self.asked == list(hosts)

    async def quick(
        self, host: str, peer: str = "peer", *, allowed: bool = False
    ) -> Sequence[str] | None:
        return await asyncio.wait_for(self.ask(host, peer, allowed=allowed), 1)


def run(test: Callable[[Names], Awaitable[None]]) -> None:
    async def main() -> None:
        names = Names()
        await asyncio.wait_for(test(names), 10)
        await names.lookups.close()

    asyncio.run(main())


def test_slow_names_of_one_peer_hold_one_slot_and_nobody_else_waits() -> None:
    async def test(names: Names) -> None:
        slow = [names.ask(f"slow{n}.example", "attacker") for n in range(100)]
        assert await names.is_asked("slow0.example")
        assert await names.quick("honest.example", "honest") == ("192.0.2.1",)
        names.slow.set()
        assert await asyncio.gather(*slow) == [("192.0.2.1",)] * 100
        assert names.most == 2
        assert repr(names.lookups).startswith("<ReceiptLookups peers=0 "), (
            "nothing is kept of a peer that waits for nothing"
        )

    run(test)


def test_one_that_asks_for_an_honest_name_behind_its_slow_ones_holds_up_nobody() -> None:
    async def test(names: Names) -> None:
        for host in ("slow.example", "honest.example"):
            names.ask(host, "attacker")
        await asyncio.sleep(0.01)
        assert await names.quick("honest.example", "honest") == ("192.0.2.1",)

    run(test)


def test_hosts_that_the_operator_named_have_slots_that_no_stranger_fills() -> None:
    async def test(names: Names) -> None:
        for n in range(10):
            names.ask(f"slow{n}.example", f"attacker{n}")
        await asyncio.sleep(0.01)
        assert len(names.asked) == receipt_lookups.STRANGER_LOOKUPS_MAX
        assert await names.quick("orders.example", "honest", allowed=True) == ("192.0.2.1",)

    run(test)


def test_a_look_up_that_takes_too_long_is_no_address_but_keeps_its_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its thread is still taken: a slot given back at the deadline would let a peer take them all."""
    monkeypatch.setattr(receipt_lookups, "LOOKUP_SECONDS", 0.05)

    async def test(names: Names) -> None:
        assert await names.quick("slow.example") == ()
        waiting = names.ask("other.example")
        await asyncio.sleep(0.1)
        assert not waiting.done()
        assert names.asked == ["slow.example"]
        names.slow.set()
        assert await waiting == ("192.0.2.1",)

    run(test)


def test_a_host_without_an_address_is_not_asked_for_again_for_a_while() -> None:
    async def test(names: Names) -> None:
        assert await names.quick("none.example") == ()
        assert await names.quick("none.example", "another") == ()
        assert names.asked == ["none.example"]
        names.now += NOT_FOUND_SECONDS + 0.1
        assert await names.quick("none.example") == ()
        assert names.asked == ["none.example"] * 2

    run(test)


def test_many_receipts_for_one_host_are_one_look_up_and_the_next_moment_another() -> None:
    async def test(names: Names) -> None:
        assert set(await asyncio.gather(*(names.ask("a.example") for _ in range(50)))) == {
            ("192.0.2.1",)
        }
        assert names.asked == ["a.example"]
        names.now += receipt_lookups.FOUND_SECONDS + 0.1
        await names.quick("a.example")
        assert names.asked == ["a.example"] * 2

    run(test)


def test_an_address_is_never_looked_up() -> None:
    async def test(names: Names) -> None:
        assert await names.quick("192.0.2.9") == ("192.0.2.9",)
        assert names.asked == []

    run(test)


def test_what_waits_and_what_is_remembered_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipt_lookups, "PEER_PENDING_MAX", 3)
    monkeypatch.setattr(receipt_lookups, "REMEMBERED_MAX", 5)

    async def test(names: Names) -> None:
        waiting = [names.ask(f"slow{n}.example") for n in range(3)]
        await asyncio.sleep(0.01)
        assert await names.quick("slow9.example") is None
        assert await names.quick("a.example", "another") == ("192.0.2.1",)
        names.slow.set()
        await asyncio.gather(*waiting)
        for n in range(10):
            await names.quick(f"none{n}.example")
        assert len(names.lookups._known) == 5

    run(test)
