"""Read an existing state table: its format, and the live data files of one queue manager."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from srmp_spark.errors import StoreDamagedError
from srmp_spark.store.delta.tables.actions import LiveFile
from srmp_spark.store.delta.tables.table_specs import FORMAT, FORMAT_PROPERTY, PARTITION, TableSpec


def check_format(table: DeltaTable, uri: str) -> None:
    """Raise :class:`StoreDamagedError` (exit code 6) unless this version can write the table.

    The error is raised if the table is not one of srmp-spark, or has a newer format.
    """
    found = table.metadata().configuration.get(FORMAT_PROPERTY)
    if found is None or not found.isdigit():
        raise StoreDamagedError(
            f"{uri} is a Delta table but not one of srmp-spark (it has no property "
            f"{FORMAT_PROPERTY}): "
            "give --state another folder"
        )
    if int(found) > FORMAT:
        raise StoreDamagedError(
            f"{uri} has {FORMAT_PROPERTY}={found}, this version writes {FORMAT}: "
            "use the newer srmp-spark, or give --state another folder"
        )


def live_files(table: DeltaTable, spec: TableSpec, queue_manager: str) -> list[LiveFile]:
    """Return the data files of a queue manager that the table's handle shows, oldest first."""
    own = [
        action for action in _actions(table) if action[f"partition.{PARTITION}"] == queue_manager
    ]
    own.sort(key=lambda action: (action["modification_time"], action["path"]))
    return [
        LiveFile(
            action["path"],
            action["size_bytes"],
            action["num_records"] or 0,
            {name: action.get(f"min.{name}") for name in spec.statistics},
            {name: action.get(f"max.{name}") for name in spec.statistics},
        )
        for action in own
    ]


def queue_managers_of(table: DeltaTable) -> set[str]:
    """Return the GUIDs of the queue managers that have data files in the table."""
    return {action[f"partition.{PARTITION}"] for action in _actions(table)}


def _actions(table: DeltaTable) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return found
