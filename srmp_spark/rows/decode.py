"""Stored posts into rows: where a message becomes the columns of INTERFACE.md section 4.

Done when a row is read, not when it is accepted: the accepting process never waits for a column, and a better decoder serves
old messages too. A batch is built column by column. Most columns of a batch hold one value (one sender writes the same
priority, class, destination in every message), which is found by one comparison per value and stored by one call, so that
59 columns cost little more than the ten that differ.

A stored record was decoded once before it was accepted. If it cannot be decoded now, it was damaged: that is an error with
queue and sequence, never a row that is missing.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Sequence as Values
from contextlib import contextmanager
from decimal import Decimal
from struct import Struct
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from srmp_spark.errors import RemoteProtocolError, StoreDamagedError
from srmp_spark.message import Message, Receipt, StreamPosition
from srmp_spark.mqrr.message_of_packet import message_of
from srmp_spark.mqrr.packets.message_packet import parse_message_packet
from srmp_spark.rows.body_text import VT_EMPTY, body_text, is_plain_text
from srmp_spark.rows.columns import LOG_COLUMNS, arrow_schema
from srmp_spark.rows.group import Form, Record
from srmp_spark.rows.reliable import read_soap
from srmp_spark.srmp.decoder import decode_parts
from srmp_spark.srmp.http_head import content_type_of, soap_action_of
from srmp_spark.srmp.mime import Parts
from srmp_spark.wsrm.elements import Sequence

HEADS_MAX = 4096
"""HTTP heads remembered within a batch: of one sender they differ in the length only."""

_FIELD = {name: at for at, name in enumerate(Message._fields)}
_SAME = (
    ("priority", "priority"), ("body", "body"), ("soap_body", "soap_body"),
    ("extension", "extension"), ("correlation_id", "correlation"), ("sent_at", "sent_at"), ("expires_at", "expires_at"),
    ("time_to_reach_queue", "time_to_reach_queue"), ("response_queue", "response_queue"), ("source_qm", "source_qm"),
    ("first_in_transaction", "first_in_transaction"), ("last_in_transaction", "last_in_transaction"), ("journal", "journal"),
    ("dead_letter", "dead_letter"), ("trace", "trace"), ("connector_type", "connector_type"),
    ("connector_qm", "connector_qm"), ("provider_name", "provider_name"),
)  # fmt: skip
"""Columns that are a field of the message as it is."""
_UNSIGNED = (
    ("body_type", "body_type"), ("app_specific", "app_specific"),
    ("provider_type", "provider_type"), ("hash_algorithm", "hash_algorithm"),
)  # fmt: skip
"""xs:unsignedLong on the wire, long in Spark: numbers from 2^63 are shown as two's complement."""
_LISTS = ("destination_list", "admin_list", "response_list")

_schema = arrow_schema()
_types: dict[str, pa.DataType] = {field.name: field.type for field in _schema}


