"""Make the entries of ``status.outgoing`` and of the metric ``srmp_outgoing``.

INTERFACE.md section 3 defines them.
"""

from __future__ import annotations

from typing import Any

from srmp_spark.clock import Clock
from srmp_spark.queue_manager.sender.crossing import OutgoingEntry
from srmp_spark.queue_manager.sender.dispatcher import Dispatcher
from srmp_spark.srmp.sending.outgoing_queue import OutgoingQueue
from srmp_spark.srmp.sending.outgoing_stream import OutgoingStream
from srmp_spark.srmp.sending.transfer_info import SequenceInfo, transfer_info


def outgoing(dispatcher: Dispatcher, clock: Clock) -> list[OutgoingEntry]:
    """Return an entry for each outgoing queue, with times in microseconds since 1970 (UTC).

    This first searches for queues under two names (:meth:`.same_queues.SameQueues.look`), which may
    log a finding.
    """
    dispatcher.same_queues.look()
    now, utc = clock.monotonic(), clock.utc()
    found: list[OutgoingEntry] = []
    for queue in dispatcher.sender:
        stream = queue if isinstance(queue, OutgoingStream) else None
        next_at = (
            queue.retry_at
            if queue.retry_at is not None
            else stream.receipt_wait_at
            if stream is not None
            else None
        )
        queued = max(
            queue.end - max(queue.cursor if stream is not None else 0, queue.acknowledged_to), 0
        )
        awaiting = stream.unacknowledged if stream is not None else 0
        if not queued and not awaiting:
            # A timer of messages that have become dead letters runs out and does nothing.
            next_at = None
        found.append(
            {
                "destination": queue.key.destination,
                "kind": queue.key.kind,
                "state": queue.state.value,
                "stream_id": str(stream.id) if stream is not None and stream.ordinal else None,
                "send_receipts_to": told(stream.receipts_url)
                if stream is not None and stream.ordinal
                else None,
                "queued": queued,
                "awaiting_stream_receipt": awaiting,
                "awaiting_final_stream_receipt": stream.unread if stream is not None else 0,
                "in_doubt": _in_doubt(queue),
                "last_acknowledged": max(queue.acknowledged_to - stream.base, 0)
                if stream is not None
                else queue.acknowledged_to,
                "last_acknowledged_at": queue.last_acknowledged_at or None,
                "last_error": dispatcher.errors.get(queue.key),
                "damaged": dispatcher.damaged(queue.key),
                "same_queue": None
                if (same := dispatcher.same_queues.of(queue.key)) is None
                else same.as_json(),
                "next_attempt_at": None
                if next_at is None
                else utc + int((next_at - now) * 1_000_000),
                **dispatcher.transports.status(queue.key),
                "transfer_info": None if stream is None else _transfer_info(stream, now, utc),
            }
        )
    return found


def _transfer_info(stream: OutgoingStream, now: float, utc: int) -> dict[str, Any] | None:
    found = transfer_info(stream)
    if found is None:
        return None
    entry = {
        name: value._asdict() if isinstance(value, SequenceInfo) else value
        for name, value in found._asdict().items()
    }
    if found.eod_resend_time is not None:
        entry["eod_resend_time"] = utc + int((found.eod_resend_time - now) * 1_000_000)
    return entry


def told(url: str) -> str:
    """Return the URL for receipts with everything after its first ``=`` replaced by ``…``.

    That part is a secret, and ``status`` is copied into bug reports.
    """
    path, equals, _ = url.partition("=")
    return f"{path}=…" if equals else url


def _in_doubt(queue: OutgoingQueue) -> int:
    """Return the number of messages of a queue that the peer may have, without confirmation.

    These messages were sent without a complete answer, or sent by an earlier process and not again.
    """
    return len(queue.doubtful) + max(queue.held_to - max(queue.cursor, queue.acknowledged_to), 0)
