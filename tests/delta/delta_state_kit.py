"""A log in memory, and a look at a table that knows nothing of the publisher."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from srmp_spark.rows.columns import arrow_schema
from srmp_spark.store.delta.log_source import HistoryRow, LogRange, Snapshot, StreamRow
from srmp_spark.store.delta.publisher import Publisher

GUID = "32221eda-9376-46df-b6ed-783091123831"
EPOCH = "11111111-0000-4000-8000-000000000001"


class MemoryLog:
    """The queue manager's log as the publisher sees it; ``put`` is one commit."""

    def __init__(self, guid: str = GUID) -> None:
        self.guid = guid
        self.position = 0
        self.rows: dict[tuple[str, str], dict[int, bytes]] = {}
        self.first: dict[tuple[str, str], int] = {}
        self.history: list[HistoryRow] = []
        self.streams: list[StreamRow] = []

    def put(self, queue: str, count: int, epoch: str = EPOCH, size: int = 16) -> None:
        rows = self.rows.setdefault((epoch, queue), {})
        start = max(rows, default=0) + 1
        rows.update(
            {n: f"{queue} {n} ".encode().ljust(size, b".") for n in range(start, start + count)}
        )
        self.position += 1

    def trim(self, queue: str, first: int) -> None:
        self.first[EPOCH, queue] = first

    def stamp(self) -> object:
        return object()  # tests change it without a commit: everything is compared each time

    def snapshot(self) -> Snapshot:
        ranges = [
            LogRange(*key, min(rows), self.first.get(key, 1), max(rows))
            for key, rows in sorted(self.rows.items())
        ]
        return Snapshot(self.position, ranges, tuple(self.streams))

    def identifiers(self) -> Iterator[list[HistoryRow]]:
        for at in range(0, len(self.history), 2):
            yield self.history[at : at + 2]

    def batches(self, epoch: str, queue: str, after: int, to: int) -> Iterator[pa.RecordBatch]:
        rows = self.rows[epoch, queue]
        numbers = [
            n for n in range(max(after + 1, self.first.get((epoch, queue), 1)), to + 1) if n in rows
        ]
        for at in range(0, len(numbers), 1000):
            piece = numbers[at : at + 1000]
            known: dict[str, Any] = {
                "queue_manager": [self.guid] * len(piece), "epoch": [epoch] * len(piece), "queue": [queue] * len(piece),
                "sequence": piece, "arrived_at": [1_795_000_000_000_000 + n for n in piece],
                "body": [rows[n] for n in piece], "label": ["a label"] * len(piece),
            }  # fmt: skip
            nothing = [None] * len(piece)
            arrays = [
                pa.array(known.get(field.name, nothing), field.type) for field in arrow_schema()
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=arrow_schema())

    def expected(self) -> Counter[tuple[str, str, int, bytes]]:
        return Counter(
            (*key, n, body) for key, rows in self.rows.items() for n, body in rows.items()
        )


class State:
    """A data directory, a state folder, and what a reader sees there."""

    def __init__(self, tmp_path: Path) -> None:
        self.data_dir = tmp_path / "data"
        self.data_dir.mkdir()
        self.folder = tmp_path / "state"

    def publisher(self, log: MemoryLog, **options: Any) -> Publisher:
        return Publisher(self.data_dir, str(self.folder), log.guid, 0.05, source=log, **options)

    def table(self, name: str = "inbox") -> DeltaTable:
        return DeltaTable(str(self.folder / name))

    def read(self, name: str = "inbox") -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.table(name).to_pyarrow_table().to_pylist()
        return rows

    def landed(self) -> Counter[tuple[str, str, int, bytes]]:
        return Counter((r["epoch"], r["queue"], r["sequence"], r["body"]) for r in self.read())

    def log(self, name: str = "inbox") -> Path:
        return self.folder / name / "_delta_log"

    def commits(self, name: str = "inbox") -> list[Path]:
        return sorted(self.log(name).glob("*.json"))

    def data_files(self, name: str = "inbox") -> list[Path]:
        return sorted(
            (self.folder / name).rglob("*.parquet"), key=lambda path: path.stat().st_mtime_ns
        )
