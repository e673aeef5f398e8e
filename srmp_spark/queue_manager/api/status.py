"""``GET status``, ``/healthz``, ``/readyz`` and ``/metrics``: the state of the queue manager for people and machines."""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from srmp_spark import __version__
from srmp_spark.names import OWN_QUEUES, split_url
from srmp_spark.queue_manager.api.http import Request, Response
from srmp_spark.queue_manager.api.times import rfc3339
from srmp_spark.queue_manager.consumers import holder_text
from srmp_spark.queue_manager.metrics import CONTENT_TYPE, LABELS_MAX, Gauge
from srmp_spark.srmp.destinations import ORDER_QUEUE_UNREAD_MAX
from srmp_spark.srmp.stream_name import StreamName, shown_queue

if TYPE_CHECKING:
    from srmp_spark.queue_manager.catalogue import Queue
    from srmp_spark.queue_manager.remote_queues import Reading
    from srmp_spark.queue_manager.service import QueueManager
    from srmp_spark.srmp.incoming_streams import IncomingStream

INCOMING_STREAMS_SHOWN_MAX = 1_000
"""Of ``incoming_streams``, those with a gap first, then those used last: an answer with each of STREAMS_MAX would have 30 MB
and hold the loop for more than a second. ``incoming_streams_count`` tells of all; the table ``incoming_streams`` of the state
has all."""


def disk_free_bytes(manager: QueueManager) -> int:
    """What a process without privileges may still write below the data directory."""
    found = os.statvfs(manager.directory.path)
    return found.f_bavail * found.f_frsize


def state_lag_seconds(manager: QueueManager) -> float:
    """How long the newest row that Delta does not hold has been waiting for it; 0 without ``--state``."""
    lag = manager.state_lag
    if lag.uri is None or lag.position >= manager.journal.position:
        return 0.0
    return max(0.0, manager.clock.utc() / 1e6 - lag.as_of)


def state_failed(manager: QueueManager) -> dict[str, Any] | None:
    """What is in the way of the Delta state, and what to do; ``None`` if nothing is. What has ended comes first."""
    failures = sorted(manager.state_lag.failures.items(), key=lambda each: not each[1].ended)
    for of, failure in failures:
        shown = {"of": of, "reason": failure.reason, "remedy": failure.remedy, "ended": failure.ended}
        return shown | {"since": rfc3339(failure.since)}
    return None


def queue_status(queue: Queue, manager: QueueManager) -> dict[str, Any]:
    """One entry of ``queues``."""
    now, utc = manager.clock.monotonic(), manager.clock.utc()
    oldest = queue.waiting.oldest_arrived_at if queue.state.count else None
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
        "oldest_waiting_seconds": None if oldest is None else max(0.0, (utc - oldest) / 1e6),
        "paused": queue.state.paused,
        "damaged": next(iter(queue.damage.values()), None),
        "epochs": [{"epoch": each.epoch, "first": each.first} for each in queue.epochs],
        "journal": None if queue.journal is None else queue_status(queue.journal, manager),
        "consumers": [
            {
                "name": consumer.name,
                "received": consumer.received,
                "holder": holder_text(consumer.holder) if consumer.holder is not None and consumer.is_held(now) else None,
                "lease_until": rfc3339(consumer.lease_until) if consumer.is_held(now) else None,
            }
            for consumer in sorted(queue.consumers.values(), key=lambda each: each.name)
        ],
    }


def outgoing_status(entry: dict[str, Any]) -> dict[str, Any]:
    """One entry of ``outgoing``, as the sender process tells it, for people."""
    shown = entry | {name: rfc3339(entry[name]) for name in ("last_acknowledged_at", "next_attempt_at")}
    info = entry.get("transfer_info")
    if info is not None:
        shown["transfer_info"] = info | {name: rfc3339(info[name]) for name in ("eod_last_ack_time", "eod_resend_time")}
    return shown


def host_names(manager: QueueManager) -> list[str]:
    """What the operator said that senders write: each ``--host-name``, and the host of ``--public-url``."""
    config = manager.config
    public = [] if config.public_url is None else [split_url(config.public_url).host]
    return list(dict.fromkeys((*config.host_name, *public)))


def _streams(manager: QueueManager, sees: Callable[[str], bool]) -> tuple[list[IncomingStream], int]:
    """Return the streams to show of those that ``sees`` allows, INCOMING_STREAMS_SHOWN_MAX at most, and how many it allows."""
    seen: dict[StreamName, bool] = {}
    found = []
    for stream in manager.receiver.streams:
        is_seen = seen.get(stream.queue)
        if is_seen is None:  # once for each queue: globs are slow, and a stranger may begin many streams
            is_seen = seen[stream.queue] = sees(shown_queue(stream.queue))
        if is_seen:
            found.append(stream)
    count = len(found)
    if count > INCOMING_STREAMS_SHOWN_MAX:
        found = heapq.nlargest(
            INCOMING_STREAMS_SHOWN_MAX, found, key=lambda stream: (stream.gap_at is not None, stream.last_access_at or 0)
        )
    return found, count


