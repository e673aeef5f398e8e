"""Find the user of the process at the other end of a loopback connection.

A loopback port is open to every user of the host. The kernel knows the owner of each socket. Its
socket diagnostics (NETLINK_SOCK_DIAG, sock_diag(7)) return the owner for the two addresses and
ports of a connection.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_NLMSG_ERROR = 2
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBxI2s2s16s16sIII")
"""Format of inet_diag_req_v2: family, protocol, extensions, states, then the socket: ports,
addresses, interface, cookie.
"""
_ANSWER_UID = 4 + 48 + 12
"""Offset of the owner's user id in inet_diag_msg. The inode follows it.

Four bytes, the socket, and three counters precede it.
"""
_OWNER_AND_INODE = struct.Struct("=II")
_ALL_STATES = 0xFFFFFFFF
_NO_COOKIE = 0xFFFFFFFF
_ANSWER_MAX = 8_192


def owner_of_peer(connection: socket.socket) -> int | None:
    """Return the user id of the owner of the other end of a loopback connection.

    The kernel is asked, for at most a second. Return ``None`` if it does not know: the other end is
    not on this host, or is closed already.
    """
    try:
        here, there = connection.getsockname(), connection.getpeername()
        return _ask(connection.family, local=there, remote=here)
    except OSError:
        return None


def is_ours(user: int | None) -> bool:
    """Return whether ``user`` is the user of this process, or root.

    Such a user may do what this process may. The result is False for ``None``.
    """
    return user is not None and user in (0, os.geteuid())


def _ask(family: int, *, local: tuple[str, int], remote: tuple[str, int]) -> int | None:
    """Ask the kernel for the owner of the socket whose own address is ``local``.

    Return the owner's user id, or ``None`` if there is no such open socket. Raises :class:`OSError`
    if the kernel cannot be asked.
    """
    addresses = [_packed(each[0], family) for each in (local, remote)]
    ports = [struct.pack("!H", each[1]) for each in (local, remote)]
    wanted = _REQUEST.pack(
        family, socket.IPPROTO_TCP, 0, _ALL_STATES, *ports, *addresses, 0, _NO_COOKIE, _NO_COOKIE
    )
    message = (
        _HEADER.pack(_HEADER.size + len(wanted), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
        + wanted
    )
    with socket.socket(
        socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG
    ) as kernel:
        kernel.settimeout(1.0)
        kernel.send(message)
        answer = kernel.recv(_ANSWER_MAX)
    if (
        len(answer) < _HEADER.size + _ANSWER_UID + _OWNER_AND_INODE.size
        or _HEADER.unpack_from(answer)[1] == _NLMSG_ERROR
    ):
        return None
    user: int
    user, inode = _OWNER_AND_INODE.unpack_from(answer, _HEADER.size + _ANSWER_UID)
    # A closed socket has no owner, but the kernel reports root as its owner. Its inode is 0.
    return user if inode else None


def _packed(host: str, family: int) -> bytes:
    address = ipaddress.ip_address(host.partition("%")[0])
    if family == socket.AF_INET6 and isinstance(address, ipaddress.IPv4Address):
        address = ipaddress.IPv6Address(f"::ffff:{address}")
    return address.packed.ljust(16, b"\0")
