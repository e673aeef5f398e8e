"""Which program a process that Spark started belongs to: the driver that a user knows, and can stop.

The driver-side reader runs in a child of the JVM (pyspark's daemon, or a worker), whose number says nothing to anybody.
Its ancestors do: the JVM, and the Python program that started the JVM. Read from ``/proc``, for people alone: nothing
decides by it, and where a system does not tell there is no text.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

ANCESTORS_MAX = 10
"""Parents that are looked at: worker, daemon, JVM, the program, and what a shell or a launcher adds."""
NAME_LENGTH_MAX = 60
"""Characters of a program's name: the whole purpose of a holder has 200."""
_APPLICATION = "spark.app.name="
_UNNAMED = "pyspark-shell"
"""What Spark calls an application without a name."""


class Process(NamedTuple):
    """One process, as far as its name is looked for."""

    pid: int
    parent: int
    arguments: Sequence[str]

    @property
    def program(self) -> str:
        """The name of the executable."""
        return Path(self.arguments[0]).name if self.arguments else ""

    @property
    def script(self) -> str | None:
        """The Python file that it runs."""
        return next((Path(each).name for each in self.arguments if each.endswith(".py")), None)

    @property
    def application(self) -> str | None:
        """The application's name, where the JVM was started with it."""
        given = [
            each.removeprefix(_APPLICATION)
            for each in self.arguments
            if each.startswith(_APPLICATION)
        ]
        return next((name for name in given if name and name != _UNNAMED), None)


def process(pid: int) -> Process | None:
    """A process of this machine; ``None`` if it is gone, is another user's, or the system has no ``/proc``."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    parent = int(
        stat[stat.rfind(b")") + 2 :].split()[1]
    )  # the command's name may hold spaces and brackets
    return Process(
        pid, parent, [part.decode("utf-8", "replace") for part in arguments.split(b"\0") if part]
    )


def of_driver(pid: int | None = None, look: Callable[[int], Process | None] = process) -> str:
    """`` of NAME (driver process N)`` for the process ``pid`` (default: this one), or nothing if no JVM is above it.

    NAME is the application's, else the script's; N the Python program that started the JVM, else the JVM. ``look`` reads
    one process.
    """
    above = look(os.getpid() if pid is None else pid)
    for _ in range(ANCESTORS_MAX):
        above = look(above.parent) if above is not None else None
        if above is None:
            return ""
        if above.program == "java":
            break
    else:
        return ""
    starter = look(above.parent)
    driver = starter if starter is not None and starter.program.startswith("python") else above
    name = above.application or driver.script or above.script
    known = "".join(c for c in name or "" if c.isprintable())[:NAME_LENGTH_MAX]
    return (
        f" of {known} (driver process {driver.pid})"
        if known
        else f" of driver process {driver.pid}"
    )
