"""Restore streams and message identifiers as of the newest row of ``inbox``.

The tables ``incoming_streams`` and ``message_id_history`` are written after ``inbox``. A queue
manager that ended in between left rows that these tables do not count. Without the streams and
identifiers of these rows a sender's repeat would make a second row.

**Messages for other hosts** are different. Their rows are restored, but not sent from there,
because it is unknown which were sent. So the newest of these messages do not count if their senders
may have no receipt. A sender may still have the message. A receipt, or a known identifier, would
end the message on both sides. So the message is accepted again and sent under its identifier, and a
receiver that got it before recognizes the identifier. Only messages that wait in the new outbox
(:meth:`ReceivedState.is_outgoing`) count.

A stream is counted by the destination in ``<to>``, which stands in the row, and not by the queue
that holds the row.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from srmp_spark.canonical_url import canonical_destination
from srmp_spark.errors import ConfigurationError, StoreDamagedError
from srmp_spark.message import StreamId
from srmp_spark.names import FORWARD_QUEUE, parse_queue_url
from srmp_spark.srmp.receiving.effects import Changes
from srmp_spark.srmp.receiving.history import HistoryChanges, HistoryRun, MessageIdHistory
from srmp_spark.srmp.receiving.stream_effects import IncomingStreamRow
from srmp_spark.srmp.receiving.stream_name import (
    StreamName,
    name_of_foreign_queue,
    name_of_house_stream,
    name_of_queue,
)
from srmp_spark.srmp.receiving.trust_domain import lineage_key
from srmp_spark.store.database.set_aside import SetAside
from srmp_spark.store.restore.known_queues import micros
from srmp_spark.store.tables import state

Identifier = tuple[str, int]
"""Identifier of a message in the history: :func:`.lineage_key`, and the uniquifier."""

_UNSIGNED = (1 << 64) - 1
COLUMNS = (
    "queue",
    "sequence",
    "arrived_at",
    "transport",
    "peer",
    "sender_name",
    "source_qm",
    "lineage",
    "uniquifier",
    "stream_id",
    "stream_sequence",
    "destination",
)


class ReceivedState:
    """Collects incoming streams and message identifiers, then writes them to the database.

    Call :meth:`take` for the newest rows of ``inbox``, :meth:`is_outgoing` for waiting messages to
    other hosts, and :meth:`write` last.
    """

    def __init__(
        self, streams: Iterable[Mapping[str, Any]], history: Iterable[Mapping[str, Any]]
    ) -> None:
        """Read the rows of the tables ``incoming_streams`` and ``message_id_history``.

        A stream whose name cannot be read is added to :attr:`unreadable`.
        """
        self.unreadable: list[SetAside] = []
        """Streams that cannot be restored, because their names cannot be read."""
        self.streams: dict[tuple[StreamName, str], IncomingStreamRow] = {}
        self._forwarded: dict[Identifier, int | None] = {}
        """Identifiers of messages for other hosts that must not be known, unless these wait in the
        outbox. The value is the arrival time; ``None``: ``history`` already has the identifier.
        """
        self._senders: dict[tuple[str, int], set[str]] = {}
        """The keys in ``_forwarded`` by the lineage and uniquifier that they share."""
        self._positions: dict[tuple[StreamName, str], dict[int, Identifier]] = {}
        """Positions in the streams of these messages, each with its message."""
        for row in streams:
            try:
                stream = _stream_of(row["stream_id"])
            except StoreDamagedError as error:
                self.unreadable.append(
                    SetAside("incoming_streams", f"{row['queue']} {row['stream_id']}", str(error))
                )
                continue
            # The column is called queue, and holds the name by which a stream is counted.
            name = StreamName(row["queue"])
            self.streams[name, stream.guid] = IncomingStreamRow(
                name,
                stream.guid,
                stream.ordinal,
                row["sequence_number"],
                row["last_acknowledged"],
                row["send_receipts_to"] or "",
                row["peer"] or "",
                row["source_qm"],
                row["reject_count"],
                micros(row["started_at"]) or 0,
                micros(row["last_access_at"]) or 0,
                row["sender_name"],
            )
        self.history = MessageIdHistory.load(
            HistoryRun(
                row["lineage"],
                row["uniquifier_first"] & _UNSIGNED,
                row["uniquifier_last"] & _UNSIGNED,
                micros(row["last_received_at"]) or 0,
            )
            for row in history
        )
        self._undivided_until = 0 if self.history.is_divided else self.history.newest or 0

    def __repr__(self) -> str:
        return f"<Received streams={len(self.streams)} {self.history!r}>"

    def take(self, rows: pa.RecordBatch) -> None:
        """Count the streams and message identifiers of rows of ``inbox``.

        The tables may lack them. The rows belong to one queue and are in the order of its
        sequences. A stream that cannot be read is added to :attr:`unreadable`.
        """
        for row in rows.select(list(COLUMNS)).to_pylist():
            at = micros(row["arrived_at"]) or 0
            in_stream = row["stream_id"] is not None and row["stream_sequence"] is not None
            stream = self._stream_of_row(row) if in_stream else None
            if row["queue"] == FORWARD_QUEUE:
                self._take_forwarded(row, stream, at)
                continue
            if (
                row["lineage"] is not None
                and row["uniquifier"] is not None
                and not self.history.seen(*_identifier_of(row))
            ):
                self.history.add(*_identifier_of(row), at)
            if stream is not None:
                self._take_position(row, stream, at)

    def _stream_of_row(self, row: Mapping[str, Any]) -> StreamId | None:
        """Return the stream in which a row of ``inbox`` arrived; ``None`` if it cannot be read.

        The row itself is restored in any case.
        """
        try:
            return _stream_of(row["stream_id"])
        except StoreDamagedError as error:
            self.unreadable.append(
                SetAside("inbox", f"{row['queue']} {row['sequence']}", str(error))
            )
            return None

    def _take_forwarded(self, row: Mapping[str, Any], stream: StreamId | None, at: int) -> None:
        """Count a message for another host as received if its sender may have a receipt.

        Otherwise the message is noted as not counted: :meth:`write` leaves its identifier out,
        unless :meth:`is_outgoing` counts it. A message outside a stream whose identifier is already
        known stays counted.
        """
        if row["lineage"] is None or row["uniquifier"] is None:
            return
        who = _identifier_of(row)
        counted = stream is not None and self._is_acknowledged(row, stream, who, at)
        seen = self.history.seen(*who)
        if counted:
            if not seen:
                self.history.add(*who, at)
        elif not seen or stream is not None:
            self._forwarded[who] = None if seen else at
            self._senders.setdefault((row["lineage"], who[1]), set()).add(who[0])

    def _is_acknowledged(
        self, row: Mapping[str, Any], stream: StreamId, who: Identifier, at: int
    ) -> bool:
        """Return whether the sender may have a receipt for the stream position of ``row``.

        ``who`` is the identifier of the message, and ``at`` its arrival time. If the result is
        ``False``, the method also sets the stream back to the position before, if the stream is
        known (:meth:`_count_outgoing` may move it forward again).
        """
        position: int = row["stream_sequence"]
        known = next(
            (
                found
                for key in _names_of(row)
                if (found := self.streams.get((key, stream.guid))) is not None
            ),
            None,
        )
        if known is None:
            return False
        if (stream.ordinal, position) <= (known.stream_ordinal, known.last_acknowledged):
            return True
        key = known.queue, stream.guid
        if stream.ordinal > known.stream_ordinal:
            # The stream began after the table was written, so nothing of it is counted.
            self._positions.pop(key, None)
            known = known._replace(
                stream_ordinal=stream.ordinal,
                sequence_number=0,
                last_acknowledged=0,
                reject_count=0,
                started_at=at,
                last_access_at=at,
                sender_name=row["sender_name"],
            )
        if stream.ordinal == known.stream_ordinal:
            self.streams[key] = known._replace(
                sequence_number=min(known.sequence_number, position - 1)
            )
            self._positions.setdefault(key, {})[position] = who
        return False

    def _count_outgoing(self) -> None:
        """Move streams of messages for other hosts forward up to the first missing message.

        A message is missing if it does not wait in the new outbox.
        """
        for key, positions in self._positions.items():
            for position, who in sorted(positions.items()):
                if who in self._forwarded:
                    break
                self.streams[key] = self.streams[key]._replace(sequence_number=position)

    @property
    def forwarded(self) -> Collection[Identifier]:
        """Return the identifiers of messages for other hosts that do not count as received so far.

        These messages may wait in the new outbox. :meth:`is_outgoing` removes an identifier.
        """
        return self._forwarded.keys()

    def is_outgoing(self, lineage: str, uniquifier: int) -> None:
        """Count a message for another host as received, because it waits in the new outbox.

        So it need not arrive again. The envelope of a message does not state the sender. If two
        senders are possible, neither message is counted: both are accepted again, so that the wrong
        one is not lost.
        """
        keys = self._senders.get((lineage, uniquifier), ())
        if len(keys) != 1:
            return
        (key,) = keys
        at = self._forwarded.pop((key, uniquifier), None)
        if at is not None:
            self.history.add(key, uniquifier, at)

    def _take_position(self, row: Mapping[str, Any], stream: StreamId, at: int) -> None:
        key = _names_of(row)[0], stream.guid
        known = self.streams.get(key)
        if known is not None and (stream.ordinal, row["stream_sequence"]) <= (
            known.stream_ordinal,
            known.sequence_number,
        ):
            return
        if known is None or known.stream_ordinal != stream.ordinal:
            # The stream began after the table was written. The address for its receipts stood only
            # in its <start>, and in no row. Its sender has one address for all its streams, so
            # another stream of it has the address. If there is none, nothing is noted: the sender
            # has had no receipt, or begins again. By their identifiers its repeats make no second
            # row.
            url = next(
                (
                    each.send_receipts_to
                    for each in self.streams.values()
                    if each.guid == stream.guid
                ),
                "",
            )
            if not url:
                return
            known = IncomingStreamRow(
                key[0],
                stream.guid,
                stream.ordinal,
                0,
                0,
                url,
                "",
                None,
                0,
                at,
                at,
                row["sender_name"],
            )
        self.streams[key] = known._replace(
            sequence_number=row["stream_sequence"],
            peer=row["peer"] or "",
            source_qm=row["source_qm"],
            last_access_at=at,
        )

    def write(self, db: sqlite3.Connection) -> None:
        """Write streams and message identifiers into the database, in the caller's transaction.

        Call the method last. Identifiers of messages for other hosts that do not count (see the
        module) are left out.
        """
        self._count_outgoing()
        history = HistoryChanges(list(_without(self.history.rows(), self._forwarded)), [])
        state.divide_history(db, self._undivided_until)
        state.save_changes(db, Changes(list(self.streams.values()), history, [], 0))


def _identifier_of(row: Mapping[str, Any]) -> Identifier:
    return lineage_key(row["lineage"], row["transport"], row["sender_name"]), row[
        "uniquifier"
    ] & _UNSIGNED


def _stream_of(text: str) -> StreamId:
    guid, _, ordinal = text.removeprefix("uid:").partition("\\")
    if not guid or not (ordinal.isascii() and ordinal.isdigit()):
        raise StoreDamagedError(f"a state table names a stream {text!r}: uid:GUID\\N is expected")
    return StreamId(guid, int(ordinal))


def _names_of(row: Mapping[str, Any]) -> tuple[StreamName, ...]:
    """Return the names by which the stream of ``row`` may be counted, the likelier one first.

    There is one name, except in the queue of messages for other hosts. In that queue ``<to>`` may
    name another host, or this host with a redirection; the state does not tell which hosts are this
    one. Messages that were made here have a ``<to>`` of this host.
    """
    try:
        url = canonical_destination(row["destination"] or "")
        queue = name_of_queue(parse_queue_url(url).queue)
    except (ConfigurationError, ValueError):
        # A multicast address belongs to no host.
        return (name_of_queue(row["queue"]),)
    if row["transport"] == "api":
        return (name_of_house_stream(queue),)
    return (name_of_foreign_queue(url), queue) if row["queue"] == FORWARD_QUEUE else (queue,)


def _without(
    runs: Iterable[HistoryRun], left_out: Collection[tuple[str, int]]
) -> Iterator[HistoryRun]:
    """Yield the runs of identifiers without those in ``left_out``; a run may be split."""
    of_lineage: dict[str, list[int]] = {}
    for lineage, number in left_out:
        of_lineage.setdefault(lineage, []).append(number)
    for run in runs:
        first = run.first
        for number in sorted(
            each for each in of_lineage.get(run.lineage, ()) if run.first <= each <= run.last
        ):
            if number > first:
                yield run._replace(first=first, last=number - 1)
            first = number + 1
        if first <= run.last:
            yield run._replace(first=first)
