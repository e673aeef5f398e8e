"""Make the answers for remote readers: messages as packets, and the priority of each row.

This runs in the reader process. A row that arrived over HTTP is an SRMP message, and its POST is
stored as it arrived. Any other row is a binary message: for example a message that the API of
srmp-spark accepted, or a restored row, which has columns and no POST. Both kinds are framed for the
main process, which only splits the frames and sends them:

    sequence u64 · arrived_at u32, seconds · kind u8 ·
    lengths of head, counted part, tail (3 × u32) · these three

A row that fits in no packet is framed too, with the reason as its head. The main process then
reports the reason and does not skip the row.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from srmp_spark.errors import LocalProtocolError, StoreDamagedError
from srmp_spark.mqrr.packet_of_message import ArrivedPost, PacketOrigin, packet_of
from srmp_spark.mqrr.packets.host_address import NO_ADDRESS, HostAddress, ip_address
from srmp_spark.mqrr.packets.limits import SUBQUEUE_NAME_SIZE
from srmp_spark.mqrr.packets.trailers import SubqueueHeader
from srmp_spark.queue_manager.reader.frames import BINARY, FRAME, RUN, SRMP, UNREADABLE
from srmp_spark.rows.decode import decode
from srmp_spark.rows.group import Form, Record, pack_group
from srmp_spark.store.stored_rows.log import GroupChunk, Log
from srmp_spark.store.stored_rows.reading import batches, chunk_records, records
from srmp_spark.store.tables.moves import Moves

HTTP_TRANSPORTS = ("http", "https")
GROUP_BYTES_MAX = 4 * 1024 * 1024
"""Bytes up to which an answer also contains the rest of a group, if fewer bytes were asked for."""
PEERS_REMEMBERED = 256
"""Number of addresses, parsed from the names of peers, that are cached.

A queue has few senders at a time.
"""
REASON_MAX = 500
"""Most characters of the reason why a row cannot be a packet. A longer reason is cut."""


def message_frames(
    log: Log, queue: str, epoch: str, after: int, to: int, max_bytes: int
) -> Iterator[bytes]:
    """Yield the rows of (after, to] as frames, in order, until they have ``max_bytes`` together.

    At least one row is yielded if there is any, and the rest of a group of rows may follow up to
    GROUP_BYTES_MAX. Raises as :meth:`Log.chunks`.
    """
    sent, moves = 0, log.moves(queue, after, to)
    for chunk in log.chunks(queue, epoch, after, to, max_bytes):
        # A group was unpacked and checked as a whole, so the rest of it is sent too. A segment is
        # too large for that.
        limit = max(max_bytes, GROUP_BYTES_MAX) if isinstance(chunk, GroupChunk) else max_bytes
        for sequence, record in chunk_records(chunk):
            frame = _frame(queue, sequence, record, moves.get(sequence))
            yield frame
            sent += len(frame)
            if sent >= limit:
                return
        if sent >= max_bytes:
            return


def record_blob(log: Log, queue: str, epoch: str, sequence: int) -> Iterator[bytes]:
    """Yield the row ``sequence`` in its stored form, as a packed group of one row.

    Nothing is yielded if there is no such row. Raises as :meth:`Log.chunks`.
    """
    for found, record in records(log, queue, epoch, sequence - 1, sequence):
        yield pack_group(found, [record])


def _frame(queue: str, sequence: int, record: Record, moves: Moves | None) -> bytes:
    try:
        decoded = decode(queue, [(sequence, record)])
        message, parts = decoded.messages[0], decoded.parts[0]
        post = None
        if record.arrival.transport in HTTP_TRANSPORTS and record.form is not Form.COLUMNS:
            at, (start, end) = record.head_length, parts.envelope
            first, last = parts.body or (0, 0)
            envelope = record.post[at + start : at + end].decode()
            post = ArrivedPost(envelope, record.post, at + first if parts.body else 0, last - first)
        subqueue = SubqueueHeader(subqueue_name=_subqueue(queue))
        if moves is not None:
            time = _last_move_time(moves.last_moved_at)
            subqueue = replace(subqueue, move_counter=moves.counter, last_move_time=time)
        packet = packet_of(
            message,
            PacketOrigin(post=post, received_from=_address(record.arrival.peer), subqueue=subqueue),
        )
        head, counted, tail = packet.encode_pieces()
        kind = SRMP if post is not None else BINARY
    except (LocalProtocolError, StoreDamagedError) as error:
        head, counted, tail, kind = str(error)[:REASON_MAX].encode(), b"", b"", UNREADABLE
    seconds = min(max(record.arrival.at // 1_000_000, 0), 0xFFFFFFFF)
    return b"".join(
        (
            FRAME.pack(sequence, seconds, kind, len(head), len(counted), len(tail)),
            head,
            counted,
            tail,
        )
    )


def _subqueue(queue: str) -> str:
    """Return the subqueue's name in ``queue``, or "" if it has none.

    A name that is longer than MSMQ allows counts as none.
    """
    name = queue.partition(";")[2]
    return name if len(name.encode("utf-16-le")) < SUBQUEUE_NAME_SIZE else ""


def _last_move_time(moved_at: int) -> int:
    """Return LastMoveTime in milliseconds: the low 32 bits of the time, but never 0.

    A value of 0 means that the message was never moved. ``moved_at`` is in microseconds.
    """
    return moved_at // 1_000 & 0xFFFFFFFF or 1


@lru_cache(PEERS_REMEMBERED)
def _address(peer: str) -> HostAddress:
    host = peer.rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        return ip_address(ipaddress.ip_address(host).packed)
    except ValueError:  # A message of the API has no address.
        return NO_ADDRESS


def priority_runs(
    log: Log, queue_manager: str, queue: str, epoch: str, after: int, to: int
) -> Iterator[bytes]:
    """Yield the runs of consecutive rows in (after, to] of equal priority, each packed by RUN.

    A run is its priority, first and last sequence. Raises as :func:`batches`.
    """
    run: tuple[int, int, int] | None = None
    for batch in batches(log, queue_manager, queue, epoch, after, to):
        pairs = zip(
            batch.column("sequence").to_pylist(), batch.column("priority").to_pylist(), strict=True
        )
        for sequence, priority in pairs:
            if run is not None and run[0] == priority and run[2] == sequence - 1:
                run = priority, run[1], sequence
                continue
            if run is not None:
                yield RUN.pack(*run)
            run = priority, sequence, sequence
    if run is not None:
        yield RUN.pack(*run)
