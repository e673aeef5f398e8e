"""The kits of the store and of the outbox, which the sessions here are made of."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from disk_mounts import SIZE_MIB, may_mount, mount_for_this_thread_alone

for folder in ("store", "outbox", "sender"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))

MEMORY = Path(
    "/dev/shm"
)  # a thousand directories are written and judged: what a sync costs is not measured here
"""Linux' folder in memory. What survives is decided by the model of the disk, never by the file system under it."""


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own, in memory."""
    folder = tmp_path / "volume"
    folder.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m", "srmp-spark-test", str(folder)],
        check=True,
    )
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def common(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of this run share: pytest-xdist gives each its own below it."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session", autouse=True)
def one_name() -> Iterator[Path | None]:
    """The folder of the parts, in a full run. Once for a process and before its first test: a library's own threads (Delta has
    some) see what was mounted when they began, and nothing that comes later."""
    if (
        not MEMORY.is_dir()
        or not may_mount
        or "full"
        not in (os.environ.get("SRMP_SPARK_CRASH"), os.environ.get("SRMP_SPARK_POWERLOSS"))
    ):
        yield None
        return
    folder = MEMORY / "srmp-spark-disk-parts"
    folder.mkdir(exist_ok=True)
    mount_for_this_thread_alone(folder)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def fast_path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, or ``tmp_path`` where there is none. All parts of a trace see theirs under one name."""
    if not MEMORY.is_dir():
        yield tmp_path
        return
    callspec = getattr(request.node, "callspec", None)
    if callspec and getattr(callspec.params.get("part"), "of", 1) > 1:
        folder = request.getfixturevalue("one_name")
        yield folder
        for each in folder.iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        return
    folder = Path(tempfile.mkdtemp(prefix="srmp-spark-disk-", dir=MEMORY))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
