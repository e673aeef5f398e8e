"""Publish the table ``pgm_loss``: each lost multicast message once.

Application transactions state which losses the table has, as for the rows of ``inbox``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timezone

import pyarrow as pa

from srmp_spark.store.delta.tables.state_table import StateTable
from srmp_spark.store.delta.tables.table_specs import TableSpec, pgm_loss
from srmp_spark.store.tables.losses import Loss, StoredLoss

_NO_QUEUE = ""
"""Queue name of the application transaction, because losses of all queues are counted together."""


class LossTable:
    """Publishes losses of multicast messages.

    The table is created with the first loss, because most queue managers never use multicast.
    """

    def __init__(self, make: Callable[[TableSpec], StateTable]) -> None:
        self._make = make
        self._table: StateTable | None = None

    @property
    def table(self) -> StateTable | None:
        """Return the Delta table ``pgm_loss``, or ``None`` if it is not open."""
        return self._table

    def publish(self, losses: Sequence[StoredLoss], position: int) -> None:
        """Append the losses that the Delta table ``pgm_loss`` does not have.

        The table is created when there are losses for the first time. ``losses`` are in the order
        of their numbers. ``position`` is the commit of the log that they were read at. Raises the
        errors of :meth:`.StateTable.append`, and those of the store.
        """
        if not losses:
            return
        if self._table is None:
            self._table = self._make(pgm_loss())
        table = self._table
        table.refresh()
        published = {
            epoch: table.published(epoch, _NO_QUEUE) for epoch in {each.epoch for each in losses}
        }
        new = [each for each in losses if each.number > published[each.epoch]]
        if new:
            ends = {(each.epoch, _NO_QUEUE): each.number for each in new}
            table.append(iter([_rows(new, position)]), ends)


def _rows(losses: Sequence[StoredLoss], position: int) -> pa.Table:
    schema = pgm_loss().file_schema
    columns: dict[str, Sequence[object]] = {
        name: [getattr(each.loss, name) for each in losses] for name in Loss._fields
    }
    columns["epoch"] = [each.epoch for each in losses]
    columns["number"] = [each.number for each in losses]
    columns["position"] = [position] * len(losses)
    columns["written_at"] = [datetime.now(timezone.utc)] * len(losses)
    return pa.Table.from_arrays(
        [pa.array(columns[field.name], field.type) for field in schema], schema=schema
    )
