"""Look up the hosts of receipts, so that slow names of one peer delay no other peer.

The sender of a message chooses a name that is looked up. A look-up holds one of the few threads
that the loop has for look-ups (libuv: four) until the name server answers or the resolver gives up,
which may be half a minute. A shorter wait does not free the thread. So a slot is held until the
look-up has really ended. The slots are assigned by three rules:

- One peer has :data:`PEER_LOOKUPS_MAX` look-ups at once. So ten thousand slow names of one peer
  hold one thread.
- Hosts that a pattern of the operator names have slots of their own, which no unauthenticated
  client can fill.
- Other hosts wait in turn, and each peer has one look-up. So an honest peer waits for the other
  peers, but not for each of their names.

A result is used again for a moment, also an empty one. That allows no DNS rebinding: the address
that was judged is the address that is called, however old it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from srmp_spark.queue_manager.child.ending import end
from srmp_spark.queue_manager.posting.lookups import LOOKUP_SECONDS, Remembered
from srmp_spark.queue_manager.posting.url_policy import address_of

PEER_LOOKUPS_MAX = 1
"""Most look-ups at once for messages of one peer; further ones wait.

A peer names one or two hosts, its own.
"""
PEER_PENDING_MAX = 1_000
"""Most receipts of one peer that wait for an address.

Further ones are tried again later. Receipts for one host share one look-up.
"""
STRANGER_LOOKUPS_MAX = 2
"""Most look-ups at once of hosts that no pattern names: half of libuv's four threads.

Further ones wait.
"""
ALLOWED_LOOKUPS_MAX = 2
"""Most look-ups at once of hosts that a pattern of the operator names: the other half of the
threads. Further ones wait.
"""
FOUND_SECONDS = 1.0
"""Seconds for which addresses are used again.

A host is looked up once a second at most, whatever its rate of receipts.
"""
NOT_FOUND_SECONDS = 10.0
"""Seconds for which a host without an address is not looked up again.

This is shorter than any wait between two attempts.
"""
REMEMBERED_MAX = 1_000
"""Most hosts whose last result is kept. The one that was looked up longest ago is forgotten first.
"""

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Type of a function that looks up a host, as :func:`.lookups.resolve`."""


@dataclass(slots=True)
class _Peer:
    """The look-ups in progress for the messages of one peer, and their numbers."""

    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(PEER_LOOKUPS_MAX))
    pending: int = 0
    looking: int = 0
    """Number of look-ups of the peer that hold a slot."""
    running: dict[str, asyncio.Task[Sequence[str]]] = field(default_factory=dict)
    """Look-ups in progress, by host.

    Peers do not share them, because one peer would then wait for the turn of another.
    """


class ReceiptLookups:
    """Looks up the hosts of receipt URLs for one queue manager, by the rules of the module."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._peers: dict[str, _Peer] = {}
        self._strangers = asyncio.Semaphore(STRANGER_LOOKUPS_MAX)
        self._allowed = asyncio.Semaphore(ALLOWED_LOOKUPS_MAX)
        self._known = Remembered(REMEMBERED_MAX, monotonic)

    def __repr__(self) -> str:
        return f"<ReceiptLookups peers={len(self._peers)} known={len(self._known)}>"

    async def addresses(
        self, resolve: Resolve, host: str, port: int, *, peer: str, allowed: bool
    ) -> Sequence[str] | None:
        """Return the IP addresses of ``host`` for a message from the address ``peer``.

        An address in place of a name is returned as it is. The result is empty if the look-up finds
        none within LOOKUP_SECONDS, and ``None`` if PEER_PENDING_MAX receipts of the peer wait: ask
        again later. ``allowed`` states that a pattern of the operator names the host. A recent
        result is used again. The call may wait without limit for the peer's turn, and then
        LOOKUP_SECONDS.
        """
        if address_of(host) is not None:
            return (host,)
        known = self._known.get(host)
        if known is not None:
            return known
        state = self._peers.get(peer)
        if state is None:
            state = self._peers[peer] = _Peer()
        if state.pending >= PEER_PENDING_MAX:
            return None
        state.pending += 1
        try:
            task = state.running.get(host)
            if task is None:
                slots = self._allowed if allowed else self._strangers
                task = state.running[host] = asyncio.ensure_future(
                    self._find(resolve, host, port, peer, state, slots)
                )
            return await asyncio.shield(task)
        finally:
            state.pending -= 1
            self._forget_idle(peer, state)

    async def close(self) -> None:
        """Cancel the look-ups in progress, and wait until their tasks have ended."""
        tasks = [task for state in self._peers.values() for task in state.running.values()]
        await end(tasks)

    async def _find(
        self,
        resolve: Resolve,
        host: str,
        port: int,
        peer: str,
        state: _Peer,
        slots: asyncio.Semaphore,
    ) -> Sequence[str]:
        """Look up the host when the peer has its turn and a slot of its kind is free.

        All callers that wait for the host get this result, which is empty after LOOKUP_SECONDS. The
        slots are held until the look-up has really ended.
        """
        try:
            await state.slots.acquire()
            try:
                await slots.acquire()
            except BaseException:
                state.slots.release()
                raise
            state.looking += 1

            def ended(lookup: asyncio.Future[Sequence[str]]) -> None:
                slots.release()
                state.slots.release()
                state.looking -= 1
                self._forget_idle(peer, state)

            lookup = asyncio.ensure_future(self._resolve(resolve, host, port))
            lookup.add_done_callback(ended)
            try:
                found = await asyncio.wait_for(asyncio.shield(lookup), LOOKUP_SECONDS)
            except asyncio.TimeoutError:
                found = ()  # The look-up continues, in its slot.
            except asyncio.CancelledError:
                lookup.cancel()
                raise
            self._known.put(host, found, FOUND_SECONDS if found else NOT_FOUND_SECONDS)
            return found
        finally:
            del state.running[host]
            self._forget_idle(peer, state)

    async def _resolve(self, resolve: Resolve, host: str, port: int) -> Sequence[str]:
        # Another peer may have found the host while this one waited for its turn.
        known = self._known.get(host)
        return known if known is not None else await resolve(host, port)

    def _forget_idle(self, peer: str, state: _Peer) -> None:
        if not (state.pending or state.looking or state.running) and self._peers.get(peer) is state:
            del self._peers[peer]
