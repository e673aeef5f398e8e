"""Count events as plain integers, and convert them for Prometheus at a scrape.

INTERFACE.md section 3 lists the metrics. The counters of ``prometheus_client`` take a lock and cost
microseconds, so the accepting code adds to a dict instead.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from srmp_spark.names import base_of_journal

if TYPE_CHECKING:
    from srmp_spark.queue_manager.slices import Work

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

LABELS_MAX = 1_000
"""Most different label values of one counter; further ones count as ``other``.

Values that a client can vary must not fill memory.
"""

SAMPLES_AT_ONCE = 200
"""Samples that are written before other work gets its turn: about a millisecond."""

FOR_EVERY_CALLER = frozenset(("srmp_state_failed", "srmp_state_lag_seconds"))
"""Metrics without a queue that a caller sees whose API token is for some queues only.

Whoever reads a queue's Delta state needs them, and ``GET status`` states both as well.
"""

BUCKETS_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
"""Upper bounds of the buckets, in seconds.

The promises to watch are 1 ms (one connection) and 20 ms (p99 at 32).
"""


class Histogram:
    """Observed durations in seconds, counted in the buckets of :data:`BUCKETS_SECONDS`."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_SECONDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Count one observation of ``seconds`` in its bucket, and add it to the sum."""
        self.counts[bisect_left(BUCKETS_SECONDS, seconds)] += 1
        self.total += seconds

    def family(self, name: str, text: str) -> HistogramMetricFamily:
        """Return the histogram as a metric of ``prometheus_client``, with cumulative buckets.

        ``name`` is the name of the metric, ``text`` its help text.
        """
        buckets: list[tuple[str, float]] = []
        count = 0
        for bound, n in zip((*map(str, BUCKETS_SECONDS), "+Inf"), self.counts, strict=True):
            count += n
            buckets.append((bound, count))
        return HistogramMetricFamily(name, text, buckets=buckets, sum_value=self.total)


Samples = Iterable[tuple[Sequence[str], float]]
"""The samples of one metric: pairs of label values and a value."""


class Gauge:
    """One metric that is read at each scrape. It may be a gauge or a counter."""

    __slots__ = ("is_long", "labels", "name", "read", "text")

    def __init__(
        self,
        name: str,
        text: str,
        labels: tuple[str, ...],
        read: Callable[[], Samples],
        *,
        is_long: bool = False,
    ) -> None:
        """Describe a metric. ``read`` is called at each scrape and returns its samples.

        ``text`` is the help text, and ``labels`` are the names of the labels. ``is_long`` states
        that there is a sample for each queue, and that the result of ``read`` may be iterated in
        several turns of the loop.
        """
        self.name = name
        self.text = text
        self.labels = labels
        self.read = read
        self.is_long = is_long


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """The metrics that are read from other parts of the queue manager at each scrape."""

    gauges: list[Gauge]
    counters: list[Gauge]
    """Counters that other code counts and that are read like gauges."""


class Metrics:
    """The counters of one queue manager, which other code increments."""

    def __init__(self) -> None:
        self.accepted: dict[tuple[str, str], int] = defaultdict(int)
        """For each (queue, transport) the number of messages that were answered 200 as new rows."""
        self.refused: dict[tuple[str, str], int] = defaultdict(int)
        """For each (status, reason) the number of refused requests.

        With status 200 the message was answered 200 and discarded.
        """
        self.duplicates: dict[tuple[str, str], int] = defaultdict(int)
        """For each (queue, kind) the number of messages that were answered 200 without a new row.
        """
        self.signatures: dict[tuple[str, str], int] = defaultdict(int)
        """For each (status, how it was determined) the number of signed messages that were checked.
        """
        self.sink_rows: dict[tuple[str, ...], int] = defaultdict(int)
        """The number of rows of answered commits, by "new", "known", "conflicts" and "bad"."""
        self.tls_refused: dict[str, int] = defaultdict(int)
        """For each reason the number of handshakes that failed at the SRMP port."""
        self.receipts_sent: dict[str, int] = defaultdict(int)
        self.receipts_blocked = 0
        self.receipts_dropped = 0
        self.accept_seconds = Histogram()
        self.sync_seconds = Histogram()

    def refuse(self, status: int, reason: str) -> None:
        """Count one refusal with its HTTP status and reason.

        If LABELS_MAX pairs are counted already, a new pair counts with the reason "other".
        """
        key = (str(status), reason)
        if key not in self.refused and len(self.refused) >= LABELS_MAX:
            key = (str(status), "other")
        self.refused[key] += 1

    def refuse_handshake(self, why: str) -> None:
        """Count a TLS handshake that failed; ``why`` is from a fixed set."""
        self.tls_refused[why] += 1

    async def text(
        self, readings: Readings, work: Work, sees: Callable[[str], bool] | None = None
    ) -> bytes:
        """Return all metrics in the text format of Prometheus (:data:`CONTENT_TYPE`).

        ``sees`` returns whether the caller may see a queue. If it is given, the text has only the
        samples of queues that the caller may see, and the metrics of FOR_EVERY_CALLER: totals, and
        samples of destinations and remote queues, are about other queues too. Other work gets its
        turn after each SAMPLES_AT_ONCE samples, whether they are shown or not. With 10,000 queues
        the text has 2 MB and takes 50 turns.
        """
        pieces = []
        for family in self._families(readings, for_some_queues=sees is not None):
            if not isinstance(family, _Labelled):
                pieces.append(generate_latest(_Only(family)))
                continue
            samples = iter(family.samples)
            head = True
            while (part := list(islice(samples, SAMPLES_AT_ONCE))) or head:
                if sees is not None and family.name not in FOR_EVERY_CALLER:
                    part = [each for each in part if sees(_queue_of(each[0]))]
                text = generate_latest(_Only(family.of(part)))
                # HELP and TYPE are written only once.
                pieces.append(text if head else text.split(b"\n", 2)[2])
                head = False
                await work.turn()
        return b"".join(pieces)

    def _families(
        self, readings: Readings, *, for_some_queues: bool = False
    ) -> Iterator[Metric | _Labelled]:
        """Yield all metrics, in the order in which the answer has them.

        ``for_some_queues`` leaves out, unread, what a caller for some queues must not see. The
        first label of a metric that has samples for each queue is ``queue``.
        """

        def is_shown(name: str, labels: tuple[str, ...]) -> bool:
            return not for_some_queues or labels[:1] == ("queue",) or name in FOR_EVERY_CALLER

        for counter in COUNTERS:
            if is_shown(counter.name, counter.labels):
                counted: Samples = [
                    (key if isinstance(key, tuple) else (key,), count)
                    for key, count in counter.counts(self).items()
                ]
                yield _Labelled(
                    CounterMetricFamily, counter.name, counter.text, counter.labels, counted
                )
        if not for_some_queues:
            yield self.accept_seconds.family(
                "srmp_accept_seconds", "Seconds from a request that is read to its answer 200."
            )
            yield self.sync_seconds.family(
                "srmp_sync_seconds",
                "Seconds that one commit of accepted messages takes, with its sync.",
            )
        for kind, gauges in (
            (CounterMetricFamily, readings.counters),
            (GaugeMetricFamily, readings.gauges),
        ):
            for each in gauges:
                if is_shown(each.name, each.labels):
                    found = each.read()
                    samples = found if each.is_long else list(found)
                    yield _Labelled(kind, each.name, each.text, each.labels, samples)


