"""One connection at its client: calls in, bytes out; bytes and ``now`` in, answers out.

The document is [MS-RPCE] 3.3.2. Theory of operation: :mod:`.client_states`. The owner connects the
transport, calls :meth:`ClientConnection.bind`, sends the bytes of
:meth:`ClientConnection.data_to_send`, and passes received bytes to
:meth:`ClientConnection.receive`. Each bind and each call has a deadline
(:meth:`ClientConnection.timer`). A deadline that passes closes the connection, because a later
answer would belong to a call that is no longer known. Only the server knows whether it carried out
such a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from srmp_spark.errors import LocalProtocolError, RemoteProtocolError, with_hint
from srmp_spark.mqrr.ndr.transfer_syntax import NDR, NDR64, TransferSyntax
from srmp_spark.mqrr.next_steps import bind_next_step
from srmp_spark.mqrr.rpc.binding import (
    REMOTE_READ,
    Bind,
    BindAck,
    NakReason,
    ResultCode,
    SyntaxId,
    parse_bind_ack,
    parse_bind_nak,
)
from srmp_spark.mqrr.rpc.calls import (
    CALL_HEADER_SIZE,
    Assembly,
    encode_auth3,
    encode_cancel,
    encode_orphaned,
    parse_fault,
    parse_response,
    request_pieces,
)
from srmp_spark.mqrr.rpc.client_states import MAY_COME, TRANSITIONS, ClientEvent, ClientState
from srmp_spark.mqrr.rpc.limits import (
    CALL_ID_MAX,
    CALL_TIMEOUT_S,
    CALLS_MAX,
    FRAGMENT_MAX,
    FRAGMENT_MIN,
    RESPONSE_MAX,
    SECURITY_LEGS_MAX,
)
from srmp_spark.mqrr.rpc.negotiation import (
    KEEP_CONNECTION_ON_ORPHAN,
    offers,
    syntax_id,
    transfer_syntax_of,
)
from srmp_spark.mqrr.rpc.pdu import (
    CONCURRENT_MULTIPLEXING,
    DID_NOT_EXECUTE,
    SUPPORT_HEADER_SIGN,
    WHOLE,
    AuthLevel,
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
from srmp_spark.mqrr.rpc.verification_trailer import VerificationTrailer, append_trailer
from srmp_spark.mqrr.status import NEVER_EXECUTED, status_text
from srmp_spark.transitions import next_state

_AUTH_CONTEXT_ID = 1
"""Number of the security context. Any number works, because a connection has one context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """The offers and time-outs of one client connection."""

    interface: SyntaxId = REMOTE_READ
    syntaxes: Sequence[TransferSyntax] = (NDR, NDR64)
    """Transfer syntaxes in the order of the offer, each in a context of its own, as in Windows."""
    offer_features: bool = True
    multiplexing: bool = True
    fragment: int = FRAGMENT_MAX
    auth_level: int = AuthLevel.NONE
    security: SecurityContext | None = None
    call_timeout_s: float = CALL_TIMEOUT_S


class Bound(NamedTuple):
    """Reports that the negotiation is complete, so that calls may be made."""

    syntax: TransferSyntax
    group_id: int
    """Association group for further connections that use the context handles of this one."""


class CallAnswered(NamedTuple):
    """Reports that a whole response to one call was received; ``stub`` holds its parameters."""

    call_id: int
    stub: bytes


class Faulted(NamedTuple):
    """Reports that the server answered one call with a fault.

    The call failed before its method ran, or its method returns nothing and failed.
    """

    call_id: int
    status: int
    not_executed: bool = False
    """Whether the server states that it executed no part of the call.

    If not set, the call may have been executed (C706 12.6.3.1).
    """


class ShutdownAsked(NamedTuple):
    """Reports that the server wants the connection closed.

    Make no more calls on this connection, and close it when no call waits.
    """


