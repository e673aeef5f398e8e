"""Find the names and addresses of this host, for a listener on 0.0.0.0.

Each of them in the ``<to>`` of a message means this host.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import socket
import struct
from pathlib import Path

_SIOCGIFADDR = 0x8915


def own_names() -> set[str]:
    """Return the names of this host and the addresses of its interfaces, in lower case."""
    return (
        {socket.gethostname().lower(), socket.getfqdn().lower()}
        | _ipv4_addresses()
        | _ipv6_addresses()
    )


def _ipv4_addresses() -> set[str]:
    found = set()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # The interface has no IPv4 address.
                answer = fcntl.ioctl(asking, _SIOCGIFADDR, struct.pack("256s", name[:15].encode()))
                found.add(socket.inet_ntoa(answer[20:24]))
    return found


def _ipv6_addresses() -> set[str]:
    try:
        lines = Path("/proc/net/if_inet6").read_text().splitlines()
    except OSError:  # The kernel has no IPv6.
        return set()
    return {str(ipaddress.IPv6Address(bytes.fromhex(line.split()[0]))) for line in lines}
