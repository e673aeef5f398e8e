"""The PDUs of calls: request, response, fault, cancel, orphaned, shutdown, auth3; and fragments (C706 12.6.4, [MS-RPCE] 2.2.2).

A stub that does not fit into one PDU is cut, each piece but the last a multiple of 16 bytes long so that nothing needs padding,
and put together again by ``call_id``. ``alloc_hint`` says in each PDU how much stub is left, or 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from srmp_spark.errors import LocalProtocolError, RemoteProtocolError
from srmp_spark.mqrr.packets.wire import fits
from srmp_spark.mqrr.rpc.limits import FRAGMENTS_MAX
from srmp_spark.mqrr.rpc.pdu import (
    FIRST_FRAGMENT,
    HEADER_SIZE,
    LAST_FRAGMENT,
    OBJECT_UUID,
    SEC_TRAILER_SIZE,
    AuthTrailer,
    Pdu,
    PduType,
    check_length,
    encode_pdu,
)
from srmp_spark.mqrr.status import NEVER_IN_A_FAULT

CALL_HEADER_SIZE = 8
"""Bytes of a request or response between the common header and the stub."""
OBJECT_SIZE = 16

_REQUEST, _RESPONSE, _FAULT = Struct("<IHH"), Struct("<IHBx"), Struct("<IHBxI4x")
_REQUEST_SECTION, _RESPONSE_SECTION, _FAULT_SECTION = (
    "C706 12.6.4.9",
    "C706 12.6.4.10",
    "[MS-RPCE] 2.2.2.8",
)


class Request(NamedTuple):
    """One fragment of a request."""

    alloc_hint: int
    context_id: int
    opnum: int
    stub: bytes
    object: bytes | None = None
    """The UUID of an object, which RemoteRead has none of."""

    @property
    def stub_at(self) -> int:
        """Where the stub begins, in the body of its PDU."""
        return CALL_HEADER_SIZE + (0 if self.object is None else OBJECT_SIZE)


def parse_request(pdu: Pdu) -> Request:
    """The request in a PDU. Raises :class:`RemoteProtocolError` for one that is cut."""
    body = pdu.body
    at = CALL_HEADER_SIZE + (OBJECT_SIZE if pdu.flags & OBJECT_UUID else 0)
    if len(body) < at:
        raise RemoteProtocolError(
            f"a request with a body of {len(body)} bytes", section=_REQUEST_SECTION
        )
    alloc_hint, context_id, opnum = _REQUEST.unpack_from(body)
    return Request(
        alloc_hint,
        context_id,
        opnum,
        body[at:],
        body[CALL_HEADER_SIZE:at] if pdu.flags & OBJECT_UUID else None,
    )


class Response(NamedTuple):
    """One fragment of a response."""

    alloc_hint: int
    context_id: int
    stub: bytes
    cancel_count: int = 0


def parse_response(pdu: Pdu) -> Response:
    """The response in a PDU. Raises :class:`RemoteProtocolError` for one that is cut."""
    if len(pdu.body) < _RESPONSE.size:
        raise RemoteProtocolError(
            f"a response with a body of {len(pdu.body)} bytes", section=_RESPONSE_SECTION
        )
    alloc_hint, context_id, cancel_count = _RESPONSE.unpack_from(pdu.body)
    return Response(alloc_hint, context_id, pdu.body[_RESPONSE.size :], cancel_count)


class Fault(NamedTuple):
    """A call that failed below its method, or a ``void`` one that failed."""

    status: int
    context_id: int = 0
    cancel_count: int = 0

    def encode(self) -> bytes:
        """The body, without any stub. Raises :class:`LocalProtocolError` for a status that a server MUST NOT send."""
        if self.status in NEVER_IN_A_FAULT:
            raise LocalProtocolError(
                f"no server may send the fault {self.status:#x} ([MS-RPCE] 3.3.3.5.1)"
            )
        status = fits(self.status, 0xFFFFFFFF, "status")
        return _FAULT.pack(_FAULT.size + HEADER_SIZE, self.context_id, self.cancel_count, status)


def parse_fault(pdu: Pdu) -> Fault:
    """The fault in a PDU; stub data behind it is ignored. Raises :class:`RemoteProtocolError` for one that is cut."""
    if (
        len(pdu.body) < 12
    ):  # the four reserved bytes at the end say nothing, and not everybody sends them
        raise RemoteProtocolError(
            f"a fault with a body of {len(pdu.body)} bytes", section=_FAULT_SECTION
        )
    _, context_id, cancel_count, status = _FAULT.unpack(
        pdu.body[: _FAULT.size].ljust(_FAULT.size, b"\0")
    )
    return Fault(status, context_id, cancel_count)


def encode_cancel(call_id: int) -> bytes:
    """co_cancel: the caller no longer wants to wait (C706 12.6.4.6)."""
    return encode_pdu(PduType.CO_CANCEL, FIRST_FRAGMENT | LAST_FRAGMENT, call_id, b"")


def encode_orphaned(call_id: int) -> bytes:
    """orphaned: the caller is no longer there (C706 12.6.4.8)."""
    return encode_pdu(PduType.ORPHANED, FIRST_FRAGMENT | LAST_FRAGMENT, call_id, b"")


def encode_shutdown() -> bytes:
    """shutdown: the server asks the client to close the connection (C706 12.6.4.11)."""
    return encode_pdu(PduType.SHUTDOWN, FIRST_FRAGMENT | LAST_FRAGMENT, 0, b"")


def encode_auth3(call_id: int, auth: AuthTrailer) -> bytes:
    """The last leg of a negotiation with an odd number of them; nobody answers it ([MS-RPCE] 2.2.2.10)."""
    return encode_pdu(PduType.AUTH3, FIRST_FRAGMENT | LAST_FRAGMENT, call_id, bytes(4), auth)


class Piece(NamedTuple):
    """A fragment to be sent: the flags and the body of its PDU, and where in the body the stub begins."""

    flags: int
    body: bytes
    stub_at: int


def request_pieces(
    context_id: int,
    opnum: int,
    stub: bytes,
    *,
    fragment: int,
    token_size: int = 0,
    object_uuid: bytes | None = None,
) -> Iterator[Piece]:
    """A request in fragments of at most ``fragment`` bytes, each with a token of ``token_size`` bytes (0: none)."""
    flags = 0 if object_uuid is None else OBJECT_UUID
    object_bytes = object_uuid or b""
    for first, piece, left in _cut(
        stub, fragment, CALL_HEADER_SIZE + len(object_bytes), token_size
    ):
        head = _REQUEST.pack(left, context_id, opnum) + object_bytes
        yield Piece(
            flags | first | (LAST_FRAGMENT if left == len(piece) else 0), head + piece, len(head)
        )


def response_pieces(
    context_id: int, stub: bytes, *, fragment: int, token_size: int = 0
) -> Iterator[Piece]:
    """A response in fragments, as :func:`request_pieces`."""
    for first, piece, left in _cut(stub, fragment, CALL_HEADER_SIZE, token_size):
        head = _RESPONSE.pack(left, context_id, 0)
        yield Piece(first | (LAST_FRAGMENT if left == len(piece) else 0), head + piece, len(head))


def _cut(
    stub: bytes, fragment: int, header: int, token_size: int
) -> Iterator[tuple[int, bytes, int]]:
    """(FIRST_FRAGMENT or 0, the piece, bytes of stub that were left with it)."""
    room = fragment - HEADER_SIZE - header - (SEC_TRAILER_SIZE + token_size if token_size else 0)
    room -= room % 16  # so that no piece but the last needs padding before its trailer
    if room <= 0:
        raise LocalProtocolError(
            f"a fragment of {fragment} bytes leaves no room for stub behind a token of {token_size}"
        )
    for at in range(0, max(len(stub), 1), room):
        yield (0 if at else FIRST_FRAGMENT), stub[at : at + room], len(stub) - at


class Assembly:
    """The stub of one call as its fragments come in. One piece of memory: a sender may make them as small as it likes."""

    __slots__ = ("_count", "_data", "call_id", "first", "limit", "limit_name")

    def __init__(
        self, call_id: int, first: Request | Response, *, limit: int, limit_name: str
    ) -> None:
        self.call_id = call_id
        self.first = first
        self.limit, self.limit_name = limit, limit_name
        self._data: bytes | bytearray = b""
        self._count = 0

    def add(self, fragment: Request | Response) -> None:
        """The next piece. Raises :class:`RemoteProtocolError` when context or method differ from the first one's,
        :class:`LimitExceededError` for too many bytes and for too many fragments."""
        if fragment.context_id != self.first.context_id or (
            isinstance(fragment, Request)
            and isinstance(self.first, Request)
            and fragment.opnum != self.first.opnum
        ):
            raise RemoteProtocolError(
                "fragments of one call that name different methods", section="C706 12.6.4.9"
            )
        self._count += 1
        check_length(self._count, FRAGMENTS_MAX, "FRAGMENTS_MAX", "C706 12.6.3.4")
        check_length(
            len(self._data) + len(fragment.stub), self.limit, self.limit_name, "[MS-RPCE] 3.3.3.5.4"
        )
        if not self._data:
            self._data = fragment.stub  # most calls are this one fragment, and need no copy
            return
        if isinstance(self._data, bytes):
            self._data = bytearray(self._data)
        self._data += fragment.stub

    @property
    def size(self) -> int:
        """Bytes of stub so far."""
        return len(self._data)

    def stub(self) -> bytes:
        """All of it."""
        return bytes(self._data)  # of bytes, the same bytes
