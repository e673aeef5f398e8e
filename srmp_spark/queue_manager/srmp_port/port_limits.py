"""Limit the connections of a port, in all and for one address, before anything is read.

**Theory of operation.** A port admits a connection while it has room and the connection's address
has room in its share. A port that is full closes the connection that has been idle longest and has
never proved who its client is, instead of refusing the new one. So a flood of silent connections
evicts its own connections. Addresses of IPv6 count by their /64, because each client gets a whole
/64. Loopback has no share of its own: a reverse proxy connects from loopback for many clients.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from srmp_spark.srmp.receiving.stream_room import holder_of

API_CONNECTIONS_MAX = 1_024
"""Most connections of the API. A Spark query has two for each of its tasks."""
API_SHARE = 4
"""Divisor of API_CONNECTIONS_MAX for one address: it may have at most a quarter of them."""
SRMP_SHARE = 4
"""Divisor for one address at the SRMP port: it may have at most a quarter of the connections, and
of the bytes of unfinished requests.
"""
RPC_CONNECTIONS_MAX = 2_000
"""Most connections of the RPC port, and of the endpoint mapper.

A reader has one, and a second one while it cancels.
"""
RPC_SHARE = 4
"""Divisor of RPC_CONNECTIONS_MAX for one address: it may have at most a quarter of them."""


def payer_of(host: str) -> str | None:
    """Return the address, or the /64 of IPv6, in whose share a connection of ``host`` counts.

    Return ``None`` for loopback, which has no share.
    """
    holder = holder_of(f"{host}:0", None)
    return None if holder.startswith("127.") or holder in ("", "::/64") else holder


class ConnectionRoom:
    """Counts the connections of one port, in all and by address."""

    def __init__(self, connections_max: int, share: int) -> None:
        """Create an empty count.

        One address may have at most ``connections_max / share`` connections.
        """
        self.connections_max = connections_max
        self._of_one_max = max(1, connections_max // share)
        self._payers: dict[Hashable, str | None] = {}
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._payers)

    def __contains__(self, connection: Hashable) -> bool:
        return connection in self._payers

    @property
    def is_full(self) -> bool:
        """Return whether the port has as many connections as it may."""
        return len(self._payers) >= self.connections_max

    def admits(self, host: str) -> bool:
        """Return whether the address ``host`` may have one more connection in its own share.

        Whether the port is full does not matter.
        """
        payer = payer_of(host)
        return payer is None or self._counts[payer] < self._of_one_max

    def enter(self, connection: Hashable, host: str) -> None:
        """Count ``connection`` as one of the port, and in the share of the address ``host``."""
        payer = self._payers[connection] = payer_of(host)
        if payer is not None:
            self._counts[payer] += 1

    def leave(self, connection: Hashable) -> None:
        """Stop counting ``connection``, because it is closed. Do nothing if it is not counted."""
        payer = self._payers.pop(connection, None)
        if payer is not None:
            self._counts[payer] -= 1
            if not self._counts[payer]:
                del self._counts[payer]
