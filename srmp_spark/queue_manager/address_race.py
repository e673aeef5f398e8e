"""Connects to the first of a host's addresses that answers (RFC 8305, Happy Eyeballs).

A host of two families whose IPv6 packets are swallowed somewhere is usual. Whoever tries its addresses one after the other
waits for the whole time of the first one, every time. So the next address is tried after a short delay, while the attempt
before it goes on; the first connection wins, and all others are closed before anything is written to them.

The caller gives the addresses, each of which may be called: nothing is looked up here, so nothing that was judged can change.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain, zip_longest
from typing import TypeVar

ADDRESSES_MAX = 4
"""Addresses of one host that are tried."""
DELAY_SECONDS = 0.25
"""The Connection Attempt Delay of RFC 8305, section 5: a connection that is slower is raced by the next address."""

T = TypeVar("T")


class Overlap:
    """Attempts at once beyond the first of each host: each needs a descriptor that nobody has counted."""

    def __init__(self, most: int) -> None:
        self._left = most

    def take(self) -> bool:
        """Return whether one more may begin; then :meth:`give_back`."""
        if self._left <= 0:
            return False
        self._left -= 1
        return True

    def give_back(self) -> None:
        """Count it no longer."""
        self._left += 1


def interleaved(addresses: Sequence[str]) -> list[str]:
    """Return the addresses that are tried, of both families in turn, the resolver's first one first (RFC 8305, section 4)."""
    families: dict[int, list[str]] = {}
    for address in addresses:
        families.setdefault(ipaddress.ip_address(address.partition("%")[0]).version, []).append(
            address
        )
    mixed = chain.from_iterable(zip_longest(*families.values()))
    return [address for address in mixed if address is not None][:ADDRESSES_MAX]


async def connect_first(
    addresses: Sequence[str],
    connect: Callable[[str], Awaitable[T]],
    discard: Callable[[T], object],
    overlap: Overlap,
) -> tuple[str, T]:
    """Return the first of ``addresses`` that :func:`connect` connects to, with its connection.

    ``discard`` closes a connection that came too late. Raises the last :class:`OSError` if none connects; for a time-out
    cancel it. Where ``overlap`` has nothing left the next attempt ends the one before it.
    """
    waiting = interleaved(addresses)
    running: dict[asyncio.Task[T], str] = {}
    extra = 0
    error: BaseException = OSError("the host has no address")
    try:
        while waiting or running:
            if waiting:
                if running and not overlap.take():
                    _abandon(running, discard)
                elif running:
                    extra += 1
                address = waiting.pop(0)
                running[asyncio.ensure_future(_awaited(connect, address))] = address
            delay = DELAY_SECONDS if waiting else None
            done, _ = await asyncio.wait(
                running, timeout=delay, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                failure = task.exception()
                if failure is None:
                    return running.pop(task), task.result()
                del running[task]
                if not isinstance(failure, OSError):
                    raise failure
                error = failure
        raise error
    finally:
        _abandon(running, discard)
        for _ in range(extra):
            overlap.give_back()


async def _awaited(connect: Callable[[str], Awaitable[T]], address: str) -> T:
    return await connect(address)


def _abandon(running: dict[asyncio.Task[T], str], discard: Callable[[T], object]) -> None:
    def ended(task: asyncio.Task[T]) -> None:
        if not task.cancelled() and task.exception() is None:
            discard(task.result())

    for task in running:
        task.add_done_callback(ended)
        task.cancel()
    running.clear()
