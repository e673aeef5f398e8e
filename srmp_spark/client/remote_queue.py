"""A queue of another machine over RPC, one call after the other ([MS-MQRR] 3.2).

An executor reads such a queue, and commands open one:

    with RemoteMachine.connect("windows.example") as machine, machine.open(queue_format) as queue:
        for shown in queue.walk():
            shown.packet, shown.sequence_id, shown.arrived_at

Theory of operation. There is one connection and, except in a walk, one call at a time. This module
repeats no call: a call without an answer may have been executed, and only the caller knows what to
do then (:class:`RemoteLostError`). The port of a machine is found with its endpoint mapper, port
135, unless a port is given.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import time
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any

from srmp_spark.client.walking import EMPTY, Later, Shown, Unreadable, shown, walk
from srmp_spark.errors import RemoteLostError, RemoteProtocolError, RemoteReadError, with_hint
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.errors import BadStubError
from srmp_spark.mqrr.ndr.methods import (
    ACCESS_PEEK,
    METHODS,
    RR_ACK,
    RR_NACK,
    SHARE_DENY_NONE,
    EndReceiveRequest,
    HandleNumberRequest,
    HandleRequest,
    OpenRequest,
    Parameters,
)
from srmp_spark.mqrr.ndr.receive import StartReceiveRequest, StartReceiveResponse
from srmp_spark.mqrr.ndr.stub import ContextHandle
from srmp_spark.mqrr.ndr.transfer_syntax import NDR, TransferSyntax
from srmp_spark.mqrr.next_steps import UNREACHABLE, refusal_text
from srmp_spark.mqrr.packets.sections import ALL
from srmp_spark.mqrr.queue_format import QueueFormat
from srmp_spark.mqrr.rpc.binding import REMOTE_READ
from srmp_spark.mqrr.rpc.client_connection import (
    Answered,
    Bound,
    ClientConnection,
    ClientResult,
    ClientSettings,
    Closed,
    Faulted,
)
from srmp_spark.mqrr.rpc.endpoint_mapper import (
    ENDPOINT_MAPPER,
    ENDPOINT_MAPPER_PORT,
    EPT_MAP,
    decode_map_response,
    encode_map_request,
)
from srmp_spark.mqrr.status import Status

CONNECT_SECONDS = 10.0
"""Longest time in seconds to connect; then the machine counts as unreachable."""
ANSWER_SECONDS = 60.0
"""Longest silence in seconds before an answer, in addition to the wait that a call requests.

