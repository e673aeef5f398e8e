"""The host of a remote queue in the form that users write: ``HOST`` or ``HOST:PORT``."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

from srmp_spark.errors import ConfigurationError

_NEVER_IN_A_HOST = "/\\@ ?#;,"


class RemoteHost(NamedTuple):
    """The address of a remote queue manager."""

    name: str
    """Host name in lower case; an IPv6 address has no brackets."""
    port: int | None
    """Port of remote read; ``None`` means the port that the host's endpoint mapper names."""

    @property
    def text(self) -> str:
        """Return the address as ``HOST`` or ``HOST:PORT``."""
        return self.name if self.port is None else f"{self.name}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Return whether the host is this machine: a loopback address or ``localhost``."""
        try:
            return ipaddress.ip_address(self.name).is_loopback
        except ValueError:
            return self.name == "localhost"


def parse_remote_host(where: str, text: str) -> RemoteHost:
    """Parse ``HOST`` or ``HOST:PORT``. ``where`` names the option in the error.

    Raises :class:`ConfigurationError` if ``text`` has another form.
    """
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
