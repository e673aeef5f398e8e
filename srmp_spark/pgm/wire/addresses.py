"""Transport session identifiers (RFC 3208 3.2) and network-layer addresses (NLA)."""

from __future__ import annotations

from ipaddress import ip_address
from typing import NamedTuple

from srmp_spark.errors import ConfigurationError

Nla = bytes
"""A network-layer address as it is in a packet: 4 octets of IPv4 or 16 of IPv6."""

GSI_LENGTH = 6


def nla_of(text: str) -> Nla:
    """Convert an IP address as text, such as ``192.0.2.7`` or ``2001:db8::7``, to an NLA.

    Raises :class:`ConfigurationError` if ``text`` is not an IP address.
    """
    try:
        return ip_address(text).packed
    except ValueError:
        raise ConfigurationError(
            f"{text!r} is not an IP address; name the interface by its address"
        ) from None


def text_of(nla: Nla) -> str:
    """Return an NLA as text for users, such as ``192.0.2.7``.

    Raises :class:`ValueError` if the NLA has neither 4 nor 16 octets.
    """
    return str(ip_address(nla))


def is_unicast(nla: Nla) -> bool:
    """Return whether ``nla`` can be the address of one host.

    A group, the broadcast address and "this host" are not addresses of one host.
    """
    address = ip_address(nla)
    return not (address.is_multicast or address.is_unspecified or nla == b"\xff" * 4)


class Tsi(NamedTuple):
    """The transport session identifier: global source identifier and source port.

    The RFC calls it "a source-assigned TSI".
    """

    gsi: bytes
    source_port: int

    def __str__(self) -> str:
        return f"{self.gsi.hex()}.{self.source_port}"


class SessionKey(NamedTuple):
    """Identifies a session at a receiver: the address of the source and its TSI.

    The address is needed because libzmq's GSI was identical in every run that was seen, so two of
    its sources can have one TSI.
    """

    source: Nla
    tsi: Tsi

    def __str__(self) -> str:
        return f"{self.tsi}@{text_of(self.source)}"
