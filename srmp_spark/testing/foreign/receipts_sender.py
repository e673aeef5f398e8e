"""Send receipts from a thread: at the right time, or with the faults of the schedule.

A receipt without an answer, or with a 5xx, is sent again (3.1.7.2.5), because a destination that
accepts a message has to notify the sender. A receipt that is answered 3xx or 4xx is not sent again.
By the document a repeated stream message alone does not make its receipt owed again (3.1.5.1.6.3
stops at a duplicate). So a sender that answers a receipt 200 before it has the receipt on disk may
wait for ever. With the argument ``repeat_receipts`` a destination sends the receipt again.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable

from srmp_spark.testing.foreign.faults import Faults
from srmp_spark.testing.foreign.form import Remark
from srmp_spark.testing.foreign.receipts_out import envelope, post
from srmp_spark.testing.foreign.receiving import Owed
from srmp_spark.testing.foreign.record import EventRecord
from srmp_spark.testing.foreign.sender_rules import SenderRules

TICK = 0.02
"""Seconds between two checks for receipts that are due."""
RETRANSMISSION = 1.0
"""Seconds before a receipt without an answer, or with a 5xx, is sent again.

Windows waits 20 s, but tests are short.
"""
ANSWER_TIMEOUT = 20.0
"""Longest wait for bytes of an answer, in seconds (appendix A <25>).

Then the receipt is sent again.
"""
BEYOND = 1_000_000
"""Difference between the ``<lastOrdinal>`` of the fault ``receipt-beyond`` and the true one."""
NOBODY = "00000000-dead-beef-0000-000000000000"
"""The GUID in the stream identifier of the fault ``receipt-foreign``; no sender has it."""


class DestinationReceipts:
    """Sends the receipts of one destination.

    ``guid`` is the destination's. ``lock`` guards ``rules`` and the state that ``due`` reads.
    ``due(now)`` returns the stream receipts whose time has come. ``url_of`` returns the URL of a
    queue name. ``refused`` is called when a sender answers an honest stream receipt with a 3xx or
    4xx.
    """

    def __init__(
        self,
        *,
        guid: str,
        faults: Faults,
        record: EventRecord,
        rules: SenderRules,
        lock: threading.RLock,
        due: Callable[[float], list[Owed]],
        url_of: Callable[[str], str],
        refused: Callable[[Remark], None],
    ) -> None:
        self.sent: list[tuple[Owed, int | None]] = []
        """Each receipt that was sent, with the status of its answer, or ``None`` without an answer.
        """
        self._guid, self._faults, self._record, self._rules, self._lock = (
            guid,
            faults,
            record,
            rules,
            lock,
        )
        self._due, self._url_of, self._refused = due, url_of, refused
        self._heap: list[tuple[float, int, Owed]] = []
        self._counter = itertools.count()
        self._stream_receipts = 0
        self._number = int(time.time() * 1000) & 0x7FFF_FFFF
        """Number of the newest receipt.

        It begins at the time in milliseconds, so that a restart under the same GUID uses no number
        again.
        """
        self._silent_until = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="receipts", daemon=True)

    def start(self) -> None:
        """Start the thread that sends receipts. It can be started only once."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and wait up to 5 s for its end.

        Receipts that wait are not sent. A destination that is built on the same journal sends the
        stream receipts; delivery and final receipts are lost.
        """
        self._stop.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout=5)

    def forget(self) -> None:
        """Discard all receipts that wait to be sent. Called when the destination restarts."""
        with self._lock:
            self._heap.clear()

    def withhold(self, seconds: float) -> None:
        """Send no stream receipt for ``seconds`` from now on.

        Receipts that are due are sent afterwards.
        """
        self._silent_until = time.time() + seconds

    def add(self, owed: Owed, at: float | None = None) -> None:
        """Let the thread send ``owed`` at the time ``at``, or at once with ``None``.

        ``at`` is in seconds since 1970.
        """
        with self._lock:
            heapq.heappush(
                self._heap, (time.time() if at is None else at, next(self._counter), owed)
            )

    def _run(self) -> None:
        while not self._stop.wait(TICK):
            now = time.time()
            with self._lock:
                for owed in self._due(now):
                    self._schedule(owed, now)
                ready = []
                while self._heap and self._heap[0][0] <= now:
                    ready.append(heapq.heappop(self._heap)[2])
            for owed in ready:
                if owed.is_stream_receipt and time.time() < self._silent_until:
                    self.add(owed, self._silent_until)
                else:
                    self._send(owed)

    def _schedule(self, owed: Owed, now: float) -> None:
        self._stream_receipts += 1
        struck = self._faults.of_receipt(self._stream_receipts)
        for name in struck:
            self._record.write("fault", name=name)
        if "receipt-none" in struck:
            self.withhold(struck["receipt-none"])
        at = now + struck.get("receipt-late", 0.0)
        ordinal = owed.stream[1] if owed.stream else 0
        if "receipt-foreign" in struck:
            self.add(owed._replace(stream=(NOBODY, ordinal), honest=False), at)
        if "receipt-beyond" in struck:
            self.add(owed._replace(last=owed.last + BEYOND, honest=False), at)
        self.add(owed, at)
        if "receipt-twice" in struck:
            self.add(owed, at)
        if "receipt-old" in struck and owed.last > 1:
            self.add(owed._replace(last=owed.last - 1), at)

    def _send(self, owed: Owed) -> None:
        with self._lock:
            self._number += 1
            number = self._number
            if owed.is_stream_receipt and owed.honest and owed.stream is not None:
                self._rules.receipting(owed.stream, owed.last)
        now = time.time()
        self._record.write(
            "receipting",
            stream=owed.stream,
            last=owed.last,
            honest=owed.honest,
            number=owed.message_class,
        )
        content = envelope(
            owed, guid=self._guid, number=number, via=self._url_of(owed.queue), now=now
        )
        status = post(owed.to, content, ANSWER_TIMEOUT)
        said = {
            "stream": owed.stream,
            "last": owed.last,
            "honest": owed.honest,
            "decision": owed.decision,
        }
        self._record.write(
            "receipt",
            to=owed.to,
            number=owed.message_class,
            about=owed.about,
            status=status,
            **said,
        )
        with self._lock:
            self.sent.append((owed, status))
            if status == 200 and owed.is_stream_receipt and owed.honest and owed.stream is not None:
                self._rules.receipted(owed.stream, owed.last, time.time())
        if status is not None and 300 <= status < 500 and owed.honest and owed.is_stream_receipt:
            text = f"a receipt for {owed.last} of {owed.stream} was answered {status}"
            self._refused(Remark("receipt-refused", "3.1.5.1.8", text))
        if owed.honest and not self._stop.is_set() and (status is None or status >= 500):
            self.add(owed, time.time() + RETRANSMISSION)
