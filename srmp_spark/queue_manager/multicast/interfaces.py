"""Find a network interface by name or address: its IPv4 address and its MTU (Linux)."""

from __future__ import annotations

import fcntl
import socket
import struct
from ipaddress import IPv4Address
from typing import NamedTuple

from srmp_spark.errors import ConfigurationError

_SIOCGIFADDR, _SIOCGIFMTU = 0x8915, 0x8921
_IFREQ_BYTES = 256
_FLAG = "--pgm-interface"


class Interface(NamedTuple):
    """One network interface that multicast is sent from and received on."""

    name: str
    address: str
    mtu: int
    """Largest IP datagram, in octets."""
    number: int
    """Index of the interface in the kernel.

    An interface that is created again under the same name has another index, and sockets refer to
    the index alone.
    """


class InterfaceWatch:
    """Notices that a network interface disappeared, and that an equal one exists again.

    Equal means that it is found by the same name or address.

    A kernel drops the group memberships of sockets when an interface is deleted (a cable of a
    virtual machine, a container's network, a bond that is created again). The kernel reports
    nothing, so without this check the sockets would receive nothing for good.
    """

    def __init__(self, wanted: str, found: Interface | None = None) -> None:
        """Watch the interface ``wanted``, a name or address as :func:`find_interface` takes it.

        ``found`` is the interface that the sockets use now.
        """
        self._wanted = wanted
        self._used = found
        self.why_gone: str | None = None
        """Reason why no such interface exists now, or ``None`` if it exists."""

    def look(self) -> Interface | None:
        """Find the interface again; return it if it differs from the one in use, else ``None``.

        The result is ``None`` too if no such interface exists; :attr:`why_gone` then holds the
        reason. A changed MTU counts as no difference.
        """
        try:
            found = find_interface(self._wanted)
        except ConfigurationError as error:
            self.why_gone = str(error)
            return None
        self.why_gone = None
        used = self._used
        return None if used is not None and found[:2] + found[3:] == used[:2] + used[3:] else found

    def uses(self, interface: Interface) -> None:
        """Record that the sockets now use ``interface``. :meth:`look` compares with it."""
        self._used = interface


def find_interface(text: str) -> Interface:
    """Find a network interface of this machine by its name or its IPv4 address.

    ``text`` is such as ``eth0`` or ``10.0.0.1``. Raises :class:`ConfigurationError` if this machine
    has no such interface, or if the interface has no IPv4 address or no readable MTU.
    """
    known: list[str] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for index, name in socket.if_nameindex():
            address = _ask(asking, name, _SIOCGIFADDR)
            if address is None:
                if name == text:
                    raise ConfigurationError(f"{_FLAG} {text}: it has no IPv4 address")
                continue
            found = str(IPv4Address(address[20:24]))
            if text in (name, found) or (_is_loopback(text) and _is_loopback(found)):
                mtu = _ask(asking, name, _SIOCGIFMTU)
                if mtu is None:
                    raise ConfigurationError(f"{_FLAG} {text}: its MTU cannot be read")
                return Interface(
                    name,
                    text if _is_loopback(text) else found,
                    struct.unpack_from("i", mtu, 16)[0],
                    index,
                )
            known.append(f"{name} ({found})")
    raise ConfigurationError(
        f"{_FLAG} {text}: no such interface is up here; there are {', '.join(known) or 'none'}"
    )


def _is_loopback(text: str) -> bool:
    try:
        return IPv4Address(text).is_loopback
    except ValueError:
        return False


def _ask(asking: socket.socket, name: str, question: int) -> bytes | None:
    try:
        return fcntl.ioctl(asking, question, struct.pack(f"{_IFREQ_BYTES}s", name.encode()[:15]))
    except OSError:
        return None
