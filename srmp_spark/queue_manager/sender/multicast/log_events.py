"""Explain the log events of sending by multicast (PGM)."""

from __future__ import annotations

from srmp_spark.log_event import LogEvent

EVENTS: tuple[LogEvent, ...] = (
    LogEvent(
        "pgm.malformed",
        "A packet on the multicast port is no valid packet of PGM. The packet is left out.",
        fields=("queue", "source"),
    ),
    LogEvent(
        "pgm.not_reopened",
        "The interface changed, and the session cannot use it yet. The queue manager tries again.",
        "Bring the interface back.",
        fields=("destination", "reason"),
    ),
    LogEvent(
        "pgm.sends_again",
        "The interface was made anew, and the session sends by it.",
        fields=("destination", "because"),
    ),
    LogEvent(
        "pgm.session_begins",
        "A session of a multicast destination begins.",
        fields=("destination", "tsi"),
    ),
    LogEvent(
        "pgm.session_over",
        "A session of a multicast destination has ended after it was idle.",
        fields=("destination", "tsi"),
    ),
)
