"""Store messages for other hosts in the outbox, in one transaction with the cursor of their log.

The messages are rows in the log of ``private$/forward$``, which was synced before the senders were
answered 200. The cursor that reads this log is stored here, with the messages. So two databases
need no two-phase commit. After a crash either the messages and the cursor both count or neither
does, and each row of the log becomes outgoing once. The messages need no stage, and their rows need
no identity.

A row that cannot become outgoing, for whatever reason, delays no other row. The row becomes a dead
letter (:data:`UNREADABLE`) in the same transaction. The body of the dead letter is the POST as it
was received.

A message is kept as the envelope that is sent
(:func:`~srmp_spark.srmp.forward.redirection.forwarded`), without body and extension, which are
columns as in every group. The other columns of a group are filled too, for the Delta state.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import pyarrow as pa

from srmp_spark.canonical_url import canonical_destination
from srmp_spark.errors import LocalProtocolError, SrmpSparkError
from srmp_spark.message import Message
from srmp_spark.names import FORWARD_QUEUE
from srmp_spark.srmp.codec.encoder import encode_envelope
from srmp_spark.srmp.forward.forwarding import forwarded, restored
from srmp_spark.srmp.sending.outgoing_effects import Enqueued, Kind, QueueKey
from srmp_spark.store.outbox.columns import ARROW, BYTES, INT, KINDS, TEXT, TIME
from srmp_spark.store.outbox.limits import GROUP_BYTES, GROUP_ROWS, LABEL_LENGTH_MAX
from srmp_spark.store.outbox.messages.packed_group import ENVELOPE, VIA, BatchPart, pack_group
from srmp_spark.store.outbox.messages.waiting import DEADLETTER
from srmp_spark.store.outbox.preparing.prepared import CommitResult, Numbered
from srmp_spark.store.outbox.staging.row_checks import TIME_MAX
from srmp_spark.store.outbox.staging.stages import StageRow
from srmp_spark.store.outbox.tables.database import OutboxDatabase
from srmp_spark.store.outbox.tables.forward_place import READ_TO, ForwardPlace, read_to
from srmp_spark.store.outbox.tables.schema import FORMAT_FORWARDED, group_key, raise_format
from srmp_spark.store.outbox.tables.writes import Writes

APPLICATION = "srmp-spark forward"
"""Value of the column ``application`` in the state tables for forwarded messages."""
UNREADABLE = "unreadable"
"""The ``reason`` of a dead letter whose row of the log could not become outgoing."""

_SHOWN = (
    "body",
    "label",
    "priority",
    "correlation_id",
    "app_specific",
    "body_type",
    "response_queue",
    "time_to_reach_queue",
    "extension",
)
_SCHEMA = pa.schema(
    [*((name, ARROW[KINDS[name]]) for name in _SHOWN), (ENVELOPE, ARROW[BYTES]), (VIA, ARROW[TEXT])]
)
assert {KINDS[name] for name in _SHOWN} <= {BYTES, TEXT, INT, TIME}


class MessageToForward(NamedTuple):
    """A message that was accepted in order to forward it.

    ``via`` is the value of the HTTP header ``Via`` with which the message is sent.
    """

    message: Message
    to: str
    """URL of the queue that the message is forwarded to."""
    via: str
    sequence: int = 0
    """Sequence of the message's row in the log."""
    post: bytes = b""
    """The POST as it was received."""
    origin: str = ""
    """Sender of the message.

    See :func:`~srmp_spark.srmp.sending.outgoing_room.origin_of_forwarded`.
    """


class Unsendable(NamedTuple):
    """A row of the log that cannot be forwarded, and the reason ``why``."""

    to: str
    """The destination of the row, as far as it is known."""
    sequence: int
    post: bytes
    why: str


class CursorMovedError(SrmpSparkError):
    """The log was read from another place than that of the stored cursor.

    The caller continues reading at :attr:`stored`.
    """

    def __init__(self, stored: ForwardPlace | None, read_from: ForwardPlace | None) -> None:
        super().__init__(f"the outbox has the log up to {stored}, this was read from {read_from}")
        self.stored = stored


_OF_A_ROW = (SrmpSparkError, ArithmeticError, ValueError, TypeError, pa.ArrowException)
"""Errors of a row that cannot become a message of the outbox.

Examples are a number or a text that does not fit into its column, or an envelope that cannot be
parsed.
"""

_log = logging.getLogger(__name__)


