"""``srmp-spark``: the command line (INTERFACE.md section 2).

:mod:`srmp_spark.commands` has one module for each group of commands. Each module imports what a
command needs when the command runs, so that ``--help`` answers at once. Standard output carries
JSON lines and nothing else. An error is one line on standard error, and the process ends with an
exit code of INTERFACE.md.
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
    activate,
    backup,
    capture,
    doctor,
    jobs,
    messages,
    queue,
    queues,
    streams,
    subscribe,
)
from srmp_spark.commands.common import Commands
from srmp_spark.errors import SrmpSparkError, with_hint
from srmp_spark.extras import missing_module
from srmp_spark.interface import ExitCode, exit_code_of


class _Parser(argparse.ArgumentParser):
    """Parses arguments, accepts no abbreviated flags, and reports each error in one line.

    The line names the nearest known flag or command, and the process ends with exit code 2. The
    parsers of the commands have this class too, because argparse builds them from the class of
    their parent.
    """

    # argparse passes any settings.
    def __init__(self, **settings: Any) -> None:  # noqa: ANN401
        super().__init__(**{**settings, "allow_abbrev": False})

    # The types are those of argparse.
    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401
        """Parse the arguments, but report a misspelt flag first.

        Without this check argparse would report a required flag as missing instead.
        """
        words = sys.argv[1:] if args is None else list(args)
        for word in words:
            # The words after this one are values, or the flags of a command.
            if word == "--" or (self._subparsers is not None and not word.startswith("-")):
                break
            flag = word.partition("=")[0]
            if (
                flag.startswith("--")
                and " " not in word
                and flag not in self._option_string_actions
            ):
                self.error(f"unknown flag {flag}{self._nearest(flag, self._option_string_actions)}")
        return super().parse_known_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        """Print the error as one line on standard error and end the process with exit code 2."""
        command = re.match(r"argument (COMMAND|ACTION): invalid choice: '([^']*)'", message)
        if command is not None:
            name = command[2]
            known = next(
                action.choices
                for action in self._actions
                # argparse has no public name for this class.
                if isinstance(action, argparse._SubParsersAction)  # noqa: SLF001
            )
            message = f"unknown {command[1].lower()} {name}{self._nearest(name, known)}"
        line = with_hint(message, f"see {self.prog} --help")
        self.exit(ExitCode.USAGE, f"srmp-spark: {line}\n")

    @staticmethod
    def _nearest(name: str, known: Iterable[str]) -> str:
        close = difflib.get_close_matches(name, list(known), 1, 0.6)
        return f"; did you mean {close[0]}?" if close else ""


def parser(word: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of the command line, without ``serve`` if ``word`` is another command.

    The flags of ``serve`` need the whole configuration. Loading the configuration takes as long as
    loading everything else.
    """
    top, others = _without_serve()
    if word in others.choices:
        return top
    top, commands = _without_commands()
    from srmp_spark.commands import serve

    for module in (serve, *_OTHERS):
        module.add_commands(commands)
    return top


_OTHERS = (messages, queue, queues, streams, subscribe, doctor, capture, jobs, backup, activate)


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
    """Run one command and return its exit code.

    ``arguments`` are those of the command line if ``None``. Errors of the package are printed in
    one line on standard error. Raises :class:`SystemExit` for ``--help`` and for wrong arguments.
    """
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
    except BrokenPipeError:
        # The reader of standard output has ended ("| head"), so nobody could read an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _told(error: SrmpSparkError) -> int:
    """Print the error in one line on standard error and return its exit code.

    Line breaks in the error become blanks, because it may quote a file or a peer.
    """
    print("srmp-spark:", " ".join(str(error).split()), file=sys.stderr)
    return exit_code_of(type(error))


def main() -> NoReturn:
    """Run the console script and end the process with the exit code of its command."""
    sys.exit(run())


if __name__ == "__main__":
    main()
