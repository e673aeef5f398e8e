"""Explain the log events of the reader process."""

from __future__ import annotations

from srmp_spark.log_event import LogEvent

EVENTS: tuple[LogEvent, ...] = (
    LogEvent(
        "reader.event_too_large",
        "A report of the reader process was too large to be sent, and was left out.",
        "Report the line.",
        fields=("event_",),
    ),
    LogEvent(
        "reader.failed",
        "A command of the reader process failed. Without a traceback the disk refused; with one "
        "it is a fault of srmp-spark.",
        "Check the disk, or report the traceback.",
        fields=("op", "reason"),
    ),
)
