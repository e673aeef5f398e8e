"""Run a job: shared flags, signals, errors in one line, and the last line of stdout."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import signal
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from srmp_spark.errors import ConfigurationError
from srmp_spark.extras import needs
from srmp_spark.interface import ExitCode
from srmp_spark.jobs.console import Console, ConsoleHandler
from srmp_spark.private_files import refuse_open_secret

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from srmp_spark.spark.settings.sink_options import SinkOptions

START_SECONDS = 5.0
"""Longest time that a starting job tries to reach the queue manager, in seconds.

A queue manager that was started together with the job answers within it, and a wrong URL is
reported soon. Once the job runs, it waits longer for a restart.
"""
VERBOSE_LEVEL = "WARN"
"""Spark's log level with ``--verbose``: the default of Spark's own shells."""
DELIVERIES = ("transactional", "recoverable", "express", "original")


@dataclass(slots=True)
class JobOutcome:
    """The content of the job's last line of output."""

    rows: int = 0
    batches: int = 0
    status: str = "done"
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Stop:
    """Records whether SIGTERM or SIGINT has arrived.

    The job then finishes the batch in progress and begins no other.
    """

    told: bool = False

    def is_told(self) -> bool:
        """Return whether a signal has arrived."""
        return self.told

    def __call__(self, *_: object) -> None:
        """Record a signal. The object is the handler of the signals."""
        self.told = True


class PartlyDoneError(Exception):
    """Raised when ``error`` ended the job after some batches; ``outcome`` tells what was done."""

    def __init__(self, outcome: JobOutcome, error: Exception) -> None:
        super().__init__(str(error))
        self.outcome = outcome
        self.error = error


@contextlib.contextmanager
def counting(outcome: JobOutcome) -> Iterator[None]:
    """Keep the counts of a job that fails, so that the last line of output reports them.

    Raises :class:`PartlyDoneError` with ``outcome`` in place of the error.
    """
    try:
        yield
    except Exception as error:
        outcome.status = "failed"
        raise PartlyDoneError(outcome, error) from error


@contextlib.contextmanager
def stopping() -> Iterator[Stop]:
    """Let SIGTERM and SIGINT ask the job to stop while the context lasts.

    Outside the main thread no handler can be set, so no signal stops the job.
    """
    stop = Stop()
    before = {}
    # Outside the main thread signal() raises ValueError.
    with contextlib.suppress(ValueError):
        for number in (signal.SIGTERM, signal.SIGINT):
            before[number] = signal.signal(number, stop)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def add_sending_flags(parser: argparse._ActionsContainer, *, required: bool) -> None:
    """Add the flags for where, how fast and how rows are sent to ``parser``."""
    parser.add_argument(
        "--queue-manager",
        required=required,
        metavar="URL",
        help="API of the queue manager that sends the messages",
    )
    parser.add_argument(
        "--destination",
        required=required,
        metavar="NAME",
        help="the queue: a format name or URL, DIRECT=http://HOST/msmq/private$/orders",
    )
    parser.add_argument(
        "--delivery",
        choices=DELIVERIES,
        default="transactional",
        help="transactional (default): exactly once and in order, for transactional queues. "
        "recoverable, express: for other queues. original: the delivery of each row",
    )
    parser.add_argument(
        "--rate",
        type=float,
        metavar="N",
        help="send at most N rows a second (default: no limit)",
    )
    parser.add_argument(
        "--on-key-conflict",
        choices=("fail", "ignore", "dead-letter"),
        help="action for a row that was sent under this --id with other content: fail (end the "
        "job), ignore (do not send it), dead-letter (make it one); default: as --on-bad-row",
    )
    parser.add_argument(
        "--on-bad-row",
        choices=("fail", "dead-letter", "skip"),
        default="fail",
        help="action for a row that can never be sent: fail (default: end the job); dead-letter (a "
        "letter about it in --dead-letter-queue) or skip (count it), and send the others",
    )
    parser.add_argument(
        "--dead-letter-queue",
        metavar="QUEUE",
        help="transactional queue of the queue manager that sends; dead letters of this run become "
        "rows of it. Required for --on-bad-row dead-letter",
    )
    add_token_flag(parser)
    parser.add_argument(
        "--progress-file",
        type=Path,
        metavar="FILE",
        help="file that records committed ranges, so that a second start is fast (default: a "
        "file below $XDG_STATE_HOME/srmp-spark)",
    )


