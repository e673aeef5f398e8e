"""Build the answer of ``GET status``: the state of the queue manager, as JSON values.

The handlers are in :mod:`.health`. ``sees`` is a filter that states whether the caller's API token
covers a queue.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from srmp_spark import __version__
from srmp_spark.names import split_url
from srmp_spark.queue_manager.activation import DO, WHAT
from srmp_spark.queue_manager.api.port_side.queue_page import Page
from srmp_spark.queue_manager.api.port_side.sliced_json import parts_of
from srmp_spark.queue_manager.api.port_side.times import rfc3339
from srmp_spark.queue_manager.queues.consumers import holder_text
from srmp_spark.srmp.receiving.destinations import ORDER_QUEUE_UNREAD_MAX
from srmp_spark.srmp.receiving.stream_name import StreamName, shown_queue
from srmp_spark.store.backup.last_backup import read_last_backup

if TYPE_CHECKING:
    from srmp_spark.queue_manager.queues.catalogue import Queue
    from srmp_spark.queue_manager.queues.remote_queues import RemoteQueues
    from srmp_spark.queue_manager.sender.crossing import OutgoingEntry
    from srmp_spark.queue_manager.service import QueueManager
    from srmp_spark.queue_manager.slices import Work
    from srmp_spark.srmp.receiving.incoming_streams import IncomingStream

INCOMING_STREAMS_SHOWN_MAX = 1_000
"""Most entries of ``incoming_streams``: those with a gap first, then recently used ones.

