"""Queue managers and Spark of two versions at one time, as in the middle of an upgrade (docs/upgrades.md)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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
OPTIONS: dict[str, Any] = {"queues": [QUEUE], "allow_url": ["http://127.0.0.1:*"]}


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


FIVE = [[n, label] for n, label in enumerate("abcde", 1)]


@pytest.mark.spark
@pytest.mark.parametrize("version", PROGRAMS)
def test_spark_and_queue_manager_of_two_versions_understand_each_other(
    version: str, tmp_path: Path, jvm: dict[str, str]
) -> None:
    """This package reads, writes and ingests at a queue manager of then, and that one at a queue manager of now."""
    earlier = EarlierProgram(version, tmp_path / "program")
    bodies = []
    with ForeignDestination({"private$/in": True}) as peer:
        url = peer.url("private$/in")
        for running, package in (
            (earlier.queue_manager(tmp_path / "old", **OPTIONS), ROOT),
            (RunningQueueManager(tmp_path / "new", **OPTIONS), earlier.folder),
        ):
            with running:
                send(running, *"abcde")
                here = running.data_dir.with_suffix(".spark")
                found = run(package, jvm, running.api, str(here), QUEUE, url)
                assert (found["batch"], found["ingested"]) == (FIVE, 5)
                assert QueueManagerClient(running.api).queue(QUEUE)["received"] == 5
                bodies.append(f"by {found['version']}")
                peer.wait_for(len(bodies))
        assert [each.body.decode() for each in peer.messages()] == bodies
        assert bodies[0] == f"by {__version__}"
        assert bodies[1].startswith(f"by {version}.")


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("version", PROGRAMS)
def test_a_checkpoint_and_a_table_of_this_version_go_on_under_the_earlier_one(
    version: str, tmp_path: Path, jvm: dict[str, str]
) -> None:
    """The other way round, a checkpoint and a table of then under this version: ``test_compat.py``."""
    earlier = EarlierProgram(version, tmp_path / "program")
    here = str(tmp_path / "spark")
    with (
        ForeignDestination({"private$/in": True}) as peer,
        RunningQueueManager(tmp_path / "new", **OPTIONS) as running,
    ):
        send(running, *"abcde")
        url = peer.url("private$/in")
        assert run(ROOT, jvm, running.api, here, QUEUE, url)["ingested"] == 5
        send(running, "f", "g")
        found = run(earlier.folder, jvm, running.api, here, QUEUE, url)
        assert (found["batch"], found["ingested"]) == ([[6, "f"], [7, "g"]], 2)
        assert QueueManagerClient(running.api).queue(QUEUE)["received"] == 7
        table = deltalake.DeltaTable(f"{here}/table").to_pyarrow_table(
            columns=["epoch", "sequence"]
        )
        places = sorted((row["epoch"], row["sequence"]) for row in table.to_pylist())
        assert places == [(running.epoch, n) for n in range(1, 8)]
