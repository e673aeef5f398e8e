"""Ports that stay ours while nobody listens on them.

A server that is killed and started again leaves its port free for a moment. If the kernel had chosen that port (bind to 0), it
may give it to the next who asks, also as the source of a connection: the restart fails, or somebody else's server answers a
peer 200 for what was never stored, and the test blames the program. So these lie below the range from which kernels choose.
"""

from __future__ import annotations

import os
import random
import socket
import weakref

LOWEST, HIGHEST = 20_000, 32_000
"""Above the well-known ports, below 32768, where Linux begins to choose (``ip_local_port_range``)."""
GUARD = "\0srmp-spark-test-port-{}"
"""Name of an abstract Unix socket: whichever of our processes has bound it owns the port, on every address."""
TRIES_MAX = 200
"""Ports in use that are met by chance before we give up: there are twelve thousand."""


class KeptPort:
    """A free port that no other process of ours takes as long as this object lives."""

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
"""Those that nobody holds: as long as this process lives."""


def kept_port(host: str = "127.0.0.1") -> int:
    """The number of a :class:`KeptPort` that is ours until this process ends; for UDP as well."""
    _KEPT.append(KeptPort(host))
    return _KEPT[-1].number


def _bind(family: socket.AddressFamily, address: str | tuple[str, int]) -> int | None:
    """A descriptor of a socket that has this address, or ``None``."""
    made = socket.socket(family)
    try:
        made.bind(address)
    except OSError:
        made.close()
        return None
    return made.detach()
