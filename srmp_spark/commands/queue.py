"""``queue``: create, delete, pause, resume, trim and change one queue while ``serve`` runs."""

from __future__ import annotations

import argparse
import difflib
import shlex
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

from srmp_spark.commands.common import (
    Commands,
    add_command,
    add_connection_flags,
    connect,
    emit,
)
from srmp_spark.commands.queues import QUEUE_COLUMNS
from srmp_spark.errors import ConfigurationError
from srmp_spark.names import local_queue_name, split_queue_suffixes

_SETTINGS = ("journal",)
"""Settings that may change while a queue exists."""
_FIXED = {
    "transactional": "the kind of a queue is fixed: delete the queue, and create it with, or "
    "without, --transactional",
    "multicast": "a queue listens on a multicast address while serve runs: start it with "
    "serve --queue NAME:multicast=IP:PORT",
    "paused": "use srmp-spark queue pause NAME, or srmp-spark queue resume NAME",
    "name": "a queue keeps its name: create another one",
}
"""Properties that ``set`` cannot change, and what to do instead."""
_ON = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}

_DESCRIPTION = """\
Create, delete, pause, trim or change a queue while the queue manager runs.

Each change is on stable storage before the command ends, and survives a restart. docs/queues.md
explains every action, and what senders and readers notice."""

_EXAMPLES = """\
examples:
  srmp-spark queue create orders --transactional
  srmp-spark queue trim orders --received
  srmp-spark queue ACTION --help
`srmp-spark queues` lists all queues, `srmp-spark purge` discards rows that wait."""


class _Action(NamedTuple):
    """One action of the command: its texts, its flags, and the function that runs it."""

    name: str
    words: str
    description: str
    examples: str
    add_flags: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def add_commands(commands: Commands[Any]) -> None:
    """Add the command ``queue`` with its actions to ``commands``."""
    parser = add_command(
        commands,
        "queue",
        words="create, delete, pause, resume, trim or change one queue",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for each in _ACTIONS:
        action = add_command(
            actions,
            each.name,
            words=each.words,
            description=each.description,
            examples=each.examples,
        )
        action.add_argument("name", metavar="NAME", help="the queue, like private$/orders")
        each.add_flags(action)
        add_connection_flags(action, shows=True)
        action.set_defaults(run=each.run)


def _name(args: argparse.Namespace) -> str:
    """Return the canonical name that the user gave.

    Raises :class:`ConfigurationError` for a name that belongs to another command: a destination, or
    a name with the suffixes of ``serve --queue``.
    """
    text: str = args.name
    if "://" in text or text[:7].upper() == "DIRECT=":
        raise ConfigurationError(
            f"{text} is a destination, and no queue of this queue manager: "
            f"srmp-spark streams pause --destination {shlex.quote(text)} stops what is sent there"
        )
    base, suffixes = split_queue_suffixes(text)
    if suffixes:
        first = suffixes[0].partition("=")[0]
        instead = _FIXED["multicast"] if first == "multicast" else f"write {base} --{first}"
        raise ConfigurationError(f"{text}: suffixes are for serve --queue; {instead}")
    return local_queue_name(text)


def _told(text: str) -> None:
    print(f"srmp-spark: {text}", file=sys.stderr)


# --- create and set -------------------------------------------------------------------------------


def _create_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--transactional",
        action="store_true",
        help="the queue takes stream messages alone, each exactly once and in order",
    )
    parser.add_argument(
        "--journal",
        action="store_true",
        help="the queue keeps a journal of the rows that default received",
    )


def _create(args: argparse.Namespace) -> int:
    name = _name(args)
    found = connect(args).put_queue(
        name, only="create", transactional=args.transactional, journal=args.journal
    )
    emit([found], table=args.table, columns=QUEUE_COLUMNS)
    return 0


def _set_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "settings", metavar="KEY=VALUE", nargs="+", help="journal=on or journal=off"
    )


def _set(args: argparse.Namespace) -> int:
    settings = dict(map(_setting, args.settings))
    found = connect(args).put_queue(_name(args), only="change", **settings)
    emit([found], table=args.table, columns=QUEUE_COLUMNS)
    return 0


