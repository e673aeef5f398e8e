"""The program of an earlier version, run as a process: to see what it makes of what this version leaves behind.

``VERSION/program.tar.xz`` holds the package of the version as ``git archive`` writes it, with the commit in its header:

    git archive COMMIT srmp_spark ':!srmp_spark/testing' | xz -9e > tests/compat/VERSION/program.tar.xz

The simulators of that version, in ``srmp_spark/testing``, are left out: no program of it imports them.
"""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

from srmp_spark.testing.queue_manager import RunningQueueManager

PROGRAMS = {
    path.parent.name: path for path in sorted(Path(__file__).parent.glob("*/program.tar.xz"))
}
"""By version."""


def commit_of(version: str) -> str:
    """Return the commit that ``git archive`` wrote into the header of the program."""
    with tarfile.open(PROGRAMS[version]) as tar:
        return tar.pax_headers["comment"]


class EarlierProgram:
    """A version's program in a folder of its own."""

    def __init__(self, version: str, folder: Path) -> None:
        """Unpack the program into ``folder``, which must not exist yet."""
        self.version = version
        self.folder = folder
        folder.mkdir(parents=True)
        with tarfile.open(PROGRAMS[version]) as tar:
            if hasattr(tarfile, "data_filter"):
                tar.extractall(folder, filter="data")
            else:
                tar.extractall(folder)

    def queue_manager(self, data_dir: Path, **options: Any) -> RunningQueueManager:
        """Return a queue manager of the version on ``data_dir``; ``options`` are those of ``serve``.

        Python looks into the working directory first, so that is the folder of the program.
        """
        running = RunningQueueManager(
            data_dir,
            prefix=["env", "-C", str(self.folder)],
            environment={"PYTHONPATH": str(self.folder)},
            **options,
        )
        running.log = self.folder / f"{data_dir.name}.log"
        return running
