"""Restore the data directory of a queue manager from its Delta state, after its disk was lost.

The command is ``srmp-spark restore``. The restore brings back:

- **Rows** that the log held, under their epochs and sequences, with the marks of their consumers,
  so readers go on. A new epoch begins after them, at a distance, because readers may have seen rows
  that Delta never had. So each queue skips :data:`SEQUENCES_SKIPPED` sequences, counted as holes of
  the old epoch, and no reader sees a sequence twice.
- **Incoming streams**, at the position of the newest row. The sender no longer has messages that
  were acknowledged beyond that. That is the loss, and it shows as ``gap_at`` when the sender goes
  on.
- **Reliable sessions** (WS-ReliableMessaging), at the number of the newest row, with the same
  consequence.
- **Identifiers** of received messages, so that a late copy makes no second row.
- **Messages that waited to be sent**, all of them in doubt and held (:mod:`.outgoing`).

A queue manager that is alive is asked first, and its answer refuses the restore (:mod:`.alive`). A
commit to ``inbox`` gives up the old data directory: if its disk comes back, its queue manager finds
the commit and ends.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from srmp_spark.errors import ConfigurationError, StoreError
from srmp_spark.names import FORWARD_QUEUE, ORDER_QUEUE
from srmp_spark.store.database.schema import connect_writer
from srmp_spark.store.database.set_aside import TOLD_MAX
from srmp_spark.store.delta.restore_watch import LOOK_SECONDS
from srmp_spark.store.delta.tables import table_specs
from srmp_spark.store.delta.tables.actions import LiveFile, answers_id, appends_id, restores_id
from srmp_spark.store.delta.tables.data_files import storage_of
from srmp_spark.store.delta.tables.state_table import PublishConflictError, StateTable
from srmp_spark.store.directory import DATABASE_FILE, SEGMENTS_DIRECTORY, write_first_identity
from srmp_spark.store.outbox.tables.forward_place import READ_TO as FORWARD_READ_TO
from srmp_spark.store.restore.alive import (
    OnWait,
    answer_seconds_of,
    refuse_if_alive,
    refuse_if_written_lately,
)
from srmp_spark.store.restore.known_queues import (
    KnownQueue,
    epochs_in_order,
    read_queues,
    write_queues,
)
from srmp_spark.store.restore.log_rows import LogRows, missing, pieces_of
from srmp_spark.store.restore.outgoing import (
    FINAL,
    POSITIONS_SKIPPED,
    OutgoingMessages,
    forwarded_identifier,
    newest,
    runs_of,
)
from srmp_spark.store.restore.received import ReceivedState
from srmp_spark.store.restore.report import Report, ReportLine
from srmp_spark.store.restore.sessions import Sessions
from srmp_spark.store.restore.stored_table import StoredTable
from srmp_spark.store.restore.target import new_directory
from srmp_spark.store.stored_rows import wide_parts
from srmp_spark.store.tables import epochs, holes, losses, state
from srmp_spark.store.tables.holes import Hole

SEQUENCES_SKIPPED = 1 << 20
"""Sequences of a queue that may have been issued after the state was written: 200 s at 5,000
messages a second. If a reader has come further nevertheless, it stops (``failOnDataLoss``) and
misses nothing.
"""

GIVE_UP_TRIES = 20
"""Attempts to give up a queue manager.

