"""A network inside one process, in which every IP address belongs to this host.

The tests see each connection attempt, and no real host is contacted. The process moves into a
network namespace of its own with the single route ``local 0.0.0.0/0 dev lo`` (and ``::/0``). There
any address can be bound and connected to, a name server can listen on any address, and the kernel
counts each connection that was begun. This needs Linux, and root or a kernel that lets users create
namespaces.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_CLONE_NEWUSER = 0x1000_0000
_CLONE_NEWNET = 0x4000_0000
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1
_RTM_NEWROUTE = 24
_NLM_FLAGS = 0x1 | 0x4 | 0x200 | 0x400
"""NLM_F_REQUEST, NLM_F_ACK, NLM_F_EXCL and NLM_F_CREATE of rtnetlink(7)."""
_RT_TABLE_LOCAL = 255
_RTPROT_BOOT = 3
_RT_SCOPE_HOST = 254
_RTN_LOCAL = 2
_RTA_OIF = 4


def enter() -> None:
    """Move this process into a network in which every IP address belongs to this host.

    Call this function before the process starts threads. The process cannot leave the network.
    Raises :class:`OSError` if the system does not allow this.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    flags = _CLONE_NEWNET if os.geteuid() == 0 else _CLONE_NEWNET | _CLONE_NEWUSER
    if libc.unshare(flags):
        raise OSError(ctypes.get_errno(), "unshare")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
    index = socket.if_nametoindex("lo")
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as netlink:
        netlink.bind((0, 0))
        for family in (socket.AF_INET, socket.AF_INET6):
            route = struct.pack(
                "=BBBBBBBBI",
                family,
                0,
                0,
                0,
                _RT_TABLE_LOCAL,
                _RTPROT_BOOT,
                _RT_SCOPE_HOST,
                _RTN_LOCAL,
                0,
            )
            route += struct.pack("=HHI", 8, _RTA_OIF, index)
            netlink.send(
                struct.pack("=IHHII", 16 + len(route), _RTM_NEWROUTE, _NLM_FLAGS, 1, 0) + route
            )
            (error,) = struct.unpack_from("=i", netlink.recv(4_096), 16)
            if error:
                raise OSError(-error, "no route for every address")


def is_possible() -> bool:
    """Return whether :func:`enter` would succeed, by calling it in a child process."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with contextlib.suppress(OSError):
                enter()
                code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


def connections_begun() -> int:
    """Return the number of TCP connections that this network's processes began, answered or not.

    The number is ``ActiveOpens`` of the kernel, counted since :func:`enter`.
    """
    names, values = (
        line.split()
        for line in Path("/proc/self/net/snmp").read_text().splitlines()
        if line.startswith("Tcp:")
    )
    return int(values[names.index("ActiveOpens")])


class NameServer:
    """Answers A queries at the addresses of ``/etc/resolv.conf``, in threads.

    The threads run until the process ends. ``names`` maps each name to a list of answers, each a
    list of addresses. Each query gets the next answer, and the last answer repeats. A name that is
    not in ``names`` does not exist.
    """

    def __init__(self, names: Mapping[str, Sequence[Sequence[str]]]) -> None:
        self._names = names
        self.asked: Counter[str] = Counter()
        """Name → number of A queries for the name."""
        lines = [line.split() for line in Path("/etc/resolv.conf").read_text().splitlines()]
        for address in [line[1] for line in lines if line[:1] == ["nameserver"]] or ["127.0.0.1"]:
            bound = socket.socket(
                socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM
            )
            bound.bind((address, 53))
            threading.Thread(target=self._serve, args=(bound,), daemon=True).start()

    def _serve(self, bound: socket.socket) -> None:
        while True:
            query, peer = bound.recvfrom(4_096)
            bound.sendto(self._answer(query), peer)

    def _answer(self, query: bytes) -> bytes:
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1 : at + 1 + query[at]].decode("latin-1"))
            at += 1 + query[at]
        question = query[12 : at + 5]
        name, kind = ".".join(labels).lower(), query[at + 2]
        addresses: Sequence[str] = ()
        known = self._names.get(name)
        if known is not None and kind == 1:
            addresses = known[min(self.asked[name], len(known) - 1)]
            self.asked[name] += 1
        records = b"".join(
            b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x00\x00\x04" + socket.inet_aton(each)
            for each in addresses
        )
        flags = b"\x81\x80" if known is not None else b"\x81\x83"
        return (
            query[:2]
            + flags
            + b"\x00\x01"
            + struct.pack(">H", len(addresses))
            + bytes(4)
            + question
            + records
        )


class Called(NamedTuple):
    """One connection that was accepted by :class:`Everywhere`."""

    address: str
    port: int
    at: float
    """Time of the connection in monotonic seconds."""
    request: bytes


class Everywhere:
    """Listens on some ports of every address and records each request, until the process ends.

    A request whose first line contains ``redirect`` is answered 302, every other one 200.
    """

    def __init__(self, ports: Sequence[int]) -> None:
        self.calls: list[Called] = []
        for port in ports:
            for family, address in ((socket.AF_INET, ""), (socket.AF_INET6, "")):
                listening = socket.socket(family, socket.SOCK_STREAM)
                if family == socket.AF_INET6:
                    listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listening.bind((address, port))
                listening.listen(256)
                threading.Thread(target=self._serve, args=(listening,), daemon=True).start()

    def _serve(self, listening: socket.socket) -> None:
        while True:
            connection, _ = listening.accept()
            at = time.monotonic()
            threading.Thread(target=self._answer, args=(connection, at), daemon=True).start()

    def _answer(self, connection: socket.socket, at: float) -> None:
        request = b""
        with connection, contextlib.suppress(OSError):
            address, port = connection.getsockname()[:2]
            connection.settimeout(5)
            while b"</se:Envelope>" not in request and (data := connection.recv(65_536)):
                request += data
            self.calls.append(Called(address, port, at, request))
            redirect = b"redirect" in request.partition(b"\r\n")[0]
            status = b"302 Found\r\nLocation: http://10.1.1.1/elsewhere" if redirect else b"200 OK"
            connection.sendall(
                b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )
