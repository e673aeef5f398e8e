"""The page of the metrics: those of ``/metrics``, and those that a listener writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from unittest.mock import MagicMock

from prometheus_client.metrics_core import Metric

from reference_pages.markdown import code, marked, table, whole_page
from srmp_spark.queue_manager.api import gauges
from srmp_spark.queue_manager.metrics import COUNTERS, Metrics, Readings
from srmp_spark.spark import progress

_INTRO = """\
`GET /metrics` of the API answers in the text format of Prometheus, to a token with the verb
`metrics`. A token for some queues sees the samples of its queues, `srmp_state_failed` and
`srmp_state_lag_seconds`. A label that senders choose has at most 1,000 values: further ones count
as `other`, and further reasons of `srmp_dead_letters_total` are left out. The names are part of
[the interface](../INTERFACE.md)."""


def _of_queue_manager() -> Iterator[tuple[str, str, str, str]]:
    found = gauges.readings(MagicMock(), MagicMock())
    for each in (*COUNTERS, *found.counters):
        yield f"{each.name}_total", "counter", _labels(each.labels), each.text
    for family in Metrics()._families(Readings(gauges=[], counters=[])):  # noqa: SLF001  # no public name yields them
        if isinstance(family, Metric):
            yield family.name, family.type, "", family.documentation
    for each in found.gauges:
        yield each.name, "gauge", _labels(each.labels), each.text


def _labels(names: Iterable[str]) -> str:
    return ", ".join(map(code, names))


def _of_listener() -> Iterator[tuple[str, str, str, str]]:
    for each in progress.METRICS:
        yield each.name, each.kind, _labels(each.labels), each.text


def _parts() -> Iterator[str]:
    head = ("metric", "type", "labels", "meaning")
    yield "## Of a queue manager"
    rows = sorted(_of_queue_manager())
    yield table(head, ((code(name), *rest, marked(text)) for name, *rest, text in rows))
    yield "## Of a listener in Spark"
    yield (
        '`srmp_spark.listener(spark, prometheus_file="…")` writes these to a file for a textfile '
        "collector."
    )
    yield table(head, ((code(name), *rest, marked(text)) for name, *rest, text in _of_listener()))


def page() -> str:
    """Return the page."""
    return whole_page("Metrics", _INTRO, _parts())