Then the connection counts as lost.
"""
READ_BYTES = 262_144


def refused(status: int, what: str) -> RemoteReadError:
    """Build the error for ``what``, which got the HRESULT or fault ``status``.

    The message says what to do next.
    """
    return RemoteReadError(refusal_text(what, status), status)


class _Channel:
    """One RPC connection to another machine, over which calls can be made."""

    def __init__(self, host: str, port: int, settings: ClientSettings, group_id: int = 0) -> None:
        self._where = f"{host}:{port}"
        self._engine = ClientConnection(settings)
        self._results: list[ClientResult] = []
        self._why_lost: str | None = None
        """Reason why the connection was lost; ``None`` while it is open.

        A thread that waits for an answer then gets the error at once.
        """
        try:
            self._socket = socket.create_connection((host, port), CONNECT_SECONDS)
        except OSError as error:
            raise RemoteLostError(
                with_hint(f"{self._where} cannot be reached: {error}", UNREACHABLE)
            ) from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._engine.bind(time.monotonic(), group_id=group_id)
            bound = self._wait(lambda each: isinstance(each, Bound), ANSWER_SECONDS)
            assert isinstance(bound, Bound)
        except BaseException:
            self._socket.close()
            raise
        self.syntax: TransferSyntax = bound.syntax
        self.group_id = bound.group_id

    def call(self, opnum: int, stub: bytes, wait_s: float = 0.0) -> bytes:
        """Make a call, wait for its answer, and return the stub of the answer.

        The call itself may wait ``wait_s`` seconds on the other machine. Raises
        :class:`RemoteReadError` for a fault, :class:`RemoteLostError` if the connection is lost or
        no answer was received ANSWER_SECONDS after that wait, and :class:`LocalProtocolError` as
        :meth:`begin` does.
        """
        return self.answer(opnum, self.begin(opnum, stub, wait_s), wait_s)

    @property
    def calls_at_once(self) -> int:
        """Return the number of calls that may be in flight at the same time.

        The result is 1 unless the other machine agreed to several (C706 PFC_CONC_MPX).
        """
        return self._engine.calls_at_once

    def begin(self, opnum: int, stub: bytes, wait_s: float = 0.0, *, more: bool = False) -> int:
        """Send a call without waiting for its answer, and return its number (call_id).

        The call itself may wait ``wait_s`` seconds on the other machine. With ``more`` nothing is
        sent until the next call is sent. Raises :class:`RemoteLostError` if the connection is lost,
        and :class:`LocalProtocolError` if the engine (:class:`.ClientConnection`) may not make
        another call now.
        """
        self._raise_if_lost()
        number = self._engine.call(opnum, stub, time.monotonic(), timeout_s=wait_s + ANSWER_SECONDS)
        if more:
            return number
        try:
            self._send()
        except OSError as error:
            raise self._lost(error) from None
        return number

    def answer(self, opnum: int, number: int, wait_s: float = 0.0) -> bytes:
        """Wait for the answer of the call ``number`` that was begun, and return its stub.

        ``wait_s`` is that of :meth:`begin`. Raises :class:`RemoteReadError` and
        :class:`RemoteLostError` as :meth:`call` does.
        """

        def mine(each: ClientResult) -> bool:
            return isinstance(each, Answered | Faulted) and each.call_id == number

        answer = self._wait(mine, wait_s + ANSWER_SECONDS)
        if isinstance(answer, Faulted):
            raise refused(answer.status, f"{self._where} refuses opnum {opnum}")
        assert isinstance(answer, Answered)
        return answer.stub

    def _wait(self, is_it: Callable[[ClientResult], bool], seconds: float) -> ClientResult:
        deadline = time.monotonic() + seconds
        try:
            while True:
                for each in self._results:
                    if is_it(each):
                        self._results.remove(each)
                        return each
                self._raise_if_lost()
                self._send()
                self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
                received = self._socket.recv(READ_BYTES)
                self._take(self._engine.receive(received) if received else self._engine.lost())
        except OSError as error:
            raise self._lost(error) from None

    def _send(self) -> None:
        if data := self._engine.data_to_send():
            self._socket.settimeout(ANSWER_SECONDS)
            self._socket.sendall(data)

    def _take(self, results: list[ClientResult]) -> None:
        for each in results:
            if isinstance(each, Closed):
                self._why_lost = each.reason
            else:
                self._results.append(each)

    def _lost(self, error: OSError) -> RemoteLostError:
        self._take(self._engine.lost(str(error) or type(error).__name__))
        return RemoteLostError(f"{self._where}: {self._why_lost}")

    def _raise_if_lost(self) -> None:
        if self._why_lost is not None:
            raise RemoteLostError(f"{self._where}: {self._why_lost}")

    def interrupt(self) -> None:
        """End the connection, so that a thread that waits for an answer is woken.

        That thread then raises :class:`RemoteLostError`.
        """
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection. The other machine then closes the handles that it opened."""
        self._socket.close()


def find_port(host: str, mapper_port: int = ENDPOINT_MAPPER_PORT) -> int:
    """Return the TCP port of RemoteRead on ``host``, found with its endpoint mapper.

    Raises :class:`RemoteReadError` if the host serves no RemoteRead, :class:`RemoteLostError` if
    the host is unreachable or the connection is lost.
    """
    channel = _Channel(
        host, mapper_port, ClientSettings(interface=ENDPOINT_MAPPER, syntaxes=(NDR,))
    )
    try:
        answer = decode_map_response(channel.call(EPT_MAP, encode_map_request(REMOTE_READ)))
    except RemoteProtocolError as error:
        raise refused(Status.RPC_X_BAD_STUB_DATA, f"{host}, endpoint mapper: {error}") from None
    finally:
        channel.close()
    port = answer.port(REMOTE_READ)
    if port is None:
        raise refused(answer.status, f"{host} serves no remote read: {answer.explain()}")
    return port