A queue manager that publishes a backlog appends a few times a second, so one of twenty commits
comes between two of its own. After the last attempt :class:`PublishConflictError` is raised.
"""

_TABLES = {
    spec.name: spec
    for spec in (
        table_specs.inbox(),
        table_specs.message_id_history(),
        table_specs.incoming_streams(),
        table_specs.queues(),
        table_specs.counters(),
        table_specs.outgoing_streams(),
        table_specs.outgoing_queue(),
        table_specs.dead_letter_queue(),
        table_specs.journal_queue(),
        table_specs.wsrm_sequences(),
    )
}
_SAID = {
    FINAL: "its peer accepted it; the application's receipt can no longer arrive",
    "queued": "not sent when the state was written; perhaps sent since",
}
"""Text for waiting messages by their state in Delta."""
RECEIPTS_READ_TO = "order_queue_read_to"
"""Key in the table ``meta`` of the outbox (queue_manager/sender/receipts.py)."""


def restore(
    state_uri: str,
    data_dir: Path,
    tell: Callable[[ReportLine], object],
    *,
    queue_manager: str | None = None,
    force: bool = False,
    now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    options: Mapping[str, str] | None = None,
    answer_seconds: float | None = None,
    on_wait: OnWait = lambda _: None,
) -> None:
    """Make the data directory ``data_dir`` from the Delta state, and give up the old one.

    ``tell`` gets each line of the report. ``queue_manager`` is the GUID, needed if the state has
    several. ``now`` returns the present time. ``options`` are storage options of deltalake. By
    default the queue manager is asked whether it is alive. The call waits up to ``answer_seconds``
    for the answer (default: :func:`.answer_seconds_of`), and calls ``on_wait`` before. With
    ``force`` it is not asked: it is given up before its state is read.

    Raises :class:`ConfigurationError` (exit code 2, also if the queue manager is alive),
    :class:`StoreInUseError` (5), :class:`StoreDamagedError` if the state is damaged or has a newer
    format (6), and :class:`StoreError`, also if the queue manager wrote during the restore. Without
    a normal end the directory cannot be used, and the same restore can be run again.
    """

    def read() -> dict[str, StoredTable]:
        return {name: StoredTable(state_uri, spec, options) for name, spec in _TABLES.items()}

    tables = read()
    guid = _chosen(tables, state_uri, queue_manager)
    if not force and not tables["inbox"].transaction(answers_id(guid)):
        refuse_if_written_lately(guid, state_uri, _written_at(tables, guid), now())
    with new_directory(data_dir) as path:
        storage = storage_of(state_uri, "inbox", options or {})
        inbox = StateTable(
            storage, table_specs.inbox(), guid, path / "delta" / "inbox", by_restore=True
        )
        if not force and inbox.answers:
            seconds = answer_seconds_of(state_uri) if answer_seconds is None else answer_seconds
            refuse_if_alive(
                inbox, guid, state_uri, _text_of(_written_at(tables, guid)), seconds, on_wait
            )
            tables = read()
        elif force:
            _give_up(inbox)
            tables = read()
        as_of = _written_at(tables, guid)
        appends, number = (
            tables["inbox"].transaction(name) for name in (appends_id(guid), restores_id(guid))
        )
        _Restore(tables, guid, path, Report(tell), state_uri, now(), as_of).run()
        inbox.refresh()
        wrote = _written_at(read(), guid) != as_of
        try:
            if not wrote:
                inbox.note_restore(number + 1, appends)
        except PublishConflictError:
            wrote = True
        if wrote:
            raise _not_alone(guid, state_uri, by_another=inbox.restores > number, is_given_up=force)


def _give_up(inbox: StateTable) -> None:
    """Commit that a queue manager, which may be alive, is given up; try GIVE_UP_TRIES times.

    The commit is made before anything that the queue manager wrote is read. From then on the queue
    manager appends nothing and ends at its next look at the table. Otherwise a queue manager that
    publishes all the time could never be given up: each of its publications would refuse the last
    commit of the restore. Raises :class:`PublishConflictError` if the last attempt fails.
    """
    for left in reversed(range(GIVE_UP_TRIES)):
        try:
            inbox.note_restore(inbox.restores + 1, inbox.appends)
        except PublishConflictError:  # noqa: PERF203
            # The queue manager appended rows at the same moment.
            if not left:
                raise
            inbox.refresh()
        else:
            return


def _not_alone(guid: str, uri: str, *, by_another: bool, is_given_up: bool) -> StoreError:
    if by_another:
        return StoreError(
            f"queue manager {guid} was restored from {uri} by another process meanwhile: use "
            "the data directory of that restore. The one that was made here will not start; "
            "restore again only if the other one is given up"
        )
    alive = f"queue manager {guid} wrote to {uri} while it was restored: it is alive. "
    if is_given_up:
        return StoreError(
            f"{alive}It was given up and ends within {LOOK_SECONDS:.0f} s: run the "
            "command again then"
        )
    return StoreError(f"{alive}Stop it, then restore again")


def _text_of(at: datetime | None) -> str:
    return (
        "an unknown time"
        if at is None
        else at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def _chosen(tables: Mapping[str, StoredTable], uri: str, wanted: str | None) -> str:
    found = sorted(set().union(*(table.queue_managers() for table in tables.values())))
    if not found:
        raise ConfigurationError(
            f"{uri} holds no state of a queue manager: give the URI that serve had as --state"
        )
    if wanted is None and len(found) > 1:
        raise ConfigurationError(
            f"{uri} holds {len(found)} queue managers, add --queue-manager GUID: {', '.join(found)}"
        )
    guid = found[0] if wanted is None else wanted.strip("{}").lower()
    if guid not in found:
        raise ConfigurationError(
            f"{uri} holds no queue manager {guid}; it holds {', '.join(found)}"
        )
    return guid


def _written_at(tables: Mapping[str, StoredTable], guid: str) -> datetime | None:
    return newest(table.written_at(guid) for table in tables.values())


class _Restore:
    """Restores the data directory ``path`` once; :meth:`run` does all steps."""

    def __init__(
        self,
        tables: Mapping[str, StoredTable],
        guid: str,
        path: Path,
        report: Report,
        uri: str,
        now: datetime,
        as_of: datetime | None,
    ) -> None:
        self._tables = tables
        self._guid = guid
        self._path = path
        self._report = report
        self._uri = uri
        self._at = round(now.timestamp() * 1_000_000)
        self._as_of = _text_of(as_of)
        self._files, self._damaged = tables["inbox"].files(guid)
        self._last_identifier = 0
        self._position = 0
        self._ceilings: dict[str, int] = {}
        """Highest number that may have been issued, by name."""
        self._newest: dict[str, int] = {}
        """Commit of the newest row, by table."""

    def run(self) -> None:
        """Restore rows, queues, streams, identifiers and waiting messages, and report them.

        The caller then makes the last commit to ``inbox``, which gives up the old data directory.
        """
        listed = list(self._rows("queues"))
        queues = read_queues(listed)
        received = ReceivedState(self._rows("incoming_streams"), self._rows("message_id_history"))
        sessions = Sessions(self._rows("wsrm_sequences"))
        self._ceilings = {row["name"]: int(row["ceiling"]) for row in self._rows("counters")}
        self._read_tail(queues, received, sessions)
        order = epochs_in_order(queues.values())
        for queue in queues.values():
            for epoch in queue.epochs:
                queue.ends[epoch] = max(
                    queue.ends.get(epoch, 0),
                    self._tables["inbox"].published(self._guid, epoch, queue.name),
                )
        connection = connect_writer(self._path / DATABASE_FILE)
        try:
            connection.execute("BEGIN IMMEDIATE")
            # The table stays empty: earlier losses are in the Delta table.
            connection.execute(losses.DDL)
            connection.execute(wide_parts.DDL)
            ids = write_queues(connection, list(queues.values()), order, self._at)
            self._restore_rows(connection, queues, order, ids)
            self._skip(connection, queues, ids)
            outgoing = self._restore_outgoing(queues, order, received)
            received.write(connection)
            sessions.write(connection, ids)
            epoch = self._begin(connection, outgoing)
            connection.execute("COMMIT")
        finally:
            connection.close()
        write_first_identity(self._path, self._guid, self._position)
        self._tell(epoch, order, queues, received, outgoing, listed=bool(listed))
        self._tell_sessions(sessions)

    def _rows(self, name: str) -> Iterator[dict[str, Any]]:
        for row in self._tables[name].rows(self._guid):
            self._newest[name] = max(row["position"], self._newest.get(name, 0))
            self._position = max(row["position"], self._position)
            yield row

    # Incoming

    def _read_tail(
        self, queues: dict[str, KnownQueue], received: ReceivedState, sessions: Sessions
    ) -> None:
        """Count the rows of ``inbox`` that may be newer than the other tables.

        These rows are counted in ``queues``, in ``received`` (streams and identifiers) and in
        ``sessions``.
        """
        counting = [
            "queues",
            "incoming_streams",
            "message_id_history",
            *(["wsrm_sequences"] if sessions else []),
        ]
        known = min(self._newest.get(name, 0) for name in counting)
        tail = [file for file in self._files if (file.greatest["position"] or known) >= known]
        for batch in self._tables["inbox"].batches(tail, self._guid):
            self._note_numbers(batch)
            for epoch, name, rows in pieces_of(batch):
                queue = queues.setdefault(name, KnownQueue(name))
                sequences = pc.min_max(rows.column(rows.schema.get_field_index("sequence"))).as_py()
                queue.saw(epoch, sequences["min"] if queue.epochs else 1, sequences["max"])
                streams = rows.column(rows.schema.get_field_index("stream_sequence"))
                if not queue.listed and streams.null_count < len(streams):
                    queue.transactional = True
                received.take(rows)
                sessions.take(rows)

    def _note_numbers(self, batch: pa.RecordBatch) -> None:
        position = pc.max(batch.column(batch.schema.get_field_index("position"))).as_py()
        self._position = max(self._position, position or 0)
        own = pc.equal(batch.column(batch.schema.get_field_index("lineage")), self._guid)
        numbers = batch.column(batch.schema.get_field_index("uniquifier")).filter(own)
        self._last_identifier = max(self._last_identifier, pc.max(numbers).as_py() or 0)

    def _restore_rows(
        self,
        connection: sqlite3.Connection,
        queues: dict[str, KnownQueue],
        order: list[str],
        ids: dict[str, int],
    ) -> None:
        numbers = {epoch: number for number, epoch in enumerate(order, 1)}
        log = LogRows(connection, self._path / SEGMENTS_DIRECTORY, numbers, ids)
        oldest = min(
            (queue.trimmed_to for queue in queues.values() if queue.deleted_at is None), default=0
        )
        for batch in self._tables["inbox"].batches(
            (file for file in self._files if (file.greatest["sequence"] or oldest + 1) > oldest),
            self._guid,
        ):
            self._note_numbers(batch)
            for epoch, name, rows in pieces_of(batch):
                if name in queues and epoch in numbers:
                    newest_of = pc.max(rows.column(rows.schema.get_field_index("arrived_at")))
                    queues[name].last_arrived = newest(
                        (queues[name].last_arrived, newest_of.as_py())
                    )
                    log.take(epoch, queues[name], rows)
        log.finish(queues)
        for file in self._damaged:
            self._lost_file(file)

    def _lost_file(self, file: LiveFile) -> None:
        self._report.add(
            "lost",
            "rows",
            str(file.least.get("queue") or ""),
            f"the data file {self._tables['inbox'].uri}/{file.path} is missing or cut short; "
            "its rows that exist nowhere else are listed as lost below",
            count=file.rows,
        )

    def _skip(
        self, connection: sqlite3.Connection, queues: dict[str, KnownQueue], ids: dict[str, int]
    ) -> None:
        """Write holes for sequences without rows, and report those that are lost.

        The sequences are those that are missing in Delta, and SEQUENCES_SKIPPED that may have been
        issued after the state was written. Of a deleted queue, all sequences count as deleted by
        retention.
        """
        for queue in queues.values():
            if queue.deleted_at is not None:
                connection.execute(
                    "UPDATE queues SET trimmed_to = ? WHERE id = ?",
                    (queue.end + SEQUENCES_SKIPPED, ids[queue.name]),
                )
                continue
            end = queue.end
            lost = missing(queue)
            for first, last in lost:
                self._report.add(
                    "lost",
                    "rows",
                    queue.name,
                    "these sequences were issued and are not in Delta",
                    first=first,
                    last=last,
                    epoch=queue.epoch_of(first),
                )
            known = [
                Hole(first, last, reason)
                for first, last, reason in queue.holes
                if last > queue.trimmed_to
            ]
            known += [Hole(first, last, "lost") for first, last in lost]
            known.append(Hole(end + 1, end + SEQUENCES_SKIPPED, "lost"))
            connection.executemany(
                "INSERT OR REPLACE INTO holes VALUES (?, ?, ?, ?)",
                [(ids[queue.name], *hole) for hole in holes.joined(sorted(known))],
            )

    # Outgoing

    def _restore_outgoing(
        self, queues: Mapping[str, KnownQueue], order: list[str], received: ReceivedState
    ) -> OutgoingMessages:
        found = OutgoingMessages(self._path)
        try:
            found.take_streams(self._tables["outgoing_streams"].rows(self._guid))
            for name in ("dead_letter_queue", "journal_queue"):
                table = self._tables[name]
                for batch in table.batches(table.files(self._guid)[0], self._guid):
                    for row in batch.select(["message_id", "stream_id", "position"]).to_pylist():
                        found.take_ended(row)
            for row in self._tables["outgoing_queue"].rows(self._guid):
                found.take(row)
                if received.forwarded and (who := forwarded_identifier(row)) is not None:
                    received.is_outgoing(*who)
            epoch = order[-1] if order else "lost"
            ends = {
                name: queues[name].end + SEQUENCES_SKIPPED
                for name in (ORDER_QUEUE, FORWARD_QUEUE)
                if name in queues
            }
            read_to = {RECEIPTS_READ_TO: str(ends.get(ORDER_QUEUE, 0))}
            # Restored rows of this queue have no POST that could be sent.
            if FORWARD_QUEUE in ends:
                read_to[FORWARD_READ_TO] = json.dumps([epoch, ends[FORWARD_QUEUE]])
            found.write(
                queue_manager=self._guid,
                epoch=epoch,
                read_to=read_to,
                at=self._at,
                identifiers_to=self._ceilings.get(state.MESSAGE_IDENTIFIERS, 0),
            )
        finally:
            found.close()
        return found

    # The end of the restore

    def _begin(self, connection: sqlite3.Connection, outgoing: OutgoingMessages) -> str:
        """Begin the new epoch, and skip identifiers and commit numbers that may be in use.

        Call the method after all rows are written. Return the name of the epoch.
        """
        for name, ceiling in self._ceilings.items():
            state.raise_ceiling(connection, name, ceiling)
        last = max(self._last_identifier, outgoing.last_identifier)
        state.raise_ceiling(connection, state.MESSAGE_IDENTIFIERS, last)
        state.skip_used_identifiers(connection)
        restores = self._tables["inbox"].transaction(restores_id(self._guid)) + 1
        connection.execute(
            "INSERT INTO meta VALUES ('queue_manager', ?), ('created_at', ?), ('starts', "
            "1), ('restores', ?)",
            (self._guid, self._at, restores),
        )
        self._position += POSITIONS_SKIPPED
        connection.execute("UPDATE head SET position = ?", (self._position,))
        return epochs.begin(
            connection, secrets.token_hex(8), self._at, f"restored from {self._uri}"
        ).epoch

    def _tell(
        self,
        epoch: str,
        order: list[str],
        queues: Mapping[str, KnownQueue],
        received: ReceivedState,
        outgoing: OutgoingMessages,
        *,
        listed: bool,
    ) -> None:
        add = self._report.add
        self._tell_queues(queues, order[-1] if order else None)
        for each in received.unreadable[:TOLD_MAX]:
            add(
                "lost",
                "incoming_stream",
                each.key,
                f"{each.reason}; its sender begins a new one, and its rows are here",
            )
        for stream in sorted(received.streams.values()):
            add(
                "restored",
                "incoming_stream",
                stream.queue,
                "continues here; if its sender is past it, status shows gap_at: the messages "
                "between are lost",
                last=stream.sequence_number,
                stream_id=f"uid:{stream.guid}\\{stream.stream_ordinal}",
                sequence_number=stream.sequence_number,
            )
        add(
            "restored",
            "identifiers",
            "",
            "runs of identifiers of received messages",
            count=len(received.history),
        )
        self._tell_outgoing(outgoing)
        if FORWARD_QUEUE in queues and queues[FORWARD_QUEUE].covered:
            add(
                "may_be_lost",
                "forwarded",
                FORWARD_QUEUE,
                "messages for other hosts that were not in outgoing_queue yet are not sent "
                "from here: their rows are in this queue, the received bytes are not; the "
                "newest are accepted again if their senders still have them",
            )
        if not listed:
            add(
                "may_be_lost",
                "consumer",
                "",
                "the state is of a version that did not write queues and marks: every row is "
                "restored as not received, and each queue has the kind of its rows",
            )
        add(
            "restored",
            "queue_manager",
            self._guid,
            f"from {self._uri}, last written at {self._as_of}; serve begins with the new epoch",
            epoch=epoch,
            as_of=self._as_of,
        )

    def _tell_queues(self, queues: Mapping[str, KnownQueue], epoch: str | None) -> None:
        for queue in sorted(queues.values(), key=lambda each: each.name):
            if queue.deleted_at is None:
                self._tell_queue(queue, epoch)
        self._report.add(
            "may_be_lost",
            "rows",
            "",
            f"rows of any queue that arrived after {self._as_of}, the last write of the state, are "
            "in no table. While it could be written, it was at most --state-interval (5 s) behind: "
            "if no message arrived in the last seconds before the loss, nothing is lost",
        )

    def _tell_queue(self, queue: KnownQueue, epoch: str | None) -> None:
        """Report the rows and marks of one queue. ``epoch`` is the last one before the restore."""
        add = self._report.add
        for first, last in queue.covered:
            add(
                "restored",
                "rows",
                queue.name,
                "in the log again",
                first=first,
                last=last,
                epoch=queue.epoch_of(first),
            )
        begins = queue.end + SEQUENCES_SKIPPED + 1
        arrived, waiting = _text_of(queue.last_arrived), queue.waiting
        if queue.end == 0:
            seen = "the state has seen no row of this queue"
        elif queue.last_arrived is None:
            seen = f"the last row was {queue.end}, which retention or a purge had deleted"
        else:
            seen = f"the last row was {queue.end}, and the newest restored one arrived at {arrived}"
        add(
            "known",
            "rows",
            queue.name,
            f"{seen}; {waiting or 'nothing'} waited for the default consumer. The new epoch begins "
            f"at {begins}, far after every sequence that may have been issued",
            last=queue.end,
            count=waiting,
            epoch=epoch,
            last_arrived_at=None if queue.last_arrived is None else arrived,
            begins=begins,
        )
        for name, mark, _ in queue.consumers:
            add(
                "restored",
                "consumer",
                f"{queue.name} {name}",
                "its mark; rows that it received later are delivered again",
                last=mark,
            )

    def _tell_sessions(self, sessions: Sessions) -> None:
        for row in sessions:
            self._report.add(
                "restored",
                "wsrm_sequence",
                row["queue"],
                "continues here; if its client is past it, its session ends in a fault: the "
                "messages between are lost",
                last=row["accepted"],
                wsrm_sequence=row["identifier"],
            )

    def _tell_outgoing(self, outgoing: OutgoingMessages) -> None:
        for found in outgoing.destinations.values():
            for status, serials in found.states.items():
                sent = _SAID.get(status, "sent and not acknowledged")
                for first, last in runs_of(serials, found.base):
                    self._report.add(
                        "in_doubt",
                        "outgoing",
                        found.key.destination,
                        f"{sent}: held until `srmp-spark streams resend|drop "
                        f"--destination {found.key.destination}`",
                        first=first,
                        last=last,
                        state=status,
                        stream_id=found.stream_id,
                        kind=found.key.kind,
                    )
        self._report.add(
            "may_be_lost",
            "outgoing",
            "",
            f"messages that were committed after {self._as_of} are in no table; identities of "
            "sent rows are forgotten, except the keys of waiting messages: a batch that is "
            "written again is sent again",
        )
