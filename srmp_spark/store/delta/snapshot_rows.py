"""Make the rows of state tables from one snapshot of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa

from srmp_spark.store.delta.log_source import (
    CounterRow,
    HistoryRow,
    LogSource,
    QueueRow,
    Snapshot,
    StreamRow,
    WsrmSequenceRow,
)
from srmp_spark.store.delta.tables import table_specs


def stamped(batch: pa.RecordBatch, position: int) -> pa.Table:
    """Return a batch of source columns as rows of ``inbox``.

    The columns ``position`` and ``written_at`` are added, with ``position`` and the present time.
    """
    spec = table_specs.inbox()
    now = pa.scalar(datetime.now(timezone.utc), pa.timestamp("us", tz="UTC"))
    table = pa.Table.from_batches([batch])
    table = table.append_column(
        "position", pa.repeat(pa.scalar(position, pa.int64()), table.num_rows)
    )
    table = table.append_column("written_at", pa.repeat(now, table.num_rows))
    return table.select(spec.file_schema.names).cast(spec.file_schema)


def identifier_rows(source: LogSource, position: int) -> Iterator[pa.Table]:
    """Return an iterator over the rows of ``message_id_history``, a table for each page.

    ``position`` is the commit that the rows are stamped with.
    """
    spec = table_specs.message_id_history()
    return (_state_table(spec, HistoryRow._fields, page, position) for page in source.identifiers())


def _stream_rows(snapshot: Snapshot) -> Iterator[pa.Table]:
    if snapshot.streams:
        yield _state_table(
            table_specs.incoming_streams(), StreamRow._fields, snapshot.streams, snapshot.position
        )


def _queue_rows(snapshot: Snapshot) -> Iterator[pa.Table]:
    if snapshot.queues:
        yield _state_table(
            table_specs.queues(), QueueRow._fields, snapshot.queues, snapshot.position
        )


def _counter_rows(snapshot: Snapshot) -> Iterator[pa.Table]:
    if snapshot.counters:
        yield _state_table(
            table_specs.counters(), CounterRow._fields, snapshot.counters, snapshot.position
        )


def _sequence_rows(snapshot: Snapshot) -> Iterator[pa.Table]:
    if snapshot.sequences:
        yield _state_table(
            table_specs.wsrm_sequences(),
            WsrmSequenceRow._fields,
            snapshot.sequences,
            snapshot.position,
        )


IDENTIFIERS = "message_id_history"
"""Name of the table of message identifiers, which may be older than ``inbox``."""
REPLACED: dict[str, Callable[[Snapshot], Iterator[pa.Table]]] = {
    "incoming_streams": _stream_rows,
    "queues": _queue_rows,
    "counters": _counter_rows,
    "wsrm_sequences": _sequence_rows,
}
"""Functions that make the rows of a table of current state, by name of the table.

Such a table is replaced in every cycle in which it has changed.
"""


def _state_table(
    spec: table_specs.TableSpec,
    fields: Sequence[str],
    rows: Sequence[tuple[Any, ...]],
    position: int,
) -> pa.Table:
    """Return ``rows`` as a table for ``spec``, with ``position`` and ``written_at`` added.

    ``fields`` are the names of the values in each row. There is at least one row.
    """
    columns: dict[str, Sequence[Any]] = dict(zip(fields, zip(*rows, strict=True), strict=True))
    columns["position"] = [position] * len(rows)
    columns["written_at"] = [datetime.now(timezone.utc)] * len(rows)
    schema = spec.file_schema
    return pa.Table.from_arrays(
        [pa.array(columns[field.name], field.type) for field in schema], schema=schema
    )