def _stream_status(stream: IncomingStream) -> dict[str, Any]:
    """Return one entry of ``incoming_streams``."""
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


def status(
    manager: QueueManager, *, listening: list[str], api: str, ready: bool, sees: Callable[[str], bool]
) -> dict[str, Any]:
    """The answer of ``GET status``, but for what the sender process says. Of queues only those that ``sees`` allows."""
    streams, streams_count = _streams(manager, sees)
    return {
        "queue_manager": manager.directory.queue_manager,
        "epoch": manager.epoch,
        "version": __version__,
        "ready": ready,
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
            "uri": manager.state_lag.uri,
            "position": manager.state_lag.position,
            "lag_seconds": state_lag_seconds(manager),
            "receipts_left_out": manager.state_lag.receipts_left_out,
            "failed": state_failed(manager),
            "rows_gone": [each for each in manager.state_lag.rows_gone if sees(str(each["queue"]))],
        },
        "queues": [queue_status(queue, manager) for queue in manager.catalogue if queue.listed and sees(queue.name)],
        "incoming_streams": [_stream_status(stream) for stream in streams],
        "incoming_streams_count": streams_count,
        "incoming_sequences": manager.incoming_sequences(sees),
        "multicast": None if manager.multicast is None else manager.multicast.status(),
        "outgoing": [],
        "outgoing_seen_at": None,
        "blocked_urls": [
            {"host": host, "count": count, "patterns": manager.receipts.blocked_patterns.get(host, [])}
            for host, count in sorted(manager.receipts.blocked.items())
        ],
        "subscriptions": [] if manager.remote_queues is None else manager.remote_queues.status(),
    }


def _quotas(manager: QueueManager) -> list[tuple[tuple[str, ...], float]]:
    config = manager.config
    quotas = (("queue", config.queue_quota_bytes), ("machine", config.machine_quota_bytes))
    return [((of,), float(quota)) for of, quota in (*quotas, ("order-queue", ORDER_QUEUE_UNREAD_MAX)) if quota is not None]


def gauges(manager: QueueManager) -> list[Gauge]:
    """The metrics that are readings and not counters."""

    def for_readers() -> list[Queue]:
        """Not our own queues: nobody receives from those, so what waits there would rise for ever."""
        return [queue for queue in manager.catalogue.with_journals() if queue.name not in OWN_QUEUES]

    def waiting() -> Iterator[tuple[tuple[str, ...], float]]:
        for queue in for_readers():
            for consumer in queue.consumers.values():
                yield (queue.name, consumer.name), queue.waiting_for(consumer)

    def oldest() -> Iterator[tuple[tuple[str, ...], float]]:
        for queue in for_readers():
            yield (queue.name,), queue_status(queue, manager)["oldest_waiting_seconds"] or 0.0

    def outgoing() -> Iterator[tuple[tuple[str, ...], float]]:
        counts: dict[tuple[str, str], int] = {}
        for entry in manager.outgoing.last_seen:
            waiting = entry["queued"] + entry["awaiting_stream_receipt"] + entry["awaiting_final_stream_receipt"]
            known = len(counts) < LABELS_MAX or (entry["destination"], entry["state"]) in counts
            key = (entry["destination"] if known else "other", entry["state"])
            counts[key] = counts.get(key, 0) + waiting
        return iter(counts.items())

    def subscriptions(value: Callable[[Reading], float | None]) -> Iterator[tuple[tuple[str, ...], float]]:
        for each in () if manager.remote_queues is None else manager.remote_queues.readings():
            if (found := value(each)) is not None:
                yield (each.host, each.queue), found

    def of_each(name: str, text: str, value: Callable[[Reading], float | None]) -> Gauge:
        return Gauge(f"srmp_subscription_{name}", text, ("host", "queue"), lambda: subscriptions(value))

    multicast = manager.multicast
    return [
        *(
            []
            if multicast is None
            else [
                Gauge("srmp_pgm_source_packets", "of each source that is heard", ("queue", "source", "what"), multicast.sources)
            ]
        ),
        of_each("pending", "messages of remote queues that are stored and no rows yet", lambda each: each.pending),
        of_each("lag_seconds", "how long ago all of a remote queue was here", lambda each: each.lag_seconds),
        of_each("taken_in_doubt", "rows that another reader may have too", lambda each: each.taken_in_doubt),
        Gauge("srmp_outgoing", "messages not finished, by the state of their queue", ("destination", "state"), outgoing),
        Gauge("srmp_queue_waiting", "rows that a consumer has not received", ("queue", "consumer"), waiting),
        Gauge("srmp_queue_oldest_waiting_seconds", "age of the oldest unreceived row", ("queue",), oldest),
        Gauge(
            "srmp_queue_bytes",
            "bytes that the default consumer has not received",
            ("queue",),
            lambda: [((queue.name,), float(queue.held_bytes)) for queue in manager.catalogue.with_journals()],
        ),
        Gauge("srmp_quota_bytes", "what --queue-quota-bytes and --machine-quota-bytes say", ("of",), lambda: _quotas(manager)),
        Gauge(
            "srmp_state_failed",
            "1 while a publisher of the Delta state fails or has ended",
            (),
            lambda: [((), float(bool(manager.state_lag.failures)))],
        ),
        Gauge("srmp_state_lag_seconds", "how far the Delta state is behind", (), lambda: [((), state_lag_seconds(manager))]),
        Gauge(
            "srmp_state_receipts_left_out",
            "receipts of our order queue, read and deleted before the Delta state had them",
            (),
            lambda: [((), float(manager.state_lag.receipts_left_out))],
        ),
        Gauge(
            "srmp_disk_free_bytes", "free space below the data directory", (), lambda: [((), float(disk_free_bytes(manager)))]
        ),
        Gauge("srmp_wal_bytes", "size of the write-ahead log", (), lambda: [((), float(manager.journal.wal_bytes))]),
    ]


