"""The sockets of PGM: IP protocol 113, or UDP with one port for everything (Linux alone).

Not asyncio's DatagramProtocol, which lost four packets of five at a rate that a plain loop reads without loss: whoever owns an
:class:`Inlet` asks the loop when it is readable, and :meth:`Inlet.read` takes what is there, some packets at a time.

UDP goes and comes in packs where Linux can: equal packets leave by one ``sendmsg`` (UDP_SEGMENT), and what the kernel joined
comes by one ``recvmsg`` (UDP_GRO). Raw IP has neither. ``sendmmsg`` and ``recvmmsg`` by ctypes are not used:
the second one was tried, and saved 0.6 us a packet of 9.

An inlet is bound to a group, so nothing else comes by it; the outlet of a source is bound to the interface, so what is sent to
us alone comes by that. Several processes of one host may have the same: each gets what is sent to the group, but of UDP to the
interface only one gets a packet. NAKs are multicast too ([MC-MQSRM] <3> of RFC 3208 6.3), so they reach the right one.
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
from srmp_spark.pgm.addresses import Nla, text_of
from srmp_spark.pgm.limits import TPDU_MAX
from srmp_spark.pgm.packets import PacketType
from srmp_spark.queue_manager.multicast.interfaces import Interface
from srmp_spark.queue_manager.multicast.kernel_filter import pass_only
from srmp_spark.queue_manager.multicast.settings import Encapsulation

PROTOCOL_PGM = 113
READ_MAX = 64
"""Datagrams of one turn of the loop: others wait for it too."""
READ_FIRST_SECONDS = 0.25
"""How long NAKs that are due wait for what is not read yet: a repair that was not read was asked for again, and came again, on
a machine that was busy already. Its 4 MB are read in less."""
BUFFER_BYTES = 4_194_304
"""Asked of the kernel for what comes: 40 ms at 100 MB/s. It gives what net.core.rmem_max allows."""
UPSTREAM: Final = (PacketType.NAK, PacketType.SPMR)
"""What a source wants of its group: all else there is its own, or another source's."""
SEGMENTS_MAX = 44
"""Packets of one sendmsg: the kernel's limit is 64, and together they are below 65,507 octets."""
PACK_OCTETS_MAX = 65_000
_UDP_SEGMENT: Final = 103
_UDP_GRO: Final = 104
_IP_MULTICAST_ALL: Final = 49
_ROUTER_ALERT = b"\x94\x04\x00\x00"
"""RFC 2113."""
_IPV4_OCTETS: Final = 4
_IP_HEADER_LENGTH = 0x0F
_WAIT = (errno.EAGAIN, errno.ENOBUFS)
_CANNOT_PACK = (errno.EINVAL, errno.EIO, errno.EOPNOTSUPP)
"""What a kernel or an interface without UDP_SEGMENT says."""

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
    """Packets that come: of a group, or to the interface alone."""

    def __init__(self, opened: socket.socket, *, is_raw: bool) -> None:
        self._socket = opened
        self._is_raw = is_raw
        self._buffer = bytearray(65_536)
        self.errors = 0
        """Reads that failed."""
        self.is_behind = False
        """The last read took all that one turn may: more is in the kernel's buffer."""

    @classmethod
    def of_group(
        cls,
        encapsulation: Encapsulation,
        interface: Interface,
        group: str,
        *,
        only: Sequence[PacketType] = (),
    ) -> Inlet:
        """What is sent to ``group``; ``only``: these types, where the kernel can tell. Raises :class:`ConfigurationError`."""
        opened = _open(encapsulation)
        try:
            if only:
                pass_only(opened, only, is_raw=encapsulation.udp_port is None)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.setsockopt(
                socket.SOL_SOCKET, socket.SO_REUSEPORT, 1
            )  # OpenPGM has it, and one that has not shares with none
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
            opened.setsockopt(
                socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0
            )  # not what other processes have joined
            if encapsulation.udp_port is not None:
                with contextlib.suppress(OSError):  # before Linux 5.0 there is none
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
        """For the loop."""
        return self._socket.fileno()

    def read(self) -> list[tuple[bytes, Nla]]:
        """What has come, with the addresses that it came from: at most :data:`READ_MAX` datagrams."""
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
            except OSError:  # what an ICMP message said of something that we sent
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
        """Leave the group."""
        self._socket.close()