class ForwardedBatch:
    """Stores some rows of the log as outgoing messages, together with the cursor of the log.

    The class has the interface of :class:`~.prepared.Prepared`.
    """

    stages: Sequence[StageRow] = ()
    lost_stages: Sequence[StageRow] = ()

    def __init__(
        self,
        database: OutboxDatabase,
        rows: Sequence[MessageToForward | Unsendable],
        since: ForwardPlace | None,
        to: ForwardPlace,
        at: int,
    ) -> None:
        """Begin with rows of the log, in their order.

        ``since`` is the cursor that the rows were read from, and ``to`` the cursor after them.
        ``at`` is the wall clock in microseconds since 1970, UTC. Raises :class:`CursorMovedError`
        if ``since`` is not the stored cursor.
        """
        if (stored := read_to(database)) != since:
            raise CursorMovedError(stored, since)
        self._database = database
        self._since = since
        self._to = to
        self._at = at
        self._number = database.next_id("batches")
        self._writes = Writes()
        self.parts: list[BatchPart] = []
        self.result: CommitResult | None = None
        self._rows = rows
        self._unsendable: list[Unsendable] = []

    def step(self) -> bool:
        """Pack all rows in memory, and return True, because there is no further step.

        The log is read in pieces of few messages. Raises :class:`BatchError` (503) if the disk is
        full.
        """
        self._check_room()
        for key, rows in self._queues().items():
            number = self._database.next_id("parts")
            offset = 0
            for group in _groups(rows):
                kept, batch = self._batch(group)
                if not kept:
                    continue
                last = offset + len(kept) - 1
                data = self._database.next_id("data")
                packed = pack_group(batch)
                size = sum(map(_size, kept))
                self._writes.add(
                    "INSERT INTO groups VALUES (?, ?, ?, ?, NULL)",
                    group_key(number, last),
                    offset,
                    size,
                    data,
                )
                self._writes.add(
                    "INSERT INTO data VALUES (?, ?, ?)", data, *packed, size=packed.data.size
                )
                offset = last + 1
            if offset:
                self.parts.append(
                    BatchPart(number, key, offset, final=False, origin=rows[0].origin)
                )
        self.result = CommitResult(sum(part.rows for part in self.parts) + len(self._unsendable), 0)
        return True

    def _check_room(self) -> None:
        """Raise :class:`BatchError` (503) if the disk has no room, as for a batch of a sink.

        The forwarder then waits, its queue fills up to its quota, and then the senders wait too.
        """
        size = sum(len(row.post) for row in self._rows)
        self._database.check_room(size, size, "what is to be forwarded")

    def _queues(self) -> dict[QueueKey, list[MessageToForward]]:
        queues: dict[QueueKey, list[MessageToForward]] = {}
        for row in self._rows:
            if isinstance(row, Unsendable):
                self._unsendable.append(row)
                continue
            kind: Kind = "plain" if row.message.stream is None else "stream"
            try:
                queues.setdefault(QueueKey(canonical_destination(row.to), kind), []).append(row)
            except _OF_A_ROW as error:
                self._give_up(row, error)
        return queues

    def _batch(
        self, group: Sequence[MessageToForward]
    ) -> tuple[Sequence[MessageToForward], pa.RecordBatch]:
        """Return the rows of ``group`` that can be messages of the outbox, and their record batch.

        Usually these are all rows. The other rows are collected, and become dead letters with the
        commit.
        """
        try:
            return group, _batch(group)
        except _OF_A_ROW:
            kept = []
            for row in group:
                try:
                    _batch([row])
                except _OF_A_ROW as error:  # noqa: PERF203  # runs rarely
                    self._give_up(row, error)
                else:
                    kept.append(row)
            return kept, _batch(kept)

    def _give_up(self, row: MessageToForward, error: Exception) -> None:
        self._unsendable.append(Unsendable(row.to, row.sequence, row.post, f"{error}"))

    def numbered(
        self, ids_first: int, enqueued: Sequence[Enqueued], unsent: AbstractSet[int] = frozenset()
    ) -> Numbered:
        """Return the batch with its serials and message identifiers, for :meth:`.Outbox.write`.

        ``ids_first`` is the first reserved message identifier, and ``enqueued`` has the engine's
        answer for each of :attr:`parts`. Raises :class:`LocalProtocolError` if the serials were
        assigned to other rows, or if a part found no room.
        """
        if unsent:
            raise LocalProtocolError(
                f"what is forwarded was answered 200, and has its own room: {unsent!r}"
            )
        if [(part.key, part.rows) for part in self.parts] != [
            (each.key, each.last - each.first + 1) for each in enqueued
        ]:
            raise LocalProtocolError(
                f"serials were given out for other rows: {enqueued!r} for {self.parts!r}"
            )
        return Numbered(self, ids_first, tuple(enqueued))

    def write_last(
        self, connection: sqlite3.Connection, numbered: Numbered, queue_ids: Mapping[QueueKey, int]
    ) -> None:
        """Write messages, dead letters and the cursor of the log, in the caller's transaction.

        ``numbered`` has the serials and identifiers, and ``queue_ids`` the ids of the outgoing
        queues in the table ``queues``. Raises :class:`CursorMovedError` if the stored cursor is not
        ``since`` any longer.
        """
        ids_first = numbered.ids_first
        for part, given in zip(self.parts, numbered.enqueued, strict=True):
            connection.execute(
                "INSERT INTO parts(id, batch_no, rows, final, journal, queue_id, first, "
                "last, ids_first, application, batch, "
                "enqueued_at) VALUES (?, ?, ?, 0, 0, ?, ?, ?, ?, ?, ?, ?)",
                (
                    part.number,
                    self._number,
                    part.rows,
                    queue_ids[part.key],
                    given.first,
                    given.last,
                    ids_first,
                    APPLICATION,
                    f"{self._to.epoch}:{self._to.sequence}",
                    self._at,
                ),
            )
            ids_first += part.rows
        self._writes.execute(connection)
        for row in self._unsendable:
            self._bury(connection, row, ids_first)
            ids_first += 1
        self._move_cursor(connection)
        if self.parts:
            # The format is raised with the rest of the transaction or not at all.
            raise_format(connection, FORMAT_FORWARDED)

    def _bury(self, connection: sqlite3.Connection, row: Unsendable, number: int) -> None:
        """Store a row of the log as a dead letter in the caller's transaction, and log the reason.

        ``number`` is the message identifier (a number) that the dead letter gets.
        """
        why = f"row {row.sequence} of {FORWARD_QUEUE} cannot be forwarded: {row.why}"
        _log.error(
            'forward.unreadable queue=%s sequence=%d to=%s reason="%s": kept as a dead letter',
            FORWARD_QUEUE,
            row.sequence,
            ascii(row.to)[1:-1],
            ascii(row.why)[1:-1],
        )
        values = {"body": row.post, "label": why[:LABEL_LENGTH_MAX]}
        packed = pack_group(pa.RecordBatch.from_pylist([values], schema=_SCHEMA))
        data = self._database.next_id("data")
        connection.execute("INSERT INTO data VALUES (?, ?, ?)", (data, *packed))
        connection.execute(
            "INSERT INTO moved(fate, destination, kind, stream_ordinal, base, serials, "
            "ids_base, application, batch, "
            "enqueued_at, reason, in_doubt, moved_at, target, rows, bytes, position, data_id) "
            "VALUES ('dead', ?, 'plain', '0', 0, ?, ?, ?, ?, ?, ?, 0, ?, ?, 1, ?, ?, ?)",
            (
                row.to,
                row.sequence.to_bytes(8, "little"),
                number - row.sequence,
                APPLICATION,
                f"{self._to.epoch}:{self._to.sequence}",
                self._at,
                UNREADABLE,
                self._at,
                DEADLETTER,
                len(row.post),
                self._database.position + 1,
                data,
            ),
        )

    def _move_cursor(self, connection: sqlite3.Connection) -> None:
        """Replace the stored cursor ``since`` by ``to``.

        Raises :class:`CursorMovedError` if the stored cursor is not ``since``. So a batch that is
        tried twice becomes outgoing once.
        """
        to = json.dumps(self._to)
        if self._since is None:
            moved = connection.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (READ_TO, to))
        else:
            found = (to, READ_TO, json.dumps(self._since))
            moved = connection.execute(
                "UPDATE meta SET value = ? WHERE key = ? AND value = ?", found
            )
        if moved.rowcount != 1:
            raise CursorMovedError(read_to(self._database), self._since)

    @property
    def identifiers(self) -> int:
        """Return how many message identifiers the batch needs."""
        assert self.result is not None, "all steps are done"
        return self.result.new

    @property
    def letters(self) -> int:
        """Return how many conflicts become dead letters: 0, because forwarding has no conflicts."""
        return 0

    @property
    def unwritten_bytes(self) -> int:
        """Return about how many bytes the last transaction must write."""
        return self._writes.bytes

    def abort(self) -> None:
        """Do nothing, because nothing was written before the last transaction."""

    def abort_step(self) -> bool:
        """Return True, because nothing was written before the last transaction."""
        return True

    def end(self) -> None:
        """Do nothing, because the batch has no other files or rows."""

    def __repr__(self) -> str:
        return f"<ForwardedBatch rows={len(self._rows)} to={self._to} parts={len(self.parts)}>"


