"""What was received: streams and message identifiers, as of the newest row of ``inbox``.

The tables ``incoming_streams`` and ``message_id_history`` are written after ``inbox``, so a queue manager that ended in between
left rows that they do not count. Without these a sender's repeat would make a second row.

**Messages for other hosts** are another matter. Their rows come back, and are not sent on from there: nobody knows which were.
So of the newest of them nothing counts that their senders may not have been told. A sender may still have the message; a
receipt, or an identifier that is known, would be its end on both sides. It is taken anew and sent on under its identifier:
who got it before knows that. Only what waits in the outbox again (:meth:`Received.is_outgoing`) counts.

A stream is counted by what ``<to>`` names, which stands in the row, and not by the queue that the row is in.
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
from srmp_spark.srmp.effects import Changes
from srmp_spark.srmp.history import HistoryChanges, HistoryRun, MessageIdHistory
from srmp_spark.srmp.stream_effects import IncomingStreamRow
from srmp_spark.srmp.stream_name import (
    StreamName,
    name_of_foreign_queue,
    name_of_house_stream,
    name_of_queue,
)
from srmp_spark.srmp.trust_domain import lineage_key
from srmp_spark.store import state
from srmp_spark.store.restore.known_queues import micros
from srmp_spark.store.set_aside import SetAside

Identifier = tuple[str, int]
"""A message to the history: :func:`.lineage_key`, and the uniquifier."""

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


class Received:
    """Collects, then writes."""

    def __init__(
        self, streams: Iterable[Mapping[str, Any]], history: Iterable[Mapping[str, Any]]
    ) -> None:
        """Take the rows of both tables."""
        self.unreadable: list[SetAside] = []
        """Streams that cannot be restored, because what names them cannot be read."""
        self.streams: dict[tuple[StreamName, str], IncomingStreamRow] = {}
        self._forwarded: dict[Identifier, int | None] = {}
        """Identifiers of messages for other hosts that must not be known, unless they wait in the outbox: when they came;
        ``None``: ``history`` knows it already."""
        self._senders: dict[tuple[str, int], set[str]] = {}
        """The keys in ``_forwarded`` by the lineage and uniquifier that they have in common."""
        self._positions: dict[tuple[StreamName, str], dict[int, Identifier]] = {}
        """Of streams of such messages: position, and the message."""
        for row in streams:
            try:
                stream = _stream_of(row["stream_id"])
            except StoreDamagedError as error:
                self.unreadable.append(
                    SetAside("incoming_streams", f"{row['queue']} {row['stream_id']}", str(error))
                )
                continue
            name = StreamName(
                row["queue"]
            )  # the column has this name, and means what a stream is counted by
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
        """Rows of ``inbox``, of one queue in the order of its sequences."""
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
        """Return what stream a row of ``inbox`` came in; the row is restored also if that cannot be read."""
        try:
            return _stream_of(row["stream_id"])
        except StoreDamagedError as error:
            self.unreadable.append(
                SetAside("inbox", f"{row['queue']} {row['sequence']}", str(error))
            )
            return None

    def _take_forwarded(self, row: Mapping[str, Any], stream: StreamId | None, at: int) -> None:
        """A message for another host that the tables may not count yet: see above."""
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
        """Whether the sender was told that this position arrived. If not, its stream goes back before it for now."""
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
        if (
            stream.ordinal > known.stream_ordinal
        ):  # it began after the table was written: nothing of it is counted
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
        """Streams of messages for other hosts count as far as nothing of them is missing in the outbox."""
        for key, positions in self._positions.items():
            for position, who in sorted(positions.items()):
                if who in self._forwarded:
                    break
                self.streams[key] = self.streams[key]._replace(sequence_number=position)

    @property
    def forwarded(self) -> Collection[Identifier]:
        """Those messages for other hosts of which it is asked whether they wait in the outbox."""
        return self._forwarded.keys()

    def is_outgoing(self, lineage: str, uniquifier: int) -> None:
        """This message for another host waits in the outbox: it need not come again.

        Its envelope does not say who sent it. If it may be of two senders both are taken anew, rather than the wrong one lost.
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
            # A stream that began after the table was written. Where its receipts go stood in its <start> alone, and in no row;
            # its sender has one address for all of them. Of one that is quite unknown nothing is noted: its sender has had no
            # receipt, or begins anew, and by their identifiers its repeats make no second row.
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
        """Into the database, in the caller's transaction."""
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
    """What the row's stream may be counted by: one name, but for the queue of messages for other hosts.

    There ``<to>`` may be of another host, or of this one and redirected; which hosts are this one, the state does not say. What
    was made here has ``<to>`` of this one.
    """
    try:
        url = canonical_destination(row["destination"] or "")
        queue = name_of_queue(parse_queue_url(url).queue)
    except (ConfigurationError, ValueError):
        return (name_of_queue(row["queue"]),)  # a multicast address is of no host
    if row["transport"] == "api":
        return (name_of_house_stream(queue),)
    return (name_of_foreign_queue(url), queue) if row["queue"] == FORWARD_QUEUE else (queue,)


def _without(
    runs: Iterable[HistoryRun], left_out: Collection[tuple[str, int]]
) -> Iterator[HistoryRun]:
    """The runs without these identifiers."""
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
