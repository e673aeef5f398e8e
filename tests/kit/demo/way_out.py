"""The second half of the demo: rows of the table are sent to a second queue manager.

Spark writes the rows with ``df.write.format("srmp")``. The network loses replies and requests. The
sending queue manager is killed with -9 while messages are left to send. Then ``replay`` sends an
hour of the table twice under one ``--id``. The second replay has no progress file of the first one,
so that only identities keep it from sending messages again. The result is read from two ends: the
Delta table, and the log of the second queue manager.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import deltalake
import requests

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.jobs import replay, running
from srmp_spark.jobs.selection import Selection
from srmp_spark.names import ORDER_QUEUE
from srmp_spark.spark import session
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.demo.console import Console
from tests.kit.demo.lossy_proxy import LossyProxy
from tests.kit.demo.results import Direction, OutResult
from tests.kit.demo.two_ends import bodies_in, judge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RETURNED, REPLAYED = "private$/returned", "private$/replayed"
LOST_REPLIES, LOST_REQUESTS = 0.02, 0.005
SLOW_LINE = 0.008
"""Delay of each request to the second queue manager, in seconds, until the sender is killed.

The delay keeps some of 500 messages unsent at the moment of the kill.
"""
KILL_AT = 0.2
"""Share of the messages that must have arrived when the sender is killed."""
PATIENCE: dict[str, Any] = {"resend_table": "1,1,2,5", "retransmission_timeout": 0.25}
"""Flags of the sending queue manager.

