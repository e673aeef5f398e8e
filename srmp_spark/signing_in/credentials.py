"""Choose the account, the protocol and the level to sign in at another queue manager."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field

from srmp_spark.errors import ConfigurationError
from srmp_spark.mqrr.remote_host import RemoteHost
from srmp_spark.mqrr.rpc.client_connection import ClientSettings
from srmp_spark.mqrr.rpc.pdu import AuthLevel
from srmp_spark.mqrr.rpc.security import SecurityContext
from srmp_spark.signing_in.negotiated import LEVELS as SIGNED_LEVELS
from srmp_spark.signing_in.negotiated import NegotiatedInitiator, is_installed

LEVELS = {
    "none": AuthLevel.NONE,
    "connect": AuthLevel.CONNECT,
    "integrity": AuthLevel.PKT_INTEGRITY,
    "privacy": AuthLevel.PKT_PRIVACY,
}
PROTOCOLS = ("ntlm", "kerberos", "negotiate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Data to sign in at another queue manager: an account, or level ``none`` for no sign-in."""

    level: str = "none"
    protocol: str = "ntlm"
    user: str = ""
    domain: str = ""
    password: str = field(default="", repr=False)

    def settings(self, host: RemoteHost) -> ClientSettings:
        """Return the settings for one RPC connection to ``host``, with a new security context.

        The security context serves this connection alone, because its state is negotiated for each
        connection. Kerberos and Negotiate request a ticket, which may take seconds. Raises
        :class:`SecurityError` if the provider cannot begin, for example without a Kerberos ticket.
        """
        if self.level == "none":
            return ClientSettings()
        level = LEVELS[self.level]
        return ClientSettings(auth_level=level, security=self._initiator(level, host))

    def _initiator(self, level: int, host: RemoteHost) -> SecurityContext:
        if self.protocol != "ntlm":
            return NegotiatedInitiator(
                self.protocol, level, self.user, self.password, self.domain, host.name
            )
        from srmp_spark.signing_in.ntlm import NtlmInitiator

        return NtlmInitiator(
            level,
            self.user,
            self.password,
            self.domain,
            random=secrets.token_bytes,
            utc=time.time_ns() // 1000,
            service=f"host/{host.name}",
        )


def credentials(
    where: str,
    host: RemoteHost,
    *,
    level: str | None,
    protocol: str | None,
    user: str | None,
    password: str | None,
    domain: str | None,
) -> Credentials:
    """Return the credentials that the options of the caller describe.

    Nothing is sent. The default of ``level`` is privacy. For a host on loopback, without user and
    protocol, the default is none. ``where`` names the owner of the options in error messages.
    Raises :class:`ConfigurationError` if the options contradict each other, a value is unknown, or
    a library is missing.
    """
    given, protocol = protocol, (protocol or "ntlm").lower()
    if protocol not in PROTOCOLS:
        raise ConfigurationError(
            f"{where}: the protocol is ntlm, kerberos or negotiate, got {given!r}"
        )
    if level is None:
        level = "privacy" if user or given or not host.is_loopback else "none"
    if level not in LEVELS:
        raise ConfigurationError(
            f"{where}: the level is none, connect, integrity or privacy, got {level!r}"
        )
    if level == "none":
        if user:
            raise ConfigurationError(
                f"{where}: a user is given, but level none has no sign-in; "
                "leave the user out, or choose another level"
            )
        return Credentials()
    if protocol != "ntlm":
        _check_negotiated(where, protocol, level)
    if (not user and protocol == "ntlm") or (user and password is None):
        raise ConfigurationError(
            f"{where}: level {level} needs a sign-in at {host.name}: give a user and a password, "
            "or level none if the host requires no sign-in"
        )
    return Credentials(
        level=level,
        protocol=protocol,
        user=user or "",
        domain=domain or "",
        password=password or "",
    )


def _check_negotiated(where: str, protocol: str, level: str) -> None:
    if LEVELS[level] not in SIGNED_LEVELS:
        raise ConfigurationError(
            f"{where}: with {protocol} the level is privacy or connect, got {level}; ntlm "
            "has integrity"
        )
    if not is_installed():
        raise ConfigurationError(
            f"{where}: {protocol} needs pyspnego and the machine's Kerberos libraries: "
            "pip install 'srmp-spark[kerberos]'"
        )
