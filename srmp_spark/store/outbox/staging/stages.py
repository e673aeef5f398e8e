"""Stages: files that tasks wrote and that are not committed yet.

The main process streams the body of a request to ``stages/<name>``, and syncs the file and the
folder. Then the stage is registered here. A crash may leave a file without a row, or a row without
a file. Such a leftover does not count.
"""

from __future__ import annotations

import logging
import secrets
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from srmp_spark.store.outbox.columns import StageSchema
from srmp_spark.store.outbox.errors import BAD_STAGE, UNKNOWN_STAGE, BatchError
from srmp_spark.store.outbox.limits import APPLICATION_LENGTH_MAX, STAGE_FILE_HOURS, STAGE_HOURS
from srmp_spark.store.outbox.stage_paths import GOOD_ENDING, beside, delete_stage, stage_of
from srmp_spark.store.outbox.staging.bad_row_letters import Origin
from srmp_spark.store.outbox.staging.bad_rows import BadRows, check_or_divide
from srmp_spark.store.outbox.tables.database import OutboxDatabase

_HOUR_US = 3_600_000_000
_log = logging.getLogger(__name__)


class Staged(NamedTuple):
    """The answer to the client that staged rows: identifier and number of rows of the stage."""

    stage_id: str
    rows: int
    """Number of rows that the client sent, with the bad ones."""


class CheckedStage(NamedTuple):
    """A file of rows that :meth:`Stages.check` has checked: all rows can become messages.

    ``bad`` says which rows were taken out of the client's file, if any.
    """

    file: str
    partition: int
    rows: int
    bytes: int
    schema: StageSchema
    bad: BadRows | None = None


class StageRow(NamedTuple):
    """A database row of the table ``stages``: one file of rows that a task wrote.

    ``attempt`` names the attempt of the task, and ``folder`` is the folder of the file.
    """

    id: str
    application: str
    batch: str
    partition: int
    attempt: str
    file: str
    rows: int
    size: int
    order_by: str
    dead_letter: bool
    staged_at: int
    folder: Path

    @property
    def path(self) -> Path:
        """Return the path of the file with its rows."""
        return self.folder / self.file


