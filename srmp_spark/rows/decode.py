"""Decode stored posts into rows with the columns of INTERFACE.md section 4.

A post is decoded when a row is read, not when the message is accepted. So the accepting process
never waits for a column, and a better decoder also serves old messages. :mod:`.made_columns` makes
the requested columns from the decoded messages.

A stored record was decoded once before the message was accepted. If the record cannot be decoded
now, the record is damaged. Damage is an error that names queue and sequence, never a missing row.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Values
from contextlib import contextmanager

import pyarrow as pa

from srmp_spark.errors import RemoteProtocolError, StoreDamagedError
from srmp_spark.message import Message
from srmp_spark.mqrr.message_of_packet import message_of
from srmp_spark.mqrr.packets.message_packet import parse_message_packet
from srmp_spark.rows.columns import NAMES
from srmp_spark.rows.group import Form, Record
from srmp_spark.rows.kept_columns import columns_of_record, message_of_columns
from srmp_spark.rows.made_columns import Decoded, columns_of, with_log_columns
from srmp_spark.rows.reliable import read_soap
from srmp_spark.srmp.codec.decoder import decode_parts
from srmp_spark.srmp.codec.http_head import content_type_of, soap_action_of
from srmp_spark.srmp.codec.mime import Parts

HEADS_MAX = 4096
"""Largest number of HTTP heads that are remembered within a batch.

The heads of one sender differ in the length only. At the limit all remembered heads are discarded.
"""


@contextmanager
def _no_collection() -> Iterator[None]:
    """Turn Python's cycle collector off while a ``with`` block decodes one batch.

    The collector would scan 50,000 new tuples again and again, which takes a fifth of the time.
    None of these tuples is in a cycle, and all of them are released with the batch.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


_NO_PARTS = Parts((0, 0), None, None)


def decode(
    queue: str, pairs: Iterable[tuple[int, Record]], messages: Mapping[int, Message] | None = None
) -> Decoded:
    """Decode stored records of ``queue``, and return them as :class:`.Decoded`.

    ``pairs`` are (sequence, record). ``messages`` holds, by sequence, messages of packets
    (:attr:`.Form.PACKET`) that were already decoded. Raises :class:`StoreDamagedError`, which names
    queue and sequence, if a record can no longer be decoded as a message.
    """
    decoded = Decoded([], [], [], [], [], [], [])
    known: dict[bytes, tuple[bytes, str | None]] = {}
    for sequence, record in pairs:
        _, post, head_length, form = record
        if form is Form.PACKET:
            message = (messages or {}).get(sequence) or read_packet(
                queue, sequence, post[head_length:]
            )
            decoded.add(sequence, record, message, None, _NO_PARTS)
            continue
        if form is Form.WSRM:
            message, action, numbered = read_soap(queue, sequence, post[head_length:])
            decoded.add(
                sequence,
                record,
                message,
                action,
                Parts((0, len(post) - head_length), None, None),
                numbered,
            )
            continue
        if form is Form.COLUMNS:
            columns = columns_of_record(queue, sequence, record)
            decoded.add(
                sequence, record, message_of_columns(columns), None, _NO_PARTS, kept=columns
            )
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
            raise StoreDamagedError(
                f"row {sequence} of {queue} is stored but cannot be decoded: {error}"
            ) from error
        decoded.add(sequence, record, message, found[1], parts)
    return decoded


def read_packet(queue: str, sequence: int, packet: bytes) -> Message:
    """Return the message of a stored message packet ([MS-MQRR] 2.2.5).

    ``queue`` and ``sequence`` name the row in the text of the error. Raises
    :class:`StoreDamagedError` if the packet cannot be decoded: the packet was readable when it was
    stored.
    """
    try:
        return message_of(parse_message_packet(packet))
    except RemoteProtocolError as error:
        raise StoreDamagedError(
            f"row {sequence} of {queue} is stored but cannot be decoded: {error}"
        ) from error


def rows_of(
    queue_manager: str | None,
    epoch: str | None,
    queue: str,
    pairs: Iterable[tuple[int, Record]],
    envelope: bool = False,
    *,
    messages: Mapping[int, Message] | None = None,
    names: Values[str] = NAMES,
) -> pa.RecordBatch:
    """Return one batch of rows from (sequence, record) pairs, with the columns ``names``.

    The rows are in the order of ``pairs``. With ``envelope`` the column ``envelope`` is filled if
    ``names`` has it; it is empty for messages of remote queues, and null for rows that have only
    their columns. Without ``envelope`` the column is null. Queue manager and epoch are ``None`` for
    rows that are in no log of this queue manager. ``messages`` is passed to :func:`decode`. Raises
    :class:`StoreDamagedError` if a record can no longer be decoded as a message.
    """
    with _no_collection():
        decoded = decode(queue, pairs, messages)
        if not decoded.sequences:
            return with_log_columns({}, 0, queue_manager, epoch, queue, names)
        columns = columns_of(decoded, names)
    if envelope and "envelope" in names:
        contents = [
            None
            if record.form is Form.COLUMNS
            else record.post[
                record.head_length + parts.envelope[0] : record.head_length + parts.envelope[1]
            ].decode()
            for record, parts in zip(decoded.records, decoded.parts, strict=True)
        ]
        columns["envelope"] = pa.array(contents, pa.string())
    return with_log_columns(columns, len(decoded.sequences), queue_manager, epoch, queue, names)
