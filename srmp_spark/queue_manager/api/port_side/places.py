"""Choose the connection that is closed when the API port is full.

**Theory of operation.** A place is taken only from the new connection's own address, or from an
address that has at least as many connections. So a flood takes places from itself. A caller with
few connections keeps these connections, silent or not. Within one address, connections that have
never sent a complete head are closed first. Connections between two calls follow, and connections
whose call waits for its turn are last. The last kind is closed only for an address that has fewer
connections. A call that has begun keeps its connection. Behind a reverse proxy all callers are one
address; then only the silence of a connection decides.

The order is computed again after ORDER_SECONDS, or after ORDERED_MIN places were given. Computing
the order costs a millisecond, and a flood must not cause this cost for each connection. The state
of a connection is checked again before the connection is closed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from enum import IntEnum
from typing import Generic, Protocol, TypeVar

from srmp_spark.srmp.receiving.stream_room import holder_of

ORDER_SECONDS = 0.02
"""Least time between two orders, in seconds, unless ORDERED_MIN places were given.

A caller that connects meanwhile waits for a place (:mod:`.port`).
"""
ORDERED_MIN = 64
"""Places that one order must give before the next order may be computed early.

Each place then costs some 16 microseconds.
"""


class ApiStanding(IntEnum):
    """State of a connection. Among connections of one address, the lowest value is closed first."""

    SILENT = 0
    """The connection has never sent a complete request head."""
    IDLE = 1
    """The connection is between two calls."""
    WAITING = 2
    """The call of the connection has not begun."""
    BUSY = 3
    """The call of the connection has begun."""


class Standings(Protocol):
    """A connection, with the properties that the order needs."""

    host: str

    @property
    def standing(self) -> ApiStanding:
        """Return the state of the connection."""

    @property
    def silent_since(self) -> float:
        """Return the time at which the last request began, in seconds of the loop's clock.

        Before the first request this is the time when the connection began.
        """


C = TypeVar("C", bound=Standings)


class ApiPlaces(Generic[C]):
    """Counts the connections of a port by address, and chooses those that are closed."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._order: list[tuple[tuple[int, ApiStanding, float], C]] = []
        """Connections that may be closed, with their ranks; the one to close next is at the end."""
        self._ordered_at = float("-inf")
        self._given = 0
        """Number of connections that the present order has returned to be closed."""

    def enter(self, host: str) -> None:
        """Count one more connection of the address ``host``."""
        self._counts[_holder(host)] += 1

    def leave(self, host: str) -> None:
        """Subtract one connection of ``host`` from the count, because it has ended."""
        holder = _holder(host)
        self._counts[holder] -= 1
        if self._counts[holder] <= 0:
            del self._counts[holder]

    def makes_way(self, connections: Collection[C], host: str, now: float) -> C | None:
        """Return the connection whose place a new one of ``host`` may take, or ``None``.

        ``now`` is in seconds of the loop's clock. The caller closes the returned connection. A
        connection is returned at most once for each order that is computed.
        """
        found = self._next(connections, host)
        if found is None and (
            self._given >= ORDERED_MIN or now >= self._ordered_at + ORDER_SECONDS
        ):
            self._ordered_at, self._given = now, 0
            ranked = [(self._rank(each), each) for each in connections]
            self._order = sorted(ranked, key=lambda pair: pair[0], reverse=True)
            found = self._next(connections, host)
        return found

    def _rank(self, connection: C) -> tuple[int, ApiStanding, float]:
        return -self._counts[_holder(connection.host)], connection.standing, connection.silent_since

    def _next(self, connections: Collection[C], host: str) -> C | None:
        own = _holder(host)
        while self._order:
            rank, candidate = self._order.pop()
            holder, standing = _holder(candidate.host), candidate.standing
            if candidate not in connections or standing is ApiStanding.BUSY:
                continue
            more = self._counts[holder] - self._counts[own]
            if (holder == own or more >= 0) and (standing is not ApiStanding.WAITING or more > 0):
                self._given += 1
                return candidate
            if standing <= rank[1]:
                # All candidates after this one have no more connections, or calls that wait too.
                self._order.append((rank, candidate))
                return None
        return None


def _holder(host: str) -> str:
    return holder_of(f"{host}:0", None)
