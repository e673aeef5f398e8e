"""``GET status?summary=1``: counts, totals, and the list entries that need attention."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from heapq import nlargest
from typing import TYPE_CHECKING, Any, Literal, get_args

from srmp_spark.queue_manager.api.port_side.sliced_json import parts_of
from srmp_spark.queue_manager.api.status import (
    Transports,
    outgoing_status,
    queue_status,
    stream_status,
    streams_seen,
    transports_shown,
)

if TYPE_CHECKING:
    from srmp_spark.queue_manager.queues.catalogue import Queue
    from srmp_spark.queue_manager.sender.crossing import OutgoingEntry
    from srmp_spark.queue_manager.service import QueueManager
    from srmp_spark.queue_manager.slices import Work
    from srmp_spark.srmp.receiving.incoming_streams import IncomingStream

_Summed = Literal["queued", "awaiting_stream_receipt", "awaiting_final_stream_receipt", "in_doubt"]
_SUMMED: tuple[_Summed, ...] = get_args(_Summed)
"""Fields of the entries of ``outgoing`` whose sums are shown."""
SUMMARY_SHOWN = 20
"""Most entries of each list: as many as fit on a screen."""


async def summary(
    manager: QueueManager, transports: Transports, sees: Callable[[str], bool], work: Work
) -> dict[str, Any]:
    """Return the summary of the queues and incoming streams that ``sees`` allows.

    ``totals`` counts all of them. Each list has at most SUMMARY_SHOWN entries: the queues with the
    highest rank of :func:`_trouble`, and streams with a gap. :func:`finish_summary` adds the rest.
    """
    quota = manager.config.queue_quota_bytes
    totals: Counter[str] = Counter()
    oldest: int | None = None
    shown: list[Queue] = []
    for part in parts_of([*manager.catalogue]):
        seen = [
            queue
            for queue in part
            if (queue.listed or not queue.state.declared) and sees(queue.name)
        ]
        for queue in seen:
            totals["waiting"] += queue.state.count
            totals["bytes"] += queue.held_bytes
            totals["damaged"] += bool(queue.damage)
            totals["paused"] += queue.state.paused or queue.paused_out
            totals["full"] += _is_full(queue, quota)
            arrived = queue.waiting.oldest_arrived_at if queue.state.count else None
            if arrived is not None and (oldest is None or arrived < oldest):
                oldest = arrived
        totals["count"] += sum(queue.listed for queue in seen)
        shown = nlargest(SUMMARY_SHOWN, shown + seen, key=lambda queue: _trouble(queue, quota))
        await work.turn()
    gaps: list[IncomingStream] = []
    streams: Counter[str] = Counter()
    async for each in streams_seen(manager, sees, work):
        streams["count"] += len(each)
        with_gap = [stream for stream in each if stream.gap_at is not None]
        streams["gaps"] += len(with_gap)
        gaps = (gaps + with_gap)[:SUMMARY_SHOWN]
    wait = None if oldest is None else max(0.0, (manager.clock.utc() - oldest) / 1e6)
    return {
        "totals": {
            "queues": {
                **{
                    name: totals[name]
                    for name in ("count", "waiting", "bytes", "damaged", "paused", "full")
                },
                "oldest_waiting_seconds": wait,
            },
            "incoming_streams": {"count": streams["count"], "gaps": streams["gaps"]},
        },
        "queues": [queue_status(queue, manager) for queue in shown],
        "incoming_streams": [stream_status(stream) for stream in gaps],
        "incoming_streams_count": streams["count"],
        **transports_shown(manager, transports, sees),
    }


def _is_full(queue: Queue, quota: int | None) -> bool:
    return quota is not None and queue.quota_bytes >= quota


def _trouble(queue: Queue, quota: int | None) -> tuple[bool, bool, bool, int]:
    """Return the rank of a queue in the summary, as a tuple; the highest rank is shown first.

    Damaged queues rank highest, then full ones, then paused ones, then queues by the age of their
    oldest waiting row. A queue is full if its waiting rows have at least ``quota`` bytes; ``None``
    means no quota.
    """
    arrived = queue.waiting.oldest_arrived_at if queue.state.count else None
    return (
        bool(queue.damage),
        _is_full(queue, quota),
        queue.state.paused or queue.paused_out,
        -(1 << 62) if arrived is None else -arrived,
    )


async def finish_summary(
    answer: dict[str, Any], outgoing: list[OutgoingEntry], work: Work
) -> dict[str, Any]:
    """Count the other lists of ``answer``, and reduce them to entries that need attention.

    These are the lists of outgoing queues, subscriptions, blocked URLs and unreadable database rows
    that were set aside; each keeps at most SUMMARY_SHOWN entries. Incoming sequences are only
    counted. ``outgoing`` holds the outgoing queues that the caller may see. ``answer`` is changed
    in place and returned.
    """
    sums: Counter[str] = Counter()
    states: Counter[str] = Counter()
    troubled: list[OutgoingEntry] = []
    for part in parts_of(outgoing):
        for entry in part:
            states[entry["state"]] += 1
            for summed in _SUMMED:
                sums[summed] += entry[summed]
        troubled = nlargest(
            SUMMARY_SHOWN, troubled + [each for each in part if _is_troubled(each)], key=_unfinished
        )
        await work.turn()
    subscriptions = answer["subscriptions"]
    answer["totals"] |= {
        "incoming_sequences": {"count": len(answer.pop("incoming_sequences"))},
        "outgoing": {
            "count": len(outgoing),
            **{str(summed): sums[summed] for summed in _SUMMED},
            "states": dict(sorted(states.items())),
        },
        "blocked_urls": {"count": len(answer["blocked_urls"])},
        "subscriptions": {
            "count": len(subscriptions),
            "errors": sum(each["last_error"] is not None for each in subscriptions),
        },
        "set_aside": {"count": len(answer["set_aside"])},
    }
    answer["outgoing"] = [outgoing_status(entry) for entry in troubled]
    answer["subscriptions"] = [each for each in subscriptions if each["last_error"] is not None][
        :SUMMARY_SHOWN
    ]
    for name in ("blocked_urls", "set_aside"):
        answer[name] = answer[name][:SUMMARY_SHOWN]
    return answer


def _is_troubled(entry: OutgoingEntry) -> bool:
    return bool(
        entry.get("damaged")
        or entry["last_error"]
        or entry["in_doubt"]
        or entry["state"] == "OnHold"
    )


def _unfinished(entry: OutgoingEntry) -> tuple[bool, int]:
    return bool(entry.get("damaged")), entry["queued"] + entry["awaiting_stream_receipt"] + entry[
        "in_doubt"
    ]
