"""The PDUs of a negotiation: bind, bind_ack, bind_nak, alter_context, alter_context_resp.

The documents are C706 12.6.4 and [MS-RPCE] 2.2.2.9.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from srmp_spark.errors import LocalProtocolError, RemoteProtocolError
from srmp_spark.mqrr.guids import guid_bytes, guid_text
from srmp_spark.mqrr.ndr.transfer_syntax import TransferSyntax
from srmp_spark.mqrr.packets.wire import fits
from srmp_spark.mqrr.rpc.pdu import HEADER_SIZE
from srmp_spark.names import NULL_GUID

_BIND_SECTION, _ACK_SECTION, _NAK_SECTION = "C706 12.6.4.3", "C706 12.6.4.4", "[MS-RPCE] 2.2.2.9"
_BIND = Struct("<HHIB3x")
_CONTEXT = Struct("<HBx")
_SYNTAX = Struct("<16sI")
_ACK = Struct("<HHIH")
_COUNT = Struct("<B3x")
_RESULT = Struct("<HH16sI")
_NAK = Struct("<HB")
_MAX16 = 0xFFFF


class SyntaxId(NamedTuple):
    """p_syntax_id_t: identifies an interface or a transfer syntax."""

    uuid: str
    version: int
    """Major version in the low 16 bits, minor version in the high 16 bits."""


NDR_ID, NDR64_ID = (SyntaxId(syntax.uuid, syntax.version) for syntax in TransferSyntax)
NULL_SYNTAX = SyntaxId(NULL_GUID, 0)
REMOTE_READ = SyntaxId("1a9134dd-7b39-45ba-ad88-44d01ca47f28", 1)
"""The interface RemoteRead 1.0 ([MS-MQRR] 1.9)."""


class Context(NamedTuple):
    """p_cont_elem_t: one presentation context that a client offers."""

    id: int
    """p_cont_id: the number by which requests name this presentation context."""
    interface: SyntaxId
    transfer_syntaxes: tuple[SyntaxId, ...]


class Bind(NamedTuple):
    """The body of a bind or of an alter_context, which have the same layout."""

    max_transmit: int
    max_receive: int
    group_id: int
    """assoc_group_id: the association group to join; 0 requests a new group."""
    contexts: tuple[Context, ...]

    def encode(self) -> bytes:
        """Encode the body.

        Raises :class:`LocalProtocolError` if a value does not fit into its field.
        """
        out = [
            _BIND.pack(
                fits(self.max_transmit, _MAX16, "max_xmit_frag"),
                fits(self.max_receive, _MAX16, "max_recv_frag"),
                fits(self.group_id, 0xFFFFFFFF, "assoc_group_id"),
                fits(len(self.contexts), 0xFF, "n_context_elem"),
            )
        ]
        for context in self.contexts:
            count = fits(len(context.transfer_syntaxes), 0xFF, "n_transfer_syn")
            out.append(_CONTEXT.pack(fits(context.id, _MAX16, "p_cont_id"), count))
            out += [
                _encode_syntax(syntax) for syntax in (context.interface, *context.transfer_syntaxes)
            ]
        return b"".join(out)


def parse_bind(body: bytes) -> Bind:
    """Parse the body of a bind or alter_context.

    Raises :class:`RemoteProtocolError` if the body is cut.
    """
    _need(body, 0, _BIND.size, "bind", _BIND_SECTION)
    max_transmit, max_receive, group_id, count = _BIND.unpack_from(body)
    at = _BIND.size
    contexts = []
    for _ in range(count):
        _need(body, at, _CONTEXT.size + _SYNTAX.size, "a presentation context", _BIND_SECTION)
        context_id, offered = _CONTEXT.unpack_from(body, at)
        interface = _parse_syntax(body, at + _CONTEXT.size)
        at += _CONTEXT.size + _SYNTAX.size
        _need(
            body,
            at,
            offered * _SYNTAX.size,
            "the transfer syntaxes of a presentation context",
            _BIND_SECTION,
        )
        syntaxes = tuple(
            _parse_syntax(body, at + number * _SYNTAX.size) for number in range(offered)
        )
        at += offered * _SYNTAX.size
        contexts.append(Context(context_id, interface, syntaxes))
    return Bind(max_transmit, max_receive, group_id, tuple(contexts))


class ResultCode(IntEnum):
    """p_cont_def_result_t: the server's decision about one presentation context."""

    ACCEPTANCE = 0
    USER_REJECTION = 1
    PROVIDER_REJECTION = 2
    NEGOTIATE_ACK = 3
    """Answer to the features of bind time; the reason holds the bits ([MS-RPCE] 2.2.2.4)."""


class RejectReason(IntEnum):
    """p_provider_reason_t: the reason why a presentation context was not accepted."""

    NOT_SPECIFIED = 0
    ABSTRACT_SYNTAX_NOT_SUPPORTED = 1
    PROPOSED_TRANSFER_SYNTAXES_NOT_SUPPORTED = 2
    LOCAL_LIMIT_EXCEEDED = 3


