"""Sign in with Kerberos or Negotiate as a client of DCE/RPC, through pyspnego.

The specification is [MS-RPCE] 2.2.1.1.7 and 3.3.1.5.2. pyspnego needs the machine's Kerberos
libraries for tickets (``pip install 'srmp-spark[kerberos]'``). Without a user, the tickets of the
machine's cache are used (``kinit``). Negotiate uses Kerberos where possible, else NTLM with the
password.

The level of integrity is not supported. At that level the length of a token depends on the
algorithm of the ticket, but a PDU must state the length before the token exists. Of the levels that
sign there is only privacy, which is the level that Windows requires.
"""

from __future__ import annotations

from typing import Any

from srmp_spark.mqrr.rpc.pdu import AuthLevel
from srmp_spark.mqrr.rpc.security import SecurityError

AUTH_TYPES = {"kerberos": 16, "negotiate": 9}
"""Authentication types: RPC_C_AUTHN_GSS_KERBEROS and RPC_C_AUTHN_GSS_NEGOTIATE."""
LEVELS = (AuthLevel.CONNECT, AuthLevel.PKT_PRIVACY)
_NTLM_TOKEN = 16


def is_installed() -> bool:
    """Return whether pyspnego can be imported."""
    try:
        import spnego  # noqa: F401
    except ImportError:
        return False
    return True


class NegotiatedInitiator:
    """Signs in with Kerberos or Negotiate on one connection, as its client.

    The class implements :class:`srmp_spark.mqrr.rpc.security.SecurityContext`.
    """

    supports_header_signing = True
    odd_legs = False
    """False: the client's last token is sent in an alter_context, which the server answers.

    The three legs of Kerberos are sent so, too.
    """

    def __init__(
        self, protocol: str, level: int, user: str, password: str, domain: str, host: str
    ) -> None:
        """Request the ticket at once, for the service ``host`` of the machine ``host``.

        The request may take seconds, so do not call this in an event loop. ``protocol`` is a key of
        ``AUTH_TYPES``, and ``level`` the authentication level of RPC. An empty ``user`` stands for
        the credentials that the process has already, such as a Kerberos ticket.

        Raises :class:`SecurityError` if there are no credentials, or no library for them.
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
        """Return the next token for the server, given the server's last ``token``.

        An empty ``token`` stands for the beginning. ``b""`` as the result means that nothing more
        is to be sent. Raises :class:`SecurityError` if the sign-in fails.
        """
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
        """Return (body of a PDU as it is sent, token that signs the PDU).

        The body is encrypted. Raises :class:`SecurityError` if pyspnego cannot protect the body.
        """
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
        """Return the body of a received PDU in plain text, after a check of its ``token``.

        Raises :class:`SecurityError` if the token does not match the PDU.
        """
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
        """Return whether header and trailer of a PDU are signed together with its body.

        NTLM signs the whole PDU in either case.
        """
        return sign_header or self._context.negotiated_protocol == "ntlm"

    def _or_raise(self, what: Any) -> Any:  # noqa: ANN401  # pyspnego has no types.
        from spnego.exceptions import SpnegoError

        try:
            return what()
        except (SpnegoError, ImportError, ValueError, OSError) as error:
            text = " ".join(str(error).split()) or type(error).__name__
            raise SecurityError(f"signing in failed: {text}") from None
