"""``backfill``: bring messages stored elsewhere into a message table or to a queue.

To a queue the job does what ``replay`` does, for a whole table or for saved files. Into a Delta
table the job appends the rows that the table lacks. A row is identified by (queue_manager, epoch,
queue, sequence), as in the tables of ``jobs/ingest.py``.

The append rests on the claim of ingest (:mod:`srmp_spark.jobs.exactly_once`): of jobs that may
write the same queues, only one writes. So a backfill ends a running ingest of these queues. When
the ingest is started again, it leaves out the rows that the table holds.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from srmp_spark.errors import ConfigurationError, SrmpSparkError
from srmp_spark.jobs import message_files, ranges, remote_messages, replay, running
from srmp_spark.jobs.message_files import FileRow
from srmp_spark.jobs.pace import Bar, Throttle
from srmp_spark.jobs.running import JobOutcome
from srmp_spark.jobs.selection import POSITION, Selection

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

DESCRIPTION = """\
Bring messages that were stored elsewhere into a message table (--table), or send them to a queue
(--queue-manager, --destination).

Use it for messages from before the first ingest, from files, or from a Windows queue. Without
--yes nothing is changed: the job prints how many rows and bytes it would write, and where to. It
can be started again after a failure or a kill: no row is written twice into a table, and the same
--id sends no row twice to a queue."""

EXAMPLES = """\
examples:
  The inbox of a Delta state (serve --state), into the table of jobs/ingest.py; stop that job first:
    backfill.py --source table --from /lake/srmp-state/inbox --table /data/messages --yes
  A whole table to a queue:
    backfill.py --source table --from /data/messages --queue-manager http://127.0.0.1:8081 \\
        --destination 'DIRECT=http://test-host/msmq/private$/orders' --id copy-1 --yes
  Messages that were saved with srmp-spark peek:
    srmp-spark peek --queue 'private$/orders' > orders.jsonl
    backfill.py --source files --from orders.jsonl --queue-manager … --destination … \\
        --id from-file --yes
  A folder in which each file is the body of a message:
    backfill.py --source files --from /data/bodies --table /data/messages
  The journal of a queue on a Windows machine:
    backfill.py --source mqrr --from 'windows.example\\private$\\orders;JOURNAL' \\
        --username reader --domain EXAMPLE --password-file reader.password \\
        --table /data/messages --yes

sources:
  table  a Delta table with the columns of the source, as jobs/ingest.py or --state writes it. For a
         part of a table use replay.py
  files  a file, a folder or a glob on the machine that runs the job. *.jsonl and *.ndjson hold one
         message a line as srmp-spark peek prints it, or are the manifest of srmp-spark capture.
         Any other file is one body. A line with queue_manager, epoch, queue and sequence is
         identified by these four, any other message by its path below --from and its row
  mqrr   a queue of another queue manager, read over RPC, into a table: HOST[:PORT]\\QUEUE, where
         QUEUE is private$\\orders, private$\\orders;JOURNAL, deadletter$ or a format name. --mode
         copy (default) removes nothing; --mode move removes a message when it is in the table. The
         default of --id is the host

output:
  stdout: {"rows", "bytes", "destinations"}; the last line is {"job", "rows", "batches", "status",
  …}. rows: rows that are there now and were not before. status: done, dry-run, stopped or failed.
  stderr: progress.
  Exit codes: 0 done, 1 failed, 2 usage, 3 queue manager not reachable, 4 refused by it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of INTERFACE.md section 5 to ``parser``."""
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.set_defaults(job="backfill")
    parser.add_argument(
        "--source",
        required=True,
        choices=("table", "files", "mqrr"),
        help="kind of the source; see below",
    )
    parser.add_argument(
        "--from",
        dest="origin",
        required=True,
        metavar="WHAT",
        help="the source: path of a table, files, or a remote queue",
    )
    target = parser.add_argument_group("where to")
    target.add_argument(
        "--table", metavar="PATH", help="the Delta table to write; created if it does not exist"
    )
    running.add_sending_flags(target, required=False)
    remote_messages.add_arguments(parser.add_argument_group("for --source mqrr only"))
    running.add_common_flags(parser.add_argument_group("this run"))


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``jobs/backfill.py`` and return its exit code."""
    parser = argparse.ArgumentParser(prog="backfill.py", allow_abbrev=False)
    add_arguments(parser)
    return run(parser.parse_args(argv))


