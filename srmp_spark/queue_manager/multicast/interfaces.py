"""A network interface by name or address: its IPv4 address and its MTU (Linux)."""

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
    """Where multicast goes out and comes in."""

    name: str
    address: str
    mtu: int
    """Octets of an IP datagram."""
    number: int
    """Its index: one that is made anew under the same name has another one, and sockets know the index alone."""


class InterfaceWatch:
    """Notices that an interface is gone, and that one of its name or address is there again.

    A kernel forgets what sockets had joined when an interface is deleted (a cable of a virtual machine, a
    container's network, a bond that is made anew), and says nothing: they would be deaf for good.
    """

    def __init__(self, wanted: str, found: Interface | None = None) -> None:
        """``wanted``: its name or address, as :func:`find_interface` takes it; ``found``: what the sockets are of."""
        self._wanted = wanted
        self._used = found
        self.why_gone: str | None = None
        """Why there is none now."""

    def look(self) -> Interface | None:
        """Return the interface that takes the place of the one in use; ``None`` while nothing has changed, or none is there."""
        try:
            found = find_interface(self._wanted)
        except ConfigurationError as error:
            self.why_gone = str(error)
            return None
        self.why_gone = None
        used = self._used
        return None if used is not None and found[:2] + found[3:] == used[:2] + used[3:] else found

    def uses(self, interface: Interface) -> None:
        """Compare with ``interface`` from now on."""
        self._used = interface


def find_interface(text: str) -> Interface:
    """``eth0`` or ``10.0.0.1``. Raises :class:`ConfigurationError` for one that is not here or has no IPv4 address."""
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
