"""Move a queue manager between two nodes under traffic, and time what senders and readers notice.

Both nodes are processes with addresses of their own and one data directory, as a block volume that
moves with its pod. Senders and readers know the :class:`.ServiceAddress` alone. A round has three
handovers (:class:`Handover`), with foreign senders in a stream and without one, a reader with its
own positions and, if there is a JVM or ``--spark``, a Spark query. At the end the ledger of the
senders judges the rows: nothing is lost, doubled or out of order, and each reader had each row
once.

    python -m tests.kit.failover.run --rounds 5 --spark

The last line is JSON with the medians. Times are in seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.testing.queue_manager import RunningQueueManager, ServeFailedError
from tests.kit.drill.reader import Place, Reader
from tests.kit.failover.service_address import ServiceAddress
from tests.kit.foreign.http import ReceiptsServer
from tests.kit.foreign.ledger import Landed, Ledger, digest
from tests.kit.foreign.senders import ForeignQueueManager, MessageSender
from tests.kit.foreign.stream_sender import StreamSender
from tests.kit.foreign.verdict import judge
from tests.one_jvm import one_jvm

ORDERS, PAYMENTS = "private$/orders", "private$/payments"
RATE = 40.0
"""Messages of each kind that are sent a second."""
HOSTS = ("127.0.0.1", "127.0.0.2")
"""The addresses of the two nodes."""
DRAIN_SECONDS = 180.0
"""Longest time that a query may take to start, and the end of a round, on a busy machine."""
HUNG_SECONDS = 1.0
"""How long a node hangs before the operator kills it."""
ROOT = Path(__file__).resolve().parents[3]


class Handover(Enum):
    """How the active node ends before the other one takes over."""

    KILLED = "killed"
    """kill -9 of the process, as when its machine dies."""
    HUNG = "hung"
    """The processes stand still (SIGSTOP) and keep the lock: the other node is refused (exit code
    5) until the operator kills them.
    """
    STOPPED = "stopped"
    """A clean end (SIGTERM), as for an upgrade."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """What one handover cost, in seconds."""

    handover: Handover
    started: float
    """From the start of the process at the other node to its ready line."""
    accepted: float
    """From the last answer 200 before to the first one after."""
    read: float
    """From the last rows that the reader got before to the first ones after."""
    spark: float | None
    """The same of the Spark query; ``None`` without one."""


@dataclass(slots=True)
class Outcome:
    """The result of one round."""

    seed: int
    times: list[Times] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """The reasons why the round is not good."""
    refusal: str = ""
    """What the second node said while the first one hung."""
    sent: int = 0
    landed: int = 0

    @property
    def ok(self) -> bool:
        """Return whether :attr:`faults` is empty."""
        return not self.faults


@dataclass(frozen=True, slots=True)
class _Moved:
    """One handover as it happened; times are monotonic, in seconds."""

    handover: Handover
    begun_at: float
    ended_at: float
    """When the old node was gone and the other one could start."""
    ready_at: float


class SparkQuery:
    """Runs :mod:`.query` as a process, by the JVM that ``environment`` names, if it does."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self._file = directory / "query.jsonl"
        self._file.touch()
        self._log = directory / "query.log"
        self._checkpoint = directory / "checkpoint"
        self._environment = environment
        self._process: subprocess.Popen[str] | None = None

    def start(self, api: str) -> None:
        """Start the query, and wait for its first row."""
        command = [sys.executable, "-m", "tests.kit.failover.query", api, f"{ORDERS},{PAYMENTS}"]
        command += [str(self._file), str(self._checkpoint)]
        paths = {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
        with self._log.open("w") as log:
            # The command runs this interpreter and a module of the tests.
            self._process = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.PIPE,
                stderr=log,
                stdout=log,
                text=True,
                cwd=ROOT,
                env={**os.environ, **paths, **self._environment},
            )

    def rows(self) -> list[tuple[float, Place]]:
        """Return the rows so far: the monotonic time in seconds, and the place of each."""
        lines = self._file.read_text().splitlines(keepends=True)
        found = [json.loads(line) for line in lines if line.endswith("\n")]
        return [(each["at"], (each["epoch"], each["queue"], each["sequence"])) for each in found]

    def check(self) -> None:
        """Raise :class:`RuntimeError` if the query has ended."""
        if self._process is not None and self._process.poll() is not None:
            raise RuntimeError(f"the query has ended:\n{self._log.read_text()[-3000:]}")

    def stop(self) -> str | None:
        """End the query; return the end of its log if it had failed."""
        if self._process is None:
            return None
        self._process.communicate(timeout=DRAIN_SECONDS)
        return None if self._process.returncode == 0 else self._log.read_text()[-3000:]


