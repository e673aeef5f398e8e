"""Who holds a lease: enough about a process that the queue manager's host can tell whether it still lives.

A lease ends 60 s after its holder's last call, and at once when the holder's process on the queue manager's own host is
gone. A process id alone cannot say that: ids are used again, and a container counts its own. So a holder names the boot
of the kernel, the namespace its id belongs to, and the moment the process started; only when the first two are ours does
a missing process (or another start) mean "gone". Everything else means "only time will tell".
"""

from __future__ import annotations

import os
import socket
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

PURPOSE_LENGTH_MAX = 200
"""Characters of the purpose that are kept: it stands in one line of an error message."""

HOLDER_TEXT_LENGTH_MAX = 500
"""Characters of a holder that is plain text; longer ones are refused by the API."""


@cache
def _kernel() -> tuple[str, str]:
    """(boot id, process namespace) of this process; empty where the system has no ``/proc``."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip(), str(
            Path("/proc/self/ns/pid").readlink()
        )
    except OSError:
        return "", ""


def process_started_at(pid: int) -> str | None:
    """When the process began, in the kernel's ticks since boot; ``None`` if it does not exist or has ended (a zombie)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat[stat.rfind(b")") + 2 :].split()  # the command's name may hold spaces and brackets
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds, or asks for, a lease."""

    host: str
    """The host's name, for people."""
    boot: str
    """The kernel's boot id and process namespace; empty if the holder's system does not tell."""
    pid: int
    started: str
    """:func:`process_started_at`; empty if unknown."""
    purpose: str
    """What it is doing, for people: the query's name and id, or the command."""

    @classmethod
    def here(cls, purpose: str) -> Holder:
        """This process."""
        boot, namespace = _kernel()
        pid = os.getpid()
        return cls(
            host=socket.gethostname(),
            boot=f"{boot} {namespace}".strip(),
            pid=pid,
            started=process_started_at(pid) or "",
            purpose=purpose[:PURPOSE_LENGTH_MAX],
        )

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Holder:
        """The reverse of :meth:`as_dict`. Raises :class:`ValueError` for anything that is not one."""
        try:
            host, boot, pid, started, purpose = (
                value[key] for key in ("host", "boot", "pid", "started", "purpose")
            )
        except KeyError as error:
            raise ValueError(f"a holder needs {error}") from None
        texts = (host, boot, started, purpose)
        if (
            not all(isinstance(text, str) and len(text) <= HOLDER_TEXT_LENGTH_MAX for text in texts)
            or type(pid) is not int
        ):
            raise ValueError(
                "a holder is {host, boot, pid, started, purpose}: texts, and a number for pid"
            )
        return cls(host, boot, pid, started, purpose)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def is_gone(self) -> bool:
        """True only if the process was on this host, under this boot, and no longer runs."""
        boot, namespace = _kernel()
        if not boot or self.boot != f"{boot} {namespace}" or self.pid <= 0 or not self.started:
            return False
        return process_started_at(self.pid) != self.started

    def __str__(self) -> str:
        return f"{self.purpose} (process {self.pid} on {self.host})"
