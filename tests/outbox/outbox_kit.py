"""What the outbox's tests share: stages, an engine around the outbox, and everything that is in it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from srmp_spark.message import Message
from srmp_spark.srmp.sending.outgoing_effects import Load, OutgoingChanges, QueueKey, StoredMessage
from srmp_spark.srmp.sending.outgoing_states import SenderSettings
from srmp_spark.srmp.sending.sender import Sender
from srmp_spark.store.outbox.outbox import Outbox
from srmp_spark.store.outbox.preparing.prepared import CommitResult
from srmp_spark.store.outbox.staging.loops import OwnQueues

QM = "caf195ea-615c-4264-ae08-11a4e60194c0"
NOW = 1_800_000_000_000_000
A = "http://a.example/msmq/private$/orders"
B = "http://b.example/msmq/private$/orders"
RECEIPTS = "http://here.example/msmq/private$/order_queue$"
DAY = 86_400_000_000


def table_of(
    rows: Sequence[Mapping[str, Any]], types: Mapping[str, pa.DataType] | None = None
) -> pa.Table:
    """Rows as a table; body and destination are filled in."""
    names = list(dict.fromkeys(name for row in rows for name in row)) or ["body"]
    data = {name: [row.get(name) for row in rows] for name in names}
    data.setdefault("body", [b""] * len(rows))
    data.setdefault("destination", [A] * len(rows))
    return pa.table(
        {name: pa.array(values, (types or {}).get(name)) for name, values in data.items()}
    )


def write_stage(
    path: Path, table: pa.Table, *, order_by: Sequence[str] = (), dead_letter: bool = False,
    dead_letter_queue: str | None = None, on_bad_row: str | None = None, rows: int = 10_000,
) -> None:  # fmt: skip
    metadata = {
        "srmp.order_by": json.dumps(list(order_by)),
        "srmp.dead_letter": "true" if dead_letter else "false",
    }
    if dead_letter_queue is not None:
        metadata["srmp.dead_letter_queue"] = dead_letter_queue
    if on_bad_row is not None:
        metadata["srmp.on_bad_row"] = on_bad_row
    table = table.replace_schema_metadata(metadata)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)


def make_large(monkeypatch: pytest.MonkeyPatch, rows: int = 3, part_rows: int = 2) -> None:
    """Let batches of more than ``rows`` rows be worked on as those of millions are."""
    monkeypatch.setattr("srmp_spark.store.outbox.preparing.row_numbers.ROWS_AT_ONCE", rows)
    monkeypatch.setattr("srmp_spark.store.outbox.preparing.sorted_runs.ROWS_AT_ONCE", rows)
    monkeypatch.setattr("srmp_spark.store.outbox.preparing.sorted_runs.MERGE_BYTES", 40)
    monkeypatch.setattr("srmp_spark.store.outbox.preparing.preparation.PART_ROWS_MAX", part_rows)


class Desk:
    """An outbox and its engine, as the sender process has them."""

    def __init__(
        self,
        directory: Path,
        *,
        epoch: str = "e1",
        at: int = NOW,
        first_identifier: int = 1,
        **settings: Any,
    ) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self.at = at
        self.outbox = Outbox.open(
            directory,
            queue_manager=QM,
            epoch=epoch,
            at=at,
            lock_wait_s=0,
            monotonic=lambda: self.at / 1e6,
        )
        self.sender = Sender.load(
            QM, SenderSettings(**settings), self.outbox.queue_rows(), self.outbox.proof(), finals=self.outbox.finals(),
            last_stream_ordinal=self.outbox.last_stream_ordinal, serials_after=self.outbox.serials_after,
        )  # fmt: skip
        self.next_identifier = first_identifier
        self.files = 0

    def stage(
        self, rows: Sequence[Mapping[str, Any]] | pa.Table, *, application: str = "app", batch: str = "1", partition: int = 0,
        attempt: str = "0", types: Mapping[str, pa.DataType] | None = None, record_rows: int = 10_000, **options: Any,
    ) -> str:  # fmt: skip
        self.files += 1
        name = f"{application}-{batch}-{partition}-{self.files}.arrow"
        table = rows if isinstance(rows, pa.Table) else table_of(rows, types)
        write_stage(self.outbox.stages.folder / name, table, rows=record_rows, **options)
        return self.outbox.stages.add(
            application, batch, partition, attempt, name, self.at
        ).stage_id

    def commit(
        self,
        stages: Sequence[str],
        *,
        application: str = "app",
        batch: str = "1",
        on_conflict: str = "fail",
        own: OwnQueues | None = None,
    ) -> CommitResult:
        prepared = self.outbox.prepare(
            application, batch, stages, self.at, on_conflict=on_conflict, own=own
        )
        if isinstance(prepared, CommitResult):
            return prepared
        try:
            prepared.run()
        except BaseException:
            prepared.abort()
            raise
        return self.write(prepared)

    def write(self, prepared: Any) -> CommitResult:
        enqueued = [
            self.sender.enqueue(
                *part.key, part.rows, self.at, receipts_url=RECEIPTS, final_receipts=part.final
            )
            for part in prepared.parts
        ]
        first, self.next_identifier = (
            self.next_identifier,
            self.next_identifier + prepared.identifiers,
        )
        changes = self.sender.changes()
        proof = self.outbox.write(changes, self.at, batches=[prepared.numbered(first, enqueued)])
        self.sender.committed(changes, proof)
        assert prepared.result is not None
        return prepared.result

    def send(
        self, rows: Sequence[Mapping[str, Any]], *, application: str = "app", batch: str = "1", on_conflict: str = "fail",
        **options: Any,
    ) -> CommitResult:  # fmt: skip
        """Stage and commit in one."""
        return self.commit([self.stage(rows, application=application, batch=batch, **options)],
                           application=application, batch=batch, on_conflict=on_conflict)  # fmt: skip

    def save(self, changes: OutgoingChanges | None = None) -> list[Any]:
        changes = changes or self.sender.changes()
        return self.sender.committed(changes, self.outbox.write(changes, self.at))

    def close(self) -> None:
        self.outbox.close()

    def read(self, destination: str = A, kind: str = "stream") -> list[StoredMessage]:
        """Everything that is in a queue."""
        return read_all(self.outbox, QueueKey(destination, kind))  # type: ignore[arg-type]  # a Kind


def read_all(
    outbox: Outbox, key: QueueKey, rows_max: int = 100, bytes_max: int = 1 << 20
) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    while True:
        after = found[-1].serial if found else 0
        more = outbox.load(Load(key, after, 2**40, rows_max, bytes_max, 1))
        assert len(more) <= rows_max
        if not more:
            return found
        found += more


def bodies(messages: Iterable[StoredMessage]) -> list[bytes]:
    return [stored.message.body for stored in messages]


def message(stored: StoredMessage) -> Message:
    return stored.message
