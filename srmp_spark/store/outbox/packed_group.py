"""A packed group: up to 256 waiting rows as one Arrow record batch, and how a row of it becomes a :class:`Message`.

An Arrow IPC stream of one record batch, its crc32 beside it. Columns that are null in every row are left out. What all rows of
a part share (application, batch, when, the message identifiers) stands in its row of ``parts``, not here.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from srmp_spark.errors import RemoteProtocolError, StoreDamagedError
from srmp_spark.message import Message
from srmp_spark.names import format_names
from srmp_spark.srmp.forwarding import REACH_MAX, restored
from srmp_spark.srmp.outgoing_effects import Kind, StoredMessage
from srmp_spark.wsrm.versions import Versions

STORED = (
    "body",
    "destination",
    "label",
    "priority",
    "correlation_id",
    "app_specific",
    "body_type",
    "response_queue",
    "admin_queue",
    "time_to_reach_queue",
    "extension",
    "key",
    "delivery",
    "journal",
    "first",
    "last",
    "destination_list",
    "soap_action",
    "wsrm_version",
    "soap_version",
    "wsa_version",
)
"""The columns of a group. ``destination`` only where it is spelled otherwise than the queue; ``first`` and ``last`` say where
a transaction begins and ends, absent: each row is its own; ``destination_list`` has all destinations where there are several.
Version 0.1 sends a message without what it does not know: it arrives all the same."""
ENVELOPE, VIA = "envelope", "via"
"""Columns of a group of forwarded messages beside those: what is sent in place of them (:mod:`.forwarded`)."""

PRIORITY_DEFAULT = 3
"""MSMQ's own; transactional messages go out with 0 (:meth:`OutgoingStream.message_of`)."""


class Shared(NamedTuple):
    """What the rows of one part share."""

    destination: str
    """Of the queue, canonical."""
    kind: Kind
    identity: str
    """Our GUID: the lineage of every message we send."""
    ids_base: int
    """Message identifier minus serial."""
    enqueued_at: int
    """Microseconds since 1970, UTC."""
    final: bool
    """``<DeadLetter/>``: finished by a final stream receipt."""


_SLACK_BYTES = 256
"""For the end mark of an Arrow stream and what aligns its messages."""


class Packed(NamedTuple):
    """A group as it is stored."""

    crc: int
    data: pa.Buffer


def pack_group(batch: pa.RecordBatch) -> Packed:
    """The stored form of the rows of ``batch``, whose columns are some of :data:`STORED`."""
    keep = [
        index for index, column in enumerate(batch.columns) if column.null_count < batch.num_rows
    ]
    if len(keep) < batch.num_columns:
        batch = batch.select(keep)
    room = pa.allocate_buffer(
        batch.schema.serialize().size + pa.ipc.get_record_batch_size(batch) + _SLACK_BYTES
    )
    sink = pa.FixedSizeBufferWriter(room)
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data = room.slice(0, sink.tell())
    return Packed(zlib.crc32(data), data)


def unpack_group(crc: int, data: bytes, where: str) -> pa.RecordBatch:
    """The rows of a stored group.

    Raises :class:`StoreDamagedError` when the checksum does not fit, or they are not even bytes.
    """
    if not isinstance(data, bytes) or zlib.crc32(data) != crc:
        raise StoreDamagedError(
            f"the checksum of {where} does not match: the disk or a copy of it is damaged"
        )
    try:
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            return reader.read_next_batch()
    except (pa.ArrowException, StopIteration) as error:  # nothing at all has the checksum 0
        raise StoreDamagedError(
            f"{where} is no Arrow stream ({error!r}): the disk or a copy of it is damaged"
        ) from error


