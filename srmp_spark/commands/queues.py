"""Show a queue manager, purge queues, delete consumers and discard damaged rows.

The commands are ``queues``, ``consumers``, ``purge``, ``give-up`` and ``status``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from srmp_spark.commands.common import (
    Commands,
    add_command,
    add_connection_flags,
    connect,
    emit,
)
from srmp_spark.commands.subscribe import SUBSCRIPTION_COLUMNS
from srmp_spark.errors import ApiError, ConfigurationError
from srmp_spark.names import local_queue_name

if TYPE_CHECKING:
    from srmp_spark.client.api import QueueManagerClient

MANY = 1_000
"""Most queues, or outgoing destinations, that ``status`` prints in full.

Beyond it ``status`` prints the summary, because the whole would be megabytes.
"""

QUEUE_COLUMNS = (
    "name",
    "transactional",
    "first",
    "last",
    "received",
    "waiting",
    "bytes",
    "oldest_waiting_seconds",
    "paused",
    "paused_out",
)
_CONSUMER_COLUMNS = ("name", "received", "holder", "lease_until")
_STREAM_COLUMNS = (
    "queue",
    "stream_id",
    "source_qm",
    "sequence_number",
    "last_acknowledged",
    "gap_at",
    "reject_count",
)
_OUTGOING_COLUMNS = ("destination", "state", "stream_id", "queued", "last_error", "next_attempt_at")

_QUEUES = """\
List the queues, one a line: the first and last sequence, the received and waiting rows, and more.

Use it to see whether messages arrive, and whether a consumer keeps up."""

_CONSUMERS = """\
List the consumers of a queue, or delete one with its marks.

A consumer is a reader with a mark of its own: a query, or srmp-spark receive --consumer NAME.
Delete a consumer that no longer reads."""

_PURGE = """\
Discard the rows of a queue that are not received yet. They cannot be brought back.

Use it for test messages, or for messages that nobody needs. The queue keeps its counting: the next
message gets the next sequence. Senders that asked for it are notified that their messages were
purged."""

_GIVE_UP = """\
Discard damaged rows for good, so that readers continue after them.

Use it after an error that names sequences which cannot be read, and only when no backup has the
rows (docs/troubleshooting.md, "Damaged rows"). The sequences stay counted."""

_STATUS = f"""\
Show the state of the queue manager: its queues, consumers, streams, destinations and errors.

