"""Write ``conf/grafana.json``, a dashboard for Grafana, from the table of panels below.

Run ``make grafana`` after a change of the table. ``tests/conf/test_watching.py`` fails if the file
is not what the table gives, if an expression cannot be parsed, or if a metric does not exist.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).resolve().parents[2] / "conf" / "grafana.json"
WIDTH = 24
"""Columns of Grafana's grid. A row of the dashboard has three panels."""
HEIGHT = 7
AT = '{instance=~"$instance"}'
"""Label matcher of the variable ``instance``: one queue manager, several, or all."""


class Panel(NamedTuple):
    """One panel: what it shows, its question for the reader, and its queries."""

    title: str
    description: str
    """Meaning of the curve, and what to do when it looks wrong."""
    unit: str
    """Unit in Grafana's notation, such as ``s``, ``decbytes`` or ``short``."""
    queries: tuple[tuple[str, str], ...]
    """Pairs of a PromQL expression and the legend of its curves."""


def _rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}{AT}[$__rate_interval]))"


def _p99(metric: str) -> str:
    per_bucket = f"sum by (instance, le) (rate({metric}_bucket{AT}[$__rate_interval]))"
    return f"histogram_quantile(0.99, {per_bucket})"


ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Messages in",
        (
            Panel(
                "Accepted messages a second",
                "New rows by queue. A queue that is silent at its usual time has a sender in "
                "trouble.",
                "short",
                ((_rate("srmp_messages_accepted_total", "queue"), "{{queue}}"),),
            ),
            Panel(
                "Refused messages a second",
                "400: the sender deletes its message, run srmp-spark doctor. 503: the sender keeps "
                "its message and tries again.",
                "short",
                (
                    (
                        _rate("srmp_messages_refused_total", "status, reason"),
                        "{{status}} {{reason}}",
                    ),
                ),
            ),
            Panel(
                "Time to accept, 99th percentile",
                "From the last byte of the request to 200. If the sync takes as long, the disk is "
                "the limit.",
                "s",
                (
                    (_p99("srmp_accept_seconds"), "accept {{instance}}"),
                    (_p99("srmp_sync_seconds"), "sync {{instance}}"),
                ),
            ),
        ),
    ),
    (
        "Queues",
        (
            Panel(
                "Waiting rows",
                "Rows that a consumer has not received. A curve that only rises belongs to a "
                "consumer that does not run.",
                "short",
                ((f"srmp_queue_waiting{AT}", "{{queue}} {{consumer}}"),),
            ),
            Panel(
                "Age of the oldest waiting row",
                "How long the slowest row has waited for the consumer default.",
                "s",
                ((f"srmp_queue_oldest_waiting_seconds{AT}", "{{queue}}"),),
            ),
            Panel(
                "Bytes of the queues, and the quotas",
                "At a quota senders are answered 503. Let consumers read, or raise the quota.",
                "bytes",
                (
                    (f"srmp_queue_bytes{AT}", "{{queue}}"),
                    (f"srmp_quota_bytes{AT}", "quota of a {{of}}"),
                ),
            ),
        ),
    ),
    (
        "Messages out",
        (
            Panel(
                "Unfinished messages by destination",
                "Waiting or Disconnected for long: the destination does not answer. OnHold: "
                "somebody must decide (srmp-spark streams).",
                "short",
                (
                    (
                        f"sum by (destination, state) (srmp_outgoing{AT})",
                        "{{destination}} {{state}}",
                    ),
                ),
            ),
            Panel(
                "Dead letters an hour",
                "Messages that will not arrive, by reason. Read the dead-letter queue.",
                "short",
                (
                    (
                        f"sum by (reason) (increase(srmp_dead_letters_total{AT}[1h]))",
                        "{{reason}}",
                    ),
                ),
            ),
            Panel(
                "Receipts a second",
                "Receipts that senders asked for. Blocked ones need serve --allow-url.",
                "short",
                (
                    (_rate("srmp_receipts_sent_total", "kind"), "{{kind}}"),
                    (_rate("srmp_receipts_blocked_total", "instance"), "blocked {{instance}}"),
                    (_rate("srmp_receipts_dropped_total", "instance"), "dropped {{instance}}"),
                ),
            ),
        ),
    ),
    (
        "Spark and Delta",
        (
            Panel(
                "Rows that wait for a query",
                "From srmp_spark.listener(prometheus_file=…). A curve that only rises belongs to "
                "a query that is too slow, or that repeats a failing micro-batch.",
                "short",
                ((f"srmp_query_waiting_rows{AT}", "{{query}} {{queue}}"),),
            ),
            Panel(
                "Time of the triggers by phase",
                "Seconds a second that each query spends in each phase.",
                "s",
                ((_rate("srmp_query_phase_seconds_total", "query, phase"), "{{query}} {{phase}}"),),
            ),
            Panel(
                "Delta state: seconds behind",
                "What a lost disk would cost now. It grows while the object store is away.",
                "s",
                ((f"srmp_state_lag_seconds{AT}", "{{instance}}"),),
            ),
        ),
    ),
    (
        "Remote queues and multicast",
        (
            Panel(
                "Remote queues: seconds behind",
                "Time since everything of a remote queue was here. srmp-spark subscribe list has "
                "the last error.",
                "s",
                ((f"srmp_subscription_lag_seconds{AT}", "{{host}} {{queue}}"),),
            ),
            Panel(
                "Multicast: lost packets an hour",
                "Packets that make no row. The source had dropped them before they could be "
                "repaired.",
                "short",
                (
                    (
                        f"sum by (queue, reason) (increase(srmp_pgm_lost_packets_total{AT}[1h]))",
                        "{{queue}} {{reason}}",
                    ),
                ),
            ),
            Panel(
                "Failed TLS handshakes a second",
                "certificate and no-certificate: the sender's certificate. version and protocol: "
                "an old client, or plain HTTP at the TLS port.",
                "short",
                ((_rate("srmp_tls_refused_total", "why"), "{{why}}"),),
            ),
        ),
    ),
    (
        "Machine",
        (
            Panel(
                "Free disk",
                "Space below the data directory. Acceptance ends before the disk is full, and "
                "begins again by itself.",
                "bytes",
                ((f"srmp_disk_free_bytes{AT}", "{{instance}}"),),
            ),
            Panel(
                "Write-ahead log",
                "It stays below some tens of megabytes unless a reader holds it, or the disk is "
                "slow.",
                "bytes",
                ((f"srmp_wal_bytes{AT}", "{{instance}}"),),
            ),
            Panel(
                "Repeats a second",
                "Messages that senders repeated and that made no second row. Many of them: "
                "answers or receipts do not reach the sender.",
                "short",
                ((_rate("srmp_duplicates_total", "queue, kind"), "{{queue}} {{kind}}"),),
            ),
        ),
    ),
)


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS:
        panels.append(_row(len(panels) + 1, title, y))
        width = WIDTH // len(row)
        for place, panel in enumerate(row):
            grid = {"h": HEIGHT, "w": width, "x": place * width, "y": y + 1}
            panels.append(_graph(len(panels) + 1, panel, grid))
        y += HEIGHT + 1
    return {
        "title": "srmp-spark",
        "uid": "srmp-spark",
        "tags": ["msmq", "spark"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_data_source(), _instance()]},
        "panels": panels,
    }


_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def _row(number: int, title: str, y: int) -> dict[str, Any]:
    grid = {"h": 1, "w": WIDTH, "x": 0, "y": y}
    return {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": grid}


def _graph(number: int, panel: Panel, grid: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "gridPos": grid,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": _SOURCE,
                "expr": query,
                "legendFormat": text,
            }
            for at, (query, text) in enumerate(panel.queries)
        ],
    }


def _data_source() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
    }


def _instance() -> dict[str, Any]:
    return {
        "name": "instance",
        "label": "Queue manager",
        "type": "query",
        "datasource": _SOURCE,
        "query": "label_values(srmp_disk_free_bytes, instance)",
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def text() -> str:
    """Return the content of ``conf/grafana.json``."""
    return json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
