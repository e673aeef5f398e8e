"""Make the parts of a Delta commit: live files, and the actions that add and remove files."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake.transaction import AddAction, RemoveAction

from srmp_spark.store.delta.tables.data_files import DataFile
from srmp_spark.store.delta.tables.table_specs import PARTITION


class LiveFile(NamedTuple):
    """A data file that the newest version of a table names."""

    path: str
    size: int
    rows: int
    least: dict[str, Any]
    greatest: dict[str, Any]


def application_id(queue_manager: str, epoch: str, queue: str) -> str:
    """Return the Delta application whose version is the last published sequence of a queue."""
    return f"{queue_manager}:{epoch}:{queue}"


def restores_id(queue_manager: str) -> str:
    """Return the Delta application (of ``inbox``) whose version counts the restores.

    The version is how often this queue manager was restored.
    """
    return f"{queue_manager}:restores"


def asked_id(queue_manager: str) -> str:
    """Return the Delta application (of ``inbox``) whose version counts the questions.

    A restore asks whether the queue manager is alive.
    """
    return f"{queue_manager}:asked"


def answered_id(queue_manager: str) -> str:
    """Return the Delta application (of ``inbox``) whose version is the last answered question.

    The queue manager answers the questions of a restore.
    """
    return f"{queue_manager}:answered"


def answers_id(queue_manager: str) -> str:
    """Return the Delta application (of ``inbox``) that marks a queue manager that answers.

    Its version is 1 once a version of srmp-spark that answers questions has started.
    """
    return f"{queue_manager}:answers"


def appends_id(queue_manager: str) -> str:
    """Return the Delta application (of ``inbox``) that every append and every restore moves.

    If two commits move it at the same time, one is refused.
    """
    return f"{queue_manager}:appends"


def overlap(one: LiveFile, other: LiveFile, column: str) -> bool:
    """Return whether the value ranges of ``column`` in the two files overlap.

    Then both files may hold equal values. Return ``True`` if the Delta log does not state the
    ranges.
    """
    first, last, other_first, other_last = (
        one.least[column],
        one.greatest[column],
        other.least[column],
        other.greatest[column],
    )
    if first is None or last is None or other_first is None or other_last is None:
        return True
    return bool(first <= other_last and other_first <= last)


def add_action(file: DataFile, queue_manager: str, *, data_change: bool = True) -> AddAction:
    """Return the action that adds a written file.

    Streaming readers ignore the file if ``data_change`` is ``False``.
    """
    now_ms = time.time_ns() // 1_000_000
    return AddAction(
        file.path, file.size, {PARTITION: queue_manager}, now_ms, data_change, file.statistics
    )


def remove_action(file: LiveFile, queue_manager: str, *, data_change: bool = False) -> RemoveAction:
    """Return the action that removes a live file from the table.

    Streaming readers ignore the removal if ``data_change`` is ``False``.
    """
    return RemoveAction(
        file.path, data_change, time.time_ns() // 1_000_000, file.size, {PARTITION: queue_manager}
    )


def digest_of(tables: Iterable[pa.Table], ignore: tuple[str, ...]) -> str:
    """Return a digest (SHA-256, hexadecimal) of the rows, without the columns ``ignore``."""
    digest = hashlib.sha256()
    for table in tables:
        for batch in table.drop_columns([*ignore]).to_batches():
            digest.update(batch.serialize())
    return digest.hexdigest()
