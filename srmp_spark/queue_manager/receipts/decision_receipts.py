"""Send the receipts of decisions: commitment and final stream receipts ([MC-MQSRM] 3.1.7.3).

A decision states what became of a row: received, purged or expired. A decision about a million rows
is one database row. It becomes receipts in slices, and no caller waits for them. The receipts stay
in the store until they are finished, so memory holds lanes and never receipts. A *lane* is a URL,
the sender (address and authenticated name) whose messages the receipts are about, and the stream if
there is one. One task sends the receipts of a lane, oldest first. After a failure that lane waits,
by ``--resend-table``, and no other lane. Neither a host that is away nor a URL that is not allowed
costs the others anything.

Each receipt has its identifier in the store before it is sent, and keeps the identifier. A peer
whose answer was lost gets the same bytes again, and discards them.

A final stream receipt waits for the stream receipt that covers its message, as in figure 11 of the
document.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from srmp_spark.errors import ApiError, LocalProtocolError
from srmp_spark.message import Message
from srmp_spark.queue_manager.receipts.receipts_sender import (
    FOUND_TRIED_SECONDS,
    Outcome,
    ReceiptsSender,
)
from srmp_spark.srmp.receiving.decisions import DecisionReceipt, Undecided
from srmp_spark.srmp.receiving.receipts import RECEIPT_TIME_TO_REACH_QUEUE_US, decision_receipt
from srmp_spark.store.database.schema import connect_reader
from srmp_spark.store.database.transaction import Transaction
from srmp_spark.store.tables import decisions
from srmp_spark.store.tables.decisions import NO_LANE, Lane, OwedDecision

if TYPE_CHECKING:
    from srmp_spark.queue_manager.core import Core

EXPAND_PAUSE_SECONDS = 0.005
"""Seconds between two slices of a decision that become receipts, so that messages come first.

That is 5,000 rows a second, ten times as many as are sent.
"""
LANE_BATCH = 100
"""Receipts of a lane (see the module) that are read, numbered and deleted together.

There are two commits for so many.
"""
LANE_POSTS = 4
"""Most receipts of a lane in flight at once. The first one of each batch is sent alone."""
POSTS_MAX = 32
"""Most posts of all lanes at once; further ones wait.

That is half of what all receipts have, so that stream receipts never wait for these.
"""
LANES_MAX = 10_000
"""Most lanes (see the module) with a task.

Receipts of further lanes wait in the database until one of these ends, four days at most.
"""
PEER_LANES_MAX = 200
"""Most lanes (see the module) of one sender (address and name) with a task.

