"""R_StartReceive and R_StartTransactionalReceive: request, response and sections of a message.

The parameter ([MS-MQRR] 3.1.4.7, 3.1.4.13)

    [out, size_is(, *pdwNumberOfSections)] SectionBuffer** ppPacketSections

is a pointer to an array of structures. Each structure has a pointer to its bytes, which follow
after all structures:

    arrive time · sequence · n · pointer · n again ·
    n × (type, alloc, size, pointer) · n × (size again, bytes) · HRESULT

Nearly all bytes of a remote read are in the sections, so the decoder copies nothing but the bytes
of each section.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from srmp_spark.errors import LocalProtocolError
from srmp_spark.mqrr.errors import BadStubError
from srmp_spark.mqrr.ndr.stub import U32_MAX, ContextHandle, need, read_handle, unpack, write_handle
from srmp_spark.mqrr.ndr.transfer_syntax import NDR64, TransferSyntax, aligned
from srmp_spark.mqrr.packets.sections import ALL, SectionBuffer
from srmp_spark.mqrr.packets.wire import fits
from srmp_spark.mqrr.status import failed, status_text

SECTIONS_MAX = 2
"""Most sections of a message: "There can be up to two sections per message" ([MS-MQRR] 2.2.6)."""
REFERENT = 0x00020000
NO_TRANSACTION = bytes(16)
"""XACTUOW of a call outside of a transaction.

