"""Decide which destination may have a connection: places, with shares per address and host.

The module has no socket and no clock.

**Theory of operation.** An unauthenticated client may choose the hosts that the sender process
connects to: a sender whose messages are forwarded, or the owner of an API token that may send.
These hosts may be slow or not answer. So no destination may take places that another one needs:

- Every connection counts for its *payers*: the host name, and the address (of IPv6 the /64, because
  providers assign it as a whole). One payer has at most a part (:data:`SHARE`) of the places.
- There are two pools. A destination whose last attempt failed, or was answered late, waits for one
  of the few places of the *slow* pool; all others share the *prompt* pool. A connection of the
  prompt pool may have a request that is older than :data:`SLOW_SECONDS`. Such a connection moves to
  the slow pool when another destination waits for a place, if the slow pool has room.
- A destination that waits for a place of the prompt pool gets one within about
  :data:`SLOW_SECONDS`. An idle connection is closed first. Then follows a connection that has
  become slow and cannot move, of the payer with the most places. A connection that is at work is
  closed after its turn: its owner asks :meth:`ConnectionPlaces.is_wanted`.
- In the slow pool a slow connection is closed only for a payer that has at least two places less.
  So a large message to a single slow destination is never cut off for others.
- Servers (host and port) get places in turns, one place each: a server with a thousand queues
  delays another server by one place.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

SHARE = 4
"""One payer has at most this part of the places of a pool: one divided by this number.

One address has the same share at this queue manager's own ports. A quarter of the prompt pool are
187 queues at work at once at one address, and queues take turns.
"""
SLOW_SECONDS = 2.0
"""Age above which a request, or an attempt to connect, counts as slow, in seconds.

A healthy receiver syncs its disk and answers within a tenth of this time, so no healthy destination
loses its connection. A new destination waits hardly longer than this time.
"""
LOOKS_MAX = 64
"""Waiting connections for which one call of :meth:`ConnectionPlaces.make_way` closes connections.

