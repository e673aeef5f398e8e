"""The call ept_map, which asks a host on which TCP port it serves an interface.

This module has the client's side and the server's side, in NDR. The documents are [MS-RPCE] 2.2.1.2
and C706 appendix O. The endpoint mapper listens at port 135. Since Windows Vista clients find
RemoteRead with ept_map; before, they used R_GetServerPort. Question and answer are *towers*. A
tower is a list of floors, and each floor names a layer:

    1 interface · 2 transfer syntax · 3 connection-oriented RPC
    4 TCP and its port · 5 IP and its address
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.mqrr.errors import BadStubError
from srmp_spark.mqrr.guids import guid_bytes, guid_text
from srmp_spark.mqrr.ndr.stub import need
from srmp_spark.mqrr.ndr.transfer_syntax import aligned
from srmp_spark.mqrr.rpc.binding import NDR_ID, SyntaxId
from srmp_spark.mqrr.rpc.limits import TOWER_MAX, TOWERS_MAX
from srmp_spark.mqrr.status import status_text

ENDPOINT_MAPPER = SyntaxId("e1af8308-5d1f-11c9-91a4-08002b14a0fa", 3)
ENDPOINT_MAPPER_PORT = 135
EPT_MAP = 3
"""Operation number (opnum) of ept_map."""
NOT_REGISTERED = 0x16C9A0D6
"""Status "There are no elements that satisfy the specified search criteria".

The host serves no RemoteRead.
"""
MAX_TOWERS = 4
"""Number of towers that a client requests.