def messages_of(
    batch: pa.RecordBatch, indices: Sequence[int], serials: Iterable[int], shared: Shared
) -> list[StoredMessage]:
    """The rows ``indices`` of a group as they are sent. Raises :class:`StoreDamagedError` if one of them is no message."""
    taken = batch if len(indices) == batch.num_rows else batch.take(pa.array(indices, pa.int32()))
    columns: dict[str, list[Any]] = {}
    for name in taken.schema.names:
        column = taken.column(taken.schema.get_field_index(name))
        columns[name] = (
            column.cast(pa.int64()) if name == "time_to_reach_queue" else column
        ).to_pylist()
    stream = shared.kind == "stream"
    nothing: list[Any] = [None] * len(indices)
    alone = [stream] * len(indices)

    def column_of(name: str) -> list[Any]:
        return columns.get(name, nothing)

    if ENVELOPE in columns:
        named = zip(
            serials,
            columns[ENVELOPE],
            column_of(VIA),
            column_of("body"),
            column_of("extension"),
            strict=True,
        )
        return [
            StoredMessage(
                serial,
                _forwarded(envelope, body, extension, shared.identity, shared.ids_base + serial),
                via or "",
            )
            for serial, envelope, via, body, extension in named
        ]
    destination, identity, ids_base, sent_at = (
        shared.destination,
        shared.identity,
        shared.ids_base,
        shared.enqueued_at,
    )
    return [
        StoredMessage(
            serial,
            Message(
                destination=_bare(to) if to is not None else destination,
                action=f"MSMQ:{label or ''}" if soap_action is None else soap_action,
                lineage=identity,
                uniquifier=ids_base + serial,
                has_msmq=True,
                priority=PRIORITY_DEFAULT if priority is None else priority,
                durable=stream or delivery == "recoverable" or soap_action is not None,
                sent_at=sent_at,
                time_to_reach_queue=None if until is None or until > REACH_MAX else until,
                body=body or b"",
                body_type=body_type or 0,
                extension=extension,
                correlation=correlation,
                app_specific=app or 0,
                response_queue=_first(response) if response is not None else None,
                delivery_receipt_to=_bare(_first(admin)) if admin is not None else None,
                journal=bool(journal),
                dead_letter=shared.final,
                source_qm=identity,
                first_in_transaction=bool(first),
                last_in_transaction=bool(last),
                destination_list=_list(named),
                admin_list=_list(admin),
                response_list=_list(response),
            ),
            reliable="" if soap_action is None else Versions.of(wsrm, soap, wsa).dump(),
        )
        for serial, to, label, priority, delivery, until, body, body_type, extension, correlation, app, response, admin, journal, named, soap_action, wsrm, soap, wsa, first, last in zip(  # noqa: E501  # the formatter breaks no targets
            serials,
            *map(
                column_of,
                (
                    "destination",
                    "label",
                    "priority",
                    "delivery",
                    "time_to_reach_queue",
                    "body",
                    "body_type",
                    "extension",
                    "correlation_id",
                    "app_specific",
                    "response_queue",
                    "admin_queue",
                    "journal",
                    "destination_list",
                    "soap_action",
                    "wsrm_version",
                    "soap_version",
                    "wsa_version",
                ),
            ),
            columns.get("first", alone),
            columns.get("last", alone),
            strict=True,
        )
    ]


def _forwarded(
    envelope: bytes, body: bytes | None, extension: bytes | None, identity: str, uniquifier: int
) -> Message:
    """A message that is sent on as it came; one without an identity gets ours, so that its next receiver knows a repeat."""
    try:
        message = restored(envelope, body, extension)
    except RemoteProtocolError as error:
        raise StoreDamagedError(
            f"a message that is to be forwarded cannot be read again: {error}"
        ) from error
    if message.has_identity:
        return message
    return message._replace(lineage=identity, uniquifier=uniquifier, source_qm=identity)


def _list(text: str | None) -> tuple[str, ...]:
    """What stands in a ``<…Mqf>``: nothing for one queue, which has its own element."""
    if text is None or "," not in text:
        return ()
    names = format_names(text)
    return tuple(_bare(name) if "://" in name else name for name in names) if len(names) > 1 else ()


def _first(text: str) -> str:
    """The queue of several that stands where SRMP has room for one (``<via>``, ``<sendTo>``)."""
    return format_names(text)[0] if "," in text else text


def _bare(address: str) -> str:
    return address[7:] if address[:7].upper() == "DIRECT=" else address