def run(args: argparse.Namespace) -> int:
    """Run the job, print its last line on stdout, and return its exit code."""
    return running.run_job("backfill", lambda: backfill(args))


def backfill(args: argparse.Namespace) -> JobOutcome:
    """Run the job and return its result; start Spark only where the job needs it.

    Raises :class:`ConfigurationError` if the flags contradict each other.
    """
    for name in remote_messages.FLAGS:
        if args.source != "mqrr" and getattr(args, name) is not None:
            raise ConfigurationError(
                f"--{name.replace('_', '-')} can be given only with --source mqrr"
            )
    sends = args.queue_manager is not None or args.destination is not None
    if sends == (args.table is not None):
        raise ConfigurationError(
            "give either --table PATH, or --queue-manager URL and --destination NAME"
        )
    if args.source == "mqrr":
        return remote_to_table(args)
    if not sends:
        running.name_of(args)
        if args.source == "files" and not args.yes:
            total, size = count(args.origin)
            running.show_plan(total, size, [args.table])
            return JobOutcome(
                total, 1, "dry-run", {"bytes": size, "destinations": [args.table], "id": args.id}
            )
        with running.spark_session("srmp backfill", args) as spark:
            return to_table(spark, args)
    options = running.sink_options(args)
    if args.source == "files":
        return send_files(args)
    selection = Selection(table=args.origin)
    # A dry run needs no queue manager.
    if args.yes:
        running.ask_queue_manager(options)
    selection.check_path()
    with running.spark_session("srmp backfill", args) as spark:
        return replay.send_rows(selection.rows(spark), options, args)


# --- files to a queue -----------------------------------------------------------------------------


def chunks(rows: Iterable[FileRow], rows_max: int) -> Iterator[list[FileRow]]:
    """Yield ``rows`` in batches of at most ``rows_max`` rows and ``BATCH_BYTES`` bytes.

    The same files always make the same batches. A single larger row is a batch of its own.
    """
    waiting: list[FileRow] = []
    size = 0
    for row in rows:
        length = len(row.columns["body"])
        if waiting and (len(waiting) >= rows_max or size + length > ranges.BATCH_BYTES):
            yield waiting
            waiting, size = [], 0
        waiting.append(row)
        size += length
    if waiting:
        yield waiting


def count(origin: str) -> tuple[int, int]:
    """Return (number of messages in all files, bytes of their bodies).

    Every message is read and checked, so an unreadable one raises :class:`ConfigurationError`
    before anything is sent.
    """
    rows = size = 0
    for row in message_files.read(origin):
        rows += 1
        size += len(row.columns["body"])
    return rows, size


