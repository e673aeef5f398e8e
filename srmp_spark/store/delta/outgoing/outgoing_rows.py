"""Make rows of ``outgoing_queue``, ``dead_letter_queue`` and ``journal_queue``, a group at a time.

The rows are made from messages of the outbox. The state of a message follows from a few numbers of
its queue (:class:`QueueStanding`). The rows of finished, dead or queued messages do not change. So
of a million waiting messages only the rows around these numbers ever change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from srmp_spark.message import StreamId
from srmp_spark.names import message_id
from srmp_spark.srmp.sending.outgoing_effects import OutgoingQueueRow, QueueKey
from srmp_spark.store.delta.outgoing.outgoing_look import OutboxLook, WaitingGroup
from srmp_spark.store.delta.tables.table_specs import PARTITION, TableSpec
from srmp_spark.store.outbox.address_lists import DESTINATION_LIST
from srmp_spark.store.outbox.columns import RELIABLE_COLUMNS
from srmp_spark.store.outbox.messages.ends import class_of_end
from srmp_spark.store.outbox.messages.live import LiveQueue, SentRun, unpack_sent
from srmp_spark.store.outbox.messages.packed_group import ENVELOPE, PRIORITY_DEFAULT, VIA
from srmp_spark.store.outbox.messages.waiting import MovedRow
from srmp_spark.store.outbox.preparing.conflicts import REASONS
from srmp_spark.wsrm.codec.elements import ABSENT

QUEUED, AWAITING, AWAITING_FINAL, IN_DOUBT = (
    "queued",
    "awaiting_stream_receipt",
    "awaiting_final_stream_receipt",
    "in_doubt",
)
_STATES = pa.array([QUEUED, AWAITING, AWAITING_FINAL, IN_DOUBT])

CLASS_NAMES = {
    0x0002: "MQMSG_CLASS_ACK_REACH_QUEUE",
    0x8000: "MQMSG_CLASS_NACK_BAD_DST_Q",
    0x8001: "MQMSG_CLASS_NACK_DELETED",
    0x8002: "MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT",
    0x8003: "MQMSG_CLASS_NACK_Q_EXCEED_QUOTA",
    0x8004: "MQMSG_CLASS_NACK_ACCESS_DENIED",
    0xC000: "MQMSG_CLASS_NACK_Q_DELETED",
    0xC001: "MQMSG_CLASS_NACK_Q_PURGED",
    0xC002: "MQMSG_CLASS_NACK_RECEIVE_TIMEOUT",
    0xC004: "MQMSG_CLASS_NACK_RECEIVE_REJECTED",
}
"""Names of message classes ([MS-MQMQ] 2.2.18.1.6). Another class is shown as its number."""
COLUMNS_NUMBER = 3
"""Version number of the columns that :func:`waiting_rows` fills.

