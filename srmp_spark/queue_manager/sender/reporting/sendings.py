"""The send history of messages: how often and when each was sent, kept as runs.

A run is a range of consecutive serials (numbers in their outgoing queue) with the same history. The
history is written for the Delta state about once a second. Only the memory of the sender process
has the history, so a message that was sent before the process began has no times. A stream sends in
ascending order. So all messages of one second are one run, and finished messages are forgotten.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path

from srmp_spark.clock import Clock
from srmp_spark.srmp.sending.outgoing_effects import OutgoingChanges, QueueKey, SerialRun
from srmp_spark.srmp.sending.outgoing_queue import OutgoingQueue
from srmp_spark.srmp.sending.outgoing_stream import OutgoingStream
from srmp_spark.srmp.sending.sender import Sender
from srmp_spark.store.outbox.messages.live import LiveQueue, SentRun, write_live

SENT_TOGETHER_US = 1_000_000
"""Time within which consecutive messages share one time of sending, in microseconds.

The shared time is that of the first message.
"""
RUNS_MAX = 4_096
"""Most runs in the history of one queue. Beyond this limit the oldest run is forgotten.

The limit is reached after an hour with a peer that sends no receipt.
"""
LIVE_SECONDS = 1.0
"""Interval at which the history is written for the Delta state, in seconds, if there is one.

This is a fifth of the usual interval of its publisher.
"""

_first = attrgetter("first")
log = logging.getLogger(__name__)


class Sendings:
    """Records the send history of all outgoing queues.

    ``at`` and ``utc`` are in microseconds since 1970 (UTC).
    """

    def __init__(self) -> None:
        self._runs: dict[QueueKey, list[SentRun]] = {}
        self._failed: dict[QueueKey, tuple[int, int]] = {}

    def note(self, key: QueueKey, serial: int, at: int) -> None:
        """Record that the message with ``serial`` is sent now, perhaps again.

        At most RUNS_MAX runs are kept for a queue; then the oldest is forgotten.
        """
        runs = self._runs.setdefault(key, [])
        index = bisect_right(runs, serial, key=_first) - 1
        attempts, first_sent_at = 1, at
        if index >= 0 and runs[index].last >= serial:
            # The message was sent before.
            old = runs[index]
            attempts, first_sent_at = old.attempts + 1, old.first_sent_at
            pieces = [old._replace(last=serial - 1), old._replace(first=serial + 1)]
            left, right = (piece if piece.first <= piece.last else None for piece in pieces)
            runs[index : index + 1] = [piece for piece in (left, right) if piece is not None]
            index -= left is None
        before = runs[index] if index >= 0 else None
        if (
            before is not None
            and before.last == serial - 1
            and before.attempts == attempts
            and 0 <= at - before.last_sent_at < SENT_TOGETHER_US
            and (attempts == 1 or before.first_sent_at == first_sent_at)
        ):
            runs[index] = before._replace(last=serial)
        else:
            runs.insert(index + 1, SentRun(serial, serial, attempts, first_sent_at, at))
            if len(runs) > RUNS_MAX:
                del runs[0]

    def failed(self, key: QueueKey, serial: int, status: int) -> None:
        """Record that the last answer to a message had the status ``status``, which is not 200."""
        self._failed[key] = serial, status

    def of(self, changes: OutgoingChanges) -> dict[SerialRun, Sequence[SentRun]]:
        """Return the send history of each run of messages whose end is stored with ``changes``.

        A run without a known history has an empty sequence.
        """
        ended = [*changes.finished, *(letter.run for letter in changes.dead_letters)]
        return {run: self._within(run) for run in ended}

    def forget(self, changes: OutgoingChanges) -> None:
        """Forget the history of the messages that ended with ``changes``, and of forgotten queues.

        Call this when ``changes`` are stored.
        """
        for key, first, last in [
            *changes.finished,
            *(letter.run for letter in changes.dead_letters),
        ]:
            failed = self._failed.get(key)
            if failed is not None and first <= failed[0] <= last:
                del self._failed[key]
            runs = self._runs.get(key)
            if not runs:
                continue
            low, high = self._span(runs, first, last)
            left = [run._replace(last=first - 1) for run in runs[low:high] if run.first < first]
            runs[low:high] = left + [
                run._replace(first=last + 1) for run in runs[low:high] if run.last > last
            ]
        for key in changes.forgotten:
            self._runs.pop(key, None)
            self._failed.pop(key, None)

    def live(self, sender: Sender, monotonic: float, utc: int) -> dict[QueueKey, LiveQueue]:
        """Return the present state of every outgoing queue, by its key, for the Delta state.

        ``monotonic`` is the present time in seconds of the monotonic clock, ``utc`` in microseconds
        since 1970.
        """
        return {queue.key: self._live(queue, monotonic, utc) for queue in sender}

    def _live(self, queue: OutgoingQueue, monotonic: float, utc: int) -> LiveQueue:
        stream = queue if isinstance(queue, OutgoingStream) else None
        due = (
            queue.retry_at
            if queue.retry_at is not None
            else stream.receipt_wait_at
            if stream is not None
            else None
        )
        # Add half a second and cut to whole seconds, because the difference of the two clocks
        # varies by less.
        resend_at = None if due is None else utc + int((due - monotonic) * 1_000_000) + 500_000
        doubtful = queue.doubtful | {send.serial for send in queue.in_flight.values()}
        return LiveQueue(
            queue.state.value,
            queue.held_to,
            tuple(sorted(serial for serial in doubtful if serial > queue.held_to)),
            stream.unacknowledged if stream is not None else 0,
            stream.unread if stream is not None else 0,
            None if resend_at is None else resend_at // 1_000_000 * 1_000_000,
            self._failed.get(queue.key),
            tuple(self._runs.get(queue.key, ())),
        )

    def _within(self, run: SerialRun) -> Sequence[SentRun]:
        runs = self._runs.get(run.key)
        if not runs:
            return ()
        low, high = self._span(runs, run.first, run.last)
        return runs[low:high]

    @staticmethod
    def _span(runs: list[SentRun], first: int, last: int) -> tuple[int, int]:
        """Return the index range of the runs that overlap the serials ``first`` to ``last``.

        Both serials are included; the end of the index range is excluded.
        """
        low = max(bisect_right(runs, first, key=_first) - 1, 0)
        if low < len(runs) and runs[low].last < first:
            low += 1
        return low, max(bisect_right(runs, last, key=_first), low)

    def __repr__(self) -> str:
        return f"<Sendings queues={len(self._runs)} runs={sum(map(len, self._runs.values()))}>"


async def tell_live(
    directory: Path, fence: int, sender: Sender, sendings: Sendings, clock: Clock
) -> None:
    """Write the state of the outgoing queues to ``outbox.live.json`` if it changed.

    This is done each LIVE_SECONDS, until cancelled. The publisher of the Delta state reads this
    file. ``fence`` is the number of the present owner of the outbox; the file of another owner is
    not read. An error of the disk is logged, and writing is tried again.
    """
    loop = asyncio.get_running_loop()
    told: dict[QueueKey, LiveQueue] | None = None
    while True:
        found = sendings.live(sender, clock.monotonic(), clock.utc())
        if found != told:
            try:
                await loop.run_in_executor(None, write_live, directory, fence, found)
            except OSError as error:
                # The disk may be full. The state then shows what was written before.
                log.warning('sender.live_not_written reason="%s"', error)
            else:
                told = found
        await asyncio.sleep(LIVE_SECONDS)