def send_files(args: argparse.Namespace) -> JobOutcome:
    """Send saved messages to a queue without Spark, and return the result.

    Without ``--yes`` nothing is sent: the result is a count. A signal ends the job after the batch
    in progress.
    """
    from srmp_spark.jobs.sending import JobSending

    outgoing = JobSending(running.sink_options(args))
    total, size = count(args.origin)
    running.show_plan(total, size, [outgoing.destination])
    more: dict[str, object] = {
        "bytes": size,
        "destinations": [outgoing.destination],
        "id": outgoing.application,
    }
    rows_max = (
        ranges.BATCH_ROWS if args.rate is None else max(1, min(ranges.BATCH_ROWS, int(args.rate)))
    )
    if not args.yes:
        return JobOutcome(
            total,
            sum(1 for _ in chunks(message_files.read(args.origin), rows_max)),
            "dry-run",
            more,
        )
    running.ask_queue_manager(outgoing.options)
    outcome = JobOutcome(more={**more, "known": 0, "conflicts": 0, "bad": 0})
    done, throttle, bar = (
        outgoing.done(args.progress_file),
        Throttle(args.rate),
        Bar(total, sys.stderr),
    )
    with running.stopping() as stop, running.counting(outcome):
        for rows in chunks(message_files.read(args.origin), rows_max):
            table = message_files.as_outgoing(rows, args.delivery)
            fingerprint = hashlib.sha256(repr(table.to_pylist()).encode()).hexdigest()
            name = f"files-{fingerprint[:32]}"
            if (name, fingerprint) in done:
                outcome.more["known"] += len(rows)
                bar.skip(len(rows))
                continue
            if not throttle.before(len(rows), stop.is_told):
                outcome.status = "stopped"
                break
            answer = outgoing.send_table(name, table)
            done.add(name, fingerprint)
            outcome.rows += answer.new
            outcome.more["known"] += answer.known
            outcome.more["conflicts"] += answer.conflicts
            outcome.more["bad"] += answer.bad
            outcome.batches += 1
            bar.add(len(rows))
    bar.close()
    return outcome


# --- into a table ---------------------------------------------------------------------------------


def to_table(spark: SparkSession, args: argparse.Namespace) -> JobOutcome:
    """Append the rows that the table of ``--table`` lacks, and return the result.

    Without ``--yes`` nothing is written: the result is a count.
    """
    frames: Iterator[tuple[int, DataFrame]]
    if args.source == "files":
        total, size = count(args.origin)
        queues = {_queue(row) for row in message_files.read(args.origin)}
        frames = file_frames(spark, args)
        batches = 1
    else:
        from srmp_spark.rows.columns import NAMES

        rows = Selection(table=args.origin).rows(spark, receipts=True)
        rows = rows.select(*[name for name in NAMES if name in rows.columns])
        plan = ranges.plan(rows, ["sequence"])
        total, size = sum(batch.rows for batch in plan), sum(batch.bytes for batch in plan)
        queues = {batch.queue for batch in plan}
        frames = ((batch.rows, batch.of(rows)) for batch in plan)
        batches = len(plan)
    running.show_plan(total, size, [args.table])
    more: dict[str, object] = {"bytes": size, "destinations": [args.table], "id": args.id}
    if not args.yes:
        return JobOutcome(total, batches, "dry-run", more)
    return append(spark, args, frames, queues, total, more)


