"""The methods of RemoteRead by opnum: their requests and responses as values.

See [MS-MQRR] 3.1.4 and 6. The two open methods are ``void`` methods: they return only a handle, and
every failure is a fault with the HRESULT as its status. All other methods return an HRESULT at the
end, and must return every [out] parameter also when they fail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import NamedTuple, Protocol

from srmp_spark.errors import LocalProtocolError
from srmp_spark.mqrr.errors import BadStubError
from srmp_spark.mqrr.guids import GUID_SIZE, guid_bytes, guid_text
from srmp_spark.mqrr.ndr.queue_format_stub import read_queue_format, write_queue_format
from srmp_spark.mqrr.ndr.receive import (
    decode_start_receive_request,
    decode_start_receive_response,
    decode_start_transactional_receive_request,
)
from srmp_spark.mqrr.ndr.stub import (
    U8_MAX,
    U16_MAX,
    U32_MAX,
    U64_MAX,
    ContextHandle,
    need,
    read_handle,
    unpack,
    write_handle,
)
from srmp_spark.mqrr.ndr.transfer_syntax import NDR64, TransferSyntax, aligned
from srmp_spark.mqrr.packets.wire import fits
from srmp_spark.mqrr.queue_format import QueueFormat
from srmp_spark.names import NULL_GUID

PROPAGATION_TOKEN_MAX = 131_072
"""Longest propagation token in bytes, ``range(0, 131072)`` of [MS-MQRR] 3.1.4.12.

A longer token is refused.
"""
RR_NACK, RR_ACK = 1, 2
"""The two values of dwAck of R_EndReceive, ``range(1, 2)``.

A NACK unlocks the message, and an ACK removes it.
"""
ACCESS_RECEIVE, ACCESS_MOVE, ACCESS_PEEK = 0x01, 0x04, 0x20
SHARE_DENY_NONE, SHARE_DENY_SHARE = 0, 1
CLIENT_MAJOR, CLIENT_MINOR = 6, 1
"""Version of the operating system that the client of this package reports as Major and Minor
([MS-MQRR] 3.1.4.2): the first version with the remote read of today.
"""

_U32 = Struct("<I")
_U32_PAIR = Struct("<II")
_AFTER_QUEUE = Struct("<II16siBBHi")
_HANDLE = Struct("<20s")
_HANDLE_U32 = Struct("<20sI")
_HANDLE_U32_U32 = Struct("<20sII")
_MOVE = Struct("<20s4xQQ16s")
_SET_CLASS = Struct("<20s4xQH")
_MOVE_CONTEXT = Struct("<Q20s")
_I32_MAX, _I32_MIN = 2**31 - 1, -(2**31)


class Parameters(Protocol):
    """The parameters of a request or of a response."""

    def encode(self, syntax: TransferSyntax, /) -> bytes:
        """Return the stub of these parameters.

        Raises :class:`LocalProtocolError` if a value does not fit into its field.
        """
        ...


class NoParameters(NamedTuple):
    """The request of R_GetServerPort, which has no parameters."""

    def encode(self, _syntax: TransferSyntax) -> bytes:
        """Return the empty stub of the request."""
        return b""


class OpenRequest(NamedTuple):
    """The request of R_OpenQueue and of R_OpenQueueForMove."""

    queue: QueueFormat
    access: int
    share: int = SHARE_DENY_NONE
    client_id: str = NULL_GUID
    non_routing_server: int = 1
    major: int = CLIENT_MAJOR
    minor: int = CLIENT_MINOR
    build_number: int = 0
    workgroup: int = 0
    """1 if the client's machine is outside of a domain, else 0."""

    def encode(self, syntax: TransferSyntax) -> bytes:
        """Return the stub of the request.

        Raises :class:`LocalProtocolError` if a value does not fit into its field.
        """
        stub = write_queue_format(self.queue, syntax)
        for number, what in (
            (self.non_routing_server, "fNonRoutingServer"),
            (self.workgroup, "fWorkgroup"),
        ):
            if not _I32_MIN <= number <= _I32_MAX:
                raise LocalProtocolError(f"{what} has 32 bits with a sign, not {number}")
        return (
            stub
            + bytes(-len(stub) & 3)
            + _AFTER_QUEUE.pack(
                fits(self.access, U32_MAX, "dwAccess"),
                fits(self.share, U32_MAX, "dwShareMode"),
                guid_bytes(self.client_id),
                self.non_routing_server,
                fits(self.major, U8_MAX, "Major"),
                fits(self.minor, U8_MAX, "Minor"),
                fits(self.build_number, U16_MAX, "BuildNumber"),
                self.workgroup,
            )
        )