def counters(manager: QueueManager) -> list[Gauge]:
    """The metrics that count multicast, if there is any."""
    ports = manager.multicast
    if ports is None:
        return []

    def sent() -> Iterator[tuple[tuple[str, ...], float]]:
        for entry in manager.outgoing.last_seen:
            for what, count in (entry.get("multicast") or {}).get("packets", {}).items():
                yield (entry["destination"], what), count

    return [
        Gauge("srmp_pgm_sent_packets", "PGM packets of our sessions, and NAKs that came", ("destination", "what"), sent),
        Gauge("srmp_pgm_packets", "PGM packets that came, and NAKs that left", ("queue", "what"), ports.packets),
        Gauge("srmp_pgm_lost_packets", "PGM packets that make no row of a queue", ("queue", "reason"), ports.lost),
    ]


def _everything(queue: str) -> bool:
    return True


class HealthApi:
    """The paths without ``/v1``, and ``status``."""

    def __init__(self, manager: QueueManager, *, listening: list[str], api: str) -> None:
        self._manager = manager
        self._listening = listening
        self._api = api
        self.ready = False
        """Set by the process once both ports are open; cleared when it drains."""

    async def healthz(self, request: Request) -> Response:
        """The process answers."""
        return Response(body=b"ok\n", content_type="text/plain; charset=utf-8")

    async def readyz(self, request: Request) -> Response:
        """Messages are accepted and rows can be read."""
        manager = self._manager
        gate = manager.acceptor.gate
        if gate is not None:
            return Response(503, gate.message.encode() + b"\n", "text/plain; charset=utf-8")
        if not self.ready or not manager.reader.is_up:
            return Response(503, b"not ready\n", "text/plain; charset=utf-8")
        return Response(body=b"ok\n", content_type="text/plain; charset=utf-8")

    async def metrics(self, request: Request) -> Response:
        """Prometheus' text form."""
        await self._manager.outgoing.status()  # the gauge reads what it has seen
        return Response(body=self._manager.metrics.text(), content_type=CONTENT_TYPE)

    async def status(self, request: Request) -> Response:
        """Everything that the caller's token is for."""
        ready = self.ready and self._manager.acceptor.gate is None
        sees = _everything if request.sees_all else request.sees
        answer = status(self._manager, listening=self._listening, api=self._api, ready=ready, sees=sees)
        answer["incoming_sequences"] = [
            each if request.allows("admin", each["queue"]) else each | {"sequence": None, "peer": None}
            for each in answer["incoming_sequences"]
        ]  # whoever knows a sequence's identifier can speak in its client's name
        if request.sees_all:
            # After the queues: what is forwarded goes from there to here meanwhile, and must not be in neither.
            outgoing = self._manager.outgoing
            answer["outgoing"] = [outgoing_status(entry) for entry in await outgoing.status()]
            answer["outgoing_seen_at"] = rfc3339(outgoing.seen_at)
            answer["set_aside"] += outgoing.set_aside
        else:
            if answer["multicast"] is not None:
                for part in ("deaf", "sources"):
                    answer["multicast"][part] = [each for each in answer["multicast"][part] if sees(each["queue"])]
            answer["set_aside"] = []
            answer["blocked_urls"] = []
            if answer["state"]["failed"] is not None:  # a reason may name queues that the token is not for
                answer["state"]["failed"]["reason"] = None
            answer["subscriptions"] = [each for each in answer["subscriptions"] if each["to"] and sees(each["to"])]
            # What all queues hold together tells of those that the token is not for; the quota of a queue is its own too.
            answer["quota"] |= {"machine_bytes": None, "machine_bytes_waiting": None}
        return Response.json(answer)
