"""Names of peers: how a host is looked up, and how what was found is remembered.

Both who call peers use this, and each deals out its look-ups by a rule of its own, for a reason:

- :mod:`.receipt_lookups` (receipts, in the main process): strangers choose the names, so slots are dealt out per peer. It looks
  up in the loop's own threads, remembers for a second, and also that nothing was found.
- :mod:`.sender.addresses` (messages, in the sender process): nobody is kept from asking; names that proved slow, and names that
  are new, are kept apart in threads of their own. What was found is good for half a minute.

One rule for both would be too strict for thousands of destinations, or too open for strangers.
"""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

LOOKUP_SECONDS = 5.0
"""A host whose name server does not answer in this time has no address for now."""


def resolve_blocking(host: str, port: int) -> Sequence[str]:
    """The addresses of a host, in the resolver's order; empty if it has none. Blocks as long as the name server."""
    try:
        return _addresses(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except (OSError, UnicodeError):
        return ()


async def resolve(host: str, port: int) -> Sequence[str]:
    """The same in one of the loop's threads. As slow as the name server."""
    try:
        return _addresses(
            await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
    except (OSError, UnicodeError):
        return ()


def _addresses(entries: Iterable[tuple[Any, ...]]) -> Sequence[str]:
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in entries))


class Remembered:
    """What look-ups found, for a while each."""

    def __init__(self, hosts_max: int, time: Callable[[], float]) -> None:
        """``hosts_max``: how many are kept; the one that was looked up longest ago goes first. ``time``: monotonic seconds."""
        self._hosts_max = hosts_max
        self._time = time
        self._known: OrderedDict[str, tuple[float, Sequence[str]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, host: str) -> Sequence[str] | None:
        """What was found, if its time is not over."""
        known = self._known.get(host)
        return known[1] if known is not None and self._time() < known[0] else None

    def reorder(self, host: str, found: Sequence[str]) -> None:
        """Remember the same addresses in another order, for no longer than before."""
        self._known[host] = self._known[host][0], found

    def put(self, host: str, found: Sequence[str], seconds: float) -> None:
        """Remember it so long."""
        self._known[host] = self._time() + seconds, found
        self._known.move_to_end(host)
        if len(self._known) > self._hosts_max:
            self._known.popitem(last=False)
