"""Find the program that a Spark process belongs to: the driver that a user knows and can stop.

The driver-side reader runs in a child process of the JVM (pyspark's daemon, or a worker), whose
process id tells a user nothing. The ancestors of this process are useful: the JVM, and the Python
program that started the JVM. The ancestors are read from ``/proc``, only to inform people. No
decision depends on the result, and on a system without ``/proc`` the text is empty.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

ANCESTORS_MAX = 10
"""Largest number of ancestors that are examined.

The ancestors are the worker, the daemon, the JVM, the program, and what a shell or a launcher adds.
"""
NAME_LENGTH_MAX = 60
"""Largest length of a program's name, in characters. Longer names are cut.

The whole purpose of a holder has 200 characters.
"""
_APPLICATION = "spark.app.name="
_UNNAMED = "pyspark-shell"
"""Spark's name for an application without a name."""


class Process(NamedTuple):
    """The facts about one process that are needed to find its name."""

    pid: int
    parent: int
    arguments: Sequence[str]

    @property
    def program(self) -> str:
        """Return the name of the executable."""
        return Path(self.arguments[0]).name if self.arguments else ""

    @property
    def script(self) -> str | None:
        """Return the name of the Python file that the process runs, or ``None``."""
        return next((Path(each).name for each in self.arguments if each.endswith(".py")), None)

    @property
    def application(self) -> str | None:
        """Return the name of the Spark application, or ``None``.

        The process has the name if it is a JVM that was started with it.
        """
        given = [
            each.removeprefix(_APPLICATION)
            for each in self.arguments
            if each.startswith(_APPLICATION)
        ]
        return next((name for name in given if name and name != _UNNAMED), None)


def process(pid: int) -> Process | None:
    """Read the facts about a process of this machine.

    Return ``None`` if the process has ended or belongs to another user, or if the system has no
    ``/proc``.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    # The name of the command may contain spaces and brackets.
    parent = int(stat[stat.rfind(b")") + 2 :].split()[1])
    return Process(
        pid, parent, [part.decode("utf-8", "replace") for part in arguments.split(b"\0") if part]
    )


def of_driver(pid: int | None = None, look: Callable[[int], Process | None] = process) -> str:
    """Return the text `` of NAME (driver process N)`` for the driver of a process.

    ``pid`` is the process; the default is this process. NAME is the name of the application, else
    of the script. N is the process id of the Python program that started the JVM, else of the JVM.
    The text is empty if no ancestor is a JVM. ``look`` is the function that reads one process.
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