def add_token_flag(parser: argparse._ActionsContainer) -> None:
    """Add ``--token-file`` and ``--allow-plain-token`` to ``parser``."""
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="file with the token of the API (default: environment SRMP_SPARK_TOKEN)",
    )
    parser.add_argument(
        "--allow-plain-token",
        action="store_true",
        help="send the token over plain HTTP to another host, although others can read it there",
    )


def token_of(args: argparse.Namespace) -> dict[str, str]:
    """Return the options ``token`` and ``allowPlainToken`` of source and sink, by name.

    Only options whose flags were given appear. Raises :class:`ConfigurationError` if
    ``--token-file`` cannot be read or other users can read it.
    """
    given = {"allowPlainToken": "true"} if args.allow_plain_token else {}
    if not args.token_file:
        return given
    try:
        refuse_open_secret("--token-file", args.token_file)
        return given | {"token": Path(args.token_file).read_text(encoding="utf-8").strip()}
    except OSError as error:
        raise ConfigurationError(f"--token-file {args.token_file}: {error.strerror}") from None


def add_common_flags(parser: argparse._ActionsContainer) -> None:
    """Add the flags of every job that changes something (``--id``, ``--yes``, ``--master``)."""
    parser.add_argument(
        "--id",
        metavar="NAME",
        help="name of this run. For 30 days the same name sends no row again to the same "
        "destination (default: a new name, which is printed)",
    )
    parser.add_argument(
        "--yes",
        action="store_true",
        help="send or write; without --yes only report what would be done",
    )
    add_spark_flags(parser)


def add_spark_flags(parser: argparse._ActionsContainer) -> None:
    """Add the flags about the Spark session of a job (``--master``, ``--verbose``)."""
    parser.add_argument(
        "--master",
        metavar="URL",
        help="Spark master (default: the master of spark-submit, else local[*])",
    )
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="show what Spark and its JVM print: how the jars are found, warnings, whole traces "
        "(default: hidden, and shown if the job fails for a reason that only they tell)",
    )


def sink_options(args: argparse.Namespace) -> SinkOptions:
    """Return the options of the sink for the flags, and give the run its name.

    Raises :class:`ConfigurationError` if a value is wrong.
    """
    from srmp_spark.spark.settings.sink_options import parse_sink

    if args.rate is not None and not args.rate > 0:
        raise ConfigurationError(f"--rate {args.rate:g}: a rate is more than 0 rows a second")
    options = {
        "queueManager": args.queue_manager or "",
        "destination": args.destination or "",
        "application": name_of(args),
        "orderBy": "sequence",
        # The sent messages do not add rows to the table or the files, so there is no loop.
        "allowLoop": "true",
        "onBadRow": args.on_bad_row,
        **({} if args.dead_letter_queue is None else {"deadLetterQueue": args.dead_letter_queue}),
        **({} if args.on_key_conflict is None else {"onKeyConflict": args.on_key_conflict}),
        **token_of(args),
    }
    return parse_sink(options)


def ask_queue_manager(options: SinkOptions) -> None:
    """Ask the queue manager for its status, to check that it answers and accepts the token.

    The job asks before it starts Spark, which takes many times as long. Raises
    :class:`ApiUnreachableError` and :class:`ApiError`, and :class:`ConfigurationError` if letters
    about bad rows would have no queue.
    """
    from srmp_spark.client.api import QueueManagerClient
    from srmp_spark.spark.settings.letter_queues import check_letter_queue

    plain = options.allow_plain_token
    QueueManagerClient(
        options.queue_manager, options.token, retry_seconds=START_SECONDS, allow_plain_token=plain
    ).status()
    check_letter_queue(options, retry_seconds=START_SECONDS)


