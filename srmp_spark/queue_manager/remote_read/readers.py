"""Represent the connections of remote readers in the main process, and limit their answers.

**Cost of a reader.** An answer counts from the moment it is sent to the gateway until the gateway
reports that the reader has taken it. So the bytes that wait in the channel count too. From
ANSWERS_OF_ONE_MAX on, no further message is read for that reader. From ANSWERS_MAX on, none is read
for any reader that has answers to take. While the channel is congested none is read at all
(:meth:`ServedReader.has_room`). So if many readers wait for one message of 4 MB, one of them is
answered, and the next one when the gateway has caught up. The event loop has turns in between.

**Death of a gateway.** Each of its connections is lost, as after a network failure. Calls get no
answer, handles are run down (closed without their client), and messages that their readers had
locked are available again. A receive whose End is stored stays stored. Its reader was not answered
and may ask again, as after any lost connection.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from srmp_spark.mqrr.ndr.transfer_syntax import NDR, NDR64
from srmp_spark.mqrr.rpc.associations import Association
from srmp_spark.mqrr.rpc.binding import REMOTE_READ
from srmp_spark.mqrr.rpc.server_events import CallReceived
from srmp_spark.mqrr.server.shared_queue import OpenQueue
from srmp_spark.mqrr.status import Status
from srmp_spark.queue_manager.gateway.channel import TURN_SECONDS
from srmp_spark.queue_manager.remote_read.crossing import (
    AnswersTaken,
    AssociationEnded,
    Called,
    CallWasCancelled,
    CallWasOrphaned,
    ConnectionEnded,
    Responded,
    RespondedWithFault,
)
from srmp_spark.queue_manager.remote_read.service import RemoteReadService

ANSWERS_OF_ONE_MAX = 4 * 1_048_576
"""Bytes of untaken answers of one connection from which on no message is read for the connection.

