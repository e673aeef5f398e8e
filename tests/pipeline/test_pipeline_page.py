"""docs/testing-your-pipeline.md: its example passes, and its names are those of the classes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from srmp_spark.testing import ForeignDestination, ForeignSender, QueueHandle, RunningQueueManager

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "testing-your-pipeline.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
PLUGIN = ["-p", "srmp_spark.testing.pytest_plugin"]
SECONDS = 200.0
"""For a JVM on a busy machine; twenty on a quiet one."""


def run(folder: Path, environment: dict[str, str]) -> str:
    """What pytest says of the tests in ``folder``, which pass.

    The plugin is named, as this project may not be installed here.
    """
    environment = {**os.environ, **environment, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [*PYTEST, *PLUGIN, str(folder)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.spark
def test_the_example_passes(tmp_path: Path, jvm: dict[str, str]) -> None:
    (tmp_path / "test_orders.py").write_text(BLOCKS[0])
    assert "1 passed" in run(tmp_path, {"PYSPARK_PYTHON": sys.executable, **jvm})


def test_a_fixture_of_one_s_own_takes_the_place_of_ours(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(BLOCKS[1])
    (tmp_path / "test_own.py").write_text(
        "def test_own(queue_manager, sender):\n"
        "    orders = queue_manager.queue('private$/orders')\n"
        "    sender.post(orders.name, b'x')\n"
        "    assert len(orders.wait_for(1)) == orders.waiting() == 1\n"
        "    assert '--retention-hours' in queue_manager.command()\n"
    )
    assert "1 passed" in run(tmp_path, {})


def test_the_page_names_what_is_there() -> None:
    classes = {
        "queue_manager": RunningQueueManager,
        "queue": QueueHandle,
        "sender": ForeignSender,
        "destination": ForeignDestination,
    }
    named = re.findall(r"`(queue_manager|queue|sender|destination)\.(\w+)", PAGE)
    assert len(named) > 15
    unknown = {
        f"{fixture}.{name}"
        for fixture, name in named
        if not hasattr(classes[fixture], name) and name not in classes[fixture].__annotations__
    }
    assert unknown == set()
