"""Explain the log events of the reader and the sender process, as the main process sees them."""

from __future__ import annotations

from srmp_spark.log_event import LogEvent

EVENTS: tuple[LogEvent, ...] = (
    LogEvent(
        "PROCESS.died",
        "A process of the queue manager has ended: `reader`, `sender`, `multicast`, `wsrm`, "
        "`rpc` or `subscriptions`. The queue manager starts the process again after `restart_in` "
        "seconds.",
        "Nothing, once. If the line repeats, read the lines before it, and report them.",
        fields=("pid", "code", "restart_in"),
    ),
    LogEvent(
        "PROCESS.event_failed",
        "A fault of srmp-spark while the main process handled an event of another process. "
        "Everything else goes on.",
        "Report the traceback.",
    ),
    LogEvent(
        "PROCESS.not_started",
        "A process could not be started, for example for lack of memory. The queue manager tries "
        "again.",
        "Free memory, or raise the limit of processes.",
        fields=("reason",),
    ),
)
