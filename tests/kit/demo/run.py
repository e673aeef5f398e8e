"""Run the demo: send messages in and rows out again, and print a closing table of both ends.

A queue manager (``srmp-spark serve``) and a Spark query (``jobs/ingest.py``) start as separate
processes. Both processes are killed with -9 while messages are in flight
(:mod:`tests.kit.demo.way_in`). Then rows of the table are sent as a stream to a second queue
manager. Replies are lost, and the sender is killed. At the end one hour of the table is replayed
twice under one name (:mod:`tests.kit.demo.way_out`).
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
from pathlib import Path

from srmp_spark.errors import SrmpSparkError
from srmp_spark.interface import ExitCode
from srmp_spark.spark import session
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.demo.console import Console
from tests.kit.demo.query import Query
from tests.kit.demo.results import InResult, OutResult, closing_table
from tests.kit.demo.way_in import QUEUES, WayIn
from tests.kit.demo.way_out import PATIENCE, WayOut

SHORT_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options for a JVM that lives for a minute.

Without them the JVM spends half its time compiling code that it does not run again. With them its
start costs 25 s of CPU instead of 48 s.
"""
MARKER = ".srmp-spark-demo"
"""Name of a file that the demo writes. The demo empties only a folder with this file."""


def fresh(directory: Path) -> Path:
    """Make ``directory`` an empty folder and return its absolute path.

    Files of an earlier demo are removed. Raises :class:`SystemExit` if the folder holds other
    files.
    """
    if directory.exists() and any(directory.iterdir()):
        if not (directory / MARKER).exists():
            raise SystemExit(
                f"{directory} is not empty and not from a demo: give --directory another folder"
            )
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / MARKER).touch()
    return directory.resolve()


class Demo:
    """One run of the demo; ``ingest`` is the path of ``jobs/ingest.py``.

    ``messages`` is the number of messages that are sent in, ``rows_back`` the number of rows that
    are sent back.
    """

    def __init__(
        self,
        directory: Path,
        ingest: Path,
        console: Console,
        *,
        messages: int,
        rows_back: int,
        seed: int,
    ) -> None:
        self.console = console
        self.directory = directory
        self.messages = messages
        self.rows_back = min(rows_back, messages)
        self.seed = seed
        self.queue_manager = RunningQueueManager(
            directory / "queue-manager", queues=QUEUES, allow_url=["http://127.0.0.1:*"], **PATIENCE
        )
        self.query = Query(
            ingest, directory, "", ",".join(name.partition(":")[0] for name in QUEUES)
        )

    def run(self) -> tuple[InResult, OutResult]:
        """Run the transfer in, then the transfers out, and return both results."""
        try:
            self.queue_manager.start()
            self.console.say(
                f"queue manager: {self.queue_manager.listening}, API {self.queue_manager.api}"
            )
            self.query.api = self.queue_manager.api
            way_in = WayIn(
                self.directory,
                self.queue_manager,
                self.query,
                messages=self.messages,
                seed=self.seed,
                console=self.console,
            ).run()
            self.query.stop()
            way_out = WayOut(
                self.directory,
                self.query.table,
                self.queue_manager,
                rows=self.rows_back,
                seed=self.seed,
                console=self.console,
            )
            return way_in, way_out.run()
        finally:
            self.query.stop()
            self.queue_manager.stop()


def main(ingest: Path) -> int:
    """Run the demo with the arguments of the command line and return the exit code.

    The code is DONE, CHECK_FAILED if a figure in the closing table is wrong, or USAGE if Java is
    missing or unsuitable. Raises :class:`SystemExit` for wrong arguments, or if the demo cannot go
    on.
    """
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path("demo-data"),
        help="scratch folder, emptied first (./demo-data)",
    )
    parser.add_argument(
        "--messages", type=int, default=2000, help="half of them in four streams (default 2000)"
    )
    parser.add_argument(
        "--rows-back",
        type=int,
        default=500,
        metavar="N",
        help="rows that go out again as one stream (500)",
    )
    seed = random.randrange(10**6)
    parser.add_argument("--seed", type=int, default=seed, help="which faults hit which message")
    arguments = parser.parse_args()
    try:
        session.check_java()
    except SrmpSparkError as error:
        print(f"demo: {error}", file=sys.stderr)
        return ExitCode.USAGE
    os.environ["JAVA_TOOL_OPTIONS"] = f"{SHORT_JVM} {os.environ.get('JAVA_TOOL_OPTIONS', '')}"
    directory = fresh(arguments.directory)
    with Console() as console:
        demo = Demo(
            directory,
            ingest,
            console,
            messages=arguments.messages,
            rows_back=arguments.rows_back,
            seed=arguments.seed,
        )
        console.say(f"everything is under {directory} (kept); seed {arguments.seed}")
        way_in, way_out = demo.run()
    good = closing_table(way_in, way_out)
    status, landed = ("done", "failed")[not good], way_in.verdict.landed
    session.last_line(
        "demo",
        rows=landed,
        batches=demo.query.batches(),
        status=status,
        seconds=round(console.seconds(), 1),
    )
    return ExitCode.DONE if good else ExitCode.CHECK_FAILED