@contextmanager
def _no_collection() -> Iterator[None]:
    """Python's cycle collector, off for one batch: it would walk 50,000 fresh tuples again and again (a fifth of the time).

    None of them is in a cycle; they go with the batch.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class Decoded(NamedTuple):
    """Stored posts, read once: everything that rows and segments are made from."""

    sequences: list[int]
    records: list[Record]
    messages: list[Message]
    soap_actions: list[str | None]
    parts: list[Parts]
    """Offsets into ``record.content``; of a packet none."""
    numbered: list[Sequence | None]
    """Which number of which sequence of WS-ReliableMessaging it is."""

    def add(
        self, sequence: int, record: Record, message: Message, soap_action: str | None, parts: Parts,
        numbered: Sequence | None = None,
    ) -> None:  # fmt: skip
        """One more."""
        self.numbered.append(numbered)
        self.sequences.append(sequence)
        self.records.append(record)
        self.messages.append(message)
        self.soap_actions.append(soap_action)
        self.parts.append(parts)


_NO_PARTS = Parts((0, 0), None, None)
_LOOKUP_ID = Struct("<Q")


def decode(queue: str, pairs: Iterable[tuple[int, Record]], messages: Mapping[int, Message] | None = None) -> Decoded:
    """Read the (sequence, record) pairs of a queue; ``messages``: of some, by sequence, that were read already.

    Raises :class:`StoreDamagedError` for a record that is no message any more.
    """
    decoded = Decoded([], [], [], [], [], [])
    known: dict[bytes, tuple[bytes, str | None]] = {}
    for sequence, record in pairs:
        _, post, head_length, form = record
        if form is Form.PACKET:
            message = (messages or {}).get(sequence) or read_packet(queue, sequence, post[head_length:])
            decoded.add(sequence, record, message, None, _NO_PARTS)
            continue
        if form is Form.WSRM:
            message, action, numbered = read_soap(queue, sequence, post[head_length:])
            decoded.add(sequence, record, message, action, Parts((0, len(post) - head_length), None, None), numbered)
            continue
        head = post[:head_length]
        found = known.get(head)
        if found is None:
            if len(known) >= HEADS_MAX:
                known.clear()
            found = known[head] = (content_type_of(head), soap_action_of(head))
        try:
            message, parts = decode_parts(found[0], post[head_length:])
        except RemoteProtocolError as error:
            raise StoreDamagedError(f"row {sequence} of {queue} is stored but cannot be decoded: {error}") from error
        decoded.add(sequence, record, message, found[1], parts)
    return decoded


def read_packet(queue: str, sequence: int, packet: bytes) -> Message:
    """The message of a stored packet. Raises :class:`StoreDamagedError`: it was read once before it was stored."""
    try:
        return message_of(parse_message_packet(packet))
    except RemoteProtocolError as error:
        raise StoreDamagedError(f"row {sequence} of {queue} is stored but cannot be decoded: {error}") from error


def rows_of(
    queue_manager: str | None,
    epoch: str | None,
    queue: str,
    pairs: Iterable[tuple[int, Record]],
    envelope: bool = False,
    *,
    messages: Mapping[int, Message] | None = None,
) -> pa.RecordBatch:
    """One batch of the (sequence, record) pairs, in their order; ``envelope`` fills the column of that name. ``None``:
    they are in no log of ours. ``messages`` as of :func:`decode`.

    Raises :class:`StoreDamagedError` for a record that is no message any more.
    """
    with _no_collection():
        decoded = decode(queue, pairs, messages)
        if not decoded.sequences:
            return with_log_columns({}, 0, queue_manager, epoch, queue)
        columns = columns_of(decoded)
    if envelope:
        contents = [
            record.post[record.head_length + parts.envelope[0] : record.head_length + parts.envelope[1]].decode()
            for record, parts in zip(decoded.records, decoded.parts, strict=True)
        ]
        columns["envelope"] = pa.array(contents, pa.string())
    return with_log_columns(columns, len(decoded.sequences), queue_manager, epoch, queue)


def with_log_columns(
    columns: dict[str, pa.Array], rows: int, queue_manager: str | None, epoch: str | None, queue: str
) -> pa.RecordBatch:
    """The batch of INTERFACE.md section 4 from the columns that a log keeps; those that are missing are null."""
    for name, value in zip(LOG_COLUMNS, (queue_manager, epoch, queue), strict=True):
        columns[name] = pa.repeat(pa.scalar(value, pa.string()), rows)
    return pa.RecordBatch.from_arrays(
        [columns[name] if name in columns else pa.nulls(rows, type_) for name, type_ in _types.items()], schema=_schema
    )


def columns_of(decoded: Decoded) -> dict[str, pa.Array]:
    """The columns of at least one row, without those of the log and without ``envelope``."""
    fields = list(zip(*decoded.messages, strict=True))
    at_arrival, transports, peers, senders = zip(*[record.arrival for record in decoded.records], strict=True)

    def field(name: str) -> tuple[Any, ...]:
        return fields[_FIELD[name]]

    columns = {name: _array(name, field(source)) for name, source in _SAME}
    for name, source in _UNSIGNED:
        columns[name] = _array(name, _signed(field(source)))
    columns["class"] = _array("class", _signed(field("message_class"), 32))
    for name in _LISTS:
        columns[name] = _array(name, _each(field(name), lambda names: list(names) or None))
    columns["sequence"] = pa.array(decoded.sequences, pa.int64())
    columns["arrived_at"] = _array("arrived_at", at_arrival)
    columns["transport"] = _array("transport", transports)
    columns["peer"] = _array("peer", peers)
    columns["sender_name"] = _array("sender_name", senders)
    lineages, uniquifiers = _identifiers(field("lineage"), field("uniquifier"), decoded.records)
    columns["lineage"] = _array("lineage", lineages)
    columns["uniquifier"] = _array("uniquifier", _signed(uniquifiers))
    columns["message_id"] = message_ids(columns["lineage"], columns["uniquifier"])
    columns["delivery"] = _array("delivery", _delivery(field("stream"), field("durable")))
    columns["label"] = _array("label", _each(field("action"), lambda action: action[5:] if action[:5] == "MSMQ:" else None))
    columns["body_text"] = _body_text(field("body_type"), field("body"), columns["body"])
    columns["soap_action"] = _array("soap_action", decoded.soap_actions)
    columns["expired"] = _array("expired", _expired(field("time_to_reach_queue"), field("expires_at"), at_arrival))
    columns["destination"] = _array("destination", _each(field("destination"), format_name))
    columns["admin_queue"] = _array("admin_queue", _admin_queue(field("commitment_receipt_to"), field("delivery_receipt_to")))
    columns["receipts_requested"] = _receipts_requested(
        field("delivery_receipt_to"), field("commitment_positive"), field("commitment_negative")
    )
    columns["signature_status"] = _array("signature_status", _signature_status(field("signature"), decoded.records))
    _lookup_ids(columns, decoded.records)
    _numbered_columns(columns, decoded.numbered)
    _stream_columns(columns, field("stream"))
    _receipt_columns(columns, field("receipt"))
    return columns


def _identifiers(
    lineages: Values[str], uniquifiers: Values[int], records: Values[Record]
) -> tuple[Values[str | None], Values[int | None]]:
    """GUID and number of each message; one of WS-ReliableMessaging has none, its place in its sequence tells it apart."""
    if not any(record.form is Form.WSRM for record in records):
        return lineages, uniquifiers
    named = [record.form is not Form.WSRM for record in records]
    return (
        tuple([lineage if has_one else None for lineage, has_one in zip(lineages, named, strict=True)]),
        tuple([number if has_one else None for number, has_one in zip(uniquifiers, named, strict=True)]),
    )


def message_ids(lineages: pa.Array, uniquifiers: pa.Array) -> pa.Array:
    r"""``{guid}\number`` as MSMQ prints it, for whole columns; null where either is."""
    unsigned = uniquifiers.view(pa.uint64())  # the column is long, the number is not signed
    return pc.binary_join_element_wise("{", lineages, "}\\", unsigned.cast(pa.string()), "")


def format_name(destination: str) -> str:
    """``<to>`` as a format name ([MC-MQSRM] 3.1.5.1.1): ``DIRECT=`` in front of a URL, ``MSMQ:`` taken off a multicast name."""
    return destination[5:] if destination[:5] == "MSMQ:" else "DIRECT=" + destination


def _array(name: str, values: Values[Any]) -> pa.Array:
    """A column; one value for all is stored by one call."""
    type_, first, rows = _types[name], values[0], len(values)
    if values.count(first) == rows:
        return pa.nulls(rows, type_) if first is None else pa.repeat(pa.scalar(first, type_), rows)
    return pa.array(values, type_)


def _each(values: Values[Any], function: Callable[[Any], Any]) -> Values[Any]:
    """``function`` of each value, asked once if they are all the same."""
    if values.count(values[0]) == len(values):
        return (function(values[0]),) * len(values)
    return tuple(map(function, values))


def _signed(numbers: Values[Any], bits: int = 64) -> Values[Any]:
    """Unsigned numbers as the JVM's signed ones of as many bits: two's complement."""
    sign = 1 << (bits - 1)
    if max(number or 0 for number in numbers) < sign:
        return numbers
    return tuple([number - 2 * sign if number is not None and number >= sign else number for number in numbers])


def _delivery(streams: Values[StreamPosition | None], durable: Values[bool]) -> Values[str]:
    if streams.count(None) == len(streams):
        return _each(durable, lambda each: "recoverable" if each else "express")
    return tuple(
        "transactional" if stream is not None else "recoverable" if each else "express"
        for stream, each in zip(streams, durable, strict=True)
    )


def _expired(times_to_reach: Values[int | None], expire_at: Values[int | None], arrived_at: Values[int]) -> tuple[bool, ...]:
    """[MC-MQSRM] 3.1.5.1.4: ``<TTrq>`` takes precedence over ``<expiresAt>``; a message that is late is kept, and marked."""
    return tuple(
        [
            (limit if limit is not None else expires if expires is not None else arrived) < arrived
            for limit, expires, arrived in zip(times_to_reach, expire_at, arrived_at, strict=True)
        ]
    )


_VERDICTS = {Form.SRMP_VALID: "valid", Form.SRMP_INVALID: "invalid"}


def _signature_status(signatures: Values[str], records: Values[Record]) -> Values[str]:
    """The verdict that the record keeps; the bytes say only whether there is a signature."""
    if signatures.count("none") == len(signatures):
        return signatures
    return tuple([_VERDICTS.get(record.form, said) for said, record in zip(signatures, records, strict=True)])


def _body_text(body_types: Values[int], bodies: Values[bytes], column: pa.Array) -> pa.Array:
    """The text of each body. Where all are plain UTF-8 it is the bytes of ``column`` seen as text: nothing is copied."""
    if body_types.count(VT_EMPTY) == len(bodies) and is_plain_text(bodies):
        try:
            return column.cast(pa.string())
        except pa.ArrowInvalid:  # one of them is not UTF-8
            pass
    return _array("body_text", tuple(map(body_text, body_types, bodies)))


def _admin_queue(commitment: Values[str | None], delivery: Values[str | None]) -> Values[str | None]:
    """AdministrationQueueFormatName (3.1.5.1.1): where receipts go that the application asked for.

    The text also assigns ``<sendReceiptsTo>`` to it, which is the sender's order queue and would hide the former.
    """
    if commitment.count(None) == delivery.count(None) == len(delivery):
        return commitment
    return tuple([to or receipt_to for to, receipt_to in zip(commitment, delivery, strict=True)])


def _receipts_requested(delivery: Values[str | None], positive: Values[bool], negative: Values[bool]) -> pa.Array:
    type_ = _types["receipts_requested"]
    rows = len(delivery)
    if delivery.count(None) == rows and positive.count(False) == negative.count(False) == rows:
        return pa.repeat(pa.scalar([], type_), rows)
    names = ("delivery", "commitment_positive", "commitment_negative")
    asked = zip(delivery, positive, negative, strict=True)
    return pa.array([[name for name, wanted in zip(names, each, strict=True) if wanted] for each in asked], type_)


def _lookup_ids(columns: dict[str, pa.Array], records: Values[Record]) -> None:
    ids = [_LOOKUP_ID.unpack_from(each.post)[0] if each.form is Form.PACKET else None for each in records]
    if ids.count(None) < len(ids):
        columns["lookup_id"] = pa.array([None if each is None else Decimal(each) for each in ids], _types["lookup_id"])


def _numbered_columns(columns: dict[str, pa.Array], numbered: Values[Sequence | None]) -> None:
    if numbered.count(None) == len(numbered):
        return  # null
    columns["wsrm_sequence"] = pa.array([each.identifier if each else None for each in numbered], pa.string())
    columns["wsrm_number"] = pa.array([each.number if each else None for each in numbered], pa.int64())


def _stream_columns(columns: dict[str, pa.Array], streams: Values[StreamPosition | None]) -> None:
    if streams.count(None) == len(streams):
        return  # null
    columns["stream_id"] = pa.array([str(stream.id) if stream else None for stream in streams], pa.string())
    columns["stream_sequence"] = pa.array([stream.current if stream else None for stream in streams], pa.int64())
    columns["stream_previous"] = pa.array([stream.previous if stream else None for stream in streams], pa.int64())


def _receipt_columns(columns: dict[str, pa.Array], receipts: Values[Receipt | None]) -> None:
    if receipts.count(None) == len(receipts):
        return  # null

    def column(name: str, value: Callable[[Receipt], Any]) -> None:
        columns[name] = pa.array([value(receipt) if receipt else None for receipt in receipts], _types[name])

    column("receipt_kind", lambda r: r.kind)
    column("receipt_for", lambda r: None if r.lineage is None else f"{{{r.lineage}}}\\{r.uniquifier}")
    column("receipt_decision", lambda r: r.decision)
    column("receipt_at", lambda r: r.at)
    column("receipt_stream_id", lambda r: str(r.stream_id) if r.stream_id else None)
    column("receipt_last_ordinal", lambda r: r.last_ordinal)