def _size(row: MessageToForward) -> int:
    return len(row.message.body) + len(row.message.extension or b"")


def _groups(rows: Iterable[MessageToForward]) -> Iterable[list[MessageToForward]]:
    group: list[MessageToForward] = []
    size = 0
    for row in rows:
        if group and (len(group) >= GROUP_ROWS or size + _size(row) > GROUP_BYTES):
            yield group
            group, size = [], 0
        group.append(row)
        size += _size(row)
    if group:
        yield group


def _batch(rows: Sequence[MessageToForward]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([_row(each) for each in rows], schema=_SCHEMA)


def _row(row: MessageToForward) -> dict[str, object]:
    message = row.message
    envelope = encode_envelope(forwarded(message, row.to))
    # Fail here if the envelope cannot be parsed again, because it would hold its destination later.
    restored(envelope, message.body, message.extension)
    until = (
        message.expires_at if message.time_to_reach_queue is None else message.time_to_reach_queue
    )
    return {
        "body": message.body,
        "label": message.label or "",
        "priority": message.priority,
        "correlation_id": message.correlation,
        "app_specific": message.app_specific,
        "body_type": message.body_type,
        "response_queue": message.response_queue,
        "extension": message.extension,
        "time_to_reach_queue": until if until is not None and 0 <= until <= TIME_MAX else None,
        ENVELOPE: envelope,
        VIA: row.via,
    }
