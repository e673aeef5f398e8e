"""``python -m benchmarks``: the table on stdout, its last line one JSON object; progress on stderr.

    {name: {"value", "unit", "reference", "ratio", "target", "ok"}}

Medians of five rounds, both sides in one run. What this machine cannot run (no wrk, no Kafka, one core) has ``ok`` null and
a note. The exit code is 1 when a figure misses its target, so that a series can go on.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator

from benchmarks.common import Figure, NotHere, load, rounded, say

Bench = Callable[..., Iterator[Figure]]


def _decode(rounds: int, *, quick: bool) -> Iterator[Figure]:
    from benchmarks.decode import run

    return run(rounds, quick=quick)


def _ingest(rounds: int, *, quick: bool) -> Iterator[Figure]:
    from benchmarks.ingest import run

    return run(rounds, quick=quick)


def _ack(rounds: int, *, quick: bool) -> Iterator[Figure]:
    from benchmarks.ingest import acknowledgement

    return acknowledgement(rounds, quick=quick)


def _drain(rounds: int, *, quick: bool) -> Iterator[Figure]:
    from benchmarks.spark_bench import drain

    return drain(rounds, quick=quick)


def _latency(rounds: int, *, quick: bool) -> Iterator[Figure]:
    from benchmarks.spark_bench import latency

    return latency(rounds, quick=quick)


def _send(rounds: int, *, quick: bool) -> Iterator[Figure]:
    from benchmarks.send import run

    return run(rounds, quick=quick)


def _backlog(rounds: int, *, quick: bool) -> Iterator[Figure]:
    from benchmarks.send import backlog

    return backlog(rounds, quick=quick)


def _sink(rounds: int, *, quick: bool) -> Iterator[Figure]:
    from benchmarks.spark_sink import run

    return run(rounds, quick=quick)


def _remote_read(rounds: int, *, quick: bool) -> Iterator[Figure]:
    from benchmarks.remote_read import run

    return run(rounds, quick=quick)


def _wsrm_in(rounds: int, *, quick: bool) -> Iterator[Figure]:
    from benchmarks.wsrm_in import run

    return run(rounds, quick=quick)


def _pgm(rounds: int, *, quick: bool) -> Iterator[Figure]:
    from benchmarks.pgm import run

    return run(rounds, quick=quick)


def _wsrm_out(rounds: int, *, quick: bool) -> Iterator[Figure]:
    from benchmarks.wsrm_out import run

    return run(rounds, quick=quick)


BENCHES: dict[str, tuple[Bench, str, tuple[str, ...]]] = {
    "decode": (_decode, "a POST against lxml.etree.fromstring of its envelope", ("decode_windows", "decode_other")),
    "ingest": (
        _ingest,
        "durable ingest, 32 connections, one core",
        ("ingest_vs_uvicorn", "ingest_vs_rabbitmq", "ingest_cpu", "ack_p99_32"),
    ),
    "ack": (_ack, "acknowledgement at one connection", ("ack_p50_1",)),
    "send": (
        _send,
        "10,000 rows in order until acknowledged, one core; the same beside a destination that is down",
        ("send_eoio", "send_cpu", "send_one_down"),
    ),
    "send_backlog": (_backlog, "the rate of sending with 1,000,000 rows waiting", ("send_backlog", "send_memory")),
    "remote_read": (
        _remote_read,
        "peeks of 4 KB over RPC with their rows, against go-msrpc and impacket",
        ("peek_rate", "peek_vs_go", "peek_vs_impacket"),
    ),
    "wsrm_in": (_wsrm_in, "reliable sessions of a CXF client, against CXF's own service", ("wsrm_in_1", "wsrm_in_8")),
    "pgm": (
        _pgm,
        "goodput of multicast over a veth pair, 1 KB and 8 KB, without loss and with 1 %, against OpenPGM",
        ("pgm_1k", "pgm_1k_loss", "pgm_8k", "pgm_8k_loss"),
    ),
    "wsrm_out": (_wsrm_out, "rows for wsrm:URL to CXF's service, against CXF's own client", ("wsrm_out",)),
    "spark_drain": (
        _drain,
        "1,000,000 rows into the noop sink, against Spark's Kafka source",
        (
            "spark_drain_1", "spark_drain_seven_1", "spark_drain_2", "spark_drain_seven_2", "spark_drain_two_columns",
            "spark_drain_two_over_one",
        ),
    ),
    "spark_latency": (_latency, "POST to foreachBatch at 100 messages a second", ("spark_latency_p50",)),
    "spark_sink": (
        _sink,
        "1,000,000 rows staged and committed, against Spark's Kafka sink",
        ("sink_stage_commit", "sink_memory"),
    ),
}
"""Name, what runs, in words, and the figures it yields."""


def main() -> int:
    listed = "\n".join(f"  {name:14s} {words}" for name, (_, words, _) in BENCHES.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Compares srmp-spark with what a user would pick instead.\nPrepare once: benchmarks/peers/setup.sh",
        epilog=f"benchmarks:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only", action="append", choices=sorted(BENCHES), metavar="NAME", help="one benchmark; may be repeated"
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each (default 5; figures are their medians)")
    parser.add_argument("--quick", action="store_true", help="one round, small sizes: shows that it runs, proves no figure")
    arguments = parser.parse_args()
    rounds = 1 if arguments.quick else arguments.rounds
    figures: list[Figure] = []
    for name in arguments.only or list(BENCHES):
        bench, _, yields = BENCHES[name]
        try:
            figures += bench(rounds, quick=arguments.quick)
        except NotHere as reason:
            say(f"{name}: {reason}")
            figures += [Figure(name=figure, value=None, unit="", note=str(reason)) for figure in yields]
        except Exception as error:  # one broken side must not cost the figures of the others
            traceback.print_exc()
            figures += [
                Figure(name=figure, value=None, unit="", ok=False, note=f"{type(error).__name__}: {error}") for figure in yields
            ]
    show(figures, f"medians of {rounds}")
    return 1 if any(figure.ok is False for figure in figures) else 0


def show(figures: list[Figure], how: str) -> None:
    """The table, the notes, and the last line: one JSON object. ``how`` the figures were come to."""
    head = ("figure", "value", "unit", "beside", "reference", "ratio", "target", "ok")
    rows = [
        (
            f.name,
            _text(f.value),
            f.unit,
            f.reference_name,
            _text(f.reference),
            _text(f.ratio),
            f.target,
            ("not run here" if f.value is None else "") if f.ok is None else "yes" if f.ok else "NO",
        )
        for f in figures
    ]
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    for row in (head, *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    for figure in figures:
        if figure.note:
            print(f"{figure.name}: {figure.note}")
    print(f"{how}; {os.cpu_count()} cores, load {load()}, Python {sys.version.split()[0]}")
    print(json.dumps({figure.name: figure.as_json() for figure in figures}), flush=True)


def _text(value: float | None) -> str:
    value = rounded(value)
    return "" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


if __name__ == "__main__":
    sys.exit(main())
