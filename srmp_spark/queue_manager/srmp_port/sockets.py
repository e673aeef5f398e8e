"""Create the listening sockets, and divide the process's file descriptors between the ports."""

from __future__ import annotations

import errno
import logging
import resource
import socket
from typing import NamedTuple

from srmp_spark.errors import ConfigurationError
from srmp_spark.queue_manager.configuration.endpoint import Endpoint
from srmp_spark.queue_manager.srmp_port.http_limits import CONNECTIONS_MAX
from srmp_spark.queue_manager.srmp_port.port_limits import API_CONNECTIONS_MAX, RPC_CONNECTIONS_MAX

BACKLOG = 2_048
"""Most connections that wait to be accepted, for a burst of senders after a restart.

The kernel limits it to net.core.somaxconn.
"""
DESCRIPTORS_RESERVED = 256
"""File descriptors for everything that is no connection of a port: database, segments, pipes of the
child processes, reads.
"""
DESCRIPTORS_MIN = 64
"""Least descriptors for connections; fewer are an error at the start, because half a dozen senders
would fill a port.
"""

log = logging.getLogger(__name__)


def bind(endpoint: Endpoint, flag: str) -> tuple[socket.socket, Endpoint]:
    """Bind a socket without listening. Return it with its endpoint, which has the actual port.

    ``flag`` names the option in errors. A host name is looked up, which may block. Raises
    :class:`ConfigurationError` if that fails.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigurationError(f"{flag} {endpoint.host}:{endpoint.port}: {error}") from None
    try:
        # A restart must not wait for TIME_WAIT.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise ConfigurationError(
            f"{flag} {endpoint.host}:{endpoint.port}: {error.strerror}{_hint(error, endpoint)}"
        ) from None
    return bound, endpoint._replace(port=bound.getsockname()[1])


def listen(bound: socket.socket, endpoint: Endpoint, flag: str) -> None:
    """Listen on a bound socket.

    Raises :class:`ConfigurationError` if that fails. Two processes may have bound one port, but
    only one can listen. uvloop would listen too, later, and would hide a failure: the port would be
    announced and would accept nothing.
    """
    try:
        bound.listen(BACKLOG)
    except OSError as error:
        raise ConfigurationError(
            f"{flag} {endpoint.host}:{endpoint.port}: {error.strerror}{_hint(error, endpoint)}"
        ) from None


def _hint(error: OSError, endpoint: Endpoint) -> str:
    if error.errno == errno.EADDRINUSE:
        return "; another process listens there; stop it or choose another port"
    if error.errno == errno.EACCES:
        return f"; ports below 1024 need CAP_NET_BIND_SERVICE, {endpoint.host}:8080 does not"
    return ""


class Descriptors(NamedTuple):
    """The number of connections that each port may have.

    The sum for each process fits into its limit of open files.
    """

    srmp: int
    api: int
    """Connections of the API. The ports ``srmp`` and ``api`` belong to the main process."""
    rpc: int
    mapper: int
    """Connections of the endpoint mapper.

    The ports ``rpc`` and ``mapper`` belong to one gateway process.
    """
    wsrm: int
    """Connections of WS-ReliableMessaging, which has a gateway process of its own."""


DESCRIPTORS_WANTED = CONNECTIONS_MAX + API_CONNECTIONS_MAX + DESCRIPTORS_RESERVED
"""File descriptors with which every port may have as many connections as it has a limit for."""
FEW_DESCRIPTORS_ADVICE = "ports admit fewer connections; raise it: LimitNOFILE, ulimit -n"
"""Advice if the limit of open files is below DESCRIPTORS_WANTED."""


def reachable_descriptors() -> int:
    """Return the limit of open files that this process can give itself, or has already.

    Raises :class:`ConfigurationError` if the limit is too low for DESCRIPTORS_MIN connections.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < DESCRIPTORS_WANTED:
        most = DESCRIPTORS_WANTED
        soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
    if soft - DESCRIPTORS_RESERVED < DESCRIPTORS_MIN:
        raise ConfigurationError(
            f"the limit of open files is {soft}, and at least "
            f"{DESCRIPTORS_RESERVED + DESCRIPTORS_MIN} are needed: "
            f"ulimit -n {DESCRIPTORS_WANTED}, in a systemd unit "
            f"LimitNOFILE={DESCRIPTORS_WANTED}"
        )
    return soft


def share_descriptors(*, rpc: bool, mapper: bool) -> Descriptors:
    """Raise this process's soft limit of open files, and return how many each port may have.

    ``rpc`` and ``mapper`` state whether these ports are used. If the limit is too low for all ports
    of the main process, each port gets the same fraction of its wish, and a warning is logged. A
    gateway process inherits the limit and has descriptors of its own. Raises
    :class:`ConfigurationError` if the limit is too low for DESCRIPTORS_MIN connections.
    """
    total = DESCRIPTORS_WANTED - DESCRIPTORS_RESERVED
    limit = reachable_descriptors()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    available = limit - DESCRIPTORS_RESERVED
    if available < total:
        log.warning(
            'descriptors.few limit=%d wanted=%d because="%s"',
            limit,
            DESCRIPTORS_WANTED,
            FEW_DESCRIPTORS_ADVICE,
        )
    srmp, api = (
        each if available >= total else max(8, each * available // total)
        for each in (CONNECTIONS_MAX, API_CONNECTIONS_MAX)
    )
    of_each = min(RPC_CONNECTIONS_MAX, available // max(1, rpc + mapper))
    return Descriptors(
        srmp, api, of_each * rpc, of_each * mapper, wsrm=min(CONNECTIONS_MAX, available)
    )
