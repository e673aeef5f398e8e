"""The Spark query of the demo, a process of ``jobs/ingest.py``, and its Delta table."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import deltalake

from tests.kit.foreign.ledger import Landed, digest

STOP_SECONDS = 20.0
"""Longest time from SIGTERM to the end, in seconds; then the job is killed with -9."""


class Query:
    """The job in its own process group, so that kill -9 also ends the JVM.

    ``job`` is the path of ``jobs/ingest.py``, ``directory`` the folder for table, checkpoint and
    logs. ``api`` is the URL of the queue manager's API, ``queues`` the names with commas between
    them.
    """

    def __init__(self, job: Path, directory: Path, api: str, queues: str) -> None:
        self.job = job
        self.directory = directory
        self.api = api
        self.queues = queues
        self.starts = 0
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def table(self) -> Path:
        """Return the path of the Delta table."""
        return self.directory / "table"

    @property
    def log(self) -> Path:
        """Return the path of the log of the newest process; each start has its own log."""
        return self.directory / f"ingest-{self.starts}.log"

    def start(self) -> None:
        """Start the job, for the first time or again."""
        self.starts += 1
        command = [
            sys.executable,
            str(self.job),
            "--queue-manager",
            self.api,
            "--queue",
            self.queues,
        ]
        command += [
            "--table",
            str(self.table),
            "--checkpoint",
            str(self.directory / "checkpoint"),
            "--trigger",
            "1 second",
        ]
        with self.log.open("wb") as log:
            # The command is a job of this project.
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)  # noqa: S603

    def kill9(self) -> None:
        """Send SIGKILL to the job and wait until it has ended."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """Send SIGTERM to the job and wait until it has ended; do nothing if it does not run.

        After :data:`STOP_SECONDS` the job is killed with -9.
        """
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill9()

    def check(self) -> None:
        """Raise :class:`SystemExit` if the job ended by itself.

        The error's text holds the exit code and the end of the job's log.
        """
        if self.process is not None and self.process.poll() is not None:
            tail = self.log.read_text(errors="replace")[-2000:]
            raise SystemExit(
                f"the Spark query ended with {self.process.returncode}; {self.log} ends "
                f"with:\n{tail}"
            )

    def rows(self) -> list[Landed]:
        """Return the rows that are in the Delta table now, read without Spark.

        The list is empty if there is no table yet.
        """
        if not deltalake.DeltaTable.is_deltatable(str(self.table)):
            return []
        columns = [
            "queue",
            "epoch",
            "sequence",
            "lineage",
            "uniquifier",
            "body",
            "stream_id",
            "stream_sequence",
        ]
        found = deltalake.DeltaTable(str(self.table)).to_pyarrow_table(columns=columns).to_pylist()
        return [Landed(**{**row, "body": digest(row["body"] or b"")}) for row in found]

    def batches(self) -> int:
        """Return the number of batches that the query has committed in its checkpoint."""
        return sum(
            path.name.isdigit() for path in (self.directory / "checkpoint" / "commits").glob("*")
        )