class Round:
    """One round with its files in ``directory``; ``seconds`` of traffic after each handover."""

    def __init__(
        self, directory: Path, seed: int, seconds: float, query: SparkQuery | None = None
    ) -> None:
        self.outcome = Outcome(seed)
        self._directory = directory
        self._dice = random.Random(seed)
        self._seconds = seconds
        self._query = query
        self._ledger = Ledger(path=directory / "ledger.jsonl")
        self._senders, self._api = ServiceAddress(), ServiceAddress()
        self._over = asyncio.Event()
        self._moved: list[_Moved] = []

    async def run(self) -> Outcome:
        """Run the round and return its outcome. Faults of the product are in the outcome."""
        await self._senders.start()
        await self._api.start()
        nodes = [self._node(host) for host in HOSTS]
        active = nodes[0]
        try:
            await asyncio.to_thread(active.start)
            self._lead_to(active)
            reader = Reader(self._api.url, [ORDERS, PAYMENTS], "reader")
            reader.start()
            if self._query is not None:
                self._query.start(self._api.url)
            async with ReceiptsServer() as receipts:
                traffic = self._traffic(receipts)
                try:
                    await self._until_everybody_reads(reader)
                    for handover, successor in zip(Handover, itertools.cycle(reversed(nodes))):
                        await asyncio.sleep(self._seconds * self._dice.uniform(0.5, 1.0))
                        self._moved.append(await self._move(handover, active, successor))
                        active = successor
                        await self._until_rows_are_read_again(reader)
                    self._over.set()
                    await asyncio.wait_for(traffic, DRAIN_SECONDS)
                finally:
                    traffic.cancel()
            rows = await asyncio.to_thread(self._rows, active)
            await self._until_all_is_read(reader, rows)
            await asyncio.to_thread(reader.stop)
            self._judge(reader, rows)
        finally:
            if self._query is not None and (failure := await asyncio.to_thread(self._query.stop)):
                self.outcome.faults.append(f"the query failed: {failure}")
            await asyncio.to_thread(active.stop)
            await self._senders.stop()
            await self._api.stop()
            self._ledger.close()
        return self.outcome

    def _node(self, host: str) -> RunningQueueManager:
        """Return a node that is not running. Its public URL is the service address."""
        node = RunningQueueManager(
            self._directory / "data",
            queues=[ORDERS, f"{PAYMENTS}:transactional"],
            allow_url=["http://127.0.0.1:*"],
            listen=f"{host}:0",
            api_listen=f"{host}:0",
            public_url=self._senders.url,
        )
        node.log = self._directory / f"{host}.log"
        return node

    def _lead_to(self, node: RunningQueueManager) -> None:
        self._senders.lead_to(node.listening)
        self._api.lead_to(node.api)

    # --- traffic ----------------------------------------------------------------------------------

    def _traffic(self, receipts: ReceiptsServer) -> asyncio.Future[tuple[None, None, None]]:
        manager = ForeignQueueManager(
            endpoint=lambda: ("127.0.0.1", self._senders.port),
            ledger=self._ledger,
            receipts_url=receipts.url(),
            seed=self.outcome.seed,
            reply_timeout=5.0,
        )
        receipts.on_receipt = manager.on_receipt
        stream = StreamSender(manager, PAYMENTS)
        orders = MessageSender(manager, ORDERS).run(self._orders(), rate=RATE)
        return asyncio.gather(orders, self._payments(stream), stream.run())

    def _orders(self) -> Iterator[tuple[bytes, bool]]:
        for number in itertools.count(1):
            if self._over.is_set():
                return
            yield b"order %06d" % number, number % 2 == 0

    async def _payments(self, stream: StreamSender) -> None:
        for number in itertools.count(1):
            if self._over.is_set():
                break
            stream.enqueue(b"payment %06d" % number)
            await asyncio.sleep(1 / RATE)
        stream.close()

    # --- the handover -----------------------------------------------------------------------------

    async def _move(
        self, handover: Handover, active: RunningQueueManager, successor: RunningQueueManager
    ) -> _Moved:
        begun_at = time.monotonic()
        if handover is Handover.KILLED:
            await asyncio.to_thread(active.kill9)
        elif handover is Handover.STOPPED:
            await asyncio.to_thread(active.stop)
        else:
            await self._hang(active, successor)
        ended_at = time.monotonic()
        await asyncio.to_thread(successor.start)
        self._lead_to(successor)
        return _Moved(handover, begun_at, ended_at, time.monotonic())

    async def _hang(self, active: RunningQueueManager, successor: RunningQueueManager) -> None:
        """Let the active node stand still, see the other one refused, and kill the first one."""
        pids = processes_of(active.pid)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(HUNG_SECONDS)
            await asyncio.to_thread(successor.start)
            self.outcome.faults.append("the second node started while the first one hung")
        except ServeFailedError as refused:
            lines = [line for line in refused.stderr.splitlines() if "in use" in line]
            self.outcome.refusal = lines[-1] if lines else refused.stderr
            if refused.code != 5 or f"process {active.pid} on" not in self.outcome.refusal:
                self.outcome.faults.append(f"the refusal was {refused.code}: {refused.stderr}")
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await asyncio.to_thread(active.kill9)

    # --- the waits --------------------------------------------------------------------------------

    async def _until_everybody_reads(self, reader: Reader) -> None:
        await self._until(lambda: bool(reader.read_at) and self._query_has_rows_since(0.0), reader)

    async def _until_rows_are_read_again(self, reader: Reader) -> None:
        """Wait until a message that was accepted after the handover has been read by everybody."""
        ready_at = self._moved[-1].ready_at

        def is_back() -> bool:
            accepted = any(at > ready_at for at in self._accepted_at())
            read = bool(reader.read_at) and reader.read_at[-1] > ready_at
            return accepted and read and self._query_has_rows_since(ready_at)

        await self._until(is_back, reader)

    async def _until_all_is_read(self, reader: Reader, rows: Sequence[Landed]) -> None:
        places = {(row.epoch, row.queue, row.sequence) for row in rows}

        def is_read() -> bool:
            query = self._query is None or places <= {place for _, place in self._query.rows()}
            return places <= set(reader.rows) and query

        await self._until(is_read, reader)

    async def _until(self, condition: object, reader: Reader) -> None:
        """Wait for ``condition()``. Raises :class:`RuntimeError` if a reader has ended before."""
        assert callable(condition)
        end = time.monotonic() + DRAIN_SECONDS
        while not condition():
            if reader.failure is not None:
                raise RuntimeError(f"the reader has ended: {reader.failure}")
            if self._query is not None:
                self._query.check()
            if time.monotonic() > end:
                raise RuntimeError(f"not within {DRAIN_SECONDS} s; {self.outcome}")
            await asyncio.sleep(0.05)

    def _query_has_rows_since(self, since: float) -> bool:
        return self._query is None or any(at > since for at, _ in self._query.rows())

    def _accepted_at(self) -> list[float]:
        found = (entry.answered_at for entry in self._ledger.entries.values())
        return [at for at in found if at is not None]

    # --- the judgement ----------------------------------------------------------------------------

    def _rows(self, node: RunningQueueManager) -> list[Landed]:
        client = QueueManagerClient(node.api)
        transactional = {entry["name"]: entry["transactional"] for entry in client.queues()}
        found = [
            row
            for queue in (ORDERS, PAYMENTS)
            for row in node.queue(queue, transactional=transactional[queue]).rows()
        ]
        return [
            Landed(
                queue=row["queue"],
                epoch=row["epoch"],
                sequence=row["sequence"],
                lineage=row["lineage"],
                uniquifier=row["uniquifier"],
                body=digest(row["body"]),
                stream_id=row["stream_id"],
                stream_sequence=row["stream_sequence"],
            )
            for row in found
        ]

    def _judge(self, reader: Reader, rows: Sequence[Landed]) -> None:
        found = self.outcome
        verdict = judge(self._ledger, rows)
        found.sent, found.landed = verdict.sent, verdict.landed
        if not verdict.ok:
            found.faults.append(verdict.complaint())
        if verdict.acknowledged != verdict.sent:
            found.faults.append(f"{verdict.acknowledged} of {verdict.sent} were acknowledged")
        places = Counter((row.epoch, row.queue, row.sequence) for row in rows)
        readers = {"the reader": reader.rows}
        query = [] if self._query is None else self._query.rows()
        if self._query is not None:
            readers["the query"] = Counter(place for _, place in query)
        for name, had in readers.items():
            if had != places:
                found.faults.append(
                    f"{name} had {had.total()} rows of {places.total()}: "
                    f"missing {list(places - had)[:5]}, too many {list(had - places)[:5]}"
                )
        for moved in self._moved:
            pause = Pause(moved.begun_at, moved.ready_at)
            found.times.append(
                Times(
                    handover=moved.handover,
                    started=moved.ready_at - moved.ended_at,
                    accepted=pause.around(self._accepted_at()),
                    read=pause.around(reader.read_at),
                    spark=pause.around([at for at, _ in query]) if query else None,
                )
            )


