"""Explain the log events of the API's clients: commands, jobs, Spark's driver and executors."""

from __future__ import annotations

from srmp_spark.log_event import LogEvent

EVENTS: tuple[LogEvent, ...] = (
    LogEvent(
        "call.repeated",
        "A call to the API got no answer, or the answer 503. The client makes the call again "
        "after `pause_s` seconds.",
        "If the line repeats, look whether the queue manager runs and can be reached.",
        fields=("method", "path", "pause_s", "reason"),
    ),
    LogEvent(
        "call.waiting",
        "A call to the API has no answer yet. The client goes on trying for the number of "
        "seconds in the line.",
        "Start the queue manager, or correct the URL of its API.",
    ),
    LogEvent(
        "lease.lost",
        "Another receiver holds the consumer now. The receiver that logs the line ends with an "
        "error.",
        "Give each receiver its own consumer name, or stop one of the two.",
        fields=("queue", "consumer", "reason"),
    ),
    LogEvent(
        "lease.not_released",
        "The client could not release the lease of a consumer. The lease ends by itself 60 "
        "seconds after its last renewal.",
        fields=("queue", "reason"),
    ),
    LogEvent(
        "lease.not_renewed",
        "The client could not renew the lease of a consumer, and tries again within ten seconds.",
        "If the line repeats for 60 seconds, another receiver may get the lease. Look whether "
        "the queue manager can be reached.",
        fields=("queue", "reason"),
    ),
    LogEvent(
        "outbox.repeated",
        "A call of the sink got no answer, or the answer 503. The sink makes the call again "
        "after `pause_s` seconds; no row is sent twice.",
        "If the line repeats, look whether the queue manager runs.",
        fields=("pause_s", "reason"),
    ),
    LogEvent(
        "walk.goes_on",
        "The connection to a remote queue broke while the queue was read. The read goes on after "
        "the last message that it has.",
        "If the line repeats, look at the network, and at the other queue manager.",
        fields=("after", "because"),
    ),
)
