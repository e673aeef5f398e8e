"""Explain the log events of the port of WS-ReliableMessaging."""

from __future__ import annotations

from srmp_spark.log_event import LogEvent

EVENTS: tuple[LogEvent, ...] = (
    LogEvent(
        "wsrm.answer_failed",
        "A fault of srmp-spark: a message is stored, and its client got no answer. The client "
        "sends it again, and the copy is recognised.",
        "Report the traceback.",
        fields=("queue",),
    ),
    LogEvent(
        "wsrm.create_failed",
        "A fault of srmp-spark in the creation of a sequence. The client got an error and may "
        "try again.",
        "Report the traceback.",
        fields=("peer",),
    ),
    LogEvent(
        "wsrm.ended_with_holes",
        "A client ended its sequence before all its messages arrived. The missing ones were not "
        "acknowledged.",
        "Ask the sender to send them again.",
        fields=("queue", "peer", "sequence", "stored", "last"),
    ),
    LogEvent(
        "wsrm.fatal",
        "A fault of srmp-spark between a decision and its write. The process ends, so that "
        "nothing wrong is acknowledged.",
        "Start again (nothing acknowledged is lost), and report the traceback.",
        fields=("queue",),
    ),
    LogEvent(
        "wsrm.fault",
        "A client was answered with a SOAP fault. The line is written once for each queue and "
        "name of a fault.",
        "Read `reason`; a client seldom shows it.",
        fields=("queue", "peer", "fault", "reason"),
    ),
    LogEvent(
        "wsrm.not_delivered",
        "An answer could not be delivered to the client's address. The client asks again by "
        "itself.",
        "If the line repeats, look at the network towards the client.",
        fields=("url", "reason"),
    ),
    LogEvent(
        "wsrm.send_failed",
        "A fault of srmp-spark while an answer was sent to a client's address.",
        "Report the traceback.",
    ),
    LogEvent(
        "wsrm.tls_failed",
        "The certificate of the port cannot be used, and the port does not open.",
        "Correct `--listen-cert` and `--listen-key`.",
        fields=("reason",),
    ),
)
