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
from srmp_spark.store.backup.last_backup import read_last_backup

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
            *_copy_gauges(manager),
        ],
        counters=[*_engine_counters(manager), *_outgoing_counters(manager)],
    )


def _multicast_gauges(manager: QueueManager) -> list[Gauge]:
    if manager.multicast is None:
        return []
    return [
        Gauge(
            "srmp_pgm_source_packets",
            "PGM packets of each source that is heard now. what is the kind of packet.",
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
            "Messages of a remote queue that are stored here and are no rows yet.",
            lambda each: each.pending,
        ),
        of_each(
            "lag_seconds",
            "Seconds since every message of the remote queue was here; absent before that.",
            lambda each: each.lag_seconds,
        ),
        of_each(
            "taken_in_doubt",
            "Rows whose message another reader of the remote queue may have received too.",
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
            "Messages that wait for delivery or for receipts, by destination. state is that of "
            "their outgoing queue, such as Connected or OnHold.",
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
            "Rows of a queue that a consumer has not received. If they grow, its query is slow or "
            "down.",
            ("queue", "consumer"),
            waiting,
            is_long=True,
        ),
        Gauge(
            "srmp_queue_oldest_waiting_seconds",
            "Age of the oldest row that the consumer default has not received, in seconds.",
            ("queue",),
            oldest,
            is_long=True,
        ),
        Gauge(
            "srmp_queue_bytes",
            "Bytes of a queue that the consumer default has not received; the quota counts them.",
            ("queue",),
            lambda: (
                ((queue.name,), float(queue.held_bytes))
                for queue in tuple(manager.catalogue.with_journals())
            ),
            is_long=True,
        ),
        Gauge(
            "srmp_quota_bytes",
            "Limits of unreceived bytes. of is queue, machine, or order-queue (receipts); absent "
            "without a limit.",
            ("of",),
            lambda: _quotas(manager),
        ),
    ]


def _state_gauges(manager: QueueManager) -> list[Gauge]:
    return [
        Gauge(
            "srmp_state_failed",
            "1 while a publisher of the Delta state fails or has ended, else 0. Alert on 1.",
            (),
            lambda: [((), float(bool(manager.state.lag.failures)))],
        ),
        Gauge(
            "srmp_state_lag_seconds",
            "Seconds that the Delta state is behind the log; 0 without --state.",
            (),
            lambda: [((), state_lag_seconds(manager))],
        ),
        Gauge(
            "srmp_state_receipts_left_out",
            "Receipts that were used and deleted before the Delta state had their rows.",
            (),
            lambda: [((), float(manager.state.lag.receipts_left_out))],
        ),
    ]


def _disk_gauges(manager: QueueManager) -> list[Gauge]:
    return [
        Gauge(
            "srmp_disk_free_bytes",
            "Free bytes of the volume of the data directory. Alert before messages are refused.",
            (),
            lambda: [((), float(disk_free_bytes(manager)))],
        ),
        Gauge(
            "srmp_wal_bytes",
            "Bytes of the write-ahead log of store.db.",
            (),
            lambda: [((), float(manager.journal.wal_bytes))],
        ),
    ]


def _copy_gauges(manager: QueueManager) -> list[Gauge]:
    def backups() -> Samples:
        last = read_last_backup(manager.directory.path)
        made_at = None if last is None else last.seconds
        if made_at is not None:
            yield (), made_at

    return [
        Gauge(
            "srmp_held_copy",
            "1 while this data directory is a copy that sends nothing and takes nothing until "
            "srmp-spark activate, else 0. Alert on 1.",
            (),
            lambda: [((), float(manager.activation.held is not None))],
        ),
        Gauge(
            "srmp_last_backup_timestamp_seconds",
            "Time of the last backup that came to its end, in seconds since 1970; absent before "
            "the first one.",
            (),
            backups,
        ),
    ]


def _engine_counters(manager: QueueManager) -> list[Gauge]:
    return [
        Gauge(
            "srmp_history_evicted",
            "Runs of message identifiers that were forgotten before their 30 days for lack of "
            "room.",
            (),
            lambda: [((), float(manager.receiver.history.evicted_count))],
        ),
        Gauge(
            "srmp_streams_forgotten",
            "Streams without messages for a day that made room in a full table.",
            (),
            lambda: [((), float(manager.receiver.streams.forgotten))],
        ),
    ]


def _outgoing_counters(manager: QueueManager) -> list[Gauge]:
    """Return the metrics whose values only rise: dead letters, and packets of multicast.

    Their values are read at each call of ``/metrics``. The metrics of multicast are left out if
    multicast is not in use.
    """
    dead = Gauge(
        "srmp_dead_letters",
        "Messages that became dead letters since the outbox was made. reason is why, such as "
        "refused or expired.",
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
            "PGM packets that sessions of a destination sent, and the NAKs that they received.",
            ("destination", "what"),
            sent,
        ),
        Gauge(
            "srmp_pgm_packets",
            "PGM packets that a queue received, and the NAKs that it sent, by kind of packet.",
            ("queue", "what"),
            ports.packets,
        ),
        Gauge(
            "srmp_pgm_lost_packets",
            "PGM packets whose messages are no rows of the queue. reason is that of pgm_loss.",
            ("queue", "reason"),
            ports.lost_packets,
        ),
    ]
