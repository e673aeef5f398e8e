"""Look up the addresses of destinations, so that slow names delay no other destination.

A look-up occupies a thread until the name server answers or the resolver gives up, which may take
half a minute. Waiting no longer does not free the thread. So hosts whose last look-up was slow or
found nothing share a few threads of their own. Hosts that were never looked up share other threads,
because unauthenticated clients may name such hosts. A host that was found promptly never waits for
slow or new hosts. Addresses are used again for a while.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from srmp_spark.queue_manager.posting.address_race import Overlap
from srmp_spark.queue_manager.posting.lookups import LOOKUP_SECONDS, Remembered, resolve_blocking

SLOW_SECONDS = 1.0
"""Duration of a look-up above which its host counts as slow, in seconds."""
PROMPT_THREADS = 4
NEW_THREADS = 4
SLOW_THREADS = 2
"""Look-ups at once of slow hosts; further look-ups wait.

``PROMPT_THREADS`` are for hosts that were found promptly the last time, ``NEW_THREADS`` for hosts
that were never looked up or were forgotten.
"""
FOUND_SECONDS = 30.0
"""Time for which the addresses of a host are used again without a look-up, in seconds.

A connection that lives longer than this needs no look-up.
"""
OVERLAP_MAX = 32
"""Additional addresses of hosts, beyond the first of each, that are tried at once.

These attempts use a part of the reserved descriptors.
"""
REMEMBERED_MAX = 10_000
"""Hosts that are remembered: as many as there may be destinations.

Beyond this the host that was looked up longest ago is forgotten.
"""

Resolve = Callable[[str, int], Sequence[str]]
"""Returns the addresses of a host (name, port).

It is like :func:`srmp_spark.queue_manager.posting.lookups.resolve_blocking`.
"""


class HostAddresses:
    """Looks up the addresses of hosts, for all connections of one sender process."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, resolve_host: Resolve = resolve_blocking
    ) -> None:
        self._loop = loop
        self._resolve = resolve_host
        self._prompt = ThreadPoolExecutor(PROMPT_THREADS, "lookup")
        self._new = ThreadPoolExecutor(NEW_THREADS, "new-lookup")
        self._slowly = ThreadPoolExecutor(SLOW_THREADS, "slow-lookup")
        self._running: dict[str, asyncio.Task[Sequence[str]]] = {}
        self._known = Remembered(REMEMBERED_MAX, loop.time)
        self._is_slow: OrderedDict[str, bool] = OrderedDict()
        """For each host, whether its last look-up was slow or found nothing.

        The host that was looked up last is the last entry.
        """
        self.overlap = Overlap(OVERLAP_MAX)
        """Limits attempts to connect to several addresses of a host at once (OVERLAP_MAX)."""

    def __repr__(self) -> str:
        return (
            f"<Addresses running={len(self._running)} known={len(self._known)} "
            f"slow={sum(self._is_slow.values())}>"
        )

    def known(self, host: str) -> Sequence[str] | None:
        """Return the addresses of ``host`` that are known without a look-up, or ``None``.

        ``host`` may itself be an IP address, which is then the only one. Addresses of an earlier
        look-up count for FOUND_SECONDS.
        """
        try:
            return (str(ipaddress.ip_address(host)),)
        except ValueError:
            return self._known.get(host)

    def prefer(self, host: str, address: str) -> None:
        """Put ``address``, which has just answered, first among the known addresses of ``host``.

        Nothing changes if the address is not known.
        """
        known = self._known.get(host)
        if known is not None and address in known and known[0] != address:
            self._known.reorder(host, (address, *(each for each in known if each != address)))

    async def of(self, host: str, port: int) -> Sequence[str]:
        """Return the addresses of ``host``, after a look-up if they are not known.

        The result is empty if there are none, or if none is found within LOOKUP_SECONDS.
        """
        known = self.known(host)
        if known is not None:
            return known
        task = self._running.get(host)
        if task is None:
            task = self._running[host] = self._loop.create_task(self._find(host, port))
        try:
            return await asyncio.wait_for(asyncio.shield(task), LOOKUP_SECONDS)
        except asyncio.TimeoutError:
            return ()

    async def _find(self, host: str, port: int) -> Sequence[str]:
        """Look ``host`` up, once for all callers, and return its addresses, or an empty sequence.

        The look-up continues when the callers stop waiting, because the thread stays occupied
        nevertheless.
        """
        is_slow = self._is_slow.get(host)
        pool = self._new if is_slow is None else self._slowly if is_slow else self._prompt
        began = self._loop.time()
        try:
            found = await self._loop.run_in_executor(pool, self._resolve, host, port)
        finally:
            del self._running[host]
        self._is_slow[host] = not found or self._loop.time() - began > SLOW_SECONDS
        self._is_slow.move_to_end(host)
        if len(self._is_slow) > REMEMBERED_MAX:
            self._is_slow.popitem(last=False)
        if found:
            self._known.put(host, found, FOUND_SECONDS)
        return found

    def close(self) -> None:
        """Cancel the look-ups that wait for a thread, and do not wait for running ones."""
        for pool in (self._prompt, self._new, self._slowly):
            pool.shutdown(wait=False, cancel_futures=True)
