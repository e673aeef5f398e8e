"""A packed group: up to 256 waiting rows as one Arrow record batch.

This module also makes a :class:`Message` of a row. A group is an Arrow IPC stream of one record
batch, stored with its crc32. Columns that are null in every row are left out. Values that all rows
of a part share (application, batch, time, message identifiers) are in the part's row of ``parts``.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from srmp_spark.errors import RemoteProtocolError, StoreDamagedError
from srmp_spark.message import Message
from srmp_spark.names import format_names
from srmp_spark.srmp.forward.forwarding import REACH_MAX, restored
from srmp_spark.srmp.sending.outgoing_effects import Kind, QueueKey, StoredMessage
from srmp_spark.wsrm.codec.versions import Versions

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
"""The columns of a group.

``destination`` is stored only if it is spelled otherwise than the queue. ``first`` and ``last`` say
where a transaction begins and ends. Without them each row is a transaction of its own.
``destination_list`` has all destinations of a row with several. Version 0.1 sends a message without
the columns that it does not know. The message is delivered nevertheless.
"""
ENVELOPE, VIA = "envelope", "via"
"""Names of additional columns of a group of forwarded messages.

The envelope is sent in place of the other columns (:mod:`.forwarded`).
"""

PRIORITY_DEFAULT = 3
"""Priority of a message that states none: MSMQ's own default.

Transactional messages are sent with 0 (:meth:`OutgoingStream.message_of`).
"""


class BatchPart(NamedTuple):
    """A description of rows of a batch that are sent to one outgoing queue.

    Large queues have several parts. ``number`` is the id of the part in the table ``parts``.
    """

    number: int
    key: QueueKey
    rows: int
    final: bool
    """Whether final stream receipts finish the messages."""
    dead_letter_queue: str | None = None
    """The application's queue for the dead letters of a stream, if it named one."""
    origin: str = ""
    """Sender that gave the rows, if the committer only passes them on.

    See :mod:`srmp_spark.srmp.sending.outgoing_room`.
    """


class Shared(NamedTuple):
    """Values that the rows of one part share."""

    destination: str
    """Canonical name of the queue."""
    kind: Kind
    identity: str
    """GUID of this queue manager: the lineage of every message that it sends."""
    ids_base: int
    """Message identifier minus serial, which is the same for all rows of the part."""
    enqueued_at: int
    """Time of the commit, in microseconds since 1970, UTC."""
    final: bool
    """Whether the messages have ``<DeadLetter/>``: a final stream receipt finishes them."""


_SLACK_BYTES = 256
"""Bytes for the end mark of an Arrow stream and for the alignment of its messages."""


class Packed(NamedTuple):
    """A group of waiting rows as it is stored: an Arrow IPC stream of one batch, and its crc32."""

    crc: int
    data: pa.Buffer


def pack_group(batch: pa.RecordBatch) -> Packed:
    """Return the stored form of the rows of ``batch``, without columns that are all null.

    The columns of ``batch`` are some of :data:`STORED`, and those of forwarded messages.
    """
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
    """Return the rows of a stored group, without the columns that are all null.

    ``where`` names the group in the error's text. Raises :class:`StoreDamagedError` if the checksum
    does not match, if ``data`` are not bytes, or if the bytes are no Arrow stream.
    """
    if not isinstance(data, bytes) or zlib.crc32(data) != crc:
        raise StoreDamagedError(
            f"the checksum of {where} does not match: the disk or a copy of it is damaged"
        )
    try:
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            return reader.read_next_batch()
    except (pa.ArrowException, StopIteration) as error:
        # Empty data has the checksum 0, so the checksum does not detect it.
        raise StoreDamagedError(
            f"{where} is no Arrow stream ({error!r}): the disk or a copy of it is damaged"
        ) from error


def messages_of(
    batch: pa.RecordBatch, indices: Sequence[int], serials: Iterable[int], shared: Shared
) -> list[StoredMessage]:
    """Return the rows at ``indices`` of the group ``batch`` as the messages that are sent.

    The messages are in the order of ``indices``. ``serials`` has the serial of each of these rows.
    Raises :class:`StoreDamagedError` if one of the rows is no message.
    """
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
    """Return a message that is forwarded as it was received.

    A message without a message identifier gets one of this queue manager (``identity``,
    ``uniquifier``), so that its next receiver detects a repeat. Raises :class:`StoreDamagedError`
    if the message cannot be parsed again.
    """
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
    """Return the names for a ``<…Mqf>`` element, or an empty tuple for fewer than two queues.

    SRMP has another element for one queue.
    """
    if text is None or "," not in text:
        return ()
    names = format_names(text)
    return tuple(_bare(name) if "://" in name else name for name in names) if len(names) > 1 else ()


def _first(text: str) -> str:
    """Return the first queue in ``text``, which names one queue or several.

    Some SRMP elements have room for one queue only (``<via>``, ``<sendTo>``).
    """
    return format_names(text)[0] if "," in text else text


def _bare(address: str) -> str:
    return address[7:] if address[:7].upper() == "DIRECT=" else address