class Result(NamedTuple):
    """p_result_t: a server's answer to one presentation context of a bind.

    Results have the order of the contexts.
    """

    result: int
    reason: int = 0
    transfer_syntax: SyntaxId = NULL_SYNTAX


class BindAck(NamedTuple):
    """The body of a bind_ack or of an alter_context_resp."""

    max_transmit: int
    max_receive: int
    group_id: int
    secondary_address: str
    """The server's port as text. No client uses it ([MS-RPCE] 3.3.1.5.5)."""
    results: tuple[Result, ...]

    def encode(self) -> bytes:
        """Encode the body.

        Raises :class:`LocalProtocolError` if a value does not fit into its field.
        """
        address = (
            f"{self.secondary_address}\0".encode("ascii", "replace")
            if self.secondary_address
            else b""
        )
        head = _ACK.pack(
            fits(self.max_transmit, _MAX16, "max_xmit_frag"),
            fits(self.max_receive, _MAX16, "max_recv_frag"),
            fits(self.group_id, 0xFFFFFFFF, "assoc_group_id"),
            fits(len(address), _MAX16, "the secondary address"),
        )
        out = head + address
        out += bytes(-(HEADER_SIZE + len(out)) % 4) + _COUNT.pack(
            fits(len(self.results), 0xFF, "n_results")
        )
        for result in self.results:
            syntax = result.transfer_syntax
            out += _RESULT.pack(
                fits(result.result, _MAX16, "result"),
                fits(result.reason, _MAX16, "reason"),
                guid_bytes(syntax.uuid),
                fits(syntax.version, 0xFFFFFFFF, "if_version"),
            )
        return out


def parse_bind_ack(body: bytes) -> BindAck:
    """Parse the body of a bind_ack or alter_context_resp.

    Raises :class:`RemoteProtocolError` if the body is cut.
    """
    _need(body, 0, _ACK.size, "bind_ack", _ACK_SECTION)
    max_transmit, max_receive, group_id, length = _ACK.unpack_from(body)
    at = _ACK.size
    _need(body, at, length, "the secondary address", _ACK_SECTION)
    address = body[at : at + length].partition(b"\0")[0].decode("latin-1")
    at += length
    at += -(HEADER_SIZE + at) % 4
    _need(body, at, _COUNT.size, "n_results", _ACK_SECTION)
    (count,) = _COUNT.unpack_from(body, at)
    at += _COUNT.size
    _need(body, at, count * _RESULT.size, "the results", _ACK_SECTION)
    results = []
    for number in range(count):
        result, reason, uuid, version = _RESULT.unpack_from(body, at + number * _RESULT.size)
        results.append(Result(result, reason, SyntaxId(guid_text(uuid), version)))
    return BindAck(max_transmit, max_receive, group_id, address, tuple(results))


class NakReason(IntEnum):
    """provider_reject_reason of a bind_nak ([MS-RPCE] 2.2.2.5)."""

    REASON_NOT_SPECIFIED = 0
    TEMPORARY_CONGESTION = 1
    LOCAL_LIMIT_EXCEEDED = 2
    PROTOCOL_VERSION_NOT_SPECIFIED = 4
    AUTHENTICATION_TYPE_NOT_RECOGNIZED = 8
    INVALID_CHECKSUM = 9


class BindNak(NamedTuple):
    """The body of a bind_nak, which refuses a bind.

    Extended error information after the versions is ignored, as [MS-RPCE] 2.2.2.9 allows.
    """

    reason: int
    versions: tuple[tuple[int, int], ...] = ((5, 0),)

    def encode(self) -> bytes:
        """Encode the body.

        Raises :class:`LocalProtocolError` if a value does not fit into its field.
        """
        if len(self.versions) > 0xFF:
            raise LocalProtocolError("a bind_nak names at most 255 versions")
        return _NAK.pack(
            fits(self.reason, _MAX16, "provider_reject_reason"), len(self.versions)
        ) + bytes(number for version in self.versions for number in version)


def parse_bind_nak(body: bytes) -> BindNak:
    """Parse the body of a bind_nak. Raises :class:`RemoteProtocolError` if it is cut."""
    _need(body, 0, _NAK.size, "bind_nak", _NAK_SECTION)
    reason, count = _NAK.unpack_from(body)
    _need(body, _NAK.size, 2 * count, "the versions of a bind_nak", _NAK_SECTION)
    pairs = body[_NAK.size : _NAK.size + 2 * count]
    return BindNak(reason, tuple(zip(pairs[::2], pairs[1::2], strict=True)))


def _encode_syntax(syntax: SyntaxId) -> bytes:
    return _SYNTAX.pack(guid_bytes(syntax.uuid), fits(syntax.version, 0xFFFFFFFF, "if_version"))


def _parse_syntax(body: bytes, at: int) -> SyntaxId:
    uuid, version = _SYNTAX.unpack_from(body, at)
    return SyntaxId(guid_text(uuid), version)


def _need(body: bytes, at: int, size: int, what: str, section: str) -> None:
    if size > len(body) - at:
        raise RemoteProtocolError(
            f"{what} needs {size} bytes and {max(0, len(body) - at)} are left", section=section
        )