def _queue_of(values: Sequence[str]) -> str:
    """Return the queue of a sample, whose first label value names the queue or its journal."""
    return base_of_journal(values[0]) or values[0]


class CounterSpec(NamedTuple):
    """One metric whose numbers :class:`Metrics` counts itself."""

    name: str
    text: str
    labels: tuple[str, ...]
    counts: Callable[[Metrics], Mapping[Any, int]]
    """Returns the numbers by the values of the labels. A key that is no tuple is one value."""


COUNTERS = (
    CounterSpec(
        "srmp_messages_accepted",
        "Messages that were answered 200 and became rows.",
        ("queue", "transport"),
        lambda metrics: metrics.accepted,
    ),
    CounterSpec(
        "srmp_messages_refused",
        "Messages that became no row: not answered 200, or answered 200 and discarded. reason is "
        "the code of the errors page.",
        ("status", "reason"),
        lambda metrics: metrics.refused,
    ),
    CounterSpec(
        "srmp_signatures",
        "Signed messages that were checked. status is that of the column signature_status; how is "
        "the form of the signature that fitted, or the reason.",
        ("status", "how"),
        lambda metrics: metrics.signatures,
    ),
    CounterSpec(
        "srmp_duplicates",
        "Messages that were answered 200 and are rows already. kind says by what they were known: "
        "their identifier, or their place in a stream or sequence.",
        ("queue", "kind"),
        lambda metrics: metrics.duplicates,
    ),
    CounterSpec(
        "srmp_sink_rows",
        "Rows of the commits of sinks. result is new (will be sent), known (sent before), "
        "conflicts (sent before with other content), or bad (can never be sent).",
        ("result",),
        lambda metrics: metrics.sink_rows,
    ),
    CounterSpec(
        "srmp_tls_refused",
        "TLS handshakes that failed at the SRMP port. why is the reason: certificate, "
        "no-certificate, version, protocol, too-slow or gone.",
        ("why",),
        lambda metrics: metrics.tls_refused,
    ),
    CounterSpec(
        "srmp_receipts_sent",
        "Receipts that a peer has accepted. kind is delivery, stream, commitment or final_stream.",
        ("kind",),
        lambda metrics: metrics.receipts_sent,
    ),
    CounterSpec(
        "srmp_receipts_blocked",
        "Receipts that were not sent, because no rule and no --allow-url allows their URL.",
        (),
        lambda metrics: {(): metrics.receipts_blocked},
    ),
    CounterSpec(
        "srmp_receipts_dropped",
        "Receipts that were discarded: beyond the limit of one host, or out of their time.",
        (),
        lambda metrics: {(): metrics.receipts_dropped},
    ),
)
"""The counters, in their order in the exposition. ``/metrics`` adds ``_total`` to the names."""


class _Labelled(NamedTuple):
    """A metric with labels, and its samples. ``kind`` is the class in ``prometheus_client``."""

    kind: type[CounterMetricFamily | GaugeMetricFamily]
    name: str
    text: str
    labels: tuple[str, ...]
    samples: Samples

    def of(self, samples: Samples) -> Metric:
        """Return the metric of ``prometheus_client`` with ``samples`` in place of all samples."""
        family = self.kind(self.name, self.text, labels=self.labels)
        for values, value in samples:
            family.add_metric(list(values), value)
        return family


class _Only(Collector):
    """A collector of ``prometheus_client`` that has one metric."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self._metric
