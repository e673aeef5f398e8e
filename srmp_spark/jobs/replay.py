"""``replay``: send rows of a message table again, exactly once for each ``--id``.

A dry run reads the table and reports what would be sent. With ``--yes`` the job sends the same rows
batch by batch (:mod:`.ranges`), each row under its source position as identity and ``--id`` as
application. So a job that is killed and started again with the same ``--id``, on whatever machine,
sends nothing twice. Batches that are recorded as committed (:mod:`.done`) are skipped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from srmp_spark.jobs import running
from srmp_spark.jobs.pace import Bar, Throttle
from srmp_spark.jobs.running import JobOutcome
from srmp_spark.jobs.selection import Selection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from srmp_spark.spark.settings.sink_options import SinkOptions

DESCRIPTION = """\
Send rows of a message table (as jobs/ingest.py writes it) again, as messages to a queue.

Use it after a receiver lost messages, or to give a test system the messages of an hour. Without
--yes nothing is sent: the job prints how many rows and bytes it would send, and where to. With
--yes it sends the rows in the order of each queue's sequences. The same --id never sends a row
twice to a destination: start the job again after a failure, a kill or by mistake, and it sends
only the missing rows."""

EXAMPLES = """\
examples:
  How much is an hour? (from 10:00 until just before 11:00, UTC)
    replay.py --table /data/messages --from 2026-11-22T10:00Z --to 2026-11-22T11:00Z \\
        --queue-manager http://127.0.0.1:8081 \\
        --destination 'DIRECT=http://test-host/msmq/private$/orders'
  Send it, under a name of your own:
        … --id incident-4711 --yes
  The job was killed: the same command again continues where it stopped.
        … --id incident-4711 --yes
  One queue, as the table was at version 12, at most 50 rows a second:
        … --queue 'private$/orders' --version 12 --rate 50 --id orders-v12 --yes
  Some rows, by label or by any SQL condition on the columns of the table:
        … --label 'invoice' --where "body_text LIKE '%refund%' AND priority > 3"
  With Spark's own launcher, on a cluster:
    spark-submit --master spark://host:7077 jobs/replay.py --table s3a://lake/messages …

times:
  --from T is included, --to T is not: 10:00 to 11:00 and 11:00 to 12:00 are two adjacent hours,
  and no row belongs to both. The time is arrived_at, when the queue manager accepted the message.
  A time without a zone is UTC. A date means its first moment.

what is sent:
  body, body_type, label, priority (0 when transactional), correlation_id, app_specific,
  response_queue and extension. Expiry times are not sent, because they are over. The admin queue
  is not sent, because no application waits there any longer. Receipts among the rows are left out.
  A row that the destination refused for good stays a dead letter, and the same --id does not send
  it again.

output:
  stdout: {"rows", "bytes", "destinations"}; the last line is {"job", "rows", "batches", "status",
  "known", "conflicts", "bad", …}. rows: rows that this run made messages. known: rows that the same
  --id had sent before. conflicts: rows that were not sent, because the same --id had sent other
  content from their position. bad: rows that can never be sent (--on-bad-row). status: done,
  dry-run, stopped or failed.
  stderr: progress.
  Exit codes: 0 done, 1 failed, 2 usage, 3 queue manager not reachable, 4 refused by it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of INTERFACE.md section 5 to ``parser``."""
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.set_defaults(job="replay")
    rows = parser.add_argument_group("which rows")
    rows.add_argument("--table", required=True, metavar="PATH", help="the Delta table to read")
    rows.add_argument("--from", dest="begin", metavar="T", help="rows that arrived at T or later")
    rows.add_argument("--to", dest="end", metavar="T", help="rows that arrived before T")
    rows.add_argument(
        "--version",
        type=int,
        metavar="N",
        help="the table as it was at version N (default: as it is now)",
    )
    rows.add_argument(
        "--queue", metavar="Q", help="rows of these queues: names or globs, separated by commas"
    )
    rows.add_argument("--label", metavar="L", help="rows with this label")
    rows.add_argument("--where", metavar="SQL", help="rows for which this SQL condition is true")
    running.add_sending_flags(parser.add_argument_group("where to"), required=True)
    running.add_common_flags(parser.add_argument_group("this run"))


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``jobs/replay.py`` and return its exit code."""
    parser = argparse.ArgumentParser(prog="replay.py", allow_abbrev=False)
    add_arguments(parser)
    return run(parser.parse_args(argv))


def run(args: argparse.Namespace) -> int:
    """Run the job with a Spark session of its own, and return its exit code.

    Errors become one line on stderr, and the last line is printed on stdout.
    """

    def work() -> JobOutcome:
        # Parsed before a JVM starts, so that errors of usage are reported at once.
        selection, options = Selection.of(args), running.sink_options(args)
        # A dry run needs no queue manager.
        if args.yes:
            running.ask_queue_manager(options)
        selection.check_path()
        with running.spark_session("srmp replay", args) as spark:
            return replay(spark, selection, options, args)

    return running.run_job("replay", work)


def replay(
    spark: SparkSession, selection: Selection, options: SinkOptions, args: argparse.Namespace
) -> JobOutcome:
    """Report what would be sent; with ``--yes`` send the rows. Return the result."""
    return send_rows(selection.rows(spark), options, args)


def send_rows(rows: DataFrame, options: SinkOptions, args: argparse.Namespace) -> JobOutcome:
    """Send rows with source positions to one destination, and return the result.

    Without ``--yes`` nothing is sent: the result is a count. A signal ends the job after the batch
    in progress.
    """
    from srmp_spark.jobs import ranges
    from srmp_spark.jobs.sending import JobSending, outgoing_columns

    rows = outgoing_columns(rows, args.delivery)
    batches = ranges.plan(rows, rows.columns, rate=args.rate)
    total, size = sum(batch.rows for batch in batches), sum(batch.bytes for batch in batches)
    outgoing = JobSending(options)
    running.show_plan(total, size, [outgoing.destination])
    more = {"bytes": size, "destinations": [outgoing.destination], "id": outgoing.application}
    if not args.yes:
        return JobOutcome(total, len(batches), "dry-run", more)
    outcome = JobOutcome(more={**more, "known": 0, "conflicts": 0, "bad": 0})
    done, throttle, bar = (
        outgoing.done(args.progress_file),
        Throttle(args.rate),
        Bar(total, sys.stderr),
    )
    with running.stopping() as stop, running.counting(outcome):
        for batch in batches:
            if (batch.name, batch.fingerprint) in done:
                outcome.more["known"] += batch.rows
                bar.skip(batch.rows)
                continue
            if not throttle.before(batch.rows, stop.is_told):
                outcome.status = "stopped"
                break
            answer = outgoing.send_frame(batch.name, batch.of(rows))
            done.add(batch.name, batch.fingerprint)
            outcome.rows += answer.new
            outcome.more["known"] += answer.known
            outcome.more["conflicts"] += answer.conflicts
            outcome.more["bad"] += answer.bad
            outcome.batches += 1
            bar.add(batch.rows)
    bar.close()
    return outcome
