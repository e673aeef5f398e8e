"""Slow names of some destinations cost no other destination anything."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence

import pytest

from srmp_spark.queue_manager.sender.http import addresses as module
from srmp_spark.queue_manager.sender.http.addresses import (
    NEW_THREADS,
    PROMPT_THREADS,
    SLOW_THREADS,
    HostAddresses,
)


class Names:
    """A name server: what it is asked, and what it answers."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.slow = threading.Event()
        self.addresses = HostAddresses(asyncio.get_running_loop(), self._resolve)

    def _resolve(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        if host.startswith("slow"):
            assert self.slow.wait(10)
        return () if "none" in host else ("192.0.2.1",)

    async def of(self, host: str) -> Sequence[str]:
        return await self.addresses.of(host, 80)


def run(test: Callable[[Names], Awaitable[None]]) -> None:
    async def main() -> None:
        names = Names()
        try:
            await asyncio.wait_for(test(names), 10)
        finally:
            names.slow.set()
            names.addresses.close()

    asyncio.run(main())


def test_an_address_is_never_looked_up_and_what_was_found_is_not_asked_for_again() -> None:
    async def test(names: Names) -> None:
        assert await names.of("192.0.2.9") == ("192.0.2.9",)
        assert names.asked == []
        assert (
            await asyncio.gather(*(names.of("a.example") for _ in range(50)))
            == [("192.0.2.1",)] * 50
        )
        assert await names.of("a.example") == ("192.0.2.1",)
        assert names.asked == ["a.example"]

    run(test)


def test_a_host_without_an_address_is_asked_for_again_among_the_slow_ones() -> None:
    async def test(names: Names) -> None:
        assert [await names.of("none.example") for _ in range(2)] == [(), ()]
        assert names.asked == ["none.example"] * 2
        assert "slow=1" in repr(names.addresses)

    run(test)


def test_names_that_proved_slow_hold_threads_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOKUP_SECONDS", 0.05)
    monkeypatch.setattr(module, "SLOW_SECONDS", 0.0)

    async def test(names: Names) -> None:
        hosts = [f"slow-none{n}.example" for n in range(PROMPT_THREADS + SLOW_THREADS)]
        names.slow.set()
        for host in hosts:  # slow from now on
            assert await names.of(host) == ()
        names.slow.clear()
        names.asked.clear()
        assert await asyncio.gather(*map(names.of, hosts)) == [()] * len(hosts), (
            "none within LOOKUP_SECONDS"
        )
        assert len(names.asked) == SLOW_THREADS
        assert await names.of("prompt.example") == ("192.0.2.1",)

    run(test)


def test_new_names_without_end_keep_no_known_host_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token may name them; each holds a thread for as long as its name server likes."""
    monkeypatch.setattr(module, "LOOKUP_SECONDS", 0.5)
    monkeypatch.setattr(module, "FOUND_SECONDS", 0.0)

    async def test(names: Names) -> None:
        assert await names.of("known.example") == ("192.0.2.1",)
        new = [asyncio.create_task(names.of(f"slow{n}.example")) for n in range(10 * NEW_THREADS)]
        await asyncio.sleep(0.1)
        assert await names.of("known.example") == ("192.0.2.1",)
        assert await asyncio.gather(*new) == [()] * len(new)

    run(test)