The flags set the seconds until unacknowledged messages are sent again, and until a broken
connection is tried again. The defaults, 30 and 20 s, are made for days, but a demo lasts minutes.
"""
STALL_MAX = 90.0
"""Seconds without progress at the other end after which the demo waits no longer."""
HOUR = timedelta(hours=1)


class Row(NamedTuple):
    """One row of the table, with the columns that this half needs."""

    arrived_at: datetime
    queue_manager: str
    queue: str
    sequence: int
    body: bytes


class WayOut:
    """One run of the second half.

    ``sender`` is a running queue manager with the flags :data:`PATIENCE`. ``rows`` is the number of
    rows to send back.
    """

    def __init__(
        self,
        directory: Path,
        table: Path,
        sender: RunningQueueManager,
        *,
        rows: int,
        seed: int,
        console: Console,
    ) -> None:
        self.directory = directory
        self.table = table
        self.sender = sender
        self.console = console
        self.say = console.say
        self.result = OutResult(rows)
        queues = [f"{RETURNED}:transactional", f"{REPLAYED}:transactional"]
        self.peer = RunningQueueManager(
            directory / "second-queue-manager", queues=queues, allow_url=["http://127.0.0.1:*"]
        )
        self._seed = seed

    def run(self) -> OutResult:
        """Run both transfers and return their results."""
        with self.peer:
            faults = {"lose_reply": LOST_REPLIES, "lose_request": LOST_REQUESTS, "seed": self._seed}
            # Each argument in the dictionary has the right type.
            with LossyProxy(self.peer.endpoint, **faults) as proxy:  # type: ignore[arg-type]
                self.say(
                    f"second queue manager: {self.peer.listening}, reached through a bad "
                    f"network on port {proxy.port}"
                )
                self.console.wait_for("a Spark session starts: 12 s on a quiet machine")
                spark = self.session()
                try:
                    self.send_back(spark, proxy)
                    self.replay_an_hour(spark, proxy)
                finally:
                    self.console.wait_for("the Spark session and the second queue manager end")
                    spark.stop()
                self.result.faults = dict(proxy.faults)
        return self.result

    def session(self) -> SparkSession:
        """Start a Spark session whose JVM prints into a file.

        Raises :class:`SystemExit` with the end of that file if the session does not start.
        """
        log = self.directory / "sink.log"
        try:
            with output_of_children_in(log):
                return session.delta_session("srmp demo", "local[2]")
        except Exception as error:
            tail = log.read_text(errors="replace")[-2000:]
            raise SystemExit(f"Spark did not start: {error}; {log} ends with:\n{tail}") from error

    # --- a batch of rows, and a kill --------------------------------------------------------------

    def send_back(self, spark: SparkSession, proxy: LossyProxy) -> None:
        """Send the oldest rows of the table in one write, kill the sender meanwhile, and judge."""
        order = ["arrived_at", "queue_manager", "queue", "sequence"]
        table = spark.read.format("delta").load(str(self.table))
        rows = (
            table.select(*order, "epoch", "body", "body_type", "label")
            .orderBy(*order)
            .limit(self.result.wanted)
        )
        destination = f"DIRECT={proxy.url(RETURNED)}"
        proxy.delay = SLOW_LINE
        options = {
            "queueManager": self.sender.api,
            "destination": destination,
            "orderBy": ",".join(order),
            "application": "demo",
        }
        self.console.wait_for(
            f"Spark hands {self.result.wanted} rows to the queue manager: 10 s on a quiet machine"
        )
        rows.write.format("srmp").mode("append").options(**options).save()
        chosen = sorted(self.rows())[: self.result.wanted]
        self.say(f"{len(chosen)} rows are on their way back as one stream")
        self.kill_the_sender(len(chosen))
        proxy.delay = 0.0
        self.result.back = self.settle(destination, RETURNED, [("all", row.body) for row in chosen])

    def kill_the_sender(self, rows: int) -> None:
        """Kill the sender with -9 when a share of ``rows`` has arrived, and restart it.

        The share is :data:`KILL_AT`. The kill also happens if no message arrives for
        :data:`STALL_MAX` seconds.
        """
        self.progress(RETURNED, lambda arrived: arrived >= KILL_AT * rows)
        self.sender.kill9()
        self.result.arrived_at_kill = self.last(RETURNED)
        self.say(
            f"kill -9: the queue manager that sends, when {self.result.arrived_at_kill} "
            f"of {rows} had arrived"
        )
        self.sender.restart()

    # --- an hour, twice ---------------------------------------------------------------------------

    def replay_an_hour(self, spark: SparkSession, proxy: LossyProxy) -> None:
        """Replay the hour that begins with the oldest row, twice, and judge the result."""
        begin = min(row.arrived_at for row in self.rows())
        hour = sorted(row for row in self.rows() if begin <= row.arrived_at < begin + HOUR)
        destination = f"DIRECT={proxy.url(REPLAYED)}"
        flags = [
            "--from",
            begin.isoformat(),
            "--to",
            (begin + HOUR).isoformat(),
            "--id",
            "demo-hour",
            "--yes",
        ]
        runs = []
        for start in ("first", "second"):
            self.console.wait_for(
                f"replay, {start} start: Spark reads the table and hands over its rows"
            )
            notes = ["--progress-file", str(self.directory / f"replay-{start}.jsonl")]
            runs.append(self.replay(spark, destination, [*flags, *notes]))
            self.say(
                f"replay, {start} start: {runs[-1].rows} rows are new, "
                f"{runs[-1].more['known']} were known"
            )
        first, second = runs
        self.result.replay_new = (first.rows, second.rows)
        self.result.replay_known = (first.more["known"], second.more["known"])
        in_order = sorted(hour, key=lambda row: (row.queue_manager, row.queue, row.sequence))
        self.result.replayed = self.settle(
            destination, REPLAYED, [(row.queue, row.body) for row in in_order]
        )
        self.result.receipts = int(QueueManagerClient(self.sender.api).queue(ORDER_QUEUE)["last"])

    def replay(
        self, spark: SparkSession, destination: str, flags: Sequence[str]
    ) -> running.JobOutcome:
        """Run ``jobs/replay.py`` with these flags in the running session and return its outcome."""
        parser = argparse.ArgumentParser()
        replay.add_arguments(parser)
        where = [
            "--table",
            str(self.table),
            "--queue-manager",
            self.sender.api,
            "--destination",
            destination,
        ]
        args = parser.parse_args([*where, *flags])
        # The demo prints its own lines about the replay.
        log = io.StringIO()
        with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
            return replay.replay(spark, Selection.of(args), running.sink_options(args), args)

    # --- the two ends -----------------------------------------------------------------------------

    def rows(self) -> list[Row]:
        """Return the rows of the table, read without Spark."""
        columns = [*Row._fields]
        found = deltalake.DeltaTable(str(self.table)).to_pyarrow_table(columns=columns).to_pylist()
        return [Row(**{**row, "body": row["body"] or b""}) for row in found]

    def last(self, queue: str) -> int:
        """Return the last sequence of ``queue`` at the second queue manager.

        The sequence is the number of messages that have arrived there.
        """
        return int(QueueManagerClient(self.peer.api).queue(queue)["last"])

    def outgoing(self, destination: str) -> dict[str, Any]:
        """Return the destination's entry of ``outgoing`` in the sender's status.

        The entry is empty if the sender has nothing for the destination.
        """
        answer = requests.get(f"{self.sender.api}/v1/status", timeout=10)
        answer.raise_for_status()
        url = destination.removeprefix("DIRECT=")
        entries = (
            entry
            for entry in answer.json()["outgoing"]
            if entry["destination"].removeprefix("DIRECT=") == url
        )
        return next(entries, {})

    def progress(self, queue: str, enough: Callable[[int], bool]) -> None:
        """Wait until ``enough(number)`` is true for the number of messages that have arrived.

        The method also returns if no new message arrives for :data:`STALL_MAX` seconds.
        """
        known, since = -1, time.monotonic()
        self.console.wait_for(lambda: f"messages for {queue}; {max(known, 0)} have arrived")
        while time.monotonic() - since < STALL_MAX:
            arrived = self.last(queue)
            if enough(arrived):
                return
            if arrived > known:
                known, since = arrived, time.monotonic()
            time.sleep(0.02)
        self.say(f"nothing new arrived for {STALL_MAX:.0f} s")

    def settle(
        self, destination: str, queue: str, handed_over: list[tuple[str, bytes]]
    ) -> Direction:
        """Wait until the sender has nothing left to do for a destination; judge the transfer.

        The wait ends as that of :meth:`progress` does.
        """

        def unfinished(entry: dict[str, Any]) -> int:
            return (
                int(entry["queued"] + entry["awaiting_stream_receipt"] + entry["in_doubt"])
                if entry
                else len(handed_over)
            )

        self.progress(queue, lambda _: unfinished(self.outgoing(destination)) == 0)
        left = unfinished(self.outgoing(destination))
        arrived = list(bodies_in(self.peer.api, queue))
        self.say(f"{queue}: {len(arrived)} arrived, {len(handed_over) - left} acknowledged")
        return Direction(
            len(handed_over), len(arrived), len(handed_over) - left, judge(handed_over, arrived)
        )


@contextlib.contextmanager
def output_of_children_in(log: Path) -> Iterator[None]:
    """Redirect the output of this process and of new child processes to the file ``log``.

    The redirection ends with the context, but a JVM that started inside the context writes to the
    file until the JVM ends.
    """
    sys.stdout.flush()
    kept = os.dup(1), os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        for number, old in enumerate(kept, 1):
            os.dup2(old, number)
            os.close(old)