def remote_to_table(args: argparse.Namespace) -> JobOutcome:
    """Append the messages of a queue of another queue manager to the table, batch by batch.

    Without ``--yes`` nothing is written: the result is a count. Raises :class:`ConfigurationError`
    without ``--table``.
    """
    if args.table is None:
        raise ConfigurationError(
            "--source mqrr writes into a table: give --table. To read the messages into a "
            "queue use "
            "srmp-spark subscribe; to send rows of a table use jobs/replay.py"
        )
    source = remote_messages.parse_source(args)
    if args.id is None:
        # The host is the same at every start, so a restarted job continues without --id.
        args.id = source.host.text
    more: dict[str, object] = {"destinations": [args.table], "id": args.id}
    if not args.yes:
        total, size = remote_messages.count(source, args.id)
        running.show_plan(total, size, [args.table])
        return JobOutcome(
            total, -(-total // remote_messages.BATCH_MESSAGES), "dry-run", {"bytes": size, **more}
        )
    with running.spark_session("srmp backfill", args) as spark:
        return append_remote(spark, args, source, more)


def append_remote(
    spark: SparkSession,
    args: argparse.Namespace,
    source: remote_messages.RemoteSource,
    more: dict[str, object],
) -> JobOutcome:
    """Read a batch, append the rows that the table lacks, then remove the messages.

    The messages are removed only with ``--mode move``. A failure between two steps leaves every
    message in the queue, in the table, or in both.
    """
    from srmp_spark.jobs.exactly_once import ExactlyOnce

    takes = args.mode == "move"
    outcome = JobOutcome(more={**more, "bytes": 0, "known": 0, "removed": 0, "unreadable": 0})
    reader = remote_messages.RemoteQueueReader(source, args.id, takes=takes)
    try:
        sink = ExactlyOnce(spark, args.table, "", [source.shown_as])
        sink.claim()
        with running.stopping() as stop, running.counting(outcome):
            for read in reader.batches():
                outcome.more["unreadable"] = reader.unreadable
                # Closing the reader releases the locks of this batch.
                if stop.is_told():
                    outcome.status = "stopped"
                    break
                written = sink.append(
                    _not_there(spark, args, spark.createDataFrame(_as_table(read))), 0
                ).rows
                outcome.rows += written
                outcome.more["known"] += read.rows.num_rows - written
                outcome.more["bytes"] += read.message_bytes
                outcome.batches += 1
                if takes:
                    reader.remove(read)
                    outcome.more["removed"] += len(read.requests)
            outcome.more["unreadable"] = reader.unreadable
    finally:
        reader.close()
    return outcome


def _as_table(read: remote_messages.ReadBatch) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_batches([read.rows])


def _not_there(spark: SparkSession, args: argparse.Namespace, frame: DataFrame) -> DataFrame:
    """Return the rows of ``frame`` whose positions the table lacks, one row for each position.

    Raises :class:`SrmpSparkError` if the table holds another message at the position of one of the
    rows.
    """
    there = spark.read.format("delta").load(args.table).select(*POSITION, "message_id")
    other = (
        frame.alias("new")
        .join(there.alias("old"), list(POSITION))
        .where("NOT (new.message_id <=> old.message_id)")
    )
    for row in other.selectExpr("sequence", "new.message_id AS new", "old.message_id AS old").take(
        1
    ):
        raise SrmpSparkError(
            f"{args.table} has {row['old']} at {row['sequence']} of --id {args.id}, and "
            f"the queue has {row['new']} there now: "
            "its queue manager counts from the beginning again. Nothing was removed; give "
            "another --id"
        )
    return (
        frame.dropDuplicates(list(POSITION))
        .join(there, list(POSITION), "left_anti")
        .select(*frame.columns)
    )


def _queue(row: FileRow) -> str:
    return str(row.columns["queue"]) if row.has_position else row.path


def file_frames(spark: SparkSession, args: argparse.Namespace) -> Iterator[tuple[int, DataFrame]]:
    """Yield saved messages as pairs of row count and frame, one pair a batch."""
    for rows in chunks(message_files.read(args.origin), ranges.BATCH_ROWS):
        yield len(rows), spark.createDataFrame(message_files.as_table_rows(rows, args.id))


def append(
    spark: SparkSession,
    args: argparse.Namespace,
    frames: Iterable[tuple[int, DataFrame]],
    queues: set[str],
    total: int,
    more: dict[str, object],
) -> JobOutcome:
    """Append ``frames`` to the table batch by batch, each row once by its position.

    ``total`` is the number of rows of all frames, for the progress bar. ``more`` are fields of the
    last line. A signal ends the job after the batch in progress.
    """
    from srmp_spark.jobs.exactly_once import ExactlyOnce

    outcome, throttle, bar = (
        JobOutcome(more={**more, "known": 0}),
        Throttle(args.rate),
        Bar(total, sys.stderr),
    )
    if not total:
        return outcome
    sink = ExactlyOnce(spark, args.table, "", queues)
    sink.claim()
    with running.stopping() as stop, running.counting(outcome):
        for rows, frame in frames:
            if not throttle.before(rows, stop.is_told):
                outcome.status = "stopped"
                break
            # Two files may hold the same position: an earlier batch wrote it, or this batch has
            # it twice.
            there = spark.read.format("delta").load(args.table).select(*POSITION)
            fresh = frame.dropDuplicates(list(POSITION)).join(there, list(POSITION), "left_anti")
            written = sink.append(fresh.select(*frame.columns), 0).rows
            outcome.rows += written
            outcome.more["known"] += rows - written
            outcome.batches += 1
            bar.add(rows)
    bar.close()
    return outcome
