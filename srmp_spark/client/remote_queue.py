"""A queue of another machine over RPC, read with a blocking socket ([MS-MQRR] 3.2).

An executor reads such a queue, and commands open one:

    with RemoteMachine.connect("windows.example") as machine, machine.open(queue_format) as queue:
        for shown in queue.walk():
            shown.packet, shown.sequence_id, shown.arrived_at

Theory of operation. :mod:`srmp_spark.mqrr.client` decides everything; this module has the socket
and the clock. There is one connection and, except in a walk, one call at a time. No call is
repeated: a call without an answer may have been executed, and only the caller knows what to do then
(:class:`RemoteLostError`).
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Generator, Iterable
from typing import Any

from srmp_spark.client.walking import Later, Shown, Unreadable, shown, walk
from srmp_spark.errors import RemoteReadError
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.client.failures import refused
from srmp_spark.mqrr.client.queue_calls import NOTHING, QueueCalls, open_queue
from srmp_spark.mqrr.client.reader_states import Connect, Prepare
from srmp_spark.mqrr.client.remote_reader import Failure, Outcome, RemoteReader
from srmp_spark.mqrr.ndr.methods import ACCESS_PEEK, METHODS, SHARE_DENY_NONE, Parameters
from srmp_spark.mqrr.ndr.receive import StartReceiveResponse
from srmp_spark.mqrr.ndr.stub import ContextHandle
from srmp_spark.mqrr.packets.sections import ALL
from srmp_spark.mqrr.queue_format import QueueFormat
from srmp_spark.mqrr.rpc.client_connection import ClientSettings
from srmp_spark.mqrr.rpc.endpoint_mapper import ENDPOINT_MAPPER_PORT
from srmp_spark.mqrr.status import Status

SEND_SECONDS = 60.0
"""Longest time in seconds to send a call; then the connection counts as lost."""
READ_BYTES = 262_144


class RemoteMachine:
    """One connection to the queue manager of another machine."""

    def __init__(self, reader: RemoteReader, settings: ClientSettings) -> None:
        """Connect with ``settings``, as :meth:`connect` describes."""
        self.host = reader.host
        self._reader = reader
        self._settings = settings
        self._outcomes: dict[int, Outcome] = {}
        """Outcomes that no caller has fetched yet, by the number of the call."""
        self._socket: socket.socket | None = None
        try:
            while not reader.is_ready:
                self._go_on()
        except BaseException:
            self.close()
            raise

    @classmethod
    def connect(
        cls,
        host: str,
        port: int | None = None,
        settings: ClientSettings | None = None,
        *,
        mapper_port: int = ENDPOINT_MAPPER_PORT,
    ) -> RemoteMachine:
        """Connect to ``host`` and return the connection.

        Without ``port`` the endpoint mapper is asked for it. Raises :class:`RemoteReadError` if the
        host refuses, :class:`RemoteLostError` if it is unreachable.
        """
        return cls(RemoteReader(host, port, mapper_port=mapper_port), settings or ClientSettings())

    def second(self, settings: ClientSettings | None = None) -> RemoteMachine:
        """Open another connection of the same client, which may use the handles of this one.

        A call that waits on this connection can be cancelled over the other one. Raises
        :class:`RemoteReadError` if the host refuses, :class:`RemoteLostError` if it is unreachable.
        """
        reader = RemoteReader(self.host, self._reader.port, group_id=self._reader.group_id)
        return RemoteMachine(reader, settings or self._settings)

    def _go_on(self) -> None:
        """Carry out the next step until calls can be made (:mod:`.reader_states`)."""
        reader, effect = self._reader, self._reader.effect
        if isinstance(effect, Connect):
            try:
                self._socket = socket.create_connection((self.host, effect.port), effect.seconds)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError as error:
                reader.not_connected(str(error))
            else:
                reader.connected(time.monotonic())
        elif isinstance(effect, Prepare):
            reader.prepared(self._settings)
        elif effect is None:
            self._exchange(reader.timer() or 0.0)
        else:
            self.close()
            reader.connection_lost()

    # --- calls ------------------------------------------------------------------------------------

    def call(self, opnum: int, asked: Parameters, wait_s: float = 0.0) -> Any:  # noqa: ANN401  # the response of METHODS
        """Make one call and return its response.

        The call may wait ``wait_s`` seconds on the other machine. Raises :class:`RemoteReadError`
        for a fault or an invalid answer, :class:`RemoteLostError` if the connection is lost.
        """
        return self.begin(opnum, asked, wait_s)()

    @property
    def calls_at_once(self) -> int:
        """Return the number of calls that may be in flight on this connection at the same time."""
        return self._reader.calls_at_once

    def begin(
        self, opnum: int, asked: Parameters, wait_s: float = 0.0, *, more: bool = False
    ) -> Callable[[], Any]:
        """Send one call and return a function that waits for its response.

        With ``more`` nothing is sent until the next call is sent, which must follow now. The
        function raises the errors of :meth:`call`, and this method those of
        :meth:`.RemoteReader.call`.
        """
        number = self._reader.call(opnum, asked, time.monotonic(), wait_s)
        if not more:
            self._send()
        return lambda: self._response(number, wait_s)

    def _response(self, number: int, wait_s: float) -> Any:  # noqa: ANN401  # the response of METHODS
        deadline = time.monotonic() + self._reader.longest_wait(wait_s)
        while (outcome := self._outcomes.pop(number, None)) is None:
            if self._reader.failure is not None:
                raise self._reader.failure
            self._exchange(deadline)
        if isinstance(outcome, Failure):
            raise outcome.error
        return outcome.response

    def _exchange(self, deadline: float) -> None:
        """Send what is to be sent, and process what is received until ``deadline``.

        The deadline counts from the time at which the caller begins to wait: the caller may have
        worked on other messages, while answers waited in the socket.
        """
        self._send()
        assert self._socket is not None, "it was connected before"
        try:
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            received = self._socket.recv(READ_BYTES)
        except OSError as error:
            if isinstance(error, TimeoutError) and error.errno is None:
                self._note(self._reader.handle_timer(time.monotonic()))
            else:
                self._lost(error)
        else:
            if received:
                self._note(self._reader.receive(received, time.monotonic()))
            else:
                self._note(self._reader.connection_lost())

    def _send(self) -> None:
        data = self._reader.data_to_send()
        if not data or self._socket is None:
            return
        try:
            self._socket.settimeout(SEND_SECONDS)
            self._socket.sendall(data)
        except OSError as error:
            self._lost(error)

    def _lost(self, error: OSError) -> None:
        self._note(self._reader.connection_lost(str(error) or type(error).__name__))

    def _note(self, outcomes: Iterable[Outcome]) -> None:
        for each in outcomes:
            self._outcomes[each.number] = each

    def checked(self, opnum: int, asked: Parameters, wait_s: float = 0.0) -> Any:  # noqa: ANN401
        """Make one call like :meth:`call` and return its response.

        ``wait_s`` and the errors are those of :meth:`call`. An HRESULT other than MQ_OK raises
        :class:`RemoteReadError` too.
        """
        answer = self.call(opnum, asked, wait_s)
        if answer.status != Status.MQ_OK:
            raise refused(answer.status, f"{self.host}, {METHODS[opnum].name}")
        return answer

    def open(
        self, queue: QueueFormat, access: int = ACCESS_PEEK, share: int = SHARE_DENY_NONE
    ) -> RemoteQueue:
        """Open a queue of the other machine.

        Raises :class:`RemoteReadError` if the queue cannot be opened, :class:`RemoteLostError` if
        the connection is lost.
        """
        try:
            answer = self.call(*open_queue(queue, access, share))
        except RemoteReadError as error:
            raise refused(
                error.status, f"{self.host} does not open {queue.text or 'a queue'}"
            ) from None
        return RemoteQueue(self, answer.handle, queue.text or "a queue")

    def interrupt(self) -> None:
        """End the connection; a call that waits in another thread raises :class:`RemoteLostError`.

        May be called from any thread.
        """
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection. The other machine then closes the handles that it opened."""
        if self._socket is not None:
            self._socket.close()

    def __enter__(self) -> RemoteMachine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RemoteQueue:
    """One open queue of another machine.

    Its methods raise the errors of :meth:`RemoteMachine.checked` unless they say otherwise.
    """

    def __init__(self, machine: RemoteMachine, handle: ContextHandle, name: str) -> None:
        """Wrap an open ``handle``; ``name`` is the name of the queue for errors."""
        self._machine = machine
        self._calls = QueueCalls(handle)
        self._name = name

    @property
    def handle(self) -> ContextHandle:
        """Return the handle of the queue.

        Raises :class:`LocalProtocolError` if the queue was closed.
        """
        return self._calls.handle

    def start(
        self, action: Action, *, wait_s: float = 0.0, lookup_id: int = 0
    ) -> tuple[int, StartReceiveResponse]:
        """Call R_StartReceive and return the number of the request and the answer.

        The status of the answer may be any. ``wait_s`` is the longest wait for a message in
        seconds. Raises the errors of :meth:`RemoteMachine.call`.
        """
        opnum, asked = self._calls.start(action, wait_s=wait_s, lookup_id=lookup_id)
        return asked.request_id, self._machine.call(opnum, asked, wait_s)

    def end(self, request: int, *, keep: bool = False) -> None:
        """Call R_EndReceive: remove the message from its queue, or with ``keep`` unlock it there.

        ``request`` is the number that :meth:`start` returned.
        """
        self._machine.checked(*self._calls.end(request, keep=keep))

    def peek(self, action: Action = Action.PEEK_CURRENT, *, lookup_id: int = 0) -> Shown | None:
        """Return a message without receiving it, or ``None`` if there is none.

        Raises :class:`RemoteReadError` for any other status, and :class:`RemoteProtocolError` if
        the message is broken, as :func:`shown` does.
        """
        _, answer = self.start(action, lookup_id=lookup_id)
        if answer.status in NOTHING:
            return None
        if answer.status != Status.MQ_OK:
            raise self._not_shown(answer.status)
        return shown(answer)

    def walk(
        self, max_body: int = ALL, unreadable: Unreadable | None = None
    ) -> Generator[Shown, None, None]:
        """Yield all messages that are in the queue and not locked, by peeks with a cursor.

        Messages that are received meanwhile by others are skipped. ``unreadable`` is called for a
        broken message, which is then skipped; without ``unreadable`` the error is raised. While the
        caller processes messages, the other machine already searches for the next ones
        (:mod:`.walking`). So make no other calls on this connection between two messages.
        """
        cursor = self._machine.checked(*self._calls.create_cursor()).cursor

        def peek(action: Action, count: int) -> list[Later]:
            return [
                self._machine.begin(
                    *self._calls.start(action, cursor=cursor, max_body=max_body), more=left > 0
                )
                for left in reversed(range(count))
            ]

        yield from walk(peek, self._machine.calls_at_once, self._not_shown, unreadable)
        self._machine.checked(*self._calls.close_cursor(cursor))

    def _not_shown(self, status: int) -> RemoteReadError:
        return refused(status, f"{self._machine.host} does not show messages of {self._name}")

    def purge(self) -> None:
        """Delete all messages of the queue (R_PurgeQueue)."""
        self._machine.checked(*self._calls.purge())

    def close(self) -> None:
        """Close the queue on the other machine (R_CloseQueue).

        Every later call on this object raises :class:`LocalProtocolError`.
        """
        self._machine.checked(*self._calls.close())

    def __enter__(self) -> RemoteQueue:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None:
            self.close()
