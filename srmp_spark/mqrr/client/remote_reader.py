"""One connection to a remote queue manager: bytes and ``now`` in, orders, bytes and answers out.

Theory of operation: :mod:`.reader_states`. The owner carries out :attr:`RemoteReader.effect` until
the reader is ready, sends the bytes of :meth:`RemoteReader.data_to_send`, and passes received bytes
to :meth:`RemoteReader.receive`. Then it makes calls. Each call gets one outcome: its answer, or the
error to raise for it. ``now`` and all deadlines are in seconds on the monotonic clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from srmp_spark.errors import (
    LocalProtocolError,
    RemoteLostError,
    RemoteProtocolError,
    SrmpSparkError,
)
from srmp_spark.mqrr.client.failures import (
    NotSentError,
    UnreadableAnswerError,
    refused,
    unreachable,
)
from srmp_spark.mqrr.client.reader_states import (
    ANSWER_SECONDS,
    TRANSITIONS,
    Connect,
    Disconnect,
    Prepare,
    ReaderEffect,
    ReaderEvent,
    ReaderState,
)
from srmp_spark.mqrr.errors import BadStubError
from srmp_spark.mqrr.ndr.methods import METHODS, HandleRequest, Method, Parameters
from srmp_spark.mqrr.ndr.transfer_syntax import NDR, TransferSyntax
from srmp_spark.mqrr.next_steps import refusal_text
from srmp_spark.mqrr.rpc.binding import REMOTE_READ
from srmp_spark.mqrr.rpc.client_connection import (
    Bound,
    CallAnswered,
    ClientConnection,
    ClientConnectionClosed,
    ClientResult,
    ClientSettings,
    Faulted,
)
from srmp_spark.mqrr.rpc.endpoint_mapper import (
    ENDPOINT_MAPPER,
    ENDPOINT_MAPPER_PORT,
    EPT_MAP,
    decode_map_response,
    encode_map_request,
)
from srmp_spark.mqrr.rpc.security import SecurityError
from srmp_spark.mqrr.status import Status
from srmp_spark.transitions import next_state

_MAPPER = ClientSettings(interface=ENDPOINT_MAPPER, syntaxes=(NDR,))


class Answer(NamedTuple):
    """The response of the server to call ``number``, with any HRESULT."""

    number: int
    response: Any
    """The response that :data:`.METHODS` has for the call."""


class Failure(NamedTuple):
    """The error to raise for call ``number``, which gets no response."""

    number: int
    error: SrmpSparkError


Outcome = Answer | Failure


class RemoteReader:
    """Finds the port of a remote queue manager, binds to it, and makes calls."""

    def __init__(
        self,
        host: str,
        port: int | None = None,
        *,
        group_id: int = 0,
        mapper_port: int = ENDPOINT_MAPPER_PORT,
    ) -> None:
        """Prepare a connection to ``host``. Without ``port``, its endpoint mapper is asked first.

        With ``group_id``, that of another reader, this reader may use the handles of that one.
        """
        self.host = host
        self.port = port
        """The port of RemoteRead, or ``None`` until the endpoint mapper has named it."""
        self.group_id = group_id
        self.failure: SrmpSparkError | None = None
        """The error that ended the connection, or ``None`` while it goes on."""
        self._mapper_port = mapper_port
        self._where = f"{host}:{mapper_port if port is None else port}"
        self._state = ReaderState.CONNECTING_TO_MAPPER if port is None else ReaderState.PREPARING
        self._engine = ClientConnection(_MAPPER)
        self._syntax = NDR
        self._deadline: float | None = None
        self._calls: dict[int, Method] = {}
        """Method of each call that waits for its answer, by the number of the call."""

    @property
    def state(self) -> ReaderState:
        """Return the state of the connection, for logs and tests."""
        return self._state

    @property
    def is_ready(self) -> bool:
        """Return whether calls can be made."""
        return self._state is ReaderState.READY

    @property
    def effect(self) -> ReaderEffect | None:
        """Return what the owner does now; ``None`` if the owner waits for bytes or makes calls.

        Raises :attr:`failure` if the connection has ended.
        """
        if self.failure is not None:
            raise self.failure
        state = self._state
        if state is ReaderState.CONNECTING_TO_MAPPER:
            return Connect(self._mapper_port)
        if state is ReaderState.CONNECTING:
            assert self.port is not None, "the state follows from it"
            return Connect(self.port)
        if state is ReaderState.PREPARING:
            return Prepare()
        if state is ReaderState.LEAVING_MAPPER:
            return Disconnect()
        return None

    # --- the steps until calls can be made --------------------------------------------------------

    def connected(self, now: float) -> None:
        """Begin to bind, because the owner has connected as :class:`.Connect` orders."""
        self._move(ReaderEvent.CONNECTED)
        self._deadline = now + ANSWER_SECONDS
        group_id = self.group_id if self._state is ReaderState.BINDING else 0
        try:
            self._engine.bind(now, group_id=group_id)
        except SecurityError as error:
            self._fail(error)

    def not_connected(self, reason: str) -> None:
        """End, because the owner cannot connect. An empty ``reason`` means: not in time."""
        self._fail(unreachable(self._where, reason))

    def prepared(self, settings: ClientSettings) -> None:
        """Go on to connect to the port of RemoteRead, with the ``settings`` of the owner.

        Raises :class:`LocalProtocolError` if the settings contradict each other.
        """
        self._engine = ClientConnection(settings)
        self._where = f"{self.host}:{self.port}"
        self._move(ReaderEvent.PREPARED)

    # --- calls ------------------------------------------------------------------------------------

    @property
    def calls_at_once(self) -> int:
        """Return the number of calls that may be in flight at the same time.

        The result is 1 unless the server agreed to several (C706 PFC_CONC_MPX).
        """
        return self._engine.calls_at_once

    def call(self, opnum: int, asked: Parameters, now: float, wait_s: float = 0.0) -> int:
        """Queue a call for :meth:`data_to_send`, and return its number.

        The call itself may wait ``wait_s`` seconds at the server. Raises :class:`NotSentError` if
        the connection has ended, is not ready, or may not make another call now, and
        :class:`LocalProtocolError` if a value does not fit into its field.
        """
        if self._state is not ReaderState.READY:
            raise NotSentError(str(self.failure or f"{self._where}: there is no connection yet"))
        method, stub = METHODS[opnum], asked.encode(self._syntax)
        try:
            number = self._engine.call(opnum, stub, now, timeout_s=self.longest_wait(wait_s))
        except LocalProtocolError as error:
            # For instance, the numbers of calls on this connection are used up.
            raise NotSentError(f"{self._where}: {error}") from None
        self._calls[number] = method
        return number

    def longest_wait(self, wait_s: float) -> float:
        """Return the longest time in seconds to wait for the answer to a call.

        ``wait_s`` is the time in seconds that the call itself may wait at the server.
        """
        return wait_s + ANSWER_SECONDS

    # --- bytes and time ---------------------------------------------------------------------------

    def data_to_send(self) -> bytes:
        """Return the bytes to be sent and remove them from this connection."""
        return self._engine.data_to_send()

    def receive(self, data: bytes, now: float, pdus_max: int | None = None) -> list[Outcome]:
        """Process received bytes and return the outcomes of calls.

        Never raises for bytes that a server sends. After ``pdus_max`` PDUs the rest waits for the
        next call, which may be a call without data (:attr:`is_behind`).
        """
        return self._outcomes(self._engine.receive(data, pdus_max), now)

    @property
    def is_behind(self) -> bool:
        """Return whether a PDU that was received waits for the next :meth:`receive`."""
        return self._engine.is_behind

    @property
    def unfinished_bytes(self) -> int:
        """Return the number of bytes of answers whose last fragment was not yet received."""
        return self._engine.unfinished_bytes

    def timer(self) -> float | None:
        """Return the time at which to call :meth:`handle_timer`; ``None`` without any deadline."""
        return self._engine.timer() if self._deadline is None else self._deadline

    def handle_timer(self, now: float) -> list[Outcome]:
        """End the connection if a deadline has passed, and return the outcomes of calls."""
        if self._deadline is None:
            return self._outcomes(self._engine.handle_timer(now), now)
        return self._fail(unreachable(self._where, "")) if now >= self._deadline else []

    def connection_lost(self, reason: str = "the transport connection is gone") -> list[Outcome]:
        """Note that the transport is gone, or is closed now, and return the outcomes of calls.

        After :class:`.Disconnect` from the endpoint mapper, the connection goes on.
        """
        if self._state is ReaderState.LEAVING_MAPPER:
            self._move(ReaderEvent.LEFT)
            return []
        return self._fail(RemoteLostError(f"{self._where}: {reason}"))

    def __repr__(self) -> str:
        return f"<RemoteReader {self._where} {self._state.name} calls={sorted(self._calls)}>"

    # --- results of the engine --------------------------------------------------------------------

    def _outcomes(self, results: Sequence[ClientResult], now: float) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for each in results:
            if isinstance(each, CallAnswered):
                if self._state is ReaderState.READY:
                    outcomes.append(self._answered(each))
                else:
                    self._mapper_answered(each.stub)
            elif isinstance(each, Faulted):
                outcomes += self._faulted(each)
            elif isinstance(each, Bound):
                self._bound(each, now)
            elif (
                isinstance(each, ClientConnectionClosed)
                and self._state is not ReaderState.LEAVING_MAPPER
            ):
                outcomes += self._fail(RemoteLostError(f"{self._where}: {each.reason}"))
        return outcomes

    def _bound(self, bound: Bound, now: float) -> None:
        self._move(ReaderEvent.BOUND)
        if self._state is ReaderState.ASKING_MAPPER:
            self._deadline = now + ANSWER_SECONDS
            self._engine.call(EPT_MAP, encode_map_request(REMOTE_READ), now)
        else:
            self._syntax, self.group_id = bound.syntax, bound.group_id

    def _answered(self, answer: CallAnswered) -> Outcome:
        method = self._calls.pop(answer.call_id)
        try:
            return Answer(answer.call_id, _response(method, answer.stub, self._syntax))
        except BadStubError as error:
            text = f"{self._where}: the answer to {method.name} cannot be read: {error}"
            status = Status.RPC_X_BAD_STUB_DATA
            unreadable = UnreadableAnswerError(
                refusal_text(text, status), status, perhaps_done=True
            )
            return Failure(answer.call_id, unreadable)

    def _faulted(self, fault: Faulted) -> list[Outcome]:
        if self._state is not ReaderState.READY:
            return self._fail(refused(fault.status, f"{self._where}: ept_map"))
        what = f"{self._where}: {self._calls.pop(fault.call_id).name}"
        error = refused(fault.status, what, perhaps_done=not fault.not_executed)
        return [Failure(fault.call_id, error)]

    def _mapper_answered(self, stub: bytes) -> None:
        try:
            found = decode_map_response(stub)
        except RemoteProtocolError as error:
            status = Status.RPC_X_BAD_STUB_DATA
            self._fail(refused(status, f"{self.host}, endpoint mapper: {error}"))
            return
        self.port = found.port(REMOTE_READ)
        if self.port is None:
            what = f"{self.host} serves no remote read: {found.explain()}"
            self._fail(refused(found.status, what))
            return
        self._engine.connection_lost()
        self._move(ReaderEvent.PORT_FOUND)

    def _move(self, event: ReaderEvent) -> None:
        """Change the state. The caller sets the deadline of a state that waits for an answer."""
        self._state = next_state(TRANSITIONS, self._state, event, "a reader")
        self._deadline = None

    def _fail(self, error: SrmpSparkError) -> list[Outcome]:
        """End the connection with ``error``, and return the failures of the calls that wait."""
        if self._state is ReaderState.CLOSED:
            return []
        self._move(ReaderEvent.FAILED)
        self._engine.connection_lost()
        self.failure = error
        failures: list[Outcome] = [
            Failure(number, RemoteLostError(str(error))) for number in self._calls
        ]
        self._calls.clear()
        return failures


def _response(method: Method, stub: bytes, syntax: TransferSyntax) -> Parameters:
    """Decode the response of ``method``.

    Raises :class:`BadStubError` if the stub is broken, or if R_OpenQueue returned the null handle:
    the handle is a parameter of every later call, where it MUST NOT be NULL.
    """
    response = method.decode_response(stub, syntax)
    if isinstance(response, HandleRequest) and response.handle.is_null:
        raise BadStubError("its handle is NULL", section="[MS-MQRR] 3.1.4.2")
    return response
