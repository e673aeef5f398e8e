"""The listening sockets, and how many connections the process may have."""

from __future__ import annotations

import errno
import resource
import socket

from srmp_spark.errors import ConfigurationError
from srmp_spark.queue_manager.endpoint import Endpoint
from srmp_spark.queue_manager.http_limits import CONNECTIONS_MAX

BACKLOG = 2_048
"""Connections that wait to be accepted: a burst of senders after a restart. The kernel cuts it to net.core.somaxconn."""
DESCRIPTORS_RESERVED = 256
"""File descriptors for everything that is no SRMP connection: database, segments, API, receipts, reads."""


def bind(endpoint: Endpoint, flag: str) -> tuple[socket.socket, Endpoint]:
    """Bind, not listen yet; with the port that was picked. Raises :class:`ConfigurationError`."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigurationError(f"{flag} {endpoint.host}:{endpoint.port}: {error}") from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a restart must not wait for TIME_WAIT
        bound.bind(address)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise ConfigurationError(f"{flag} {endpoint.host}:{endpoint.port}: {error.strerror}{_hint(error, endpoint)}") from None
    return bound, endpoint._replace(port=bound.getsockname()[1])


def listen(bound: socket.socket, endpoint: Endpoint, flag: str) -> None:
    """Listen, where two may have bound one port and only one can. Raises :class:`ConfigurationError`.

    uvloop listens too, later, and says nothing of a failure: the port would be announced, and deaf.
    """
    try:
        bound.listen(BACKLOG)
    except OSError as error:
        raise ConfigurationError(f"{flag} {endpoint.host}:{endpoint.port}: {error.strerror}{_hint(error, endpoint)}") from None


def _hint(error: OSError, endpoint: Endpoint) -> str:
    if error.errno == errno.EADDRINUSE:
        return "; another process listens there; stop it or choose another port"
    if error.errno == errno.EACCES:
        return f"; ports below 1024 need CAP_NET_BIND_SERVICE, {endpoint.host}:8080 does not"
    return ""


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files as far as the system lets us; how many SRMP connections that allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS_MAX + DESCRIPTORS_RESERVED
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(16, min(CONNECTIONS_MAX, soft - DESCRIPTORS_RESERVED))
