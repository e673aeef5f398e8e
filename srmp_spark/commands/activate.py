"""``activate``: let a copy of a data directory act outside."""

from __future__ import annotations

import argparse
from typing import Any

from srmp_spark.commands.common import (
    Commands,
    add_command,
    add_connection_flags,
    connect_outgoing,
    emit,
)

_DESCRIPTION = """\
Let a copy of a data directory send, publish and take, because its original will never run again.

A queue manager that was started on a copy (a backup, cp -r, a snapshot of a machine) holds
everything that acts outside: messages, receipts, the Delta state, and subscriptions that move
messages. The original may still run, and two would tear every message between them. Run this
command on the one that lives, after the other one ended for good. It is remembered over restarts,
and never needed for a directory that is no copy. docs/backup.md describes each case."""

_EXAMPLES = """\
examples:
  srmp-spark activate
  also send what waited in the copy, which the original may have sent:
    srmp-spark activate --resend

output: one JSON object a line. The first has "activated": false if nothing was held. The others
are the destinations with messages that may have been sent by the original ("in_doubt"). They stay
on hold until --resend, or srmp-spark streams resend|drop --destination D. Messages keep their
identifiers, so a peer that has one already discards it."""

_COLUMNS = ("activated", "because", "destination", "in_doubt", "state", "do")


def add_commands(commands: Commands[Any]) -> None:
    """Add the command ``activate`` to ``commands``."""
    parser = add_command(
        commands,
        "activate",
        words="let a copied data directory act outside, when its original is no more",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    parser.add_argument(
        "--resend",
        action="store_true",
        help="also send the messages that waited in the copy, although the original may have sent "
        "them",
    )
    add_connection_flags(parser)
    parser.set_defaults(run=_activate)


def _activate(args: argparse.Namespace) -> int:
    client = connect_outgoing(args)
    lines: list[dict[str, Any]] = [client.activate()]
    for entry in client.status()["outgoing"]:
        if entry["state"] != "OnHold" or not entry["in_doubt"]:
            continue
        destination = entry["destination"]
        if args.resend:
            client.decide("resend", destination, None)
        lines.append(
            {
                "destination": destination,
                "in_doubt": entry["in_doubt"],
                "state": "sent again" if args.resend else "on hold",
                "do": ""
                if args.resend
                else f"srmp-spark streams resend|drop --destination '{destination}'",
            }
        )
    emit(lines, table=args.table, columns=_COLUMNS if args.table else None, whole=True)
    return 0
