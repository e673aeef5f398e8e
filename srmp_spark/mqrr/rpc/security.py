"""The interface to a security provider, and what the provider protects of a PDU.

The documents are [MS-RPCE] 2.2.2.11 and 3.3.1.5.2.2. No provider is in this module. A provider
exchanges tokens until it is ``complete``, and then signs and encrypts. The provider receives three
pieces of each PDU, in this order: the header (24 bytes of a request or response, 40 with an
object), the body (stub, verification trailer, padding), and the sec_trailer. At the privacy level
the body is encrypted. Header and trailer are signed together with the body if both sides stated in
their bind that they can. The levels CALL and PKT promise less than integrity, and no client of this
package requests them, so they are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from srmp_spark.errors import LocalProtocolError, RemoteProtocolError
from srmp_spark.mqrr.rpc.calls import OutgoingFragment
from srmp_spark.mqrr.rpc.pdu import (
    HEADER_SIZE,
    SEC_TRAILER_SIZE,
    AuthLevel,
    AuthTrailer,
    Pdu,
    encode_pdu,
)

LEVELS = (AuthLevel.CONNECT, AuthLevel.PKT_INTEGRITY, AuthLevel.PKT_PRIVACY)
"""The allowed levels of a security context; without a context the level is ``NONE``."""


class SecurityError(RemoteProtocolError):
    """Reports that a token or signature is invalid or missing. No part of the PDU is used."""

    def __init__(self, message: str) -> None:
        super().__init__(message, status_hint=401, section="[MS-RPCE] 3.3.1.5.2")


class SecurityContext(Protocol):
    """One side of a security negotiation, which then signs and encrypts.

    The provider knows the authentication level for which it was made.
    """

    auth_type: int
    """RPC_C_AUTHN_…: 9 SPNEGO, 10 NTLM, 16 Kerberos."""
    complete: bool
    supports_header_signing: bool
    odd_legs: bool
    """Whether the client sends the last leg, in an auth3 that is not answered (NTLM)."""
    identity: str | None
    """Name of the peer, once the peer is authenticated; else ``None``."""
    token_size: int
    """Bytes of the authentication token, which is the signature, in each PDU."""

    def step(self, token: bytes) -> bytes:
        """Return the next token of the negotiation, in answer to the peer's ``token``.

        ``token`` is empty for the first step of a client. Return ``b""`` if no token is to be sent.
        Raises :class:`SecurityError` if the peer's token is invalid.
        """
        ...

    def protect(
        self, header: bytes, body: bytes, trailer: bytes, *, sign_header: bool
    ) -> tuple[bytes, bytes]:
        """Return the body as it is sent (signed or encrypted), and the token.

        ``sign_header`` states that header and trailer are signed with the body.
        """
        ...

    def unprotect(
        self, header: bytes, body: bytes, trailer: bytes, token: bytes, *, sign_header: bool
    ) -> bytes:
        """Return the body in plain text, as the peer wrote it, after a check of ``token``.

        ``sign_header`` states that header and trailer were signed with the body. Raises
        :class:`SecurityError` if the token is invalid.
        """
        ...


@dataclass(slots=True, kw_only=True)
class ConnectionSecurity:
    """The security context of one connection.

    A connection never agrees on more than one ([MS-RPCE] 3.3.1.5.4).
    """

    context: SecurityContext
    level: int
    context_id: int
    sign_header: bool = False
    """Whether both sides set PFC_SUPPORT_HEADER_SIGN."""
    failed: bool = False
    """Whether the last leg, an auth3, was invalid. The first request then gets a fault."""

    @property
    def protects(self) -> bool:
        """Return whether each request and response is signed or encrypted.

        Each of these PDUs then carries an authentication token.
        """
        return self.level >= AuthLevel.PKT_INTEGRITY

    @property
    def token_size(self) -> int:
        """Return the size in bytes of the authentication token of each request and response.

        The result is 0 if these PDUs have no tokens.
        """
        return self.context.token_size if self.protects else 0

    def is_complete(self) -> bool:
        """Return whether the security negotiation is complete."""
        return self.context.complete

    def trailer(self, token: bytes) -> AuthTrailer | None:
        """Return the authentication trailer with ``token``, or ``None`` for an empty token.

        Its type, level and context are those of this object.
        """
        return (
            AuthTrailer(self.context.auth_type, self.level, self.context_id, token)
            if token
            else None
        )


def encode_piece(
    kind: int,
    call_id: int,
    piece: OutgoingFragment,
    flags: int,
    security: ConnectionSecurity | None,
) -> bytes:
    """Encode the PDU of one fragment, signed or encrypted as negotiated.

    ``kind`` is the type of the PDU. ``flags`` are added to those of ``piece``. Raises
    :class:`LocalProtocolError` if the security provider returns a body or token of another size.
    """
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
    """Verify and decrypt one fragment, and return its stub in plain text.

    ``stub`` is the stub as received; it begins ``stub_at`` bytes into the body. ``security`` is
    ``None`` if no security was negotiated. Raises :class:`SecurityError` if a token is invalid, is
    missing, or belongs to another context or level.
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
        # At level CONNECT there is "an authentication token that is optional".
        return stub
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
