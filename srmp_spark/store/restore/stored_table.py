"""Read one version of a state table, for one queue manager, batch by batch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from srmp_spark.errors import StoreDamagedError
from srmp_spark.store.delta.tables.actions import LiveFile, application_id
from srmp_spark.store.delta.tables.data_files import looks_whole, storage_of
from srmp_spark.store.delta.tables.live_files import check_format, live_files, queue_managers_of
from srmp_spark.store.delta.tables.state_table_limits import HISTORY_LOOKBACK, RESTORE_KEY
from srmp_spark.store.delta.tables.table_specs import PARTITION, TableSpec

BATCH_ROWS = 8192
"""Largest number of rows that are read at once.

With the largest bodies these would be 32 GB, but a row group of ``inbox`` has at most 64 MB.
"""
_WRITER = "srmp.queue_manager"


class StoredTable:
    """Reads one of the tables below ``--state``. A table that was never created has no rows.

    Opening it raises :class:`StoreDamagedError` if the table cannot be read, has a newer format, or
    is not one of srmp-spark.
    """

    def __init__(
        self, state: str, spec: TableSpec, options: Mapping[str, str] | None = None
    ) -> None:
        self.spec = spec
        self._storage = storage_of(state, spec.name, options or {})
        try:
            self._table: DeltaTable | None = DeltaTable(
                self._storage.uri, storage_options=self._storage.options or None
            )
            check_format(self._table, self._storage.uri)
        except TableNotFoundError:
            self._table = None
        except DeltaError as error:
            raise StoreDamagedError(
                f"the state table at {self._storage.uri} cannot be read: {error}"
            ) from error

    def __repr__(self) -> str:
        return f"<StoredTable {self._storage.uri} version={self.version}>"

    @property
    def uri(self) -> str:
        """Return the URI or the folder of the table."""
        return self._storage.uri

    @property
    def version(self) -> int:
        """Return the number of the commit that is read; −1 if there is no table."""
        return -1 if self._table is None else int(self._table.version())

    def queue_managers(self) -> set[str]:
        """Return the GUIDs of the queue managers that have data files in the table."""
        return set() if self._table is None else queue_managers_of(self._table)

    def published(self, queue_manager: str, epoch: str, queue: str) -> int:
        """Return the last sequence up to which rows of a queue were published; 0 if none.

        Rows that had left the log before they were published may be missing in the table.
        """
        return self.transaction(application_id(queue_manager, epoch, queue))

    def transaction(self, name: str) -> int:
        """Return the version of the Delta application ``name`` in the table; 0 if there is none."""
        return 0 if self._table is None else int(self._table.transaction_version(name) or 0)

    def written_at(self, queue_manager: str) -> datetime | None:
        """Return the time of the newest own commit of a queue manager (UTC), or ``None``.

        Only the last HISTORY_LOOKBACK commits are searched. Commits of restores do not count,
        because they are not the queue manager's own.
        """
        if self._table is None:
            return None
        for entry in self._table.history(HISTORY_LOOKBACK):
            if entry.get(_WRITER) == queue_manager and RESTORE_KEY not in entry:
                return datetime.fromtimestamp(entry["timestamp"] / 1000, timezone.utc)
        return None

    def files(self, queue_manager: str) -> tuple[list[LiveFile], list[LiveFile]]:
        """Return two lists of a queue manager's live files: the whole ones and the damaged ones.

        Both are in commit order. Damaged files are missing or cut short. On an object store all
        files count as whole.
        """
        if self._table is None:
            return [], []
        whole: list[LiveFile] = []
        damaged: list[LiveFile] = []
        root = self._storage.local
        for file in live_files(self._table, self.spec, queue_manager):
            (whole if root is None or looks_whole(root / file.path, file.size) else damaged).append(
                file
            )
        return whole, damaged

    def batches(self, files: Iterable[LiveFile], queue_manager: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of these files as batches, with all columns of the table.

        Columns that a file does not have are null; ``queue_manager`` fills the partition column.
        Raises :class:`StoreDamagedError` if a file cannot be read.
        """
        for file in files:
            with contextlib.closing(self._storage.open_input(file.path)) as stream:
                try:
                    parquet = pq.ParquetFile(stream)
                    for batch in parquet.iter_batches(BATCH_ROWS):
                        yield self._filled(batch, queue_manager)
                except (pa.ArrowException, OSError) as error:
                    raise StoreDamagedError(
                        f"{self._storage.uri}/{file.path} cannot be read: {error}"
                    ) from error

    def rows(self, queue_manager: str) -> Iterator[dict[str, Any]]:
        """Yield all rows of a queue manager as dictionaries, for small tables.

        Raises :class:`StoreDamagedError` if a file is missing, damaged or cannot be read.
        """
        files, damaged = self.files(queue_manager)
        if damaged:
            raise StoreDamagedError(
                f"{self._storage.uri}/{damaged[0].path} is missing or cut short: put it back; "
                "nothing can be restored without it"
            )
        for batch in self.batches(files, queue_manager):
            yield from batch.to_pylist()

    def _filled(self, batch: pa.RecordBatch, queue_manager: str) -> pa.RecordBatch:
        arrays = []
        for field in self.spec.schema:
            index = batch.schema.get_field_index(field.name)
            if field.name == PARTITION:
                arrays.append(pa.repeat(pa.scalar(queue_manager, field.type), batch.num_rows))
            else:
                arrays.append(
                    pa.nulls(batch.num_rows, field.type)
                    if index < 0
                    else batch.column(index).cast(field.type)
                )
        return pa.RecordBatch.from_arrays(arrays, schema=self.spec.schema)
