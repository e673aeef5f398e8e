"""Decide which TLS handshakes are in progress, because each costs the loop a signature.

A signature takes a millisecond or more.

**Theory of operation.** A peer whose first record ([RFC 8446] 5.1: its ClientHello) is not complete
gets no turn, however many such peers there are. A peer that has sent it waits for its turn.
HANDSHAKES_AT_ONCE handshakes are in progress at a time. So many peers that send in the same moment
cost a turn of the loop no more than that many signatures, whichever message of the handshake needs
one. Addresses take turns, so an honest peer waits for one handshake of a flood and not for all.
Peers behind one address share its turns. While another peer waits, a handshake that takes longer
than PATIENCE_SECONDS is cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import OrderedDict, deque
from collections.abc import AsyncIterator

from srmp_spark.queue_manager.alarm import Alarm
from srmp_spark.queue_manager.srmp_port.port_limits import payer_of

HANDSHAKES_AT_ONCE = 8
"""Most handshakes in progress; further ones wait.

With an RSA key of 2,048 bits that is 8 ms of signatures, if all of them fall into one turn of the
loop.
"""
HANDSHAKE_SECONDS = 10.0
"""Longest time from the connection to the end of the handshake, in seconds.

After that the connection is closed. A head of HTTP may take the same time.
"""
PATIENCE_SECONDS = 1.0
"""Longest time of a handshake while others wait, in seconds: two round trips over a slow line.

After that the handshake is cancelled.
"""
_RECORD_HEAD = 5
_HANDSHAKE = 22
_RECORD_MAX = 16_384
"""Most bytes of a plain record ([RFC 8446] 5.1). A longer one fails in the handshake."""
LOOK_SECONDS = 0.25
"""Seconds between two searches for slow handshakes while others wait."""


class HandshakeTurns:
    """Limits the TLS handshakes in progress of one port, and gives them turns by address."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._free = HANDSHAKES_AT_ONCE
        self._under_way: dict[asyncio.Task[None], float] = {}
        """Start times of the handshakes in progress, in seconds of the loop's clock, oldest first.
        """
        self._waiting: OrderedDict[str | None, deque[asyncio.Future[None]]] = OrderedDict()
        """The waiting handshakes by address. The address whose turn is next comes first."""
        self._evicted: set[asyncio.Task[None]] = set()
        self._look = Alarm(self._loop, self._look_for_slow)

    def __repr__(self) -> str:
        waiting = sum(map(len, self._waiting.values()))
        return f"<HandshakeTurns under_way={len(self._under_way)} waiting={waiting}>"

    @contextlib.asynccontextmanager
    async def turn(self, accepted: socket.socket, host: str) -> AsyncIterator[float]:
        """Wait until the peer of ``accepted`` has sent its first record and its turn has come.

        A context manager: the turn lasts until its end. It yields the seconds that are left for the
        handshake. Raises :class:`asyncio.TimeoutError` after HANDSHAKE_SECONDS. The task of a
        handshake that is too slow while others wait is cancelled, and then :meth:`was_slow` returns
        True.
        """
        ends_at = self._loop.time() + HANDSHAKE_SECONDS
        await self._begun(accepted, ends_at)
        await self._my_turn(payer_of(host), ends_at)
        task = asyncio.current_task()
        assert task is not None
        self._under_way[task] = self._loop.time()
        try:
            yield max(0.001, ends_at - self._loop.time())
        finally:
            del self._under_way[task]
            self._evicted.discard(task)
            self._release()

    def was_slow(self) -> bool:
        """Return whether the handshake of this task was cancelled because others waited.

        Call this inside :meth:`turn`.
        """
        return asyncio.current_task() in self._evicted

    async def _begun(self, accepted: socket.socket, ends_at: float) -> None:
        """Wait until the first record is complete, or cannot be one, or the peer is gone.

        Nothing is read from the socket: the bytes are only peeked at. Raises
        :class:`asyncio.TimeoutError` at ``ends_at``, in seconds of the loop's clock.
        """
        begun: asyncio.Future[None] = self._loop.create_future()
        seen = -1

        def on_bytes() -> None:
            nonlocal seen
            try:
                found = accepted.recv(_RECORD_HEAD + _RECORD_MAX, socket.MSG_PEEK)
            except BlockingIOError:
                return
            except OSError:
                found = b""
            wanted = _first_record(found)
            # Bytes that do not grow are all there will be.
            if len(found) >= wanted or len(found) == seen:
                if not begun.done():
                    begun.set_result(None)
                return
            seen = len(found)
            # The kernel reports the socket as readable when the rest is there.
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)

        self._loop.add_reader(accepted, on_bytes)
        try:
            await self._until(begun, ends_at)
        finally:
            self._loop.remove_reader(accepted)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)

    async def _until(self, what: asyncio.Future[None], ends_at: float) -> None:
        """Wait for ``what``, and raise :class:`asyncio.TimeoutError` at ``ends_at``.

        ``ends_at`` is in seconds of the loop's clock. A cancellation is never lost.
        ``asyncio.wait_for`` may lose one that arrives at the moment of the end.
        """

        def give_up() -> None:
            if not what.done():
                what.set_exception(asyncio.TimeoutError(f"longer than {HANDSHAKE_SECONDS} s"))

        timer = self._loop.call_at(ends_at, give_up)
        try:
            await what
        finally:
            timer.cancel()

    async def _my_turn(self, payer: str | None, ends_at: float) -> None:
        mine: asyncio.Future[None] = self._loop.create_future()
        self._waiting.setdefault(payer, deque()).append(mine)
        self._let_next()
        try:
            await self._until(mine, ends_at)
        except BaseException:
            if mine.done() and not mine.cancelled() and mine.exception() is None:
                self._release()  # The turn came too late to be used.
            raise

    def _release(self) -> None:
        self._free += 1
        self._let_next()

    def _let_next(self) -> None:
        while self._waiting and self._free:
            payer, waiting = self._waiting.popitem(last=False)
            future = waiting.popleft()
            if waiting:
                self._waiting[payer] = waiting  # It goes after the other addresses.
            if not future.done():
                self._free -= 1
                future.set_result(None)
        if self._waiting:
            self._look.within(LOOK_SECONDS)

    def _look_for_slow(self) -> None:
        now = self._loop.time()
        for task, since in self._under_way.items():
            if now - since > PATIENCE_SECONDS and task not in self._evicted:
                self._evicted.add(task)
                task.cancel()
        if self._waiting:
            self._look.within(LOOK_SECONDS)


def _first_record(found: bytes) -> int:
    """Return the number of bytes of the first TLS record, of which ``found`` is the beginning.

    If its length is not known yet, return the bytes needed to know it. Return 0 if the bytes cannot
    begin a handshake record.
    """
    if not found or found[0] != _HANDSHAKE:
        return 0
    if len(found) < _RECORD_HEAD:
        return _RECORD_HEAD
    length = int.from_bytes(found[3:5], "big")
    return _RECORD_HEAD + length if length <= _RECORD_MAX else 0