class _Datagrams(NamedTuple):
    """One ``sendmsg``."""

    router_alert: bool
    packets: Sequence[bytes]
    size: int
    """Of each packet but the last, if there are several."""
    to: tuple[str, int]


class Outlet:
    """Packets to a group, and to single hosts, from one interface."""

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
        """``is_source``: packets that the kernel does not take wait, and :attr:`inlet` is to be read; those of a receiver are
        dropped, for it asks again. ``packs``: by UDP_SEGMENT. Raises :class:`ConfigurationError`."""
        self._port = encapsulation.udp_port or 0
        self._group = (group, self._port)
        self._is_source = is_source
        self._packs = packs and encapsulation.udp_port is not None
        self._waiting: deque[_Datagrams] = deque()
        self.error: str | None = None
        """Why the last sending failed."""
        self._encapsulation, self._ttl = encapsulation, ttl
        self._plain, self._alert = self._pair(interface)
        self.inlet = Inlet(self._plain, is_raw=encapsulation.udp_port is None)

    def reopen(self, interface: Interface) -> None:
        """Send from ``interface`` from now on; what waits stays in its order. Raises :class:`ConfigurationError`, and nothing
        has changed then. :attr:`inlet` is another one."""
        plain, alert = self._pair(interface)
        self.close()
        self._plain, self._alert = plain, alert
        self.inlet = Inlet(plain, is_raw=self._encapsulation.udp_port is None)

    def _pair(self, interface: Interface) -> tuple[socket.socket, socket.socket]:
        """Open the socket for most packets, and the one for those with the Router Alert option."""
        encapsulation, is_source = self._encapsulation, self._is_source
        plain = self._opened(encapsulation, interface, self._ttl)
        alert = plain
        try:
            if encapsulation.udp_port is None:
                alert = self._opened(encapsulation, interface, self._ttl)
                alert.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, _ROUTER_ALERT)
                alert.setsockopt(
                    socket.SOL_SOCKET, socket.SO_RCVBUF, 0
                )  # nobody reads it, and it would get all the same
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
        made.setsockopt(
            socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1
        )  # other queue managers of this host hear us too
        by = struct.pack("4s4si", bytes(4), socket.inet_aton(interface.address), 0)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, by)
        return made

    def fileno(self) -> int:
        """For the loop."""
        return self._plain.fileno()

    @property
    def is_blocked(self) -> bool:
        """Whether packets wait: :meth:`flush` tries again."""
        return bool(self._waiting)

    def multicast(self, packets: Sequence[bytes], *, router_alert: bool = False) -> None:
        """Send to the group, in this order."""
        at = 0
        while at < len(packets):
            end, size = at + 1, len(packets[at])
            if self._packs:
                most = min(at + min(SEGMENTS_MAX, max(1, PACK_OCTETS_MAX // size)), len(packets))
                while end < most and len(packets[end]) == size:
                    end += 1
                if end < most and len(packets[end]) < size:
                    end += 1  # the last one of a pack may be shorter
            self._send(_Datagrams(router_alert, packets[at:end], size, self._group))
            at = end

    def unicast(self, packet: bytes, to: Nla) -> None:
        """Send to one host; to none that is not of IPv4, which is all that these sockets speak."""
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
                return any(sent)  # of the others the receivers ask again
            if error.errno not in _WAIT:
                self.error = error.strerror or str(error)
            return False
        self.error = None
        return True

    def flush(self) -> bool:
        """Try again what waits; whether all of it has left."""
        while self._waiting and self._sent(self._waiting[0]):
            self._waiting.popleft()
        return not self._waiting

    def close(self) -> None:
        """Nothing leaves any more."""
        self._plain.close()
        self._alert.close()


def tpdu_of(wanted: int, encapsulation: Encapsulation, interface: Interface) -> int:
    """The largest PGM packet: what was asked for, and no more than the interface takes in one datagram."""
    return min(wanted, TPDU_MAX, interface.mtu - encapsulation.headers)
