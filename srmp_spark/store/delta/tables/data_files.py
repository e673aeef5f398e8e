"""Write data files of a state table, durable when the call returns.

``deltalake`` commits to a local folder without one fsync (measured: six commits, no fsync,
fdatasync or syncfs; its object store writes by rename and link). So the publisher writes the data
files itself and syncs file and folder. Only then it asks ``deltalake`` for the commit. So a commit
can never name a file that a power loss emptied. Object stores put files durably.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet as pq

from srmp_spark.store.database.durable import sync_directory, sync_file
from srmp_spark.store.delta.tables.state_folder import state_folder
from srmp_spark.store.delta.tables.state_room import GuardedFile, StateRoom
from srmp_spark.store.delta.tables.table_specs import PARTITION, TableSpec

ROW_GROUP_ROWS = 50_000
"""Rows of one Parquet row group, and of one commit.

With 64 MB this bounds the memory of the publisher.
"""
PARQUET_MAGIC = b"PAR1"


class DataFile(NamedTuple):
    """A written data file that no commit names yet."""

    path: str
    """Path relative to the table."""
    size: int
    rows: int
    statistics: str
    """Statistics as JSON, in the form of the Delta protocol ("Per-file Statistics")."""


class Storage(Protocol):
    """Reads and writes the files of one table, in a local folder or on an object store.

    ``uri`` is the address of the table, and a ``path`` is relative to the table. All methods but
    :meth:`discard` raise the errors of the disk or the store.
    """

    uri: str
    local: Path | None
    """The table's folder, if it is a local folder."""
    options: dict[str, str]
    """Storage options of deltalake; they may hold secrets."""

    def open_output(self, path: str) -> IO[bytes]:
        """Return a binary stream for a new file, which is durable after :meth:`finish`."""

    def finish(self, path: str) -> int:
        """Make the file ``path`` durable, which the caller has closed; return its size in bytes."""

    def open_input(self, path: str) -> IO[bytes]:
        """Return a seekable file, open for reading."""

    def discard(self, path: str) -> None:
        """Delete a file that no commit names, if that is possible now.

        The vacuum deletes what is left.
        """

    def spare(self) -> int:
        """Return how many bytes may be written now. Without a limit it is ``sys.maxsize``."""


class LocalStorage:
    """Keeps the files of a table in a folder on this machine."""

    def __init__(self, folder: Path, room: StateRoom | None = None) -> None:
        """Use ``folder``; ``room`` limits what files may take, ``None`` means no limit."""
        self._room = room
        self.local: Path | None = folder
        self.options: dict[str, str] = {}
        self.uri = str(folder)
        self._folder = folder

    def __repr__(self) -> str:
        return f"<LocalStorage {self.uri}>"

    def open_output(self, path: str) -> IO[bytes]:
        """Create a new file below the folder, and return it open for writing.

        A write raises :class:`.NoRoomError` if the room does not suffice.
        """
        target = self._folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if self._room is None:
            return target.open("xb")
        return GuardedFile(io.FileIO(target, "x"), self._room.check)

    def finish(self, path: str) -> int:
        """Sync the file, its partition folder and the table's folder; return the size in bytes."""
        target = self._folder / path
        sync_file(target)
        sync_directory(target.parent)
        sync_directory(self._folder)
        return target.stat().st_size

    def open_input(self, path: str) -> IO[bytes]:
        """Return the file below the folder, open for reading."""
        return (self._folder / path).open("rb")

    def discard(self, path: str) -> None:
        """Delete the file; an error of the disk is ignored."""
        with contextlib.suppress(OSError):
            (self._folder / path).unlink()

    def spare(self) -> int:
        """Return how many bytes may be written now; without a limit it is ``sys.maxsize``.

        The room of the volume is the limit, if there is one.
        """
        return sys.maxsize if self._room is None else self._room.spare()


class ObjectStorage:
    """Keeps the files of a table on an object store, through deltalake's own client.

    A put that returned is durable.
    """

    def __init__(self, uri: str, storage_options: Mapping[str, str]) -> None:
        self.local: Path | None = None
        self.uri = uri
        self.options = dict(storage_options)

    def __repr__(self) -> str:
        # The options are left out because they may hold secrets.
        return f"<ObjectStorage {self.uri}>"

    def _filesystem(self) -> pyarrow.fs.PyFileSystem:
        from deltalake.fs import DeltaStorageHandler

        return pyarrow.fs.PyFileSystem(DeltaStorageHandler(self.uri, self.options))

    def open_output(self, path: str) -> IO[bytes]:
        """Return a stream that puts a new file in parts.

        The file exists, durably, when the stream is closed.
        """
        return cast("IO[bytes]", self._filesystem().open_output_stream(path))

    def finish(self, path: str) -> int:
        """Return the size of the file in bytes, as the store reports it; the put is durable."""
        size: int = self._filesystem().get_file_info(path).size
        return size

    def open_input(self, path: str) -> IO[bytes]:
        """Return a file that reads ranges of the object."""
        return cast("IO[bytes]", self._filesystem().open_input_file(path))

    def discard(self, path: str) -> None:
        """Do nothing, because a store that failed gets no further requests.

        The vacuum deletes the file.
        """

    def spare(self) -> int:
        """Return ``sys.maxsize``: the room of an object store is not limited or measured."""
        return sys.maxsize


