"""Publish the tables of sending.

The tables are ``outgoing_queue``, ``outgoing_streams``, ``dead_letter_queue`` and
``journal_queue``. The publisher has its own thread in the reader process and reads the outbox
read-only, in short transactions. One cycle:

1. Look (:mod:`.outgoing_look`): commit P of the outbox, its queues, and what waits without the
   content.
2. Append the dead letters and journal copies that the tables do not have. The tables state where
   to continue, in the same commit as the rows (``state_table``), for each incarnation of the
   outbox.
3. Bring ``outgoing_queue`` to P by whole files, see :mod:`.outgoing_layout`. The footer of each
   file states what the file holds, so a publisher that is killed anywhere begins again with what
   the table states.
4. Replace ``outgoing_streams`` if it changed.

Dead letters come first. Dead letters come again before a commit that removes a message that ended
after the look. So a message may be seen in two tables for a moment, never in none. Dead letters
also come between two commits of a long step 3, at most an interval apart.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from srmp_spark.errors import StoreDamagedError
from srmp_spark.store.delta.outgoing import outgoing_layout
from srmp_spark.store.delta.outgoing.outgoing_layout import (
    NOTE,
    HeldFile,
    HeldGroup,
    LayoutCommit,
    Size,
)
from srmp_spark.store.delta.outgoing.outgoing_look import OutboxLook, OutboxSource
from srmp_spark.store.delta.outgoing.outgoing_rows import (
    QueueStanding,
    finish,
    moved_rows,
    stamp,
    standing_of,
    stream_rows,
    waiting_rows,
)
from srmp_spark.store.delta.restore_watch import RestoreNotes, given_up_error, restores_of
from srmp_spark.store.delta.tables import table_specs
from srmp_spark.store.delta.tables.actions import LiveFile, digest_of
from srmp_spark.store.delta.tables.cycles import OlderCopyError, run_cycles
from srmp_spark.store.delta.tables.data_files import DataFile, storage_of
from srmp_spark.store.delta.tables.events import Notify, PublisherFailed
from srmp_spark.store.delta.tables.state_folder import state_folder
from srmp_spark.store.delta.tables.state_room import CYCLE_BYTES_MIN, NoRoomError, StateRoom
from srmp_spark.store.delta.tables.state_table import StateTable

SENDING = "sending"
"""Name of this publisher in its events."""
DAMAGED_REMEDY = (
    "srmp-spark status shows the destination and what to do about its "
    "damaged rows; all others are published"
)
MOVED_ROWS = 16_384
MOVED_BYTES = 16 << 20
"""Bytes of bodies in one commit to ``dead_letter_queue`` or ``journal_queue``.

MOVED_ROWS is the limit of its rows. The rest follows in another commit.
"""
NUMBER_MAX = 2**62
"""A number above every number of the table ``moved``."""
TABLES_LOOK_S = 60.0
"""Interval in seconds at which the tables are compared with what was written.