def name_of(args: argparse.Namespace) -> str:
    """Return ``--id``, or generate a name, print it on stderr and keep it in ``args``."""
    if args.id is None:
        args.id = f"{args.job}-{uuid.uuid4()}"
        print(
            f"{args.job}: this run is --id {args.id}; to go on with it after a failure, give that",
            file=sys.stderr,
        )
    return str(args.id)


def show_plan(rows: int, size: int, destinations: list[str]) -> None:
    """Print the line of the dry run on stdout (INTERFACE.md section 5).

    ``rows`` and ``size`` are the number of rows and their bytes.
    """
    print(json.dumps({"rows": rows, "bytes": size, "destinations": destinations}), flush=True)


def run_job(job: str, work: Callable[[], JobOutcome]) -> int:
    """Do the work, print the last line on stdout, and return the exit code.

    Every error of ``work`` becomes one line on stderr and an exit code. SIGINT before the work
    began gives the status ``stopped``.
    """
    from srmp_spark.spark import session

    log_to_console()
    code = ExitCode.DONE
    try:
        outcome = work()
    except PartlyDoneError as failed:
        outcome, code = failed.outcome, tell(job, failed.error)
    # The signal arrived before the work began. During the work, stopping() handles signals.
    except KeyboardInterrupt:
        outcome = JobOutcome(status="stopped")
    # Every error of Spark becomes one line and a fitting exit code.
    except Exception as error:
        outcome, code = JobOutcome(status="failed"), tell(job, error)
    session.last_line(
        job, rows=outcome.rows, batches=outcome.batches, status=outcome.status, **outcome.more
    )
    return code


def log_to_console() -> None:
    """Log to stderr, above the line of progress."""
    logging.basicConfig(
        handlers=[ConsoleHandler(sys.stderr)],
        level=logging.INFO,
        format="%(asctime)s %(name)s %(message)s",
    )
    # py4j would log a whole trace for each error that the job reports in one line.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)


def tell(job: str, error: Exception) -> ExitCode:
    """Print the error as one line on stderr, and return its exit code."""
    code, text = explain(error)
    say(f"{job}: {text}")
    return code


def say(text: str) -> None:
    """Print ``text`` on stderr, below the last line of progress."""
    console = Console.of(sys.stderr)
    console.end_progress()
    console.say(text)


def explain(error: BaseException) -> tuple[ExitCode, str]:
    """Return (exit code, text) of an error, as :func:`srmp_spark.spark.session.explain`.

    SQL that Spark cannot read comes from the user, so its exit code is that of usage.
    """
    from srmp_spark.spark import session

    code, text = session.explain(error)
    # Spark was never loaded and may not be installed, so the error is not Spark's.
    if "pyspark" not in sys.modules:
        return code, text
    from pyspark.errors import AnalysisException, ParseException

    if isinstance(error, AnalysisException | ParseException):
        return ExitCode.USAGE, f"Spark does not understand this: {text}"
    return code, text


def say_that_spark_starts(job: str) -> None:
    """Print on stderr that Spark is starting.

    The start takes ten seconds or more without any output.
    """
    print(f"{job}: starting Spark, which takes ten seconds or more", file=sys.stderr, flush=True)


@contextlib.contextmanager
def spark_session(name: str, args: argparse.Namespace) -> Iterator[SparkSession]:
    """Provide a Spark session with Delta that ends with the context.

    What the JVM prints while it starts is hidden. It is shown if the session cannot start, and if
    an error ends the context that is not one of this package. With ``--verbose`` nothing is hidden.
    Raises :class:`MissingExtraError` if Spark is not installed.
    """
    from srmp_spark.spark import session
    from srmp_spark.spark.jvm_output import JvmOutput

    needs("spark")
    say_that_spark_starts(name.rpartition(" ")[2])
    console = Console.of(sys.stderr)
    output = None if args.verbose else JvmOutput(console.say)
    level = VERBOSE_LEVEL if args.verbose else session.QUIET_LEVEL
    with output or contextlib.nullcontext():
        try:
            spark = session.delta_session(name, args.master, output=output, log_level=level)
            if output is not None:
                output.started()
            try:
                yield spark
            finally:
                spark.stop()
        except Exception as error:
            if output is not None and not session.is_explained(error):
                console.end_progress()
                output.show_held()
            raise
