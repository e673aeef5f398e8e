"""Queue managers and Spark of two versions at one time, as in the middle of an upgrade (docs/upgrades.md)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import deltalake
import pytest
from earlier_program import PROGRAMS, EarlierProgram

from srmp_spark import __version__
from srmp_spark.client.api import QueueManagerClient
from srmp_spark.testing import ForeignDestination
from srmp_spark.testing.queue_manager import RunningQueueManager

ROOT = Path(__file__).resolve().parents[2]
QUEUE = "private$/orders"
ALLOWED = ["http://127.0.0.1:*"]


def run(package: Path, jvm: Mapping[str, str], *arguments: str) -> dict[str, Any]:
    """Run ``mixed_query.py`` with the package in ``package``; return what it says."""
    program = str(Path(__file__).with_name("mixed_query.py"))
    done = subprocess.run(
        [sys.executable, program, *arguments], capture_output=True, text=True, timeout=280, check=False, cwd=package,
        env={**os.environ, **jvm, "PYTHONPATH": str(package)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert all(each.startswith(f"{package}/") for each in found["packages"]), found["packages"]
    return found


def send(running: RunningQueueManager, *labels: str) -> None:
    QueueManagerClient(running.api).send(QUEUE, [{"label": label} for label in labels])


@pytest.mark.spark
@pytest.mark.parametrize("version", PROGRAMS)
def test_spark_and_queue_manager_of_two_versions_understand_each_other(
    version: str, tmp_path: Path, jvm: dict[str, str]
) -> None:
    """This package works at a queue manager of then, and that one at a queue manager of now, with our checkpoint and table.

    The other way round, a checkpoint and a table of then under this package: ``test_compat.py``.
    """
    earlier = EarlierProgram(version, tmp_path / "program")
    options: dict[str, Any] = {"queues": [QUEUE], "allow_url": ALLOWED}
    five = [[n, label] for n, label in enumerate("abcde", 1)]
    with ForeignDestination({"private$/in": True}) as peer:
        url = peer.url("private$/in")
        with earlier.queue_manager(tmp_path / "old", **options) as old:
            send(old, *"abcde")
            found = run(ROOT, jvm, old.api, str(tmp_path / "at-old"), QUEUE, url)
            assert found["version"] == __version__
            assert (found["batch"], found["ingested"]) == (five, 5)
            assert QueueManagerClient(old.api).queue(QUEUE)["received"] == 5
            peer.wait_for(1)
        with RunningQueueManager(tmp_path / "new", **options) as new:
            here = str(tmp_path / "at-new")
            send(new, *"abcde")
            found = run(ROOT, jvm, new.api, here, QUEUE, url)
            assert (found["version"], found["ingested"]) == (__version__, 5)
            send(new, "f", "g")
            found = run(earlier.folder, jvm, new.api, here, QUEUE, url)
            assert found["version"].startswith(f"{version}.")
            assert (found["batch"], found["ingested"]) == ([[6, "f"], [7, "g"]], 2)
            assert QueueManagerClient(new.api).queue(QUEUE)["received"] == 7
            peer.wait_for(3)
            table = deltalake.DeltaTable(f"{here}/table").to_pyarrow_table(
                columns=["epoch", "sequence"]
            )
            places = sorted((row["epoch"], row["sequence"]) for row in table.to_pylist())
            assert places == [(new.epoch, n) for n in range(1, 8)]
        bodies = Counter(each.body.decode() for each in peer.messages())
        assert bodies == {f"by {__version__}": 2, f"by {found['version']}": 1}
