"""``subscribe cutover``: change the copy of a remote queue to a move, without counting twice.

The queue manager decides everything (:mod:`srmp_spark.queue_manager.puller.cutover`). This command
asks, prints the answer, and ends with an exit code for scripts.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from srmp_spark.commands.common import emit
from srmp_spark.interface import DEFAULT_CONSUMER

if TYPE_CHECKING:
    from srmp_spark.client.subscriptions import SubscriptionsClient
    from srmp_spark.interface import CutoverEntry

WAIT_SECONDS = 60.0
"""Default of ``--wait``, in seconds. A queue of 100,000 messages is compared within this time."""
POLL_SECONDS = 0.5
"""Pause between two questions whether a cut-over is settled, in seconds."""
CUTOVER_COLUMNS = (
    "queue",
    "to",
    "phase",
    "safe",
    "still_there",
    "received_there",
    "moved",
    "not_here",
    "locked_there",
    "received_here",
)
FINDING_COLUMNS = ("blocks", "code", "count", "text")
RECEIVED_THERE_COLUMNS = ("sequence", "message_id", "lookup_id", "gone_at")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the action ``cutover`` to ``parser``."""
    group = parser.add_argument_group("cutover")
    group.add_argument(
        "--check",
        action="store_true",
        help="cutover: compare, print whether it is safe, and change nothing",
    )
    group.add_argument(
        "--consumer",
        metavar="NAME",
        action="append",
        help="cutover: the consumer that will read here (default: default); repeat it for several",
    )
    group.add_argument(
        "--wait",
        metavar="SECONDS",
        type=float,
        default=WAIT_SECONDS,
        help="cutover: longest wait for the comparison, and then for the end of the cut-over "
        f"(default {WAIT_SECONDS:g})",
    )
    group.add_argument(
        "--accept-received",
        action="store_true",
        help="cutover: it is right that messages were received here before the cut-over",
    )
    group.add_argument(
        "--received-there",
        action="store_true",
        help="cutover: list the copied messages that were received there, and change nothing",
    )


def cut_over(client: SubscriptionsClient, args: argparse.Namespace) -> int:
    """Check, and unless ``--check`` is given, cut over; print the result. Return the exit code.

    0: it is safe (``--check``), or the cut-over is settled. 1: it is not safe, and nothing was
    changed; or (``--check``) the cut-over is not settled. 4: ``--wait`` ended first.
    """
    consumers = args.consumer or [DEFAULT_CONSUMER]
    if args.received_there:
        emit(
            client.received_there(args.host, args.queue),
            table=args.table,
            columns=RECEIVED_THERE_COLUMNS,
            whole=True,
        )
        return 0
    deadline = time.monotonic() + args.wait
    found = client.check_cutover(
        args.host,
        args.queue,
        consumers,
        wait_s=args.wait,
        accepts_received=args.accept_received,
    )
    if args.check or (found["phase"] == "copying" and not found["safe"]):
        return _print(found, table=args.table, failed=1)
    if found["phase"] == "copying":
        client.cut_over(args.host, args.queue, consumers)
        found = client.check_cutover(args.host, args.queue, consumers, wait_s=0.0)
    while found["phase"] == "settling" and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        found = client.check_cutover(args.host, args.queue, consumers, wait_s=0.0)
    return _print(found, table=args.table, failed=4)


def _print(found: CutoverEntry, *, table: bool, failed: int) -> int:
    """Print the result of a question. Return 0 if nothing blocks, else ``failed``."""
    emit([found], table=table, columns=CUTOVER_COLUMNS)
    if table and found["findings"]:
        print()
        emit(found["findings"], table=True, columns=FINDING_COLUMNS, whole=True)
    return 0 if found["safe"] else failed
