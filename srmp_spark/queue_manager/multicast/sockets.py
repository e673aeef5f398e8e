"""Sockets of PGM: IP protocol 113, or UDP with one port for all packets (Linux only).

asyncio's DatagramProtocol is not used. DatagramProtocol lost four packets of five at a rate that a
plain loop reads without loss. The owner of an :class:`Inlet` registers it as a reader of the loop.
:meth:`Inlet.read` then takes the datagrams of the kernel, a limited number at a time.

UDP packets are sent and received in packs where Linux supports packs. Packets of equal size are
sent by one ``sendmsg`` (UDP_SEGMENT), and packets that the kernel joined are received by one
``recvmsg`` (UDP_GRO). Raw IP supports no packs. ``sendmmsg`` and ``recvmmsg`` by ctypes are not
used: ``recvmmsg`` was tried, and saved 0.6 us of 9 us a packet.

An inlet is bound to a group, so it receives packets of that group only. The outlet of a source is
bound to the interface, so it receives the packets that are sent to this host alone. Several
processes of one host may have the same addresses. Each of these processes receives the packets that
are sent to the group. A UDP packet that is sent to the interface is received by one process only.
NAKs are multicast too ([MC-MQSRM] <3> of RFC 3208 6.3), so they reach the right process.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from srmp_spark.errors import ConfigurationError
from srmp_spark.pgm.wire.addresses import Nla, text_of
from srmp_spark.pgm.wire.limits import TPDU_MAX
from srmp_spark.pgm.wire.packets import PacketType
from srmp_spark.queue_manager.multicast.interfaces import Interface
from srmp_spark.queue_manager.multicast.kernel_filter import pass_only
from srmp_spark.queue_manager.multicast.settings import Encapsulation

PROTOCOL_PGM = 113
READ_MAX = 64
"""Most datagrams that are read in one turn of the loop, because other readers wait for the loop."""
READ_FIRST_SECONDS = 0.25
"""Longest time that due NAKs wait for unread datagrams, in seconds.

Without this delay a repair that was received but not read would be requested again. The source
would then send the repair again to a machine that is already busy. The 4 MB of the kernel's buffer
are read in less time.
"""
BUFFER_BYTES = 4_194_304
"""Receive buffer that the kernel is asked for, in bytes: 40 ms at 100 MB/s.

The kernel grants at most ``net.core.rmem_max``.
"""
UPSTREAM: Final = (PacketType.NAK, PacketType.SPMR)
"""Types of packets that receivers send to a group and that its source wants.

