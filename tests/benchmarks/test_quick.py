"""Every benchmark that needs no Spark runs with small sizes: what is ours must run, and missing peers are named."""

from __future__ import annotations

import pytest
from quick_kit import SECONDS_MAX, QuickRun, assert_ours_ran, quick_run

from benchmarks.registry import ALL

pytestmark = [pytest.mark.long, pytest.mark.timeout(SECONDS_MAX + 60)]
NAMES = [name for name, benchmark in ALL.items() if not benchmark.needs_spark]
PEERS = {
    "wrk": {"ingest_vs_uvicorn", "ingest_vs_rabbitmq", "ingest_cpu", "ack_p99_32", "ack_p50_1"},
    "go-msrpc": {"peek_vs_go"},
    "impacket": {"peek_vs_impacket"},
    "Apache CXF": {"wsrm_in_1", "wsrm_in_8", "wsrm_out"},
    "OpenPGM": {"pgm_1k", "pgm_1k_loss", "pgm_8k", "pgm_8k_loss"},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> QuickRun:
    return quick_run(NAMES, tmp_path_factory.mktemp("peers"))


@pytest.mark.parametrize("figure", [figure for name in NAMES for figure in ALL[name].figures])
def test_our_side_runs(run: QuickRun, figure: str) -> None:
    assert_ours_ran(run, figure)


def test_no_benchmark_failed(run: QuickRun) -> None:
    assert run.code == 0, run.progress[-3000:]
    assert [name for name in run.figures if run.figures[name]["ok"] is False] == []


@pytest.mark.parametrize("peer", PEERS)
def test_a_peer_that_is_left_out_is_named_by_each_figure_that_lacks_it(
    run: QuickRun, peer: str
) -> None:
    assert set(run.without(peer)) == PEERS[peer]
    others = {"ingest_cpu", "ack_p50_1"}  # their reference is ours
    assert [name for name in PEERS[peer] - others if run.figures[name]["ratio"] is not None] == []
