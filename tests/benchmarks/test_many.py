"""The short version of ``make many``: a fifth of its queues and streams. CPU time is asserted, which a shared machine does not
change much; times by the clock are not."""

from __future__ import annotations

import time
from pathlib import Path

import requests
from deltalake import DeltaTable

from benchmarks.scale.many import IDLE_MAX, measure, serving, wait_until_published
from benchmarks.scale.many_prefill import ROWS_OF_A_QUEUE, STREAMS_OF_A_QUEUE, fill, queue_name

QUEUES = 2_000
IDLE_SECONDS = 12.0
"""Two intervals of the publisher, and twelve looks of sealing. The first publication after a start is
among them: it is no rest, and takes most of the CPU that is measured (of 6 s 3 %, of the next 0.7 %)."""
SUMMARY_CPU_MAX_MS = 50.0
START_CPU_MAX_S = 10.0


def test_many_queues_and_streams_at_rest_cost_nothing_and_are_all_published(tmp_path: Path) -> None:
    fill(tmp_path / "data", QUEUES)
    began = time.monotonic()
    with serving(tmp_path) as server:
        found = measure(server, time.monotonic() - began, IDLE_SECONDS)
        assert found.idle <= IDLE_MAX, found
        assert found.summary_cpu_ms <= SUMMARY_CPU_MAX_MS, found
        assert found.start_cpu_s <= START_CPU_MAX_S, found
        streams = DeltaTable(str(tmp_path / "state" / "incoming_streams"))
        rows = (QUEUES - 2) * ROWS_OF_A_QUEUE
        assert streams.count() == QUEUES * STREAMS_OF_A_QUEUE
        assert DeltaTable(str(tmp_path / "state" / "inbox")).count() == rows
        path = f"{server.api}/v1/queues/{queue_name(7).replace('/', '%2F')}/messages"
        assert requests.post(path, json={"label": "one more"}, timeout=30).status_code == 200
        wait_until_published(server)
    assert DeltaTable(str(tmp_path / "state" / "inbox")).count() == rows + 1, (
        "what came among many was seen"
    )
    again = DeltaTable(str(tmp_path / "state" / "incoming_streams"))
    assert again.version() == streams.version(), "what did not change was not written"
