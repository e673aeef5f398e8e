"""Subscriptions to queues of this queue manager must not form a circle: a message would come
again without end.

Theory of operation. Where a subscription leads is certain when its connection stands: to our own
RPC port, or not. So each connection is judged (:meth:`Circles.enter`), whatever name it was made
by. Connections that lead here are edges from the queue that is read to the queue that is filled,
and an edge that would close a circle is refused while the other edges are there. A subscription
that is added is judged before (:meth:`Circles.check`), so that the caller is told at once.

The journal of a queue counts as the queue: a message that is received from the queue is in its
journal. A connection that reaches us through address translation is not recognized.
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
from srmp_spark.queue_manager.endpoint import Endpoint
from srmp_spark.queue_manager.puller.subscriptions import Subscription

LOOKUP_SECONDS = 2.0
"""Longest wait for the addresses of a host before a subscription is added. Without them its first connection is judged."""


class CircleError(SrmpSparkError):
    """A subscription would close a circle."""


class Circles:
    """The subscriptions of this queue manager that read its own queues."""

    def __init__(self, endpoint: Endpoint | None, mapper: Endpoint | None = None) -> None:
        """``endpoint``: our RPC port, with the port that it got; ``mapper``: our endpoint mapper. None: there is none."""
        self._endpoint = endpoint
        self._mapper = mapper
        self._edges: dict[str, tuple[str, str]] = {}
        """The queue that is read and the queue that is filled, by the name of the subscription."""

    def enter(self, subscription: Subscription, address: tuple[str, int]) -> None:
        """Note where a subscription leads, whose connection stands. Raises :class:`CircleError`."""
        self._edges.pop(subscription.name, None)
        source = own_queue(subscription) if _is_at(self._endpoint, *address) else None
        if source is not None:
            self._check(source, subscription.to)
            self._edges[subscription.name] = source, subscription.to

    def leave(self, subscription: Subscription) -> None:
        """Forget a subscription that reads no more."""
        self._edges.pop(subscription.name, None)

    async def check(self, subscription: Subscription) -> None:
        """Judge a subscription that is about to be added, as far as its host tells. Raises :class:`CircleError`."""
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
        """Whether a host is this queue manager, by its address and port, or by our endpoint mapper."""
        asked = self._endpoint if host.port is not None else self._mapper
        port = ENDPOINT_MAPPER_PORT if host.port is None else host.port
        if asked is None or port != asked.port:
            return False
        try:
            looked_up = asyncio.get_running_loop().getaddrinfo(
                host.name, port, type=socket.SOCK_STREAM
            )
            found = await asyncio.wait_for(looked_up, LOOKUP_SECONDS)
        except (OSError, asyncio.TimeoutError):  # the first connection will tell
            return False
        return any(_is_at(asked, str(address[0]), port) for *_, address in found)

    def _check(self, source: str, to: str) -> None:
        ways = {to: [source, to]}
        """A way to each queue that is reached from ``source``."""
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
    """Return which queue of ours a subscription reads, should its host be this queue manager; None if none could be meant."""
    try:
        return canonical_queue_name(
            which_queue(subscription.format).name.removesuffix(JOURNAL_SUFFIX)
        )
    except (CannotOpenError, ValueError):
        return None


def _is_at(endpoint: Endpoint | None, address: str, port: int) -> bool:
    """Whether an address and a port are those that ``endpoint`` listens on."""
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
    """Whether an interface of this machine has an address: a datagram socket can be bound to no other one."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True