def _setting(text: str) -> tuple[str, bool]:
    """Return one ``KEY=VALUE``. Raises :class:`ConfigurationError` for a wrong key or value."""
    key, equals, value = text.partition("=")
    if key in _FIXED:
        raise ConfigurationError(f"{key} cannot be set: {_FIXED[key]}")
    if key not in _SETTINGS:
        close = difflib.get_close_matches(key, _SETTINGS, 1, 0.6)
        advice = f"did you mean {close[0]}?" if close else f"known: {', '.join(_SETTINGS)}"
        raise ConfigurationError(f"unknown setting {key!r} of a queue; {advice}")
    if not equals or value.lower() not in _ON:
        raise ConfigurationError(f"{key} is on or off: {key}=on")
    return key, _ON[value.lower()]


# --- delete ---------------------------------------------------------------------------------------


def _delete_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--force",
        action="store_true",
        help="delete the queue even if it is in use, with the rows that nobody has received",
    )


def _delete(args: argparse.Namespace) -> int:
    name = _name(args)
    done = connect(args).delete_queue(name, unused=not args.force)
    emit([done], table=args.table)
    if done["rows"]:
        _told(
            f"{done['rows']} rows of {name} that consumer default had not received were deleted "
            "with it; senders that asked for it are notified"
        )
    if done["configured"]:
        _told(
            f"the configuration of serve names {name}: the next start creates it again, empty. "
            "Take it out of --queue, `queue` or [[subscription]] to keep it deleted"
        )
    return 0


# --- pause and resume -----------------------------------------------------------------------------


def _pause_flags(parser: argparse.ArgumentParser) -> None:
    _add_direction(
        parser,
        "refuse new messages with 503, so that senders keep them (default)",
        "let readers that receive wait; messages are accepted",
    )


def _resume_flags(parser: argparse.ArgumentParser) -> None:
    _add_direction(parser, "accept messages again", "let readers receive again")


def _add_direction(parser: argparse.ArgumentParser, into: str, out: str) -> None:
    side = parser.add_mutually_exclusive_group()
    side.add_argument("--in", dest="direction", action="store_const", const="in", help=into)
    side.add_argument("--out", dest="direction", action="store_const", const="out", help=out)


def _pause(args: argparse.Namespace) -> int:
    emit([connect(args).pause(_name(args), args.direction)], table=args.table)
    return 0


def _resume(args: argparse.Namespace) -> int:
    emit([connect(args).resume(_name(args), args.direction)], table=args.table)
    return 0


# --- trim -----------------------------------------------------------------------------------------


def _trim_flags(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--received", action="store_true", help="the rows that every consumer has received"
    )
    which.add_argument(
        "--before",
        metavar="SEQUENCE|TIME",
        help="of these, the rows with a lower sequence, or that arrived before a time "
        "(2026-11-27T02:00:00Z; without a zone it is UTC)",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="with --before: also delete rows that a consumer has not received, or that the Delta "
        "state does not have",
    )


def _trim(args: argparse.Namespace) -> int:
    if args.force and args.received:
        raise ConfigurationError(
            "--force is for --before: --received never deletes a row that a consumer has not "
            "received"
        )
    name = _name(args)
    limits = {"received": True} if args.received else _before(args.before)
    done = connect(args).trim(name, force=args.force, **limits)
    emit([done], table=args.table)
    if done["lost"]:
        rows = ", ".join(f"{count} of {who}" for who, count in done["lost"].items())
        _told(f"rows of {name} were deleted that had not been received: {rows}")
    if (keeper := done["kept_for"]) is not None:
        _told(_why_kept(name, keeper["name"], keeper["received"]))
    return 0


