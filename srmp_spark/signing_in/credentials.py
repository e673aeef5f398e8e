"""As whom we sign in at another queue manager, and how."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field

from srmp_spark.errors import ConfigurationError
from srmp_spark.mqrr.remote_host import RemoteHost
from srmp_spark.mqrr.rpc.client_connection import ClientSettings
from srmp_spark.mqrr.rpc.pdu import AuthLevel

LEVELS = {
    "none": AuthLevel.NONE,
    "connect": AuthLevel.CONNECT,
    "integrity": AuthLevel.PKT_INTEGRITY,
    "privacy": AuthLevel.PKT_PRIVACY,
}
PROTOCOLS = ("ntlm",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Nobody, or an account."""

    level: str = "none"
    user: str = ""
    domain: str = ""
    password: str = field(default="", repr=False)

    def settings(self, host: RemoteHost) -> ClientSettings:
        """For one connection to ``host``: what was negotiated on one is for no other."""
        if self.level == "none":
            return ClientSettings()
        from srmp_spark.signing_in.ntlm import NtlmInitiator

        level = LEVELS[self.level]
        initiator = NtlmInitiator(
            level, self.user, self.password, self.domain, random=secrets.token_bytes, utc=time.time_ns() // 1000,
            service=f"host/{host.name}",
        )  # fmt: skip
        return ClientSettings(auth_level=level, security=initiator)


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
    """What the options say; without a level privacy, on loopback none. Raises :class:`ConfigurationError`."""
    if protocol is not None and protocol.lower() not in PROTOCOLS:
        raise ConfigurationError(f"{where}: the protocol {protocol!r} is not in this version: ntlm")
    if level is None:
        level = "privacy" if user or not host.is_loopback else "none"
    if level not in LEVELS:
        raise ConfigurationError(f"{where}: the level is none, connect, integrity or privacy, got {level!r}")
    if level == "none":
        if user:
            raise ConfigurationError(f"{where}: nobody signs in at level none, and a user is given")
        return Credentials()
    if not user or password is None:
        raise ConfigurationError(
            f"{where}: {host.name} is asked with {level}: give a user and a password, or level none if it asks for nothing"
        )
    return Credentials(level=level, user=user, domain=domain or "", password=password)
