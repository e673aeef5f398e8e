"""How many connections a port may have, and how many of them one address: counted before anything is
read.

**Theory of operation.** A port admits a connection while it has room and the connection's address
has room in its share. A port that is full closes the connection that has been idle longest and has
never shown who it is, instead of refusing the new one: a flood of silent connections ends in
itself. Addresses of IPv6 count by their /64, which everybody gets whole. Loopback has no share of
its own: a reverse proxy stands there, whose clients are many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from srmp_spark.srmp.stream_room import holder_of

API_CONNECTIONS_MAX = 1_024
"""Connections of the API: a Spark query has two for each of its tasks."""
API_SHARE = 4
"""One address has at most this part of them."""


class ConnectionRoom:
    """The connections of one port, by address."""

    def __init__(self, connections_max: int, share: int) -> None:
        """``share``: one address has at most ``connections_max / share`` connections."""
        self.connections_max = connections_max
        self._of_one_max = max(1, connections_max // share)
        self._addresses: dict[Hashable, str] = {}
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._addresses)

    @property
    def is_full(self) -> bool:
        """Whether a further connection needs the place of another one."""
        return len(self._addresses) >= self.connections_max

    def admits(self, host: str) -> bool:
        """Whether ``host`` has room in its own share, whatever the others have."""
        holder = holder_of(f"{host}:0", None)
        here = holder.startswith("127.") or holder in ("", "::/64")
        return here or self._counts[holder] < self._of_one_max

    def enter(self, connection: Hashable, host: str) -> None:
        """Count ``connection``."""
        holder = holder_of(f"{host}:0", None)
        self._addresses[connection] = holder
        self._counts[holder] += 1

    def leave(self, connection: Hashable) -> None:
        """Count it no longer."""
        holder = self._addresses.pop(connection, None)
        if holder is not None:
            self._counts[holder] -= 1
            if not self._counts[holder]:
                del self._counts[holder]