def storage_of(
    state: str, table: str, storage_options: Mapping[str, str], room: StateRoom | None = None
) -> Storage:
    """Return the storage of the table ``table`` below ``state``, the value of ``--state``.

    ``room`` limits what a local table may take. Nothing is created. Raises
    :class:`ConfigurationError` if Delta cannot use the folder.
    """
    folder = state_folder(state)
    if folder is None:
        return ObjectStorage(f"{state.rstrip('/')}/{table}", storage_options)
    return LocalStorage(folder.absolute() / table, room)


def write_file(
    storage: Storage,
    spec: TableSpec,
    queue_manager: str,
    tables: Iterator[pa.Table],
    notes: Mapping[str, str] | None = None,
) -> DataFile | None:
    """Write one durable Parquet file with the rows of ``tables``, in their order.

    No commit names the file yet. Return ``None`` if there was no row. If writing fails, the file is
    deleted and the error is raised. ``notes`` are stored in the footer of the file
    (:func:`read_notes`).
    """
    path = f"{PARTITION}={queue_manager}/{uuid.uuid4()}.parquet"
    first = next((table for table in tables if table.num_rows), None)
    if first is None:
        return None
    rows = 0
    statistics = _Statistics(spec.statistics)
    schema = spec.file_schema.with_metadata(dict(notes)) if notes else spec.file_schema
    try:
        with (
            storage.open_output(path) as stream,
            pq.ParquetWriter(stream, schema, compression="zstd") as writer,
        ):
            table: pa.Table | None = first
            while table is not None:
                writer.write_table(
                    table.replace_schema_metadata(schema.metadata), row_group_size=ROW_GROUP_ROWS
                )
                rows += table.num_rows
                statistics.add(table)
                table = next(tables, None)
        return DataFile(path, storage.finish(path), rows, statistics.json(rows))
    except BaseException:
        # An unfinished file would take room until the next vacuum.
        storage.discard(path)
        raise


def read_notes(storage: Storage, path: str) -> dict[str, str]:
    """Return the notes in the footer of the file ``path``, by name (:func:`write_file`).

    The result is empty if the file has no notes.
    """
    with contextlib.closing(storage.open_input(path)) as stream:
        found = pq.read_schema(stream).metadata or {}
    return {name.decode(): value.decode() for name, value in found.items()}


def looks_whole(path: Path, size: int) -> bool:
    """Return whether a local data file has ``size`` bytes and both of Parquet's marks.

    A power loss destroys these first. The pages between the marks are not checked. A missing file
    is not whole.
    """
    try:
        if path.stat().st_size != size or size < 2 * len(PARQUET_MAGIC):
            return False
        with path.open("rb") as file:
            head = file.read(len(PARQUET_MAGIC))
            file.seek(-len(PARQUET_MAGIC), os.SEEK_END)
            return head == PARQUET_MAGIC == file.read(len(PARQUET_MAGIC))
    except FileNotFoundError:
        return False


class _Statistics:
    """Collects the least and greatest values over the row groups of one file."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._least: dict[str, Any] = {}
        self._greatest: dict[str, Any] = {}
        self._nulls = dict.fromkeys(columns, 0)

    def add(self, table: pa.Table) -> None:
        for name in self._nulls:
            column = table[name]
            self._nulls[name] += column.null_count
            found = pc.min_max(column).as_py()
            if found["min"] is not None:
                self._least[name] = min(self._least.get(name, found["min"]), found["min"])
                self._greatest[name] = max(self._greatest.get(name, found["max"]), found["max"])

    def json(self, rows: int) -> str:
        return json.dumps(
            {
                "numRecords": rows,
                "minValues": {name: _plain(value) for name, value in self._least.items()},
                "maxValues": {
                    name: _plain(value, up=True) for name, value in self._greatest.items()
                },
                "nullCount": self._nulls,
            }
        )


def _plain(value: object, *, up: bool = False) -> object:
    """Return a value as it stands in the statistics of the Delta log, for JSON.

    A timestamp becomes a text with whole milliseconds, rounded down, or up with ``up`` (for a
    greatest value). Any other value is returned unchanged.
    """
    if isinstance(value, datetime):
        micros = value.microsecond
        millis = -(-micros // 1000) if up else micros // 1000
        whole = value.timestamp() - micros / 1e6
        text = datetime.fromtimestamp(round(whole) + millis // 1000, tz=value.tzinfo).strftime(
            "%Y-%m-%dT%H:%M:%S"
        )
        return f"{text}.{millis % 1000:03d}Z"
    return value