So a sender that names ten thousand dead addresses delays no other sender.
"""
LANES_LOOK = 200
"""Lanes that are read from the database at once, in about 1 ms."""
LOOK_PAUSE_SECONDS = 0.05
"""Seconds between two reads of LANES_LOOK lanes, so that messages are accepted in between."""
LOOK_SECONDS = 5.0
"""Seconds between two searches of the store for lanes that had no room for a task."""
HOUSEKEEPING_SECONDS = 86_400.0
HELD_SECONDS = (0.25, 5.0)
"""Shortest and longest pause between two checks whether the stream receipt of a lane was delivered,
in seconds. The pause doubles each time.
"""
BUSY_SECONDS = 5.0
"""Seconds that a lane waits when too many receipts wait for its host
(:data:`.receipts_sender.HOST_PENDING_MAX`).
"""
TROUBLE_SECONDS = 60.0
"""Seconds that a lane, or the expansion of decisions, waits after an internal error (identifiers
used up, a bug).
"""

log = logging.getLogger(__name__)


class DecisionReceipts:
    """Sends the receipts about decisions of one queue manager. The module explains lanes."""

    def __init__(self, core: Core, receipts: ReceiptsSender) -> None:
        self._receiver = core.receiver
        self._journal = core.journal
        self._identifiers = core.identifiers
        self._receipts = receipts
        self._metrics = core.metrics
        self._clock = core.clock
        self._resend_table = tuple(core.config.resend_table)
        self._database = core.directory.database
        self._reader: sqlite3.Connection | None = None
        self._decided = asyncio.Event()
        """Set when there may be decisions that are not receipts yet."""
        self._left = asyncio.Event()
        """Set when there may be lanes in the database without a task."""
        self._lanes: dict[Lane, asyncio.Task[None]] = {}
        self._of_sender: Counter[tuple[str, str]] = Counter()
        self._posts = asyncio.Semaphore(POSTS_MAX)
        self._loops: list[asyncio.Task[None]] = []
        self._begin = core.clock.monotonic()
        self._begin_utc = core.clock.utc()
        self._closed = False

    def __repr__(self) -> str:
        return f"<DecisionReceipts lanes={len(self._lanes)} left={self._left.is_set()}>"

    def start(self) -> None:
        """Start the background tasks, which begin with the receipts that the last run has left."""
        self._reader = connect_reader(self._database)
        self._left.set()
        self._decided.set()
        loop = asyncio.get_running_loop()
        self._loops = [
            loop.create_task(each())
            for each in (self._expand, self._look_for_lanes, self._housekeep)
        ]

    def wake(self) -> None:
        """Make the task expand decisions into receipts.

        Called after a commit that holds a decision about rows that asked for a receipt.
        """
        self._decided.set()

    def look(self, row: Undecided) -> None:
        """Start the task of each lane in which receipts of ``row`` are sent.

        ``row`` has the receipts that the sender of one message requests. A lane
        (:mod:`.decision_receipts`) is a URL, a sender and perhaps a stream. Call this after a
        commit that may hold such receipts. A lane with a task is left alone, and a lane without
        room waits.
        """
        name = row.sender_name or ""
        if row.commitment_to is not None:
            self._run((row.commitment_to, row.peer, name, ""))
        if row.final_to is not None and row.stream_id is not None:
            self._run((row.final_to, row.peer, name, row.stream_id.guid))

    async def close(self) -> None:
        """Cancel all tasks. Receipts that were not sent stay in the database."""
        self._closed = True
        tasks = [*self._lanes.values(), *self._loops]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    # --- from decisions to receipts ---------------------------------------------------------------

    async def _expand(self) -> None:
        """Turn decisions into receipts whenever there are any, one slice in a transaction."""
        while True:
            await self._decided.wait()
            self._decided.clear()
            if not await self._guarded(self._expand_all):
                self._decided.set()
                await asyncio.sleep(TROUBLE_SECONDS)

    async def _expand_all(self) -> None:
        while True:
            expanded = await self._journal.transact(decisions.expand)
            for lane in sorted(expanded.lanes):
                self._run(lane)
            if not expanded.more:
                return
            await asyncio.sleep(EXPAND_PAUSE_SECONDS)

    async def _housekeep(self) -> None:
        while True:
            await self._guarded(self._forget_told)
            await asyncio.sleep(HOUSEKEEPING_SECONDS)

    async def _forget_told(self) -> None:
        await self._journal.transact(partial(decisions.forget_told, now=self._trusted_utc()))

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Do ``work``, and log an exception that it raises. Return whether it raised none.

        A bug in one step must not end the others.
        """
        try:
            await work()
        except Exception:
            log.exception("decisions.failed")
            return False
        return True

    # --- lanes ------------------------------------------------------------------------------------

    def _run(self, lane: Lane) -> None:
        """Start a task for the lane if it has none and fewer than LANES_MAX tasks run.

        Without room, the lane is found again by :meth:`_look_for_lanes`. A lane is a URL, a sender
        and perhaps a stream. A sender has at most PEER_LANES_MAX tasks.
        """
        if lane in self._lanes or self._closed:
            return  # The task reads the store until nothing is left.
        if self._reader is None:
            return  # The start looks for all lanes.
        if len(self._lanes) >= LANES_MAX or self._of_sender[lane[1:3]] >= PEER_LANES_MAX:
            self._left.set()
            return
        self._of_sender[lane[1:3]] += 1
        self._lanes[lane] = asyncio.get_running_loop().create_task(self._guarded_lane(lane))

    async def _look_for_lanes(self) -> None:
        """Start a task for each lane with receipts in the database, as far as there is room.

        A lane is a URL, a sender and perhaps a stream. Repeat this every LOOK_SECONDS while lanes
        have no room.
        """
        while True:
            await self._left.wait()
            self._left.clear()
            await self._guarded(self._look)
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> None:
        assert self._reader is not None
        at = NO_LANE
        while found := decisions.lanes(self._reader, at, LANES_LOOK):
            for lane in found:
                self._run(lane)
            at = found[-1]
            await asyncio.sleep(LOOK_PAUSE_SECONDS)

    async def _guarded_lane(self, lane: Lane) -> None:
        try:
            while True:
                try:
                    await self._send_lane(lane)
                except ApiError as error:  # No identifier is left.
                    log.warning('receipt.postponed url=%s reason="%s"', lane[0], error)
                except Exception:
                    log.exception("receipt.failed url=%s", lane[0])
                else:
                    # There was no await since the lane was found empty. So a later receipt finds
                    # the lane without a task.
                    return
                await asyncio.sleep(TROUBLE_SECONDS)
        finally:
            del self._lanes[lane]
            self._of_sender[lane[1:3]] -= 1
            if not self._of_sender[lane[1:3]]:
                del self._of_sender[lane[1:3]]

    async def _send_lane(self, lane: Lane) -> None:
        """Send the receipts of a lane, oldest first, until none is left in the database.

        A lane is a URL, a sender and perhaps a stream. Failed attempts are repeated after the
        pauses of the resend table. Receipts whose time is over are deleted and logged. Raises
        :class:`ApiError` if no identifier is left.
        """
        assert self._reader is not None
        attempts = 0
        held_for = HELD_SECONDS[0]
        while batch := decisions.owed(self._reader, lane, LANE_BATCH):
            over = [each for each in batch if self._is_over(each.receipt)]
            if over:
                log.warning("receipt.expired url=%s count=%d", lane[0], len(over))
                self._metrics.receipts_dropped += len(over)
                await self._journal.transact(partial(decisions.forget, receipts=over))
                continue
            ready = self._not_held(batch)
            if not ready:
                await asyncio.sleep(held_for)
                held_for = min(2 * held_for, HELD_SECONDS[1])
                continue
            held_for = HELD_SECONDS[0]
            outcome = await self._send(await self._numbered(ready), attempts)
            if outcome == "failed":
                await asyncio.sleep(self._resend_table[min(attempts, len(self._resend_table) - 1)])
                attempts += 1
            elif outcome == "busy":
                await asyncio.sleep(BUSY_SECONDS)
            else:
                attempts = 0

    def _not_held(self, batch: list[OwedDecision]) -> list[OwedDecision]:
        """Return the receipts of ``batch`` before the first one that waits for its stream receipt.

        The order of decisions is kept.
        """
        for n, each in enumerate(batch):
            if self._is_held(each.receipt):
                return batch[:n]
        return batch

    def _is_held(self, receipt: DecisionReceipt) -> bool:
        stream_id = receipt.stream_id
        if stream_id is None:
            return False
        return self._receiver.awaits_stream_receipt(receipt.counted_by, stream_id, receipt.position)

    def _is_over(self, receipt: DecisionReceipt) -> bool:
        """Return whether the receipt's time to reach its queue has passed, by a trusted clock.

        A receipt about a decision of an earlier process is never over in the first
        FOUND_TRIED_SECONDS of this process. :mod:`.receipts_sender` gives the reason for both.
        """
        found = receipt.decided_at < self._begin_utc
        if found and self._clock.monotonic() - self._begin < FOUND_TRIED_SECONDS:
            return False
        return self._trusted_utc() > receipt.decided_at + RECEIPT_TIME_TO_REACH_QUEUE_US

    def _trusted_utc(self) -> int:
        """Return the time in microseconds since 1970, UTC, but never ahead of the monotonic clock.

        Setting the wall clock forward while the process runs does not change this time.
        """
        return min(
            self._clock.utc(),
            self._begin_utc + int((self._clock.monotonic() - self._begin) * 1_000_000),
        )

    # --- one batch --------------------------------------------------------------------------------

    async def _numbered(self, batch: list[OwedDecision]) -> list[OwedDecision]:
        """Give each receipt without an identifier one, and wait until that is on stable storage.

        Return all receipts of the batch. Raises :class:`ApiError` if no identifier is left.
        """
        without = sum(each.number is None for each in batch)
        if not without:
            return batch
        numbers = [await self._identifiers.take() for _ in range(without)]
        return await self._journal.transact(
            partial(decisions.number, receipts=batch, numbers=numbers)
        )

    async def _send(self, batch: list[OwedDecision], attempts: int) -> Outcome:
        """Send the receipts in order, at most LANE_POSTS at once, until one cannot be delivered.

        Those that the peer answered 200 or 400 are deleted from the database. Return "delivered" if
        all receipts were answered so, else "failed" or "busy" (:data:`.receipts_sender.Outcome`).
        ``attempts`` is the number of failed attempts before this one.
        """
        delivered: list[OwedDecision] = []
        refused: list[OwedDecision] = []
        trouble: list[Outcome] = []
        at, together = 0, 1
        try:
            while at < len(batch) and not trouble:
                part = batch[at : at + together]
                outcomes = await asyncio.gather(
                    *(self._deliver(each, first=attempts == 0) for each in part)
                )
                for each, outcome in zip(part, outcomes, strict=True):
                    if outcome == "delivered":
                        self._metrics.receipts_sent[each.receipt.kind] += 1
                        delivered.append(each)
                    elif outcome == "refused":
                        log.warning(
                            "receipt.refused queue=%s url=%s", each.receipt.queue, each.receipt.url
                        )
                        refused.append(each)
                    else:
                        trouble.append(outcome)
                at += len(part)
                together = LANE_POSTS
        finally:
            if delivered or refused:
                await self._settle(delivered, refused)
        return "delivered" if not trouble else "failed" if "failed" in trouble else "busy"

    async def _settle(self, delivered: list[OwedDecision], refused: list[OwedDecision]) -> None:
        if self._closed:
            return  # The store keeps them, and a peer discards repeats.

        def settle(transaction: Transaction) -> None:
            decisions.delivered(transaction, delivered)
            decisions.forget(transaction, refused)

        await self._journal.transact(settle)

    async def _deliver(self, owed: OwedDecision, *, first: bool) -> Outcome:
        receipt, number = owed.receipt, owed.number
        assert number is not None, "numbered before"
        if (
            not receipt.peer
            and receipt.stream_id is not None
            and receipt.stream_id.guid == self._receiver.identity
        ):
            return "delivered"  # This is an own stream (``srmp-spark send``).

        async def build() -> Message:
            via = self._receipts.queue_url(receipt.queue)
            return decision_receipt(
                receipt, identity=self._receiver.identity, uniquifier=number, via=via
            )

        try:
            async with self._posts:
                return await self._receipts.deliver(
                    receipt.url,
                    build,
                    peer=f"[{receipt.peer}]:0",
                    sender_name=receipt.sender_name,
                    first=first,
                )
        except LocalProtocolError as error:
            # The sender gave a value that no receipt can carry. A later attempt would fail too.
            log.warning('receipt.impossible url=%r reason="%s"', receipt.url[:200], error)
            return "refused"