class HandleRequest(NamedTuple):
    """A stub that is one context handle.

    The class is the request of R_CloseQueue, R_CreateCursor and R_PurgeQueue, and the response of
    R_OpenQueue.
    """

    handle: ContextHandle

    def encode(self, _syntax: TransferSyntax) -> bytes:
        """Return the stub with the handle.

        Raises :class:`LocalProtocolError` if the handle does not fit into its field.
        """
        return write_handle(self.handle)


class HandleNumberRequest(NamedTuple):
    """The request of R_CloseCursor and of R_CancelReceive.

    ``number`` is the number of a cursor or of a request.
    """

    handle: ContextHandle
    number: int

    def encode(self, _syntax: TransferSyntax) -> bytes:
        """Return the stub of the request.

        Raises :class:`LocalProtocolError` if a value does not fit into its field.
        """
        return _HANDLE_U32.pack(
            write_handle(self.handle), fits(self.number, U32_MAX, "hCursor or dwRequestId")
        )


class EndReceiveRequest(NamedTuple):
    """The request of R_EndReceive and of R_EndTransactionalReceive."""

    handle: ContextHandle
    ack: int
    request_id: int

    def encode(self, _syntax: TransferSyntax) -> bytes:
        """Return the stub of the request.

        Raises :class:`LocalProtocolError` if a value does not fit into its field, or if ``ack`` is
        neither RR_NACK nor RR_ACK.
        """
        if self.ack not in (RR_NACK, RR_ACK):
            raise LocalProtocolError(f"dwAck is RR_NACK (1) or RR_ACK (2), not {self.ack}")
        return _HANDLE_U32_U32.pack(
            write_handle(self.handle), self.ack, fits(self.request_id, U32_MAX, "dwRequestId")
        )


class MoveMessageRequest(NamedTuple):
    """The request of R_MoveMessage, as values."""

    handle: ContextHandle
    move_context: int
    lookup_id: int
    transaction: bytes

    def encode(self, _syntax: TransferSyntax) -> bytes:
        """Return the stub of the request.

        Raises :class:`LocalProtocolError` if a value does not fit into its field.
        """
        return _MOVE.pack(
            write_handle(self.handle),
            fits(self.move_context, U64_MAX, "ullContextTo"),
            fits(self.lookup_id, U64_MAX, "LookupId"),
            _xactuow(self.transaction),
        )


class EnlistRequest(NamedTuple):
    """The request of R_QMEnlistRemoteTransaction, as values."""

    transaction: bytes
    propagation_token: bytes
    queue: QueueFormat
    """A queue that must be sent and that the server ignores."""

    def encode(self, syntax: TransferSyntax) -> bytes:
        """Return the stub of the request.

        Raises :class:`LocalProtocolError` if a value does not fit into its field.
        """
        count = fits(len(self.propagation_token), PROPAGATION_TOKEN_MAX, "cbPropagationToken")
        counts = _U32.pack(count) + (
            bytes(4) + count.to_bytes(8, "little") if syntax is NDR64 else _U32.pack(count)
        )
        stub = _xactuow(self.transaction) + counts + self.propagation_token
        return stub + write_queue_format(self.queue, syntax, len(stub))


class SetClassRequest(NamedTuple):
    """The request of R_SetUserAcknowledgementClass, as values."""

    handle: ContextHandle
    lookup_id: int
    message_class: int

    def encode(self, _syntax: TransferSyntax) -> bytes:
        """Return the stub of the request.

        Raises :class:`LocalProtocolError` if a value does not fit into its field.
        """
        return _SET_CLASS.pack(
            write_handle(self.handle),
            fits(self.lookup_id, U64_MAX, "LookupId"),
            fits(self.message_class, U16_MAX, "usClass"),
        )


