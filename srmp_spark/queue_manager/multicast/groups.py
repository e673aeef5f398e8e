"""The sockets of one group: in the gateway, and at the start a look whether this machine lets us have them."""

from __future__ import annotations

from typing import NamedTuple

from srmp_spark.names import MulticastAddress
from srmp_spark.queue_manager.multicast.interfaces import Interface, find_interface
from srmp_spark.queue_manager.multicast.settings import PgmSettings
from srmp_spark.queue_manager.multicast.sockets import Inlet, Outlet

NAK_TTL = 1
"""RFC 3208 6.3: what receivers multicast stays in their network."""
_ANY_GROUP = "224.0.0.1"


class GroupSockets(NamedTuple):
    """What a listener needs of the system."""

    address: MulticastAddress
    interface: Interface
    inlet: Inlet
    outlet: Outlet

    def close(self) -> None:
        """Leave the group."""
        self.inlet.close()
        self.outlet.close()


def check_multicast(settings: PgmSettings) -> None:
    """Raise :class:`ConfigurationError` unless this process may speak PGM as it was told."""
    interface = find_interface(settings.interface)
    Outlet(settings.encapsulation, interface, _ANY_GROUP, settings.ttl, is_source=True).close()


def open_group(settings: PgmSettings, address: MulticastAddress) -> GroupSockets:
    """Join a group. Raises :class:`ConfigurationError`, and has not joined it then."""
    interface = find_interface(settings.interface)
    outlet = Outlet(settings.encapsulation, interface, address.group, NAK_TTL, is_source=False)
    try:
        inlet = Inlet.of_group(settings.encapsulation, interface, address.group)
    except BaseException:
        outlet.close()
        raise
    return GroupSockets(address, interface, inlet, outlet)
