r"""``ingest``: write MSMQ messages into a Delta table, each exactly once and in order.

    python jobs/ingest.py --queue-manager http://127.0.0.1:8081 --queue 'private$/orders' \
        --table /data/messages --checkpoint /data/checkpoints/messages --available-now

The job runs with python and with spark-submit. It reports progress on stderr. The last line of
stdout is one JSON object with job, rows, batches and status (done, stopped or failed). The table is
unique in (queue_manager, epoch, queue, sequence); docs/GUARANTEES.md has the promises. Exit codes:
0 done or stopped, 1 failed, 2 usage, 3 queue manager not reachable, 4 refused by it, 5 another job
reads the queues and goes on.
"""

from __future__ import annotations

import argparse
import logging
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from srmp_spark.errors import ConfigurationError
from srmp_spark.extras import needs
from srmp_spark.interface import DEFAULT_CONSUMER, SHARING_VIOLATION, ExitCode
from srmp_spark.jobs import running
from srmp_spark.jobs.pace import Tally
from srmp_spark.jobs.selection import POSITION
from srmp_spark.names import is_glob, local_queue_name
from srmp_spark.rows.columns import NAMES
from srmp_spark.spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from srmp_spark.jobs.exactly_once import Appended

DESCRIPTION = """\
Write MSMQ messages into a Delta table, each exactly once and in order.

Use it to keep messages in a table, once for each run of a scheduler (--available-now) or
continuously. Start it again with the same table and checkpoint after any end, also after kill -9:
it continues where it stopped."""
EXAMPLES = """\
examples:
  # read what is there now, then end: for a scheduler
  python jobs/ingest.py --queue-manager http://127.0.0.1:8081 --queue 'private$/orders' \\
      --table /data/messages --checkpoint /data/checkpoints/messages --available-now
  # read all private queues of two queue managers continuously, one batch every five seconds;
  # SIGTERM or Ctrl-C ends the job between two batches
  python jobs/ingest.py --queue-manager http://a:8081,http://b:8081 --queue 'private$/*' \\
      --table /data/messages --checkpoint /data/checkpoints/messages --trigger "5 seconds"
  # write a table of seven columns without the bodies, at half the cost
  python jobs/ingest.py --queue-manager http://127.0.0.1:8081 --queue 'private$/orders' \\
      --table /data/labels --checkpoint /data/checkpoints/labels \\
      --columns arrived_at,message_id,label

A row counts as received at the queue manager when its batch is in the table. docs/reading.md
describes the columns, docs/GUARANTEES.md what can be lost and what cannot.

output:
  stdout: the last line is {"job", "rows", "batches", "status"}, with status done, stopped or
  failed. stderr: progress, one line that is rewritten on a terminal, else a line every five
  seconds in which something happens. --verbose adds a line for each batch.
  Exit codes: 0 done or stopped, 1 failed, 2 usage, 3 queue manager not reachable, 4 refused by
  it, 5 another job reads these queues and continues."""
COLUMNS = "columns"
"""The option of ``format("srmp")`` that chooses columns."""
POLL_SECONDS = 0.5
"""Longest time until a signal is noticed, in seconds."""
STOP_SECONDS = 60.0
"""Longest time that a batch in progress may continue after a signal, in seconds.

Then the query is stopped; the next start leaves out or finishes the batch.
"""
_UNIT_SECONDS = {
    "week": 604_800.0,
    "day": 86_400.0,
    "hour": 3_600.0,
    "minute": 60.0,
    "second": 1.0,
    "millisecond": 1e-3,
    "microsecond": 1e-6,
}
_NUMBER_AND_UNIT = (
    rf"([+-]? *(?:[0-9]{{1,18}}(?:\.[0-9]{{0,9}})?|\.[0-9]{{1,9}}))\s+({'|'.join(_UNIT_SECONDS)})s?"
)
_INTERVAL_PART = re.compile(_NUMBER_AND_UNIT)
_INTERVAL = re.compile(rf"(?:interval\s+)?({_NUMBER_AND_UNIT}(?:\s+{_NUMBER_AND_UNIT})*)")
"""Pattern of the texts that Spark's ``processingTime`` accepts.

Examples are ``5 seconds`` and ``interval 1 minute 30 seconds``.
"""

