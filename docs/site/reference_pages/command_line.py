"""The page of the command line: every command with its arguments, from the parsers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from reference_pages.markdown import code, marked, paragraphs, table, whole_page
from srmp_spark.cli import parser

_INTRO = """\
`srmp-spark COMMAND --help` prints the same. Flags are not abbreviated. Standard output has one JSON
object a line, and nothing else; `--table` prints a table for people. On a terminal `peek`,
`queues`, `status`, `streams`, `consumers`, `doctor`, `subscribe` and `queue` print the table by
default; `--json` prints JSON there too. Errors are one line on standard error; [exit
codes](errors.md#exit-codes) say what kind of error it was."""


def _commands(command: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in command._actions:  # noqa: SLF001  # argparse has no public name for them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            return dict(action.choices)
    return {}


def _arguments(command: argparse.ArgumentParser) -> list[tuple[str, str, str]]:
    rows = []
    for action in command._actions:  # noqa: SLF001
        if isinstance(action, argparse._HelpAction | argparse._SubParsersAction):  # noqa: SLF001
            continue
        words = marked((action.help or "") % {"default": action.default, "prog": command.prog})
        flags = ", ".join(map(code, action.option_strings)) or code(_value(action))
        is_required = action.required and bool(action.option_strings)
        rows.append((flags, _value_cell(action), "required: " * is_required + words))
    return rows


def _value(action: argparse.Action) -> str:
    if action.metavar is not None:
        return action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar)
    return "|".join(map(str, action.choices)) if action.choices else action.dest.upper()


def _value_cell(action: argparse.Action) -> str:
    if not action.option_strings or action.nargs == 0:
        return ""
    default = action.default
    has_default = default not in (None, False, argparse.SUPPRESS, [])
    shown = f"; default {code(str(default))}" if has_default else ""
    return code(_value(action)) + ("" if "default" in (action.help or "") else shown)


def _command(name: str, command: argparse.ArgumentParser, depth: int) -> Iterator[str]:
    yield f"{'#' * depth} {name}"
    if command.description:
        yield paragraphs(command.description)
    rows = _arguments(command)
    if rows:
        yield table(("argument", "value", "meaning"), rows)
    if command.epilog:
        yield f"```text\n{command.epilog.strip()}\n```"
    for part, each in _commands(command).items():
        yield from _command(f"{name} {part}", each, depth + 1)


def _parts() -> Iterator[str]:
    top = parser()
    listed = next(
        action
        for action in top._actions  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction)  # noqa: SLF001
    )
    words = {each.dest: each.help or "" for each in listed._choices_actions}  # noqa: SLF001
    yield table(
        ("command", "what it does"),
        ((f"[`{name}`](#{name})", words.get(name, "")) for name in sorted(listed.choices)),
    )
    for name in sorted(listed.choices):
        yield from _command(name, listed.choices[name], 2)


def page() -> str:
    """Return the page."""
    return whole_page("Command line", _INTRO, _parts())
