"""List every benchmark: what it runs, in words, and the figures that it yields."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.common import Figure, Plan


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One benchmark. ``where`` is ``module:function`` and is loaded when the benchmark runs."""

    where: str
    words: str
    figures: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    """Arguments of the function after the plan."""
    needs_spark: bool = False

    def run(self, plan: Plan) -> Iterator[Figure]:
        """Yield the figures as they are measured.

        Raises :class:`RuntimeError` for a figure that the benchmark does not name.
        """
        module, _, function = self.where.partition(":")
        for figure in getattr(importlib.import_module(f"benchmarks.{module}"), function)(
            plan, *self.arguments
        ):
            if figure.name not in self.figures:
                raise RuntimeError(
                    f"{figure.name} is not among the figures that benchmarks/registry.py names"
                )
            yield figure


BENCHES = {
    "decode": Benchmark(
        "decode:run",
        "a POST against lxml.etree.fromstring of its envelope",
        ("decode_windows", "decode_other"),
    ),
    "ingest": Benchmark(
        "ingest:run",
        "durable ingest, 32 connections, one core",
        ("ingest_vs_uvicorn", "ingest_vs_rabbitmq", "ingest_cpu", "ack_p99_32"),
    ),
    "ack": Benchmark("ingest:acknowledgement", "acknowledgement at one connection", ("ack_p50_1",)),
    "send": Benchmark(
        "send:run",
        "10,000 rows in order until acknowledged, one core; the same beside a destination "
        "that is down",
        ("send_eoio", "send_cpu", "send_one_down"),
    ),
    "send_backlog": Benchmark(
        "send:backlog",
        "the rate of sending with 1,000,000 rows waiting",
        ("send_backlog", "send_memory"),
    ),
    "remote_read": Benchmark(
        "remote_read:run",
        "peeks of 4 KB over RPC with their rows, against go-msrpc and impacket; a queue "
        "that is pulled",
        ("peek_rate", "peek_four_partitions", "pull_rate", "peek_vs_go", "peek_vs_impacket"),
    ),
    "wsrm_in": Benchmark(
        "wsrm_in:run",
        "reliable sessions of a CXF client, against CXF's own service",
        ("wsrm_in_1", "wsrm_in_8"),
    ),
    "wsrm_out": Benchmark(
        "wsrm_out:run",
        "rows for wsrm:URL to CXF's service, against CXF's own client",
        ("wsrm_out",),
    ),
    "pgm": Benchmark(
        "pgm:run",
        "goodput of multicast over a veth pair, 1 KB and 8 KB, without loss and with 1 %, "
        "against OpenPGM",
        ("pgm_1k", "pgm_1k_loss", "pgm_8k", "pgm_8k_loss"),
    ),
    "spark_drain": Benchmark(
        "spark_bench:drain",
        "1,000,000 rows into the noop sink, against Spark's Kafka source",
        (
            "spark_drain_1",
            "spark_drain_seven_1",
            "spark_drain_2",
            "spark_drain_seven_2",
            "spark_drain_two_columns",
            "spark_drain_two_over_one",
        ),
        needs_spark=True,
    ),
    "spark_latency": Benchmark(
        "spark_bench:latency",
        "POST to foreachBatch at 100 messages a second, against Spark's Kafka source",
        ("spark_latency_p50", "spark_latency_seven_p50", "spark_latency_nothing_p50"),
        needs_spark=True,
    ),
    "spark_sink": Benchmark(
        "spark_sink:run",
        "1,000,000 rows staged and committed, against Spark's Kafka sink",
        ("sink_stage_commit", "sink_memory"),
        needs_spark=True,
    ),
}

_SHAPES = ("one_run", "gaps", "senders", "worst")
_OF_A_SHAPE = ("accept_p50_1", "accept_p50_32", "batch", "accept_p99_32", "accept_cpu_32", "memory")

SCALE = {
    "many": Benchmark(
        "scale.many:run",
        "10,000 queues and 100,000 streams at rest",
        (
            "many_idle_cpu",
            "many_start",
            "many_summary",
            "many_healthz_worst",
            "many_v1_status",
            "many_metrics",
            "many_v1_queues",
        ),
    ),
    **{
        shape: Benchmark(
            "scale.flat:run",
            f"10,000,000 identifiers ({shape}) and 1,000,000 waiting rows beside 10,000 of each",
            tuple(f"{shape}_{figure}" for figure in _OF_A_SHAPE),
            (shape,),
            needs_spark=shape == "worst",  # a quick run has the batches of this shape alone
        )
        for shape in _SHAPES
    },
    "spark_down": Benchmark(
        "scale.spark_down:run",
        "a million messages while Spark is away, and its return",
        (
            "down_lost",
            "down_doubled",
            "down_memory_growth",
            "down_memory",
            "down_drain",
            "down_accept_p99",
        ),
        needs_spark=True,
    ),
}
"""The benchmarks of ``python -m benchmarks.scale``, which take minutes each."""

ALL = BENCHES | SCALE
