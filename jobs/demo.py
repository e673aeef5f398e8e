"""make demo: SRMP messages over real HTTP into a Delta table and out again, while what carries them is killed.

A queue manager (``srmp-spark serve``) and a Spark query (``jobs/ingest.py``) start as processes of their own. A sender
written from the document alone sends regular, durable and stream messages, and loses replies, repeats, reorders and sends
late copies on the way. The queue manager is killed with -9 and restarted twice, the Spark query once. At the end the
sender's ledger is held against the Delta table; nothing else knows how many rows there should be.

Then rows of that table go out again as a stream to a second queue manager, through lost replies and a kill of their sender, and
one hour is replayed twice under one name (``srmp_spark.testing.demo_out``).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import requests

from srmp_spark.errors import SrmpSparkError
from srmp_spark.interface import ExitCode
from srmp_spark.spark import session
from srmp_spark.testing.demo_out import PATIENCE, OutResult, WayOut, short_jvm
from srmp_spark.testing.foreign.http import ReceiptsServer
from srmp_spark.testing.foreign.ledger import Landed, Ledger, digest
from srmp_spark.testing.foreign.messages import Dialect, ForeignReceipt
from srmp_spark.testing.foreign.senders import Faults, ForeignQueueManager, MessageSender
from srmp_spark.testing.foreign.stream_sender import StreamSender
from srmp_spark.testing.foreign.verdict import Verdict, judge
from srmp_spark.testing.service import RunningQueueManager

ORDERS, PAYMENTS, SHIPMENTS = "private$/orders", "private$/payments", "private$/shipments"
QUEUES = (ORDERS, f"{PAYMENTS}:transactional", f"{SHIPMENTS}:transactional")
FAULTS = Faults(lost_reply=0.03, duplicate=0.05, reorder=0.02, ghost=0.03)
STREAM_WINDOW = 25
"""Messages of a stream that are under way at once."""
MESSAGES_A_SECOND = 30.0
"""Regular and durable ones; the streams go as fast as their receipts come."""
FIRST_SHARE = 0.05
"""So much is sent before the first rows have landed: a query that was never seen to work proves nothing when it is killed."""
SPARK_START_MAX = 180.0
"""Seconds until the query must hold its lease, and until the first rows must be in the table: 12 and 10 on a quiet machine."""
TRAFFIC_MAX = 180.0
"""Seconds until every message must be acknowledged: 35 on a quiet machine."""
LANDING_STALL_MAX = 180.0
"""Seconds without a new row, while rows are missing, after which nothing more is expected."""
KILL_QUEUE_MANAGER_AT = (0.2, 0.7)
KILL_QUERY_AT = 0.45
"""At which share of acknowledged messages each is killed: always with traffic before it and after it."""
SHORT_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that lives for a minute spends half its time compiling what it will not run again: 25 s of CPU to start, not 48."""
MARKER = ".srmp-spark-demo"
"""Only a folder with this file in it is emptied."""


def say(begun: float, text: str) -> None:
    """One line of progress."""
    print(f"[{time.monotonic() - begun:6.1f} s] {text}", flush=True)


def fresh(directory: Path) -> Path:
    """An empty folder; what an earlier demo left in it goes, what anybody else left stays and is an error."""
    if directory.exists() and any(directory.iterdir()):
        if not (directory / MARKER).exists():
            raise SystemExit(f"{directory} is not empty and not from a demo: give --directory another folder")
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / MARKER).touch()
    return directory.resolve()


