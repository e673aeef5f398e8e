"""Who holds a lease, described so that the queue manager can tell whether the holder still runs.

A lease ends 60 s after the last call of its holder. A lease ends at once when its holder was a
process on the queue manager's own host and this process has ended. A process id alone cannot show
this: process ids are used again, and a container has process ids of its own. A holder therefore
names the boot of the kernel, the namespace of its process id, and the time at which the process
started. A holder is "gone" only if boot and namespace are those of the queue manager, and no
process with this id and start time runs. In every other case only time ends the lease.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

PURPOSE_LENGTH_MAX = 200
"""Longest purpose of a holder, in characters.

A longer purpose is cut, because it is printed in one line of an error message.
"""

HOLDER_TEXT_LENGTH_MAX = 500
"""Longest text field of a holder, in characters. The API refuses longer texts."""

_FORM = "a holder is {host, boot, pid, started, purpose}: texts, and a number for pid"


@cache
def _kernel() -> tuple[str, str]:
    """Return the boot id of the kernel and the process namespace of this process.

    Boot id and namespace are empty on a system without ``/proc``.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip(), str(
            Path("/proc/self/ns/pid").readlink()
        )
    except OSError:
        return "", ""


def process_started_at(pid: int) -> str | None:
    """Return the time at which the process started, as a text in kernel ticks since boot.

    Return ``None`` if the process does not exist or is a zombie, or if the system has no ``/proc``.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name of the command may contain spaces and brackets, so the last bracket ends it.
    fields = stat[stat.rfind(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()


@dataclass(frozen=True, slots=True)
class Holder:
    """Describes a process that holds a lease or asks for a lease."""

    host: str
    """Name of the host, for people to read."""
    boot: str
    """Boot id of the kernel and process namespace; empty if the holder's system has neither."""
    pid: int
    started: str
    """Start time of the process, as :func:`process_started_at` returns it; empty if unknown."""
    purpose: str
    """Purpose of the process, for people to read: the name and id of the query, or the command."""

    @classmethod
    def here(cls, purpose: str) -> Holder:
        """Return the holder that describes this process."""
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
    def from_dict(cls, value: Mapping[str, object]) -> Holder:
        """Return the holder that :meth:`as_dict` encoded.

        Raises :class:`ValueError` if a field is missing, has a wrong type or is too long.
        """
        try:
            host, boot, started, purpose = (
                _text(value[key]) for key in ("host", "boot", "started", "purpose")
            )
            pid = value["pid"]
        except KeyError as error:
            raise ValueError(f"a holder needs {error}") from None
        if type(pid) is not int:
            raise ValueError(_FORM)
        return cls(host, boot, pid, started, purpose)

    def as_dict(self) -> dict[str, object]:
        """Return the holder as a dictionary for JSON."""
        return asdict(self)

    def is_gone(self) -> bool:
        """Return True if the process ran on this host, under this boot, and no longer runs.

        The result is False in every other case, also if it is unknown whether the process runs.
        """
        boot, namespace = _kernel()
        if not boot or self.boot != f"{boot} {namespace}" or self.pid <= 0 or not self.started:
            return False
        return process_started_at(self.pid) != self.started

    def __str__(self) -> str:
        return f"{self.purpose} (process {self.pid} on {self.host})"


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > HOLDER_TEXT_LENGTH_MAX:
        raise ValueError(_FORM)
    return value