An answer of 4 MiB fits always.
"""
ANSWERS_MAX = 256 * 1_048_576
"""Bytes of untaken answers of all connections from which on no message is read for a reader that
has answers to take.
"""

log = logging.getLogger(__name__)


class ToReaders(Protocol):
    """Sends messages to the gateway of some readers.

    :class:`srmp_spark.queue_manager.gateway.channel.Channel` implements this.
    """

    is_congested: bool

    @property
    def is_open(self) -> bool:
        """Return whether the channel is connected and neither closed nor lost."""
        ...

    def send(self, message: Responded | RespondedWithFault) -> bool:
        """Queue ``message`` after all earlier ones. Return False if the channel is not open."""
        ...


class ServedReader:
    """One connection that has called: implements :class:`.service.CallAnswers`."""

    __slots__ = ("_bytes_taken", "_channel", "_given", "_number", "_readers", "calls")

    def __init__(self, readers: Readers, channel: ToReaders, number: int) -> None:
        """Represent the connection ``number`` of the gateway at the other end of ``channel``.

        The next gateway has other connections.
        """
        self._readers = readers
        self._channel = channel
        self._number = number
        self._given = 0
        self._bytes_taken = 0
        self.calls: dict[int, Association[OpenQueue]] = {}
        """For each call that waits for an answer, by its number, the association whose handles it
        may open and close.
        """

    @property
    def untaken(self) -> int:
        """Return the number of bytes of answers that were sent to the gateway and not taken."""
        return self._given - self._bytes_taken

    def has_room(self) -> bool:
        """Return whether another message may be read for this reader.

        The result is False while ANSWERS_OF_ONE_MAX bytes or more are untaken, and while the
        channel to the gateway is congested or closed. It is also False while this reader has
        untaken answers and those of all readers reach ANSWERS_MAX bytes.
        """
        if (
            self.untaken >= ANSWERS_OF_ONE_MAX
            or self._channel.is_congested
            or not self._channel.is_open
        ):
            return False
        return not self.untaken or self._readers.untaken < ANSWERS_MAX

    def note_taken(self, taken: int) -> bool:
        """Record that the reader has taken ``taken`` bytes since its connection began.

        Return whether that is more than before.
        """
        news = min(taken, self._given) - self._bytes_taken
        if news <= 0:
            return False
        self._bytes_taken += news
        self._readers.untaken -= news
        return True

    def respond(self, call_id: int, stub: bytes) -> None:
        """Send ``stub`` as the answer of a call, which then no longer waits.

        Do nothing if the call no longer waits.
        """
        association = self.calls.pop(call_id, None)
        if association is not None and self._channel.send(
            Responded(self._number, call_id, stub, len(association))
        ):
            self._given += len(stub)
            self._readers.untaken += len(stub)

    def fail(self, call_id: int, status: int) -> None:
        """Send the RPC fault ``status`` as the answer of a call, which then no longer waits.

        Do nothing if the call no longer waits.
        """
        if self.calls.pop(call_id, None) is not None:
            self._channel.send(RespondedWithFault(self._number, call_id, status))

    def __repr__(self) -> str:
        return f"<Reader {self._number} calls={sorted(self.calls)} untaken={self.untaken}>"


class Readers:
    """Holds all readers of the present gateway, and the handles of their associations."""

    def __init__(self, service: RemoteReadService) -> None:
        self._service = service
        self._loop = asyncio.get_running_loop()
        self._readers: dict[int, ServedReader] = {}
        self._associations: dict[int, Association[OpenQueue]] = {}
        self._ending: deque[Callable[[], None]] = deque()
        """Functions that remain to be called after the death of a gateway: one for each of its
        connections, then one for each of its associations.
        """
        self.untaken = 0
        """Bytes of answers of all readers that were sent to the gateway and not taken."""

    def __len__(self) -> int:
        """Return the number of connections that have made a call and have not ended."""
        return len(self._readers)

    # --- what the gateway says --------------------------------------------------------------------

    def called(self, message: Called, channel: ToReaders) -> None:
        """Pass a call to the service. Record its connection and association if they are new.

        If the service raises an exception, the call is answered with a fault, and the exception is
        raised.
        """
        reader = self._readers.get(message.connection)
        if reader is None:
            reader = self._readers[message.connection] = ServedReader(
                self, channel, message.connection
            )
            self._service.connected(reader, reader)
        association = self._associations.get(message.association)
        if association is None:
            association = Association(
                message.association, message.peer, partial(secrets.token_bytes, 16)
            )
            # The association counts as connected until the gateway reports that it ended.
            association.connections = 1
            self._associations[message.association] = association
        reader.calls[message.call_id] = association
        if reader.note_taken(message.bytes_taken):
            self._service.has_room()
        received = CallReceived(
            message.call_id,
            REMOTE_READ,
            NDR64 if message.is_ndr64 else NDR,
            message.opnum,
            message.stub,
            association,
            message.identity,
            message.auth_level,
        )
        try:
            self._service.call(reader, received)
        except Exception:
            reader.fail(message.call_id, Status.NCA_S_FAULT_UNSPEC)
            raise

    def cancelled(self, message: CallWasCancelled) -> None:
        """Let the service answer a call soon: its caller does not want to wait longer.

        A call that was answered meanwhile is ignored.
        """
        reader = self._readers.get(message.connection)
        # If the call is not there, its answer and the cancellation have crossed.
        if reader is not None and message.call_id in reader.calls:
            self._service.cancelled(reader, message.call_id)

    def orphaned(self, message: CallWasOrphaned) -> None:
        """Let the service forget a call, because its caller no longer waits.

        A call that was answered meanwhile is ignored.
        """
        reader = self._readers.get(message.connection)
        if reader is not None and reader.calls.pop(message.call_id, None) is not None:
            self._service.orphaned(reader, message.call_id)

    def answers_taken(self, message: AnswersTaken) -> None:
        """Record how much a reader has taken. Let the service read messages that waited."""
        reader = self._readers.get(message.connection)
        if reader is not None and reader.note_taken(message.bytes_taken):
            self._service.has_room()

    def connection_ended(self, message: ConnectionEnded) -> None:
        """Forget a connection that is gone. Its calls get no answers."""
        reader = self._readers.pop(message.connection, None)
        if reader is not None:
            self._end(reader)
            self._service.has_room()

    def association_ended(self, message: AssociationEnded) -> None:
        """Forget an association, and let the service close its handles."""
        association = self._associations.pop(message.association, None)
        if association is not None:
            self._run_down(association)

    def _end(self, reader: ServedReader) -> None:
        self.untaken -= reader.untaken
        calls, reader.calls = tuple(reader.calls), {}
        self._service.disconnected(reader, calls)

    def _run_down(self, association: Association[OpenQueue]) -> None:
        association.connections = 0
        self._service.run_down(association.run_down())

    # --- what becomes of the gateway --------------------------------------------------------------

    def on_gateway_lost(self) -> None:
        """End every connection and every association, because their gateway died.

        There may be thousands, so some may be ended in later turns of the event loop. The next
        gateway has other readers.
        """
        readers, self._readers = self._readers, {}
        associations, self._associations = self._associations, {}
        if readers:
            log.warning(
                'mqrr.connections_lost connections=%d because="their gateway process died"',
                len(readers),
            )
        is_ending = bool(self._ending)
        self._ending += [partial(self._end, each) for each in readers.values()]
        self._ending += [partial(self._run_down, each) for each in associations.values()]
        if self._ending and not is_ending:
            self._end_some()

    def _end_some(self) -> None:
        ends = time.perf_counter() + TURN_SECONDS
        while self._ending and time.perf_counter() < ends:
            self._end_next()
        if self._ending:
            self._loop.call_soon(self._end_some)
        else:
            self._service.has_room()

    def _end_next(self) -> None:
        try:
            self._ending.popleft()()
        except Exception:
            # An error with one connection must not keep the locks of the others.
            log.exception("mqrr.end_failed")

    def close(self) -> None:
        """End every connection and every association in this turn of the event loop."""
        self.on_gateway_lost()
        while self._ending:
            self._end_next()