Rows that an older version wrote with fewer columns are written again.
"""

_NEVER = -1
_NEVER_LEFT = ("expired", "dropped", "no-room", *REASONS.values())
"""Reasons of moved messages that were never sent, unless they are in doubt."""
_CONTENT = {
    "label": pa.string(),
    "body": pa.binary(),
    "body_type": pa.int64(),
    "extension": pa.binary(),
    "priority": pa.int32(),
    "correlation_id": pa.binary(),
    "app_specific": pa.int64(),
    "response_queue": pa.string(),
    "admin_queue": pa.string(),
}
_FILLED = {"label": "", "body": b"", "body_type": 0, "app_specific": 0}


class QueueStanding(NamedTuple):
    """The numbers of one queue from which the state of each of its messages follows."""

    row: OutgoingQueueRow
    held_to: int
    """Serial up to which the peer has accepted all messages, which wait for its receipt.

    For messages outside a stream, it is the serial up to which all messages are finished.
    """
    doubt_to: int
    """Serial up to which all messages may have been sent, and nothing more is known."""
    doubtful: np.ndarray
    """Serials of further messages in doubt, ascending."""
    sent: Sequence[SentRun]
    failed: tuple[int, int] | None


def standing_of(row: OutgoingQueueRow, live: LiveQueue | None) -> QueueStanding:
    """Return the numbers from which the states of a queue's messages follow.

    ``live`` is the report of the running sender process. Without it every message that may have
    been sent is in doubt.
    """
    done = row.acknowledged_to
    if live is None:
        return QueueStanding(row, done, row.released_to, np.zeros(0, np.int64), (), None)
    doubtful = np.array(sorted(live.doubtful), np.int64)
    if row.kind == "plain":
        # The receipt of such a message is the 200: the message is either finished or in doubt.
        return QueueStanding(row, done, live.held_to, doubtful, live.sent, live.failed)
    return QueueStanding(row, live.held_to, done, doubtful, live.sent, live.failed)


def stamp(group: WaitingGroup, standing: QueueStanding) -> str:
    """Return a digest of the values from which a group's rows are made, without the content.

    The digest is a text of 16 hexadecimal digits. Equal stamps mean equal rows, so a file whose
    groups have their stamps stays unchanged.
    """
    row = standing.row
    first, last = group.base + group.row.first, group.base + group.row.last
    clip = [
        min(max(edge, first - 1), last)
        for edge in (row.acknowledged_to, row.base, standing.held_to, standing.doubt_to)
    ]
    low, high = np.searchsorted(standing.doubtful, [first, last + 1])
    failed = (
        standing.failed
        if standing.failed is not None and first <= standing.failed[0] <= last
        else None
    )
    sent = [run for run in standing.sent if run.first <= last and run.last >= first]
    sent = [run._replace(first=max(run.first, first), last=min(run.last, last)) for run in sent]
    known = (
        COLUMNS_NUMBER,
        group.final,
        group.queue,
        group.base,
        group.ids_first,
        group.application,
        group.enqueued_at,
        group.row.gone,
        row.stream_ordinal,
        row.base,
        clip,
        standing.doubtful[low:high].tolist(),
        sent,
        failed,
        max(group.previous, row.acknowledged_to)
        if row.kind == "stream" and first > row.acknowledged_to
        else None,
    )
    return hashlib.blake2b(repr(known).encode(), digest_size=8).hexdigest()


def waiting_rows(
    group: WaitingGroup, batch: pa.RecordBatch, standing: QueueStanding, queue_manager: str
) -> dict[str, pa.Array]:
    """Return the columns of ``outgoing_queue`` for the unfinished rows of a group, by name.

    ``batch`` has all rows of the group.
    """
    indices = group.offsets
    serials = group.serials(indices)
    row = standing.row
    done = serials <= row.acknowledged_to
    state = np.zeros(len(serials), np.int8)
    state[(serials <= standing.doubt_to) | np.isin(serials, standing.doubtful)] = 3
    state[serials <= standing.held_to] = 1
    state[done] = 2
    previous = np.concatenate([[group.previous], serials[:-1]])
    previous = np.maximum(previous, row.acknowledged_to) - row.base
    sent = _sendings(serials, standing.sent)
    unknown = (state != 0) & (sent["attempts"] == 0)
    attempts = pa.array(sent["attempts"], pa.int32(), mask=unknown)
    status = np.where(((state == 1) | (state == 2)) & ~unknown, 200, _NEVER)
    if standing.failed is not None:
        status[serials == standing.failed[0]] = standing.failed[1]
    taken = batch if len(indices) == batch.num_rows else batch.take(pa.array(indices))
    return _columns(
        taken,
        serials,
        group.queue,
        queue_manager,
        ids_base=group.ids_first - group.base,
        application=group.application,
        enqueued_at=group.enqueued_at,
        ordinal=row.stream_ordinal,
        base=row.base,
    ) | {
        "state": _STATES.take(pa.array(state)),
        "stream_previous": pa.array(
            previous, pa.int64(), mask=done | (serials <= row.base) | (row.stream_ordinal == 0)
        ),
        "attempts": attempts,
        "first_sent_at": _times(sent["first_sent_at"]),
        "last_sent_at": _times(sent["last_sent_at"]),
        "last_status": pa.array(status, pa.int32(), mask=status == _NEVER),
        "serial": pa.array(serials, pa.int64()),
        "delivery": pc.fill_null(
            _column(taken, "delivery", pa.string()), _delivery_of(group.queue)
        ),
        "journal": pc.fill_null(_column(taken, "journal", pa.bool_()), False),
        "dead_letter": _repeated(group.final, pa.bool_(), len(serials)),
        "first_in_transaction": _column(taken, "first", pa.bool_()),
        "last_in_transaction": _column(taken, "last", pa.bool_()),
        "to": _column(taken, "destination", pa.string()),
        "envelope": _column(taken, ENVELOPE, pa.binary()),
        "via": _column(taken, VIA, pa.string()),
        "destination_list": _column(taken, DESTINATION_LIST, pa.string()),
        **{name: _column(taken, name, pa.string()) for name in RELIABLE_COLUMNS},
    }


def moved_rows(moved: MovedRow, batch: pa.RecordBatch, queue_manager: str) -> dict[str, pa.Array]:
    """Return the columns of ``dead_letter_queue`` or ``journal_queue`` for moved messages.

    The result maps names to Arrow arrays. ``batch`` is the content of ``moved``.
    """
    serials = np.array(moved.serials, np.int64)
    rows = len(serials)
    sent = _sendings(serials, unpack_sent(moved.sent))
    never_left = moved.reason in _NEVER_LEFT and not moved.in_doubt
    attempts = pa.array(
        sent["attempts"], pa.int32(), mask=(sent["attempts"] == 0) & (not never_left)
    )
    status = 200 if moved.fate == "journal" else moved.status
    return _columns(
        batch,
        serials,
        QueueKey(moved.destination, moved.kind),
        queue_manager,
        ids_base=moved.ids_base,
        application=moved.application,
        enqueued_at=moved.enqueued_at,
        ordinal=int(moved.stream_ordinal),
        base=moved.base,
    ) | {
        "state": _repeated(_state_at_the_end(moved), pa.string(), rows),
        "stream_previous": pa.nulls(rows, pa.int64()),
        "attempts": attempts,
        "first_sent_at": _times(sent["first_sent_at"]),
        "last_sent_at": _times(sent["last_sent_at"]),
        "last_status": _repeated(status, pa.int32(), rows),
        "reason": _repeated(reason_of(moved), pa.string(), rows),
        "moved_at": _times(np.full(rows, moved.moved_at, np.int64)),
        "target": _repeated(moved.target, pa.string(), rows),
    }


def reason_of(moved: MovedRow) -> str:
    """Return the text for the column ``reason`` of a moved message.

    The text is the HTTP status, else the name of the message class, else the stored reason.
    """
    if moved.status is not None:
        return str(moved.status)
    number = class_of_end(moved)
    return moved.reason if number is None else CLASS_NAMES.get(number, f"0x{number:04X}")


def _state_at_the_end(moved: MovedRow) -> str | None:
    """Return the state that a dead letter had when it was moved; ``None`` for a journal copy.

    The result is one of QUEUED, AWAITING_FINAL and IN_DOUBT.
    """
    if moved.fate == "journal":
        return None
    if moved.in_doubt:
        return IN_DOUBT
    return AWAITING_FINAL if moved.reason == "not-received" else QUEUED


def finish(columns: dict[str, pa.Array], spec: TableSpec, position: int) -> pa.Table:
    """Return the columns as a table for ``spec``, with ``position`` and ``written_at`` added."""
    rows = len(columns["message_id"])
    now = pa.scalar(datetime.now(timezone.utc), pa.timestamp("us", tz="UTC"))
    own = {"position": _repeated(position, pa.int64(), rows), "written_at": pa.repeat(now, rows)}
    schema = spec.file_schema
    return pa.Table.from_arrays([(columns | own)[name] for name in schema.names], schema=schema)


def stream_rows(look: OutboxLook, queue_manager: str, spec: TableSpec) -> pa.Table:
    """Return the rows of ``outgoing_streams`` as an Arrow table: one for each destination.

    The row shows the queue of kind ``stream`` of the destination, else its queue of kind ``plain``.
    """
    chosen: dict[str, OutgoingQueueRow] = {}
    for key, row in look.queues.items():
        if key.destination not in chosen or key.kind == "stream":
            chosen[key.destination] = row
    now = datetime.now(timezone.utc)
    rows = []
    for destination, row in sorted(chosen.items()):
        live = look.live.get(QueueKey(destination, row.kind))
        stream = row.kind == "stream" and row.stream_ordinal != 0
        session = look.sessions.get(QueueKey(destination, row.kind))
        state = "OnHold" if row.paused else "Disconnected" if live is None else live.state
        rows.append(
            {
                "destination": destination,
                "stream_id": str(StreamId(queue_manager, row.stream_ordinal)) if stream else None,
                "sequence_number": row.end - row.base if stream else None,
                "last_acknowledged": max(row.acknowledged_to - row.base, 0) if stream else None,
                "unacknowledged": live.unacknowledged
                if live
                else max(row.released_to - row.acknowledged_to, 0)
                if stream
                else 0,
                "unread": live.unread if live else 0,
                "resend_interval_index": row.resend_interval_index if stream else None,
                "resend_at": live.resend_at if live else None,
                "last_acknowledged_at": row.last_acknowledged_at or None,
                "state": state,
                "position": look.position,
                "written_at": now,
                "wsrm_sequence": session.identifier or None if session is not None else None,
                "wsrm_number": session.assigned if session is not None else None,
                "buffer_remaining": None
                if session is None or session.buffer_remaining == ABSENT
                else session.buffer_remaining,
            }
        )
    fields = [field for field in spec.schema if field.name != PARTITION]
    arrays = [pa.array([each[field.name] for each in rows], field.type) for field in fields]
    return pa.Table.from_arrays(arrays, schema=spec.file_schema)


def _delivery_of(queue: QueueKey) -> str:
    """Return the delivery mode of a message whose row does not state the mode.

    That is ``transactional`` in a stream, ``express`` to a multicast group, else ``recoverable``.
    """
    if queue.kind == "stream":
        return "transactional"
    return queue.transport.rules.plain_delivery


def _columns(
    batch: pa.RecordBatch,
    serials: np.ndarray,
    queue: QueueKey,
    queue_manager: str,
    *,
    ids_base: int,
    application: str,
    enqueued_at: int,
    ordinal: int,
    base: int,
) -> dict[str, pa.Array]:
    """Return the columns that waiting messages and moved messages both have, by name."""
    rows = len(serials)
    found: dict[str, pa.Array] = {}
    for name, type_ in _CONTENT.items():
        column = _column(batch, name, type_)
        found[name] = pc.fill_null(column, _FILLED[name]) if name in _FILLED else column
    found["priority"] = (
        _repeated(0, pa.int32(), rows)
        if queue.kind == "stream"
        else pc.fill_null(found["priority"], PRIORITY_DEFAULT)
    )
    key = batch.schema.get_field_index("key")
    keys = (
        [None] * rows
        if key < 0
        else [k and k.decode(errors="replace") for k in batch.column(key).to_pylist()]
    )
    until = batch.schema.get_field_index("time_to_reach_queue")
    in_stream = (serials > base) if queue.kind == "stream" and ordinal else np.zeros(rows, bool)
    prefix, _, suffix = message_id(queue_manager, 0).rpartition("0")
    numbers = pa.array(serials + ids_base, pa.int64()).cast(pa.string())
    found |= {
        "destination": _repeated(queue.destination, pa.string(), rows),
        "message_id": pc.binary_join_element_wise(prefix, numbers, suffix, ""),
        "application": _repeated(application, pa.string(), rows),
        "key": pa.array(["" if k == b"" else k for k in keys], pa.string()),
        "stream_id": pc.if_else(
            pa.array(in_stream), str(StreamId(queue_manager, ordinal)), pa.scalar(None, pa.string())
        ),
        "stream_sequence": pa.array(serials - base, pa.int64(), mask=~in_stream),
        "enqueued_at": _times(np.full(rows, enqueued_at, np.int64)),
        "expires_at": pa.nulls(rows, _TIME) if until < 0 else batch.column(until).cast(_TIME),
    }
    return found


_TIME = pa.timestamp("us", tz="UTC")


def _column(batch: pa.RecordBatch, name: str, type_: pa.DataType) -> pa.Array:
    """Return a column of a packed group, all null if the group does not store the column."""
    index = batch.schema.get_field_index(name)
    return pa.nulls(batch.num_rows, type_) if index < 0 else batch.column(index).cast(type_)


def _sendings(serials: np.ndarray, runs: Sequence[SentRun]) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {
        "attempts": np.zeros(len(serials), np.int32),
        "first_sent_at": np.full(len(serials), _NEVER, np.int64),
        "last_sent_at": np.full(len(serials), _NEVER, np.int64),
    }
    for run in runs:
        low, high = np.searchsorted(serials, [run.first, run.last + 1])
        found["attempts"][low:high] = run.attempts
        found["first_sent_at"][low:high] = run.first_sent_at
        found["last_sent_at"][low:high] = run.last_sent_at
    return found


def _times(values: np.ndarray) -> pa.Array:
    return pa.array(values, pa.int64(), mask=values == _NEVER).cast(_TIME)


def _repeated(value: object, type_: pa.DataType, rows: int) -> pa.Array:
    return pa.nulls(rows, type_) if value is None else pa.repeat(pa.scalar(value, type_), rows)