The next call is soon (:data:`.connections.LOOK_SECONDS`).
"""

W = TypeVar("W")


class ConnectionStanding(NamedTuple):
    """The present state of a connection, for the decision which connection is closed."""

    is_idle: bool
    """Whether no message is in flight on the connection."""
    seconds: float
    """Seconds since the last answer if the connection is idle.

    Otherwise, seconds since the request, or the attempt to connect, began.
    """


@dataclass(slots=True)
class _Pool(Generic[W]):
    """Places of one kind (prompt or slow), their holders, and the wires that wait for them."""

    most: int
    held: Counter[str] = field(default_factory=Counter)
    """Number of places that each payer holds."""
    holders: dict[W, tuple[str, ...]] = field(default_factory=dict)
    """Payers of each connection that has a place; the earliest connection is first."""
    lines: dict[str, deque[tuple[W, tuple[str, ...]]]] = field(default_factory=dict)
    """Waiting connections with their payers, by server.

    The line whose turn is next is first. No line is empty.
    """
    waiting: Counter[str] = field(default_factory=Counter)
    """Number of waiting connections of each payer."""

    @property
    def share(self) -> int:
        """Return the largest number of places that one payer may have."""
        return max(1, self.most // SHARE)

    @property
    def is_full(self) -> bool:
        return len(self.holders) >= self.most

    def has_room(self, payers: tuple[str, ...]) -> bool:
        return not self.is_full and all(self.held[payer] < self.share for payer in payers)

    def enter(self, wire: W, payers: tuple[str, ...]) -> None:
        self.holders[wire] = payers
        self.held.update(payers)

    def leave(self, wire: W) -> bool:
        payers = self.holders.pop(wire, None)
        if payers is not None:
            _take_away(self.held, payers)
        return payers is not None

    def join(self, wire: W, server: str, payers: tuple[str, ...]) -> None:
        self.lines.setdefault(server, deque()).append((wire, payers))
        self.waiting.update(payers)

    def withdraw(self, wire: W) -> bool:
        for server, line in self.lines.items():
            found = next((each for each in line if each[0] is wire), None)
            if found is not None:
                line.remove(found)
                self._left(server, line, found[1])
                return True
        return False

    def _left(
        self, server: str, line: deque[tuple[W, tuple[str, ...]]], payers: tuple[str, ...]
    ) -> None:
        _take_away(self.waiting, payers)
        if not line:
            del self.lines[server]

    def admit(self) -> Iterator[W]:
        """Give free places to waiting connections, and yield each of these connections.

        Each server's line gets one place in turn. A line is passed over while a payer of its first
        connection has no room in its share.
        """
        blocked = 0
        while self.lines and not self.is_full and blocked < min(len(self.lines), LOOKS_MAX):
            server = next(iter(self.lines))
            line = self.lines.pop(server)
            # The line moves to the end.
            self.lines[server] = line
            wire, payers = line[0]
            if not self.has_room(payers):
                blocked += 1
                continue
            blocked = 0
            line.popleft()
            self._left(server, line, payers)
            self.enter(wire, payers)
            yield wire


class ConnectionPlaces(Generic[W]):
    """Grants places to the connections of one sender process."""

    def __init__(self, most: int, slow_max: int) -> None:
        """Split ``most`` places into a prompt and a slow pool, each with at least one place.

        At most ``slow_max`` places are for slow destinations, and otherwise never more than a
        quarter.
        """
        slow = max(1, min(slow_max, most // 4))
        self._prompt: _Pool[W] = _Pool(max(1, most - slow))
        self._slow: _Pool[W] = _Pool(slow)
        self._pools = (self._prompt, self._slow)

    def __repr__(self) -> str:
        prompt, slow = (
            f"{len(pool.holders)}/{pool.most}+{self._waiting(pool)}" for pool in self._pools
        )
        return f"<Places prompt={prompt} slow={slow}>"

    @staticmethod
    def _waiting(pool: _Pool[W]) -> int:
        return sum(map(len, pool.lines.values()))

    @property
    def somebody_waits(self) -> bool:
        """Return whether any connection waits for a place of either pool."""
        return bool(self._prompt.lines or self._slow.lines)

    def want(self, wire: W, server: str, payers: tuple[str, ...], *, is_slow: bool) -> None:
        """Let ``wire`` wait for a place in the line of ``server``, which is host and port.

        ``payers`` are the names for which the place counts, at least one. ``is_slow`` chooses the
        slow pool. :meth:`admit` returns ``wire`` when a place was given to it.
        """
        assert payers, "somebody pays"
        (self._slow if is_slow else self._prompt).join(wire, server, payers)

    def withdraw(self, wire: W) -> None:
        """Take ``wire`` out of the line in which it waits for a place, if it waits."""
        for pool in self._pools:
            if pool.withdraw(wire):
                return

    def release(self, wire: W) -> bool:
        """Free the place of ``wire``, and return whether it had one."""
        return any(pool.leave(wire) for pool in self._pools)

    def admit(self, slow_most: int) -> list[W]:
        """Give free places to waiting connections, and return the connections that got one.

        The slow pool gives at most ``slow_most`` places.
        """
        return [*islice(self._slow.admit(), slow_most), *self._prompt.admit()]

    def is_wanted(self, wire: W) -> bool:
        """Return whether a waiting connection would get a place if ``wire`` gave up a place."""
        for pool in self._pools:
            payers = pool.holders.get(wire)
            if payers is not None and pool.lines:
                return pool.is_full or any(
                    pool.held[payer] >= pool.share and pool.waiting[payer] for payer in payers
                )
        return False

    # --- making way -------------------------------------------------------------------------------

    def make_way(self, standing: Callable[[W], ConnectionStanding]) -> list[W]:
        """Return the connections that must end so that waiting connections get places.

        Slow connections of the prompt pool move to the slow pool instead, if it has room. The
        caller ends the returned connections and frees their places (:meth:`release`). ``standing``
        returns the state of a connection.
        """
        return [
            wire for pool in self._pools if pool.lines for wire in self._make_way_in(pool, standing)
        ]

    def _make_way_in(
        self, pool: _Pool[W], standing: Callable[[W], ConnectionStanding]
    ) -> Iterator[W]:
        found = [(wire, standing(wire)) for wire in pool.holders]
        idle = sorted(
            (each for each in found if each[1].is_idle), key=lambda each: -each[1].seconds
        )
        slow = [each for each in found if not each[1].is_idle and each[1].seconds > SLOW_SECONDS]
        slow.sort(
            key=lambda each: (
                -max(pool.held[payer] for payer in pool.holders[each[0]]),
                -each[1].seconds,
            )
        )
        candidates: dict[W, bool] = {wire: how.is_idle for wire, how in (*idle, *slow)}
        more: Counter[str] = Counter()
        """Change of each payer's number of places by the connections considered so far."""
        free = pool.most - len(pool.holders)
        for payers in islice(_in_turns(pool), LOOKS_MAX):
            full = {payer for payer in payers if pool.held[payer] + more[payer] >= pool.share}
            if not full and free > 0:
                free -= 1
                more.update(payers)
                continue
            may_go = (
                each
                for each, is_idle in candidates.items()
                if self._may_go(pool, each, payers, full, is_idle)
            )
            victim = next(may_go, None)
            if victim is None:
                continue
            is_idle, of_victim = candidates.pop(victim), pool.holders[victim]
            more.update(payers)
            if pool is self._prompt and not is_idle and self._slow.has_room(of_victim):
                self._move(victim)
            else:
                more.subtract(of_victim)
                yield victim

    def _move(self, wire: W) -> None:
        """Move ``wire`` from the prompt pool to the slow pool."""
        payers = self._prompt.holders[wire]
        self._prompt.leave(wire)
        self._slow.enter(wire, payers)

    def _may_go(
        self, pool: _Pool[W], victim: W, payers: tuple[str, ...], full: set[str], is_idle: bool
    ) -> bool:
        """Return whether ``victim`` may be closed so that a wire with ``payers`` gets its place.

        ``full`` are the payers among ``payers`` whose shares have no room; ``victim`` must count
        for all of them. In the slow pool a connection at work is closed only for a payer with at
        least two places less.
        """
        of_victim = pool.holders[victim]
        if not full.issubset(of_victim):
            return False
        if is_idle or pool is self._prompt:
            return True
        return (
            max(pool.held[payer] for payer in of_victim)
            >= max(pool.held[payer] for payer in payers) + 2
        )


def _in_turns(pool: _Pool[W]) -> Iterator[tuple[str, ...]]:
    """Yield the payers of each waiting connection, one connection of each line in turn.

    At most LOOKS_MAX lines, and LOOKS_MAX connections of each line, are considered.
    """
    lines = [list(islice(line, LOOKS_MAX)) for line in islice(pool.lines.values(), LOOKS_MAX)]
    for place in range(LOOKS_MAX):
        for line in lines:
            if place < len(line):
                yield line[place][1]


def _take_away(counts: Counter[str], payers: tuple[str, ...]) -> None:
    for payer in payers:
        counts[payer] -= 1
        if not counts[payer]:
            del counts[payer]