log = logging.getLogger("ingest")


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Return the parsed flags of ``jobs/ingest.py``.

    Wrong flags end the process with exit code 2.
    """
    parser = argparse.ArgumentParser(prog="ingest.py", allow_abbrev=False)
    add_arguments(parser)
    args = parser.parse_args(argv)
    try:
        check(args)
    except ConfigurationError as error:
        parser.error(str(error))
    return args


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of INTERFACE.md section 5 to ``parser``."""
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--queue-manager",
        required=True,
        metavar="URL[,URL]",
        help="APIs of one or more queue managers",
    )
    parser.add_argument("--queue", required=True, metavar="NAME[,NAME|GLOB]", help="queues to read")
    parser.add_argument(
        "--table",
        required=True,
        metavar="PATH",
        help="the Delta table; created if it does not exist",
    )
    parser.add_argument(
        "--checkpoint", required=True, metavar="PATH", help="Spark's checkpoint of this job"
    )
    when = parser.add_mutually_exclusive_group()
    when.add_argument(
        "--available-now", action="store_true", help="read what is there now, then end"
    )
    when.add_argument(
        "--trigger",
        metavar='"5 seconds"',
        help="time between two batches (default: a batch as soon as messages arrive)",
    )
    parser.add_argument(
        "--max-offsets-per-trigger",
        type=int,
        metavar="N",
        help="write at most N rows in a batch (default: no limit)",
    )
    parser.add_argument(
        "--consumer",
        default=DEFAULT_CONSUMER,
        metavar="NAME",
        help="consumer whose mark of received rows moves (default: %(default)s)",
    )
    parser.add_argument(
        "--columns",
        metavar="NAME[,NAME]",
        help=f"columns of the table (default: all). {', '.join(POSITION)} are always among "
        "them, because they identify a row. jobs/replay.py needs body, and receipt_kind to leave "
        "receipts out",
    )
    running.add_token_flag(parser)
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="another option of format('srmp'); may be repeated",
    )
    running.add_spark_flags(parser)


def check(args: argparse.Namespace) -> None:
    """Raise :class:`ConfigurationError` if ``--trigger`` or an ``--option`` is malformed."""
    if args.trigger is not None and not is_trigger(args.trigger):
        raise ConfigurationError(
            f'--trigger {args.trigger!r}: no time between batches; write it like "5 '
            'seconds", "500 milliseconds", "1 minute"'
        )
    for option in args.option:
        if "=" not in option:
            raise ConfigurationError(f"--option {option}: expected KEY=VALUE")


def is_trigger(text: str) -> bool:
    """Return whether Spark accepts ``text`` as a processing time.

    Spark accepts an interval of 0 or more without months. The job judges the flag itself, because
    Spark would report the error half a minute later.
    """
    found = _INTERVAL.fullmatch(text.strip().lower())
    if found is None:
        return False
    parts = _INTERVAL_PART.findall(found[1])
    return sum(float(number.replace(" ", "")) * _UNIT_SECONDS[unit] for number, unit in parts) >= 0


def source_options(args: argparse.Namespace) -> dict[str, str]:
    """Return the options of ``format("srmp")`` for the flags, by name.

    Raises :class:`ConfigurationError` if the token or the columns are wrong.
    """
    options = {"queueManager": args.queue_manager, "queue": args.queue, "consumer": args.consumer}
    # A second job of the same glob is refused, so it does not take the table over.
    options["failOnQueueInUse"] = "true"
    options.update(running.token_of(args))
    options.update(dict(option.split("=", 1) for option in args.option))
    columns = chosen_columns(args)
    if columns is not None:
        options = {key: value for key, value in options.items() if key.lower() != COLUMNS} | {
            COLUMNS: ",".join(columns)
        }
    if args.max_offsets_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(args.max_offsets_per_trigger)
    return options


