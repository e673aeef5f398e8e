"""Write messages that waited to be sent into a new outbox.

Every message keeps its serial and its identifier. No message may be sent automatically. The state
is older than the lost disk: messages that it shows as never sent may have been sent since, and
further messages may follow that it does not know. So the new outbox is written with another epoch,
and the sender process treats it as a copy (:mod:`srmp_spark.store.outbox.tables.copies`). The
sender process holds each queue, counts all messages as in doubt, and begins new streams.
Identifiers do not change, so a peer recognizes a message that it has when an operator sends it
again.
"""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from srmp_spark.errors import RemoteProtocolError, StoreDamagedError
from srmp_spark.srmp.forward.forwarding import restored
from srmp_spark.srmp.sending.outgoing_effects import Kind, OutgoingQueueRow, QueueKey
from srmp_spark.store.database.sqlite_file import connect_writer
from srmp_spark.store.outbox.identity.hashing import key_hashes
from srmp_spark.store.outbox.identity.known import SEND_APPLICATION
from srmp_spark.store.outbox.limits import GROUP_BYTES, GROUP_ROWS
from srmp_spark.store.outbox.messages.packed_group import ENVELOPE, VIA, pack_group
from srmp_spark.store.outbox.preparing.packing import STORED_SCHEMA
from srmp_spark.store.outbox.tables.queue_rows import add_columns, save_queue
from srmp_spark.store.outbox.tables.schema import (
    DATABASE_FILE,
    FORMAT_FORWARDED,
    OUTBOX,
    group_key,
    raise_format,
)
from srmp_spark.store.restore.known_queues import micros

SERIALS_SKIPPED = 1 << 20
"""Number of serials that are skipped, because they may have been issued since.

They may have been issued after the state was written. Dead letters and answers name serials.
"""
WAITING_FILE = "restoring.rows"
PART_ROWS = 16_384
PART_BYTES = 16 << 20
"""Bytes of bodies in one part; PART_ROWS is the limit of its rows. This much is in memory at once.
"""
POSITIONS_SKIPPED = 1 << 20
"""Number of commit numbers that are skipped after the newest one that the state names.

The lost outbox may have used them.
"""
SENT = ("awaiting_stream_receipt", "in_doubt")
FINAL = "awaiting_final_stream_receipt"


@dataclass(slots=True)
class RestoredQueue:
    """An outgoing queue, as the state shows it.

    ``ordinal`` and ``stream_id`` are those of its newest stream; 0 and ``None`` without a stream.
    """

    key: QueueKey
    base: int = 0
    """Number that is subtracted from a serial to get the position in the stream."""
    ordinal: int = 0
    stream_id: str | None = None
    states: dict[str, list[int]] = field(default_factory=dict)
    """Serials of the waiting messages, by state."""

    @property
    def serials(self) -> list[int]:
        """Return the serials of the waiting messages in all states."""
        return [serial for found in self.states.values() for serial in found]