class PortResponse(NamedTuple):
    """The response of R_GetServerPort. The value is a port and no HRESULT; 0 means failure."""

    port: int

    def encode(self, _syntax: TransferSyntax) -> bytes:
        """Return the stub of the response.

        Raises :class:`LocalProtocolError` if the port does not fit into 32 bits.
        """
        return _U32.pack(fits(self.port, U32_MAX, "port"))


class StatusResponse(NamedTuple):
    """The response of every method that returns only an HRESULT."""

    status: int

    def encode(self, _syntax: TransferSyntax) -> bytes:
        """Return the stub of the response.

        Raises :class:`LocalProtocolError` if the status does not fit into 32 bits.
        """
        return _U32.pack(fits(self.status, U32_MAX, "HRESULT"))


class CloseQueueResponse(NamedTuple):
    """The response of R_CloseQueue. The handle is the null handle if the call succeeded."""

    handle: ContextHandle
    status: int

    def encode(self, _syntax: TransferSyntax) -> bytes:
        """Return the stub of the response.

        Raises :class:`LocalProtocolError` if a value does not fit into its field.
        """
        return _HANDLE_U32.pack(write_handle(self.handle), fits(self.status, U32_MAX, "HRESULT"))


class CursorResponse(NamedTuple):
    """The response of R_CreateCursor, as values."""

    cursor: int
    status: int

    def encode(self, _syntax: TransferSyntax) -> bytes:
        """Return the stub of the response.

        Raises :class:`LocalProtocolError` if a value does not fit into its field.
        """
        return _U32_PAIR.pack(
            fits(self.cursor, U32_MAX, "phCursor"), fits(self.status, U32_MAX, "HRESULT")
        )


class OpenForMoveResponse(NamedTuple):
    """The response of R_OpenQueueForMove, as values."""

    move_context: int
    handle: ContextHandle

    def encode(self, _syntax: TransferSyntax) -> bytes:
        """Return the stub of the response.

        Raises :class:`LocalProtocolError` if a value does not fit into its field.
        """
        return _MOVE_CONTEXT.pack(
            fits(self.move_context, U64_MAX, "pMoveContext"), write_handle(self.handle)
        )


def _xactuow(transaction: bytes) -> bytes:
    if len(transaction) != GUID_SIZE:
        raise LocalProtocolError(f"an XACTUOW has {GUID_SIZE} bytes, not {len(transaction)}")
    return transaction


def _decode_nothing(stub: bytes, _syntax: TransferSyntax) -> NoParameters:
    need(stub, 0, 0, "R_GetServerPort")
    return NoParameters()


def _decode_open(stub: bytes, syntax: TransferSyntax) -> OpenRequest:
    queue, at = read_queue_format(stub, 0, syntax, fewest_behind=_AFTER_QUEUE.size)
    at = aligned(at, 4)
    need(stub, at, _AFTER_QUEUE.size, "the parameters behind pQueueFormat")
    access, share, client_id, *rest = _AFTER_QUEUE.unpack_from(stub, at)
    return OpenRequest(queue, access, share, guid_text(client_id), *rest)


def _decode_handle(stub: bytes, _syntax: TransferSyntax) -> HandleRequest:
    return HandleRequest(read_handle(*unpack(_HANDLE, stub, "a context handle")))


def _decode_handle_number(stub: bytes, _syntax: TransferSyntax) -> HandleNumberRequest:
    handle, number = unpack(_HANDLE_U32, stub, "a context handle and a number")
    return HandleNumberRequest(read_handle(handle), number)


def _decode_end_receive(stub: bytes, _syntax: TransferSyntax) -> EndReceiveRequest:
    handle, ack, request_id = unpack(_HANDLE_U32_U32, stub, "R_EndReceive")
    if ack not in (RR_NACK, RR_ACK):
        raise BadStubError(
            f"dwAck is {ack} and its range is 1 to 2", section="[MS-RPCE] 3.1.1.5.3.2.2.4"
        )
    return EndReceiveRequest(read_handle(handle), ack, request_id)


def _decode_move(stub: bytes, _syntax: TransferSyntax) -> MoveMessageRequest:
    handle, *rest = unpack(_MOVE, stub, "R_MoveMessage")
    return MoveMessageRequest(read_handle(handle), *rest)