class ClientConnectionClosed(NamedTuple):
    """Reports that the connection can no longer be used.

    Send the data that is left to send, then close the transport.
    """

    reason: str
    calls: tuple[int, ...]
    """Calls that get no answer. Whether the server executed them is not known."""


ClientResult = Bound | CallAnswered | Faulted | ShutdownAsked | ClientConnectionClosed


class _Pending:
    """One call that waits for its answer."""

    __slots__ = ("assembly", "deadline")

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.assembly: Assembly | None = None


class ClientConnection:
    """The client's side of one transport connection, without I/O.

    Methods that return results return a list of :class:`Bound`, :class:`CallAnswered`,
    :class:`Faulted`, :class:`ShutdownAsked` and :class:`ClientConnectionClosed`. ``now`` and all
    deadlines are in seconds on the monotonic clock.
    """

    def __init__(self, settings: ClientSettings) -> None:
        if (settings.security is None) != (settings.auth_level == AuthLevel.NONE):
            raise LocalProtocolError(
                "an authentication level needs a security provider, and a provider a level"
            )
        if settings.security is not None and settings.auth_level not in LEVELS:
            raise LocalProtocolError(
                f"authentication level {settings.auth_level} is not supported; use connect, "
                "integrity or privacy"
            )
        self._settings = settings
        self._state = ClientState.ESTABLISHED
        self._stream = PduStream()
        self._out: list[bytes] = []
        self._results: list[ClientResult] = []
        self._calls: dict[int, _Pending] = {}
        self._call_id = 0
        self._deadline: float | None = None
        self._context_id = -1
        self._syntax: TransferSyntax | None = None
        self._group_id = 0
        self._fragment = FRAGMENT_MIN
        self._multiplexing = False
        self._legs = 0
        self._shutdown_asked = False
        self._security = (
            None
            if settings.security is None
            else ConnectionSecurity(
                context=settings.security, level=settings.auth_level, context_id=_AUTH_CONTEXT_ID
            )
        )

    # --- methods for the owner --------------------------------------------------------------------

    @property
    def state(self) -> ClientState:
        """Return the state of this connection, for logs and tests."""
        return self._state

    def bind(self, now: float, *, group_id: int = 0) -> None:
        """Begin the negotiation: queue the bind for :meth:`data_to_send`.

        With ``group_id``, which :class:`Bound` of another connection has, this connection joins the
        association of that one. :meth:`receive` returns the result of the negotiation. Raises
        :class:`LocalProtocolError` if the negotiation was begun before. Raises
        :class:`SecurityError` if the security provider cannot begin, for instance without
        credentials.
        """
        self._move(ClientEvent.SEND_BIND)
        self._group_id = group_id
        self._deadline = now + self._settings.call_timeout_s
        token = b"" if self._security is None else self._security.context.step(b"")
        if self._security is not None and not token:
            raise SecurityError("the security provider has no first token")
        self._send_contexts(PduType.BIND, token)

    @property
    def calls_at_once(self) -> int:
        """Return the number of calls that may wait for an answer at the same time.

        The result is 1 unless the server agreed to several calls.
        """
        return CALLS_MAX if self._multiplexing else 1

    @property
    def calls_left(self) -> int:
        """Return the number of calls that this connection can still make, of ``CALL_ID_MAX``.

        Replace the connection before the result is 0.
        """
        return CALL_ID_MAX - self._call_id

    def call(self, opnum: int, stub: bytes, now: float, *, timeout_s: float | None = None) -> int:
        """Queue a call of the method ``opnum`` for :meth:`data_to_send`, and return its call_id.

        The answer is returned by :meth:`receive`. ``timeout_s`` replaces the usual time-out in
        seconds, for a call that may wait on purpose. Raises :class:`LocalProtocolError` before
        :class:`Bound`, after :class:`ClientConnectionClosed`, if a call waits and the server did
        not agree to several, and if there are no :attr:`calls_left`.
        """
        if self.calls_left <= 0:
            raise LocalProtocolError(
                f"this connection made CALL_ID_MAX calls ({CALL_ID_MAX}); make another "
                "one of its group"
            )
        self._move(ClientEvent.CALL)
        if len(self._calls) >= self.calls_at_once:
            raise LocalProtocolError(
                "a call waits on this connection already; make another connection of its group"
            )
        self._call_id += 1
        call_id, security = self._call_id, self._security
        if (
            security is not None
            and security.protects
            and not security.sign_header
            and self._syntax is not None
        ):
            trailer = VerificationTrailer(
                call_id=call_id,
                context_id=self._context_id,
                opnum=opnum,
                interface=self._settings.interface,
                transfer_syntax=syntax_id(self._syntax),
            )
            stub = append_trailer(stub, trailer)
        token_size = 0 if security is None else security.token_size
        for piece in request_pieces(
            self._context_id, opnum, stub, fragment=self._fragment, token_size=token_size
        ):
            self._out.append(encode_piece(PduType.REQUEST, call_id, piece, 0, security))
        wait = self._settings.call_timeout_s if timeout_s is None else timeout_s
        self._calls[call_id] = _Pending(now + wait)
        return call_id

    def cancel(self, call_id: int) -> None:
        """Ask the server to answer a call now; the answer is still received.

        Do nothing if the call has its answer already.
        """
        if call_id in self._calls:
            self._out.append(encode_cancel(call_id))

    def orphan(self, call_id: int) -> None:
        """Abandon a call and close the connection; do nothing if the call has its answer already.

        No answer is received. The next method that returns results returns
        :class:`ClientConnectionClosed`. The connection is closed because the server may not support
        orphaned calls.
        """
        if call_id in self._calls:
            self._out.append(encode_orphaned(call_id))
            self._close(ClientEvent.GONE, f"call {call_id} was abandoned")

    def receive(self, data: bytes, pdus_max: int | None = None) -> list[ClientResult]:
        """Process received bytes and return the results.

        Never raises for bytes that a server sends: a protocol error closes the connection. At most
        ``pdus_max`` PDUs are processed (``None``: no limit). The rest waits for the next call,
        which may be a call without data (:attr:`is_behind`).
        """
        if not self._is_closed():
            try:
                for count, raw in enumerate(self._stream.receive(data), 1):
                    self._receive_pdu(parse_pdu(raw))
                    if self._is_closed() or count == pdus_max:
                        break
            except RemoteProtocolError as error:
                if not self._is_closed():
                    self._close(ClientEvent.PROTOCOL_ERROR, str(error))
        return self._take_results()

    @property
    def is_behind(self) -> bool:
        """Return whether a PDU that was received waits for the next :meth:`receive`."""
        return not self._is_closed() and self._stream.is_behind

    @property
    def unfinished_bytes(self) -> int:
        """Return the number of bytes of answers whose last fragment was not yet received."""
        return sum(each.assembly.size for each in self._calls.values() if each.assembly is not None)

    def data_to_send(self) -> bytes:
        """Return the bytes to be sent and remove them from this connection."""
        data = b"".join(self._out)
        self._out.clear()
        return data

    def timer(self) -> float | None:
        """Return the time at which to call :meth:`handle_timer`; ``None`` without any deadline."""
        deadlines = [pending.deadline for pending in self._calls.values()]
        if self._deadline is not None:
            deadlines.append(self._deadline)
        return min(deadlines, default=None)

    def handle_timer(self, now: float) -> list[ClientResult]:
        """Close the connection if a deadline has passed, and return the results."""
        due = self.timer()
        if due is not None and due <= now and self._state is not ClientState.CLOSED:
            self._close(ClientEvent.TIMED_OUT, "the server did not answer in time")
        return self._take_results()

    def connection_lost(
        self, reason: str = "the transport connection is gone"
    ) -> list[ClientResult]:
        """Close this connection because the transport is lost or about to be closed.

        Returns the results, among them :class:`ClientConnectionClosed` unless it was returned
        before.
        """
        if self._state is not ClientState.CLOSED:
            self._close(ClientEvent.GONE, reason)
        return self._take_results()

    def __repr__(self) -> str:
        return (
            f"<ClientConnection {self._state.name} group={self._group_id} "
            f"calls={sorted(self._calls)}>"
        )

    # --- PDUs -------------------------------------------------------------------------------------

    def _is_closed(self) -> bool:
        return self._state is ClientState.CLOSED

    def _take_results(self) -> list[ClientResult]:
        results, self._results = self._results, []
        return results

    def _move(self, event: ClientEvent) -> None:
        self._state = next_state(TRANSITIONS, self._state, event, "a connection")

    def _close(self, event: ClientEvent, reason: str) -> None:
        self._move(event)
        self._results.append(ClientConnectionClosed(reason, tuple(self._calls)))
        self._calls.clear()
        self._deadline = None

    def _receive_pdu(self, pdu: Pdu) -> None:
        if pdu.type not in MAY_COME[self._state]:
            raise RemoteProtocolError(
                f"a PDU of type {pdu.type} while {self._state.name}", section="[MS-RPCE] 3.3.2"
            )
        if pdu.type in (PduType.BIND_ACK, PduType.ALTER_CONTEXT_RESP):
            self._negotiated(pdu)
        elif pdu.type == PduType.BIND_NAK:
            reason = parse_bind_nak(pdu.body).reason
            name = (
                NakReason(reason).name if reason in NakReason.__members__.values() else str(reason)
            )
            self._close(
                ClientEvent.REFUSED,
                with_hint(f"the server refuses the bind: {name}", bind_next_step(name)),
            )
        elif pdu.type == PduType.FAULT:
            self._fault(pdu)
        elif pdu.type == PduType.SHUTDOWN:
            if self._shutdown_asked:
                raise RemoteProtocolError(
                    "a second shutdown on one connection", section="C706 12.6.4.11"
                )
            self._shutdown_asked = True
            self._move(ClientEvent.SHUTDOWN)
            self._results.append(ShutdownAsked())
        else:
            self._response(pdu)

    # --- negotiation ------------------------------------------------------------------------------

    def _send_contexts(self, kind: PduType, token: bytes) -> None:
        settings, security = self._settings, self._security
        features = KEEP_CONNECTION_ON_ORPHAN if settings.offer_features else None
        bind = Bind(
            settings.fragment,
            settings.fragment,
            self._group_id,
            offers(settings.interface, settings.syntaxes, features),
        )
        flags = WHOLE | (CONCURRENT_MULTIPLEXING if settings.multiplexing else 0)
        trailer = None
        if security is not None:
            trailer = security.trailer(token)
            if security.protects and security.context.supports_header_signing:
                flags |= SUPPORT_HEADER_SIGN
        self._call_id += 1
        self._out.append(encode_pdu(kind, flags, self._call_id, bind.encode(), trailer))

    def _negotiated(self, pdu: Pdu) -> None:
        ack = parse_bind_ack(pdu.body)
        security = self._security
        if pdu.type == PduType.BIND_ACK:
            self._group_id = ack.group_id
            self._fragment = max(min(ack.max_receive, self._settings.fragment), FRAGMENT_MIN)
            self._multiplexing = self._settings.multiplexing and bool(
                pdu.flags & CONCURRENT_MULTIPLEXING
            )
            if security is not None:
                offered = security.protects and security.context.supports_header_signing
                security.sign_header = offered and bool(pdu.flags & SUPPORT_HEADER_SIGN)
            if not self._choose(ack):
                self._close(
                    ClientEvent.REFUSED,
                    "the server accepts neither the interface nor a transfer syntax that was "
                    "offered",
                )
                return
        if security is not None and not self._secured(security, pdu):
            return
        syntax = self._syntax
        assert syntax is not None
        self._move(ClientEvent.ACCEPTED)
        self._deadline = None
        self._results.append(Bound(syntax, self._group_id))

    def _choose(self, ack: BindAck) -> bool:
        """Store the accepted context and return whether there is one.

        Raises :class:`RemoteProtocolError` if there are more results than contexts, or if a syntax
        is accepted that was not offered in its context.
        """
        for context_id, result in enumerate(ack.results):
            if result.result != ResultCode.ACCEPTANCE:
                continue
            syntax = transfer_syntax_of(result.transfer_syntax)
            if (
                context_id >= len(self._settings.syntaxes)
                or syntax is not self._settings.syntaxes[context_id]
            ):
                raise RemoteProtocolError(
                    "the server accepts a transfer syntax that was not offered",
                    section="C706 12.6.4.4",
                )
            self._context_id, self._syntax = context_id, syntax
            return True
        return False

    def _secured(self, security: ConnectionSecurity, pdu: Pdu) -> bool:
        """Continue the security negotiation and return whether it is complete.

        May queue an auth3 or another alter_context. Raises :class:`SecurityError` if the
        negotiation fails.
        """
        context = security.context
        if context.complete:
            return True
        if pdu.auth is None:
            raise SecurityError("the server ends the negotiation before the security provider does")
        self._legs += 1
        if self._legs > SECURITY_LEGS_MAX:
            raise SecurityError(f"more than {SECURITY_LEGS_MAX} legs (SECURITY_LEGS_MAX)")
        trailer = security.trailer(context.step(pdu.auth.token))
        content = security.is_complete()
        if trailer is None:
            if not content:
                raise SecurityError(
                    "the security provider sends no further token but is not complete"
                )
            return True
        if content and context.odd_legs:
            self._call_id += 1
            self._out.append(encode_auth3(self._call_id, trailer))
            return True
        self._move(ClientEvent.CONTINUES)
        self._send_contexts(PduType.ALTER_CONTEXT, trailer.token)
        return False

    # --- calls ------------------------------------------------------------------------------------

    def _response(self, pdu: Pdu) -> None:
        pending = self._calls.get(pdu.call_id)
        if pending is None:
            raise RemoteProtocolError(
                f"a response to call {pdu.call_id}, which was not made",
                section="[MS-RPCE] 3.3.2.5.2",
            )
        self._move(ClientEvent.ANSWER)
        response = parse_response(pdu)
        if response.context_id != self._context_id or pdu.is_first != (pending.assembly is None):
            raise RemoteProtocolError(
                "a response of another context, or out of order", section="C706 12.6.4.10"
            )
        response = response._replace(
            stub=open_piece(pdu, response.stub, CALL_HEADER_SIZE, self._security)
        )
        if pending.assembly is None:
            pending.assembly = Assembly(
                pdu.call_id, response, limit=RESPONSE_MAX, limit_name="RESPONSE_MAX"
            )
        pending.assembly.add(response)
        if pdu.is_last:
            del self._calls[pdu.call_id]
            self._results.append(CallAnswered(pdu.call_id, pending.assembly.stub()))

    def _fault(self, pdu: Pdu) -> None:
        status = parse_fault(pdu).status
        if self._state is not ClientState.CONTEXT_NEGOTIATED:
            self._close(
                ClientEvent.REFUSED, f"the server refuses the negotiation: {status_text(status)}"
            )
            return
        if self._calls.pop(pdu.call_id, None) is None:
            raise RemoteProtocolError(
                f"a fault of call {pdu.call_id}, which was not made", section="[MS-RPCE] 3.3.2.5.1"
            )
        self._move(ClientEvent.ANSWER)
        self._results.append(
            Faulted(
                pdu.call_id, status, bool(pdu.flags & DID_NOT_EXECUTE) or status in NEVER_EXECUTED
            )
        )
