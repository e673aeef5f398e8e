"""Explain the log events of the SRMP port."""

from __future__ import annotations

from srmp_spark.log_event import LogEvent

EVENTS: tuple[LogEvent, ...] = (
    LogEvent(
        "descriptors.few",
        "The limit of open files is low, so the ports admit fewer connections than they could.",
        "Raise it: `LimitNOFILE` of the systemd unit, or `ulimit -n`.",
        fields=("limit", "wanted", "because"),
    ),
    LogEvent(
        "tls.refused",
        "A TLS handshake at the SRMP port failed. The line is written at most once a second; "
        "`srmp_tls_refused_total` counts all.",
        "`why` names the reason: an unknown authority, an expired certificate, an old protocol.",
        fields=("peer", "why", "reason"),
    ),
)
