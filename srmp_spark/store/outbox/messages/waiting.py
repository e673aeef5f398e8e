"""The waiting messages, by serial: load them to send, delete finished ones, and move dead ones.

A finished row of a group with other rows is only marked. The group is deleted with its last row. If
all rows of a group die together, the group becomes a dead letter without being copied. Otherwise
the dead rows are copied out of the group.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from srmp_spark.errors import StoreDamagedError
from srmp_spark.srmp.sending.outgoing_effects import (
    DeadLetter,
    Kind,
    Load,
    QueueKey,
    SerialRun,
    StoredMessage,
)
from srmp_spark.store.outbox.columns import body_sizes
from srmp_spark.store.outbox.messages.live import SentRun, pack_sent
from srmp_spark.store.outbox.messages.packed_group import (
    BatchPart,
    Shared,
    messages_of,
    pack_group,
    unpack_group,
)
from srmp_spark.store.outbox.tables.damage import Damage, What
from srmp_spark.store.outbox.tables.schema import OFFSET_BITS, group_key

SERIAL_MAX = 2**62
"""A number above every serial."""
CACHED_GROUPS = 16
"""Largest number of cached groups: those that were read last, and not to their end.

Each busy destination needs one group. At the limit the oldest group is evicted.
"""

_log = logging.getLogger(__name__)

DEADLETTER, DEADXACT, JOURNAL = "deadletter$", "deadxact$", "journal$"
"""Names of the system queues that MSMQ would use ([MS-MQDMPR] 3.1.1.2).

