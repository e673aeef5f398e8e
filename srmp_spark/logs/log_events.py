"""Explain the log events of the process itself, in lines of JSON alone."""

from __future__ import annotations

from srmp_spark.log_event import LogEvent

EVENTS: tuple[LogEvent, ...] = (
    LogEvent(
        "process.failed",
        "The queue manager ends with exit code `code`. In the text form this line is `srmp-spark:` "
        "and the reason.",
        "Do what `reason` says. The errors page explains each exit code.",
        fields=("code", "reason"),
    ),
    LogEvent(
        "python.ignored",
        "A fault that Python cannot report to its caller. Everything goes on.",
        "Report the traceback.",
    ),
    LogEvent(
        "python.thread_failed",
        "A fault of srmp-spark ended a thread of the process.",
        "Report the traceback.",
    ),
    LogEvent(
        "python.uncaught",
        "A fault of srmp-spark ends the process.",
        "Report the traceback. Nothing acknowledged is lost.",
    ),
)
