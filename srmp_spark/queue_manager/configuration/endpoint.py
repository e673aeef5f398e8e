"""Parse the addresses on which a port listens."""

from __future__ import annotations

import ipaddress
import socket
from typing import NamedTuple

from srmp_spark.errors import ConfigurationError


class Endpoint(NamedTuple):
    """An address ``HOST:PORT`` to listen on."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """Parse ``HOST:PORT``. Port 0 picks a free port.

        Raises :class:`ConfigurationError` for any other text.
        """
        host, colon, port = text.rpartition(":")
        if (
            not colon
            or not port.isascii()
            or not port.isdigit()
            or int(port) > 65535
            or not host.strip("[]")
        ):
            raise ConfigurationError(
                f"expected HOST:PORT, got {text!r} (0.0.0.0:80 listens everywhere, port 0 "
                "picks a free one)"
            )
        return cls(host.strip("[]"), int(port))

    @property
    def is_loopback(self) -> bool:
        """Return whether only clients on this host can connect to the endpoint.

        A host name is looked up, which may block, and counts as loopback if all its addresses do.
        Raises :class:`ConfigurationError` if the name has no address.
        """
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            pass
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise ConfigurationError(
                f"{self.host} has no address: {error}; give a name or an address of this host"
            ) from None
        return all(
            ipaddress.ip_address(str(entry[4][0]).partition("%")[0]).is_loopback for entry in found
        )

    def url(self, scheme: str = "http") -> str:
        """Return the URL of the endpoint, ``scheme://HOST:PORT``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}"


class SchemedEndpoint(NamedTuple):
    """An address ``[https://]HOST:PORT`` to listen on: a port of plain HTTP or of HTTPS."""

    endpoint: Endpoint
    is_tls: bool = False

    @classmethod
    def parse(cls, text: str) -> SchemedEndpoint:
        """Parse ``HOST:PORT``, ``http://HOST:PORT`` or ``https://HOST:PORT``.

        Raises :class:`ConfigurationError` for any other text.
        """
        scheme, colon, rest = text.partition("://")
        if not colon:
            return cls(Endpoint.parse(text))
        if scheme not in ("http", "https"):
            raise ConfigurationError(f"expected [https://]HOST:PORT, got {text!r}")
        return cls(Endpoint.parse(rest.rstrip("/")), scheme == "https")

    def url(self) -> str:
        """Return the URL of the port, ``http://HOST:PORT`` or ``https://HOST:PORT``."""
        return self.endpoint.url("https" if self.is_tls else "http")