A host serves an interface on one port, or on one port for each of its addresses.
"""

_SECTION = "C706 appendix L"
_U16, _U32 = Struct("<H"), Struct("<I")
_UUID_PROTOCOL, _RPC_CO, _TCP, _IP = 0x0D, 0x0B, 0x07, 0x09
_FLOORS_MAX = 16
"""Most floors of a tower; a tower with more is refused. Five floors are enough for TCP."""
_REFERENT = 0x00020000


class Tower(NamedTuple):
    """One address at which an interface is served over TCP."""

    interface: SyntaxId
    transfer_syntax: SyntaxId
    port: int
    address: bytes
    """Four bytes of an IPv4 address. Zeros mean the address at which the mapper was asked."""

    def encode(self) -> bytes:
        """Encode the tower as the octets of its floors."""
        floors = [
            (_syntax_floor(self.interface), _U16.pack(self.interface.version >> 16)),
            (_syntax_floor(self.transfer_syntax), _U16.pack(self.transfer_syntax.version >> 16)),
            (bytes([_RPC_CO]), _U16.pack(0)),
            (bytes([_TCP]), self.port.to_bytes(2, "big")),
            (bytes([_IP]), self.address),
        ]
        return _U16.pack(len(floors)) + b"".join(
            _U16.pack(len(left)) + left + _U16.pack(len(right)) + right for left, right in floors
        )


def _syntax_floor(syntax: SyntaxId) -> bytes:
    return bytes([_UUID_PROTOCOL]) + guid_bytes(syntax.uuid) + _U16.pack(syntax.version & 0xFFFF)


def parse_tower(octets: bytes) -> Tower | None:
    """Parse a tower over TCP. Return ``None`` if the tower describes another transport.

    Raises :class:`RemoteProtocolError` if the tower is cut, has too many floors, or has a field of
    another size.
    """
    _need(octets, 0, _U16.size)
    (count,) = _U16.unpack_from(octets)
    if count > _FLOORS_MAX:
        raise RemoteProtocolError(f"a tower of {count} floors", section=_SECTION)
    at = _U16.size
    floors = []
    for _ in range(count):
        sides = []
        for _ in range(2):
            _need(octets, at, _U16.size)
            (size,) = _U16.unpack_from(octets, at)
            at += _U16.size
            _need(octets, at, size)
            sides.append(octets[at : at + size])
            at += size
        floors.append(tuple(sides))
    if [left[:1] for left, _ in floors] != [
        bytes([kind]) for kind in (_UUID_PROTOCOL, _UUID_PROTOCOL, _RPC_CO, _TCP, _IP)
    ]:
        return None
    (interface, minor), (transfer, transfer_minor), _, (_, port), (_, address) = floors
    if len(port) != 2 or len(address) != 4:
        raise RemoteProtocolError(
            "a tower whose port or address has another size", section=_SECTION
        )
    return Tower(
        _floor_syntax(interface, minor),
        _floor_syntax(transfer, transfer_minor),
        int.from_bytes(port, "big"),
        bytes(address),
    )


def _floor_syntax(left: bytes, right: bytes) -> SyntaxId:
    if len(left) != 19 or len(right) != 2:
        raise RemoteProtocolError("a floor with a UUID has 19 and 2 bytes", section=_SECTION)
    return SyntaxId(guid_text(left[1:17]), _U16.unpack(left[17:])[0] | _U16.unpack(right)[0] << 16)


def _need(octets: bytes, at: int, size: int) -> None:
    if size > len(octets) - at:
        raise RemoteProtocolError(
            f"a tower needs {size} bytes at {at} and has {len(octets)}", section=_SECTION
        )


def encode_map_request(interface: SyntaxId) -> bytes:
    """Encode the stub of an ept_map that asks for ``interface`` in NDR over TCP."""
    octets = Tower(interface, NDR_ID, 0, bytes(4)).encode()
    stub = (
        _U32.pack(_REFERENT)
        + bytes(16)
        + _U32.pack(_REFERENT + 4)
        + _U32.pack(len(octets))
        + _U32.pack(len(octets))
        + octets
    )
    return stub + bytes(-len(stub) % 4) + bytes(20) + _U32.pack(MAX_TOWERS)


def decode_map_request(stub: bytes) -> Tower | None:
    """Decode the tower that a client asks for; return ``None`` for another transport.

    Raises :class:`BadStubError` or another :class:`RemoteProtocolError` if the stub is cut or
    inconsistent.
    """
    need(stub, 0, 4, "ept_map")
    at = 4 + (16 if _U32.unpack_from(stub)[0] else 0)
    need(stub, at, 12, "the tower of ept_map")
    referent, counted, length = (_U32.unpack_from(stub, at + 4 * number)[0] for number in range(3))
    if not referent or counted != length or length > TOWER_MAX:
        raise BadStubError(
            f"a tower of {length} bytes in an array of {counted}; the range ends at {TOWER_MAX}"
        )
    need(stub, at + 12, length, "the octets of a tower")
    need(stub, aligned(at + 12 + length, 4), 24, "what follows the tower of ept_map")
    return parse_tower(stub[at + 12 : at + 12 + length])


class MapResponse(NamedTuple):
    """The answer of an endpoint mapper."""

    towers: tuple[Tower, ...]
    """The towers over TCP; towers of other transports are left out."""
    status: int
    """0, or the reason why there is no tower, such as :data:`NOT_REGISTERED`."""

    def port(self, interface: SyntaxId) -> int | None:
        """Return the TCP port of the first tower for ``interface``; ``None`` if there is none."""
        return next(
            (tower.port for tower in self.towers if tower.interface == interface and tower.port),
            None,
        )

    def encode(self) -> bytes:
        """Encode the stub of the response."""
        count = len(self.towers)
        stub = bytes(20) + b"".join(map(_U32.pack, (count, MAX_TOWERS, 0, count)))
        stub += b"".join(_U32.pack(_REFERENT + 4 * number) for number in range(count))
        for tower in self.towers:
            octets = tower.encode()
            stub += _U32.pack(len(octets)) * 2 + octets
            stub += bytes(-len(stub) % 4)
        return stub + _U32.pack(self.status)

    def explain(self) -> str:
        """Return a text for the user that explains why there is no port."""
        if self.status == NOT_REGISTERED:
            return (
                "the endpoint mapper knows no RemoteRead on this host; is Message "
                "Queuing installed and running there?"
            )
        return f"the endpoint mapper answers {status_text(self.status)}"


def decode_map_response(stub: bytes) -> MapResponse:
    """Decode the stub of an ept_map response.

    Raises :class:`BadStubError` or another :class:`RemoteProtocolError` if the stub is cut or
    inconsistent.
    """
    need(stub, 0, 36, "ept_map")
    (count,) = _U32.unpack_from(stub, 20)
    most, offset, actual = (_U32.unpack_from(stub, at)[0] for at in (24, 28, 32))
    if count > TOWERS_MAX or actual != count or offset or actual > most:
        raise BadStubError(f"{count} towers, {actual} of them from {offset} on, of at most {most}")
    at = 36
    need(stub, at, 4 * count, "the pointers to towers")
    referents = [_U32.unpack_from(stub, at + 4 * number)[0] for number in range(count)]
    at += 4 * count
    towers = []
    for referent in referents:
        if not referent:
            continue
        at = aligned(at, 4)
        need(stub, at, 8, "a tower")
        counted, length = (_U32.unpack_from(stub, at + 4 * number)[0] for number in range(2))
        at += 8
        if counted != length or length > TOWER_MAX:
            raise BadStubError(
                f"a tower of {length} bytes in an array of {counted}; the range ends at {TOWER_MAX}"
            )
        need(stub, at, length, "the octets of a tower")
        tower = parse_tower(stub[at : at + length])
        if tower is not None:
            towers.append(tower)
        at += length
    at = aligned(at, 4)
    need(stub, at, 4, "the status of ept_map")
    return MapResponse(tuple(towers), _U32.unpack_from(stub, at)[0])
