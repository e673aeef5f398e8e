"""The port to a security provider, and what it protects of a PDU ([MS-RPCE] 2.2.2.11, 3.3.1.5.2.2). No provider is in here.

A provider hands tokens to and fro until it is ``complete``, and then signs and encrypts. What it is given of each PDU are three
pieces in their order: the header (for a request or a response 24 bytes, 40 with an object), the body (stub, verification
trailer, padding), the sec_trailer. At the level of privacy the body is encrypted; header and trailer are signed with it where
both sides said in their bind that they can. CALL and PKT, which promise less than integrity and are asked for by nobody here,
are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from srmp_spark.errors import LocalProtocolError, RemoteProtocolError
from srmp_spark.mqrr.rpc.calls import Piece
from srmp_spark.mqrr.rpc.pdu import (
    HEADER_SIZE,
    SEC_TRAILER_SIZE,
    AuthLevel,
    AuthTrailer,
    Pdu,
    encode_pdu,
)

LEVELS = (AuthLevel.CONNECT, AuthLevel.PKT_INTEGRITY, AuthLevel.PKT_PRIVACY)
"""The levels of a security context; without one the level is ``NONE``."""


class SecurityError(RemoteProtocolError):
    """A token or a signature that does not hold, or a peer without the one it agreed to send. Nothing of the PDU is used."""

    def __init__(self, message: str) -> None:
        super().__init__(message, status_hint=401, section="[MS-RPCE] 3.3.1.5.2")


class SecurityContext(Protocol):
    """One side of a negotiation, and what comes of it. The provider knows the level that it was made for."""

    auth_type: int
    """RPC_C_AUTHN_…: 9 SPNEGO, 10 NTLM, 16 Kerberos."""
    complete: bool
    supports_header_signing: bool
    odd_legs: bool
    """The client has the last word, in an auth3 that nobody answers: NTLM."""
    identity: str | None
    """Who the other side is, once it is known."""
    token_size: int
    """Bytes of the signature in each PDU."""

    def step(self, token: bytes) -> bytes:
        """The next token, for the other side's; ``b""``: nothing more to say. Raises :class:`SecurityError`."""
        ...

    def protect(
        self, header: bytes, body: bytes, trailer: bytes, *, sign_header: bool
    ) -> tuple[bytes, bytes]:
        """The body as it is sent, and the token."""
        ...

    def unprotect(
        self, header: bytes, body: bytes, trailer: bytes, token: bytes, *, sign_header: bool
    ) -> bytes:
        """The body as it was written. Raises :class:`SecurityError`."""
        ...


@dataclass(slots=True, kw_only=True)
class ConnectionSecurity:
    """The one security context of a connection. More than one ([MS-RPCE] 3.3.1.5.4) is never agreed on."""

    context: SecurityContext
    level: int
    context_id: int
    sign_header: bool = False
    """Both sides set PFC_SUPPORT_HEADER_SIGN."""
    failed: bool = False
    """The last leg came in an auth3 and did not hold: the first request is told."""

    @property
    def protects(self) -> bool:
        """Whether each request and response carries a token."""
        return self.level >= AuthLevel.PKT_INTEGRITY

    @property
    def token_size(self) -> int:
        """Bytes of the token in each request and response; 0: none."""
        return self.context.token_size if self.protects else 0

    def is_complete(self) -> bool:
        """Whether nothing more is to be negotiated."""
        return self.context.complete

    def trailer(self, token: bytes) -> AuthTrailer | None:
        """The trailer of a PDU of the negotiation."""
        return (
            AuthTrailer(self.context.auth_type, self.level, self.context_id, token)
            if token
            else None
        )


def encode_piece(
    kind: int, call_id: int, piece: Piece, flags: int, security: ConnectionSecurity | None
) -> bytes:
    """The PDU of a fragment, protected as agreed."""
    if security is None or not security.protects:
        return encode_pdu(kind, piece.flags | flags, call_id, piece.body)
    trailer = security.trailer(bytes(security.token_size))
    raw = encode_pdu(kind, piece.flags | flags, call_id, piece.body, trailer, stub_at=piece.stub_at)
    at, end = HEADER_SIZE + piece.stub_at, len(raw) - security.token_size - SEC_TRAILER_SIZE
    sec_trailer = raw[end : end + SEC_TRAILER_SIZE]
    body, token = security.context.protect(
        raw[:at], raw[at:end], sec_trailer, sign_header=security.sign_header
    )
    if len(body) != end - at or len(token) != security.token_size:
        raise LocalProtocolError(
            f"the security provider made {len(body)} bytes and a token of {len(token)}; "
            f"a body has {end - at} and its token {security.token_size}"
        )
    return raw[:at] + body + sec_trailer + token


def open_piece(pdu: Pdu, stub: bytes, stub_at: int, security: ConnectionSecurity | None) -> bytes:
    """The stub of a fragment, whose protection was looked at. ``stub`` is as it came, ``stub_at`` where it begins in the body.

    Raises :class:`SecurityError` for a token that does not hold, is not there, or belongs to another context or level.
    """
    if security is None or not security.context.complete:
        if pdu.auth is not None:
            raise SecurityError("a token, and no security context was agreed on")
        return stub
    auth = pdu.auth
    if auth is None:
        if security.protects:
            raise SecurityError("a PDU without the token that was agreed on")
        return stub
    if (auth.type, auth.level, auth.context_id) != (
        security.context.auth_type,
        security.level,
        security.context_id,
    ):
        raise SecurityError(
            f"a token of type {auth.type}, level {auth.level}, context {auth.context_id}: "
            "not the one agreed on"
        )
    if not security.protects:
        return stub  # connect: "an authentication token that is optional"
    at, end = HEADER_SIZE + stub_at, len(pdu.raw) - len(auth.token) - SEC_TRAILER_SIZE
    if at > end - auth.pad_length:
        raise SecurityError("a token whose padding reaches into the header")
    body = security.context.unprotect(
        pdu.raw[:at],
        pdu.raw[at:end],
        pdu.raw[end : end + SEC_TRAILER_SIZE],
        auth.token,
        sign_header=security.sign_header,
    )
    return body[: len(body) - auth.pad_length]