class Query:
    """``jobs/ingest.py`` in a process group of its own, so that kill -9 takes the JVM with it."""

    def __init__(self, directory: Path, api: str) -> None:
        self.directory = directory
        self.api = api
        self.starts = 0
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def table(self) -> Path:
        return self.directory / "table"

    @property
    def log(self) -> Path:
        return self.directory / f"ingest-{self.starts}.log"

    def start(self) -> None:
        self.starts += 1
        names = ",".join(name.partition(":")[0] for name in QUEUES)
        command = [sys.executable, str(Path(__file__).with_name("ingest.py")), "--queue-manager", self.api, "--queue", names]
        command += ["--table", str(self.table), "--checkpoint", str(self.directory / "checkpoint"), "--trigger", "1 second"]
        environment = {**os.environ, "JAVA_TOOL_OPTIONS": f"{SHORT_JVM} {os.environ.get('JAVA_TOOL_OPTIONS', '')}"}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(  # noqa: S603 - our own job
                command, stdout=log, stderr=log, start_new_session=True, env=environment
            )

    def kill9(self) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill9()

    def check(self) -> None:
        """A query that ended by itself is a failure; say where its log is."""
        if self.process is not None and self.process.poll() is not None:
            tail = self.log.read_text(errors="replace")[-2000:]
            raise SystemExit(f"the Spark query ended with {self.process.returncode}; {self.log} ends with:\n{tail}")

    def rows(self) -> list[Landed]:
        """What is in the Delta table now, read without Spark."""
        if not deltalake.DeltaTable.is_deltatable(str(self.table)):
            return []
        columns = ["queue", "epoch", "sequence", "lineage", "uniquifier", "body", "stream_id", "stream_sequence"]
        found = deltalake.DeltaTable(str(self.table)).to_pyarrow_table(columns=columns).to_pylist()
        return [Landed(**{**row, "body": digest(row["body"] or b"")}) for row in found]


