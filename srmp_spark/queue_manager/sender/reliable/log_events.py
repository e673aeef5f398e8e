"""Explain the log events of sending by WS-ReliableMessaging."""

from __future__ import annotations

from srmp_spark.log_event import LogEvent

EVENTS: tuple[LogEvent, ...] = (
    LogEvent(
        "wsrm.end_unanswered",
        "The service did not answer the end of a sequence. The sequence is forgotten; all its "
        "messages were acknowledged.",
        fields=("destination", "sequence"),
    ),
    LogEvent(
        "wsrm.failed",
        "A fault of srmp-spark with one destination or one kind of message. A message that is "
        "sent is sent again; a received one is answered 503, and its sequence accepts nothing "
        "until the next start.",
        "Report the traceback. Start the queue manager again if a sender waits.",
        fields=("destination", "queue", "shape"),
    ),
    LogEvent(
        "wsrm.refused",
        "A service refused to begin a sequence, or this queue manager refused a client. The line "
        "has the reason.",
        "For a service, read its log. For a client, see `because`: often an address that "
        "`--allow-url` does not name.",
        fields=("destination", "reason", "queue", "peer", "because"),
    ),
    LogEvent(
        "wsrm.sequence_begins",
        "The service has created a sequence, and messages are sent in it.",
        fields=("destination", "sequence"),
    ),
    LogEvent(
        "wsrm.sequence_lost",
        "The service no longer knows the sequence. Without doubtful messages a new one begins; "
        "otherwise the destination is on hold.",
        "If `in_doubt` is above 0: `srmp-spark streams resend` or `drop`.",
        fields=("destination", "sequence", "unacknowledged", "in_doubt", "reason"),
    ),
    LogEvent(
        "wsrm.suspicious",
        "An answer of the service contradicts what was sent. The answer is left out.",
        "If the line repeats, read the log of the service.",
        fields=("destination", "reason"),
    ),
    LogEvent(
        "wsrm.trouble",
        "The service cannot be reached or refuses. Messages wait and are sent again.",
        "Read the reason.",
        fields=("destination", "reason"),
    ),
)
