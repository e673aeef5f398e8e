"""The addresses of destinations, looked up so that slow names cost nobody else.

A look-up holds a thread until the name server answers or the resolver gives up, which may be half a minute; waiting no longer
does not free it. So hosts whose last look-up was slow or found nothing share a few threads of their own, and all others never
wait for them. What was found is used again for a while.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

LOOKUP_SECONDS = 5.0
"""A host whose name server does not answer in this time has no address for now."""
SLOW_SECONDS = 1.0
"""A look-up that took longer sends its host to the slow ones."""
PROMPT_THREADS = 4
SLOW_THREADS = 2
"""Look-ups at once of either kind."""
FOUND_SECONDS = 30.0
"""How long addresses are used again; a connection that lives longer than this asks nobody."""
REMEMBERED_MAX = 10_000
"""Hosts of which something is known: as many as there are destinations."""

Resolve = Callable[[str, int], Sequence[str]]


def resolve(host: str, port: int) -> Sequence[str]:
    """The addresses of a host, in the resolver's order; empty if it has none. Blocks as long as the name server."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


class Addresses:
    """All look-ups of one sender process."""

    def __init__(self, loop: asyncio.AbstractEventLoop, resolve_host: Resolve = resolve) -> None:
        self._loop = loop
        self._resolve = resolve_host
        self._prompt = ThreadPoolExecutor(PROMPT_THREADS, "lookup")
        self._slowly = ThreadPoolExecutor(SLOW_THREADS, "slow-lookup")
        self._running: dict[str, asyncio.Task[Sequence[str]]] = {}
        self._known: OrderedDict[str, tuple[float, Sequence[str]]] = OrderedDict()
        self._slow: OrderedDict[str, None] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Addresses running={len(self._running)} known={len(self._known)} slow={len(self._slow)}>"

    async def of(self, host: str, port: int) -> Sequence[str]:
        """The addresses of ``host``; empty if there are none, or none in LOOKUP_SECONDS."""
        try:
            return (str(ipaddress.ip_address(host)),)
        except ValueError:
            pass
        known = self._known.get(host)
        if known is not None and self._loop.time() < known[0]:
            return known[1]
        task = self._running.get(host)
        if task is None:
            task = self._running[host] = self._loop.create_task(self._find(host, port))
        try:
            return await asyncio.wait_for(asyncio.shield(task), LOOKUP_SECONDS)
        except asyncio.TimeoutError:
            return ()

    async def _find(self, host: str, port: int) -> Sequence[str]:
        """Once for all who ask; it goes on when they stop waiting, for it holds its thread all the same."""
        pool = self._slowly if host in self._slow else self._prompt
        began = self._loop.time()
        try:
            found = await self._loop.run_in_executor(pool, self._resolve, host, port)
        finally:
            del self._running[host]
        now = self._loop.time()
        self._slow.pop(host, None)
        if not found or now - began > SLOW_SECONDS:
            self._slow[host] = None
            if len(self._slow) > REMEMBERED_MAX:
                self._slow.popitem(last=False)
        if found:
            self._known[host] = now + FOUND_SECONDS, found
            self._known.move_to_end(host)
            if len(self._known) > REMEMBERED_MAX:
                self._known.popitem(last=False)
        return found

    def close(self) -> None:
        """Wait for nothing."""
        self._prompt.shutdown(wait=False, cancel_futures=True)
        self._slowly.shutdown(wait=False, cancel_futures=True)
