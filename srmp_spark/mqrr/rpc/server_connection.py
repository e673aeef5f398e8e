"""One connection at its server: bytes in, calls out; answers in, bytes out ([MS-RPCE] 3.3.3).

Theory of operation: :mod:`.server_states`. The owner passes received bytes to
:meth:`ServerConnection.receive`, handles the events, answers calls at any time, and sends the bytes
of :meth:`ServerConnection.data_to_send`. A negotiation or a request that has begun has a deadline
(:meth:`ServerConnection.timer`). A call that blocks, such as a read that waits for a message, does
not block this connection. When the transport is lost, the owner calls
:meth:`ServerConnection.connection_lost`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from srmp_spark.errors import LimitExceededError, RemoteProtocolError
from srmp_spark.mqrr.ndr.transfer_syntax import TransferSyntax
from srmp_spark.mqrr.rpc.associations import Association, Associations
from srmp_spark.mqrr.rpc.binding import Bind, BindAck, BindNak, NakReason, SyntaxId, parse_bind
from srmp_spark.mqrr.rpc.calls import (
    Assembly,
    RequestFragment,
    RpcFault,
    parse_request,
    response_pieces,
)
from srmp_spark.mqrr.rpc.limits import (
    CALLS_MAX,
    CONTEXTS_MAX,
    FRAGMENT_MAX,
    FRAGMENT_MIN,
    LATE_PDUS_MAX,
    NEGOTIATION_TIMEOUT_S,
    OLD_CALL_WINDOW,
    REQUEST_TIMEOUT_S,
    SECURITY_LEGS_MAX,
    STUB_MAX,
)
from srmp_spark.mqrr.rpc.negotiation import KEEP_CONNECTION_ON_ORPHAN, answer, syntax_id
from srmp_spark.mqrr.rpc.pdu import (
    CONCURRENT_MULTIPLEXING,
    DID_NOT_EXECUTE,
    SUPPORT_HEADER_SIGN,
    WHOLE,
    AuthLevel,
    AuthTrailer,
    Pdu,
    PduStream,
    PduType,
    encode_pdu,
    parse_pdu,
)
from srmp_spark.mqrr.rpc.security import (
    LEVELS,
    ConnectionSecurity,
    SecurityContext,
    SecurityError,
    encode_piece,
    open_piece,
)
from srmp_spark.mqrr.rpc.server_events import (
    CallCancelled,
    CallOrphaned,
    CallReceived,
    ConnectionClosed,
    ConnectionEvent,
    Rundown,
)
from srmp_spark.mqrr.rpc.server_states import MAY_COME, TRANSITIONS, ServerEvent, ServerState
from srmp_spark.mqrr.rpc.verification_trailer import split_trailer
from srmp_spark.mqrr.status import Status
from srmp_spark.transitions import next_state

NO_SECURITY = "no security provider is set up here"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The settings that all connections of a server share."""

    interfaces: Mapping[SyntaxId, frozenset[int]]
    """Each interface and the operation numbers (opnums) of its methods."""
    port: int
    """TCP port of the server, sent as text in the secondary address of a bind_ack."""
    syntaxes: Collection[TransferSyntax] = tuple(TransferSyntax)
    """The transfer syntaxes in which the interfaces are served."""
    min_auth_level: int = AuthLevel.NONE
    """Lowest accepted authentication level.

    A bind with a lower level is refused with a bind_nak and the connection is closed: nothing is
    kept for an unauthenticated client. Windows since Vista demands packet privacy ([MS-MQRR]
    appendix B <19>).
    """
    accept_security: Callable[[int, int, str], SecurityContext | None] | None = None
    """Function that creates the server's side of a security negotiation.

    (authentication type, level, IP address of the client) → a new context, or ``None`` for a type
    that is not set up.
    """
    fragment: int = FRAGMENT_MAX
    stub_max: int = STUB_MAX
    """Largest request in bytes, all fragments together; a larger one gets fault 5.

    Interfaces with short requests set less.
    """


