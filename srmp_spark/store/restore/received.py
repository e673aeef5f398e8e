"""What was received: streams and message identifiers, as of the newest row of ``inbox``.

The tables ``incoming_streams`` and ``message_id_history`` are written after ``inbox``, so a queue manager that ended in between
left rows that they do not count. Without these a sender's repeat would make a second row.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from srmp_spark.errors import StoreDamagedError
from srmp_spark.message import StreamId
from srmp_spark.srmp.effects import Changes
from srmp_spark.srmp.history import HistoryChanges, HistoryRun, MessageIdHistory
from srmp_spark.srmp.stream_effects import IncomingStreamRow
from srmp_spark.store import state
from srmp_spark.store.restore.known_queues import micros

_UNSIGNED = (1 << 64) - 1
COLUMNS = (
    "queue", "sequence", "arrived_at", "peer", "sender_name", "source_qm", "lineage", "uniquifier", "stream_id",
    "stream_sequence",
)  # fmt: skip


class Received:
    """Collects, then writes."""

    def __init__(self, streams: Iterable[Mapping[str, Any]], history: Iterable[Mapping[str, Any]]) -> None:
        """The rows of both tables. Raises :class:`StoreDamagedError` for a stream whose name is none."""
        self.streams: dict[tuple[str, str], IncomingStreamRow] = {}
        for row in streams:
            stream = _stream_of(row["stream_id"])
            self.streams[row["queue"], stream.guid] = IncomingStreamRow(
                row["queue"], stream.guid, stream.ordinal, row["sequence_number"], row["last_acknowledged"],
                row["send_receipts_to"] or "", row["peer"] or "", row["source_qm"], row["reject_count"],
                micros(row["started_at"]) or 0, micros(row["last_access_at"]) or 0, row["sender_name"],
            )  # fmt: skip
        self.history = MessageIdHistory.load(
            HistoryRun(
                row["lineage"], row["uniquifier_first"] & _UNSIGNED, row["uniquifier_last"] & _UNSIGNED,
                micros(row["last_received_at"]) or 0,
            )
            for row in history
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<Received streams={len(self.streams)} {self.history!r}>"

    def take(self, rows: pa.RecordBatch) -> None:
        """Rows of ``inbox``, of one queue in the order of its sequences."""
        for row in rows.select(list(COLUMNS)).to_pylist():
            at = micros(row["arrived_at"]) or 0
            if row["lineage"] is not None and row["uniquifier"] is not None:
                number = row["uniquifier"] & _UNSIGNED
                if not self.history.seen(row["lineage"], number):
                    self.history.add(row["lineage"], number, at)
            if row["stream_id"] is not None and row["stream_sequence"] is not None:
                self._take_position(row, _stream_of(row["stream_id"]), at)

    def _take_position(self, row: Mapping[str, Any], stream: StreamId, at: int) -> None:
        key = row["queue"], stream.guid
        known = self.streams.get(key)
        if known is not None and (stream.ordinal, row["stream_sequence"]) <= (known.stream_ordinal, known.sequence_number):
            return
        if known is None or known.stream_ordinal != stream.ordinal:
            # A stream that began after the table was written. Where its receipts go stood in its <start> alone, and in no row;
            # its sender has one address for all of them. Of one that is quite unknown nothing is noted: its sender has had no
            # receipt, or begins anew, and by their identifiers its repeats make no second row.
            url = next((each.send_receipts_to for each in self.streams.values() if each.guid == stream.guid), "")
            if not url:
                return
            known = IncomingStreamRow(
                row["queue"], stream.guid, stream.ordinal, 0, 0, url, "", None, 0, at, at, row["sender_name"]
            )
        self.streams[key] = known._replace(
            sequence_number=row["stream_sequence"], peer=row["peer"] or "", source_qm=row["source_qm"], last_access_at=at
        )

    def write(self, db: sqlite3.Connection) -> None:
        """Into the database, in the caller's transaction."""
        history = HistoryChanges(self.history.rows(), [])
        state.save_changes(db, Changes(list(self.streams.values()), history, [], 0))


def _stream_of(text: str) -> StreamId:
    guid, _, ordinal = text.removeprefix("uid:").partition("\\")
    if not guid or not ordinal.isdigit():
        raise StoreDamagedError(f"a state table names a stream {text!r}: uid:GUID\\N is expected")
    return StreamId(guid, int(ordinal))
