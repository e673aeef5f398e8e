"""Explain the log events of the processes that own the sockets of a transport."""

from __future__ import annotations

from srmp_spark.log_event import LogEvent

EVENTS: tuple[LogEvent, ...] = (
    LogEvent(
        "PROCESS.on_up_failed",
        "A fault of srmp-spark after a gateway was started. The gateway runs.",
        "Report the traceback.",
    ),
    LogEvent(
        "PROCESS.silent",
        "A gateway did not answer for `seconds`. The queue manager killed the gateway and starts "
        "another one.",
        "If the line repeats, look whether the machine has too little CPU, and report it.",
        fields=("pid", "seconds"),
    ),
    LogEvent(
        "gateway.bad_frame",
        "A gateway and the main process do not understand each other. The gateway is started "
        "again.",
        "Report the traceback.",
    ),
    LogEvent(
        "gateway.message_failed",
        "A fault of srmp-spark with one message of a gateway. Everything else goes on.",
        "Report the traceback.",
        fields=("type",),
    ),
)
