"""Store a row that has only its columns as a record (:attr:`.Form.COLUMNS`), and read it back.

A restore has the rows of the Delta state, but not the received bytes. In a segment such a row is
stored as its columns, and its post is empty, so nothing is stored twice. A record of the row is
made when one is needed. A remote reader needs it for the message, and a move to another queue
stores the record there. The post of the record is

    the columns as a JSON object (in place of the HTTP head) · the body

**The columns that are read are the columns that were stored.** They are not computed again from a
message, so a row that is moved, sealed, published or restored again is the same row. The encoding
of a row is unique, because sealing compares it. The JSON object leaves out columns that are null,
and columns that stand elsewhere:

    of the log           ``queue_manager``, ``epoch``, ``queue``, ``sequence``
    of the arrival       ``arrived_at``, ``transport``, ``peer``, ``sender_name``
    follow from others   ``message_id``; ``body_text`` is ``true`` where its UTF-8 is the body

The message that is made from the columns holds what a message packet can express
(:mod:`srmp_spark.mqrr.packet_of_message`). The message is never an SRMP message: no envelope is
invented, and nothing claims to be the received bytes.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from srmp_spark import names
from srmp_spark.errors import StoreDamagedError
from srmp_spark.message import Arrival, Message, StreamId, StreamPosition
from srmp_spark.rows.columns import KINDS, LOG_COLUMNS, NAMES
from srmp_spark.rows.group import Form, Record

ARRIVAL_COLUMNS = ("arrived_at", "transport", "peer", "sender_name")
"""Columns that a record keeps as its :class:`.Arrival`."""
KEPT = tuple(
    name
    for name in NAMES
    if name not in (*LOG_COLUMNS, *ARRIVAL_COLUMNS, "sequence", "message_id", "body", "envelope")
)
"""Columns that stand in the JSON object, in this order."""

_U32, _U64 = 2**32 - 1, 2**64 - 1


def record_of_columns(arrival: Arrival, columns: Mapping[str, Any]) -> Record:
    """Return the record of a row that has only its columns.

    ``columns`` holds the values by column name: times in microseconds since 1970, numbers as the
    column shows them.
    """
    body: bytes = columns.get("body") or b""
    kept = {name: _to_json(name, columns[name]) for name in KEPT if columns.get(name) is not None}
    if "body_text" in kept and kept["body_text"].encode() == body:
        kept["body_text"] = True
    head = json.dumps(kept, ensure_ascii=False, separators=(",", ":")).encode()
    return Record(arrival, head + body, len(head), Form.COLUMNS)


def columns_of_record(queue: str, sequence: int, record: Record) -> dict[str, Any]:
    """Return the column values that :func:`record_of_columns` stored, and ``message_id``.

    The result maps each column name to its value. Null columns are missing, and ``body`` is never
    missing. ``queue`` and ``sequence`` name the row in the text of the error. Raises
    :class:`StoreDamagedError` if the columns of the record cannot be read.
    """
    try:
        columns = {name: _of_json(name, value) for name, value in json.loads(record.head).items()}
        columns["body"] = record.content
        if columns.get("body_text") is True:
            columns["body_text"] = record.content.decode()
    except (ValueError, AttributeError, KeyError, TypeError, ArithmeticError) as error:
        raise StoreDamagedError(
            f"row {sequence} of {queue} is stored but its columns cannot be read: {error}"
        ) from error
    if columns.get("lineage") is not None:
        # Messages of WS-ReliableMessaging have no message identifier.
        columns["message_id"] = names.message_id(
            columns["lineage"], _unsigned(columns, "uniquifier")
        )
    return columns


def message_of_columns(columns: Mapping[str, Any]) -> Message:
    """Return the message that the columns describe, as far as a message packet can express it.

    ``columns`` is a result of :func:`columns_of_record`. The columns name one administration queue.
    If an envelope named two, the column holds the one for commitment receipts.
    """
    asked = columns.get("receipts_requested") or ()
    positive, negative = "commitment_positive" in asked, "commitment_negative" in asked
    admin, delivery = columns.get("admin_queue"), "delivery" in asked
    label, lineage = columns.get("label"), columns.get("lineage")
    return Message(
        destination=_as_sent(columns.get("destination") or ""),
        action="" if label is None else f"MSMQ:{label}",
        lineage=lineage or names.NULL_GUID,
        uniquifier=1 if lineage is None else _unsigned(columns, "uniquifier"),
        has_msmq=True,
        message_class=_unsigned(columns, "class") & _U32,
        priority=columns.get("priority") or 0,
        durable=columns.get("delivery") != "express",
        stream=_stream(columns),
        sent_at=columns.get("sent_at"),
        expires_at=columns.get("expires_at"),
        time_to_reach_queue=columns.get("time_to_reach_queue"),
        body=columns["body"],
        body_type=_unsigned(columns, "body_type"),
        extension=columns.get("extension"),
        correlation=columns.get("correlation_id"),
        app_specific=_unsigned(columns, "app_specific"),
        hash_algorithm=None
        if columns.get("hash_algorithm") is None
        else _unsigned(columns, "hash_algorithm"),
        response_queue=columns.get("response_queue"),
        delivery_receipt_to=admin if delivery else None,
        commitment_receipt_to=admin if positive or negative or not delivery else None,
        commitment_positive=positive,
        commitment_negative=negative,
        journal=bool(columns.get("journal")),
        dead_letter=bool(columns.get("dead_letter")),
        trace=bool(columns.get("trace")),
        first_in_transaction=bool(columns.get("first_in_transaction")),
        last_in_transaction=bool(columns.get("last_in_transaction")),
        connector_type=columns.get("connector_type"),
        connector_qm=columns.get("connector_qm"),
        source_qm=columns.get("source_qm"),
    )


def _to_json(name: str, value: Any) -> Any:  # noqa: ANN401  # a cell in, a JSON value out
    kind = KINDS[name]
    return (
        base64.b64encode(value).decode()
        if kind == "binary"
        else str(value)
        if kind == "decimal(20,0)"
        else value
    )


def _of_json(name: str, value: Any) -> Any:  # noqa: ANN401  # a JSON value in, a cell out
    kind = KINDS[name]
    return (
        base64.b64decode(value)
        if kind == "binary"
        else Decimal(value)
        if kind == "decimal(20,0)"
        else value
    )


def _unsigned(columns: Mapping[str, Any], name: str) -> int:
    """Return the number of column ``name`` as the unsigned 64-bit number that the message had.

    The column holds the number as two's complement. A null counts as 0.
    """
    return (columns.get(name) or 0) & _U64


def _as_sent(destination: str) -> str:
    """Return a format name as ``<to>`` held it.

    This is the reverse of :func:`.made_columns.format_name`.
    """
    return destination[7:] if destination.startswith("DIRECT=") else f"MSMQ:{destination}"


def _stream(columns: Mapping[str, Any]) -> StreamPosition | None:
    """Return the position in a stream, or ``None`` if the message is not transactional.

    A message packet states only the ordinal of the stream identifier. The ordinal is 0 where the
    column ``stream_id`` cannot be read.
    """
    if columns.get("delivery") != "transactional":
        return None
    guid, _, ordinal = (columns.get("stream_id") or "").removeprefix("uid:").partition("\\")
    number = int(ordinal) if ordinal.isascii() and ordinal.isdigit() else 0
    return StreamPosition(
        StreamId(guid, number),
        columns.get("stream_sequence") or 0,
        columns.get("stream_previous") or 0,
    )
