"""Two hosts on one wire without root: two network namespaces joined by a veth pair.

    python -m tests.kit.pgm.two_hosts COMMAND …     # runs COMMAND in a new namespace

Both namespaces are in one user namespace (``unshare -rn``). Inside, :class:`TwoHosts` makes the
second host. Losses are nftables rules on the receiving host: they drop packets that the other side
sent. A batch of packets sent with UDP_SEGMENT crosses a veth pair as one packet. The option
``gso_max_segs 1`` splits the batch first, so that the rules see single packets.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

HERE, THERE = "10.99.0.1", "10.99.0.2"
TOOLS = ("unshare", "nsenter", "ip", "nft")
_INSIDE = "SRMP_SPARK_TWO_HOSTS"
READY_SECONDS = 10.0

RULES = {
    "none": (),
    "1 %": ("numgen random mod 1000 < 10 drop",),
    "5 %": ("numgen random mod 1000 < 50 drop",),
    "every 10th": ("numgen inc mod 10 0 drop",),
    "one ODATA": ("{type} 0x04 {number} 3 drop",),
    "every NCF": ("{type} 0x0a drop", "{type} 0x04 numgen inc mod 10 3 drop"),
    "first RDATA": ("{type} 0x05 numgen inc mod 2 0 drop", "{type} 0x04 numgen inc mod 10 3 drop"),
}
"""Name of a loss → its nftables expressions.

The rules that drop NCFs or RDATA also drop every tenth ODATA, because without lost data no NCF or
RDATA is sent.
"""


def missing_tools() -> list[str]:
    """Return the names of the required tools that this machine lacks."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


def is_inside() -> bool:
    """Return whether this process runs in a network namespace of its own."""
    return os.environ.get(_INSIDE) == "1"


def may_unshare() -> bool:
    """Return whether the kernel allows this user to create a network namespace."""
    # ``unshare`` is a program of the system.
    done = subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False)  # noqa: S607
    return done.returncode == 0


def inside(command: list[str]) -> list[str]:
    """Return the command line that runs ``command`` in a network namespace of its own."""
    return ["unshare", "-rn", "env", f"{_INSIDE}=1", *command]


def _run(*command: str) -> None:
    # All arguments are written in this module.
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


class TwoHosts:
    """Joins this namespace with a second one. Use it as ``with TwoHosts() as hosts: …``.

    Raises :class:`AssertionError` outside a namespace of :func:`inside`, and :class:`RuntimeError`
    if the second host cannot be made.
    """

    def __init__(self) -> None:
        assert is_inside(), "run it by two_hosts.inside()"
        self._holder: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> TwoHosts:
        # ``unshare`` is a program of the system.
        self._holder = holder = subprocess.Popen(["unshare", "-n", "sleep", "86400"])  # noqa: S607
        ours, end = Path("/proc/self/ns/net").readlink(), time.monotonic() + READY_SECONDS
        while Path(f"/proc/{holder.pid}/ns/net").readlink() == ours:
            if time.monotonic() > end:
                raise RuntimeError("no second namespace")
            time.sleep(0.01)
        _run(
            "ip",
            "link",
            "add",
            "va",
            "type",
            "veth",
            "peer",
            "name",
            "vb",
            "netns",
            str(holder.pid),
        )
        for name, address, there in (("va", HERE, []), ("vb", THERE, self.there())):
            _run(*there, "ip", "addr", "add", f"{address}/24", "dev", name)
            _run(*there, "ip", "link", "set", "lo", "up")
            _run(*there, "ip", "link", "set", name, "gso_max_segs", "1")
            _run(*there, "ip", "link", "set", name, "up")
            _run(*there, "ip", "route", "add", "224.0.0.0/4", "dev", name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._holder is not None:
            self._holder.kill()
            self._holder.wait()

    def there(self) -> list[str]:
        """Return the beginning of a command line that runs the rest on the other host."""
        assert self._holder is not None
        return ["nsenter", "-t", str(self._holder.pid), "-n"]

    def lose(self, loss: str, udp_port: int | None, group: str, *, here: bool = False) -> None:
        """Replace the loss rules for packets to ``group`` on the receiving host.

        ``loss`` is a name of :data:`RULES`. ``udp_port`` is the port of UDP encapsulation, or
        ``None`` for raw PGM. With ``here`` the rules apply on this host instead of the other one.
        Raises :class:`RuntimeError` if ``nft`` refuses a rule.
        """
        at = [] if here else self.there()
        subprocess.run(  # noqa: S603
            [*at, "nft", "delete", "table", "ip", "loss"], capture_output=True, check=False
        )
        if not RULES[loss]:
            return
        _run(*at, "nft", "add", "table", "ip", "loss")
        _run(
            *at, "nft", "add chain ip loss arriving { type filter hook prerouting priority -300; }"
        )
        proto, header = (
            ("ip protocol 113", 0) if udp_port is None else (f"udp dport {udp_port}", 64)
        )
        fields = {"type": f"@th,{header + 32},8", "number": f"@th,{header + 128},32"}
        for rule in RULES[loss]:
            _run(
                *at,
                "nft",
                f"add rule ip loss arriving ip daddr {group} {proto} {rule.format(**fields)}",
            )


if __name__ == "__main__":
    # The command is the caller's own.
    sys.exit(subprocess.run(inside(sys.argv[1:]), check=False).returncode)  # noqa: S603