Packets of all other types are sent by sources.
"""
SEGMENTS_MAX = 44
"""Most packets of one ``sendmsg``. The kernel allows 64, and the sum must stay below 65,507 octets.
"""
PACK_OCTETS_MAX = 65_000
_UDP_SEGMENT: Final = 103
_UDP_GRO: Final = 104
_IP_MULTICAST_ALL: Final = 49
_ROUTER_ALERT = b"\x94\x04\x00\x00"
"""The Router Alert option of IPv4 (RFC 2113), as ``IP_OPTIONS`` takes it."""
_IPV4_OCTETS: Final = 4
_IP_HEADER_LENGTH = 0x0F
_WAIT = (errno.EAGAIN, errno.ENOBUFS)
_CANNOT_PACK = (errno.EINVAL, errno.EIO, errno.EOPNOTSUPP)
"""Error numbers of a kernel or an interface without UDP_SEGMENT."""

CAP_NET_RAW_HINT = (
    "--pgm raw is IP protocol 113, which Linux allows to root and with CAP_NET_RAW only: "
    "add it (systemd: "
    "AmbientCapabilities=CAP_NET_RAW; docker: --cap-add NET_RAW), or use --pgm udp:PORT "
    "where no Windows machine takes part"
)


def _open(encapsulation: Encapsulation) -> socket.socket:
    try:
        if encapsulation.udp_port is None:
            opened = socket.socket(socket.AF_INET, socket.SOCK_RAW, PROTOCOL_PGM)
        else:
            opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    except PermissionError:
        raise ConfigurationError(CAP_NET_RAW_HINT) from None
    except OSError as error:
        raise ConfigurationError(f"--pgm {encapsulation}: {error}") from None
    opened.setblocking(False)
    return opened


class Inlet:
    """Receives PGM packets from one socket: those to a group, or those to one address."""

    def __init__(self, opened: socket.socket, *, is_raw: bool) -> None:
        self._socket = opened
        self._is_raw = is_raw
        self._buffer = bytearray(65_536)
        self.errors = 0
        """Number of reads that failed since the socket was opened."""
        self.is_behind = False
        """Whether the last read reached the limit of one turn, so that datagrams may be left."""

    @classmethod
    def of_group(
        cls,
        encapsulation: Encapsulation,
        interface: Interface,
        group: str,
        *,
        only: Sequence[PacketType] = (),
    ) -> Inlet:
        """Open an inlet that receives the packets sent to ``group``.

        ``only`` limits the packets to these types, where the kernel can filter. Raises
        :class:`ConfigurationError` if the group cannot be joined.
        """
        opened = _open(encapsulation)
        try:
            if only:
                pass_only(opened, only, is_raw=encapsulation.udp_port is None)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # OpenPGM sets this option, and a socket without it shares its port with no other
            # socket.
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
            # Receive only the groups that this socket joined, not those that other processes
            # joined.
            opened.setsockopt(socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
            if encapsulation.udp_port is not None:
                with contextlib.suppress(OSError):
                    # Linux before 5.0 does not have this option.
                    opened.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)
            opened.bind((group, encapsulation.udp_port or 0))
            member = struct.pack(
                "4s4si", socket.inet_aton(group), socket.inet_aton(interface.address), 0
            )
            opened.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
        except OSError as error:
            opened.close()
            raise ConfigurationError(
                f"group {group} cannot be joined on {interface.name} "
                f"({interface.address}): {error}; see --pgm-interface"
            ) from None
        return cls(opened, is_raw=encapsulation.udp_port is None)

    def fileno(self) -> int:
        """Return the file descriptor of the socket, to register it at the loop."""
        return self._socket.fileno()

    def read(self) -> list[tuple[bytes, Nla]]:
        """Read received datagrams without waiting; return their packets with the source addresses.

        One call reads at most :data:`READ_MAX` datagrams, and one datagram may hold several
        packets. The list is empty if no datagram has arrived. Sets :attr:`is_behind`. An error of
        the socket is only counted.
        """
        found: list[tuple[bytes, Nla]] = []
        receive, buffer = self._socket.recvmsg_into, self._buffer
        view = memoryview(buffer)
        host, source = "", b""
        self.is_behind = False
        for _ in range(READ_MAX):
            try:
                length, notes, _, address = receive((buffer,), 64)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                # The error reports an ICMP message about a packet that this host sent.
                self.errors += 1
                break
            if address[0] != host:
                host = address[0]
                source = socket.inet_aton(host)
            if self._is_raw:
                start = (buffer[0] & _IP_HEADER_LENGTH) * 4
                found.append((bytes(view[start:length]), source))
            elif notes and notes[0][1] == _UDP_GRO:
                size = struct.unpack_from("i", notes[0][2])[0] or length
                found.extend(
                    (bytes(view[at : min(at + size, length)]), source)
                    for at in range(0, length, size)
                )
            else:
                found.append((bytes(view[:length]), source))
        else:
            self.is_behind = True
        return found

    def close(self) -> None:
        """Close the socket, and thereby leave the group."""
        self._socket.close()


class _Datagrams(NamedTuple):
    """The packets of one ``sendmsg``."""

    router_alert: bool
    packets: Sequence[bytes]
    size: int
    """Octets of each packet except the last, if there are several packets."""
    to: tuple[str, int]


class Outlet:
    """Sends PGM packets from one interface to a group and to single hosts."""

    def __init__(
        self,
        encapsulation: Encapsulation,
        interface: Interface,
        group: str,
        ttl: int,
        *,
        is_source: bool,
        packs: bool = True,
    ) -> None:
        """Open the sockets that send from ``interface``.

        With ``is_source``, packets that the kernel does not accept wait for :meth:`flush`, and the
        caller must read :attr:`inlet`. Packets of a receiver are dropped instead, because a
        receiver asks again. ``packs`` allows UDP_SEGMENT. ``ttl`` is the number of hops. Raises
        :class:`ConfigurationError` if the sockets cannot be opened.
        """
        self._port = encapsulation.udp_port or 0
        self._group = (group, self._port)
        self._is_source = is_source
        self._packs = packs and encapsulation.udp_port is not None
        self._waiting: deque[_Datagrams] = deque()
        self.error: str | None = None
        """Reason why a ``sendmsg`` failed, or ``None``.

        A later ``sendmsg`` that succeeds clears it.

        A full buffer of the kernel is no failure.
        """
        self._encapsulation, self._ttl = encapsulation, ttl
        self._plain, self._alert = self._pair(interface)
        self.inlet = Inlet(self._plain, is_raw=encapsulation.udp_port is None)

    def reopen(self, interface: Interface) -> None:
        """Replace the sockets by ones that send from ``interface``.

        Packets that wait keep their order. :attr:`inlet` becomes a new object. Raises
        :class:`ConfigurationError` if the sockets cannot be opened; then the old ones stay.
        """
        plain, alert = self._pair(interface)
        self.close()
        self._plain, self._alert = plain, alert
        self.inlet = Inlet(plain, is_raw=self._encapsulation.udp_port is None)

    def _pair(self, interface: Interface) -> tuple[socket.socket, socket.socket]:
        """Open two sockets: one for packets with the Router Alert option, and one for all others.

        The result is (the socket for all others, the socket with the option). With UDP both
        elements are the same socket. Raises :class:`ConfigurationError` if a socket cannot be
        opened or bound.
        """
        encapsulation, is_source = self._encapsulation, self._is_source
        plain = self._opened(encapsulation, interface, self._ttl)
        alert = plain
        try:
            if encapsulation.udp_port is None:
                alert = self._opened(encapsulation, interface, self._ttl)
                alert.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, _ROUTER_ALERT)
                # This socket is never read, but the kernel would fill its buffer all the same.
                alert.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 0)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES if is_source else 0)
            for each in {plain, alert}:
                each.bind((interface.address, self._port if is_source else 0))
        except OSError as error:
            plain.close()
            alert.close()
            raise ConfigurationError(
                f"nothing can be sent from {interface.name} ({interface.address}): "
                f"{error}; see --pgm-interface"
            ) from None
        return plain, alert

    @staticmethod
    def _opened(encapsulation: Encapsulation, interface: Interface, ttl: int) -> socket.socket:
        made = _open(encapsulation)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, ttl)
        # Other queue managers of this host receive these packets too.
        made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
        by = struct.pack("4s4si", bytes(4), socket.inet_aton(interface.address), 0)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, by)
        return made

    def fileno(self) -> int:
        """Return the file descriptor of the socket, to register it at the loop."""
        return self._plain.fileno()

    @property
    def is_blocked(self) -> bool:
        """Return whether packets wait because the kernel did not accept them."""
        return bool(self._waiting)

    def multicast(self, packets: Sequence[bytes], *, router_alert: bool = False) -> None:
        """Send ``packets`` to the group, in this order.

        ``router_alert`` adds the Router Alert option of IP, except over UDP. A source keeps packets
        that the kernel does not accept for :meth:`flush`; a receiver drops them. A failure sets
        :attr:`error` and raises nothing.
        """
        at = 0
        while at < len(packets):
            end, size = at + 1, len(packets[at])
            if self._packs:
                most = min(at + min(SEGMENTS_MAX, max(1, PACK_OCTETS_MAX // size)), len(packets))
                while end < most and len(packets[end]) == size:
                    end += 1
                if end < most and len(packets[end]) < size:
                    # The last packet of a pack may be shorter.
                    end += 1
            self._send(_Datagrams(router_alert, packets[at:end], size, self._group))
            at = end

    def unicast(self, packet: bytes, to: Nla) -> None:
        """Send ``packet`` to the host ``to``, as :meth:`multicast`.

        These sockets speak IPv4 only: for any other address nothing is sent, and :attr:`error` is
        set.
        """
        if len(to) != _IPV4_OCTETS:
            self.error = f"{text_of(to)} is no IPv4 address"
            return
        self._send(_Datagrams(False, (packet,), len(packet), (socket.inet_ntoa(to), self._port)))

    def _send(self, datagrams: _Datagrams) -> None:
        if (self._waiting or not self._sent(datagrams)) and self._is_source:
            self._waiting.append(datagrams)

    def _sent(self, datagrams: _Datagrams) -> bool:
        router_alert, packets, size, to = datagrams
        sender = self._alert if router_alert else self._plain
        notes = (
            [(socket.IPPROTO_UDP, _UDP_SEGMENT, struct.pack("H", size))] if len(packets) > 1 else []
        )
        try:
            sender.sendmsg(packets, notes, 0, to)
        except OSError as error:
            if notes and error.errno in _CANNOT_PACK:
                self._packs = False
                sent = [
                    self._sent(_Datagrams(router_alert, (packet,), len(packet), to))
                    for packet in packets
                ]
                # The receivers request the other packets again.
                return any(sent)
            if error.errno not in _WAIT:
                self.error = error.strerror or str(error)
            return False
        self.error = None
        return True

    def flush(self) -> bool:
        """Send the waiting packets in order, until the kernel accepts one no longer.

        Return whether no packet waits any longer.
        """
        while self._waiting and self._sent(self._waiting[0]):
            self._waiting.popleft()
        return not self._waiting

    def close(self) -> None:
        """Close the sockets. The list of packets that wait for the kernel is kept."""
        self._plain.close()
        self._alert.close()


def tpdu_of(wanted: int, encapsulation: Encapsulation, interface: Interface) -> int:
    """Return the size of the largest PGM packet that may be sent from ``interface``, in octets.

    The size is ``wanted``, but at most TPDU_MAX, and at most the size that the interface sends in
    one datagram.
    """
    return min(wanted, TPDU_MAX, interface.mtu - encapsulation.headers)
