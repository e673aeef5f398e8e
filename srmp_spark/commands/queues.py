"""Show a queue manager, purge queues, delete consumers and discard damaged rows.

The commands are ``queues``, ``consumers``, ``purge``, ``give-up`` and ``status``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from srmp_spark.commands.common import Commands, add_connection_flags, connect, emit
from srmp_spark.errors import ApiError
from srmp_spark.names import local_queue_name

if TYPE_CHECKING:
    from srmp_spark.client.api import QueueManagerClient

MANY = 1_000
"""Most queues, or outgoing destinations, that ``status`` prints in full.

Beyond it ``status`` prints the summary, because the whole would be megabytes.
"""

_QUEUE_COLUMNS = (
    "name",
    "transactional",
    "first",
    "last",
    "received",
    "waiting",
    "bytes",
    "oldest_waiting_seconds",
    "paused",
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
_SUBSCRIPTION_COLUMNS = (
    "host",
    "queue",
    "mode",
    "to",
    "pulled",
    "pending",
    "doubtful",
    "lag_seconds",
    "last_error",
)
_OUTGOING_COLUMNS = ("destination", "state", "stream_id", "queued", "last_error", "next_attempt_at")


def add_commands(commands: Commands[Any]) -> None:
    """Add ``queues``, ``consumers``, ``purge``, ``give-up`` and ``status`` to ``commands``."""
    parser = commands.add_parser("queues", help="the queues, one a line")
    add_connection_flags(parser)
    parser.set_defaults(run=_queues)

    parser = commands.add_parser(
        "consumers",
        help="the consumers of a queue, one a line; --delete forgets one with its marks",
    )
    parser.add_argument("queue", metavar="QUEUE")
    parser.add_argument(
        "--delete",
        metavar="NAME",
        help="forget this consumer: a query that uses its name later reads from the start "
        "of what is kept",
    )
    add_connection_flags(parser)
    parser.set_defaults(run=_consumers)

    parser = commands.add_parser(
        "purge",
        help="give up the rows of a queue that are not received; their sequences stay counted",
    )
    parser.add_argument("--queue", required=True, metavar="NAME")
    add_connection_flags(parser)
    parser.set_defaults(run=_purge)

    parser = commands.add_parser(
        "give-up", help="give damaged rows up for good; their sequences stay counted"
    )
    parser.add_argument("--queue", required=True, metavar="NAME")
    parser.add_argument(
        "--first",
        required=True,
        type=int,
        metavar="N",
        help="the first sequence, as the error names it",
    )
    parser.add_argument("--last", required=True, type=int, metavar="M", help="the last one")
    parser.add_argument(
        "--force", action="store_true", help="also in a queue of which no row was found damaged"
    )
    add_connection_flags(parser)
    parser.set_defaults(run=_give_up)

    parser = commands.add_parser(
        "status",
        help=f"everything about the queue manager; with more than {MANY} queues or "
        "destinations the summary",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--queue",
        metavar="NAME",
        help="of queues and incoming streams those of this name or glob alone",
    )
    which.add_argument(
        "--summary",
        action="store_true",
        help="totals, and of each list what somebody should look at",
    )
    which.add_argument(
        "--all", action="store_true", help="everything, however many queues there are"
    )
    add_connection_flags(parser)
    parser.set_defaults(run=_status)


def _queues(args: argparse.Namespace) -> int:
    emit(connect(args).queues(), table=args.table, columns=_QUEUE_COLUMNS)
    return 0


def _consumers(args: argparse.Namespace) -> int:
    name = local_queue_name(args.queue)
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
    yield "queues", status["queues"], _QUEUE_COLUMNS
    consumers = [
        {"queue": queue["name"], **consumer}
        for queue in status["queues"]
        for consumer in queue["consumers"]
    ]
    yield "consumers", consumers, ("queue", *_CONSUMER_COLUMNS)
    yield "incoming streams", status["incoming_streams"], _STREAM_COLUMNS
    yield "outgoing", status["outgoing"], _OUTGOING_COLUMNS
    yield "subscriptions", status["subscriptions"], _SUBSCRIPTION_COLUMNS
    yield (
        "blocked URLs (allow them with serve --allow-url)",
        status["blocked_urls"],
        ("host", "count", "patterns"),
    )