class OutgoingMessages:
    """Collects the messages that waited to be sent, then writes them as ``outbox.db``.

    The rows wait in a file, because a million rows may have 2 GB. The highest numbers of all rows
    are kept: ``last_ordinal`` (of streams), ``last_identifier`` (of messages), ``last_position``,
    and ``position`` (of commits).
    """

    def __init__(self, directory: Path) -> None:
        """Create the file in which rows wait, in the folder where ``outbox.db`` will be."""
        self.destinations: dict[QueueKey, RestoredQueue] = {}
        self.last_ordinal = 0
        self.last_identifier = 0
        self.last_position = 0
        """The highest position in any stream that the rows name."""
        self.position = 0
        self.rows = 0
        self._directory = directory
        self._file = directory / WAITING_FILE
        self._waiting = sqlite3.connect(self._file, isolation_level=None)
        self._waiting.execute("PRAGMA journal_mode = OFF")
        # A restore that is killed here begins again, so nothing needs a sync.
        self._waiting.execute("PRAGMA synchronous = OFF")
        self._waiting.execute(
            "CREATE TABLE waiting(destination TEXT, kind TEXT, serial INTEGER, row BLOB, "
            "PRIMARY KEY (destination, kind, serial))"
        )
        self._waiting.execute("BEGIN")

    def __repr__(self) -> str:
        return f"<OutgoingMessages {self.rows} to {len(self.destinations)} destinations>"

    def close(self) -> None:
        """Close and delete the file in which rows wait. ``outbox.db`` stays."""
        self._waiting.close()
        self._file.unlink(missing_ok=True)

    def take_streams(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Remember the highest numbers in ``rows`` of ``outgoing_streams``.

        They are the stream ordinal, the position in a stream, and the commit. Raises
        :class:`StoreDamagedError` if a stream identifier cannot be read.
        """
        for row in rows:
            self.position = max(self.position, row["position"])
            if row["stream_id"] is not None:
                self.last_ordinal = max(self.last_ordinal, ordinal_of(row["stream_id"]))
                self.last_position = max(self.last_position, row["sequence_number"] or 0)

    def take_ended(self, row: Mapping[str, Any]) -> None:
        """Remember the highest numbers in a row of ``dead_letter_queue`` or ``journal_queue``.

        They are the message identifier, the stream ordinal and the commit. Raises
        :class:`StoreDamagedError` if an identifier cannot be read.
        """
        self.position = max(self.position, row["position"])
        self.last_identifier = max(self.last_identifier, identifier_of(row["message_id"]))
        if row["stream_id"] is not None:
            self.last_ordinal = max(self.last_ordinal, ordinal_of(row["stream_id"]))

    def take(self, row: Mapping[str, Any]) -> None:
        """Add a waiting message, a row of ``outgoing_queue``.

        A message that is added twice is written once. Raises :class:`StoreDamagedError` if an
        identifier cannot be read.
        """
        self.take_ended(row)
        number = identifier_of(row["message_id"])
        # Earlier versions did not write the column. A message without a stream belongs to no
        # stream, because a stream begins with its first message.
        delivery = row["delivery"] or (
            "transactional" if row["stream_id"] is not None else "recoverable"
        )
        kind: Kind = "stream" if delivery == "transactional" else "plain"
        key = QueueKey(row["destination"], kind)
        # Earlier versions had no column serial. Their identifiers have the same order.
        serial = number if row["serial"] is None else row["serial"]
        found = self.destinations.setdefault(key, RestoredQueue(key))
        found.states.setdefault(row["state"], []).append(serial)
        if row["stream_id"] is not None and row["stream_sequence"] is not None:
            ordinal = ordinal_of(row["stream_id"])
            if ordinal >= found.ordinal:
                found.ordinal, found.stream_id, found.base = (
                    ordinal,
                    row["stream_id"],
                    serial - row["stream_sequence"],
                )
        # A message that a publisher moved from one file to another may be seen in both: it is one
        # message.
        self._waiting.execute(
            "INSERT OR REPLACE INTO waiting VALUES (?, ?, ?, ?)",
            (*key, serial, pickle.dumps((number, dict(row)))),
        )
        self.rows += 1

    def write(
        self,
        *,
        queue_manager: str,
        epoch: str,
        read_to: Mapping[str, str],
        at: int,
        identifiers_to: int = 0,
    ) -> None:
        """Write all messages into a new ``outbox.db``, which is closed when the method returns.

        All outgoing queues are held. ``epoch`` is an earlier epoch, so that the sender process
        detects a copy. ``read_to`` states how far logs were read, by the keys of the table
        ``meta``. Message identifiers up to ``identifiers_to`` may have been issued. ``at`` is in
        microseconds since 1970, UTC.
        """
        connection = connect_writer(self._directory / DATABASE_FILE, OUTBOX)
        try:
            connection.execute("BEGIN IMMEDIATE")
            add_columns(connection)
            connection.execute(
                "UPDATE head SET position = ?",
                (self.position + POSITIONS_SKIPPED if self.position else 0,),
            )
            serials = [serial for found in self.destinations.values() for serial in found.serials]
            # No table has acknowledged messages. A queue issued no more serials than there are
            # identifiers, except for forwarded messages, which keep their own identifiers.
            # Forwarded messages of a stream have positions.
            numbers = [*serials, identifiers_to, self.last_identifier, self.last_position]
            facts = {
                "queue_manager": queue_manager,
                "epoch": epoch,
                "last_stream_ordinal": str(self.last_ordinal),
                "serials_after": str(max(numbers) + SERIALS_SKIPPED),
                **read_to,
            }
            connection.executemany("INSERT INTO meta VALUES (?, ?)", facts.items())
            writer = _Writer(connection, at)
            for found in self.destinations.values():
                writer.queue(found, self._rows_of(found.key))
            connection.execute("COMMIT")
        finally:
            connection.close()

    def _rows_of(self, key: QueueKey) -> Iterator[RestoredMessage]:
        for serial, row in self._waiting.execute(
            "SELECT serial, row FROM waiting WHERE destination = ? AND kind = ? ORDER BY serial",
            key,
        ):
            # This process wrote the file a moment ago.
            yield RestoredMessage(serial, *pickle.loads(row))  # noqa: S301


class RestoredMessage(NamedTuple):
    """A message that waited to be sent."""

    serial: int
    number: int
    """Number of the message identifier."""
    row: dict[str, Any]
    """The message's row of ``outgoing_queue``, by column."""


class _Writer:
    """Writes outgoing queues and their messages into the new outbox, in one transaction."""

    def __init__(self, connection: sqlite3.Connection, at: int) -> None:
        self._db = connection
        self._at = at
        self._parts = self._data = self._batches = self._logs = 0
        self._scope_ids: dict[tuple[str, str], int] = {}

    def queue(self, found: RestoredQueue, rows: Iterable[RestoredMessage]) -> None:
        """Write the outgoing queue of one destination, held, and its waiting messages.

        ``rows`` have ascending serials.
        """
        finals = found.states.get(FINAL, [])
        waiting = [
            serial
            for state, serials in found.states.items()
            if state != FINAL
            for serial in serials
        ]
        end = max(found.serials)
        acknowledged_to = min(waiting) - 1 if waiting else max(finals)
        queue_id = save_queue(
            self._db,
            OutgoingQueueRow(
                *found.key,
                found.ordinal,
                min(found.base, acknowledged_to),
                end,
                acknowledged_to,
                end,
                "",
                0,
                True,
                self._at,
                0,
                begun_after=acknowledged_to,
            ),
            None,
        )
        for part in _parts(rows):
            self._part(queue_id, found.key, part)

    def _part(self, queue_id: int, key: QueueKey, rows: list[RestoredMessage]) -> None:
        first, ids_first, sample = rows[0]
        self._parts += 1
        self._batches += 1
        part, batch = self._parts, self._batches
        application, name = sample["application"] or "", f"restored-{batch}"
        self._db.execute(
            "INSERT INTO batches VALUES (?, ?, ?, ?, ?, 0, ?, 1)",
            (batch, application, name, b"", len(rows), self._at),
        )
        self._db.execute(
            "INSERT INTO parts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)",
            (
                part,
                batch,
                len(rows),
                bool(sample["dead_letter"]),
                any(row["journal"] for _, _, row in rows),
                queue_id,
                first,
                rows[-1].serial,
                ids_first,
                application,
                name,
                micros(sample["enqueued_at"]) or self._at,
            ),
        )
        if sample["envelope"] is not None:
            # A version that does not know forwarded messages must not send them.
            raise_format(self._db, FORMAT_FORWARDED)
        raise_format(self._db, key.transport.rules.outbox_format)
        for offset, group in _groups([row for _, _, row in rows]):
            self._data += 1
            batch_rows = stored_batch(group, key)
            size = sum(len(row["body"] or b"") for row in group)
            self._db.execute(
                "INSERT INTO data VALUES (?, ?, ?)", (self._data, *pack_group(batch_rows))
            )
            last = offset + len(group) - 1
            self._db.execute(
                "INSERT INTO groups VALUES (?, ?, ?, ?, NULL)",
                (group_key(part, last), offset, size, self._data),
            )
        keys = sorted(
            {
                row["key"]
                for _, _, row in rows
                if row["key"] is not None and "\ufffd" not in row["key"]
            }
        )
        if keys:
            self._keys(application, key.destination, batch, keys)

    def _keys(self, application: str, destination: str, batch: int, keys: list[str]) -> None:
        """Store the hashes of the messages' keys, so that a repeat of a key is detected.

        The contents under the keys are not compared, because the state does not have all of them.
        """
        scope = self._scope_ids.get((application, destination))
        if scope is None:
            scope = self._scope_ids[application, destination] = len(self._scope_ids) + 1
            self._db.execute(
                "INSERT INTO scopes VALUES (?, ?, ?, '', ?)",
                (scope, application, destination, batch),
            )
        packed = key_hashes(pa.array([key.encode() for key in keys], pa.binary())).astype(">u8")
        hashes = [each.tobytes() for each in packed]
        self._db.executemany(
            "INSERT OR IGNORE INTO identities VALUES (?, ?, NULL, ?)",
            [(scope, each, batch) for each in hashes],
        )
        self._logs += 1
        self._db.execute(
            "INSERT INTO identity_log VALUES (?, ?, ?, ?)",
            (self._logs, batch, scope, b"".join(hashes)),
        )


def _parts(rows: Iterable[RestoredMessage]) -> Iterator[list[RestoredMessage]]:
    """Yield lists of consecutive rows that share the values of a part, within its limits.

    The shared values are consecutive serials and identifiers, application, time, and kind of end. A
    message that was committed alone under its key stays alone, so that a repeat is answered with
    its identifier.
    """
    part: list[RestoredMessage] = []
    size = 0
    for each in rows:
        length = len(each.row["body"] or b"")
        if part and (
            len(part) == PART_ROWS or size + length > PART_BYTES or not _joined(part[-1], each)
        ):
            yield part
            part, size = [], 0
        part.append(each)
        size += length
    if part:
        yield part


def _joined(before: RestoredMessage, after: RestoredMessage) -> bool:
    same = all(
        before.row[name] == after.row[name]
        for name in ("application", "enqueued_at", "dead_letter")
    )
    keyed = before.row["key"] is not None or after.row["key"] is not None
    alone = keyed and after.row["application"] == SEND_APPLICATION
    return same and not alone and after.serial - before.serial == 1 == after.number - before.number


def _groups(rows: list[dict[str, Any]]) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yield (offset of the first row, rows) of groups within GROUP_ROWS and GROUP_BYTES."""
    start = size = 0
    for index, row in enumerate(rows):
        length = len(row["body"] or b"")
        if index > start and (index - start == GROUP_ROWS or size + length > GROUP_BYTES):
            yield start, rows[start:index]
            start, size = index, 0
        size += length
    yield start, rows[start:]


def stored_batch(rows: list[dict[str, Any]], key: QueueKey) -> pa.RecordBatch:
    """Return ``rows`` of ``outgoing_queue`` as a record batch in the form of a stored group.

    ``key`` is their outgoing queue, and there is at least one row.
    """

    def column(name: str) -> list[Any]:
        if name == "time_to_reach_queue":
            return [row["expires_at"] for row in rows]
        if name == "destination":
            return [row["to"] for row in rows]
        if name == "delivery":
            # Earlier versions did not write the column. For a message outside a stream, the
            # stronger delivery mode is used.
            return [
                row["delivery"] or ("transactional" if key.kind == "stream" else "recoverable")
                for row in rows
            ]
        if name in ("first", "last"):
            return [row[f"{name}_in_transaction"] for row in rows]
        if name == "key":
            return [None if row["key"] is None else row["key"].encode() for row in rows]
        if name == "priority" and key.kind == "stream":
            # All messages of a stream have priority 0.
            return [None] * len(rows)
        return [row[name] for row in rows]

    schema = STORED_SCHEMA
    if rows[0]["envelope"] is not None:
        schema = pa.schema([*STORED_SCHEMA, (ENVELOPE, pa.binary()), (VIA, pa.string())])
    return pa.RecordBatch.from_arrays(
        [pa.array(column(item.name), item.type) for item in schema], schema=schema
    )


def runs_of(serials: list[int], base: int) -> list[tuple[int, int]]:
    """Return the stream positions of ``serials`` (serial minus ``base``) as closed ranges.

    The ranges are ascending.
    """
    if not serials:
        return []
    numbers = np.array(sorted(serials), np.int64) - base
    cuts = np.flatnonzero(np.diff(numbers) != 1) + 1
    return [(int(run[0]), int(run[-1])) for run in np.split(numbers, cuts)]


def forwarded_identifier(row: Mapping[str, Any]) -> tuple[str, int] | None:
    """Return the message identifier (lineage, uniquifier) of a forwarded message.

    The original sender gave the message this identifier. Return ``None`` for any other row. Only
    the envelope has these values. ``None`` is also returned if the envelope cannot be read: the
    message is then accepted again, if its sender still has it.
    """
    if row["envelope"] is None:
        return None
    try:
        message = restored(row["envelope"], None, None)
    except RemoteProtocolError:
        return None
    return message.lineage, message.uniquifier


def identifier_of(message_id: str) -> int:
    r"""Return the number N of a message identifier ``{guid}\N``.

    Raises :class:`StoreDamagedError` if the text does not end with a number.
    """
    number = message_id.rpartition("\\")[2]
    if not number.isdigit():
        raise StoreDamagedError(
            f"a state table names a message {message_id!r}: {{GUID}}\\N is expected"
        )
    return int(number)


def ordinal_of(stream_id: str) -> int:
    r"""Return the ordinal N of a stream identifier ``uid:GUID\N``.

    Raises :class:`StoreDamagedError` if the text does not end with a number.
    """
    number = stream_id.rpartition("\\")[2]
    if not number.isdigit():
        raise StoreDamagedError(
            f"a state table names a stream {stream_id!r}: uid:GUID\\N is expected"
        )
    return int(number)


def newest(times: Iterable[datetime | None]) -> datetime | None:
    """Return the latest time that is not ``None``, or ``None`` if there is none."""
    return max((each for each in times if each is not None), default=None)