An answer with all STREAMS_MAX streams would have 30 MB and hold the loop for more than a second.
``incoming_streams_count`` counts all streams, and the Delta table ``incoming_streams`` contains all
streams.
"""


def everything(queue: str) -> bool:
    """Return ``True`` for any queue: the filter ``sees`` of an API token for all queues."""
    return True


def disk_free_bytes(manager: QueueManager) -> int:
    """Return the free bytes of the data directory's volume, without the reserve of root.

    Raises :class:`OSError` if the volume cannot be measured.
    """
    found = os.statvfs(manager.directory.path)
    return found.f_bavail * found.f_frsize


def state_lag_seconds(manager: QueueManager) -> float:
    """Return how long the Delta state has been behind the commits, in seconds.

    The result is 0 without ``--state``, or if the Delta state contains every commit.
    """
    lag = manager.state.lag
    if lag.uri is None or lag.position >= manager.journal.position:
        return 0.0
    return max(0.0, manager.clock.utc() / 1e6 - lag.as_of)


def state_failed(manager: QueueManager) -> dict[str, object] | None:
    """Return the failure that stops the Delta state, as a dictionary for JSON, or ``None``.

    It names the publisher (``of``), the reason, the remedy, whether the publisher has ended, and
    the time. A publisher that has ended is reported before one that still tries.
    """
    failures = sorted(manager.state.lag.failures.items(), key=lambda each: not each[1].ended)
    for of, failure in failures:
        shown = {
            "of": of,
            "reason": failure.reason,
            "remedy": failure.remedy,
            "ended": failure.ended,
        }
        return shown | {"since": rfc3339(failure.since)}
    return None


def oldest_waiting_seconds(queue: Queue, utc: int) -> float | None:
    """Return the age of the oldest waiting row of a queue, in seconds.

    Return ``None`` if no row waits. ``utc`` is the present time in microseconds since 1970.
    """
    oldest = queue.waiting.oldest_arrived_at if queue.state.count else None
    return None if oldest is None else max(0.0, (utc - oldest) / 1e6)


def queue_status(queue: Queue, manager: QueueManager) -> dict[str, object]:
    """Return the entry of one queue in ``queues`` of ``status``, with journal and subqueues."""
    now = manager.clock.monotonic()
    first = queue.trimmed_to + 1
    return {
        "name": queue.name,
        "transactional": queue.state.transactional,
        "multicast": queue.state.multicast,
        "first": first,
        "last": queue.end,
        "received": queue.default.received,
        "waiting": queue.state.count,
        "bytes": queue.held_bytes,
        "oldest_waiting_seconds": oldest_waiting_seconds(queue, manager.clock.utc()),
        "paused": queue.state.paused,
        "paused_out": queue.paused_out,
        "damaged": next(iter(queue.damage.values()), None),
        "epochs": [{"epoch": each.epoch, "first": each.first} for each in queue.epochs],
        "journal": None if queue.journal is None else queue_status(queue.journal, manager),
        "subqueues": [
            queue_status(each, manager) for each in manager.catalogue.subqueues_of(queue.name)
        ],
        "consumers": [
            {
                "name": consumer.name,
                "received": consumer.received,
                "holder": holder_text(consumer.holder)
                if consumer.holder is not None and consumer.is_held(now)
                else None,
                "lease_until": rfc3339(consumer.lease_until) if consumer.is_held(now) else None,
            }
            for consumer in sorted(queue.consumers.values(), key=lambda each: each.name)
        ],
    }


def outgoing_status(entry: OutgoingEntry) -> dict[str, object]:
    """Return one entry of ``outgoing`` in ``status``, with times as RFC 3339.

    ``entry`` is the entry that the sender process reported, with times in microseconds.
    """
    shown = dict[str, object](entry) | {
        "last_acknowledged_at": rfc3339(entry["last_acknowledged_at"]),
        "next_attempt_at": rfc3339(entry["next_attempt_at"]),
    }
    info = entry.get("transfer_info")
    if info is not None:
        shown["transfer_info"] = info | {
            name: rfc3339(info[name]) for name in ("eod_last_ack_time", "eod_resend_time")
        }
    return shown


def held_copy(manager: QueueManager) -> dict[str, object] | None:
    """Return why and since when a copied data directory is held, and what to do, or ``None``."""
    held = manager.activation.held
    if held is None:
        return None
    return {"because": held.because, "since": rfc3339(held.since), "what": WHAT, "do": DO}


def last_backup(manager: QueueManager) -> dict[str, str] | None:
    """Return when the last backup was made, and where; ``None`` if there is none."""
    last = read_last_backup(manager.directory.path)
    return None if last is None else last._asdict()


def host_names(manager: QueueManager) -> list[str]:
    """Return the host names of each ``--host-name`` and of ``--public-url``, without repeats.

    With these options the operator states which names senders use for this host. The names keep the
    order of the options.
    """
    config = manager.config
    public = [] if config.public_url is None else [split_url(config.public_url).host]
    return list(dict.fromkeys((*config.host_name, *public)))


async def _streams(
    manager: QueueManager, sees: Callable[[str], bool], work: Work
) -> tuple[list[IncomingStream], int]:
    """Return the incoming streams to show, and the number of all incoming streams.

    At most INCOMING_STREAMS_SHOWN_MAX are shown. Only streams that ``sees`` allows are shown and
    counted.
    """
    found: list[IncomingStream] = []
    count = 0
    async for part in streams_seen(manager, sees, work):
        count += len(part)
        found += part
        if len(found) > 2 * INCOMING_STREAMS_SHOWN_MAX:
            found = _first_shown(found)
    return _first_shown(found) if count > INCOMING_STREAMS_SHOWN_MAX else found, count


def _first_shown(streams: list[IncomingStream]) -> list[IncomingStream]:
    return heapq.nlargest(
        INCOMING_STREAMS_SHOWN_MAX,
        streams,
        key=lambda stream: (stream.gap_at is not None, stream.last_access_at or 0),
    )


async def streams_seen(
    manager: QueueManager, sees: Callable[[str], bool], work: Work
) -> AsyncIterator[list[IncomingStream]]:
    """Yield the incoming streams that ``sees`` allows, in parts that take a fraction of a slice."""
    seen: dict[StreamName, bool] = {}
    for part in parts_of(list(manager.receiver.streams)):
        if sees is not everything:
            for queue in {stream.queue for stream in part} - seen.keys():
                # Ask once for each queue: globs are slow, and an unauthenticated sender may begin
                # many streams.
                seen[queue] = sees(shown_queue(queue))
            part = [stream for stream in part if seen[stream.queue]]
        yield part
        await work.turn()


def stream_status(stream: IncomingStream) -> dict[str, object]:
    """Return one entry of ``incoming_streams`` in ``status``, for ``stream``."""
    return {
        "queue": shown_queue(stream.queue),
        "stream_id": str(stream.id),
        "source_qm": stream.guid,
        "sequence_number": stream.sequence_number,
        "last_acknowledged": stream.last_acknowledged,
        "gap_at": stream.gap_at,
        "gap_to": None if stream.gap_next is None else stream.gap_next - 1,
        "reject_count": stream.reject_count,
        "sender_identifier": stream.source_qm,
        "last_access_at": rfc3339(stream.last_access_at or None),
    }


def facts(manager: QueueManager, *, listening: list[str], api: str, ready: bool) -> dict[str, Any]:
    """Return the entries of ``GET status`` that describe the queue manager itself.

    The summary has the same entries. ``listening`` and ``api`` are the addresses of the ports.
    ``ready`` states whether messages are accepted.
    """
    return {
        "queue_manager": manager.directory.queue_manager,
        "epoch": manager.epoch,
        "version": __version__,
        "ready": ready,
        "held_copy": held_copy(manager),
        "last_backup": last_backup(manager),
        "set_aside": [each._asdict() for each in manager.set_aside],
        "listening": listening,
        "api": api,
        "host_names": host_names(manager),
        "disk_free_bytes": disk_free_bytes(manager),
        "quota": {
            "queue_bytes": manager.config.queue_quota_bytes,
            "machine_bytes": manager.config.machine_quota_bytes,
            "machine_bytes_waiting": manager.receiver.machine.bytes,
            "order_queue_bytes": ORDER_QUEUE_UNREAD_MAX,
        },
        "state": {
            "uri": manager.state.lag.uri,
            "position": manager.state.lag.position,
            "lag_seconds": state_lag_seconds(manager),
            "receipts_left_out": manager.state.lag.receipts_left_out,
            "failed": state_failed(manager),
            "rows_gone": list(manager.state.lag.rows_gone),
        },
    }


@dataclass(frozen=True, slots=True)
class Transports:
    """The transports that status and metrics show besides those of the queue manager itself."""

    incoming_sequences: Callable[[Callable[[str], bool]], list[dict[str, Any]]]
    """Returns the incoming sequences of WS-ReliableMessaging, of the queues that may be seen."""
    remote_queues: RemoteQueues | None
    """The subscriptions, or ``None`` if there can be none."""


def transports_shown(
    manager: QueueManager, transports: Transports, sees: Callable[[str], bool]
) -> dict[str, Any]:
    """Return the entries of ``status`` about all transports but incoming SRMP streams.

    The summary has the same entries. The entries of the sender process are still empty, and the
    caller fills them.
    """
    remote = transports.remote_queues
    return {
        "incoming_sequences": transports.incoming_sequences(sees),
        "multicast": None if manager.multicast is None else manager.multicast.status(),
        "outgoing": [],
        "outgoing_seen_at": None,
        "dead_letters": {},
        "blocked_urls": blocked_urls(manager),
        "subscriptions": [] if remote is None or not remote.is_ready else remote.status(),
    }


def blocked_urls(manager: QueueManager) -> list[dict[str, object]]:
    """Return the hosts to which receipts were not sent, because no ``--allow-url`` names them.

    Each entry has the number of receipts, and patterns that would allow the host.
    """
    return [
        {"host": host, "count": count, "patterns": manager.receipts.blocked_patterns.get(host, [])}
        for host, count in sorted(manager.receipts.blocked.items())
    ]


async def status(
    manager: QueueManager,
    transports: Transports,
    page: Page,
    sees: Callable[[str], bool],
    work: Work,
) -> dict[str, Any]:
    """Return the entries of ``GET status`` about the queues and streams that ``sees`` allows.

    The queues are those of ``page``. The sender process is not asked.
    """
    selected = await page.select(manager.catalogue, sees, work)
    queues = []
    for queue in selected.queues:
        queues.append(queue_status(queue, manager))
        await work.turn()
    streams, streams_count = await _streams(manager, page.of_streams(sees), work)
    return {
        "queues": queues,
        **({} if page.is_everything else {"queues_after": selected.after}),
        "incoming_streams": [stream_status(stream) for stream in streams],
        "incoming_streams_count": streams_count,
        **transports_shown(manager, transports, sees),
    }