class Demo:
    """One run."""

    def __init__(self, directory: Path, messages: int, seed: int, rows_back: int = 500) -> None:
        self.begun = time.monotonic()
        self.directory = directory
        self.rows_back = rows_back
        self.messages = messages
        self.seed = seed
        self.ledger = Ledger(path=directory / "ledger.jsonl")
        self.queue_manager = RunningQueueManager(
            directory / "queue-manager", queues=QUEUES, allow_url=["http://127.0.0.1:*"], **PATIENCE
        )
        self.query = Query(directory, "")
        self.kills: list[str] = []

    def say(self, text: str) -> None:
        say(self.begun, text)

    def status(self) -> dict[str, dict[str, Any]]:
        """``GET /v1/status``, the queues by name."""
        answer = requests.get(f"{self.queue_manager.api}/v1/status", timeout=5)
        answer.raise_for_status()
        return {queue["name"]: queue for queue in answer.json()["queues"]}

    def holders(self) -> int:
        """How many queues have a receiver: the query is ready when all three do."""
        return sum(any(consumer["holder"] for consumer in queue["consumers"]) for queue in self.status().values())

    def run(self) -> tuple[Verdict, OutResult]:
        """Start, send, kill, wait, judge; first in, then out."""
        try:
            self.queue_manager.start()
            self.say(f"queue manager: {self.queue_manager.listening}, API {self.queue_manager.api}")
            self.query.api = self.queue_manager.api
            self.query.start()
            self.wait_for_query()
            asyncio.run(self.traffic())
            self.wait_for_landing()
            verdict = judge(self.ledger, self.query.rows())
            self.query.stop()
            short_jvm(SHORT_JVM)
            out = WayOut(
                self.directory, self.query.table, self.queue_manager, rows=self.rows_back, seed=self.seed, say=self.say
            )
            return verdict, out.run()
        finally:
            self.query.stop()
            self.queue_manager.stop()
            self.ledger.close()

    def wait_for_query(self) -> None:
        deadline = time.monotonic() + SPARK_START_MAX
        while self.holders() < len(QUEUES):
            self.query.check()
            if time.monotonic() > deadline:
                raise SystemExit(f"the Spark query did not start within {SPARK_START_MAX:.0f} s: see {self.query.log}")
            time.sleep(0.25)
        self.say("Spark query: reads all three queues")

    async def traffic(self) -> None:
        """Every sender, and whoever kills."""
        async with ReceiptsServer() as receipts:
            managers = [
                ForeignQueueManager(
                    endpoint=lambda: self.queue_manager.endpoint,
                    ledger=self.ledger,
                    receipts_url=receipts.url(),
                    seed=self.seed + number,
                    reply_timeout=5.0,
                )
                for number in range(2)
            ]

            def everybody(receipt: ForeignReceipt) -> None:
                for manager in managers:
                    manager.on_receipt(receipt)

            receipts.on_receipt = everybody
            orders = MessageSender(managers[0], ORDERS, faults=FAULTS, delivery_receipts=0.1)
            streams = [
                StreamSender(manager, queue, faults=FAULTS, dialect=dialect, window=STREAM_WINDOW, gap=0.02)
                for manager, dialect in zip(managers, (Dialect.EXAMPLES, Dialect.TEXT), strict=True)
                for queue in (PAYMENTS, SHIPMENTS)
            ]
            in_streams = self.messages // 2
            first = int(self.messages * FIRST_SHARE)
            bodies = self.bodies(self.messages - in_streams)
            await orders.run(itertools.islice(bodies, first), rate=MESSAGES_A_SECOND)
            await self.first_landing()
            for number in range(in_streams):
                streams[number % len(streams)].enqueue(f"stream message {number}".encode())
            for stream in streams:
                stream.close()
            work = asyncio.gather(orders.run(bodies, rate=MESSAGES_A_SECOND), *(stream.run() for stream in streams))
            killer = asyncio.create_task(self.kill())
            progress = asyncio.create_task(self.progress())
            try:
                await asyncio.wait_for(work, TRAFFIC_MAX)
                await asyncio.wait_for(killer, TRAFFIC_MAX)
            finally:
                progress.cancel()
                killer.cancel()
            if receipts.faults:
                self.ledger.violation(f"at the order queue: {receipts.faults[:3]}")

    def bodies(self, count: int) -> Iterator[tuple[bytes, bool]]:
        """Bodies of 20 bytes to 20 KB; every other message is durable."""
        dice = random.Random(self.seed)  # noqa: S311 - the same seed, the same bodies
        for number in range(count):
            yield f"order {number:06d}; ".encode() * dice.choice((1, 10, 100, 1400)), number % 2 == 0

    async def first_landing(self) -> None:
        """Until the query is known to work."""
        deadline = time.monotonic() + SPARK_START_MAX
        while not await asyncio.to_thread(self.query.rows):
            self.query.check()
            if time.monotonic() > deadline:
                raise SystemExit(f"nothing landed within {SPARK_START_MAX:.0f} s: see {self.query.log}")
            await asyncio.sleep(0.25)
        self.say("the first rows are in the table; now everything at once")

    async def until(self, share: float) -> None:
        while self.ledger.count("acknowledged_at") < share * self.messages:
            await asyncio.sleep(0.05)

    async def kill(self) -> None:
        """The three kills, in the order of their shares."""
        plan = sorted([*((share, "queue manager") for share in KILL_QUEUE_MANAGER_AT), (KILL_QUERY_AT, "Spark query")])
        for share, victim in plan:
            await self.until(share)
            before = self.ledger.sent
            if victim == "queue manager":
                await asyncio.to_thread(self.queue_manager.kill9)
                self.say("kill -9: queue manager")
                begun = time.monotonic()
                await asyncio.to_thread(self.queue_manager.restart)
                self.say(f"queue manager: back after {time.monotonic() - begun:.1f} s")
            else:
                await asyncio.to_thread(self.query.kill9)
                self.say("kill -9: Spark query")
                self.query.start()
            if 0 < before < self.messages:  # with all of them sent it would prove nothing
                self.kills.append(victim)

    async def progress(self) -> None:
        while True:
            await asyncio.sleep(3)
            landed = len(await asyncio.to_thread(self.query.rows))
            self.say(f"sent {self.ledger.sent}, acknowledged {self.ledger.count('acknowledged_at')}, landed {landed}")

    def wait_for_landing(self) -> None:
        """Until the table holds, queue by queue, as many sequences as the queue manager counted."""
        self.say("the senders are done; waiting for the table")
        known, since = 0, time.monotonic()
        while time.monotonic() - since < LANDING_STALL_MAX:
            self.query.check()
            rows = self.query.rows()
            if len(rows) > known:
                known, since = len(rows), time.monotonic()
                self.say(f"landed {known} of {self.ledger.count('acknowledged_at')} acknowledged")
            there = {name: max((row.sequence for row in rows if row.queue == name), default=0) for name in self.status()}
            if there == {name: queue["last"] for name, queue in self.status().items()}:
                return
            time.sleep(0.5)
        self.say(f"no new row for {LANDING_STALL_MAX:.0f} s, and rows are missing")


