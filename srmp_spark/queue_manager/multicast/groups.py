"""Open the sockets of one multicast group. Check whether this machine allows that."""

from __future__ import annotations

from typing import NamedTuple

from srmp_spark.names import MulticastAddress
from srmp_spark.queue_manager.multicast.interfaces import Interface, find_interface
from srmp_spark.queue_manager.multicast.settings import PgmSettings
from srmp_spark.queue_manager.multicast.sockets import Inlet, Outlet

NAK_TTL = 1
"""Hops of the packets that a receiver multicasts: the own network only (RFC 3208 6.3)."""
_ANY_GROUP = "224.0.0.1"


class GroupSockets(NamedTuple):
    """The sockets and the interface that a listener of one group uses."""

    address: MulticastAddress
    interface: Interface
    inlet: Inlet
    outlet: Outlet

    def close(self) -> None:
        """Close both sockets, and thereby leave the group."""
        self.inlet.close()
        self.outlet.close()


def check_multicast(settings: PgmSettings) -> None:
    """Check that this process may open the PGM sockets that ``settings`` ask for.

    A socket is opened and closed again. Raises :class:`ConfigurationError` if the interface is
    missing or the socket cannot be opened.
    """
    interface = find_interface(settings.interface)
    Outlet(settings.encapsulation, interface, _ANY_GROUP, settings.ttl, is_source=True).close()


def open_group(settings: PgmSettings, address: MulticastAddress) -> GroupSockets:
    """Join the multicast group of ``address``, and return its sockets and interface.

    Raises :class:`ConfigurationError` if the interface is missing or the group cannot be joined;
    then no socket stays open.
    """
    interface = find_interface(settings.interface)
    outlet = Outlet(settings.encapsulation, interface, address.group, NAK_TTL, is_source=False)
    try:
        inlet = Inlet.of_group(settings.encapsulation, interface, address.group)
    except BaseException:
        outlet.close()
        raise
    return GroupSockets(address, interface, inlet, outlet)