def _why_kept(name: str, keeper: str, received: int) -> str:
    what = "has" if keeper.startswith("the Delta") else "has received"
    text = f"rows after {received} of {name} are kept: {keeper} {what} them up to {received}. "
    if keeper == "consumer default":
        return (
            f"{text}`srmp-spark purge --queue {shlex.quote(name)}` discards all that waits; if "
            "nobody receives as default, --before SEQUENCE --force deletes old rows"
        )
    if keeper.startswith("consumer ") and " of " not in keeper:
        consumer = keeper.removeprefix("consumer ")
        return (
            f"{text}If nobody reads as it any more: srmp-spark consumers {shlex.quote(name)} "
            f"--delete {shlex.quote(consumer)}"
        )
    return f"{text}--before SEQUENCE --force deletes them all the same"


def _before(text: str) -> dict[str, int]:
    """Return the limit that ``--before`` names, as arguments of the call.

    Raises :class:`ConfigurationError` if it is neither a sequence nor a time.
    """
    if text.isascii() and text.isdigit() and len(text) < 19:
        return {"before": int(text)}
    from srmp_spark.jobs.selection import parse_time

    since = parse_time(text) - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return {"before_time": max(0, since // timedelta(microseconds=1))}


_ACTIONS: Sequence[_Action] = (
    _Action(
        "create",
        "create a queue",
        "Create a queue. Do nothing if it exists as it is asked for.\n\n"
        "A queue that exists with other settings is not changed, and the command is refused. A\n"
        "queue that was deleted before goes on counting: its next row gets the next sequence.\n"
        "The queue stays after a restart, whether `serve --queue` names it or not.",
        "examples:\n  srmp-spark queue create orders\n"
        "  srmp-spark queue create 'private$/ledger' --transactional --journal",
        _create_flags,
        _create,
    ),
    _Action(
        "delete",
        "delete a queue that is not in use",
        "Delete a queue, with its received rows, its journal and its marks.\n\n"
        "Refused while a consumer has not received a row, somebody holds the queue, or a\n"
        "subscription fills it; --force deletes it all the same. Senders are then answered 400\n"
        "and give their messages up (503 with --unknown-queue retry). Pause the queue first, so\n"
        "that its readers can finish.",
        "examples:\n  srmp-spark queue pause orders && srmp-spark queue delete orders\n"
        "  srmp-spark queue delete 'private$/test' --force",
        _delete_flags,
        _delete,
    ),
    _Action(
        "pause",
        "refuse new messages, or let readers wait",
        "Pause one direction of a queue until `queue resume`, also over restarts.\n\n"
        "--in (default): senders are answered 503, keep their messages and try again.\n"
        "--out: queries plan no further rows, `receive` and remote readers get none, and what a\n"
        "query has planned is finished. Peeking shows the rows.\n"
        "What is sent to other machines is paused by `srmp-spark streams pause --destination URL`.",
        "examples:\n  srmp-spark queue pause orders\n  srmp-spark queue pause orders --out",
        _pause_flags,
        _pause,
    ),
    _Action(
        "resume",
        "end a pause",
        "End the pause of a queue: of both directions, or of the one that is named.",
        "examples:\n  srmp-spark queue resume orders\n  srmp-spark queue resume orders --out",
        _resume_flags,
        _resume,
    ),
    _Action(
        "trim",
        "delete received rows now, and give their room back",
        "Delete rows that every consumer has received, before their retention time is over.\n\n"
        "Use it when the disk is full: their room is free when the command ends, and messages are\n"
        "accepted again. Whole segments are deleted, so a few rows may stay with their\n"
        "neighbours. A row that a consumer has not received stays, and so does one that the Delta\n"
        "state (--state) does not have yet; the command then says for whom. Only --before with\n"
        "--force deletes such rows.",
        "examples:\n  srmp-spark queue trim orders --received\n"
        "  srmp-spark queue trim orders --before 2026-11-01T00:00:00Z\n"
        "  srmp-spark queue trim orders --before 120000 --force",
        _trim_flags,
        _trim,
    ),
    _Action(
        "set",
        "change a setting of a queue",
        "Change a setting of a queue that exists.\n\n"
        "journal=on lets the queue keep a journal of the rows that default receives from now on.\n"
        "journal=off ends it; its rows stay with the queue until retention deletes them.",
        "example:\n  srmp-spark queue set orders journal=on",
        _set_flags,
        _set,
    ),
)