The tables are compared although the outbox has not changed, because other programs may have
restored them.
"""
_ALL = LiveFile("", 0, 0, {}, {})
"""Stands for a lost file that held all rows that the outbox has."""

_FATES = {"dead": "dead_letter_queue", "journal": "journal_queue"}
_COMMITS = "outgoing_queue"
_POSITION = "outgoing_position"
_log = logging.getLogger(__name__)


class OutgoingPublisher:
    """Writes the Delta tables of sending below ``state_uri``, one cycle after another.

    The instance works for the queue manager that owns ``data_dir``.
    """

    def __init__(
        self,
        data_dir: str | Path,
        state_uri: str,
        queue_manager: str,
        interval_s: float,
        *,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self._data_dir = Path(data_dir)
        self._uri = state_uri
        self._queue_manager = queue_manager
        self._interval_s = interval_s
        self._options = dict(storage_options or {})
        self._room = StateRoom(self._data_dir, state_folder(state_uri))
        self._source: OutboxSource | None = None
        self._notes = RestoreNotes(state_uri, queue_manager, storage_options)
        self._restores: int | None = None
        self._tables: dict[str, StateTable] = {}
        self._held: list[HeldFile] | None = None
        self._digest: str | None = None
        self._done: tuple[Any, ...] | None = None
        """State of the outbox that the tables are known to show."""
        self._moved_at = 0.0
        self._look_at = 0.0
        """Time at which the tables are compared next even if the outbox has not changed.

        The time is in seconds of the monotonic clock.
        """
        self._logged: set[int] = set()
        self._as_of = time.time()
        """Time at which the published state of the outbox was read, in seconds since 1970.

        At the start nothing waits longer than since the start.
        """

    def __repr__(self) -> str:
        return (
            f"<OutgoingPublisher {self._queue_manager} to {self._uri} every {self._interval_s} s>"
        )

    def as_of(self) -> float:
        """Return the time at which the published state was read, in seconds since 1970.

        Any thread may call the method.
        """
        return self._as_of

    def run(self, stop: threading.Event, notify: Notify) -> None:
        """Publish every ``interval_s`` seconds until ``stop`` is set, and then once more.

        ``notify`` is called for failures and recoveries only (:func:`.run_cycles`). Failures are
        not raised. The method returns earlier after damage that cannot be repaired.
        """

        def cycle() -> bool:
            damaged = self.publish_once()
            for error in damaged:
                notify(PublisherFailed(SENDING, error, DAMAGED_REMEDY))
            return not damaged

        run_cycles(SENDING, cycle, self._forget, self._interval_s, stop, notify)

    def publish_once(self) -> list[str]:
        """Run one cycle; return texts about damaged messages, which are not published.

        The list is empty if there are none, or if no message was ever sent. Raises the errors of
        the store.
        """
        try:
            return self._publish()
        except NoRoomError:
            # Files that no version names any longer may be the only room that can be freed.
            now = time.monotonic()
            for table in self._tables.values():
                table.vacuum(now)
            raise

    def _publish(self) -> list[str]:
        as_of = time.time()
        if self._source is None:
            self._source = OutboxSource.open(self._data_dir)
        if self._source is None:
            # No message was ever sent.
            self._as_of = as_of
            return []
        self._room.check(CYCLE_BYTES_MIN)
        try:
            self._check_not_restored()
            look = self._source.look()
            self._open(look)
            known = (look.position, look.name, look.live)
            if known != self._done or time.monotonic() >= self._look_at:
                self._look_at_tables(look)
            self._check_not_ahead(look)
            damaged = self._publish_moved(look)
            if known != self._done:
                self._done = None
                damaged += self._publish_queue(look)
                self._publish_streams(look)
                self._done = None if damaged else known
        except BaseException:
            # Some of it may be committed: the next cycle reads the table.
            self._held = None
            raise
        now = time.monotonic()
        for table in self._tables.values():
            table.maintain(now)
        if not damaged:
            self._as_of = as_of
        return damaged

    def _check_not_restored(self) -> None:
        """Raise :class:`GivenUpError` if the queue manager was restored elsewhere.

        This thread may see the restore before the publisher of the inbox does: at the start, and
        once more at the end.
        """
        if self._restores is None:
            self._restores = restores_of(self._data_dir)
        self._notes.refresh()
        if self._notes.restores > self._restores:
            raise given_up_error(self._uri)

    def _open(self, look: OutboxLook) -> None:
        if not self._tables:
            specs = (
                table_specs.outgoing_streams(),
                table_specs.outgoing_queue(),
                table_specs.dead_letter_queue(),
                table_specs.journal_queue(),
            )
            shadows = self._data_dir / "delta"
            self._tables = {
                spec.name: StateTable(
                    storage_of(self._uri, spec.name, self._options, self._room),
                    spec,
                    self._queue_manager,
                    shadows / spec.name,
                )
                for spec in specs
            }
            self._digest = self._tables["outgoing_streams"].written_digest()
            self._held = self._done = None
            for name in _FATES.values():
                for lost in self._tables[name].lost_files():
                    self._restore(self._tables[name], lost, look)
        if self._held is None:
            self._done = None
            for table in self._tables.values():
                table.refresh()
            self._held = self._read_held()

    def _look_at_tables(self, look: OutboxLook) -> None:
        """Find what other programs took out of the tables, or changed, and have it written again.

        Missing dead letters and journal copies are appended at once; the other tables are written
        by the same cycle. The programs may have used RESTORE, DELETE or OPTIMIZE.
        """
        assert self._held is not None, "opened"
        self._look_at = time.monotonic() + TABLES_LOOK_S
        for table in self._tables.values():
            table.refresh()
        if {each.file.path for each in self._held} != {
            file.path for file in self._tables["outgoing_queue"].own_files()
        }:
            self._held, self._done = self._read_held(), None
        streams = self._tables["outgoing_streams"]
        if not streams.is_as_put():
            self._digest = self._done = None
        for name in _FATES.values():
            table = self._tables[name]
            if table.lacks_rows():
                self._publish_again(table, look)

    def _publish_again(self, table: StateTable, look: OutboxLook) -> None:
        """Append dead letters or journal copies that other programs took out of ``table``.

        The outbox has these messages for DEAD_LETTER_DAYS. The loss of older ones is logged, and
        the number of existing rows is accepted.
        """
        gone, left = table.rows_gone, set[str]()
        for each in table.own_columns(["message_id"]):
            left.update(each["message_id"].to_pylist())
        again = sum(
            table.append_again(iter([rows]))
            for rows in self._missing(table, _ALL, left, look)
            if rows.num_rows
        )
        if again < gone:
            table.accept_count()
            text = (
                "the other rows are no longer in the outbox: RESTORE the table to the "
                "version before they were removed"
            )
            _log.error("delta.rows_gone table=%s rows=%d: %s", table.spec.name, gone - again, text)
        _log.warning(
            "delta.changed_by_others table=%s rows=%d: other programs removed them; %d are "
            "published again",
            table.spec.name,
            gone,
            again,
        )

    def _forget(self) -> None:
        """Drop all handles of tables and of the outbox.

        The next cycle opens and repairs them as a start does.
        """
        if self._source is not None:
            self._source.close()
        self._tables, self._source, self._held = {}, None, None

    def _read_held(self) -> list[HeldFile]:
        table = self._tables["outgoing_queue"]
        lost = {file.path for file in table.lost_files()}
        return [
            HeldFile(
                file,
                () if file.path in lost else outgoing_layout.read_note(table.notes(file).get(NOTE)),
            )
            for file in table.own_files()
        ]

    def _check_not_ahead(self, look: OutboxLook) -> None:
        """Raise :class:`OlderCopyError` if the tables are ahead of this outbox.

        The tables are ahead if they show commits, or entries of ``moved``, of this outbox that the
        outbox itself does not have.
        """
        assert self._source is not None, "there is a look"
        published = self._tables["outgoing_queue"].published(look.name, _POSITION)
        moved = max(self._tables[name].published(look.name, name) for name in _FATES.values())
        if published <= look.position and moved <= look.last_moved:
            return
        # The tables may only be ahead of this look: an earlier publisher may still have been at
        # work. So look again before the error is raised.
        look = self._source.look()
        if published > look.position or moved > look.last_moved:
            raise OlderCopyError(
                f"the tables of sending below {self._uri} are of commit {published} of "
                f"the outbox, with {moved} dead letters "
                f"and journal copies; the data directory ends at {look.position} and "
                f"{look.last_moved}: it is an older copy. "
                "Put the newer data directory back, or start with an empty one"
            )

    # Dead letters and journal copies

    def _publish_moved(self, look: OutboxLook) -> list[str]:
        damaged = []
        for fate, name in _FATES.items():
            for span in _spans(look):
                damaged += self._append_moved(fate, self._tables[name], *span)
        self._moved_at = time.monotonic()
        return damaged

    def _append_moved(
        self, fate: str, table: StateTable, incarnation: str, start: int, end: int
    ) -> list[str]:
        assert self._source is not None, "there is a look"
        spec, name = table.spec, table.spec.name
        damaged = []
        after = max(start, table.published(incarnation, name))
        while after < end and (
            found := self._source.moved_messages(fate, after, end, MOVED_ROWS, MOVED_BYTES)
        ):
            tables = []
            for moved in found:
                if moved.content is not None:
                    columns = moved_rows(moved.row, moved.content, self._queue_manager)
                    tables.append(finish(columns, spec, moved.row.position))
                elif moved.row.id not in self._logged:
                    self._logged.add(moved.row.id)
                    text = (
                        f"{moved.row.rows} messages to {moved.row.destination} of {name} "
                        f"(number {moved.row.id}) can no longer be read: they are lost"
                    )
                    _log.error("delta.lost %s", text)
                    damaged.append(text)
            after = found[-1].row.id
            if tables:
                table.append(iter([pa.concat_tables(tables)]), {(incarnation, name): after})
        return damaged

    def _restore(self, table: StateTable, lost: LiveFile, look: OutboxLook) -> None:
        """Replace a lost data file by a file with its rows, as far as the outbox has them.

        A power loss may have taken the file. The outbox has the rows for DEAD_LETTER_DAYS. The
        number of restored rows is logged.
        """
        assert self._source is not None, "there is a look"
        left = {
            number.as_py()
            for each in table.columns_left(lost, "position", ["message_id"])
            for number in each["message_id"]
        }
        restored = table.restore_rows(lost, self._missing(table, lost, left, look))
        log = _log.warning if restored == lost.rows else _log.error
        log(
            "delta.restored file=%s rows=%d of %d: the other rows are no longer in the outbox",
            lost.path,
            restored,
            lost.rows,
        )

    def _missing(
        self, table: StateTable, lost: LiveFile, left: set[str], look: OutboxLook
    ) -> Iterator[pa.Table]:
        assert self._source is not None, "there is a look"
        fate = next(fate for fate, name in _FATES.items() if name == table.spec.name)
        least, greatest = (
            lost.least.get("position") or 0,
            lost.greatest.get("position") or NUMBER_MAX,
        )
        for incarnation, start, end in _spans(look):
            after, end = start, min(end, table.published(incarnation, table.spec.name))
            while after < end and (
                found := self._source.moved_messages(fate, after, end, MOVED_ROWS, MOVED_BYTES)
            ):
                after = found[-1].row.id
                for row, content in found:
                    if content is not None and least <= row.position <= greatest:
                        rows = finish(
                            moved_rows(row, content, self._queue_manager), table.spec, row.position
                        )
                        yield rows.filter(
                            pc.invert(
                                pc.is_in(rows["message_id"], pa.array(sorted(left), pa.string()))
                            )
                        )

    # Waiting messages

    def _publish_queue(self, look: OutboxLook) -> list[str]:
        assert self._held is not None, "opened"
        standings = {key: standing_of(row, look.live.get(key)) for key, row in look.queues.items()}
        wanted = {
            number: stamp(group, standings[group.queue]) for number, group in look.groups.items()
        }
        sizes = {
            number: Size(len(group.offsets), group.row.size)
            for number, group in look.groups.items()
        }
        damaged: list[str] = []
        for step in outgoing_layout.plan(self._held, wanted, sizes):
            if time.monotonic() >= self._moved_at + self._interval_s:
                damaged += self._publish_moved(look)
            damaged += self._take_step(step, look, standings, wanted, sizes)
        return damaged

    def _take_step(
        self,
        step: LayoutCommit,
        look: OutboxLook,
        standings: Mapping[Any, QueueStanding],
        wanted: Mapping[int, str],
        sizes: Mapping[int, Size],
    ) -> list[str]:
        assert self._held is not None, "opened"
        table = self._tables["outgoing_queue"]
        written: list[tuple[DataFile, tuple[HeldGroup, ...]]] = []
        try:
            damaged = self._write_files(step, look, standings, wanted, sizes, written)
        except BaseException:
            table.discard(file for file, _ in written)
            raise
        if written or step.removed:
            positions = {
                (look.name, _COMMITS): table.published(look.name, _COMMITS) + 1,
                (look.name, _POSITION): look.position,
            }
            table.swap(
                [each.file for each in step.removed], [file for file, _ in written], positions
            )
            gone = {each.file.path for each in step.removed}
            self._held = [each for each in self._held if each.file.path not in gone]
            self._held += [
                HeldFile(LiveFile(file.path, file.size, file.rows, {}, {}), groups)
                for file, groups in written
            ]
        return damaged

    def _write_files(
        self,
        step: LayoutCommit,
        look: OutboxLook,
        standings: Mapping[Any, QueueStanding],
        wanted: Mapping[int, str],
        sizes: Mapping[int, Size],
        written: list[tuple[DataFile, tuple[HeldGroup, ...]]],
    ) -> list[str]:
        """Write the files of ``step``, add each to ``written``, and return texts about damage.

        No commit names the files yet. A damaged group is left out.
        """
        assert self._source is not None, "there is a look"
        spec, table = table_specs.outgoing_queue(), self._tables["outgoing_queue"]
        damaged: list[str] = []
        ended = False
        for numbers in outgoing_layout.files_of(step.groups, sizes):
            tables, groups = [], []
            for number in numbers:
                group = look.groups[number]
                try:
                    batch = self._source.content(group)
                except StoreDamagedError as error:
                    damaged.append(f"{group.queue.destination}: {error}")
                    continue
                if batch is None:
                    ended = True
                    continue
                columns = waiting_rows(group, batch, standings[group.queue], self._queue_manager)
                tables.append(finish(columns, spec, look.position))
                groups.append(HeldGroup(number, wanted[number]))
            if tables:
                file = table.write(
                    iter([pa.concat_tables(tables)]), {NOTE: outgoing_layout.note_of(groups)}
                )
                assert file is not None, "a group has rows"
                written.append((file, tuple(groups)))
        if ended:
            damaged += self._publish_moved(look)
        return damaged

    # Streams

    def _publish_streams(self, look: OutboxLook) -> None:
        spec, table = table_specs.outgoing_streams(), self._tables["outgoing_streams"]
        rows = stream_rows(look, self._queue_manager, spec)
        digest = digest_of([rows], ignore=("position", "written_at"))
        if digest != self._digest:
            table.refresh()
            table.replace(iter([rows]), look.position, digest)
            self._digest = digest


def _spans(look: OutboxLook) -> Iterator[tuple[str, int, int]]:
    """Yield (name, after, to) of each incarnation: the ids of ``moved`` that belong to it.

    The range is (after, to].
    """
    ends = [each.moved_before for each in look.incarnations[1:]] + [NUMBER_MAX]
    for incarnation, end in zip(look.incarnations, ends, strict=True):
        yield incarnation.name, incarnation.moved_before, end
