"""``srmp-spark``: the command line (INTERFACE.md section 2).

One module per group of commands below :mod:`srmp_spark.commands`. They import what they need when they run, so that
``--help`` answers at once. Standard output carries JSON lines and nothing else; errors are one line on standard error with
the exit codes of INTERFACE.md.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from srmp_spark import __version__
from srmp_spark.commands import capture, doctor, messages, queues, serve
from srmp_spark.errors import (
    ApiError,
    ApiUnreachableError,
    ConfigurationError,
    SrmpSparkError,
    StoreDamagedError,
    StoreError,
    StoreInUseError,
    StoreSyncError,
)

EXIT_CHECK_FAILED = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3
EXIT_REFUSED = 4
EXIT_IN_USE = 5
EXIT_DAMAGED = 6

_EXIT_CODES: tuple[tuple[type[SrmpSparkError], int], ...] = (
    (ConfigurationError, EXIT_USAGE),
    (ApiUnreachableError, EXIT_UNREACHABLE),
    (ApiError, EXIT_REFUSED),
    (StoreInUseError, EXIT_IN_USE),
    (StoreDamagedError, EXIT_DAMAGED),
    (StoreSyncError, EXIT_CHECK_FAILED),
    (StoreError, EXIT_USAGE),
)
"""The first that fits; any other error of ours is a failed check."""


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="srmp-spark",
        description="Microsoft Message Queuing (MSMQ) over SRMP: a queue manager that Spark reads from.",
        epilog="Exit codes: 0 done, 1 a check failed, 2 usage or configuration, 3 queue manager not reachable, 4 refused, "
        "5 data directory in use, 6 data directory damaged or newer.",
    )
    top.add_argument("--version", action="version", version=f"srmp-spark {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in (serve, messages, queues, doctor, capture):
        module.add_commands(commands)
    return top


def exit_code_of(error: SrmpSparkError) -> int:
    """The exit code that INTERFACE.md gives an error."""
    return next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), EXIT_CHECK_FAILED)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    parsed = parser().parse_args(arguments)
    try:
        return int(parsed.run(parsed))
    except SrmpSparkError as error:
        print(f"srmp-spark: {error}", file=sys.stderr)
        return exit_code_of(error)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output is gone ("| head"): nobody is left to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def main() -> NoReturn:
    """The console script."""
    sys.exit(run())


if __name__ == "__main__":
    main()
