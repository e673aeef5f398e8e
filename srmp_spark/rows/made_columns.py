"""Make the columns of rows from the messages that :mod:`.decode` read.

A batch is built column by column, and only with the requested columns. Most columns of a batch hold
one value, because one sender writes the same priority, class and destination in every message. Such
a column costs one comparison per value and one call that stores the value. So 59 columns cost
little more than the ten that differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Values
from decimal import Decimal
from struct import Struct
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from srmp_spark.message import Arrival, Message, Receipt, StreamPosition
from srmp_spark.rows.body_text import VT_EMPTY, body_text, is_plain_text
from srmp_spark.rows.columns import LOG_COLUMNS, NAMES, arrow_schema
from srmp_spark.rows.group import Form, Record
from srmp_spark.rows.kept_columns import ARRIVAL_COLUMNS
from srmp_spark.srmp.codec.mime import Parts
from srmp_spark.wsrm.codec.elements import Sequence

OF_THE_RECORD = ("sequence", *ARRIVAL_COLUMNS)
"""Columns that every record has, whatever its post is."""
_LOOKUP_ID = Struct("<Q")
_FIELD = {name: at for at, name in enumerate(Message._fields)}
_ARRIVAL = {name: at for at, name in enumerate(Arrival._fields)}
_types: dict[str, pa.DataType] = {field.name: field.type for field in arrow_schema()}


class Decoded(NamedTuple):
    """Stored posts after decoding: lists of equal length, with one element for each row.

    Rows and segments are made from these lists. An element of ``soap_actions`` is the SOAPAction of
    the HTTP head, or ``wsa:Action``, or ``None``.
    """

    sequences: list[int]
    records: list[Record]
    messages: list[Message]
    soap_actions: list[str | None]
    parts: list[Parts]
    """Offsets of envelope and body in ``record.content``.

    A packet, and a row that has only its columns, have neither: the envelope is the empty span (0,
    0).
    """
    numbered: list[Sequence | None]
    """Sequence identifier and message number of each WS-ReliableMessaging message, else ``None``.
    """
    kept: list[Mapping[str, Any] | None]
    """Column values of each row that has only its columns, by name, else ``None``.

    These values are used as they are, and not made from the message.
    """

    def add(
        self,
        sequence: int,
        record: Record,
        message: Message,
        soap_action: str | None,
        parts: Parts,
        numbered: Sequence | None = None,
        kept: Mapping[str, Any] | None = None,
    ) -> None:
        """Append one decoded row to all lists.

        The arguments are the elements of the lists with the same meaning.
        """
        self.kept.append(kept)
        self.numbered.append(numbered)
        self.sequences.append(sequence)
        self.records.append(record)
        self.messages.append(message)
        self.soap_actions.append(soap_action)
        self.parts.append(parts)


def columns_of(decoded: Decoded, names: Iterable[str] = NAMES) -> dict[str, pa.Array]:
    """Return the columns ``names`` of the decoded rows as Arrow arrays, by name.

    There must be at least one row. The result leaves out the columns of the log, ``envelope``, and
    columns that are null in every row.
    """
    rows = _Rows(decoded)
    made = {name: rows.column(name) for name in names if name in _MAKERS}
    if any(kept is not None for kept in decoded.kept):
        made = _with_kept_columns(made, decoded.kept)
    return {name: column for name, column in made.items() if column is not None}


def _with_kept_columns(
    made: dict[str, pa.Array | None], kept: Values[Mapping[str, Any] | None]
) -> dict[str, pa.Array]:
    """Return the columns ``made``, with the stored values of the rows that have only columns.

    ``kept`` is :attr:`Decoded.kept`. The columns of :data:`OF_THE_RECORD` stay as they are.
    """
    own = [columns for columns in kept if columns is not None]
    rows, places, found = len(kept), [], 0
    for at, columns in enumerate(kept):
        places.append(at if columns is None else rows + found)
        found += columns is not None
    where = pa.array(places, pa.int64())
    joined = {}
    for name, column in made.items():
        if name in OF_THE_RECORD:
            joined[name] = column
            continue
        values = pa.array([columns.get(name) for columns in own], _types[name])
        joined[name] = pa.concat_arrays(
            [pa.nulls(rows, _types[name]) if column is None else column, values]
        ).take(where)
    return joined


def with_log_columns(
    columns: Mapping[str, pa.Array],
    rows: int,
    queue_manager: str | None,
    epoch: str | None,
    queue: str,
    names: Values[str] = NAMES,
) -> pa.RecordBatch:
    """Return a batch of ``rows`` rows with the columns ``names``, in this order.

    The columns of the log get the values of ``queue_manager``, ``epoch`` and ``queue``. The other
    columns are taken from ``columns``, and a column that is missing there is null.
    """
    of_log = dict(zip(LOG_COLUMNS, (queue_manager, epoch, queue), strict=True))

    def column(name: str) -> pa.Array:
        if name in of_log:
            return pa.repeat(pa.scalar(of_log[name], pa.string()), rows)
        return columns[name] if name in columns else pa.nulls(rows, _types[name])

    return pa.RecordBatch.from_arrays(
        [column(name) for name in names], schema=arrow_schema(tuple(names))
    )


def message_ids(lineages: pa.Array, uniquifiers: pa.Array) -> pa.Array:
    r"""Return message identifiers, ``{guid}\number``, as MSMQ prints them, for whole columns.

    The result is null where either value is null.
    """
    # The type of the column is signed, but the number is unsigned.
    unsigned = uniquifiers.view(pa.uint64())
    return pc.binary_join_element_wise("{", lineages, "}\\", unsigned.cast(pa.string()), "")


def format_name(destination: str) -> str:
    """Return ``<to>`` as a format name ([MC-MQSRM] 3.1.5.1.1).

    A URL gets the prefix ``DIRECT=``. A multicast name loses its prefix ``MSMQ:``.
    """
    return destination[5:] if destination[:5] == "MSMQ:" else "DIRECT=" + destination


class _Rows:
    """Makes the columns of decoded rows, each on the first request for it, and keeps them."""

    def __init__(self, decoded: Decoded) -> None:
        self.decoded = decoded
        self.records: Values[Record] = decoded.records
        self._fields = list(zip(*decoded.messages, strict=True))
        self._arrivals = list(zip(*[record.arrival for record in decoded.records], strict=True))
        self._made: dict[str, pa.Array | None] = {}
        self._numbers: tuple[Values[str | None], Values[int | None]] | None = None

    def field(self, name: str) -> tuple[Any, ...]:
        """Return the values of the field ``name`` (:class:`.Message`) of all messages."""
        return self._fields[_FIELD[name]]

    def arrival(self, name: str) -> tuple[Any, ...]:
        """Return the values of the field ``name`` of all arrivals (:class:`.Arrival`)."""
        return self._arrivals[_ARRIVAL[name]]

    def column(self, name: str) -> pa.Array | None:
        """Return the column ``name``, or perhaps ``None`` if it is null in every row."""
        if name not in self._made:
            self._made[name] = _MAKERS[name](self)
        return self._made[name]

    def identifiers(self) -> tuple[Values[str | None], Values[int | None]]:
        """Return two sequences: the GUIDs and the numbers of the message identifiers.

        Both values are ``None`` for a message of WS-ReliableMessaging, which has no message
        identifier.
        """
        if self._numbers is None:
            self._numbers = _identifiers(
                self.field("lineage"), self.field("uniquifier"), self.records
            )
        return self._numbers


_Maker = Callable[[_Rows], "pa.Array | None"]
_Change = Callable[[Values[Any]], Values[Any]]


def _identifiers(
    lineages: Values[str], uniquifiers: Values[int], records: Values[Record]
) -> tuple[Values[str | None], Values[int | None]]:
    if not any(record.form is Form.WSRM for record in records):
        return lineages, uniquifiers
    named = [record.form is not Form.WSRM for record in records]
    return (
        tuple(
            [lineage if has_one else None for lineage, has_one in zip(lineages, named, strict=True)]
        ),
        tuple(
            [
                number if has_one else None
                for number, has_one in zip(uniquifiers, named, strict=True)
            ]
        ),
    )


def _array(name: str, values: Values[Any]) -> pa.Array:
    """Return the column ``name`` (an Arrow array) with the values.

    One value that all rows share is stored by one call.
    """
    type_, first, rows = _types[name], values[0], len(values)
    if values.count(first) == rows:
        return pa.nulls(rows, type_) if first is None else pa.repeat(pa.scalar(first, type_), rows)
    return pa.array(values, type_)


def _each(values: Values[Any], function: Callable[[Any], Any]) -> Values[Any]:
    """Return the result of ``function`` for each of the values, in order.

    If all values are equal, ``function`` is called once.
    """
    if values.count(values[0]) == len(values):
        return (function(values[0]),) * len(values)
    return tuple(map(function, values))


def _signed(numbers: Values[Any], bits: int = 64) -> Values[Any]:
    """Return unsigned numbers as signed numbers of ``bits`` bits (two's complement).

    The JVM has no unsigned numbers. ``None`` stays ``None``.
    """
    sign = 1 << (bits - 1)
    if max(number or 0 for number in numbers) < sign:
        return numbers
    return tuple(
        [
            number - 2 * sign if number is not None and number >= sign else number
            for number in numbers
        ]
    )


def _delivery(streams: Values[StreamPosition | None], durable: Values[bool]) -> Values[str]:
    if streams.count(None) == len(streams):
        return _each(durable, lambda each: "recoverable" if each else "express")
    return tuple(
        "transactional" if stream is not None else "recoverable" if each else "express"
        for stream, each in zip(streams, durable, strict=True)
    )


def _expired(
    times_to_reach: Values[int | None], expire_at: Values[int | None], arrived_at: Values[int]
) -> tuple[bool, ...]:
    """Return for each message whether it arrived after its time limit ([MC-MQSRM] 3.1.5.1.4).

    ``<TTrq>`` takes precedence over ``<expiresAt>``. A late message is kept and marked.
    """
    return tuple(
        [
            (limit if limit is not None else expires if expires is not None else arrived) < arrived
            for limit, expires, arrived in zip(times_to_reach, expire_at, arrived_at, strict=True)
        ]
    )


_VERDICTS = {Form.SRMP_VALID: "valid", Form.SRMP_INVALID: "invalid"}


def _signature_status(signatures: Values[str], records: Values[Record]) -> Values[str]:
    """Return the status of each signature, with the verdicts that the records keep.

    The bytes of a message state only whether the message has a signature. The form of its record
    has the verdict (:data:`.FORM_OF`).
    """
    if signatures.count("none") == len(signatures):
        return signatures
    return tuple(
        [_VERDICTS.get(record.form, said) for said, record in zip(signatures, records, strict=True)]
    )


def _body_text(body_types: Values[int], bodies: Values[bytes], column: pa.Array) -> pa.Array:
    """Return a column with the text of each body, or null if the body is not text.

    Where all bodies are plain UTF-8, the text is a view of the bytes of ``column``, and nothing is
    copied.
    """
    if body_types.count(VT_EMPTY) == len(bodies) and is_plain_text(bodies):
        try:
            return column.cast(pa.string())
        except pa.ArrowInvalid:
            # One of the bodies is not UTF-8.
            pass
    return _array("body_text", tuple(map(body_text, body_types, bodies)))


def _admin_queue(
    commitment: Values[str | None], delivery: Values[str | None]
) -> Values[str | None]:
    """Return AdministrationQueueFormatName ([MC-MQSRM] 3.1.5.1.1) of each message, or ``None``.

    The property is the queue for the receipts that the application requested. The text of the
    specification also assigns ``<sendReceiptsTo>`` to this property. The function does not use
    ``<sendReceiptsTo>``, because the sender's order queue would hide the application's queue.
    """
    if commitment.count(None) == delivery.count(None) == len(delivery):
        return commitment
    return tuple([to or receipt_to for to, receipt_to in zip(commitment, delivery, strict=True)])


def _receipts_requested(
    delivery: Values[str | None], positive: Values[bool], negative: Values[bool]
) -> pa.Array:
    type_ = _types["receipts_requested"]
    rows = len(delivery)
    if delivery.count(None) == rows and positive.count(False) == negative.count(False) == rows:
        return pa.repeat(pa.scalar([], type_), rows)
    names = ("delivery", "commitment_positive", "commitment_negative")
    asked = zip(delivery, positive, negative, strict=True)
    return pa.array(
        [[name for name, wanted in zip(names, each, strict=True) if wanted] for each in asked],
        type_,
    )


def _of_field(name: str, source: str, change: _Change | None = None) -> _Maker:
    """Return a function that makes a column from one field of the messages.

    ``change`` changes the values; without it they are used as they are.
    """
    if change is None:
        return lambda rows: _array(name, rows.field(source))
    return lambda rows: _array(name, change(rows.field(source)))


def _of_arrival(name: str, source: str) -> _Maker:
    return lambda rows: _array(name, rows.arrival(source))


def _of_stream(name: str, value: Callable[[StreamPosition], Any]) -> _Maker:
    return lambda rows: _of_some(name, rows.field("stream"), value)


def _of_receipt(name: str, value: Callable[[Receipt], Any]) -> _Maker:
    return lambda rows: _of_some(name, rows.field("receipt"), value)


def _of_sequence(name: str, value: Callable[[Sequence], Any]) -> _Maker:
    return lambda rows: _of_some(name, rows.decoded.numbered, value)


def _of_some(name: str, owners: Values[Any], value: Callable[[Any], Any]) -> pa.Array | None:
    """Return a column with the result of ``value`` for each of ``owners``, one for each row.

    The column is null where the owner is ``None``. Return ``None`` if no row has an owner.
    """
    if owners.count(None) == len(owners):
        return None
    return pa.array([None if each is None else value(each) for each in owners], _types[name])


def _each_of(name: str, source: str, function: Callable[[Any], Any]) -> _Maker:
    return _of_field(name, source, lambda values: _each(values, function))


def _lookup_ids(rows: _Rows) -> pa.Array | None:
    ids = [
        _LOOKUP_ID.unpack_from(each.post)[0] if each.form is Form.PACKET else None
        for each in rows.records
    ]
    return _of_some("lookup_id", ids, Decimal)


_MAKERS: dict[str, _Maker] = {
    "sequence": lambda rows: pa.array(rows.decoded.sequences, pa.int64()),
    "arrived_at": _of_arrival("arrived_at", "at"),
    "transport": _of_arrival("transport", "transport"),
    "peer": _of_arrival("peer", "peer"),
    "sender_name": _of_arrival("sender_name", "sender_name"),
    "message_id": lambda rows: message_ids(rows.column("lineage"), rows.column("uniquifier")),
    "lineage": lambda rows: _array("lineage", rows.identifiers()[0]),
    "uniquifier": lambda rows: _array("uniquifier", _signed(rows.identifiers()[1])),
    "class": _of_field("class", "message_class", lambda numbers: _signed(numbers, 32)),
    "delivery": lambda rows: _array(
        "delivery", _delivery(rows.field("stream"), rows.field("durable"))
    ),
    "label": _each_of(
        "label", "action", lambda action: action[5:] if action[:5] == "MSMQ:" else None
    ),
    "body_text": lambda rows: _body_text(
        rows.field("body_type"), rows.field("body"), rows.column("body")
    ),
    "soap_action": lambda rows: _array("soap_action", rows.decoded.soap_actions),
    "expired": lambda rows: _array(
        "expired",
        _expired(rows.field("time_to_reach_queue"), rows.field("expires_at"), rows.arrival("at")),
    ),
    "destination": _each_of("destination", "destination", format_name),
    "admin_queue": lambda rows: _array(
        "admin_queue",
        _admin_queue(rows.field("commitment_receipt_to"), rows.field("delivery_receipt_to")),
    ),
    "receipts_requested": lambda rows: _receipts_requested(
        rows.field("delivery_receipt_to"),
        rows.field("commitment_positive"),
        rows.field("commitment_negative"),
    ),
    "signature_status": lambda rows: _array(
        "signature_status", _signature_status(rows.field("signature"), rows.records)
    ),
    "lookup_id": _lookup_ids,
    "correlation_id": _of_field("correlation_id", "correlation"),
    **{
        name: _of_field(name, name)
        for name in (
            "priority",
            "body",
            "soap_body",
            "extension",
            "sent_at",
            "expires_at",
            "time_to_reach_queue",
            "response_queue",
            "source_qm",
            "first_in_transaction",
            "last_in_transaction",
            "journal",
            "dead_letter",
            "trace",
            "connector_type",
            "connector_qm",
            "provider_name",
        )
    },
    # The wire has xs:unsignedLong and Spark has long. Numbers from 2^63 are shown as two's
    # complement.
    **{
        name: _of_field(name, name, _signed)
        for name in ("body_type", "app_specific", "provider_type", "hash_algorithm")
    },
    **{
        name: _each_of(name, name, lambda names: list(names) or None)
        for name in ("destination_list", "admin_list", "response_list")
    },
    "stream_id": _of_stream("stream_id", lambda stream: str(stream.id)),
    "stream_sequence": _of_stream("stream_sequence", lambda stream: stream.current),
    "stream_previous": _of_stream("stream_previous", lambda stream: stream.previous),
    "receipt_kind": _of_receipt("receipt_kind", lambda receipt: receipt.kind),
    "receipt_for": _of_receipt(
        "receipt_for",
        lambda receipt: (
            None if receipt.lineage is None else f"{{{receipt.lineage}}}\\{receipt.uniquifier}"
        ),
    ),
    "receipt_decision": _of_receipt("receipt_decision", lambda receipt: receipt.decision),
    "receipt_at": _of_receipt("receipt_at", lambda receipt: receipt.at),
    "receipt_stream_id": _of_receipt(
        "receipt_stream_id", lambda receipt: str(receipt.stream_id) if receipt.stream_id else None
    ),
    "receipt_last_ordinal": _of_receipt(
        "receipt_last_ordinal", lambda receipt: receipt.last_ordinal
    ),
    "wsrm_sequence": _of_sequence("wsrm_sequence", lambda sequence: sequence.identifier),
    "wsrm_number": _of_sequence("wsrm_number", lambda sequence: sequence.number),
}
"""Function that makes each column, by name of the column.

The columns of the log and ``envelope`` have no such function, because they are not made from a
message.
"""
