"""Connect to the first of a host's addresses that answers (RFC 8305, Happy Eyeballs).

Hosts with both IPv4 and IPv6 are common, and often some router drops their IPv6 packets. A client
that tries the addresses one after the other waits for the whole time-out of the first address every
time. So the next address is tried after a short delay, while the earlier attempt continues. The
first connection wins, and all others are closed before anything is written to them.

The caller gives the addresses that are allowed. This module looks no name up, so an address that
was judged cannot be replaced by another one.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain, zip_longest
from typing import TypeVar

ADDRESSES_MAX = 4
"""Most addresses of one host that are tried; further addresses are ignored."""
DELAY_SECONDS = 0.25
"""Seconds after which the next address is tried too: the Connection Attempt Delay of RFC 8305,
section 5.
"""

T = TypeVar("T")


class Overlap:
    """A budget of connection attempts that run at the same time as an earlier one of their host.

    Each such attempt needs a file descriptor that no other limit counts.
    """

    def __init__(self, most: int) -> None:
        self._left = most

    def take(self) -> bool:
        """Take a place for one more attempt, and return whether there was one.

        If so, call :meth:`give_back` when the attempt is over.
        """
        if self._left <= 0:
            return False
        self._left -= 1
        return True

    def give_back(self) -> None:
        """Give back the place that :meth:`take` took, because the attempt is over."""
        self._left += 1


def interleaved(addresses: Sequence[str]) -> list[str]:
    """Return the addresses to try in order, IPv4 and IPv6 in turn (RFC 8305, section 4).

    The resolver's first address comes first. At most ADDRESSES_MAX addresses are returned. Raises
    :class:`ValueError` if one is no IP address.
    """
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
    """Connect to the first of ``addresses`` that answers; return the address and the connection.

    ``connect`` connects to one address. ``discard`` closes a connection that came too late. If
    ``overlap`` has no place left, the next attempt ends the one before it. There is no time-out:
    cancel the call to end it. Raises the last :class:`OSError` if no address connects, any other
    exception of ``connect`` at once, and :class:`ValueError` if one is no IP address.
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
