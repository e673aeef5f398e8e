"""Who makes way when the API port is full: a connection of the address that has the most.

**Theory of operation.** A place is taken only from an address that has at least as many connections as
the newcomer's has, or from the newcomer's own address. So a flood takes places from itself, and a
caller with few connections keeps them, silent or not. Of one address the connections that have never
sent a whole head come first, those between two calls second, and those whose call waits for its turn
last; the last kind makes way only for an address that has fewer connections. A call that has begun
keeps its connection. Behind a reverse proxy all callers are one address: there silence alone decides.

The order is made anew after ORDER_SECONDS, or after it has given ORDERED_MIN places: it costs a millisecond,
and a flood must not cause one for each of its connections. What was true when the order was made is
looked at again before a connection is closed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from enum import IntEnum
from typing import Generic, Protocol, TypeVar

from srmp_spark.srmp.stream_room import holder_of

ORDER_SECONDS = 0.02
"""Least time between two orders, but for ORDERED_MIN: a caller that comes meanwhile waits at
the door (:mod:`.port`)."""
ORDERED_MIN = 64
"""Places that one order gives before the next one is made early: each place costs some 16 us then."""


class Standing(IntEnum):
    """What a connection does; a lower one makes way first."""

    SILENT = 0
    """It has never sent a whole head."""
    IDLE = 1
    """It is between two calls."""
    WAITING = 2
    """Its call has not begun."""
    BUSY = 3
    """Its call has begun."""


class Standings(Protocol):
    """What must be known of a connection."""

    host: str

    @property
    def standing(self) -> Standing:
        """Return what it does."""

    @property
    def silent_since(self) -> float:
        """Return when its last request began, or the connection, on the loop's clock."""


C = TypeVar("C", bound=Standings)


class Places(Generic[C]):
    """The connections of a port by address, and the order in which they make way."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._order: list[tuple[tuple[int, Standing, float], C]] = []
        """Who makes way; the next one is last."""
        self._ordered_at = float("-inf")
        self._given = 0
        """Places that this order has given."""

    def enter(self, host: str) -> None:
        """Count a connection of ``host``."""
        self._counts[_holder(host)] += 1

    def leave(self, host: str) -> None:
        """Count it no longer."""
        holder = _holder(host)
        self._counts[holder] -= 1
        if self._counts[holder] <= 0:
            del self._counts[holder]

    def makes_way(self, connections: Collection[C], host: str, now: float) -> C | None:
        """Return the one of ``connections`` whose place a connection of ``host`` gets, or None. The caller closes it."""
        found = self._next(connections, host)
        if found is None and (
            self._given >= ORDERED_MIN or now >= self._ordered_at + ORDER_SECONDS
        ):
            self._ordered_at, self._given = now, 0
            ranked = [(self._rank(each), each) for each in connections]
            self._order = sorted(ranked, key=lambda pair: pair[0], reverse=True)
            found = self._next(connections, host)
        return found

    def _rank(self, connection: C) -> tuple[int, Standing, float]:
        return -self._counts[_holder(connection.host)], connection.standing, connection.silent_since

    def _next(self, connections: Collection[C], host: str) -> C | None:
        own = _holder(host)
        while self._order:
            rank, candidate = self._order.pop()
            holder, standing = _holder(candidate.host), candidate.standing
            if candidate not in connections or standing is Standing.BUSY:
                continue
            more = self._counts[holder] - self._counts[own]
            if (holder == own or more >= 0) and (standing is not Standing.WAITING or more > 0):
                self._given += 1
                return candidate
            if (
                standing <= rank[1]
            ):  # so those after it have no more connections, or calls that wait too
                self._order.append((rank, candidate))
                return None
        return None


def _holder(host: str) -> str:
    return holder_of(f"{host}:0", None)
