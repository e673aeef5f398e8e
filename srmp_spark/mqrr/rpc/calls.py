"""The PDUs of calls: request, response, fault, cancel, orphaned, shutdown, auth3; and fragments.

The documents are C706 12.6.4 and [MS-RPCE] 2.2.2. A stub that does not fit into one PDU is cut.
Each piece but the last is a multiple of 16 bytes long, so that it needs no padding. The receiver
joins the pieces by ``call_id``. ``alloc_hint`` states in each PDU how many bytes of stub are left,
or 0.
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


class RequestFragment(NamedTuple):
    """One fragment of a request."""

    alloc_hint: int
    context_id: int
    opnum: int
    stub: bytes
    object: bytes | None = None
    """UUID of an object; ``None`` in RemoteRead, which has no objects."""

    @property
    def stub_at(self) -> int:
        """Return the offset of the stub in the body of its PDU, in bytes."""
        return CALL_HEADER_SIZE + (0 if self.object is None else OBJECT_SIZE)


def parse_request(pdu: Pdu) -> RequestFragment:
    """Parse the request in a PDU. Raises :class:`RemoteProtocolError` if the request is cut."""
    body = pdu.body
    at = CALL_HEADER_SIZE + (OBJECT_SIZE if pdu.flags & OBJECT_UUID else 0)
    if len(body) < at:
        raise RemoteProtocolError(
            f"a request with a body of {len(body)} bytes", section=_REQUEST_SECTION
        )
    alloc_hint, context_id, opnum = _REQUEST.unpack_from(body)
    return RequestFragment(
        alloc_hint,
        context_id,
        opnum,
        body[at:],
        body[CALL_HEADER_SIZE:at] if pdu.flags & OBJECT_UUID else None,
    )


class ResponseFragment(NamedTuple):
    """One fragment of a response."""

    alloc_hint: int
    context_id: int
    stub: bytes
    cancel_count: int = 0


def parse_response(pdu: Pdu) -> ResponseFragment:
    """Parse the response in a PDU. Raises :class:`RemoteProtocolError` if the response is cut."""
    if len(pdu.body) < _RESPONSE.size:
        raise RemoteProtocolError(
            f"a response with a body of {len(pdu.body)} bytes", section=_RESPONSE_SECTION
        )
    alloc_hint, context_id, cancel_count = _RESPONSE.unpack_from(pdu.body)
    return ResponseFragment(alloc_hint, context_id, pdu.body[_RESPONSE.size :], cancel_count)


class RpcFault(NamedTuple):
    """The failure of one call before its method ran, or of a method that returns ``void``."""

    status: int
    context_id: int = 0
    cancel_count: int = 0

    def encode(self) -> bytes:
        """Encode the body, without any stub.

        Raises :class:`LocalProtocolError` if the status is one that a server MUST NOT send.
        """
        if self.status in NEVER_IN_A_FAULT:
            raise LocalProtocolError(
                f"no server may send the fault {self.status:#x} ([MS-RPCE] 3.3.3.5.1)"
            )
        status = fits(self.status, 0xFFFFFFFF, "status")
        return _FAULT.pack(_FAULT.size + HEADER_SIZE, self.context_id, self.cancel_count, status)


def parse_fault(pdu: Pdu) -> RpcFault:
    """Parse the fault in a PDU; stub data after the fault is ignored.

    Raises :class:`RemoteProtocolError` if the fault is cut.
    """
    # The four reserved bytes at the end have no meaning, and some peers do not send them.
    if len(pdu.body) < 12:
        raise RemoteProtocolError(
            f"a fault with a body of {len(pdu.body)} bytes", section=_FAULT_SECTION
        )
    _, context_id, cancel_count, status = _FAULT.unpack(
        pdu.body[: _FAULT.size].ljust(_FAULT.size, b"\0")
    )
    return RpcFault(status, context_id, cancel_count)


def encode_cancel(call_id: int) -> bytes:
    """Encode co_cancel: the caller no longer wants to wait for the call (C706 12.6.4.6)."""
    return encode_pdu(PduType.CO_CANCEL, FIRST_FRAGMENT | LAST_FRAGMENT, call_id, b"")


def encode_orphaned(call_id: int) -> bytes:
    """Encode orphaned: the caller has abandoned the call (C706 12.6.4.8)."""
    return encode_pdu(PduType.ORPHANED, FIRST_FRAGMENT | LAST_FRAGMENT, call_id, b"")


def encode_auth3(call_id: int, auth: AuthTrailer) -> bytes:
    """Encode auth3, the last of an odd number of legs of a negotiation ([MS-RPCE] 2.2.2.10).

    An auth3 is not answered.
    """
    return encode_pdu(PduType.AUTH3, FIRST_FRAGMENT | LAST_FRAGMENT, call_id, bytes(4), auth)


class OutgoingFragment(NamedTuple):
    """One fragment to be sent: the flags and body of its PDU.

    ``stub_at`` is the offset of the stub in the body, in bytes.
    """

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
) -> Iterator[OutgoingFragment]:
    """Yield a request in fragments, whose PDUs have at most ``fragment`` bytes each.

    ``context_id`` and ``opnum`` name the method; ``object_uuid`` is the 16 bytes of an object's
    UUID, if there is one. Each fragment leaves room for a token of ``token_size`` bytes (0: no
    token). Raises :class:`LocalProtocolError` if no room is left for the stub.
    """
    for first, piece, left in _cut(stub, fragment, CALL_HEADER_SIZE, token_size):
        head = _REQUEST.pack(left, context_id, opnum)
        yield OutgoingFragment(
            first | (LAST_FRAGMENT if left == len(piece) else 0), head + piece, len(head)
        )


def response_pieces(
    context_id: int, stub: bytes, *, fragment: int, token_size: int = 0
) -> Iterator[OutgoingFragment]:
    """Yield a response in fragments, whose PDUs have at most ``fragment`` bytes each.

    The fragments are like those of :func:`request_pieces`, and the same error is raised.
    """
    for first, piece, left in _cut(stub, fragment, CALL_HEADER_SIZE, token_size):
        head = _RESPONSE.pack(left, context_id, 0)
        yield OutgoingFragment(
            first | (LAST_FRAGMENT if left == len(piece) else 0), head + piece, len(head)
        )


def _cut(
    stub: bytes, fragment: int, header: int, token_size: int
) -> Iterator[tuple[int, bytes, int]]:
    """Yield (FIRST_FRAGMENT or 0, the piece, bytes of stub left including the piece).

    ``header`` is the number of bytes between the common header and the stub. Raises
    :class:`LocalProtocolError` if a fragment leaves no room for the stub.
    """
    room = fragment - HEADER_SIZE - header - (SEC_TRAILER_SIZE + token_size if token_size else 0)
    # Pieces are multiples of 16 bytes, so only the last piece needs padding before its trailer.
    room -= room % 16
    if room <= 0:
        raise LocalProtocolError(
            f"a fragment of {fragment} bytes leaves no room for stub after a token of {token_size}"
        )
    for at in range(0, max(len(stub), 1), room):
        yield (0 if at else FIRST_FRAGMENT), stub[at : at + room], len(stub) - at


class Assembly:
    """Joins the fragments of one call into its stub.

    ``first`` is the first fragment, which :meth:`add` must get too. ``limit`` is the most bytes of
    the stub, and ``limit_name`` its name for an error. The fragments are appended to one buffer,
    because a sender may make them very small.
    """

    __slots__ = ("_count", "_data", "call_id", "first", "limit", "limit_name")

    def __init__(
        self,
        call_id: int,
        first: RequestFragment | ResponseFragment,
        *,
        limit: int,
        limit_name: str,
    ) -> None:
        self.call_id = call_id
        self.first = first
        self.limit, self.limit_name = limit, limit_name
        self._data: bytes | bytearray = b""
        self._count = 0

    def add(self, fragment: RequestFragment | ResponseFragment) -> None:
        """Append the next fragment, or the first one.

        Raises :class:`RemoteProtocolError` if context or method differ from the first fragment's.
        Raises :class:`LimitExceededError` beyond the limit of the stub or FRAGMENTS_MAX.
        """
        if fragment.context_id != self.first.context_id or (
            isinstance(fragment, RequestFragment)
            and isinstance(self.first, RequestFragment)
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
            # Most calls have one fragment and need no copy.
            self._data = fragment.stub
            return
        if isinstance(self._data, bytes):
            self._data = bytearray(self._data)
        self._data += fragment.stub

    @property
    def size(self) -> int:
        """Return the number of stub bytes received so far."""
        return len(self._data)

    def stub(self) -> bytes:
        """Return the bytes of all fragments so far: of the whole stub after the last one."""
        # This copies only a bytearray: ``bytes`` returns an immutable value unchanged.
        return bytes(self._data)
