"""Make the parts of a Delta commit: live files, actions on files, names of applications.

The version of a Delta application is committed in an application transaction.
"""

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
    """A data file that the newest version of a table names.

    ``path`` is relative to the table, and ``size`` is in bytes. ``least`` and ``greatest`` have the
    smallest and the largest value of each column with statistics; ``None``: the Delta log does not
    state the value.
    """

    path: str
    size: int
    rows: int
    least: dict[str, Any]
    greatest: dict[str, Any]


def application_id(queue_manager: str, epoch: str, queue: str) -> str:
    """Return the name of the Delta application for the published rows of a queue.

    Its version, in an application transaction, is the last published sequence of the queue in
    ``epoch``.
    """
    return f"{queue_manager}:{epoch}:{queue}"


def restores_id(queue_manager: str) -> str:
    """Return the name of the Delta application (of ``inbox``) whose version counts restores.

    The version is how often this queue manager was restored.
    """
    return f"{queue_manager}:restores"


def asked_id(queue_manager: str) -> str:
    """Return the name of the Delta application (of ``inbox``) whose version counts questions.

    A restore asks whether the queue manager is alive.
    """
    return f"{queue_manager}:asked"


def answered_id(queue_manager: str) -> str:
    """Return the name of the Delta application (of ``inbox``) for the last answered question.

    Its version is the number of the question that the queue manager answered last. A restore asks
    these questions.
    """
    return f"{queue_manager}:answered"


def answers_id(queue_manager: str) -> str:
    """Return the name of the Delta application (of ``inbox``) that states who answers questions.

    Its version is 1 once the queue manager has run with a version of srmp-spark that answers
    questions of restores.
    """
    return f"{queue_manager}:answers"


def appends_id(queue_manager: str) -> str:
    """Return the name of the Delta application (of ``inbox``) that counts appends and restores.

    Every append and every restore raises its version. If two commits do so at the same time, one is
    refused.
    """
    return f"{queue_manager}:appends"


def overlap(one: LiveFile, other: LiveFile, column: str) -> bool:
    """Return whether the value ranges of ``column`` in the two files overlap.

    If so, both files may hold equal values. Return ``True`` if the Delta log does not state the
    ranges. ``column`` must be one with statistics.
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
    """Return the Delta action that adds a written file to the table.

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
    """Return a digest (SHA-256, hexadecimal) of the rows, without the columns ``ignore``.

    Equal rows that are cut into other batches have another digest.
    """
    digest = hashlib.sha256()
    for table in tables:
        for batch in table.drop_columns([*ignore]).to_batches():
            digest.update(batch.serialize())
    return digest.hexdigest()