class RemoteMachine:
    """One connection to the queue manager of another machine."""

    def __init__(self, host: str, port: int, settings: ClientSettings, group_id: int = 0) -> None:
        self.host = host
        self._port = port
        self._settings = settings
        self._channel = _Channel(host, port, settings, group_id)

    @classmethod
    def connect(
        cls, host: str, port: int | None = None, settings: ClientSettings | None = None
    ) -> RemoteMachine:
        """Connect to ``host`` and return the connection.

        Without ``port`` the endpoint mapper is asked for it. Raises :class:`RemoteReadError` if the
        host refuses, :class:`RemoteLostError` if it is unreachable.
        """
        return cls(host, find_port(host) if port is None else port, settings or ClientSettings())

    def second(self) -> RemoteMachine:
        """Open another connection of the same client, which may use the handles of this one.

        A call that waits on this connection can be cancelled over the other one. Raises
        :class:`RemoteReadError` if the host refuses, :class:`RemoteLostError` if it is unreachable.
        """
        return RemoteMachine(self.host, self._port, self._settings, self._channel.group_id)

    def call(self, opnum: int, asked: Parameters, wait_s: float = 0.0) -> Any:  # noqa: ANN401  # the response of METHODS
        """Make one call and return its response.

        The call may wait ``wait_s`` seconds on the other machine. Raises :class:`RemoteReadError`
        for a fault or an invalid answer, :class:`RemoteLostError` if the connection is lost.
        """
        return self.begin(opnum, asked, wait_s)()

    @property
    def calls_at_once(self) -> int:
        """Return the number of calls that may be in flight on this connection at the same time."""
        return self._channel.calls_at_once

    def begin(
        self, opnum: int, asked: Parameters, wait_s: float = 0.0, *, more: bool = False
    ) -> Callable[[], Any]:
        """Send one call and return a function that waits for its response.

        The call may wait ``wait_s`` seconds on the other machine. With ``more`` nothing is sent
        until the next call is sent, which must follow now. The function raises the errors of
        :meth:`call`. This method raises :class:`RemoteLostError` if the connection is already lost,
        and :class:`LocalProtocolError` if a value does not fit into its field or another call may
        not be made now.
        """
        number = self._channel.begin(opnum, asked.encode(self._channel.syntax), wait_s, more=more)
        return lambda: self._answer(opnum, number, wait_s)

    def _answer(self, opnum: int, number: int, wait_s: float) -> Any:  # noqa: ANN401  # the response of METHODS
        stub = self._channel.answer(opnum, number, wait_s)
        try:
            return METHODS[opnum].decode_response(stub, self._channel.syntax)
        except BadStubError as error:
            raise refused(
                Status.RPC_X_BAD_STUB_DATA,
                f"{self.host} sent an invalid answer to {METHODS[opnum].name}: {error}",
            ) from None

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
            answer = self.call(2, OpenRequest(queue, access, share))
        except RemoteReadError as error:
            raise refused(
                error.status, f"{self.host} does not open {queue.text or 'a queue'}"
            ) from None
        return RemoteQueue(self, answer.handle, queue.text or "a queue")

    def interrupt(self) -> None:
        """End the connection; a call that waits in another thread raises :class:`RemoteLostError`.

        May be called from any thread.
        """
        self._channel.interrupt()

    def close(self) -> None:
        """Close the connection to the other machine."""
        self._channel.close()

    def __enter__(self) -> RemoteMachine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class RemoteQueue:
    """One open queue of another machine."""

    def __init__(self, machine: RemoteMachine, handle: ContextHandle, name: str) -> None:
        """Wrap an open ``handle``; ``name`` is the name of the queue for errors."""
        self._machine = machine
        self.handle = handle
        self._name = name
        self._requests = itertools.count(1)

    def start(
        self,
        action: Action,
        *,
        wait_s: float = 0.0,
        max_body: int = ALL,
        **more: Any,  # noqa: ANN401  # fields of StartReceiveRequest
    ) -> tuple[int, StartReceiveResponse]:
        """Call R_StartReceive and return the number of the request and the answer.

        The status of the answer may be any. ``wait_s`` is the longest wait for a message in
        seconds, ``max_body`` the limit of the body in bytes. Raises the errors of
        :meth:`RemoteMachine.call`.
        """
        request = next(self._requests)
        asked = StartReceiveRequest(
            self.handle,
            action=action,
            timeout_ms=int(wait_s * 1000),
            request_id=request,
            max_body_size=max_body,
            max_compound_message_size=max_body,
            **more,
        )
        return request, self._machine.call(7, asked, wait_s)

    def end(self, request: int, *, keep: bool = False) -> None:
        """Call R_EndReceive: remove the message from its queue, or with ``keep`` unlock it there.

        ``request`` is the number that :meth:`start` returned. Raises the errors of
        :meth:`RemoteMachine.checked`.
        """
        self._machine.checked(
            9, EndReceiveRequest(self.handle, RR_NACK if keep else RR_ACK, request)
        )

    def cancel(self, request: int, over: RemoteMachine) -> bool:
        """Cancel a waiting :meth:`start` over another connection; return whether it was waiting.

        The call is R_CancelReceive. Raises the errors of :meth:`RemoteMachine.call`, and
        :class:`RemoteReadError` for an unexpected status.
        """
        answer = over.call(8, HandleNumberRequest(self.handle, request))
        if answer.status not in (Status.MQ_OK, Status.STATUS_NOT_FOUND):
            raise refused(answer.status, f"{self._machine.host}, R_CancelReceive of {self._name}")
        return bool(answer.status == Status.MQ_OK)

    def peek(self, action: Action = Action.PEEK_CURRENT, **more: Any) -> Shown | None:  # noqa: ANN401
        """Return a message without receiving it, or ``None`` if there is none.

        Raises :class:`RemoteReadError` for any other status, and :class:`RemoteProtocolError` if
        the message is broken, as :func:`shown` does.
        """
        _, answer = self.start(action, **more)
        if answer.status in EMPTY:
            return None
        if answer.status != Status.MQ_OK:
            raise refused(
                answer.status, f"{self._machine.host} does not show messages of {self._name}"
            )
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
        cursor = self._machine.checked(4, HandleRequest(self.handle)).cursor

        def peek(action: Action, count: int) -> list[Later]:
            return self._peek_later(action, cursor, max_body, count)

        def not_shown(status: int) -> RemoteReadError:
            return refused(status, f"{self._machine.host} does not show messages of {self._name}")

        yield from walk(peek, self._machine.calls_at_once, not_shown, unreadable)
        self._machine.checked(5, HandleNumberRequest(self.handle, cursor))

    def _peek_later(self, action: Action, cursor: int, max_body: int, count: int) -> list[Later]:
        return [
            self._machine.begin(
                7,
                StartReceiveRequest(
                    self.handle,
                    action=action,
                    cursor=cursor,
                    request_id=next(self._requests),
                    max_body_size=max_body,
                    max_compound_message_size=max_body,
                ),
                more=left > 0,
            )
            for left in reversed(range(count))
        ]

    def purge(self) -> None:
        """Delete all messages of the queue (R_PurgeQueue).

        Raises the errors of :meth:`RemoteMachine.checked`.
        """
        self._machine.checked(6, HandleRequest(self.handle))

    def close(self) -> None:
        """Close the queue on the other machine (R_CloseQueue).

        Raises the errors of :meth:`RemoteMachine.checked`.
        """
        self._machine.checked(3, HandleRequest(self.handle))

    def __enter__(self) -> RemoteQueue:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