def chosen_columns(args: argparse.Namespace) -> tuple[str, ...] | None:
    """Return the columns of the table, beginning with the columns that identify a row.

    ``None`` means all columns. Raises :class:`ConfigurationError` if the columns are chosen twice
    or unknown.
    """
    from srmp_spark.spark.settings.chosen_columns import names_in

    given = [
        value
        for key, _, value in (option.partition("=") for option in args.option)
        if key.lower() == COLUMNS
    ]
    if args.columns is not None:
        given.append(args.columns)
    if len(given) > 1:
        raise ConfigurationError(
            "--columns and --option columns=… choose the same columns: give one of them, once"
        )
    if not given:
        return None
    names = names_in(given[0])
    return (*POSITION, *(name for name in names if name not in POSITION))


def ask_queue_managers(args: argparse.Namespace) -> frozenset[str]:
    """Return the GUIDs of the queue managers that answer.

    Errors that would end the query at its start are raised here, because starting Spark takes many
    times as long. If the checkpoint exists, the query checks the queue names itself: the checkpoint
    may know queues that no longer exist. Raises :class:`ConfigurationError`,
    :class:`ApiUnreachableError` and :class:`ApiError`.
    """
    from srmp_spark.spark.reading.logs import Logs
    from srmp_spark.spark.reading.offsets import LogKey
    from srmp_spark.spark.settings.options import check_stream, parse

    options = parse(source_options(args))
    check_stream(options)
    logs = Logs(options, options.queue_managers, retry_seconds=running.START_SECONDS)
    if options.fail_on_data_loss and not Path(args.checkpoint, "offsets").exists():
        # Globs are passed as names that may match no queue yet.
        logs.discover([LogKey("", name) for name in options.queues if is_glob(name)])
    return frozenset(logs.managers)


class StoppingError(Exception):
    """Raised instead of beginning a new batch after a signal."""


class Ingest:
    """Runs the job once: one streaming query into one table."""

    def __init__(
        self, args: argparse.Namespace, spark: SparkSession, queue_managers: frozenset[str]
    ) -> None:
        from srmp_spark.jobs.exactly_once import ExactlyOnce

        self.args = args
        self.spark = spark
        queues = {local_queue_name(name) for name in args.queue.split(",")}
        columns = chosen_columns(args) or NAMES
        self.sink = ExactlyOnce(spark, args.table, args.checkpoint, queues, queue_managers, columns)
        self.rows = 0
        self.batches = 0
        self.progress = Tally(sys.stderr, log.info)
        self.told_to_stop = False
        self.between_batches = threading.Event()
        self.between_batches.set()

    def source(self) -> DataFrame:
        """Return the queues as a streaming frame. Raises Spark's error for a wrong option."""
        options: dict[str, Any] = {**source_options(self.args)}
        return self.spark.readStream.format("srmp").options(**options).load()

    def batch(self, rows: DataFrame, batch_id: int) -> None:
        """Append one batch to the table. Spark calls the method for each batch.

        Raises :class:`StoppingError` after a signal, and the errors of the table.
        """
        if self.told_to_stop:
            raise StoppingError
        started = time.monotonic()
        self.between_batches.clear()
        with self.progress.batch() as counted:
            try:
                done = self.sink.append(rows, batch_id)
                self.rows += done.rows
                self.batches += 1
                counted(done.rows)
            finally:
                self.between_batches.set()
        if done.left_out or self.args.verbose:
            self.tell(batch_id, done, time.monotonic() - started)

    def tell(self, batch_id: int, done: Appended, seconds: float) -> None:
        """Log the result of a batch that took ``seconds``."""
        note = (
            f" ({done.left_out} more were left out: the table holds them already)"
            if done.left_out
            else ""
        )
        log.info(
            "batch %s: %s rows in %.2f s, %s in all%s",
            batch_id,
            done.rows,
            seconds,
            self.rows,
            note,
        )

    def run(self) -> str:
        """Run until the query ends, a signal arrives or the query fails.

        Return the status, ``done`` or ``stopped``. Raises the error that ended the query.
        """
        rows = self.source()
        writer = rows.writeStream.foreachBatch(self.batch).option(
            "checkpointLocation", self.args.checkpoint
        )
        if self.args.available_now:
            writer = writer.trigger(availableNow=True)
        elif self.args.trigger:
            writer = writer.trigger(processingTime=self.args.trigger)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.stop_soon)
        return self.wait(writer.start())

    def stop_soon(self, *_: object) -> None:
        """Note that the job is to stop. The method is the handler of SIGTERM and SIGINT."""
        self.told_to_stop = True

    def wait(self, query: StreamingQuery) -> str:
        """Wait until ``query`` ends or a signal stops it.

        Return the status, ``done`` or ``stopped``. Raises the error that ended the query, unless a
        signal had arrived.
        """
        try:
            # The stub asks for an int, but a fraction of a second is allowed.
            while not query.awaitTermination(POLL_SECONDS):  # type: ignore[arg-type]
                self.progress.show(waiting_in(query))
                if self.told_to_stop:
                    self.between_batches.wait(STOP_SECONDS)
                    query.stop()
                    return "stopped"
        except Exception:
            # The query failed with StoppingError, or while it was being stopped.
            if self.told_to_stop:
                return "stopped"
            raise
        finally:
            self.progress.close(waiting_in(query))
        return "done"

    def explain(self, error: Exception) -> tuple[ExitCode, str]:
        """Return (exit code, one line of text) for the error that ended the query."""
        code, text = session.explain(error)
        if f"[{SHARING_VIOLATION}]" not in text:
            return code, text + advice(error, self.args.checkpoint)
        wrote = f"wrote {self.rows} rows" if self.rows else f"has not touched {self.args.table}"
        return ExitCode.IN_USE, (
            f"{text.partition(';')[0]}, which goes on; this job {wrote}. Stop that "
            "receiver first if this job is to take over "
            f"[{SHARING_VIOLATION}]"
        )