@dataclass(frozen=True, slots=True)
class Pause:
    """The time in which no node was ready; both ends are monotonic, in seconds."""

    begun_at: float
    ready_at: float

    def around(self, times: Sequence[float]) -> float:
        """Return the seconds between two neighbours of ``times`` that have the handover between.

        An answer that was on its way at the kill may arrive after it, so the longest pause counts
        that touches the time in which no node was ready. There must be times before and after it.
        """
        ordered = sorted(times)
        pairs = itertools.pairwise(ordered)
        return max(
            later - earlier
            for earlier, later in pairs
            if later > self.begun_at and earlier < self.ready_at
        )


def processes_of(pid: int) -> list[int]:
    """Return the process ``pid`` and all below it."""
    found = [pid]
    # A process that ends meanwhile has no folder any more.
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                for child in (thread / "children").read_text().split():
                    found += processes_of(int(child))
    return found


def medians(times: Sequence[Times]) -> dict[str, dict[str, float]]:
    """Return the median of each kind of time, by handover and by the name of the time."""
    found: dict[str, dict[str, float]] = {}
    for handover in Handover:
        these = [each for each in times if each.handover is handover]
        if these:
            found[handover.value] = {
                name: round(statistics.median(values), 2)
                for name in ("started", "accepted", "read", "spark")
                if (values := [v for each in these if (v := getattr(each, name)) is not None])
            }
    return found


