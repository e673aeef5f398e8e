"""Who and where: the transport session identifier (RFC 3208 3.2) and network-layer addresses."""

from __future__ import annotations

from ipaddress import ip_address
from typing import NamedTuple

from srmp_spark.errors import ConfigurationError

Nla = bytes
"""A network-layer address as it stands in a packet: 4 octets of IPv4 or 16 of IPv6."""

GSI_LENGTH = 6


def nla_of(text: str) -> Nla:
    """``192.0.2.7`` or ``2001:db8::7`` as an NLA. Raises :class:`ConfigurationError` for anything else."""
    try:
        return ip_address(text).packed
    except ValueError:
        raise ConfigurationError(
            f"{text!r} is no IP address; name the interface by its address"
        ) from None


def text_of(nla: Nla) -> str:
    """An NLA for people."""
    return str(ip_address(nla))


def is_unicast(nla: Nla) -> bool:
    """Whether it can be the address of one host: no group, no broadcast to all, not "this host"."""
    address = ip_address(nla)
    return not (address.is_multicast or address.is_unspecified or nla == b"\xff" * 4)


class Tsi(NamedTuple):
    """The transport session identifier: "a source-assigned TSI", global source identifier and source port."""

    gsi: bytes
    source_port: int

    def __str__(self) -> str:
        return f"{self.gsi.hex()}.{self.source_port}"


class SessionKey(NamedTuple):
    """A session as a receiver tells it from others.

    By its source's address too: libzmq's GSI was the same in every run that we saw, so two of its sources can have one TSI.
    """

    source: Nla
    tsi: Tsi

    def __str__(self) -> str:
        return f"{self.tsi}@{text_of(self.source)}"
