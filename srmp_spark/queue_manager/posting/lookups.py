"""Look up the IP addresses of peers' hosts, and remember the results.

Two parts of the program call peers. Each assigns its look-ups by a rule of its own, for a reason:

- :mod:`.receipt_lookups` (receipts, in the main process): unauthenticated clients choose the
  names, so slots are assigned per peer. It looks up in the loop's own threads. It remembers a
  result for a second, also an empty one.
- :mod:`.sender.addresses` (messages, in the sender process): no destination is kept from a
  look-up. Names that proved slow, and names that are new, have threads of their own. A result
  is valid for half a minute.

One rule for both would be too strict for thousands of destinations, or too open for unauthenticated
clients.
"""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

LOOKUP_SECONDS = 5.0
"""Longest wait for a name server, in seconds.

A host whose name server does not answer in this time counts as without an address for now.
"""


def resolve_blocking(host: str, port: int) -> Sequence[str]:
    """Look up a host, and return its IP addresses in the resolver's order, without duplicates.

    Return an empty sequence if the look-up fails. Blocks for as long as the name server takes.
    """
    try:
        return _addresses(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except (OSError, UnicodeError):
        return ()


async def resolve(host: str, port: int) -> Sequence[str]:
    """Look up a host in one of the loop's threads, and return its IP addresses.

    Return an empty sequence if the look-up fails. There is no time-out: the call takes as long as
    the name server.
    """
    try:
        return _addresses(
            await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
    except (OSError, UnicodeError):
        return ()


def _addresses(entries: Iterable[tuple[Any, ...]]) -> Sequence[str]:
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in entries))


class Remembered:
    """Remembers the addresses of hosts that were looked up, each for a number of seconds."""

    def __init__(self, hosts_max: int, time: Callable[[], float]) -> None:
        """Create an empty memory.

        At most ``hosts_max`` hosts are remembered; then the one that was looked up longest ago is
        forgotten. ``time`` returns monotonic seconds.
        """
        self._hosts_max = hosts_max
        self._time = time
        self._known: OrderedDict[str, tuple[float, Sequence[str]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, host: str) -> Sequence[str] | None:
        """Return the addresses of ``host``, or ``None`` if they are not known or have expired.

        An empty sequence means that the host was looked up and has none.
        """
        known = self._known.get(host)
        return known[1] if known is not None and self._time() < known[0] else None

    def reorder(self, host: str, found: Sequence[str]) -> None:
        """Replace the addresses of ``host`` by ``found``, the same ones in another order.

        They expire when they would have expired. Raises :class:`KeyError` if the host is not known.
        """
        self._known[host] = self._known[host][0], found

    def put(self, host: str, found: Sequence[str], seconds: float) -> None:
        """Remember the addresses of ``host`` for ``seconds``.

        At the limit the oldest host is forgotten.
        """
        self._known[host] = self._time() + seconds, found
        self._known.move_to_end(host)
        if len(self._known) > self._hosts_max:
            self._known.popitem(last=False)
