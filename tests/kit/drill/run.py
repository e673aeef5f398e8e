"""Run the drill: a queue manager with traffic loses its disk and is restored from Delta.

The loss happens at a random moment, with traffic in both directions. The foreign senders (one
stream, and messages without a stream) and the foreign destination do not use the package, and they
continue through the loss. The drill also does an operator's work after the loss: ``restore``,
``streams accept-gap`` and ``streams resend``. Before the loss an operator calls ``restore`` once by
mistake, while the queue manager runs. This call must be refused.

At the end the ledgers show the ranges of lost messages. The drill is good if ``restore`` and
``status`` had reported each lost message:

- in a stream, between the restored position and the position at which its sender continued;
- among other messages, and among those that were to be sent, after the last write of the state.

In addition nothing else may be lost, no message may arrive twice, and the order must be kept. A
reader with its own positions must continue through the whole drill.

The *state* is the Delta copy of the queue manager's data that ``restore`` reads.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import itertools
import json
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from srmp_spark.client.outgoing_messages import OutgoingClient
from srmp_spark.errors import ApiError, ApiUnreachableError
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.drill.reader import Reader
from tests.kit.foreign.destination import Destination
from tests.kit.foreign.http import ReceiptsServer
from tests.kit.foreign.ledger import Entry, Landed, Ledger, digest
from tests.kit.foreign.senders import ForeignQueueManager, MessageSender
from tests.kit.foreign.stream_sender import StreamSender
from tests.kit.foreign.verdict import judge

ORDERS, PAYMENTS, OUT = "private$/orders", "private$/payments", "private$/in"
INTERVAL = 1.0
"""The value of ``--state-interval``, in seconds."""
WINDOW = 3 * INTERVAL + 2.0
"""Longest time, in seconds, from a lost message's acknowledgement to the last state commit.

Messages that were acknowledged earlier must be in that commit. A commit takes a cycle or two on a
busy machine.
"""
RATE = 30.0
"""Messages of each kind that are sent a second."""
DRAIN_SECONDS = 90.0


@dataclass(slots=True)
class Outcome:
    """The result of one drill."""

    seed: int
    report: list[dict[str, Any]] = field(default_factory=list)
    """The lines that ``restore`` printed."""
    gaps: list[dict[str, Any]] = field(default_factory=list)
    """``queue``, ``stream_id``, ``first`` and ``last`` of each gap that the operator accepted.

    The values are those that ``status`` showed.
    """
    lost: list[dict[str, Any]] = field(default_factory=list)
    """The ranges that were really lost, by the ledgers. ``told`` says whether each was reported."""
    faults: list[str] = field(default_factory=list)
    """The reasons why the drill is not good."""
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Return whether :attr:`faults` is empty."""
        return not self.faults


class Application(threading.Thread):
    """Hands over messages for another host, one after the other.

    A call that broke off is not repeated, because its result is unknown. ``unknown`` has the bodies
    of such calls, and ``bodies`` those of all calls.
    """

    def __init__(self, running: RunningQueueManager, url: str) -> None:
        super().__init__(name="drill-application", daemon=True)
        self.committed: list[tuple[bytes, float]] = []
        """Pairs (body, monotonic time in seconds at which the commit was answered)."""
        self.unknown: list[bytes] = []
        self.bodies: list[bytes] = []
        self._client = OutgoingClient(running.api, retry_seconds=0.0)
        self._url = url
        self._over = threading.Event()

    def run(self) -> None:
        """Hand over about :data:`RATE` messages a second until :meth:`stop`."""
        for number in itertools.count(1):
            if self._over.is_set():
                return
            body = b"payment %06d" % number
            self.bodies.append(body)
            try:
                self._client.send_away(
                    [{"destination": self._url, "body_base64": base64.b64encode(body).decode()}]
                )
                self.committed.append((body, time.monotonic()))
            except (ApiUnreachableError, ApiError):
                self.unknown.append(body)
                time.sleep(0.2)
            time.sleep(1 / RATE)

    def stop(self) -> None:
        """End the thread after the call in progress, and wait for its end."""
        self._over.set()
        self.join()