They are values of the column ``target`` of the table ``moved``.
"""


class PartRow(NamedTuple):
    """A database row of the table ``parts``: the rows of one committed batch for one queue.

    ``first`` and ``last`` are serials, and ``ids_first`` is the number of the first message
    identifier.
    """

    id: int
    queue_id: int
    first: int
    last: int
    ids_first: int
    application: str
    batch: str
    enqueued_at: int
    final: int
    journal: int
    dead_letter_queue: str | None


class GroupRow(NamedTuple):
    """A database row of the table ``groups``: up to 256 rows of a part, packed together.

    ``gone`` has one byte for each row, 1 if the row is finished; ``None``: no row is finished.
    """

    id: int
    first: int
    """Offset of the first row in the part."""
    size: int
    """Size of the bodies, in bytes."""
    data_id: int
    gone: bytes | None

    @property
    def last(self) -> int:
        """Return the offset of the last row in the part."""
        return self.id & ((1 << OFFSET_BITS) - 1)

    def live(self, first: int, last: int) -> np.ndarray:
        """Return the unfinished rows with offsets ``first`` to ``last``, as indices in the group.

        Both offsets are included, and count from the first row of the part. The array of indices is
        ascending.
        """
        span = np.arange(max(first, self.first), min(last, self.last) + 1) - self.first
        return span if self.gone is None else span[np.frombuffer(self.gone, np.uint8)[span] == 0]


_PART = (
    "id, queue_id, first, last, ids_first, application, batch, enqueued_at, final, "
    "journal, dead_letter_queue"
)


class WaitingMessages:
    """Reads and changes the waiting messages in the tables ``parts``, ``groups`` and ``data``.

    Methods that write do so in the caller's transaction.

    A serial is the number of a message in its outgoing queue. ``at`` is the wall clock in
    microseconds since 1970, UTC.
    """

    def __init__(
        self, connection: sqlite3.Connection, identity: str, next_data_id: Callable[[], int]
    ) -> None:
        """Read the stored notes of damage (:mod:`.damage`).

        ``identity`` is the GUID of this queue manager. ``next_data_id`` is called only by methods
        that write.
        """
        self.damage = Damage(connection)
        self._connection = connection
        self._identity = identity
        self._next_data_id = next_data_id
        self.takes_dead_letters: Callable[[str], bool] = lambda queue: False
        """Function that returns whether a local transactional queue of a name exists.

        The sender process sets this attribute.
        """
        self.letters_for: set[str] = set()
        """Queues that applications named, for which dead letters were moved.

        :mod:`.letter_cursors` empties the set when it searches for letters to hand over.
        """
        self._cache: OrderedDict[int, pa.RecordBatch] = OrderedDict()

    def parts(self, queue_id: int, first: int, last: int) -> Iterator[PartRow]:
        """Yield the parts of a queue that have any of the serials ``first`` to ``last``, ascending.

        Both serials are included. ``queue_id`` is the id in the table ``queues``.
        """
        rows = self._connection.execute(
            f"SELECT {_PART} FROM parts WHERE queue_id = ? AND last >= ? ORDER BY last",  # noqa: S608  # our own text
            (queue_id, first),
        )
        for row in rows:
            part = PartRow(*row)
            if part.first > last:
                break
            yield part

    def groups(self, part: int, first: int, last: int) -> Iterator[GroupRow]:
        """Yield the groups of a part with any of the offsets ``first`` to ``last``, ascending.

        Both offsets are included. ``part`` is the id in the table ``parts``.
        """
        rows = self._connection.execute(
            "SELECT id, first, bytes, data_id, gone FROM groups WHERE id >= ? AND id < ? "
            "ORDER BY id",
            (group_key(part, first), (part + 1) << OFFSET_BITS),
        )
        for row in rows:
            group = GroupRow(*row)
            if group.first > last:
                break
            yield group

    def rows_of(self, group: GroupRow) -> pa.RecordBatch:
        """Return the rows of a group as a record batch, including finished ones.

        Raises :class:`StoreDamagedError` if the group is damaged.
        """
        known = self._cache.get(group.data_id)
        if known is not None:
            return known
        where = f"group {group.id} of the outbox"
        batch = self._content(group.data_id, where)
        if batch.num_rows != group.last - group.first + 1:
            raise StoreDamagedError(
                f"{where} has {batch.num_rows} rows, {group.last - group.first + 1} are expected"
            )
        return batch

    def _content(self, data_id: int, where: str) -> pa.RecordBatch:
        begun = self._connection.in_transaction
        try:
            row = self._connection.execute(
                "SELECT crc, data FROM data WHERE id = ?", (data_id,)
            ).fetchone()
        except sqlite3.DatabaseError as error:
            # SQLite has undone the transaction, so its caller must not continue.
            if self._connection.in_transaction is not begun:
                raise
            raise StoreDamagedError(f"{where} cannot be read: {error}") from error
        if row is None:
            raise StoreDamagedError(f"{where} has lost its rows")
        return unpack_group(row[0], row[1], where)

    # --- reading ----------------------------------------------------------------------------------

    def load(self, load: Load, queue_id: int) -> list[StoredMessage]:
        """Return the waiting messages of a queue that the sending engine asks for with ``load``.

        The limits of ``load`` on messages and bytes count, except that one message is returned
        however large it is. If a group is damaged, the messages before it are returned first. The
        next call then raises :class:`UnreadableRowsError`.
        """
        found: list[StoredMessage] = []
        room = load.bytes_max
        for part in self.parts(queue_id, load.after + 1, load.last):
            shared = Shared(
                load.key.destination,
                load.key.kind,
                self._identity,
                part.ids_first - part.first,
                part.enqueued_at,
                bool(part.final),
            )
            low, high = max(load.after + 1 - part.first, 0), min(load.last, part.last) - part.first
            for group in self.groups(part.id, low, high):
                indices = group.live(low, high)
                if not len(indices):
                    continue
                try:
                    batch = self.rows_of(group)
                except StoreDamagedError as error:
                    if found:
                        return found
                    serials = part.first + group.first + indices
                    raise UnreadableRowsError(
                        len(indices), (int(serials[0]), int(serials[-1])), str(error)
                    ) from error
                wanted = indices[: load.rows_max - len(found)]
                span = batch.slice(wanted[0], wanted[-1] - wanted[0] + 1)
                sizes = np.cumsum(body_sizes(_columns(span), span.num_rows)[wanted - wanted[0]])
                fit = int(np.searchsorted(sizes, room, side="right"))
                count = min(len(wanted), max(fit, 0 if found else 1))
                taken = indices[:count].tolist()
                base = part.first + group.first
                try:
                    found += messages_of(batch, taken, [base + index for index in taken], shared)
                except StoreDamagedError:
                    return found + _until_damaged(batch, taken, base, shared, alone=not found)
                if count < len(indices) or indices[-1] + group.first < group.last:
                    self._keep(group.data_id, batch)
                if count:
                    room -= int(sizes[count - 1])
                if count < len(indices) or len(found) >= load.rows_max or room <= 0:
                    return found
        return found

    def _keep(self, data_id: int, batch: pa.RecordBatch) -> None:
        self._cache[data_id] = batch
        self._cache.move_to_end(data_id)
        if len(self._cache) > CACHED_GROUPS:
            self._cache.popitem(last=False)

    def runs(
        self, queue_id: int, *, final: bool, low: int = 0, high: int = SERIAL_MAX
    ) -> list[tuple[int, int]]:
        """Return the waiting serials of a queue as ascending closed ranges.

        All serials are returned of each part that has a serial from ``low`` to ``high``, both
        included. With ``final`` only the parts that request final stream receipts count.
        """
        runs: list[tuple[int, int]] = []
        for part in self.parts(queue_id, low, high):
            if final and not part.final:
                continue
            for group in self.groups(part.id, 0, part.last - part.first):
                serials = group.live(group.first, group.last) + group.first + part.first
                for first, last in _runs(serials):
                    if runs and runs[-1][1] + 1 == first:
                        runs[-1] = (runs[-1][0], last)
                    else:
                        runs.append((first, last))
        return runs

    # --- taking out -------------------------------------------------------------------------------

    def finish(
        self,
        run: SerialRun,
        queue_id: int,
        stream: tuple[str, int],
        at: int,
        position: int,
        sent: Sequence[SentRun] = (),
    ) -> None:
        """Delete the finished messages of ``run``, and keep the journal copies that they request.

        The whole run of serials is deleted. [MC-MQSRM] 3.1.5.2.2 describes the journal. If a group
        is damaged, its journal copies are lost, and a note is stored in :attr:`damage`. ``stream``
        has the ordinal and the base of the stream: the number that is subtracted from a serial to
        get the position in the stream. ``position`` is the number of this commit, and ``sent`` the
        send history of the run.
        """
        # The list is complete before rows of the table are deleted.
        for part in list(self.parts(queue_id, run.first, run.last)):
            low, high = max(run.first - part.first, 0), min(run.last, part.last) - part.first
            for group in list(self.groups(part.id, low, high)):
                live = group.live(low, high)
                batch = (
                    self._readable(run.key, group, part, live, "journal")
                    if part.journal and len(live)
                    else None
                )
                if batch is not None:
                    column = batch.schema.get_field_index("journal")
                    if column >= 0:
                        asked = (
                            batch.column(column)
                            .fill_null(False)
                            .to_numpy(zero_copy_only=False)[live]
                        )
                        if asked.any():
                            letter = _Letter("journal", "delivered", None, None, False, JOURNAL)
                            self._move(
                                letter,
                                run.key,
                                part,
                                group,
                                live[asked],
                                stream,
                                at,
                                position,
                                sent,
                                batch,
                            )
                self._take_out(group, live)
            self._drop_if_empty(part)
        self.damage.ended(*run)

    def bury(
        self,
        letter: DeadLetter,
        queue_id: int,
        stream: tuple[str, int],
        at: int,
        position: int,
        sent: Sequence[SentRun] = (),
    ) -> None:
        """Move the messages that ``letter`` names to the dead letters (table ``moved``).

        The target is the queue that their application named, if it is a local transactional queue.
        Otherwise it is the system's dead-letter queue ([MC-MQSRM] 3.1.5.2.1.2). If only some rows
        of a damaged group die, these rows are lost, and a note is stored in :attr:`damage`. The
        other arguments are those of :meth:`finish`.
        """
        run = letter.run
        system = DEADXACT if run.key.kind == "stream" else DEADLETTER
        # Each queue is looked up once for all parts.
        taken: dict[str, bool] = {}
        # The list is complete before rows of the table are deleted.
        for part in list(self.parts(queue_id, run.first, run.last)):
            named = part.dead_letter_queue
            if named is not None and named not in taken:
                taken[named] = self.takes_dead_letters(named)
            target = named if named is not None and taken[named] else system
            moved = _Letter(
                "dead", letter.reason, letter.status, letter.message_class, letter.in_doubt, target
            )
            low, high = max(run.first - part.first, 0), min(run.last, part.last) - part.first
            for group in list(self.groups(part.id, low, high)):
                live = group.live(low, high)
                if not len(live):
                    continue
                whole = len(live) == group.last - group.first + 1
                # A group that moves as a whole is read only to report its damage.
                read = not whole or self.damage.waits(run.key)
                batch = self._readable(run.key, group, part, live, "dead") if read else None
                batch = None if whole else batch
                if whole or batch is not None:
                    self._move(moved, run.key, part, group, live, stream, at, position, sent, batch)
                if whole:
                    self._connection.execute("DELETE FROM groups WHERE id = ?", (group.id,))
                    self._cache.pop(group.data_id, None)
                else:
                    self._take_out(group, live)
            self._drop_if_empty(part)
        self.damage.ended(*run)

    def bury_unsent(
        self,
        part: BatchPart,
        ids_first: int,
        application: str,
        batch: str,
        at: int,
        position: int,
        reason: str,
        first: int | None = None,
    ) -> None:
        """Move the rows of a part that never entered an outgoing queue to the dead letters.

        The target is chosen as in :meth:`bury`. The messages have identifiers from ``ids_first``
        on, and no place in a stream. ``position`` is the number of this commit. The serials of the
        messages begin at ``first``. If ``first`` is ``None``, the serials are below 0, and so below
        those of all messages that are sent.
        """
        first = -part.rows if first is None else first
        system = DEADXACT if part.key.kind == "stream" else DEADLETTER
        named = part.dead_letter_queue
        target = named if named is not None and self.takes_dead_letters(named) else system
        letter = _Letter("dead", reason, None, None, False, target)
        row = PartRow(
            part.number,
            0,
            first,
            first + part.rows - 1,
            ids_first,
            application,
            batch,
            at,
            False,
            False,
            named,
        )
        for group in list(self.groups(part.number, 0, part.rows - 1)):
            live = group.live(group.first, group.last)
            self._move(letter, part.key, row, group, live, ("0", 0), at, position, (), None)
            self._connection.execute("DELETE FROM groups WHERE id = ?", (group.id,))
        self._connection.execute("DELETE FROM parts WHERE id = ?", (part.number,))

    def _readable(
        self, key: QueueKey, group: GroupRow, part: PartRow, live: np.ndarray, what: What
    ) -> pa.RecordBatch | None:
        """Return the rows of a group; if it is damaged, store a note and return ``None``.

        The note is about the rows ``live`` (indices), with the kind of damage ``what``. The other
        data of the transaction must not wait for ever for a damaged group.
        """
        try:
            return self.rows_of(group)
        except StoreDamagedError as error:
            serials = part.first + group.first + live
            reason = f"{error} (application {part.application}, batch {part.batch})"
            self.damage.note(key, what, len(live), (int(serials[0]), int(serials[-1])), reason)
            return None

    def _move(
        self,
        letter: _Letter,
        key: QueueKey,
        part: PartRow,
        group: GroupRow,
        live: np.ndarray,
        stream: tuple[str, int],
        at: int,
        position: int,
        sent: Sequence[SentRun],
        batch: pa.RecordBatch | None,
    ) -> None:
        """Write the rows ``live`` (indices) of a group to the table ``moved``.

        The rows of the group itself are not deleted. ``batch`` is the group's content if the rows
        are copied out, or ``None`` if the group moves as a whole.
        """
        if letter.target not in (DEADLETTER, DEADXACT, JOURNAL):
            self.letters_for.add(letter.target)
        data_id, size = group.data_id, group.size
        if batch is not None:
            batch = batch.take(pa.array(live))
            size = int(body_sizes(_columns(batch), batch.num_rows).sum())
            data_id = self._next_data_id()
            self._connection.execute(
                "INSERT INTO data VALUES (?, ?, ?)", (data_id, *pack_group(batch))
            )
        numbers = live + group.first + part.first
        serials = numbers.astype("<i8").tobytes()
        self._connection.execute(
            "INSERT INTO moved(fate, destination, kind, stream_ordinal, base, serials, "
            "ids_base, application, batch, "
            "enqueued_at, reason, status, message_class, in_doubt, moved_at, target, "
            "rows, bytes, position, data_id, sent) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                letter.fate,
                key.destination,
                key.kind,
                *stream,
                serials,
                part.ids_first - part.first,
                part.application,
                part.batch,
                part.enqueued_at,
                letter.reason,
                letter.status,
                letter.message_class,
                letter.in_doubt,
                at,
                letter.target,
                len(live),
                size,
                position,
                data_id,
                pack_sent(sent, int(numbers[0]), int(numbers[-1])),
            ),
        )

    def _take_out(self, group: GroupRow, live: np.ndarray) -> None:
        rows = group.last - group.first + 1
        gone = (
            np.zeros(rows, np.uint8)
            if group.gone is None
            else np.frombuffer(group.gone, np.uint8).copy()
        )
        gone[live] = 1
        if gone.all():
            self._connection.execute("DELETE FROM data WHERE id = ?", (group.data_id,))
            self._connection.execute("DELETE FROM groups WHERE id = ?", (group.id,))
            self._cache.pop(group.data_id, None)
        elif len(live):
            self._connection.execute(
                "UPDATE groups SET gone = ? WHERE id = ?", (gone.tobytes(), group.id)
            )

    def _drop_if_empty(self, part: PartRow) -> None:
        low, high = part.id << OFFSET_BITS, (part.id + 1) << OFFSET_BITS
        if (
            self._connection.execute(
                "SELECT 1 FROM groups WHERE id >= ? AND id < ? LIMIT 1", (low, high)
            ).fetchone()
            is None
        ):
            self._connection.execute("DELETE FROM parts WHERE id = ?", (part.id,))

    def moved_groups(self, after: int, rows_max: int) -> Iterator[MovedGroup]:
        """Yield dead letters and journal copies with ids above ``after`` in ``moved``, ascending.

        The generator ends once ``rows_max`` messages were yielded, or more. A damaged entry is
        yielded without its messages, and logged. So it stops neither the process nor the entries
        after it.
        """
        names = ", ".join(MovedRow._fields[:-1]).replace("size", "bytes")
        found = 0
        for row in self._connection.execute(
            f"SELECT {names}, serials FROM moved WHERE id > ? ORDER BY id",  # noqa: S608  # our own names
            (after,),
        ):
            serials = np.frombuffer(row[-1], "<i8").tolist()
            moved = MovedRow(*row[:-1], serials)  # type: ignore[call-arg]  # mypy does not count a star
            found += moved.rows
            try:
                batch = self._content(moved.data_id, f"dead letter {moved.id} of the outbox")
                if batch.num_rows != len(serials):
                    raise StoreDamagedError(f"it has {batch.num_rows} rows")  # noqa: TRY301  # logged below
                shared = Shared(
                    moved.destination,
                    moved.kind,
                    self._identity,
                    moved.ids_base,
                    moved.enqueued_at,
                    False,
                )
                messages = messages_of(batch, range(batch.num_rows), serials, shared)
            except StoreDamagedError as error:
                _log.error(
                    'outbox.damaged destination=%s kind=%s what=%s rows=%d reason="%s"',
                    moved.destination,
                    moved.kind,
                    moved.fate,
                    moved.rows,
                    error,
                )
                yield MovedGroup(moved, None, [None] * len(serials))
            else:
                yield MovedGroup(moved, messages, keys_of(batch))
            if found >= rows_max:
                return


class UnreadableRowsError(StoreDamagedError):
    """Waiting rows are damaged.

    Nothing of their queue is sent until an operator restores a backup or drops the queue.
    """

    def __init__(self, rows: int, serials: tuple[int, int], reason: str) -> None:
        super().__init__(
            f"{rows} messages (serials {serials[0]} to {serials[1]}) cannot be read: {reason}"
        )
        self.rows = rows
        self.serials = serials
        self.reason = reason


class _Letter(NamedTuple):
    fate: str
    reason: str
    status: int | None
    message_class: int | None
    in_doubt: bool
    target: str


class MovedRow(NamedTuple):
    """A database row of ``moved``: dead letters or journal copies that were moved together."""

    id: int
    fate: str
    """``dead`` for dead letters, ``journal`` for journal copies."""
    destination: str
    kind: Kind
    stream_ordinal: str
    base: int
    """Number that is subtracted from a serial to get the position in the stream."""
    ids_base: int
    application: str
    batch: str
    enqueued_at: int
    reason: str
    status: int | None
    message_class: int | None
    in_doubt: int
    moved_at: int
    target: str
    rows: int
    size: int
    """Size of the bodies, in bytes."""
    position: int
    """Number of the commit that moved the messages."""
    data_id: int
    sent: str | None
    """How often and when the messages were sent, in the form of :func:`~.live.unpack_sent`."""
    serials: Sequence[int]


class MovedGroup(NamedTuple):
    """One database row of ``moved``, with its messages and the key of each message."""

    row: MovedRow
    messages: list[StoredMessage] | None
    """The messages, or ``None`` if their group is damaged."""
    keys: list[str | None]


def keys_of(batch: pa.RecordBatch) -> list[str | None]:
    """Return a list with the ``key`` of each row as text, or ``None`` for a row without a key."""
    index = batch.schema.get_field_index("key")
    if index < 0:
        return [None] * int(batch.num_rows)
    return [
        None if key is None else key.decode(errors="replace")
        for key in batch.column(index).to_pylist()
    ]


def _columns(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return {
        name: batch.column(batch.schema.get_field_index(name))
        for name in ("body", "extension")
        if name in batch.schema.names
    }


def _until_damaged(
    batch: pa.RecordBatch, indices: list[int], base: int, shared: Shared, *, alone: bool
) -> list[StoredMessage]:
    """Return the messages of the rows ``indices`` before the first one that cannot be read.

    ``base`` plus an index is the serial of the row. If already the first row is damaged, the result
    is empty; with ``alone``, :class:`UnreadableRowsError` is raised instead.
    """
    found: list[StoredMessage] = []
    for index in indices:
        try:
            found += messages_of(batch, [index], [base + index], shared)
        except StoreDamagedError as error:  # noqa: PERF203  # runs rarely
            if alone and not found:
                raise UnreadableRowsError(1, (base + index, base + index), str(error)) from error
            break
    return found


def _runs(serials: np.ndarray) -> list[tuple[int, int]]:
    if not len(serials):
        return []
    cuts = np.flatnonzero(np.diff(serials) != 1) + 1
    firsts, lasts = serials[[0, *cuts.tolist()]], serials[[*(cuts - 1).tolist(), len(serials) - 1]]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))
