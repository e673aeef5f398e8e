"""Read what the publisher needs of the outbox.

A *look* is the state of the outbox at one commit: its queues, and the list of waiting groups
without their content. The publisher first takes a look, and later reads the content of single
groups. Reading is cut into short transactions, because a long one would keep the WAL of the sender
process from becoming shorter. A look costs a small row per 256 messages. The content of a group
never changes; only the set of its rows that are gone changes. :mod:`srmp_spark.store.outbox`
explains the words serial, part and group.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from srmp_spark.errors import StoreDamagedError
from srmp_spark.srmp.sending.outgoing_effects import OutgoingQueueRow, QueueKey
from srmp_spark.store.database.sqlite_file import connect_reader, readable
from srmp_spark.store.outbox.messages.live import LiveQueue, read_live
from srmp_spark.store.outbox.messages.packed_group import unpack_group
from srmp_spark.store.outbox.messages.waiting import GroupRow, MovedRow
from srmp_spark.store.outbox.tables.incarnations import Incarnation, incarnations, last_moved
from srmp_spark.store.outbox.tables.queue_rows import is_current, load_queues
from srmp_spark.store.outbox.tables.schema import DATABASE_FILE, OFFSET_BITS, OUTBOX
from srmp_spark.store.outbox.tables.sessions import SessionRow, load_sessions

_MOVED = ", ".join(f"moved.{name}" for name in MovedRow._fields[:-1]).replace(
    "moved.size", "moved.bytes"
)


class WaitingGroup(NamedTuple):
    """Up to 256 waiting messages, of one batch and one queue, which the outbox stores together.

    ``enqueued_at`` is the time of their commit, in microseconds since 1970, UTC.
    """

    row: GroupRow
    queue: QueueKey
    base: int
    """Serial of the row at offset 0 of its part."""
    ids_first: int
    """Number of the message identifier of the row at offset 0 of its part."""
    application: str
    enqueued_at: int
    previous: int
    """Serial of the message before the group in the queue; 0 if there is none."""
    final: bool = False
    """Whether final stream receipts finish these messages."""

    @property
    def offsets(self) -> np.ndarray:
        """Return the indices in the group of its unfinished rows, ascending."""
        return self.row.live(self.row.first, self.row.last)

    def serials(self, indices: np.ndarray) -> np.ndarray:
        """Return the serials of the rows at ``indices`` in the group, as an array."""
        return np.asarray(indices + (self.row.first + self.base), np.int64)


class MovedMessages(NamedTuple):
    """Dead letters or journal copies that were moved together, with their content."""

    row: MovedRow
    content: pa.RecordBatch | None
    """Content of the messages, or ``None`` if it is damaged."""


class OutboxLook(NamedTuple):
    """The state of the outbox at commit ``position``, without the content of messages.

    ``last_moved`` is the highest id that the table ``moved`` ever had.
    """

    position: int
    incarnations: Sequence[Incarnation]
    last_moved: int
    queues: Mapping[QueueKey, OutgoingQueueRow]
    live: Mapping[QueueKey, LiveQueue]
    """State from the memory of the sender process, by queue; empty while there is no sender
    process.
    """
    groups: Mapping[int, WaitingGroup]
    """Waiting groups by rowid, in the order of their queues and serials."""
    sessions: Mapping[QueueKey, SessionRow] = {}
    """Stored state of the reliable sessions, by queue."""

    @property
    def name(self) -> str:
        """Return the random name of the present life of the outbox (:class:`.Incarnation`)."""
        return self.incarnations[-1].name


class OutboxSource:
    """Reads the outbox of a data directory.

    An instance belongs to the thread that first uses it.
    """

    def __init__(self, directory: Path, connection: sqlite3.Connection) -> None:
        self._directory = directory
        self._path = directory / DATABASE_FILE
        self._connection = connection

    @classmethod
    def open(cls, directory: Path) -> OutboxSource | None:
        """Open the outbox of a data directory, or return ``None`` if it is not ready.

        The outbox is not ready while the sender process has not created it, or has not updated its
        tables to this version.

        Raises :class:`StoreDamagedError` if the outbox cannot be read.
        """
        path = directory / DATABASE_FILE
        if not path.exists():
            return None
        with readable(path, OUTBOX.restore_hint):
            plain = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
            try:
                if plain.execute("PRAGMA user_version").fetchone()[0] == 0:
                    return None
            finally:
                plain.close()
        source = cls(directory, connect_reader(path, OUTBOX))
        begun = (
            source._connection.execute("SELECT 1 FROM meta WHERE key = 'incarnation'").fetchone()
            is not None
        )
        if not begun or not is_current(source._connection):
            source.close()
            return None
        return source

    def close(self) -> None:
        """Close the connection to the database."""
        self._connection.close()

    @contextmanager
    def _snapshot(self) -> Iterator[sqlite3.Connection]:
        with readable(self._path, OUTBOX.restore_hint):
            self._connection.execute("BEGIN")
            try:
                yield self._connection
            finally:
                # If there is no transaction, an error has ended it.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def look(self) -> OutboxLook:
        """Read and return the present state of the outbox, without the content of messages.

        Raises :class:`StoreDamagedError` if the outbox cannot be read.
        """
        with self._snapshot() as db:
            position, fence = db.execute("SELECT position, fence FROM head").fetchone()
            queues = {QueueKey(row.destination, row.kind): row for row in load_queues(db)}
            return OutboxLook(
                position,
                incarnations(db),
                last_moved(db),
                queues,
                read_live(self._directory, fence),
                _groups(db),
                load_sessions(db),
            )

    def content(self, group: WaitingGroup) -> pa.RecordBatch | None:
        """Return all rows of a group as a record batch, including finished rows.

        Return ``None`` if all rows of the group are finished, and the group is deleted. Raises
        :class:`StoreDamagedError` if its rows are lost or damaged.
        """
        with self._snapshot() as db:
            row = db.execute(
                "SELECT crc, data FROM data JOIN groups ON data_id = data.id WHERE "
                "groups.id = ? AND data.id = ?",
                (group.row.id, group.row.data_id),
            ).fetchone()
            if row is None:
                if (
                    db.execute("SELECT 1 FROM groups WHERE id = ?", (group.row.id,)).fetchone()
                    is None
                ):
                    return None
                raise StoreDamagedError(f"group {group.row.id} of the outbox has lost its rows")
        batch = unpack_group(row[0], row[1], f"group {group.row.id} of the outbox")
        if batch.num_rows != group.row.last - group.row.first + 1:
            raise StoreDamagedError(
                f"group {group.row.id} of the outbox has {batch.num_rows} rows, "
                f"expected {group.row.last - group.row.first + 1}"
            )
        return batch

    def moved_messages(
        self, fate: str, after: int, to: int, rows_max: int, bytes_max: int
    ) -> list[MovedMessages]:
        """Return the next dead letters (``dead``) or journal copies (``journal``) in (after, to].

        The numbers are ids of the table ``moved``. The result has at most ``rows_max`` messages and
        ``bytes_max`` bytes of bodies, but at least one entry if there is one. A damaged entry is
        returned without content.
        """
        found: list[MovedMessages] = []
        with self._snapshot() as db:
            rows = db.execute(
                f"SELECT {_MOVED}, serials, crc, data FROM moved LEFT JOIN data ON "  # noqa: S608  # our own names
                "data.id = data_id "
                "WHERE moved.id > ? AND moved.id <= ? AND fate = ? ORDER BY moved.id",
                (after, to, fate),
            )
            for row in rows:
                serials = np.frombuffer(row[-3], "<i8").tolist()
                # mypy does not count the values of a starred argument.
                moved = MovedRow(*row[:-3], serials)  # type: ignore[call-arg]
                if moved.rows > rows_max or moved.size > bytes_max:
                    if found:
                        break
                    rows_max = bytes_max = 0
                else:
                    rows_max, bytes_max = rows_max - moved.rows, bytes_max - moved.size
                try:
                    batch = unpack_group(
                        row[-2] or 0, row[-1] or b"", f"dead letter {moved.id} of the outbox"
                    )
                except (StoreDamagedError, pa.ArrowInvalid):
                    found.append(MovedMessages(moved, None))
                else:
                    found.append(
                        MovedMessages(moved, batch if batch.num_rows == len(serials) else None)
                    )
        return found


def _groups(db: sqlite3.Connection) -> dict[int, WaitingGroup]:
    parts: dict[int, tuple[tuple[int, int], QueueKey, int, int, str, int, bool]] = {}
    for number, queue_id, destination, kind, first, ids_first, application, at, final in db.execute(
        "SELECT parts.id, queue_id, destination, kind, first, ids_first, application, "
        "enqueued_at, final "
        "FROM parts JOIN queues ON queues.id = queue_id"
    ):
        parts[number] = (
            (queue_id, first),
            QueueKey(destination, kind),
            first,
            ids_first,
            application,
            at,
            bool(final),
        )
    rows: dict[int, list[GroupRow]] = {number: [] for number in parts}
    for row in map(
        GroupRow._make, db.execute("SELECT id, first, bytes, data_id, gone FROM groups ORDER BY id")
    ):
        of = rows.get(row.id >> OFFSET_BITS)
        # A group without its part belongs to a batch that does not count.
        if of is not None:
            of.append(row)
    found: dict[int, WaitingGroup] = {}
    before: dict[QueueKey, int] = {}
    for number, (_, queue, base, ids_first, application, at, final) in sorted(
        parts.items(), key=lambda part: part[1][0]
    ):
        for row in rows[number]:
            group = WaitingGroup(
                row, queue, base, ids_first, application, at, before.get(queue, 0), final
            )
            last = row.last if row.gone is None else row.first + int(group.offsets[-1])
            found[row.id] = group
            before[queue] = base + last
    return found
