"""A walk through a queue of another machine that survives lost connections.

A task of Spark reads a remote queue with such a walk. Theory of operation. The messages are
returned in the order of the queue (priority, then arrival), each once. The walk ends at the end of
the queue, over as many connections as needed. After a rare loss of the connection, the walk starts
again by cursor from the head, with many calls in flight, and messages that were already returned
are skipped. If such a walk returns nothing new before the connection is lost again, the walk uses
lookup identifiers, with one call for each message (:mod:`srmp_spark.mqrr.by_number`). Then each
connection that carries one call returns one more message. A message that arrives during the walk at
a place that the walk has passed is not returned, because it was not there when the walk passed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

from srmp_spark.client.remote_queue import RemoteMachine, RemoteQueue
from srmp_spark.client.walking import Shown, shown
from srmp_spark.errors import RemoteLostError
from srmp_spark.mqrr.by_number import ByNumber, LookupPlace, Tells
from srmp_spark.mqrr.client.failures import refused
from srmp_spark.mqrr.client.queue_calls import HELD, NOTHING, REMOVED
from srmp_spark.mqrr.lookup_identifier import lookup_id_of
from srmp_spark.mqrr.status import Status

PAUSES_SECONDS = (0.1, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Pauses in seconds before a new connection if the connections before returned nothing new.

After a connection that returned something new, the first pause is used again.
"""
BREAKS_MAX = 12
"""Most connections in a row that return nothing new, with about 18 seconds of pauses.

One more connection that returns nothing new ends the walk with its error. On a line that loses
every tenth call, 12 such connections in a row, none of which carries three calls, are one case in
six million.
"""

_log = logging.getLogger(__name__)


class WalkOn:
    """Walks through one remote queue over as many connections as needed. Iterate it once."""

    def __init__(
        self,
        connect: Callable[[], RemoteMachine],
        open_queue: Callable[[RemoteMachine], RemoteQueue],
    ) -> None:
        """Store the two functions; the walk connects when its first message is requested."""
        self._connect = connect
        self._open = open_queue
        self._last: LookupPlace | None = None
        """Place of the last message that was returned."""
        self._by_number = ByNumber()
        self._machine: RemoteMachine | None = None
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def interrupt(self) -> None:
        """End the walk for good; its thread raises :class:`RemoteLostError` if the walk waits.

        May be called from any thread.
        """
        with self._lock:
            self._stopped.set()
            if self._machine is not None:
                self._machine.interrupt()

    def __iter__(self) -> Iterator[Shown]:
        """Yield all messages of the queue.

        Raises :class:`RemoteReadError` if the other machine refuses a call, and
        :class:`RemoteProtocolError` if a message is broken. Raises :class:`RemoteLostError` if the
        first connection fails, or if more than BREAKS_MAX connections in a row return nothing new.
        """
        idle, is_first, by_number = 0, True, False
        while True:
            told = self._last
            try:
                with self._connected() as machine:
                    queue = self._open(machine)
                    yield from self._numbered(queue) if by_number else self._by_cursor(queue)
                    # All messages were returned, so a lost connection does no harm.
                    with suppress(RemoteLostError):
                        queue.close()
            except RemoteLostError as error:
                idle = idle + 1 if self._last == told else 0
                if (
                    self._stopped.is_set()
                    or (is_first and self._machine is None)
                    or idle > BREAKS_MAX
                ):
                    raise
                by_number = by_number or (not is_first and self._last == told)
                _log.info("walk.goes_on after=%s because=%s", self._last, error)
            else:
                return
            is_first = False
            self._stopped.wait(PAUSES_SECONDS[min(idle, len(PAUSES_SECONDS) - 1)])

    def _connected(self) -> RemoteMachine:
        machine = self._connect()
        with self._lock:
            self._machine = machine
            if self._stopped.is_set():
                machine.interrupt()
        return machine

    def _by_cursor(self, queue: RemoteQueue) -> Iterator[Shown]:
        """Walk by cursor from the first message; yield the messages after the last one returned."""
        last = self._last
        for each in queue.walk():
            place = place_of(each)
            if last is None or place.lookup_id > last.lookup_id:
                self._tell(place)
                yield each

    def _numbered(self, queue: RemoteQueue) -> Iterator[Shown]:
        """Continue after the last message returned, by lookup identifiers.

        If the identifiers do not show where to continue, walk by cursor from the head.
        """
        walk = self._by_number
        walk.connected()
        while True:
            action, lookup_id = walk.call()
            _, answer = queue.start(action, lookup_id=lookup_id)
            if answer.status == Status.MQ_OK:
                each = shown(answer)
                place = place_of(each)
                tells = walk.found(place)
                if tells is Tells.MESSAGE:
                    self._last = place
                    yield each
            elif answer.status in NOTHING | REMOVED | HELD:
                tells = walk.nothing(held=answer.status in HELD)
            else:
                raise refused(answer.status, "a message that is looked up is not shown")
            if tells is Tells.OVER:
                return
            if tells is Tells.NOWHERE:
                walk.begin_at_head()
                yield from self._by_cursor(queue)
                return

    def _tell(self, place: LookupPlace) -> None:
        self._by_number.has(place)
        self._last = place


def place_of(each: Shown) -> LookupPlace:
    """Return the place (lookup identifier) of a message in its queue.

    Raises :class:`RemoteProtocolError` if its ``sequence_id`` is one that no message can have.
    """
    packet = each.packet
    lookup_id = lookup_id_of(
        each.sequence_id, priority=packet.priority, transactional=packet.transaction is not None
    )
    return LookupPlace(lookup_id, packet.id)
