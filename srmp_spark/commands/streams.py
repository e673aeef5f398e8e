"""``streams``: list incoming and outgoing streams, and apply an operator's decision to one."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from srmp_spark.commands.common import (
    Commands,
    add_command,
    add_connection_flags,
    connect_outgoing,
    emit,
)
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

_DESCRIPTION = """\
List the incoming and outgoing streams, or apply an operator's decision to one.

A stream carries the messages of one sender to one transactional queue in order. Use an action when
a stream waits for a message that will never arrive, or when a peer does not acknowledge."""

_EXAMPLES = """\
actions on an incoming stream (--queue and --stream):
  accept-gap  do without the missing messages gap_at to gap_to (409 if none is missing). The
              message after the gap is accepted when it arrives again. A second accept-gap accepts
              whatever message arrives next. With --gap-at N only if the gap still begins at N
  reset       forget the stream. The next <start> of its sender begins a new one
  drop        the same as reset
actions on outgoing messages (--destination; with --stream only if this is the live stream):
  resend      send at once, also if the destination is held or paused. Messages without an
              acknowledgement are sent again with the same numbers
  reset       send the remaining messages in a new stream, because the peer lost its state
  drop        discard the messages without an acknowledgement; they become dead letters
  pause       send nothing until resume
  resume      send again after pause or hold

examples:
  srmp-spark streams --table
  srmp-spark streams accept-gap --queue 'private$/orders' --stream 'uid:GUID\\N' --gap-at 17
  srmp-spark streams resend --destination 'http://peer.example/msmq/private$/orders'"""


def add_commands(commands: Commands[Any]) -> None:
    """Add the command ``streams`` to ``commands``."""
    parser = add_command(
        commands,
        "streams",
        words="list incoming and outgoing streams; resend, skip or drop their messages",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    parser.add_argument(
        "action", nargs="?", choices=ACTIONS, help="see below; without an action: list the streams"
    )
    side = parser.add_mutually_exclusive_group()
    side.add_argument(
        "--queue", metavar="Q", help="the queue of this queue manager that receives the stream"
    )
    side.add_argument("--destination", metavar="D", help="the URL to which the messages are sent")
    parser.add_argument(
        "--stream", metavar="ID", help="identifier of the stream, uid:GUID\\N, as the list shows it"
    )
    parser.add_argument(
        "--gap-at",
        type=int,
        metavar="N",
        help="accept-gap: only the gap that begins at N, as the list shows it",
    )
    add_connection_flags(parser, shows=True)
    parser.set_defaults(run=_streams)


def _streams(args: argparse.Namespace) -> int:
    if args.action is None:
        return _list(args)
    if args.gap_at is not None and args.action != "accept-gap":
        raise ConfigurationError("--gap-at can be given only with accept-gap")
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
            f"{args.action} needs --queue Q (an incoming stream) or --destination D "
            "(outgoing messages)"
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
