"""``streams``: list incoming and outgoing streams, and apply an operator's decision to one."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from srmp_spark.commands.common import Commands, add_connection_flags, connect_outgoing, emit
from srmp_spark.errors import ConfigurationError
from srmp_spark.names import local_queue_name

INCOMING = ("accept-gap", "reset", "drop")
OUTGOING = ("reset", "resend", "drop", "pause", "resume")
ACTIONS = tuple(dict.fromkeys((*INCOMING, *OUTGOING)))

_IN = (
    "queue",
    "stream_id",
    "sequence_number",
    "last_acknowledged",
    "gap_at",
    "gap_to",
    "reject_count",
)
_OUT = (
    "destination",
    "kind",
    "state",
    "stream_id",
    "queued",
    "awaiting_stream_receipt",
    "in_doubt",
    "last_error",
    "next_attempt_at",
)

_HELP = """actions on a stream that comes in (--queue and --stream):
  accept-gap  give up what is missing (gap_at to gap_to; 409 if nothing is): the message behind it is taken when it comes again;
              once more: whatever comes next is taken; with --gap-at N only if the gap still begins there
  reset       forget it: its sender's next <start> begins it (drop: the same)
actions on what goes out (--destination; --stream: only if this is the live one):
  resend      send at once, and again whatever is not acknowledged, with the same numbers; also if it is held or paused
  reset       send the rest in a new stream: the peer lost its state
  drop        give up what is not acknowledged: dead letters
  pause, resume"""


def add_commands(commands: Commands[Any]) -> None:
    """Add the command ``streams`` to ``commands``."""
    parser = commands.add_parser(
        "streams",
        help="streams that come in and go out",
        epilog=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("action", nargs="?", choices=ACTIONS, help="without: list them")
    side = parser.add_mutually_exclusive_group()
    side.add_argument("--queue", metavar="Q", help="a queue of ours that the stream comes into")
    side.add_argument("--destination", metavar="D", help="the URL that it goes to")
    parser.add_argument("--stream", metavar="ID", help="its identifier, uid:GUID\\N")
    parser.add_argument(
        "--gap-at", type=int, metavar="N", help="accept-gap: this gap, as listed, and no other"
    )
    add_connection_flags(parser)
    parser.set_defaults(run=_streams)


def _streams(args: argparse.Namespace) -> int:
    if args.action is None:
        return _list(args)
    if args.gap_at is not None and args.action != "accept-gap":
        raise ConfigurationError("--gap-at belongs to accept-gap")
    client = connect_outgoing(args)
    if args.queue is not None:
        if args.action not in INCOMING:
            raise ConfigurationError(
                f"{args.action} needs --destination; with --queue: {', '.join(INCOMING)}"
            )
        if args.stream is None:
            raise ConfigurationError(
                "--stream is missing: `srmp-spark streams` lists the identifiers"
            )
        done = client.decide_incoming(
            args.action, local_queue_name(args.queue), args.stream, args.gap_at
        )
        emit([done], table=args.table)
    elif args.destination is not None:
        if args.action not in OUTGOING:
            raise ConfigurationError(
                f"{args.action} needs --queue; with --destination: {', '.join(OUTGOING)}"
            )
        emit([client.decide(args.action, args.destination, args.stream)], table=args.table)
    else:
        raise ConfigurationError(
            f"{args.action} needs --queue Q (comes in) or --destination D (goes out)"
        )
    return 0


def _session(session: Mapping[str, Any] | None) -> str | None:
    """Return a reliable session as a short text for the table, or ``None`` without a session."""
    if session is None:
        return None
    room = session["buffer_remaining"]
    return f"{session['state']}, {session['in_flight']} on the way" + (
        "" if room is None else f", room for {room}"
    )


def _list(args: argparse.Namespace) -> int:
    status = connect_outgoing(args).status()
    found = [
        ("in", "queue", _IN, status["incoming_streams"]),
        ("out", "destination", _OUT, status["outgoing"]),
    ]
    for direction, name, columns, rows in found:
        wanted = args.queue if direction == "in" else args.destination
        if (args.queue or args.destination) and wanted is None:
            continue
        chosen = [
            {"direction": direction, **row}
            for row in rows
            if (wanted is None or row[name] == wanted) and args.stream in (None, row["stream_id"])
        ]
        if args.table and any(row.get("wsrm") for row in chosen):
            columns = (*columns, "wsrm")
            chosen = [{**row, "wsrm": _session(row.get("wsrm"))} for row in chosen]
        if chosen or not args.table:
            emit(chosen, table=args.table, columns=("direction", *columns))
    return 0
