"""Stored posts into rows: where a message becomes the columns of INTERFACE.md section 4.

Done when a row is read, not when it is accepted: the accepting process never waits for a column, and a better decoder serves
old messages too. :mod:`.made_columns` makes those columns of the messages that somebody asked for.

A stored record was decoded once before it was accepted. If it cannot be decoded now, it was damaged: that is an error with
queue and sequence, never a row that is missing.
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
from srmp_spark.srmp.decoder import decode_parts
from srmp_spark.srmp.http_head import content_type_of, soap_action_of
from srmp_spark.srmp.mime import Parts

HEADS_MAX = 4096
"""HTTP heads remembered within a batch: of one sender they differ in the length only."""


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


_NO_PARTS = Parts((0, 0), None, None)


def decode(
    queue: str, pairs: Iterable[tuple[int, Record]], messages: Mapping[int, Message] | None = None
) -> Decoded:
    """Read the (sequence, record) pairs of a queue; ``messages``: of some, by sequence, that were read already.

    Raises :class:`StoreDamagedError` for a record that is no message any more.
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
    """The message of a stored packet. Raises :class:`StoreDamagedError`: it was read once before it was stored."""
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
    """Return one batch of the (sequence, record) pairs, in their order, with the columns ``names``.

    ``envelope`` fills the column of that name. ``None`` as queue manager and epoch: the rows are in no log of ours.
    ``messages`` as of :func:`decode`. Raises :class:`StoreDamagedError` for a record that is no message any more.
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
