"""Messages that came for other hosts on their way into the outbox: in one transaction with how far their log was read.

They lie in the log of ``private$/forward$``, synced before their senders were answered 200. So two databases need no commit in
two phases: the log is read by a cursor that is stored here, with the messages. After a crash either both count or neither, and
each row of the log becomes outgoing once. They need no stage and no identity of a row.

A message is kept as the envelope that is sent (:func:`~srmp_spark.srmp.redirection.forwarded`), without body and extension,
which are columns as in every group. The other columns of a group are filled too, for the Delta state.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from srmp_spark.errors import LocalProtocolError
from srmp_spark.message import Message
from srmp_spark.srmp.encoder import encode_envelope
from srmp_spark.srmp.outgoing_effects import Enqueued, Kind, QueueKey
from srmp_spark.srmp.redirection import forwarded
from srmp_spark.srmp.sender import canonical_destination
from srmp_spark.store.outbox.columns import ARROW, BYTES, INT, KINDS, TEXT, TIME
from srmp_spark.store.outbox.database import OutboxDatabase
from srmp_spark.store.outbox.limits import GROUP_BYTES, GROUP_ROWS
from srmp_spark.store.outbox.packed_group import ENVELOPE, VIA, pack_group
from srmp_spark.store.outbox.packing import Part
from srmp_spark.store.outbox.preparation import CommitResult, Numbered
from srmp_spark.store.outbox.row_checks import TIME_MAX
from srmp_spark.store.outbox.schema import FORMAT, group_key
from srmp_spark.store.outbox.stages import StageRow
from srmp_spark.store.outbox.writes import Writes

APPLICATION = "srmp-spark forward"
"""In the column ``application`` of the state tables."""
READ_TO = "forward_read_to"
"""Key in the table ``meta``."""

_SHOWN = ("body", "label", "priority", "correlation_id", "app_specific", "body_type", "response_queue", "time_to_reach_queue",
          "extension")  # fmt: skip
_SCHEMA = pa.schema([*((name, ARROW[KINDS[name]]) for name in _SHOWN), (ENVELOPE, ARROW[BYTES]), (VIA, ARROW[TEXT])])
assert {KINDS[name] for name in _SHOWN} <= {BYTES, TEXT, INT, TIME}


class Cursor(NamedTuple):
    """How far the log was read. A sequence alone would not do: a data directory that was put back gives it out again."""

    epoch: str
    sequence: int


class Incoming(NamedTuple):
    """A message that was taken to be sent on."""

    message: Message
    to: str
    """Where it goes."""
    via: str


def read_to(database: OutboxDatabase) -> Cursor | None:
    """The cursor as it is stored; ``None`` before the first message."""
    row = database.connection.execute("SELECT value FROM meta WHERE key = ?", (READ_TO,)).fetchone()
    return None if row is None else Cursor(*json.loads(row[0]))


class ForwardedBatch:
    """Some rows of the log; a :class:`~.preparation.Prepared`."""

    stages: Sequence[StageRow] = ()
    lost: Sequence[StageRow] = ()

    def __init__(self, database: OutboxDatabase, rows: Sequence[Incoming], to: Cursor, at: int) -> None:
        """``rows`` in their order, ``to`` how far they lead, ``at`` the wall clock in microseconds."""
        self._database = database
        self._to = to
        self._at = at
        self._number = database.next_id("batches")
        self._writes = Writes()
        self.parts: list[Part] = []
        self.result: CommitResult | None = None
        queues: dict[QueueKey, list[Incoming]] = {}
        for row in rows:
            kind: Kind = "plain" if row.message.stream is None else "stream"
            queues.setdefault(QueueKey(canonical_destination(row.to), kind), []).append(row)
        self._queues = queues
        self._rows = len(rows)

    def step(self) -> bool:
        """All of it: the log is read in pieces of few messages."""
        for key, rows in self._queues.items():
            part = Part(self._database.next_id("parts"), key, len(rows), final=False)
            self.parts.append(part)
            offset = 0
            for group in _groups(rows):
                last = offset + len(group) - 1
                data = self._database.next_id("data")
                size = sum(map(_size, group))
                packed = pack_group(_batch(group))
                place = group_key(part.number, last)
                self._writes.add("INSERT INTO groups VALUES (?, ?, ?, ?, NULL)", place, offset, size, data)
                self._writes.add("INSERT INTO data VALUES (?, ?, ?)", data, *packed, size=packed.data.size)
                offset = last + 1
        self.result = CommitResult(self._rows, 0)
        return True

    def numbered(self, ids_first: int, enqueued: Sequence[Enqueued]) -> Numbered:
        """As of a batch. Raises :class:`LocalProtocolError` for numbers of other rows."""
        if [(part.key, part.rows) for part in self.parts] != [(each.key, each.last - each.first + 1) for each in enqueued]:
            raise LocalProtocolError(f"serials were given out for other rows: {enqueued!r} for {self.parts!r}")
        return Numbered(self, ids_first, tuple(enqueued))

    def write_last(self, connection: sqlite3.Connection, numbered: Numbered, queue_ids: Mapping[QueueKey, int]) -> None:
        """The messages, and the cursor behind them."""
        ids_first = numbered.ids_first
        for part, given in zip(self.parts, numbered.enqueued, strict=True):
            connection.execute(
                "INSERT INTO parts(id, batch_no, rows, final, journal, queue_id, first, last, ids_first, application, batch, "
                "enqueued_at) VALUES (?, ?, ?, 0, 0, ?, ?, ?, ?, ?, ?, ?)",
                (part.number, self._number, part.rows, queue_ids[part.key], given.first, given.last, ids_first, APPLICATION,
                 f"{self._to.epoch}:{self._to.sequence}", self._at),
            )  # fmt: skip
            ids_first += part.rows
        self._writes.execute(connection)
        connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (READ_TO, json.dumps(self._to)))
        if self.parts:
            connection.execute(f"PRAGMA user_version = {FORMAT}")  # with the rest or not at all

    @property
    def unwritten_bytes(self) -> int:
        """What the transaction must write."""
        return self._writes.bytes

    def abort(self) -> None:
        """Nothing was written."""

    def end(self) -> None:
        """Nothing is kept beside it."""

    def __repr__(self) -> str:
        return f"<ForwardedBatch rows={self._rows} to={self._to} queues={len(self._queues)}>"


def _size(row: Incoming) -> int:
    return len(row.message.body) + len(row.message.extension or b"")


def _groups(rows: Iterable[Incoming]) -> Iterable[list[Incoming]]:
    group: list[Incoming] = []
    size = 0
    for row in rows:
        if group and (len(group) >= GROUP_ROWS or size + _size(row) > GROUP_BYTES):
            yield group
            group, size = [], 0
        group.append(row)
        size += _size(row)
    if group:
        yield group


def _batch(rows: Sequence[Incoming]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([_row(each) for each in rows], schema=_SCHEMA)


def _row(row: Incoming) -> dict[str, Any]:
    message = row.message
    until = message.expires_at if message.time_to_reach_queue is None else message.time_to_reach_queue
    return {
        "body": message.body, "label": message.label or "", "priority": message.priority,
        "correlation_id": message.correlation, "app_specific": message.app_specific, "body_type": message.body_type,
        "response_queue": message.response_queue, "extension": message.extension,
        "time_to_reach_queue": until if until is not None and 0 <= until <= TIME_MAX else None,
        ENVELOPE: encode_envelope(forwarded(message, row.to)), VIA: row.via,
    }  # fmt: skip
