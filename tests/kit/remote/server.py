"""The foreign queue as a server on a TCP port.

Connections end between start and end of a receive, answers of End are lost, other readers act, and
the machine is switched off.

The behaviour of the queue is written from the document (:mod:`.queue`). The RPC code of srmp-spark
makes the PDUs. Clients of other vendors have checked this code (``test_peers.py``).
"""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

from srmp_spark.mqrr.ndr.methods import METHODS
from srmp_spark.mqrr.rpc.associations import Associations
from srmp_spark.mqrr.rpc.binding import REMOTE_READ
from srmp_spark.mqrr.rpc.server_connection import ServerConnection, ServerSettings
from srmp_spark.mqrr.rpc.server_events import CallReceived, Rundown
from tests.kit.remote.queue import Connection, ForeignQueue

Result = TypeVar("Result")

END = 9
LINGER_SECONDS = 0.05
"""Seconds for which a closing connection is still read.

Calls that arrive then are not carried out. Each End among them is recorded for the judge.
"""
ROUND_SECONDS = 0.01
"""Seconds between two actions of the other readers and senders."""


class Faults:
    """Probability of each fault, from 0 to 1.

    ``before``: the connection ends before a call is carried out. ``after``: a call other than End
    is carried out, and the connection ends without its answer. ``end_lost``: the same for End.
    ``thief``: another reader acts, in each round of :data:`ROUND_SECONDS`.
    """

    def __init__(
        self, *, before: float = 0.0, after: float = 0.0, end_lost: float = 0.0, thief: float = 0.0
    ) -> None:
        self.before, self.after, self.end_lost, self.thief = before, after, end_lost, thief


class ForeignServer:
    """Serves a foreign queue on a loopback port in a thread of its own, as a context manager.

    ``faults`` and ``arriving`` may be set at any time.
    """

    def __init__(self, seed: int) -> None:
        self.queue = ForeignQueue(random.Random(seed))
        self.faults = Faults()
        self.arriving = 0
        """Number of messages that still have to arrive, up to three in a round.

        Their priorities are random.
        """
        self.away_after_end = False
        """Whether the server refuses connections after it lost an answer of End.

        It refuses them until :meth:`switch_on`.
        """
        self.instead: Callable[[asyncio.Transport, CallReceived], bool] = lambda transport, call: (
            False
        )
        """Answers a call on the transport in place of the queue. Hostile tests set this function.

        The function returns whether it has answered the call.
        """
        self.through: Callable[[bytes], bytes] = lambda data: data
        """Returns the bytes that are sent in place of an answer's bytes.

        Hostile tests set this function.
        """
        self.opened = 0
        self.port = 0
        self.loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self.connections: set[_Connection] = set()
        self.is_away = False
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._rounds: asyncio.Task[None] | None = None

    def __enter__(self) -> ForeignServer:
        self._thread.start()
        self.switch_on()
        asyncio.run_coroutine_threadsafe(self._begin(), self.loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()

    def switch_on(self) -> None:
        """Listen on the same port as before, or on a free port the first time."""
        asyncio.run_coroutine_threadsafe(self._listen(), self.loop).result(10)

    def switch_off(self) -> None:
        """Stop to listen, and drop all connections and locks, as kill -9 of the queue manager does.

        Messages stay.
        """
        asyncio.run_coroutine_threadsafe(self._off(), self.loop).result(10)

    def look(self, what: Callable[[ForeignQueue], Result]) -> Result:
        """Call ``what`` with the queue in the server's thread, and return its result.

        Raises the error of ``what``.
        """

        async def run() -> Result:
            return what(self.queue)

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(10)

    async def _begin(self) -> None:
        self._rounds = self.loop.create_task(self._live())

    async def _listen(self) -> None:
        self.is_away = False
        if self._server is not None and self._server.is_serving():
            return
        settings = ServerSettings(interfaces={REMOTE_READ: frozenset(METHODS)}, port=self.port)
        rng, groups = random.Random(1), itertools.count(1)
        self.associations: Associations[int] = Associations(
            new_id=lambda: next(groups), new_uuid=lambda: rng.randbytes(16)
        )
        self._server = await self.loop.create_server(
            lambda: _Connection(self, settings), "127.0.0.1", self.port
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def _off(self) -> None:
        assert self._server is not None
        self._server.close()
        for each in tuple(self.connections):
            each.drop()
        await asyncio.sleep(2 * LINGER_SECONDS)
        self.queue.locks.clear()

    async def _stop(self) -> None:
        assert self._rounds is not None
        self._rounds.cancel()
        await self._off()

    async def _live(self) -> None:
        queue = self.queue
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            for _ in range(min(self.arriving, 3)):
                queue.put()
                self.arriving -= 1
            if queue.rng.random() < self.faults.thief:
                queue.rng.choice((queue.steal, queue.hold, queue.miss))()
            if not self.faults.thief:
                queue.miss()


class _Connection(asyncio.Protocol):
    def __init__(self, server: ForeignServer, settings: ServerSettings) -> None:
        self._server, self._settings = server, settings
        self._is_over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._server.is_away:
            self._is_over = True
            self._transport.abort()
            return
        self._server.connections.add(self)
        self._server.opened += 1
        self._engine = ServerConnection(self._settings, self._server.associations, "127.0.0.1", 0.0)
        self._queue = Connection(self._server.queue, None)

    def data_received(self, data: bytes) -> None:
        if hasattr(self, "_engine"):
            self._handle(self._engine.receive(data, 0.0))

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._is_over = True
        if self not in self._server.connections:
            return
        self._server.connections.discard(self)
        # The queue manager notices the lost connection (rundown) at once or after a while.
        after = self._server.queue.rng.choice((0.0, 0.0, 0.3)) if self._server.faults.thief else 0.0
        self._server.loop.call_later(after, self._server.queue.miss, self._queue.number)

    def drop(self) -> None:
        self._is_over = True
        self._server.loop.call_later(LINGER_SECONDS, self._transport.abort)

    def _handle(self, events: list[Any]) -> None:
        for event in events:
            if isinstance(event, CallReceived) and self._is_over:
                if event.opnum == END:
                    self._queue.note_end(_asked(event).request_id)
            elif isinstance(event, CallReceived):
                self._call(event)
            elif not isinstance(event, CallReceived | Rundown):
                self.drop()
        if not self._is_over:
            self._transport.write(self._server.through(self._engine.data_to_send()))

    def _call(self, event: CallReceived) -> None:
        faults, rng = self._server.faults, self._server.queue.rng
        if self._server.instead(self._transport, event):
            return
        asked = _asked(event)
        if rng.random() < faults.before:
            if event.opnum == END:
                self._queue.note_end(asked.request_id)
            self.drop()
            return
        lost = rng.random() < (faults.end_lost if event.opnum == END else faults.after)
        if lost and event.opnum == END:
            self._queue.note_end(asked.request_id)
        answer = self._queue.carry_out(event.opnum, asked)
        if lost:
            self._server.is_away = self._server.away_after_end
            self.drop()
        else:
            self._engine.respond(event.call_id, answer.encode(event.syntax))


def _asked(event: CallReceived) -> Any:  # noqa: ANN401  # the parameters of any method
    return METHODS[event.opnum].decode_request(event.stub, event.syntax)
