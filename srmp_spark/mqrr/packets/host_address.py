"""The address of the host that a message was received from ([MS-MQRR] 2.2.5.1, 2.2.5.5).

The address is in 16 bytes of the UserHeader or in the ExtendedAddressHeader.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from struct import Struct

from srmp_spark.mqrr.packets.limits import NAMES_REMEMBERED, U16_MAX, U32_MAX
from srmp_spark.mqrr.packets.wire import fits

OVERLAY_SIZE = 16
_LAYOUT = Struct("<HHI")


class AddressType(IntEnum):
    """Kind of a host address: the AddressType field; other values are kept as numbers."""

    NONE = 0
    """No address: "This header MUST be ignored."
    """
    IPV4 = 1
    IPV6 = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAddress:
    """One address as the UserHeader (8 bytes) and the ExtendedAddressHeader (16 bytes) carry it."""

    length: int
    """AddressLength: bytes of the whole address, even if this object has only its first 8 bytes."""
    type: int
    scope: int = 0
    address: bytes

    @property
    def text(self) -> str | None:
        """Return the address as ``192.0.2.1`` or ``2001:db8:0:0:0:0:0:1``.

        Return ``None`` if the type is neither IPV4 nor IPV6, or if the bytes hold no whole address.
        """
        if self.type == AddressType.IPV4 and len(self.address) >= 4:
            return ".".join(map(str, self.address[:4]))
        if self.type == AddressType.IPV6 and len(self.address) >= 16:
            return ":".join(
                f"{self.address[i] << 8 | self.address[i + 1]:x}" for i in range(0, 16, 2)
            )
        return None

    def encode(self, size: int) -> bytes:
        """Encode AddressLength, AddressType, AddressScope and ``size`` bytes of the address.

        The result has ``size`` + 8 bytes. A longer address is cut to ``size`` bytes. A shorter
        address is filled with zeros. Raises :class:`LocalProtocolError` if a number does not fit
        into its field.
        """
        return _encode(self, size)


@lru_cache(NAMES_REMEMBERED)
def _encode(host: HostAddress, size: int) -> bytes:
    head = _LAYOUT.pack(
        fits(host.length, U16_MAX, "AddressLength"),
        fits(host.type, U16_MAX, "AddressType"),
        fits(host.scope, U32_MAX, "AddressScope"),
    )
    return head + host.address[:size].ljust(size, b"\0")


NO_ADDRESS = HostAddress(length=0, type=AddressType.NONE, address=b"")


def ip_address(packed: bytes, scope: int = 0) -> HostAddress:
    """Build a :class:`HostAddress` from an IPv4 address (4 bytes) or an IPv6 address (16 bytes).

    ``scope`` is the scope identifier of an IPv6 address (RFC 2553 3.3).
    """
    kind = AddressType.IPV4 if len(packed) == 4 else AddressType.IPV6
    return HostAddress(length=len(packed), type=kind, scope=scope, address=packed)


def parse_host_address(data: bytes) -> HostAddress:
    """Parse an address as :meth:`HostAddress.encode` writes it.

    All bytes of ``data`` after the first eight are the address. The caller has checked that there
    are at least eight bytes.
    """
    length, kind, scope = _LAYOUT.unpack_from(data)
    return HostAddress(length=length, type=kind, scope=scope, address=data[_LAYOUT.size :])