def closing_table(demo: Demo, verdict: Verdict, out: OutResult) -> bool:
    """Print it; True when nothing in it is wrong."""
    good = [print_lines("In: SRMP over HTTP into the Delta table", lines_in(demo, verdict))]
    good.append(print_lines("Out: the Delta table to a second queue manager", out.lines()))
    print(flush=True)
    if verdict.complaint():
        print(verdict.complaint(), file=sys.stderr)
    return verdict.ok and all(good)


def print_lines(title: str, lines: list[tuple[str, str, bool]]) -> bool:
    """One half of the table; True when nothing in it is wrong."""
    print(f"\n{title}")
    for name, value, good in lines:
        print(f"  {name:<24} {value}{'' if good else '   <-- WRONG'}")
    return all(good for _, _, good in lines)


def lines_in(demo: Demo, verdict: Verdict) -> list[tuple[str, str, bool]]:
    """What came in: (name, value, is it right)."""
    ledger = demo.ledger
    in_streams = sum(1 for _ in ledger.of_kind("stream"))
    wanted = sum(entry.wants_receipt for entry in ledger.entries.values())
    receipted = ledger.count("receipted_at")
    strangers = len(verdict.unexpected) + len(verdict.altered)
    return [
        ("sent", str(verdict.sent), verdict.sent == demo.messages),
        ("acknowledged", str(verdict.acknowledged), verdict.acknowledged == verdict.sent),
        ("landed", str(verdict.landed), verdict.landed >= verdict.acknowledged),
        ("lost", str(len(verdict.lost)), not verdict.lost),
        ("doubled", str(len(verdict.doubled)), not verdict.doubled and not verdict.reused),
        ("out of order", str(len(verdict.disordered) + len(verdict.gaps)), not verdict.disordered and not verdict.gaps),
        ("never sent, or altered", str(strangers), strangers == 0),
        ("refused", str(len(verdict.refused)), not verdict.refused),
        (
            "receipts",
            f"{ledger.stream_receipts} for {in_streams} stream messages, {ledger.delivery_receipts} delivery receipts",
            receipted == wanted and not verdict.violations,
        ),
        ("killed with -9", ", ".join(demo.kills), len(demo.kills) == len(KILL_QUEUE_MANAGER_AT) + 1),
        ("faults injected", ", ".join(f"{name} {count}" for name, count in sorted(ledger.faults.items())), True),
    ]


def main() -> int:
    """Run the demo; exit code 1 if anything in the closing table is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, default=Path("demo-data"), help="scratch folder, emptied first (./demo-data)")
    parser.add_argument("--messages", type=int, default=2000, help="half of them in four streams (default 2000)")
    parser.add_argument("--rows-back", type=int, default=500, metavar="N", help="rows that go out again as one stream (500)")
    seed = random.randrange(10**6)  # noqa: S311 - printed, so that a run can be had again
    parser.add_argument("--seed", type=int, default=seed, help="which faults hit which message")
    arguments = parser.parse_args()
    try:
        session.check_java()
    except SrmpSparkError as error:
        print(f"demo: {error}", file=sys.stderr)
        return ExitCode.USAGE
    directory = fresh(arguments.directory)
    demo = Demo(directory, arguments.messages, arguments.seed, min(arguments.rows_back, arguments.messages))
    demo.say(f"everything is under {directory} (kept); seed {arguments.seed}")
    verdict, out = demo.run()
    good = closing_table(demo, verdict, out)
    status, seconds = ("done", "failed")[not good], round(time.monotonic() - demo.begun, 1)
    session.last_line("demo", rows=verdict.landed, batches=batches(directory), status=status, seconds=seconds)
    return ExitCode.DONE if good else ExitCode.CHECK_FAILED


def batches(directory: Path) -> int:
    """How many batches the query committed."""
    return sum(path.name.isdigit() for path in (directory / "checkpoint" / "commits").glob("*"))


if __name__ == "__main__":
    raise SystemExit(main())
