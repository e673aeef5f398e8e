"""Keep in memory how far a queue manager has published.

The module keeps the application transactions of one table. ``deltalake`` answers for one
application at a time and reads the log for each answer: 1.5 ms, which is 15 seconds for ten
thousand queues. So the log is read once (the newest checkpoint and the commits after it), and then
each new commit. The module keeps what the log states up to the version of the handle, never what a
writer intended to commit.

If the log cannot be read this way, ``deltalake`` is asked instead. An example is a checkpoint in
several parts, which Spark may write.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from srmp_spark.store.delta.tables.data_files import Storage

_LOG = "_delta_log"
_log = logging.getLogger(__name__)


class TablePositions:
    """Keeps the versions of the table's applications whose names begin with ``prefix``.

    The versions are those that the table's handle shows. Both methods read new commits of the
    handle.
    """

    def __init__(self, table: DeltaTable, storage: Storage, prefix: str) -> None:
        self._table = table
        self._storage = storage
        self._prefix = prefix
        self._known: dict[str, int] | None = None
        """Version of each application; ``None``: ``deltalake`` is asked."""
        self._moves = 0
        self._read_to = -1
        """Version of the table up to which the log was read."""

    def __repr__(self) -> str:
        return f"<Positions of {self._prefix} up to version {self._read_to}>"

    @property
    def moves(self) -> int:
        """Return a number that grows whenever one of these versions was written.

        If the number is the same as before, no version has changed. The number may also grow when
        nothing was written, after the log was read anew.
        """
        version = self._table.version()
        if version != self._read_to:
            self._catch_up(version)
        return self._moves

    def get(self, application: str) -> int | None:
        """Return the version of ``application`` in the table as the handle sees it, or ``None``."""
        version = self._table.version()
        if version != self._read_to:
            self._catch_up(version)
        if self._known is None or not application.startswith(self._prefix):
            found: int | None = self._table.transaction_version(application)
            return found
        return self._known.get(application)

    def _catch_up(self, version: int) -> None:
        try:
            if self._known is None or version < self._read_to:
                self._moves += 1
                self._known = self._read_all(version)
            else:
                for number in range(self._read_to + 1, version + 1):
                    found = dict(self._of_commit(number))
                    self._moves += len(found)
                    self._known.update(found)
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            pa.ArrowException,
            DeltaError,
        ) as error:
            _log.info(
                "delta.positions_not_read table=%s: %s; each position is read by itself",
                self._storage.uri,
                error,
            )
            self._known = None
            self._moves += 1
        self._read_to = version

    def _read_all(self, version: int) -> dict[str, int]:
        """Return the version of each application from the newest checkpoint and later commits.

        Raises :class:`ValueError` if the checkpoint has a form that this module does not read.
        """
        found: dict[str, int] = {}
        first = 0
        with contextlib.suppress(FileNotFoundError):
            hint = json.loads(self._read("_last_checkpoint"))
            first = int(hint["version"]) + 1
            if hint.get("parts") or hint.get("v2Checkpoint") or first - 1 > version:
                raise ValueError(
                    f"the checkpoint {hint} is not one file of a version up to {version}"
                )
        if first:
            found.update(self._of_checkpoint(first - 1))
        for number in range(first, version + 1):
            found.update(self._of_commit(number))
        return found

    def _of_checkpoint(self, version: int) -> Iterator[tuple[str, int]]:
        path = f"{_LOG}/{version:020d}.checkpoint.parquet"
        with contextlib.closing(self._storage.open_input(path)) as stream:
            for batch in pq.ParquetFile(stream).iter_batches(columns=["txn.appId", "txn.version"]):
                for each in batch.column("txn").drop_null().to_pylist():
                    if each["appId"] is not None and each["appId"].startswith(self._prefix):
                        yield each["appId"], int(each["version"])

    def _of_commit(self, version: int) -> Iterator[tuple[str, int]]:
        for line in self._read(f"{version:020d}.json").splitlines():
            txn = json.loads(line).get("txn") if b'"txn"' in line else None
            if txn is not None and str(txn["appId"]).startswith(self._prefix):
                yield str(txn["appId"]), int(txn["version"])

    def _read(self, name: str) -> bytes:
        with contextlib.closing(self._storage.open_input(f"{_LOG}/{name}")) as stream:
            return stream.read()
