"""Every benchmark that needs Spark runs with small sizes, in a JVM that other programs use before and after it."""

from __future__ import annotations

import pytest
from quick_kit import SECONDS_MAX, QuickRun, assert_ours_ran, quick_run

from benchmarks.registry import ALL

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(SECONDS_MAX + 60)]
NAMES = [name for name, benchmark in ALL.items() if benchmark.needs_spark]
PEERS = {
    "Kafka": {
        "spark_drain_1", "spark_drain_2", "spark_drain_seven_1", "spark_drain_seven_2", "spark_drain_two_columns",
        "spark_latency_p50", "spark_latency_seven_p50", "spark_latency_nothing_p50", "sink_stage_commit",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def run(jvm: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> QuickRun:
    return quick_run(NAMES, tmp_path_factory.mktemp("peers"), **jvm)


@pytest.mark.parametrize("figure", [figure for name in NAMES for figure in ALL[name].figures])
def test_our_side_runs(run: QuickRun, figure: str) -> None:
    assert_ours_ran(run, figure)
    assert run.figures[figure]["value"] is not None


def test_no_benchmark_failed_and_nothing_was_lost(run: QuickRun) -> None:
    assert run.code == 0, run.progress[-3000:]
    assert [run.figures[name]["value"] for name in ("down_lost", "down_doubled")] == [0, 0]


@pytest.mark.parametrize("peer", PEERS)
def test_a_peer_that_is_left_out_is_named_by_each_figure_that_lacks_it(
    run: QuickRun, peer: str
) -> None:
    assert set(run.without(peer)) == PEERS[peer]
    assert [name for name in PEERS[peer] if run.figures[name]["ratio"] is not None] == []
