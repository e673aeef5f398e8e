"""``srmp-spark``: the command line (INTERFACE.md section 2).

One module per group of commands below :mod:`srmp_spark.commands`. They import what they need when they run, so that
``--help`` answers at once. Standard output carries JSON lines and nothing else; errors are one line on standard error with
the exit codes of INTERFACE.md.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from srmp_spark import __version__
from srmp_spark.commands import (
    capture,
    doctor,
    jobs,
    messages,
    queues,
    restore,
    streams,
    subscribe,
)
from srmp_spark.commands.common import Commands
from srmp_spark.errors import SrmpSparkError, with_hint
from srmp_spark.extras import missing_module
from srmp_spark.interface import ExitCode, exit_code_of


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line with the nearest known name, exit code 2; takes no abbreviations of flags.

    The commands' parsers are of this class too: argparse makes them of their parent's.
    """

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401  # what argparse takes
        super().__init__(**{**settings, "allow_abbrev": False})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401  # as argparse has it
        """A misspelt flag first: argparse would rather speak of a required one that is missing."""
        words = sys.argv[1:] if args is None else list(args)
        for word in words:
            if word == "--" or (self._subparsers is not None and not word.startswith("-")):
                break  # behind it are values, or the flags of a command
            flag = word.partition("=")[0]
            if (
                flag.startswith("--")
                and " " not in word
                and flag not in self._option_string_actions
            ):
                self.error(f"unknown flag {flag}{self._nearest(flag, self._option_string_actions)}")
        return super().parse_known_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        """One line; exit code 2."""
        command = re.match(r"argument COMMAND: invalid choice: '([^']*)'", message)
        if command is not None:
            name = command[1]
            known = next(
                action.choices
                for action in self._actions
                if isinstance(action, argparse._SubParsersAction)  # noqa: SLF001  # no public name
            )
            message = f"unknown command {name}{self._nearest(name, known)}"
        line = with_hint(message, f"see {self.prog} --help")
        self.exit(ExitCode.USAGE, f"srmp-spark: {line}\n")

    @staticmethod
    def _nearest(name: str, known: Iterable[str]) -> str:
        close = difflib.get_close_matches(name, list(known), 1, 0.6)
        return f"; did you mean {close[0]}?" if close else ""


def parser(word: str | None = None) -> argparse.ArgumentParser:
    """Return the whole command line; without ``serve`` if ``word`` is another command.

    The flags of ``serve`` need the whole configuration, which takes as long to load as everything else.
    """
    top, others = _without_serve()
    if word in others.choices:
        return top
    top, commands = _without_commands()
    from srmp_spark.commands import serve

    for module in (serve, *_OTHERS):
        module.add_commands(commands)
    return top


_OTHERS = (messages, queues, streams, subscribe, doctor, capture, jobs, restore)


def _without_serve() -> tuple[argparse.ArgumentParser, Commands[Any]]:
    top, commands = _without_commands()
    for module in _OTHERS:
        module.add_commands(commands)
    return top, commands


def _without_commands() -> tuple[argparse.ArgumentParser, Commands[Any]]:
    top = _Parser(
        prog="srmp-spark",
        description="Microsoft Message Queuing (MSMQ) over SRMP: a queue manager that "
        "Spark reads from.",
        epilog="Exit codes: 0 done, 1 a check failed, 2 usage or configuration, 3 queue "
        "manager not reachable, 4 refused, "
        "5 data directory in use, 6 data directory damaged or newer.",
    )
    top.add_argument("--version", action="version", version=f"srmp-spark {__version__}")
    return top, top.add_subparsers(dest="command", metavar="COMMAND", required=True)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        parsed = parser(words[0] if words else None).parse_args(words)
        return int(parsed.run(parsed))
    except SrmpSparkError as error:
        return _told(error)
    except ModuleNotFoundError as error:
        missing = missing_module(error)
        if missing is None:
            raise
        return _told(missing)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output is gone ("| head"): nobody is left to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _told(error: SrmpSparkError) -> int:
    """Print the error in one line, whatever a file or a peer said, and return its exit code."""
    print("srmp-spark:", " ".join(str(error).split()), file=sys.stderr)
    return exit_code_of(type(error))


def main() -> NoReturn:
    """The console script."""
    sys.exit(run())


if __name__ == "__main__":
    main()