class _RefusedError(Exception):
    """Reports that a bind was refused, so that it is answered with a bind_nak."""

    def __init__(self, reason: NakReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class ServerConnection:
    """The server's side of one transport connection, without I/O.

    Methods that return events return a list of those in :mod:`.server_events`. ``peer`` is the IP
    address of the client. The connection was accepted at ``now``. Every ``now`` and every deadline
    is in seconds on the monotonic clock.
    """

    def __init__(
        self, settings: ServerSettings, associations: Associations[Any], peer: str, now: float
    ) -> None:
        self._settings = settings
        self._associations = associations
        self._peer = peer
        self._state = ServerState.ESTABLISHED
        self._stream = PduStream()
        self._out: list[bytes] = []
        self._events: list[ConnectionEvent] = []
        self._association: Association[Any] | None = None
        self._contexts: dict[int, tuple[SyntaxId, TransferSyntax]] = {}
        self._calls: dict[int, int] = {}
        """call_id → p_cont_id of the calls that wait for an answer."""
        self._assembly: Assembly | None = None
        self._last_call_id = -1
        self._multiplexing = False
        self._fragment = FRAGMENT_MIN
        self._security: ConnectionSecurity | None = None
        self._legs = 0
        self._late_pdus = 0
        """Number of cancels and orphaned PDUs, since the last request, that named calls which were
        over.
        """
        self._deadline: float | None = now + NEGOTIATION_TIMEOUT_S

    # --- methods for the owner --------------------------------------------------------------------

    @property
    def state(self) -> ServerState:
        """Return the state of this connection, for logs and tests."""
        return self._state

    @property
    def is_behind(self) -> bool:
        """Return whether a PDU that was received waits for the next :meth:`receive`."""
        return not self._is_closed() and self._stream.is_behind

    @property
    def is_signed_in(self) -> bool:
        """Return whether the negotiation is complete, and successful if security was negotiated."""
        if self._state not in (ServerState.CONTEXT_NEGOTIATED, ServerState.RECV_PDU):
            return False
        return self._security is None or not self._security.failed

    @property
    def is_idle(self) -> bool:
        """Return whether the client has no open handle and no unanswered call."""
        return not self._calls and not (self._association is not None and len(self._association))

    def hold(self, data: bytes) -> None:
        """Keep received bytes for the next :meth:`receive`, without processing them.

        A closed connection drops them.
        """
        if not self._is_closed():
            self._stream.add(data)

    def receive(
        self, data: bytes, now: float, pdus_max: int | None = None
    ) -> list[ConnectionEvent]:
        """Process received bytes and return the events.

        Never raises for bytes that a client sends: a protocol error closes the connection. At most
        ``pdus_max`` PDUs are processed (``None``: no limit); :attr:`is_behind` states whether
        others wait.
        """
        if not self._is_closed():
            try:
                for count, raw in enumerate(self._stream.receive(data), 1):
                    self._receive_pdu(raw)
                    if self._is_closed() or count == pdus_max:
                        break
            except RemoteProtocolError as error:
                self._close(ServerEvent.PROTOCOL_ERROR, str(error))
            self._watch(now)
        return self._take_events()

    def timer(self) -> float | None:
        """Return the time (monotonic) at which to call :meth:`handle_timer`.

        Return ``None`` if neither a negotiation nor a request is incomplete.
        """
        return self._deadline

    def handle_timer(self, now: float) -> list[ConnectionEvent]:
        """Close the connection if its deadline has passed at ``now``, and return the events."""
        if self._deadline is not None and self._deadline <= now:
            negotiating = self._state in (ServerState.ESTABLISHED, ServerState.NEGOTIATING_SECURITY)
            what = (
                "the negotiation did not end"
                if negotiating
                else "the rest of a request was not received"
            )
            self._close(ServerEvent.TIMED_OUT, f"{what} in time")
        return self._take_events()

    def data_to_send(self) -> bytes:
        """Return the bytes to be sent and remove them from this connection."""
        data = b"".join(self._out)
        self._out.clear()
        return data

    def respond(self, call_id: int, stub: bytes) -> bool:
        """Queue the response to a call for :meth:`data_to_send`; return whether the call waited.

        The result is False if the call no longer waits for an answer; then nothing is sent.
        """
        context_id = self._calls.pop(call_id, None)
        if context_id is None or self._state is ServerState.CLOSED:
            return False
        token_size = self._security.token_size if self._security is not None else 0
        for piece in response_pieces(
            context_id, stub, fragment=self._fragment, token_size=token_size
        ):
            self._out.append(encode_piece(PduType.RESPONSE, call_id, piece, 0, self._security))
        return True

    def fail(self, call_id: int, status: int) -> bool:
        """Queue a fault with ``status`` for a call; return whether the call waited for an answer.

        If the result is False, nothing is sent. Raises :class:`LocalProtocolError` if a server MUST
        NOT send this status.
        """
        context_id = self._calls.get(call_id)
        if context_id is None or self._state is ServerState.CLOSED:
            return False
        self._send_fault(call_id, status, context_id)
        del self._calls[call_id]
        return True

    def connection_lost(
        self, reason: str = "the transport connection is gone"
    ) -> list[ConnectionEvent]:
        """Close this connection because the transport is lost or about to be closed.

        All its calls end. If it was the last connection of its association, the association ends
        too. Returns the events; without effect on a closed connection.
        """
        if self._state is not ServerState.CLOSED:
            self._close(ServerEvent.GONE, reason)
        return self._take_events()

    def __repr__(self) -> str:
        return (
            f"<ServerConnection from {self._peer} {self._state.name} "
            f"calls={sorted(self._calls)} {self._association!r}>"
        )

    # --- PDUs -------------------------------------------------------------------------------------

    def _watch(self, now: float) -> None:
        """Set the deadline if a request is incomplete, and clear it otherwise.

        A negotiation keeps its own deadline. A request has a deadline from its first byte.
        """
        if self._state in (ServerState.ESTABLISHED, ServerState.NEGOTIATING_SECURITY):
            return
        if (
            self._security is not None
            and self._security.failed
            and self._state is not ServerState.CLOSED
        ):
            # The deadline of the failed negotiation stays: the first request gets the fault, and
            # that request must be received in time.
            return
        if self._state is ServerState.CLOSED or not (
            self._assembly is not None or len(self._stream)
        ):
            self._deadline = None
        elif self._deadline is None:
            self._deadline = now + REQUEST_TIMEOUT_S

    def _is_closed(self) -> bool:
        return self._state is ServerState.CLOSED

    def _take_events(self) -> list[ConnectionEvent]:
        events, self._events = self._events, []
        return events

    def _move(self, event: ServerEvent) -> None:
        self._state = next_state(TRANSITIONS, self._state, event, "a connection")

    def _receive_pdu(self, raw: bytes) -> None:
        try:
            pdu = parse_pdu(raw)
        except RemoteProtocolError as error:
            self._close(ServerEvent.PROTOCOL_ERROR, str(error))
            return
        try:
            self._take(pdu)
        except SecurityError as error:
            self._fail_and_close(pdu, Status.ERROR_ACCESS_DENIED, str(error))
        except LimitExceededError as error:
            # A request above 4 megabytes is answered with fault 5 ([MS-RPCE] 3.3.3.5.4).
            self._fail_and_close(pdu, Status.ERROR_ACCESS_DENIED, str(error))
        except RemoteProtocolError as error:
            self._fail_and_close(pdu, Status.NCA_S_PROTO_ERROR, str(error))

    def _take(self, pdu: Pdu) -> None:
        if pdu.type not in MAY_COME[self._state]:
            raise RemoteProtocolError(
                f"a PDU of type {pdu.type} while {self._state.name}", section="[MS-RPCE] 3.3.3"
            )
        if pdu.type == PduType.BIND:
            self._bind(pdu)
        elif pdu.type == PduType.ALTER_CONTEXT:
            self._alter_context(pdu)
        elif pdu.type == PduType.AUTH3:
            self._auth3(pdu)
        elif pdu.type == PduType.REQUEST:
            self._request(pdu)
        elif pdu.type == PduType.CO_CANCEL:
            self._cancel(pdu)
        else:
            self._orphaned(pdu)

    def _fail_and_close(self, pdu: Pdu, status: int, reason: str) -> None:
        self._send_fault(pdu.call_id, status, 0, DID_NOT_EXECUTE)
        self._close(ServerEvent.PROTOCOL_ERROR, reason)

    def _close(self, event: ServerEvent, reason: str) -> None:
        self._move(event)
        self._events.append(ConnectionClosed(reason, tuple(self._calls)))
        self._calls.clear()
        self._assembly = None
        self._deadline = None
        association, self._association = self._association, None
        if association is not None:
            values = self._associations.leave(association)
            if values or (
                association.handles_elsewhere is not None and association.connections <= 0
            ):
                self._events.append(Rundown(association, values))

    def _send_fault(self, call_id: int, status: int, context_id: int, flags: int = 0) -> None:
        self._out.append(
            encode_pdu(PduType.FAULT, WHOLE | flags, call_id, RpcFault(status, context_id).encode())
        )

    # --- negotiation ------------------------------------------------------------------------------

    def _bind(self, pdu: Pdu) -> None:
        bind = parse_bind(pdu.body)
        try:
            token = self._begin_security(pdu) if pdu.auth is not None else b""
            self._check_level()
            try:
                self._association = self._associations.join(bind.group_id, self._peer)
            except LimitExceededError as error:
                raise _RefusedError(NakReason.LOCAL_LIMIT_EXCEEDED, str(error)) from None
            except RemoteProtocolError as error:
                raise _RefusedError(NakReason.REASON_NOT_SPECIFIED, str(error)) from None
        except _RefusedError as refused:
            self._out.append(
                encode_pdu(PduType.BIND_NAK, WHOLE, pdu.call_id, BindNak(refused.reason).encode())
            )
            self._close(ServerEvent.BIND_REFUSED, str(refused))
            return
        self._multiplexing = bool(pdu.flags & CONCURRENT_MULTIPLEXING)
        self._fragment = max(min(bind.max_receive, self._settings.fragment), FRAGMENT_MIN)
        self._send_results(PduType.BIND_ACK, pdu, bind, token)
        done = self._security is None or self._security.context.complete
        self._move(ServerEvent.BIND if done else ServerEvent.BIND_CONTINUES)
        self._deadline = None if done else self._deadline

    def _check_level(self) -> None:
        """Raise :class:`_RefusedError` if a bind has less than the minimum authentication level."""
        level = AuthLevel.NONE if self._security is None else self._security.level
        if level < self._settings.min_auth_level:
            least = AuthLevel(self._settings.min_auth_level).name
            raise _RefusedError(
                NakReason.AUTHENTICATION_TYPE_NOT_RECOGNIZED,
                f"a bind at level {level}, but at least {least} is required",
            )

    def _alter_context(self, pdu: Pdu) -> None:
        bind = parse_bind(pdu.body)
        token = b""
        if pdu.auth is not None:
            token = (
                self._continue_security(pdu.auth)
                if self._security is not None
                else self._begin_security_late(pdu)
            )
        elif self._state is ServerState.NEGOTIATING_SECURITY:
            raise SecurityError(
                "an alter_context without the token of the negotiation that it interrupts"
            )
        if len(self._contexts) + len(bind.contexts) > CONTEXTS_MAX:
            raise LimitExceededError(
                "CONTEXTS_MAX",
                CONTEXTS_MAX,
                len(self._contexts) + len(bind.contexts),
                section="[MS-RPCE] 3.3.3.5.5",
            )
        self._send_results(PduType.ALTER_CONTEXT_RESP, pdu, bind, token)
        done = self._security is None or self._security.context.complete
        self._move(ServerEvent.ALTER_CONTEXT if done else ServerEvent.ALTER_CONTEXT_CONTINUES)
        self._deadline = None if done else self._deadline

    def _send_results(self, kind: PduType, pdu: Pdu, bind: Bind, token: bytes) -> None:
        results, accepted, _ = answer(
            bind.contexts,
            self._settings.interfaces,
            features=KEEP_CONNECTION_ON_ORPHAN,
            syntaxes=self._settings.syntaxes,
        )
        self._contexts.update(accepted)
        group = self._association.id if self._association is not None else 0
        ack = BindAck(
            self._fragment, self._settings.fragment, group, str(self._settings.port), results
        )
        flags = WHOLE | (pdu.flags & CONCURRENT_MULTIPLEXING)
        trailer: AuthTrailer | None = None
        if self._security is not None:
            flags |= SUPPORT_HEADER_SIGN if self._security.sign_header else 0
            trailer = self._security.trailer(token)
        self._out.append(encode_pdu(kind, flags, pdu.call_id, ack.encode(), trailer))

    def _begin_security(self, pdu: Pdu) -> bytes:
        """Process the first leg of the security negotiation and return the token of the answer.

        Raises :class:`_RefusedError` if the level or type is not served or the token is invalid.
        """
        auth = pdu.auth
        if auth is None or auth.level not in LEVELS:
            level = None if auth is None else auth.level
            raise _RefusedError(
                NakReason.AUTHENTICATION_TYPE_NOT_RECOGNIZED,
                f"authentication level {level} is not served",
            )
        accept = self._settings.accept_security
        context = None if accept is None else accept(auth.type, auth.level, self._peer)
        if context is None:
            raise _RefusedError(
                NakReason.AUTHENTICATION_TYPE_NOT_RECOGNIZED,
                f"authentication type {auth.type}: {NO_SECURITY}",
            )
        signs = context.supports_header_signing and bool(pdu.flags & SUPPORT_HEADER_SIGN)
        security = ConnectionSecurity(
            context=context, level=auth.level, context_id=auth.context_id, sign_header=signs
        )
        try:
            token = self._step(security, auth.token)
        except SecurityError as error:
            raise _RefusedError(NakReason.INVALID_CHECKSUM, str(error)) from None
        self._security = security
        return token

    def _begin_security_late(self, pdu: Pdu) -> bytes:
        """Process the first leg in an alter_context, after a bind without security.

        Returns the token of the answer. Raises :class:`SecurityError` if the leg is refused.
        """
        try:
            return self._begin_security(pdu)
        except _RefusedError as refused:
            raise SecurityError(str(refused)) from None

    def _continue_security(self, auth: AuthTrailer) -> bytes:
        """Process another leg of the security negotiation and return the token of the answer.

        Raises :class:`SecurityError` if the leg is invalid, or if it begins a second security
        context.
        """
        security = self._security
        if security is None or security.context.complete:
            raise SecurityError("a second security context on one connection was never agreed on")
        if (auth.type, auth.level, auth.context_id) != (
            security.context.auth_type,
            security.level,
            security.context_id,
        ):
            raise SecurityError("a leg of another negotiation")
        return self._step(security, auth.token)

    def _step(self, security: ConnectionSecurity, token: bytes) -> bytes:
        self._legs += 1
        if self._legs > SECURITY_LEGS_MAX:
            raise SecurityError(f"more than {SECURITY_LEGS_MAX} legs (SECURITY_LEGS_MAX)")
        return security.context.step(token)

    def _auth3(self, pdu: Pdu) -> None:
        """Process the last leg, which is not answered.

        If the leg is invalid, the first request gets a fault. Raises :class:`SecurityError` if
        there is no token or no negotiation.
        """
        security = self._security
        if pdu.auth is None or security is None:
            raise SecurityError("an auth3 without a token, or without a negotiation")
        try:
            self._continue_security(pdu.auth)
            security.failed = not security.context.complete
        except SecurityError:
            security.failed = True
        self._move(ServerEvent.AUTH3)
        self._deadline = self._deadline if security.failed else None

    # --- calls ------------------------------------------------------------------------------------

    def _request(self, pdu: Pdu) -> None:
        if self._security is not None and self._security.failed:
            raise SecurityError("the last leg of the negotiation was invalid")
        request = parse_request(pdu)
        if pdu.is_first:
            self._first_fragment(pdu)
        elif self._assembly is None:
            self._check_old(pdu.call_id)
            return
        elif pdu.call_id != self._assembly.call_id:
            raise RemoteProtocolError(
                "a fragment of another call than the one that is being received",
                section="[MS-RPCE] 3.3.3.5.2",
            )
        request = request._replace(
            stub=open_piece(pdu, request.stub, request.stub_at, self._security)
        )
        if pdu.is_first:
            self._assembly = Assembly(
                pdu.call_id, request, limit=self._settings.stub_max, limit_name="STUB_MAX"
            )
        assembly = self._assembly
        assert assembly is not None
        assembly.add(request)
        if not pdu.is_last:
            self._move(ServerEvent.FIRST_FRAGMENT if pdu.is_first else ServerEvent.MIDDLE_FRAGMENT)
            return
        self._move(ServerEvent.WHOLE_REQUEST if pdu.is_first else ServerEvent.LAST_FRAGMENT)
        self._assembly = None
        self._dispatch(assembly)

    def _first_fragment(self, pdu: Pdu) -> None:
        if self._state is ServerState.RECV_PDU:
            raise RemoteProtocolError(
                "a new request inside of another one", section="[MS-RPCE] 3.3.1.5.8"
            )
        if pdu.call_id <= self._last_call_id:
            raise RemoteProtocolError(
                f"call_id {pdu.call_id} after {self._last_call_id}; call_id must increase",
                section="[MS-RPCE] 3.3.3.5.2",
            )
        if self._calls and not self._multiplexing:
            raise RemoteProtocolError(
                "a request before the last one's answer, without multiplexing",
                section="[MS-RPCE] 3.3.1.5.8",
            )
        self._last_call_id = pdu.call_id
        self._late_pdus = 0

    def _check_old(self, call_id: int) -> None:
        """Check that a late fragment belongs to a recent call, so that it may be discarded.

        Raises :class:`RemoteProtocolError` if the call never began; this closes the connection.
        """
        if not 0 <= self._last_call_id - call_id < OLD_CALL_WINDOW:
            raise RemoteProtocolError(
                f"a PDU of call {call_id}, which never began; the last one was "
                f"{self._last_call_id}",
                section="[MS-RPCE] 3.3.3.5.6",
            )

    def _dispatch(self, assembly: Assembly) -> None:
        """Turn a whole request into a :class:`CallReceived` event, or answer it with a fault.

        After a fault the connection stays open.
        """
        call_id, request = assembly.call_id, assembly.first
        assert isinstance(request, RequestFragment)
        found = self._contexts.get(request.context_id)
        if found is None:
            self._send_fault(
                call_id, Status.NCA_S_INVALID_PRES_CONTEXT_ID, request.context_id, DID_NOT_EXECUTE
            )
            return
        interface, syntax = found
        status = self._refusal(request, interface)
        stub = assembly.stub()
        if status is None:
            stub, status = self._verified(stub, call_id, request, interface, syntax)
        if status is not None or self._association is None:
            self._send_fault(
                call_id, status or Status.NCA_S_PROTO_ERROR, request.context_id, DID_NOT_EXECUTE
            )
            return
        self._calls[call_id] = request.context_id
        security = self._security
        self._events.append(
            CallReceived(
                call_id,
                interface,
                syntax,
                request.opnum,
                stub,
                self._association,
                None if security is None else security.context.identity,
                AuthLevel.NONE if security is None else security.level,
            )
        )

    def _refusal(self, request: RequestFragment, interface: SyntaxId) -> int | None:
        """Return the status of the fault with which a call is refused; ``None`` if it is accepted.

        A call is refused below the least authentication level, for an unknown method, or while
        CALLS_MAX calls wait.
        """
        level = AuthLevel.NONE if self._security is None else self._security.level
        if level < self._settings.min_auth_level:
            return Status.ERROR_ACCESS_DENIED
        if request.opnum not in self._settings.interfaces[interface]:
            return Status.NCA_S_OP_RNG_ERROR
        return Status.NCA_S_SERVER_TOO_BUSY if len(self._calls) >= CALLS_MAX else None

    def _verified(
        self,
        stub: bytes,
        call_id: int,
        request: RequestFragment,
        interface: SyntaxId,
        syntax: TransferSyntax,
    ) -> tuple[bytes, int | None]:
        """Return the stub without its verification trailer, and the status of a fault or ``None``.

        The status is set if the trailer contradicts the request as received.
        """
        try:
            stub, trailer = split_trailer(stub)
        except RemoteProtocolError:
            return stub, Status.ERROR_ACCESS_DENIED
        signs = self._security is not None and self._security.sign_header
        if trailer is not None and trailer.denies(
            header_signing=signs,
            call_id=call_id,
            context_id=request.context_id,
            opnum=request.opnum,
            interface=interface,
            transfer_syntax=syntax_id(syntax),
        ):
            return stub, Status.ERROR_ACCESS_DENIED
        return stub, None

    def _cancel(self, pdu: Pdu) -> None:
        self._move(ServerEvent.CANCEL)
        if pdu.call_id in self._calls:
            self._events.append(CallCancelled(pdu.call_id))
        else:
            self._came_late(pdu)

    def _orphaned(self, pdu: Pdu) -> None:
        if self._assembly is not None and self._assembly.call_id == pdu.call_id:
            self._move(ServerEvent.ORPHANED_HALFWAY)
            self._assembly = None
            return
        self._move(ServerEvent.ORPHANED)
        if self._calls.pop(pdu.call_id, None) is not None:
            self._events.append(CallOrphaned(pdu.call_id))
        else:
            self._came_late(pdu)

    def _came_late(self, pdu: Pdu) -> None:
        """Count a PDU for a call that is over because its answer and the PDU crossed.

        Raises :class:`RemoteProtocolError` if no such call existed, or after ``LATE_PDUS_MAX`` such
        PDUs.
        """
        self._check_old(pdu.call_id)
        self._late_pdus += 1
        if self._late_pdus > LATE_PDUS_MAX:
            raise RemoteProtocolError(
                f"more than {LATE_PDUS_MAX} cancels of calls that are over (LATE_PDUS_MAX)",
                section="[MS-RPCE] 3.3.3.5.6",
            )