[MS-MQRR] 3.1.4.13 mentions a NULL pointer, which an [in] parameter cannot be.
"""

_REQUEST = Struct("<20s4xQIIIIII")
_TRANSACTION = Struct("<16s")
_OUT, _OUT64 = Struct("<I4xQII"), Struct("<I4xQI4xQ")
_SECTION, _SECTION64 = Struct("<HxxIII"), Struct("<III4xQ")
_U32, _U64 = Struct("<I"), Struct("<Q")


class StartReceiveRequest(NamedTuple):
    """The [in] parameters of opnums 7 and 13."""

    handle: ContextHandle
    lookup_id: int = 0
    cursor: int = 0
    action: int = 0
    timeout_ms: int = 0
    """Longest wait for a message, in milliseconds.

    [MS-MQRR] passes this number on to [MS-MQDMPR], which counts seconds.
    """
    request_id: int = 0
    max_body_size: int = ALL
    max_compound_message_size: int = ALL
    transaction: bytes | None = None
    """XACTUOW of opnum 13; ``None`` for opnum 7, which has no XACTUOW."""

    def encode(self, _syntax: TransferSyntax) -> bytes:
        """Return the stub, which is identical in both syntaxes.

        Raises :class:`LocalProtocolError` if a value does not fit into its field.
        """
        numbers = self[2:8]
        for number, what in zip(numbers, self._fields[2:8], strict=True):
            fits(number, U32_MAX, what)
        fits(self.lookup_id, 2**64 - 1, "LookupId")
        stub = _REQUEST.pack(write_handle(self.handle), self.lookup_id, *numbers)
        if self.transaction is None:
            return stub
        if len(self.transaction) != _TRANSACTION.size:
            raise LocalProtocolError(f"an XACTUOW has 16 bytes, not {len(self.transaction)}")
        return stub + self.transaction


def decode_start_receive_request(stub: bytes, _syntax: TransferSyntax) -> StartReceiveRequest:
    """Decode the request of opnum 7. Raises :class:`BadStubError` if bytes are missing."""
    handle, *numbers = unpack(_REQUEST, stub, "R_StartReceive")
    return StartReceiveRequest(read_handle(handle), *numbers)


def decode_start_transactional_receive_request(
    stub: bytes, syntax: TransferSyntax
) -> StartReceiveRequest:
    """Decode the request of opnum 13. Raises :class:`BadStubError` if bytes are missing."""
    request = decode_start_receive_request(stub, syntax)
    need(stub, _REQUEST.size, _TRANSACTION.size, "pTransactionId")
    return request._replace(transaction=stub[_REQUEST.size : _REQUEST.size + _TRANSACTION.size])


class StartReceiveResponse(NamedTuple):
    """The [out] parameters of opnums 7 and 13. After a failure only ``status`` has a meaning."""

    arrive_time: int
    """Arrival time of the message, in seconds since 1970, UTC."""
    sequence_id: int
    """Low seven bytes of the LookupIdentifier (:mod:`srmp_spark.mqrr.lookup_identifier`)."""
    sections: tuple[SectionBuffer, ...]
    status: int

    def encode(self, syntax: TransferSyntax) -> bytes:
        """Return the stub of the response.

        Raises :class:`LocalProtocolError` for more than two sections or a value out of its range.
        """
        if syntax is NDR64:
            return _encode64(self)
        return _encode(self)


def failure(status: int) -> StartReceiveResponse:
    """Return the response of a server that fails with ``status`` and returns no message.

    Every [out] parameter must be sent, so each of the others is 0 or empty.
    """
    return StartReceiveResponse(0, 0, (), status)


def _checked(response: StartReceiveResponse) -> Sequence[SectionBuffer]:
    fits(response.arrive_time, U32_MAX, "pdwArriveTime")
    fits(response.sequence_id, 2**64 - 1, "pSequenceId")
    fits(response.status, U32_MAX, "HRESULT")
    if len(response.sections) > SECTIONS_MAX:
        raise LocalProtocolError(
            f"a message has at most {SECTIONS_MAX} sections, not {len(response.sections)}"
        )
    for section in response.sections:
        fits(section.size_alloc, U32_MAX, "SectionSizeAlloc")
        fits(section.type, 0xFFFF, "SectionBufferType")
    return response.sections


def _encode(response: StartReceiveResponse) -> bytes:
    sections = _checked(response)
    count = len(sections)
    head = _OUT.pack(response.arrive_time, response.sequence_id, count, REFERENT if count else 0)
    if not count:
        return head + _U32.pack(response.status)
    pieces = [head, _U32.pack(count)]
    for number, section in enumerate(sections, 1):
        pieces.append(
            _SECTION.pack(
                section.type, section.size_alloc, len(section.data), REFERENT + 4 * number
            )
        )
    for section in sections:
        pieces += (_U32.pack(len(section.data)), section.data, bytes(-len(section.data) & 3))
    pieces.append(_U32.pack(response.status))
    return b"".join(pieces)


def _encode64(response: StartReceiveResponse) -> bytes:
    sections = _checked(response)
    count = len(sections)
    head = _OUT64.pack(response.arrive_time, response.sequence_id, count, REFERENT if count else 0)
    if not count:
        return head + _U32.pack(response.status)
    pieces = [head, _U64.pack(count)]
    for number, section in enumerate(sections, 1):
        pieces.append(
            _SECTION64.pack(
                section.type, section.size_alloc, len(section.data), REFERENT + 4 * number
            )
        )
    for number, section in enumerate(sections, 1):
        # The next count is aligned to eight bytes, the HRESULT to four.
        gap = 7 if number < count else 3
        pieces += (_U64.pack(len(section.data)), section.data, bytes(-len(section.data) & gap))
    pieces.append(_U32.pack(response.status))
    return b"".join(pieces)


def decode_start_receive_response(stub: bytes, syntax: TransferSyntax) -> StartReceiveResponse:
    """Decode the response of opnums 7 and 13.

    Raises :class:`BadStubError` if counts do not agree, a pointer is NULL although its count is not
    0, there are more than two sections, or bytes are missing.
    """
    wide = syntax is NDR64
    out, layout, count_layout = (_OUT64, _SECTION64, _U64) if wide else (_OUT, _SECTION, _U32)
    arrive_time, sequence_id, count, pointer = unpack(out, stub, "R_StartReceive")
    at = out.size
    if not pointer:
        need(stub, at, _U32.size, "HRESULT")
        (status,) = _U32.unpack_from(stub, at)
        if count and not failed(status):
            raise BadStubError(f"{count} sections at a NULL pointer, and {status_text(status)}")
        return StartReceiveResponse(arrive_time, sequence_id, (), status)
    need(stub, at, count_layout.size, "the count of sections")
    (counted,) = count_layout.unpack_from(stub, at)
    at += count_layout.size
    if counted != count:
        raise BadStubError(
            f"pdwNumberOfSections is {count} and the array has {counted}",
            section="[MS-RPCE] 3.1.1.5.3.2.1.1",
        )
    if count > SECTIONS_MAX:
        raise BadStubError(
            f"a message of {count} sections; there can be {SECTIONS_MAX}", section="[MS-MQRR] 2.2.6"
        )
    need(stub, at, layout.size * count, "the sections")
    heads = [layout.unpack_from(stub, at + layout.size * number) for number in range(count)]
    at += layout.size * count
    sections = []
    for kind, size_alloc, size, referent in heads:
        if not referent:
            if size:
                raise BadStubError(
                    f"a section of {size} bytes at a NULL pointer",
                    section="[MS-RPCE] 3.1.1.5.3.3.1.2",
                )
            sections.append(SectionBuffer(kind, size_alloc, b""))
            continue
        at = aligned(at, count_layout.size)
        need(stub, at, count_layout.size, "the count of a section")
        (counted,) = count_layout.unpack_from(stub, at)
        at += count_layout.size
        if counted != size:
            raise BadStubError(
                f"SectionSize is {size} and the array has {counted}",
                section="[MS-RPCE] 3.1.1.5.3.2.1.2",
            )
        need(stub, at, size, "a section")
        sections.append(SectionBuffer(kind, size_alloc, stub[at : at + size]))
        at += size
    at = aligned(at, _U32.size)
    need(stub, at, _U32.size, "HRESULT")
    return StartReceiveResponse(
        arrive_time, sequence_id, tuple(sections), _U32.unpack_from(stub, at)[0]
    )