With more than {MANY} queues or destinations it shows the summary, unless --all is given."""

_STATUS_EXAMPLES = """\
examples:
  srmp-spark status --table
  srmp-spark status --queue 'private$/orders*' --table
  srmp-spark status --summary"""


def add_commands(commands: Commands[Any]) -> None:
    """Add ``queues``, ``consumers``, ``purge``, ``give-up`` and ``status`` to ``commands``."""
    _add_queues(commands)
    _add_consumers(commands)
    _add_purge(commands)
    _add_give_up(commands)
    _add_status(commands)


def _add_queues(commands: Commands[Any]) -> None:
    parser = add_command(
        commands,
        "queues",
        words="list the queues with their counts",
        description=_QUEUES,
        examples="example:\n  srmp-spark queues --table",
    )
    add_connection_flags(parser, shows=True)
    parser.set_defaults(run=_queues)


def _add_consumers(commands: Commands[Any]) -> None:
    parser = add_command(
        commands,
        "consumers",
        words="list the consumers of a queue, or delete one with its marks",
        description=_CONSUMERS,
        examples="examples:\n  srmp-spark consumers 'private$/orders' --table\n"
        "  srmp-spark consumers 'private$/orders' --delete old-query",
    )
    parser.add_argument("name", nargs="?", metavar="QUEUE", help="the queue, or give --queue")
    parser.add_argument("--queue", metavar="NAME", help="the queue, as other commands take it")
    parser.add_argument(
        "--delete",
        metavar="NAME",
        help="delete this consumer. A query that uses the name later begins with the oldest row "
        "that is kept",
    )
    add_connection_flags(parser, shows=True)
    parser.set_defaults(run=_consumers)


def _add_purge(commands: Commands[Any]) -> None:
    parser = add_command(
        commands,
        "purge",
        words="discard the rows of a queue that are not received",
        description=_PURGE,
        examples="example:\n  srmp-spark purge --queue 'private$/orders'",
    )
    parser.add_argument("--queue", required=True, metavar="NAME", help="the queue to purge")
    add_connection_flags(parser)
    parser.set_defaults(run=_purge)


def _add_give_up(commands: Commands[Any]) -> None:
    parser = add_command(
        commands,
        "give-up",
        words="discard damaged rows for good, so that readers continue after them",
        description=_GIVE_UP,
        examples="example:\n  srmp-spark give-up --queue 'private$/orders' --first 41 --last 43",
    )
    parser.add_argument("--queue", required=True, metavar="NAME", help="the queue with the rows")
    parser.add_argument(
        "--first",
        required=True,
        type=int,
        metavar="N",
        help="the first damaged sequence, as the error names it",
    )
    parser.add_argument(
        "--last", required=True, type=int, metavar="M", help="the last damaged sequence"
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="discard the rows even if no damage was found in the queue",
    )
    add_connection_flags(parser)
    parser.set_defaults(run=_give_up)


def _add_status(commands: Commands[Any]) -> None:
    parser = add_command(
        commands,
        "status",
        words="show the state of the queue manager, its queues, streams and destinations",
        description=_STATUS,
        examples=_STATUS_EXAMPLES,
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--queue",
        metavar="NAME",
        help="show only the queues and incoming streams of this name or glob",
    )
    which.add_argument(
        "--summary",
        action="store_true",
        help="show totals, and of each list only the entries that need attention",
    )
    which.add_argument(
        "--all", action="store_true", help="show everything, also with very many queues"
    )
    add_connection_flags(parser, shows=True)
    parser.set_defaults(run=_status)


def _queues(args: argparse.Namespace) -> int:
    client = connect(args)
    emit(client.queues(), table=args.table, columns=QUEUE_COLUMNS)
    tell_held(client.status_summary())
    return 0


def tell_held(status: dict[str, Any]) -> None:
    """Print on standard error that the queue manager is a held copy, if ``status`` says so."""
    # Older queue managers hold no copies.
    if held := status.get("held_copy"):
        print(
            f"srmp-spark: held since {held['since']}, because {held['because']}: {held['what']}; "
            f"{held['do']}",
            file=sys.stderr,
        )


def _consumers(args: argparse.Namespace) -> int:
    if (args.name is None) == (args.queue is None):
        raise ConfigurationError(
            "consumers needs one queue: srmp-spark consumers QUEUE, or --queue QUEUE"
        )
    name = local_queue_name(args.queue or args.name)
    client = connect(args)
    if args.delete is not None:
        client.delete_consumer(name, args.delete)
    found = [queue for queue in client.queues() if queue["name"].casefold() == name.casefold()]
    if not found:
        raise ApiError(
            404, "unknown-queue", f"there is no queue {name}", "srmp-spark queues lists them"
        )
    emit(found[0]["consumers"], table=args.table, columns=_CONSUMER_COLUMNS)
    return 0


def _purge(args: argparse.Namespace) -> int:
    emit([connect(args).purge(local_queue_name(args.queue))], table=args.table)
    return 0


def _give_up(args: argparse.Namespace) -> int:
    emit(
        [
            connect(args).give_up(
                local_queue_name(args.queue), args.first, args.last, force=args.force
            )
        ],
        table=args.table,
    )
    return 0


def _status(args: argparse.Namespace) -> int:
    status = _asked_for(args, connect(args))
    tell_held(status)
    if not args.table:
        emit([status], table=False)
        return 0
    for title, rows, columns in _tables(status):
        if rows:
            print(f"\n{title}" if title else "", end="\n" if title else "")
            emit(rows, table=True, columns=columns)
    return 0


def _asked_for(args: argparse.Namespace, client: QueueManagerClient) -> dict[str, Any]:
    if args.queue is not None:
        return client.status(queues=local_queue_name(args.queue))
    if args.all:
        return client.status()
    summary = client.status_summary()
    counts = {name: each["count"] for name, each in summary.get("totals", {}).items()}
    if args.summary or "totals" not in summary:
        return summary
    if max(counts["queues"], counts["outgoing"]) <= MANY:
        return client.status()
    print(
        f"{counts['queues']} queues and {counts['outgoing']} destinations: this is the summary. "
        "`srmp-spark status --queue NAME` shows the queues of a name or glob, --all everything",
        file=sys.stderr,
    )
    return summary


def _tables(
    status: dict[str, Any],
) -> Iterator[tuple[str, list[dict[str, Any]], tuple[str, ...] | None]]:
    facts = [
        {"what": name, "value": value}
        for name, value in status.items()
        if (not isinstance(value, list) or name == "listening") and name != "totals"
    ]
    yield "", facts, ("what", "value")
    totals = status.get("totals", {}).items()
    yield (
        "totals",
        [
            {"of": of, "what": what, "value": value}
            for of, each in totals
            for what, value in each.items()
        ],
        None,
    )
    yield "queues", status["queues"], QUEUE_COLUMNS
    consumers = [
        {"queue": queue["name"], **consumer}
        for queue in status["queues"]
        for consumer in queue["consumers"]
    ]
    yield "consumers", consumers, ("queue", *_CONSUMER_COLUMNS)
    yield "incoming streams", status["incoming_streams"], _STREAM_COLUMNS
    yield "outgoing", status["outgoing"], _OUTGOING_COLUMNS
    yield "subscriptions", status["subscriptions"], SUBSCRIPTION_COLUMNS
    yield (
        "blocked URLs (allow them with serve --allow-url)",
        status["blocked_urls"],
        ("host", "count", "patterns"),
    )
