"""An outbox with its engine, and what a reader sees of it in Delta."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from outbox_kit import NOW, QM, A, Desk  # found through conftest.py

from srmp_spark.srmp.sending.outgoing_effects import DeadLetter, DeadReason, QueueKey, SerialRun
from srmp_spark.store.delta.outgoing.outgoing_publisher import OutgoingPublisher

STREAM = QueueKey(A, "stream")
TABLES = ("outgoing_streams", "outgoing_queue", "dead_letter_queue", "journal_queue")


class Sending:
    """A data directory that sends, and its state folder. The engine's part is played by hand."""

    def __init__(self, tmp_path: Path) -> None:
        self.data_dir = tmp_path / "data"
        self.folder = tmp_path / "state"
        self.desk = Desk(self.data_dir)
        self.batch = 0

    def reopen(self, **settings: Any) -> None:
        """The sender process starts again."""
        self.desk.close()
        following = self.desk.next_identifier
        self.desk = Desk(self.data_dir, first_identifier=following, **settings)

    def publisher(self) -> OutgoingPublisher:
        return OutgoingPublisher(self.data_dir, str(self.folder), QM, 0.05)

    def put(self, count: int, destination: str = A, size: int = 0, **columns: Any) -> None:
        self.batch += 1
        rows = [
            {
                "body": (b"%d.%d" % (self.batch, n)).ljust(size, b"."),
                "destination": destination,
                **columns,
            }
            for n in range(count)
        ]
        self.desk.send(rows, batch=str(self.batch))

    def finish(self, first: int, last: int, key: QueueKey = STREAM) -> None:
        """As if a stream receipt had come."""
        self._write(finished=[SerialRun(key, first, last)], acknowledged_to=last, key=key)

    def bury(
        self,
        first: int,
        last: int,
        reason: DeadReason = "refused",
        key: QueueKey = STREAM,
        **more: Any,
    ) -> None:
        letter = DeadLetter(
            SerialRun(key, first, last),
            reason,
            more.pop("status", 400),
            more.pop("in_doubt", False),
            **more,
        )
        self._write(dead_letters=[letter], key=key)

    def release(self, to: int, key: QueueKey = STREAM) -> None:
        self._write(released_to=to, key=key)

    def _write(
        self, *, key: QueueKey, finished: Any = (), dead_letters: Any = (), **numbers: int
    ) -> None:
        row = next(
            row for row in self.desk.outbox.queue_rows() if (row.destination, row.kind) == key
        )
        changes = self.desk.sender.changes()._replace(
            queues=[row._replace(**numbers)],
            finished=list(finished),
            dead_letters=list(dead_letters),
        )
        self.desk.outbox.write(changes, NOW)

    def waiting(self, key: QueueKey = STREAM) -> set[bytes]:
        """Bodies, by the outbox's own word."""
        return {stored.message.body for stored in self.desk.read(*key)}

    def table(self, name: str = "outgoing_queue") -> DeltaTable:
        return DeltaTable(str(self.folder / name))

    def read(self, name: str = "outgoing_queue") -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.table(name).to_pyarrow_table().to_pylist()
        return rows

    def bodies(self, name: str = "outgoing_queue") -> list[bytes]:
        return sorted(row["body"] for row in self.read(name))

    def files(self) -> set[str]:
        return set(self.table().file_uris())
