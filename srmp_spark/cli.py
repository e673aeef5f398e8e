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
from srmp_spark.commands import capture, doctor, messages, queues, replay, serve, streams
from srmp_spark.errors import SrmpSparkError
from srmp_spark.interface import exit_code_of


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
    for module in (serve, messages, queues, streams, doctor, capture, replay):
        module.add_commands(commands)
    return top


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    parsed = parser().parse_args(arguments)
    try:
        return int(parsed.run(parsed))
    except SrmpSparkError as error:
        print("srmp-spark:", " ".join(str(error).split()), file=sys.stderr)  # one line, whatever a file or a peer said
        return exit_code_of(type(error))
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
