"""Refuse subscriptions to own queues that form a circle: messages would circulate forever.

Theory of operation. Only an established connection proves whether a subscription leads to the RPC
port of this queue manager. So each connection is checked (:meth:`Circles.enter`), whatever name was
used to make it. A connection that leads to this queue manager is an edge from the queue that is
read to the queue that is filled. An edge that would close a circle is refused while the other edges
exist. A subscription that is about to be added is checked before (:meth:`Circles.check`), so that
the caller gets the error at once.

The journal of a queue counts as the queue itself, because a message that is received from the queue
is then in its journal. A connection through address translation is not recognized.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket

from srmp_spark.errors import SrmpSparkError
from srmp_spark.mqrr.remote_host import RemoteHost
from srmp_spark.mqrr.rpc.endpoint_mapper import ENDPOINT_MAPPER_PORT
from srmp_spark.mqrr.server.which_queue import JOURNAL_SUFFIX, CannotOpenError, which_queue
from srmp_spark.names import canonical_queue_name
from srmp_spark.queue_manager.configuration.endpoint import Endpoint
from srmp_spark.queue_manager.configuration.subscriptions import Subscription

LOOKUP_SECONDS = 2.0
"""Longest wait for the addresses of a host before a subscription is added, in seconds.

After that, the subscription is added and its first connection is checked.
"""


class CircleError(SrmpSparkError):
    """Raised when a subscription would close a circle of this queue manager's own queues."""


class Circles:
    """Records the subscriptions of this queue manager to its own queues, and refuses circles."""

    def __init__(self, endpoint: Endpoint | None, mapper: Endpoint | None = None) -> None:
        """Begin without subscriptions.

        ``endpoint`` is the RPC port of this queue manager, with its actual port number. ``mapper``
        is its endpoint mapper. None means that this process has none.
        """
        self._endpoint = endpoint
        self._mapper = mapper
        self._edges: dict[str, tuple[str, str]] = {}
        """For each subscription, by name: the queue that is read, and the queue that is filled."""

    def enter(self, subscription: Subscription, address: tuple[str, int]) -> None:
        """Record the ``address`` (IP address, port) that a subscription's connection has reached.

        The record is kept only if the address is that of this queue manager. Raises
        :class:`CircleError` if the subscription would close a circle; then it is not recorded.
        """
        self._edges.pop(subscription.name, None)
        source = own_queue(subscription) if _is_at(self._endpoint, *address) else None
        if source is not None:
            self._check(source, subscription.to)
            self._edges[subscription.name] = source, subscription.to

    def leave(self, subscription: Subscription) -> None:
        """Forget the record of a subscription, because it no longer reads."""
        self._edges.pop(subscription.name, None)

    async def check(self, subscription: Subscription) -> None:
        """Raise :class:`CircleError` if a subscription that is about to be added closes a circle.

        Nothing is raised if the host's address is not found within LOOKUP_SECONDS: :meth:`enter`
        then checks the first connection. Nothing is recorded.
        """
        source = own_queue(subscription)
        if source is None or not await self.leads_here(subscription.host):
            return
        before = self._edges.pop(subscription.name, None)
        try:
            self._check(source, subscription.to)
        finally:
            if before is not None:
                self._edges[subscription.name] = before

    async def leads_here(self, host: RemoteHost) -> bool:
        """Look up ``host``, and return whether it is this queue manager.

        The host is compared by address and port with the RPC port, or without a port with the
        endpoint mapper. Return False if its address is not found within LOOKUP_SECONDS.
        """
        asked = self._endpoint if host.port is not None else self._mapper
        port = ENDPOINT_MAPPER_PORT if host.port is None else host.port
        if asked is None or port != asked.port:
            return False
        try:
            looked_up = asyncio.get_running_loop().getaddrinfo(
                host.name, port, type=socket.SOCK_STREAM
            )
            found = await asyncio.wait_for(looked_up, LOOKUP_SECONDS)
        except (OSError, asyncio.TimeoutError):
            # The first connection will show the address.
            return False
        return any(_is_at(asked, str(address[0]), port) for *_, address in found)

    def _check(self, source: str, to: str) -> None:
        ways = {to: [source, to]}
        """A path from ``source`` to each queue that is reached."""
        reached = [to]
        for queue in reached:
            if queue == source:
                raise CircleError(
                    f"{' is read into '.join(ways[queue])}: each message would come again "
                    "without end, for the host is this "
                    "queue manager; give another `to`, or remove one of these subscriptions"
                )
            for read, filled in self._edges.values():
                if read == queue and filled not in ways:
                    ways[filled] = [*ways[queue], filled]
                    reached.append(filled)


def own_queue(subscription: Subscription) -> str | None:
    """Return the local queue that a subscription would read if its host is this queue manager.

    Whether the host is this queue manager is not checked. Return None if no local queue could be
    meant.
    """
    try:
        return canonical_queue_name(
            which_queue(subscription.format).name.removesuffix(JOURNAL_SUFFIX)
        )
    except (CannotOpenError, ValueError):
        return None


def _is_at(endpoint: Endpoint | None, address: str, port: int) -> bool:
    """Return whether a connection to this IP address and port reaches ``endpoint``."""
    if endpoint is None or port != endpoint.port:
        return False
    reached = _ip(address)
    listening = _ip(endpoint.host)
    if reached is None:
        return False
    if listening is not None and not listening.is_unspecified:
        return reached == listening
    return _is_of_this_machine(reached)


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, ipaddress.IPv6Address) else found


def _is_of_this_machine(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Return whether an interface of this machine has the address.

    The test binds a datagram socket, which is possible only for own addresses.
    """
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True