def waiting_in(query: StreamingQuery) -> int | None:
    """Return how many rows waited after the newest micro-batch, or ``None`` before the first."""
    from srmp_spark.spark.progress import waiting_of

    progress = query.lastProgress
    if progress is None:
        return None
    return sum(
        rows
        for source in progress.sources
        for _, rows in waiting_of(source.endOffset, source.latestOffset)
    )


def advice(error: BaseException, checkpoint: str) -> str:
    """Return what the user can do next, or an empty text if Spark's own text says it.

    A commit without its offsets ends the query as a concurrent update. A checkpoint with commits
    and without any offsets ends the query as a failed assertion.
    """
    orphans = _numbers(f"{checkpoint}/commits") - _numbers(f"{checkpoint}/offsets")
    if "CONCURRENT_STREAM_LOG_UPDATE" not in str(error) and not (
        orphans and "assertion failed" in str(error)
    ):
        return ""
    files = (
        ", ".join(
            f"{checkpoint}/commits/{number} and commits/.{number}.crc" for number in sorted(orphans)
        )
        or f"{checkpoint}/commits/N"
    )
    return (
        f"; the checkpoint has a commit without its offsets: remove {files} and start "
        "again, no row will be doubled or lost"
    )


def _numbers(folder: str) -> set[int]:
    path = Path(folder)
    return (
        {int(file.name) for file in path.iterdir() if re.fullmatch(r"\d+", file.name)}
        if path.is_dir()
        else set()
    )


def main(argv: list[str] | None = None) -> int:
    """Run ``jobs/ingest.py`` and return its exit code."""
    return run(arguments(argv))


def run(args: argparse.Namespace) -> int:
    """Run the job with a Spark session of its own, and return its exit code.

    Errors become one line on stderr, and the last line is printed on stdout. Raises
    :class:`ConfigurationError` if the flags are malformed (:func:`check`).
    """
    check(args)
    running.log_to_console()
    ingest: Ingest | None = None
    try:
        needs("spark")
        session.check_java()
        queue_managers = ask_queue_managers(args)
        with running.spark_session("srmp ingest", args) as spark:
            ingest = Ingest(args, spark, queue_managers)
            status, code = ingest.run(), ExitCode.DONE
    # The signal arrived before the query ran. Later signals go to the handler of the job.
    except KeyboardInterrupt:
        status, code = "stopped", ExitCode.DONE
    # Every error of Spark becomes one line and a fitting exit code.
    except Exception as error:
        status = "failed"
        code, text = running.explain(error) if ingest is None else ingest.explain(error)
        running.say(f"ingest: {text}")
    rows, batches = (0, 0) if ingest is None else (ingest.rows, ingest.batches)
    session.last_line("ingest", rows=rows, batches=batches, status=status)
    return code