def _decode_enlist(stub: bytes, syntax: TransferSyntax) -> EnlistRequest:
    need(stub, 0, 20, "R_QMEnlistRemoteTransaction")
    (count,) = _U32.unpack_from(stub, 16)
    if count > PROPAGATION_TOKEN_MAX:
        raise BadStubError(
            f"cbPropagationToken is {count} and its range ends at {PROPAGATION_TOKEN_MAX}",
            section="[MS-RPCE] 3.1.1.5.3.2.2.4",
        )
    at, size = (24, 8) if syntax is NDR64 else (20, 4)
    need(stub, at, size, "the count of pbPropagationToken")
    counted = int.from_bytes(stub[at : at + size], "little")
    if counted != count:
        raise BadStubError(
            f"cbPropagationToken is {count} and the array has {counted}",
            section="[MS-RPCE] 3.1.1.5.3.2.1.1",
        )
    at += size
    need(stub, at, count, "pbPropagationToken")
    queue, _ = read_queue_format(stub, at + count, syntax, fewest_behind=0)
    return EnlistRequest(stub[:16], stub[at : at + count], queue)


def _decode_set_class(stub: bytes, _syntax: TransferSyntax) -> SetClassRequest:
    handle, *rest = unpack(_SET_CLASS, stub, "R_SetUserAcknowledgementClass")
    return SetClassRequest(read_handle(handle), *rest)


def _decode_port(stub: bytes, _syntax: TransferSyntax) -> PortResponse:
    return PortResponse(*unpack(_U32, stub, "the port"))


def _decode_status(stub: bytes, _syntax: TransferSyntax) -> StatusResponse:
    return StatusResponse(*unpack(_U32, stub, "HRESULT"))


def _decode_close_queue(stub: bytes, _syntax: TransferSyntax) -> CloseQueueResponse:
    handle, status = unpack(_HANDLE_U32, stub, "R_CloseQueue")
    return CloseQueueResponse(read_handle(handle), status)


def _decode_cursor(stub: bytes, _syntax: TransferSyntax) -> CursorResponse:
    return CursorResponse(*unpack(_U32_PAIR, stub, "R_CreateCursor"))


def _decode_open_for_move(stub: bytes, _syntax: TransferSyntax) -> OpenForMoveResponse:
    move_context, handle = unpack(_MOVE_CONTEXT, stub, "R_OpenQueueForMove")
    return OpenForMoveResponse(move_context, read_handle(handle))


class Method(NamedTuple):
    """One method of RemoteRead, with the decoders of its request and of its response.

    A decoder gets a stub and its transfer syntax, and returns the parameters. Whatever the stub
    holds, it raises only :class:`BadStubError`.
    """

    name: str
    decode_request: Callable[[bytes, TransferSyntax], Parameters]
    decode_response: Callable[[bytes, TransferSyntax], Parameters]


METHODS: Mapping[int, Method] = {
    0: Method("R_GetServerPort", _decode_nothing, _decode_port),
    2: Method("R_OpenQueue", _decode_open, _decode_handle),
    3: Method("R_CloseQueue", _decode_handle, _decode_close_queue),
    4: Method("R_CreateCursor", _decode_handle, _decode_cursor),
    5: Method("R_CloseCursor", _decode_handle_number, _decode_status),
    6: Method("R_PurgeQueue", _decode_handle, _decode_status),
    7: Method("R_StartReceive", decode_start_receive_request, decode_start_receive_response),
    8: Method("R_CancelReceive", _decode_handle_number, _decode_status),
    9: Method("R_EndReceive", _decode_end_receive, _decode_status),
    10: Method("R_MoveMessage", _decode_move, _decode_status),
    11: Method("R_OpenQueueForMove", _decode_open, _decode_open_for_move),
    12: Method("R_QMEnlistRemoteTransaction", _decode_enlist, _decode_status),
    13: Method(
        "R_StartTransactionalReceive",
        decode_start_transactional_receive_request,
        decode_start_receive_response,
    ),
    14: Method("R_SetUserAcknowledgementClass", _decode_set_class, _decode_status),
    15: Method("R_EndTransactionalReceive", _decode_end_receive, _decode_status),
}
"""The methods by opnum.

Opnum 1 is not used on the wire. A call with opnum 1, or with any opnum that is not listed, is
answered with the fault nca_s_op_rng_error.
"""
