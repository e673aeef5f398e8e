"""The host of a remote queue as users write it: ``HOST`` or ``HOST:PORT``."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

from srmp_spark.errors import ConfigurationError

_NEVER_IN_A_HOST = "/\\@ ?#;,"


class RemoteHost(NamedTuple):
    """Where a queue manager is."""

    name: str
    """In small letters, an IPv6 address without brackets."""
    port: int | None
    """``None``: what its endpoint mapper says."""

    @property
    def text(self) -> str:
        """``HOST`` or ``HOST:PORT``."""
        return self.name if self.port is None else f"{self.name}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether it is this machine, by its address or ``localhost``."""
        try:
            return ipaddress.ip_address(self.name).is_loopback
        except ValueError:
            return self.name == "localhost"


def parse_remote_host(where: str, text: str) -> RemoteHost:
    """Raises :class:`ConfigurationError`; ``where`` says of what."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or "]" in port:
        host, port = text.strip(), ""
    host = host.strip("[]").lower()
    numeric = port.isascii() and port.isdigit() and 0 < int(port) < 65536
    if (
        not host
        or any(sign in host for sign in _NEVER_IN_A_HOST)
        or (port and not numeric)
        or (colon and not port and not host)
    ):
        raise ConfigurationError(
            f"{where}: host is HOST or HOST:PORT of the queue manager to read from, got {text!r}"
        )
    return RemoteHost(host, int(port) if port else None)
