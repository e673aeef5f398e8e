"""A queue manager by hand with its Delta state, the loss of its disk, and what a restore makes of it."""

from __future__ import annotations

import shutil
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from outbox_kit import Desk  # found through conftest.py
from store_kit import QUEUE, Store, srmp_record

from srmp_spark.message import Arrival, Message, StreamId, StreamPosition
from srmp_spark.rows.group import Record
from srmp_spark.srmp.codec.encoder import encode, http_head
from srmp_spark.srmp.receiving.effects import Changes
from srmp_spark.srmp.receiving.history import HistoryChanges, HistoryRun
from srmp_spark.srmp.receiving.stream_effects import IncomingStreamRow
from srmp_spark.store.delta.outgoing.outgoing_publisher import OutgoingPublisher
from srmp_spark.store.delta.publisher import Publisher
from srmp_spark.store.directory import DATABASE_FILE, SEGMENTS_DIRECTORY, DataDirectory
from srmp_spark.store.restore.restore import restore
from srmp_spark.store.stored_rows import reading
from srmp_spark.store.stored_rows.log import Log
from srmp_spark.store.tables import state
from srmp_spark.store.tables.state import StoredState

PEER = "caf195ea-615c-4264-ae08-11a4e60194c0"
URL = "http://peer.example/msmq/private$/order_queue$"
LATER = timedelta(minutes=10)


class Manager:
    """The queue manager that will lose its disk."""

    def __init__(self, tmp_path: Path) -> None:
        self.path = tmp_path / "data"
        self.folder = tmp_path / "state"
        self.new = tmp_path / "new"
        self.store = Store(self.path)
        self.guid = self.store.directory.queue_manager
        self.epoch = self.store.directory.epoch
        self.desk: Desk | None = None

    def sends(self) -> Desk:
        """Its outbox."""
        if self.desk is None:
            self.desk = Desk(self.path, epoch=self.epoch)
        return self.desk

    def publish(self) -> None:
        Publisher(self.path, str(self.folder), self.guid, 5.0).publish_once()
        if self.desk is not None:
            OutgoingPublisher(self.path, str(self.folder), self.guid, 5.0).publish_once()

    def note(
        self,
        *,
        streams: list[IncomingStreamRow] = [],  # noqa: B006  # never changed
        history: list[HistoryRun] = [],  # noqa: B006  # never changed
    ) -> None:
        changes = Changes(streams, HistoryChanges(history, []), [], 1)
        self.store.call(lambda transaction: state.save_changes(transaction.connection, changes))

    def lose(self) -> None:
        """The disk is gone."""
        if self.desk is not None:
            self.desk.close()
        self.store.close()
        shutil.rmtree(self.path)

    def restore(self, **options: Any) -> list[dict[str, Any]]:
        """Into ``new``; the report."""
        found: list[dict[str, Any]] = []
        options.setdefault("answer_seconds", 0.0)
        options.setdefault("now", lambda: datetime.now(timezone.utc) + LATER)
        restore(str(self.folder), self.new, lambda line: found.append(line.as_dict()), **options)
        return found

    def state(self) -> StoredState:
        with DataDirectory.open(self.new, now=1) as directory:
            return state.load(directory.writer)

    def identifiers(self) -> list[HistoryRun]:
        with DataDirectory.open(self.new, now=1) as directory:
            return list(state.load_history(directory.writer))

    def rows(self, epoch: str, after: int = 0, queue: str = QUEUE) -> list[dict[str, Any]]:
        """What a reader gets of an epoch."""
        with Log(self.new / DATABASE_FILE, self.new / SEGMENTS_DIRECTORY) as log:
            end = log.bounds(queue, epoch).end
            found = reading.batches(log, self.guid, queue, epoch, after, end, envelope=True)
            return [row for batch in found for row in batch.to_pylist()]


def stream_record(n: int, size: int = 300, at: int = 1, ordinal: int = 7) -> Record:
    """Position ``n`` of a stream of PEER."""
    del size
    place = StreamPosition(StreamId(PEER, ordinal), n, n - 1, n == 1, URL if n == 1 else None)
    sent = Message(
        f"http://machine2/msmq/{QUEUE}", "MSMQ:order", PEER, 100 + n, has_msmq=True, source_qm=PEER, sent_at=1, durable=True,
        stream=place, body=b"%d" % n, priority=0,
    )  # fmt: skip
    content_type, content = encode(sent, boundary="MSMQ - SOAP boundary, 53287")
    head = http_head(f"/msmq/{QUEUE}", "machine2", content_type, len(content))
    return Record(Arrival(at + n, "http", "192.0.2.1:4711", None), head + content, len(head))


def stream_row(
    sequence_number: int, ordinal: int = 7, sender_name: str | None = None
) -> IncomingStreamRow:
    return IncomingStreamRow(
        QUEUE, PEER, ordinal, sequence_number, 0, URL, "192.0.2.1:4711", PEER, 0, 1, 1, sender_name
    )


__all__ = ["LATER", "PEER", "QUEUE", "URL", "Manager", "srmp_record", "stream_record", "stream_row"]
