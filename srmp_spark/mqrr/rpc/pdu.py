"""The parts that all PDUs share: common header, authentication trailer, and the stream of PDUs.

The documents are C706 12.6.3.1 (header) and [MS-RPCE] 2.2.2.11 (trailer). Layout by offset:

    0 version 5 · 1 minor 0 · 2 PTYPE · 3 flags · 4 data representation (4)
    8 frag_length u16 · 10 auth_length u16 · 12 call_id u32 · 16 body … padding
    sec_trailer (8) at frag_length − auth_length − 8 · token (auth_length)
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from srmp_spark.errors import LimitExceededError, LocalProtocolError, RemoteProtocolError
from srmp_spark.mqrr.packets.wire import fits
from srmp_spark.mqrr.rpc.limits import FRAGMENT_LENGTH_MAX, TOKEN_MAX

HEADER_SIZE = 16
SEC_TRAILER_SIZE = 8
VERSION, MINOR_VERSION = 5, 0
"""The only supported RPC version ([MS-RPCE] 3.3.1.5.1)."""
DREP = b"\x10\0\0\0"
"""Data representation: little-endian integers, ASCII, IEEE floating point."""

_SECTION = "C706 12.6.3.1"
_HEADER = Struct("<BBBB4sHHI")
_SEC_TRAILER = Struct("<BBBxI")


class PduType(IntEnum):
    """The types (PTYPE) of the PDUs of connection-oriented RPC."""

    REQUEST = 0
    RESPONSE = 2
    FAULT = 3
    BIND = 11
    BIND_ACK = 12
    BIND_NAK = 13
    ALTER_CONTEXT = 14
    ALTER_CONTEXT_RESP = 15
    AUTH3 = 16
    SHUTDOWN = 17
    CO_CANCEL = 18
    ORPHANED = 19


FIRST_FRAGMENT = 0x01
LAST_FRAGMENT = 0x02
SUPPORT_HEADER_SIGN = 0x04
"""Meaning of this bit in bind, alter_context, their answers and auth3 ([MS-RPCE] 2.2.2.3)."""
CONCURRENT_MULTIPLEXING = 0x10
DID_NOT_EXECUTE = 0x20
OBJECT_UUID = 0x80
WHOLE = FIRST_FRAGMENT | LAST_FRAGMENT


class AuthLevel(IntEnum):
    """Authentication level of a connection ([MS-RPCE] 2.2.1.1.8)."""

    NONE = 1
    CONNECT = 2
    CALL = 3
    PKT = 4
    PKT_INTEGRITY = 5
    PKT_PRIVACY = 6


class AuthTrailer(NamedTuple):
    """The sec_trailer of one PDU and the token after it."""

    type: int
    """Number of the security provider: 9 SPNEGO, 10 NTLM, 16 Kerberos."""
    level: int
    context_id: int
    token: bytes
    pad_length: int = 0
    """Bytes of padding between the body and the trailer, as received."""


class Pdu(NamedTuple):
    """One PDU, split into the parts that all PDUs share."""

    type: int
    flags: int
    call_id: int
    body: bytes
    """The bytes after the common header, without padding, trailer and token."""
    auth: AuthTrailer | None = None
    raw: bytes = b""
    """The whole PDU as received. A signature covers these bytes."""

    @property
    def is_first(self) -> bool:
        """Return whether this is the first or only fragment of a call."""
        return bool(self.flags & FIRST_FRAGMENT)

    @property
    def is_last(self) -> bool:
        """Return whether this is the last or only fragment of a call."""
        return bool(self.flags & LAST_FRAGMENT)


def encode_pdu(
    kind: int,
    flags: int,
    call_id: int,
    body: bytes,
    auth: AuthTrailer | None = None,
    *,
    stub_at: int | None = None,
) -> bytes:
    """Encode a PDU of type ``kind`` with these ``flags``, and return its bytes.

    With ``auth``, the trailer is aligned to 16 bytes from the stub. The stub begins ``stub_at``
    bytes into ``body``. PDUs of a negotiation have no stub (``stub_at`` is ``None``): their trailer
    begins at a multiple of 4. Raises :class:`LocalProtocolError` if the PDU is larger than 65,535
    bytes, if the token is empty or too long, or if a number is out of range.
    """
    if auth is None:
        size = fits(HEADER_SIZE + len(body), FRAGMENT_LENGTH_MAX, "frag_length")
        return (
            _HEADER.pack(
                VERSION,
                MINOR_VERSION,
                kind,
                flags,
                DREP,
                size,
                0,
                fits(call_id, 0xFFFFFFFF, "call_id"),
            )
            + body
        )
    if not 0 < len(auth.token) <= TOKEN_MAX:
        raise LocalProtocolError(
            f"an authentication token has 1 to {TOKEN_MAX} bytes, not {len(auth.token)}"
        )
    padding = -len(body) % 4 if stub_at is None else (stub_at - len(body)) % 16
    trailer = _SEC_TRAILER.pack(auth.type, auth.level, padding, auth.context_id)
    size = HEADER_SIZE + len(body) + padding + len(trailer) + len(auth.token)
    fits(size, FRAGMENT_LENGTH_MAX, "frag_length")
    head = _HEADER.pack(
        VERSION,
        MINOR_VERSION,
        kind,
        flags,
        DREP,
        size,
        len(auth.token),
        fits(call_id, 0xFFFFFFFF, "call_id"),
    )
    return head + body + bytes(padding) + trailer + auth.token


def parse_pdu(data: bytes) -> Pdu:
    """Parse one whole PDU, as :class:`PduStream` cuts PDUs from a stream.

    Raises :class:`RemoteProtocolError` if the version is unknown or the peer is not little-endian.
    The same error is raised if frag_length is not the size of ``data``, or if the authentication
    trailer does not fit after the header.
    """
    if len(data) < HEADER_SIZE:
        raise RemoteProtocolError(f"a PDU of {len(data)} bytes", section=_SECTION)
    version, minor, kind, flags, drep, size, auth_length, call_id = _HEADER.unpack_from(data)
    if version != VERSION or minor != MINOR_VERSION:
        raise RemoteProtocolError(
            f"RPC version {version}.{minor}; only 5.0 is known", section="[MS-RPCE] 3.3.1.5.1"
        )
    if drep[0] & 0xF0 != DREP[0]:
        raise RemoteProtocolError(
            "a peer whose integers are not little-endian", section="C706 14.1"
        )
    if size != len(data):
        raise RemoteProtocolError(
            f"frag_length is {size} and the PDU has {len(data)} bytes", section=_SECTION
        )
    if not auth_length:
        return Pdu(kind, flags, call_id, data[HEADER_SIZE:], None, data)
    at = size - auth_length - SEC_TRAILER_SIZE
    if at < HEADER_SIZE:
        raise RemoteProtocolError(
            f"auth_length is {auth_length} in a PDU of {size} bytes", section="[MS-RPCE] 2.2.2.11"
        )
    auth_type, level, pad_length, context_id = _SEC_TRAILER.unpack_from(data, at)
    if pad_length > at - HEADER_SIZE:
        raise RemoteProtocolError(
            f"{pad_length} bytes of padding in a body of {at - HEADER_SIZE}",
            section="[MS-RPCE] 2.2.2.11",
        )
    auth = AuthTrailer(auth_type, level, context_id, data[at + SEC_TRAILER_SIZE :], pad_length)
    return Pdu(kind, flags, call_id, data[HEADER_SIZE : at - pad_length], auth, data)


def _other_version(beginning: bytes) -> str:
    if beginning.startswith(b"HTTP/"):
        return (
            f"RPC version {beginning[0]}: this is an HTTP server, and has no remote read; "
            "give the RPC port (2103 on Windows, `rpc` in the ready line of `srmp-spark serve`), "
            "or no port, so that the endpoint mapper (135) is asked"
        )
    return f"RPC version {beginning[0]}; only 5.0 is known"


class PduStream:
    """Cuts PDUs out of a stream of bytes and keeps an incomplete PDU for later.

    An incomplete PDU has at most 65,535 bytes.
    """

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def receive(self, data: bytes) -> Iterator[bytes]:
        """Add ``data``, and yield the bytes of each PDU that is complete.

        Complete PDUs are yielded even if the bytes after them are invalid. Raises
        :class:`RemoteProtocolError` as soon as the next bytes cannot begin a PDU, because the rest
        of the stream can no longer be cut.
        """
        self.add(data)
        buffer = self._buffer
        while len(buffer) >= 10:
            if buffer[0] != VERSION:
                raise RemoteProtocolError(
                    _other_version(bytes(buffer[:10])), section="[MS-RPCE] 3.3.1.5.1"
                )
            if buffer[4] & 0xF0 != DREP[0]:
                raise RemoteProtocolError(
                    "a peer whose integers are not little-endian", section="C706 14.1"
                )
            size = buffer[8] | buffer[9] << 8
            if size < HEADER_SIZE:
                raise RemoteProtocolError(f"frag_length is {size}", section=_SECTION)
            if len(buffer) < size:
                return
            pdu = bytes(buffer[:size])
            del buffer[:size]
            yield pdu

    def add(self, data: bytes) -> None:
        """Keep ``data`` for the next :meth:`receive`."""
        self._buffer += data

    @property
    def is_behind(self) -> bool:
        """Return whether :meth:`receive` would yield a PDU or raise without further data."""
        buffer = self._buffer
        return len(buffer) >= 10 and (
            buffer[0] != VERSION or len(buffer) >= (buffer[8] | buffer[9] << 8)
        )

    def __len__(self) -> int:
        """Return the number of bytes that were received but not yet yielded."""
        return len(self._buffer)

    def __bool__(self) -> bool:
        """Return True always, because an empty stream is a stream too."""
        return True


def check_length(size: int, limit: int, name: str, section: str) -> None:
    """Raise :class:`LimitExceededError` if ``size`` exceeds ``limit``.

    ``name`` is the name of the limit and ``section`` its place in the document, for the error.
    """
    if size > limit:
        raise LimitExceededError(name, limit, size, section=section)