class Stages:
    """Registers, finds and deletes stages: rows of the table ``stages`` and their files."""

    def __init__(self, database: OutboxDatabase, folder: Path) -> None:
        self._database = database
        self._connection: sqlite3.Connection = database.connection
        self.folder = folder
        self.multicast = False
        """Whether this queue manager sends multicast."""

    def check(
        self, file: str, partition: int, application: str = "", batch: str = ""
    ) -> CheckedStage:
        """Check every row of the file named ``file`` in the folder of stages.

        A file that is refused is deleted. This method uses the file alone, so any thread may call
        it. ``partition`` is for the error's text, and the names are for letters about bad rows.
        Raises :class:`BatchError` (400) if the file or a row cannot become messages.
        """
        path = self.folder / file
        assert path.parent == self.folder, f"{file} is a name, not a path"
        try:
            origin = Origin(application, batch, partition)
            checked = check_or_divide(path, origin, multicast=self.multicast, hashes=False)
        except BatchError as error:
            delete_stage(path)
            delete_stage(beside(path, GOOD_ENDING))
            raise BatchError(
                error.status, error.code, f"partition {partition}: {error.message}", error.hint
            ) from error
        if checked.file != file:
            delete_stage(path)
        return CheckedStage(
            checked.file, partition, checked.rows, checked.bytes, checked.schema, checked.bad
        )

    def add(
        self,
        application: str,
        batch: str,
        partition: int,
        attempt: str,
        file: str | CheckedStage,
        at: int,
    ) -> Staged:
        """Register a stage in a transaction of its own, and return its new identifier.

        ``file`` is a name in the folder of stages, which is then checked, or the result of
        :meth:`check`. The bytes and the name of the file must be synced. A stage with the same
        application, batch, partition and attempt replaces an uncommitted stage, whose file is
        deleted. Raises :class:`BatchError` (400), and deletes the file, if the stage is refused.
        """
        checked = self.check(file, partition, application, batch) if isinstance(file, str) else file
        file = checked.file
        assert checked.partition == partition, f"{checked!r} is of another partition"
        try:
            _check_names(application, batch, attempt)
        except BatchError:
            delete_stage(self.folder / file)
            raise
        number = secrets.token_hex(16)
        order_by = repr(checked.schema.order_by)
        key = (application, batch, partition, attempt)
        replaced = self._connection.execute(
            "SELECT id, file FROM stages WHERE application = ? AND batch = ? AND "
            "partition = ? AND attempt = ?",
            key,
        ).fetchone()
        with self._database.transaction() as connection:
            if replaced is not None:
                connection.execute("DELETE FROM stages WHERE id = ?", (replaced[0],))
            connection.execute(
                "INSERT INTO stages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    number,
                    *key,
                    file,
                    checked.rows,
                    checked.bytes,
                    order_by,
                    checked.schema.dead_letter,
                    at,
                ),
            )
        if replaced is not None and replaced[1] != file:
            self.unlink([replaced[1]])
        return Staged(number, checked.rows + (0 if checked.bad is None else checked.bad.rows))

    def get(self, application: str, batch: str, stages: Sequence[str]) -> list[StageRow]:
        """Return the stages with these identifiers, in this order; each must belong to the batch.

        An identifier that is given twice counts once. Raises :class:`BatchError` (404) if a stage
        or its file does not exist, or belongs to another batch.
        """
        found = []
        for number in dict.fromkeys(stages):
            row = self._connection.execute(
                "SELECT * FROM stages WHERE id = ?", (number,)
            ).fetchone()
            if row is None or not (self.folder / row[5]).exists():
                hint = "stage its rows again, then commit"
                raise BatchError(
                    404, UNKNOWN_STAGE, f"there is no stage {number[:40]}, or it was deleted", hint
                )
            stage = self._row(row)
            if (stage.application, stage.batch) != (application, batch):
                message = (
                    f"stage {number[:40]} belongs to batch {stage.batch} of {stage.application}"
                )
                raise BatchError(404, UNKNOWN_STAGE, message, "commit the stages of one batch")
            found.append(stage)
        return found

    def lost_attempts(self, stages: Sequence[StageRow]) -> list[StageRow]:
        """Return the stages of lost attempts: other stages of the same batch as ``stages``.

        A lost attempt is one of a task that Spark ran again. Only stages that were staged no later
        than the last of ``stages`` are returned. Later stages may belong to a restarted driver that
        does not know yet that the batch counts.
        """
        if not stages:
            return []
        won, last = {stage.id for stage in stages}, max(stage.staged_at for stage in stages)
        rows = self._connection.execute(
            "SELECT * FROM stages WHERE application = ? AND batch = ? AND staged_at <= ?",
            (stages[0].application, stages[0].batch, last),
        )
        return [self._row(row) for row in rows if row[0] not in won]

    def _row(self, row: tuple[Any, ...]) -> StageRow:
        return StageRow(*row, self.folder)  # type: ignore[call-arg]  # mypy does not count a star

    def drop(self, application: str, batch: str) -> int:
        """Delete the uncommitted stages of a batch, and return how many there were.

        Their database rows are deleted in a transaction of its own, and their files after it.
        """
        return self._delete("application = ? AND batch = ?", (application, batch))

    def drop_old(self, at: int) -> int:
        """Delete stages that were not committed within :data:`STAGE_HOURS`.

        They are deleted as by :meth:`drop`. ``at`` is the wall clock in microseconds since 1970,
        UTC. Return how many there were.
        """
        return self._delete("staged_at < ?", (at - STAGE_HOURS * _HOUR_US,))

    def _delete(self, where: str, values: tuple[object, ...]) -> int:
        rows = self._connection.execute(
            f"SELECT id, file FROM stages WHERE {where}",  # noqa: S608  # our own text
            values,
        ).fetchall()
        if rows:
            with self._database.transaction() as connection:
                connection.executemany(
                    "DELETE FROM stages WHERE id = ?", [(number,) for number, _ in rows]
                )
            self.unlink([file for _, file in rows])
        return len(rows)

    def unlink(self, files: Sequence[str]) -> None:
        """Delete the files of stages, after the commit that deleted their rows.

        An error of the disk is logged. :meth:`sweep_files` deletes the files that a crash or an
        error leaves.
        """
        for file in files:
            try:
                delete_stage(self.folder / file)
            except OSError as error:  # noqa: PERF203  # one failure must not stop the others
                _log.warning('outbox.stage_file_left file=%s reason="%s"', file, error)

    def sweep_files(self) -> int:
        """Delete unregistered files that were not written for STAGE_FILE_HOURS; return how many.

        Raises :class:`OSError` if the folder cannot be read or a file cannot be deleted.
        """
        named = {file for (file,) in self._connection.execute("SELECT file FROM stages")}
        oldest = time.time() - STAGE_FILE_HOURS * 3600
        count = 0
        for path in self.folder.iterdir():
            if (
                stage_of(path.name) not in named
                and path.is_file()
                and path.stat().st_mtime < oldest
            ):
                path.unlink(missing_ok=True)
                count += 1
        if count:
            _log.info("outbox.stage_files_deleted count=%d", count)
        return count


def _check_names(application: str, batch: str, attempt: str) -> None:
    for name, text in (("application", application), ("batch", batch), ("attempt", attempt)):
        if not 1 <= len(text) <= APPLICATION_LENGTH_MAX:
            message = (
                f"{name} has 1 to APPLICATION_LENGTH_MAX = {APPLICATION_LENGTH_MAX} "
                f"characters, got {len(text)}"
            )
            raise BatchError(400, BAD_STAGE, message, "shorten it")
