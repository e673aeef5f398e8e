"""Keep ports reserved for this process while no socket listens on them.

A server that is killed and started again leaves its port free for a moment. If the kernel had
chosen that port (bind to 0), it may give the port to the next process that asks, also as the source
of a connection. Then the restart fails, or another test's server answers a peer 200 for a message
that was never stored, and the test blames the program. So the ports of this module are below the
range from which kernels choose.
"""

from __future__ import annotations

import os
import random
import socket
import weakref

LOWEST, HIGHEST = 20_000, 32_000
"""Range of the ports, without ``HIGHEST``: above the well-known ports, and below 32768.

At 32768 the range begins from which Linux chooses (``ip_local_port_range``).
"""
GUARD = "\0srmp-spark-test-port-{}"
"""Name of an abstract Unix socket for a port.

The process that has bound the socket owns the port, on every address. All processes of this
package's tests follow this rule.
"""
TRIES_MAX = 200
"""Most port numbers that are tried for one port. Then :class:`OSError` is raised.

About twelve thousand ports exist, so it is unlikely that so many tries find ports in use.
"""


class KeptPort:
    """Reserves a free port as long as this object lives. ``number`` is the port.

    No other object of this class gets the number, in this process or another. Nothing listens on
    the port; the owner opens it when needed. Raises :class:`OSError` if no free port is found on
    ``host``.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        for _ in range(TRIES_MAX):
            number = random.SystemRandom().randrange(LOWEST, HIGHEST)
            guard = _bind(socket.AF_UNIX, GUARD.format(number))
            if guard is None:
                continue
            probe = _bind(family, (host, number))
            if probe is not None:
                os.close(probe)
                self.number = number
                weakref.finalize(self, os.close, guard)
                return
            os.close(guard)
        raise OSError(f"no free port of {LOWEST} to {HIGHEST} on {host} in {TRIES_MAX} tries")

    def __repr__(self) -> str:
        return f"<KeptPort {self.number}>"


_KEPT: list[KeptPort] = []
"""Ports of :func:`kept_port`, which are reserved as long as this process lives."""


def kept_port(host: str = "127.0.0.1") -> int:
    """Reserve a port with :class:`KeptPort` until this process ends, and return its number.

    Use the number for TCP or UDP; only TCP is checked to be free. Raises :class:`OSError` if no
    free port is found.
    """
    _KEPT.append(KeptPort(host))
    return _KEPT[-1].number


def _bind(family: socket.AddressFamily, address: str | tuple[str, int]) -> int | None:
    """Return the file descriptor of a new stream socket that is bound to ``address``.

    Return ``None`` if the socket cannot be bound, usually because the address is in use. The caller
    closes the descriptor.
    """
    made = socket.socket(family)
    try:
        made.bind(address)
    except OSError:
        made.close()
        return None
    return made.detach()