class Drill:
    """One drill with its files in ``directory`` and ``seconds`` of traffic."""

    def __init__(self, directory: Path, seed: int, seconds: float) -> None:
        self.outcome = Outcome(seed)
        self._dice = random.Random(seed)
        self._seconds = seconds
        self._data, self._state = directory / "data", directory / "state"
        self._ledger = Ledger(path=directory / "ledger.jsonl")
        self._running = RunningQueueManager(
            self._data,
            queues=[ORDERS, f"{PAYMENTS}:transactional"],
            allow_url=["http://127.0.0.1:*"],
            state=self._state,
            state_interval=INTERVAL,
            resend_table="0.3,0.3,1",
            retransmission_timeout=0.3,
        )
        self._peer = Destination(
            queues={OUT: True},
            record=directory / "record.jsonl",
            receipt_wait=0.1,
            repeat_receipts=True,
            # Messages in doubt are sent in a new stream, with their earlier identifiers.
            allow=["resend-place"],
        )
        self._in_doubt: set[bytes] = set()
        """Bodies of the messages that the state had as unsent when the disk was lost.

        The operator's command ``streams resend`` sends all of them again.
        """
        self._over = asyncio.Event()

    async def run(self) -> Outcome:
        """Run the whole drill and return its outcome. Faults of the product are in the outcome.

        Raises :class:`RuntimeError` if ``restore`` fails.
        """
        with self._peer, self._running:
            reader = Reader(self._running.api, [ORDERS, PAYMENTS])
            application = Application(self._running, self._peer.url(OUT))
            reader.start()
            application.start()
            async with ReceiptsServer() as receipts:
                manager = ForeignQueueManager(
                    endpoint=lambda: self._running.endpoint,
                    ledger=self._ledger,
                    receipts_url=receipts.url(),
                    seed=self.outcome.seed,
                    reply_timeout=5.0,
                )
                receipts.on_receipt = manager.on_receipt
                stream = StreamSender(manager, PAYMENTS)
                sender = MessageSender(manager, ORDERS)
                traffic = asyncio.gather(
                    sender.run(self._orders(), rate=RATE), self._payments(stream), stream.run()
                )
                await asyncio.sleep(self._seconds * self._dice.uniform(0.3, 0.6))
                await asyncio.to_thread(self._restore_beside_the_living)
                await asyncio.to_thread(self._lose_the_disk)
                operator = asyncio.create_task(self._operate())
                await asyncio.sleep(self._seconds * 0.4)
                self._over.set()
                await asyncio.to_thread(application.stop)
                try:
                    await asyncio.wait_for(traffic, DRAIN_SECONDS)
                except asyncio.TimeoutError:
                    self.outcome.faults.append(
                        f"senders still have messages after {DRAIN_SECONDS} s: {stream.unreceipted}"
                    )
                await asyncio.to_thread(self._until_all_is_sent)
                operator.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await operator
            await asyncio.to_thread(self._until_all_is_read, reader)
            reader.stop()
            self._running.stop()
        self._judge(reader, application)
        return self.outcome

    # --- traffic ----------------------------------------------------------------------------------

    def _orders(self) -> Iterator[tuple[bytes, bool]]:
        for number in itertools.count(1):
            if self._over.is_set():
                return
            yield b"order %06d" % number, True

    async def _payments(self, stream: StreamSender) -> None:
        """Enqueue stream messages at such short intervals that the stream never ends."""
        for number in itertools.count(1):
            if self._over.is_set():
                break
            stream.enqueue(b"in %06d" % number)
            await asyncio.sleep(1 / RATE)
        stream.close()

    # --- the loss, and what an operator does ------------------------------------------------------

    def _restore_beside_the_living(self) -> None:
        """Call ``restore`` by mistake while the queue manager runs.

        A fault is recorded unless the call is refused.
        """
        done = self._restore(self._data.with_name("beside"))
        if done.returncode != 2 or "is alive" not in done.stderr:
            self.outcome.faults.append(
                f"a restore beside the living one ended with {done.returncode}: {done.stderr}"
            )

    def _restore(self, data_dir: Path, *more: str) -> subprocess.CompletedProcess[str]:
        folders = ["--state", str(self._state), "--data-dir", str(data_dir)]
        command = [sys.executable, "-m", "srmp_spark.cli", "restore", *folders, *more]
        # The command is this interpreter.
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)  # noqa: S603

    def _lose_the_disk(self) -> None:
        before = self._running.guid, self._running.epoch
        self._running.kill9()
        self._lost_at = time.monotonic()
        shutil.rmtree(self._data)
        waiting = DeltaTable(str(self._state / "outgoing_queue")).to_pyarrow_table(columns=["body"])
        self._in_doubt = set(waiting["body"].to_pylist())
        done = self._restore(self._data, "--force")
        if done.returncode != 0:
            raise RuntimeError(f"restore ended with {done.returncode}:\n{done.stderr}")
        self.outcome.report = [json.loads(line) for line in done.stdout.splitlines()]
        self._running.restart()
        if self._running.guid != before[0] or self._running.epoch == before[1]:
            self.outcome.faults.append(f"{before} became {self._running.guid, self._running.epoch}")

    async def _operate(self) -> None:
        """Read ``status`` again and again, accept each gap, and resend messages once.

        The task does so until it is cancelled.
        """
        client = OutgoingClient(self._running.api, retry_seconds=1.0)
        held: set[str] = set()
        while True:
            with contextlib.suppress(ApiUnreachableError):
                status = await asyncio.to_thread(client.status)
                for stream in status["incoming_streams"]:
                    if stream["gap_at"] is not None:
                        try:
                            await asyncio.to_thread(
                                client.decide_incoming,
                                "accept-gap",
                                stream["queue"],
                                stream["stream_id"],
                            )
                        except ApiError as error:
                            if error.code != "no-gap":
                                raise
                            # The missing messages have arrived since the status was read.
                            continue
                        self.outcome.gaps.append(
                            {
                                "queue": stream["queue"],
                                "stream_id": stream["stream_id"],
                                "first": stream["gap_at"],
                                "last": stream["gap_to"],
                            }
                        )
                        # The sender of the stream needs this time to send again.
                        await asyncio.sleep(2.0)
                for entry in status["outgoing"]:
                    if entry["state"] == "OnHold" and entry["destination"] not in held:
                        held.add(entry["destination"])
                        self.outcome.counts["in_doubt"] = entry["in_doubt"]
                        await asyncio.to_thread(client.decide, "resend", entry["destination"])
            await asyncio.sleep(0.3)

    def _until_all_is_sent(self) -> None:
        client = OutgoingClient(self._running.api, retry_seconds=5.0)
        end = time.monotonic() + DRAIN_SECONDS
        while time.monotonic() < end:
            left = sum(
                entry["queued"] + entry["awaiting_stream_receipt"] + entry["in_doubt"]
                for entry in client.status()["outgoing"]
            )
            if not left:
                return
            time.sleep(0.2)
        self.outcome.faults.append(f"{left} messages were not delivered in {DRAIN_SECONDS} s")

    def _until_all_is_read(self, reader: Reader) -> None:
        client = OutgoingClient(self._running.api, retry_seconds=5.0)
        end = time.monotonic() + DRAIN_SECONDS
        while time.monotonic() < end and reader.failure is None:
            ends = {queue["name"]: queue["last"] for queue in client.queues()}
            if all(
                reader.positions().get(name, ("", 0))[1] >= ends[name]
                for name in (ORDERS, PAYMENTS)
            ):
                return
            time.sleep(0.2)
        self.outcome.faults.append(f"the reader stands at {reader.positions()}: {reader.failure}")

    # --- the judgement ----------------------------------------------------------------------------

    def _judge(self, reader: Reader, application: Application) -> None:
        found = self.outcome
        rows = self._landed()
        begins: dict[str, int] = {}
        for row in rows:
            begins[row.epoch] = min(row.sequence, begins.get(row.epoch, row.sequence))
        # The names of epochs are random, but sequences increase from epoch to epoch.
        order = sorted(begins, key=begins.__getitem__)
        verdict = judge(
            self._ledger, (row._replace(epoch=f"{order.index(row.epoch):04d}") for row in rows)
        )
        for kind in (
            "unexpected",
            "doubled",
            "disordered",
            "altered",
            "refused",
            "reused",
            "violations",
        ):
            wrong = getattr(verdict, kind)
            if wrong:
                found.faults.append(f"{kind}: {len(wrong)}, first {list(wrong[:5])}")
        since = self._monotonic_of_state() - WINDOW
        missing = set(verdict.lost) | set(verdict.gaps)
        lost = [entry for entry in self._ledger.entries.values() if entry.id in missing]
        self._tell_lost_in([entry for entry in lost if entry.stream_id], since)
        self._tell_lost_plain([entry for entry in lost if not entry.stream_id], since)
        self._judge_reader(reader, rows)
        self._judge_outgoing(application, since)
        found.counts |= {
            "sent": verdict.sent,
            "acknowledged": verdict.acknowledged,
            "landed": verdict.landed,
            "lost": len(lost),
            "handed_over": len(application.committed),
        }

    def _landed(self) -> list[Landed]:
        columns = [
            "queue",
            "epoch",
            "sequence",
            "lineage",
            "uniquifier",
            "body",
            "stream_id",
            "stream_sequence",
        ]
        table = DeltaTable(str(self._state / "inbox")).to_pyarrow_table(columns=columns)
        rows = table.to_pylist()
        return [
            Landed(**{**row, "body": digest(row["body"])})
            for row in rows
            if row["queue"] in (ORDERS, PAYMENTS)
        ]

    def _monotonic_of_state(self) -> float:
        """Return the time of the state's last write before the loss.

        The time is in seconds of ``time.monotonic``.
        """
        (as_of,) = [
            line["as_of"] for line in self.outcome.report if line["what"] == "queue_manager"
        ]
        return (
            datetime.fromisoformat(as_of.replace("Z", "+00:00")).timestamp()
            - time.time()
            + time.monotonic()
        )

    def _tell_lost_in(self, lost: list[Entry], since: float) -> None:
        """Record the lost stream messages, and a fault for each range that ``status`` did not show.

        A message that was acknowledged before ``since``, or after the loss, is a fault too.
        """
        by_stream: dict[tuple[str, str], list[Entry]] = {}
        for entry in lost:
            by_stream.setdefault((entry.queue, str(entry.stream_id)), []).append(entry)
        for (queue, stream_id), entries in by_stream.items():
            shown = [
                gap
                for gap in self.outcome.gaps
                if (gap["queue"], gap["stream_id"]) == (queue, stream_id)
            ]
            for first, last in runs(entry.position for entry in entries):
                told = any(gap["first"] <= first and last <= (gap["last"] or last) for gap in shown)
                self.outcome.lost.append(
                    {
                        "queue": queue,
                        "stream_id": stream_id,
                        "first": first,
                        "last": last,
                        "told": told,
                    }
                )
                if not told:
                    self.outcome.faults.append(
                        f"{stream_id} lost {first} to {last}, status had shown {shown}"
                    )
        self._check_times(lost, since)

    def _tell_lost_plain(self, lost: list[Entry], since: float) -> None:
        if lost:
            numbers = sorted(entry.key[1] for entry in lost)
            self.outcome.lost.append(
                {
                    "queue": ORDERS,
                    "first": numbers[0],
                    "last": numbers[-1],
                    "count": len(numbers),
                    "told": True,
                }
            )
        self._check_times(lost, since)

    def _check_times(self, lost: list[Entry], since: float) -> None:
        for entry in lost:
            if (
                entry.acknowledged_at is not None
                and not since <= entry.acknowledged_at <= self._lost_at + 1.0
            ):
                self.outcome.faults.append(
                    f"{entry.id} was acknowledged "
                    f"{self._lost_at - entry.acknowledged_at:.1f} s before the loss"
                )

    def _judge_reader(self, reader: Reader, rows: list[Landed]) -> None:
        """Record a fault unless the reader read every row of the Delta table once.

        The reader may also have read rows after the end of the Delta table in their epoch.
        """
        if reader.failure is not None:
            self.outcome.faults.append(f"the reader stopped: {reader.failure}")
        places = {(row.epoch, row.queue, row.sequence) for row in rows}
        twice = [place for place, count in reader.rows.items() if count > 1]
        never = sorted(places - set(reader.rows))
        ahead = set(reader.rows) - places
        ends: dict[tuple[str, str], int] = {}
        for epoch, queue, sequence in places:
            ends[epoch, queue] = max(sequence, ends.get((epoch, queue), 0))
        strange = sorted(place for place in ahead if place[2] <= ends.get((place[0], place[1]), 0))
        self.outcome.counts["read_ahead_of_delta"] = len(ahead)
        for name, wrong in (
            ("read twice", twice),
            ("never read", never),
            ("read and not in Delta", strange),
        ):
            if wrong:
                self.outcome.faults.append(f"{name}: {len(wrong)} rows, first {wrong[:5]}")

    def _judge_outgoing(self, application: Application, since: float) -> None:
        verdict = self._peer.verdict({OUT: application.bodies})
        doubtful = {f"{OUT}: {body!r}" for body in self._in_doubt}
        # The destination knows a stream message only by its place in the stream. It accepts a
        # message again that it had accepted in the earlier stream, which is the doubt.
        again = [each for each in verdict.doubled if each in doubtful]
        self.outcome.counts |= {"resent": len(self._in_doubt), "of_these_taken_twice": len(again)}
        doubled = [each for each in verdict.doubled if each not in doubtful]
        missing = set(verdict.missing)
        for kind, wrong in (
            ("unexpected", verdict.unexpected),
            ("doubled", doubled),
            ("disordered", verdict.disordered),
            ("violations", verdict.violations),
            ("in doubt, sent again, and missing", sorted(missing & doubtful)),
        ):
            if wrong:
                self.outcome.faults.append(
                    f"at the destination, {kind}: {len(wrong)}, first {list(wrong[:5])}"
                )
        lost = [(body, at) for body, at in application.committed if f"{OUT}: {body!r}" in missing]
        if lost:
            numbers = [int(body.split()[1]) for body, _ in lost]
            for first, last in runs(numbers):
                self.outcome.lost.append(
                    {"destination": self._peer.url(OUT), "first": first, "last": last, "told": True}
                )
        for body, at in lost:
            if not since <= at <= self._lost_at + 1.0:
                self.outcome.faults.append(
                    f"{body!r} was committed {self._lost_at - at:.1f} s before the loss"
                )


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return ``numbers`` as sorted pairs (first, last), both included, of consecutive numbers."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] + 1 == number:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return 0 if every drill was good, else 1."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.kit.drill.run", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument(
        "--seconds", type=float, default=40.0, help="of traffic, a drill (default 40)"
    )
    parser.add_argument("--rounds", type=int, default=1, help="how many drills (default 1)")
    options = parser.parse_args(arguments)
    good = True
    for seed in range(options.seed, options.seed + options.rounds):
        with tempfile.TemporaryDirectory(prefix="srmp-drill-") as directory:
            outcome = asyncio.run(_once(Path(directory), seed, options.seconds))
        for line in (*outcome.report, *({"finding": "gap", **gap} for gap in outcome.gaps)):
            print(json.dumps(line))
        for each in outcome.lost:
            print(json.dumps({"finding": "lost in this drill", **each}))
        print(
            json.dumps(
                {"seed": seed, "ok": outcome.ok, "faults": outcome.faults, **outcome.counts}
            ),
            flush=True,
        )
        good = good and outcome.ok
    return 0 if good else 1


async def _once(directory: Path, seed: int, seconds: float) -> Outcome:
    return await Drill(directory, seed, seconds).run()


if __name__ == "__main__":
    sys.exit(main())