def report(outcome: Outcome) -> None:
    """Print a line of JSON for each handover of a round, and one for the round."""
    for each in outcome.times:
        told = {name: getattr(each, name) for name in ("started", "accepted", "read", "spark")}
        rounded = {name: None if at is None else round(at, 2) for name, at in told.items()}
        print(json.dumps({"seed": outcome.seed, "handover": each.handover.value, **rounded}))
    whole = ("seed", "ok", "sent", "landed", "faults", "refusal")
    print(json.dumps({name: getattr(outcome, name) for name in whole}), flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return 0 if every round was good, else 1."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.kit.failover.run", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--seconds", type=float, default=5.0, help="of traffic between handovers")
    parser.add_argument("--rounds", type=int, default=1, help="how many rounds (default 1)")
    parser.add_argument(
        "--spark", action="store_true", help="with a Spark query, which takes a JVM"
    )
    options = parser.parse_args(arguments)
    good, times = True, list[Times]()
    with contextlib.ExitStack() as stack:
        # Rounds share one JVM, as a query of weeks has a warm one.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="srmp-jvm-")))
        jvm = stack.enter_context(one_jvm(folder)) if options.spark else None
        for seed in range(options.seed, options.seed + options.rounds):
            with tempfile.TemporaryDirectory(prefix="srmp-failover-") as name:
                query = None if jvm is None else SparkQuery(Path(name), jvm)
                made = Round(Path(name), seed, options.seconds, query)
                outcome = asyncio.run(made.run())
            report(outcome)
            times += outcome.times
            good = good and outcome.ok
    print(json.dumps(medians(times)))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
