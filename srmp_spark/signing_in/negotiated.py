"""Kerberos and Negotiate as a client's security provider of DCE/RPC, by pyspnego ([MS-RPCE] 2.2.1.1.7, 3.3.1.5.2).

pyspnego needs the machine's Kerberos libraries for tickets (``pip install 'srmp-spark[kerberos]'``). Without a user the tickets
are those of the machine's cache (``kinit``). Negotiate takes Kerberos where it can, else NTLM with the password.

At the level of integrity a token's length depends on the ticket's algorithm, and a PDU must know it before there is one; so of
the levels that sign there is privacy alone, which is what Windows asks for.
"""

from __future__ import annotations

from typing import Any

from srmp_spark.mqrr.rpc.pdu import AuthLevel
from srmp_spark.mqrr.rpc.security import SecurityError

AUTH_TYPES = {"kerberos": 16, "negotiate": 9}
"""RPC_C_AUTHN_GSS_KERBEROS, RPC_C_AUTHN_GSS_NEGOTIATE."""
LEVELS = (AuthLevel.CONNECT, AuthLevel.PKT_PRIVACY)
_NTLM_TOKEN = 16


def is_installed() -> bool:
    """Whether pyspnego is there."""
    try:
        import spnego  # noqa: F401
    except ImportError:
        return False
    return True


class NegotiatedInitiator:
    """The port of :class:`srmp_spark.mqrr.rpc.security.SecurityContext`."""

    supports_header_signing = True
    odd_legs = False
    """The last word is an alter_context, which the server answers, also of Kerberos' three legs."""

    def __init__(
        self, protocol: str, level: int, user: str, password: str, domain: str, host: str
    ) -> None:
        """Asks for the ticket at once, which may take seconds: not in an event loop.

        Raises :class:`SecurityError` when there are no credentials, or no library for them.
        """
        import spnego

        self.auth_type = AUTH_TYPES[protocol]
        self._level = level
        self._spnego = spnego
        self.identity: str | None = None
        name = f"{domain}\\{user}" if domain and "@" not in user else user
        request = spnego.ContextReq.default | spnego.ContextReq.dce_style
        self._context: Any = self._or_raise(
            lambda: spnego.client(
                name or None,
                password if name else None,
                hostname=host,
                service="host",
                protocol=protocol,
                context_req=request,
            )
        )
        self.complete = False
        self.token_size = 0
        self._first = self._or_raise(self._context.step) or b""

    def step(self, token: bytes) -> bytes:
        """The next token, for the other side's; ``b""``: nothing more to say. Raises :class:`SecurityError`."""
        if not token:
            return self._first
        answer: bytes = self._or_raise(lambda: self._context.step(token)) or b""
        self.complete = bool(self._context.complete)
        if self.complete:
            is_ntlm = self._context.negotiated_protocol == "ntlm"
            self.token_size = (
                _NTLM_TOKEN if is_ntlm else int(self._context.query_message_sizes().header)
            )
        return answer

    def protect(
        self, header: bytes, body: bytes, trailer: bytes, *, sign_header: bool
    ) -> tuple[bytes, bytes]:
        """The body as it is sent, and the token."""
        types = self._spnego.iov.BufferType
        pieces = [(types.data, body), types.header]
        if self._signs_all(sign_header):
            pieces = [
                (types.sign_only, header),
                (types.data, body),
                (types.sign_only, trailer),
                types.header,
            ]
        found = self._or_raise(lambda: self._context.wrap_iov(pieces)).buffers
        return next(each.data for each in found if each.type == types.data), found[-1].data

    def unprotect(
        self, header: bytes, body: bytes, trailer: bytes, token: bytes, *, sign_header: bool
    ) -> bytes:
        """The body as it was written. Raises :class:`SecurityError`."""
        types = self._spnego.iov.BufferType
        pieces = [(types.data, body), (types.header, token)]
        if self._signs_all(sign_header):
            pieces = [
                (types.sign_only, header),
                (types.data, body),
                (types.sign_only, trailer),
                (types.header, token),
            ]
        found = self._or_raise(lambda: self._context.unwrap_iov(pieces)).buffers
        plain: bytes = next(each.data for each in found if each.type == types.data)
        return plain

    def _signs_all(self, sign_header: bool) -> bool:
        """NTLM signs the whole PDU in either case."""
        return sign_header or self._context.negotiated_protocol == "ntlm"

    def _or_raise(self, what: Any) -> Any:  # noqa: ANN401  # whatever pyspnego returns
        from spnego.exceptions import SpnegoError

        try:
            return what()
        except (SpnegoError, ImportError, ValueError, OSError) as error:
            text = " ".join(str(error).split()) or type(error).__name__
            raise SecurityError(f"signing in failed: {text}") from None
