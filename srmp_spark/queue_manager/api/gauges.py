"""Define the metrics that ``/metrics`` reads at each scrape.

They are about queues, messages, subscriptions, multicast and disk.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

from srmp_spark.names import OWN_QUEUES
from srmp_spark.queue_manager.api.status import (
    Transports,
    disk_free_bytes,
    oldest_waiting_seconds,
    state_lag_seconds,
)
from srmp_spark.queue_manager.metrics import LABELS_MAX, Gauge, Readings, Samples
from srmp_spark.srmp.receiving.destinations import ORDER_QUEUE_UNREAD_MAX

if TYPE_CHECKING:
    from srmp_spark.queue_manager.queues.catalogue import Queue
    from srmp_spark.queue_manager.queues.remote_queues import Reading
    from srmp_spark.queue_manager.service import QueueManager


def _quotas(manager: QueueManager) -> list[tuple[tuple[str, ...], float]]:
    config = manager.config
    quotas = (("queue", config.queue_quota_bytes), ("machine", config.machine_quota_bytes))
    return [
        ((of,), float(quota))
        for of, quota in (*quotas, ("order-queue", ORDER_QUEUE_UNREAD_MAX))
        if quota is not None
    ]


def readings(manager: QueueManager, transports: Transports) -> Readings:
    """Return the metrics that are read from other parts at each call of ``/metrics``."""
    return Readings(
        gauges=[
            *_multicast_gauges(manager),
            *_subscription_gauges(transports),
            *_outgoing_gauges(manager),
            *_queue_gauges(manager),
            *_state_gauges(manager),
            *_disk_gauges(manager),
        ],
        counters=_counters(manager),
        history_evicted=manager.receiver.history.evicted_count,
        streams_forgotten=manager.receiver.streams.forgotten,
    )


def _multicast_gauges(manager: QueueManager) -> list[Gauge]:
    if manager.multicast is None:
        return []
    return [
        Gauge(
            "srmp_pgm_source_packets",
            "PGM packets of each source that is heard",
            ("queue", "source", "what"),
            manager.multicast.sources,
        )
    ]


def _subscription_gauges(transports: Transports) -> list[Gauge]:
    def samples(value: Callable[[Reading], float | None]) -> Samples:
        remote = transports.remote_queues
        for each in () if remote is None or not remote.is_ready else remote.readings():
            if (found := value(each)) is not None:
                yield (each.host, each.queue), found

    def of_each(name: str, text: str, value: Callable[[Reading], float | None]) -> Gauge:
        return Gauge(f"srmp_subscription_{name}", text, ("host", "queue"), lambda: samples(value))

    return [
        of_each(
            "pending",
            "stored messages of remote queues that are not rows yet",
            lambda each: each.pending,
        ),
        of_each(
            "lag_seconds",
            "seconds since all messages of a remote queue were here",
            lambda each: each.lag_seconds,
        ),
        of_each(
            "taken_in_doubt",
            "rows that another reader may have received too",
            lambda each: each.taken_in_doubt,
        ),
    ]


def _outgoing_gauges(manager: QueueManager) -> list[Gauge]:
    def outgoing() -> Samples:
        counts: dict[tuple[str, str], int] = {}
        for entry in manager.outgoing.last_seen:
            waiting = (
                entry["queued"]
                + entry["awaiting_stream_receipt"]
                + entry["awaiting_final_stream_receipt"]
            )
            known = len(counts) < LABELS_MAX or (entry["destination"], entry["state"]) in counts
            key = (entry["destination"] if known else "other", entry["state"])
            counts[key] = counts.get(key, 0) + waiting
        return counts.items()

    return [
        Gauge(
            "srmp_outgoing",
            "messages not finished, by the state of their queue",
            ("destination", "state"),
            outgoing,
        )
    ]


def _queue_gauges(manager: QueueManager) -> list[Gauge]:
    def for_readers() -> list[Queue]:
        """Return the queues and journals that applications read, which excludes internal queues.

        The sender process reads the internal queues, and for other consumers their number of
        waiting rows would rise for ever.
        """
        return [
            queue for queue in manager.catalogue.with_journals() if queue.name not in OWN_QUEUES
        ]

    def waiting() -> Samples:
        for queue in for_readers():
            for consumer in tuple(queue.consumers.values()):
                # Other tasks may add consumers before this generator continues.
                yield (queue.name, consumer.name), queue.waiting_for(consumer)

    def oldest() -> Samples:
        utc = manager.clock.utc()
        for queue in for_readers():
            yield (queue.name,), oldest_waiting_seconds(queue, utc) or 0.0

    return [
        Gauge(
            "srmp_queue_waiting",
            "rows that a consumer has not received",
            ("queue", "consumer"),
            waiting,
            is_long=True,
        ),
        Gauge(
            "srmp_queue_oldest_waiting_seconds",
            "age of the oldest unreceived row",
            ("queue",),
            oldest,
            is_long=True,
        ),
        Gauge(
            "srmp_queue_bytes",
            "bytes that the default consumer has not received",
            ("queue",),
            lambda: (
                ((queue.name,), float(queue.held_bytes))
                for queue in tuple(manager.catalogue.with_journals())
            ),
            is_long=True,
        ),
        Gauge(
            "srmp_quota_bytes",
            "limits set by --queue-quota-bytes and --machine-quota-bytes",
            ("of",),
            lambda: _quotas(manager),
        ),
    ]


def _state_gauges(manager: QueueManager) -> list[Gauge]:
    return [
        Gauge(
            "srmp_state_failed",
            "1 while a publisher of the Delta state fails or has ended",
            (),
            lambda: [((), float(bool(manager.state.lag.failures)))],
        ),
        Gauge(
            "srmp_state_lag_seconds",
            "seconds that the Delta state is behind the log",
            (),
            lambda: [((), state_lag_seconds(manager))],
        ),
        Gauge(
            "srmp_state_receipts_left_out",
            "receipts of our order queue, read and deleted before the Delta state had them",
            (),
            lambda: [((), float(manager.state.lag.receipts_left_out))],
        ),
    ]


def _disk_gauges(manager: QueueManager) -> list[Gauge]:
    return [
        Gauge(
            "srmp_disk_free_bytes",
            "free space below the data directory",
            (),
            lambda: [((), float(disk_free_bytes(manager)))],
        ),
        Gauge(
            "srmp_wal_bytes",
            "size of the write-ahead log",
            (),
            lambda: [((), float(manager.journal.wal_bytes))],
        ),
    ]


def _counters(manager: QueueManager) -> list[Gauge]:
    """Return the metrics whose values only rise: dead letters, and packets of multicast.

    Their values are read at each call of ``/metrics``. The metrics of multicast are left out if
    multicast is not in use.
    """
    dead = Gauge(
        "srmp_dead_letters",
        "messages that became dead letters since the outbox was created",
        ("reason",),
        lambda: [
            ((reason,), float(rows))
            for reason, rows in islice(manager.outgoing.dead_letters.items(), LABELS_MAX)
        ],
    )
    ports = manager.multicast
    if ports is None:
        return [dead]

    def sent() -> Samples:
        for entry in manager.outgoing.last_seen:
            for what, count in (entry.get("multicast") or {}).get("packets", {}).items():
                yield (entry["destination"], what), count

    return [
        dead,
        Gauge(
            "srmp_pgm_sent_packets",
            "PGM packets sent by our sessions, and NAKs received",
            ("destination", "what"),
            sent,
        ),
        Gauge(
            "srmp_pgm_packets",
            "PGM packets received, and NAKs sent",
            ("queue", "what"),
            ports.packets,
        ),
        Gauge(
            "srmp_pgm_lost_packets",
            "PGM packets that make no row of a queue",
            ("queue", "reason"),
            ports.lost,
        ),
    ]
