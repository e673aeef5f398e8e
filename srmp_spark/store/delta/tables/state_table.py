"""One state table for its publisher: open, append with positions, replace, and housekeeping.

Rows are appended exactly once. An append carries, in the same commit as its rows, one application
transaction per (queue manager, epoch, queue), with the last sequence as its version. ``deltalake``
does not deduplicate by these transactions (a lower version is accepted, measured). ``deltalake``
refuses a commit through a handle that has not seen the newest commit of the same application. So a
publisher reads the positions from the handle and appends through that same handle. A refusal means
that another process published: the positions must be read again.
"""

from __future__ import annotations

import contextlib
import logging
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from srmp_spark.errors import StoreDamagedError, StoreError
from srmp_spark.store.database.durable import SHARED_FOLDER_MODE, make_directory
from srmp_spark.store.delta.tables.actions import (
    LiveFile,
    add_action,
    answered_id,
    answers_id,
    appends_id,
    application_id,
    asked_id,
    overlap,
    remove_action,
    restores_id,
)
from srmp_spark.store.delta.tables.cycles import TableGoneError
from srmp_spark.store.delta.tables.data_files import (
    DataFile,
    Storage,
    looks_whole,
    read_notes,
    write_file,
)
from srmp_spark.store.delta.tables.live_files import check_format, live_files
from srmp_spark.store.delta.tables.positions import TablePositions
from srmp_spark.store.delta.tables.row_count import ROWS_KEY, RowCount
from srmp_spark.store.delta.tables.shadow import ACTIONS_KEY, Shadow, commit_name
from srmp_spark.store.delta.tables.state_table_limits import (
    CHECKPOINT_COMMITS,
    CHECKPOINT_ROOM_BYTES,
    COMMIT_RETRIES,
    COMMIT_RETRY_WAIT_S,
    COMPACT_FILE_BYTES,
    COMPACT_FILES_MAX,
    COMPACT_FILES_MIN,
    COMPACT_TARGET_BYTES,
    HISTORY_LOOKBACK,
    RESTORE_KEY,
    VACUUM_INTERVAL_S,
)
from srmp_spark.store.delta.tables.table_specs import FORMAT, LAST_OF_FORMAT, PARTITION, TableSpec

_QUEUE_MANAGER_KEY = "srmp.queue_manager"
_DIGEST_KEY = "srmp.digest"
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
_log = logging.getLogger(__name__)


class PublishConflictError(StoreError):
    """Another process made commits for this queue manager meanwhile.

    The caller must read the positions again.
    """


class StateTable:
    """Reads and writes one of the tables below ``--state`` for one queue manager.

    Opening it raises :class:`StoreDamagedError` if the table has a newer format, is not a state
    table, or cannot be read. An instance (the handle) sees the table as of its last commit or
    :meth:`refresh`. A *position* is the last published sequence of a queue in an epoch. Methods
    that commit also raise the errors of the store.
    """

    def __init__(
        self,
        storage: Storage,
        spec: TableSpec,
        queue_manager: str,
        shadow_folder: Path,
        *,
        by_restore: bool = False,
    ) -> None:
        """Repair, open or create the table; ``shadow_folder`` is for :class:`.Shadow`.

        ``by_restore`` means that a restore writes, so its commits do not show that the queue
        manager is alive.
        """
        self._storage = storage
        self._own = {_QUEUE_MANAGER_KEY: queue_manager} | ({RESTORE_KEY: "1"} if by_restore else {})
        self._spec = spec
        self._queue_manager = queue_manager
        self._shadow = (
            Shadow(shadow_folder, storage.local / "_delta_log") if storage.local else None
        )
        if self._shadow:
            self._shadow.repair()
        self._table = self._open_or_create()
        self._seen: tuple[int, int | None] = (-1, None)
        """The newest commit that was looked at and the checksum of its file, which reveals that the
        log was replaced. Only for local tables.
        """
        self._positions = TablePositions(self._table, storage, f"{queue_manager}:")
        self._check_format()
        self._add_new_columns()
        self._checkpointed = self._table.version() // CHECKPOINT_COMMITS * CHECKPOINT_COMMITS
        self._vacuumed_at: float | None = None
        self._appends = len(self.own_files())
        self._rows = RowCount(
            self._table,
            lambda entry: entry.get(_QUEUE_MANAGER_KEY) == queue_manager,
            self._count_rows,
        )
        self._put_path: str | None = None
        """Path of the file that :meth:`put` wrote last; ``None``: none since the table was opened.
        """
        self._look_at_newest()
        self._settle()

    def __repr__(self) -> str:
        return (
            f"<StateTable {self._spec.name} version={self._table.version()} at {self._storage.uri}>"
        )

    @property
    def spec(self) -> TableSpec:
        """Return the specification of the table."""
        return self._spec

    @property
    def version(self) -> int:
        """Return the number of the newest Delta commit that this handle has seen."""
        version: int = self._table.version()
        return version

    def published(self, epoch: str, queue: str) -> int:
        """Return the last sequence of a queue up to which rows were published; 0 if none."""
        return self._positions.get(application_id(self._queue_manager, epoch, queue)) or 0

    @property
    def restores(self) -> int:
        """Return how often this queue manager was restored from the tables.

        Only ``inbox`` has this number (:meth:`note_restore`).
        """
        return self._positions.get(restores_id(self._queue_manager)) or 0

    @property
    def appends(self) -> int:
        """Return how often rows were appended or a restore ended.

        Commits of :meth:`append_unless_restored`, :meth:`append_again` and :meth:`note_restore`
        count.
        """
        return self._positions.get(appends_id(self._queue_manager)) or 0

    def ask(self) -> int:
        """Commit the question whether the queue manager is alive, and return its number.

        After :meth:`refresh`, :attr:`answered` shows the answer (:mod:`.restore_watch`). Raises
        :class:`PublishConflictError` if another restore asked at the same moment.
        """
        name = asked_id(self._queue_manager)
        number = (self._positions.get(name) or 0) + 1
        self._commit([], {name: number}, {RESTORE_KEY: f"asked {number}"})
        return number

    @property
    def answered(self) -> int:
        """Return the number of the last question that the queue manager has answered; 0 if none."""
        return self._positions.get(answered_id(self._queue_manager)) or 0

    @property
    def answers(self) -> bool:
        """Return whether ``inbox`` notes that this queue manager answers questions of restores."""
        return bool(self._positions.get(answers_id(self._queue_manager)))

    def note_restore(self, number: int, appends: int) -> None:
        """Commit that restore ``number`` was made, which gives up every earlier data directory.

        The publisher of such a directory ends as soon as it sees this commit. ``appends`` is the
        value of :attr:`appends` when the rows were read. If an append happens at the same moment,
        the log of the table refuses the second of the two commits. So no row is in the table and
        missing in the restored directory. Raises :class:`PublishConflictError` if rows were
        appended since. Raises the same error if a restore of that number exists, because two
        directories with one number would both go on under one GUID.
        """
        if self.restores >= number:
            raise PublishConflictError(
                f"{self._storage.uri}: another process has made restore {number} of queue "
                f"manager {self._queue_manager}"
            )
        if self.appends != appends:
            raise PublishConflictError(
                f"{self._storage.uri}: queue manager {self._queue_manager} appended rows meanwhile"
            )
        asked = self._positions.get(asked_id(self._queue_manager)) or 0
        # The same commit closes the question: if an answer comes at the same moment, one of the two
        # is refused.
        answer = {answered_id(self._queue_manager): asked} if asked > self.answered else {}
        transactions = {
            restores_id(self._queue_manager): number,
            appends_id(self._queue_manager): appends + 1,
            **answer,
        }
        self._commit([], transactions, {RESTORE_KEY: str(number)})

    def note_restores(self, number: int) -> None:
        """Commit that this queue manager was restored ``number`` times, if the table shows fewer.

        A table shows fewer if it was deleted since. Otherwise the next restore would get a number
        that was used already, and no data directory would be given up by it.
        """
        if self.restores < number:
            self._commit([], {restores_id(self._queue_manager): number}, {})

    def refresh(self) -> None:
        """Read the commits that others made, so that this handle shows the newest version.

        Raises :class:`TableGoneError` if others deleted or replaced a local table.
        """
        if not self._is_log_of_ours():
            raise TableGoneError(
                f"{self._storage.uri} was deleted while the queue manager ran; it is made "
                "anew of what the log still holds"
            )
        self._table.update_incremental()
        self._look_at_newest()

    def _is_log_of_ours(self) -> bool:
        """Return whether the table's log still has the newest commit that this handle has seen.

        A table that was created again may have a commit of that number. Object stores are trusted.
        """
        log, version = (
            self._storage.local and self._storage.local / "_delta_log",
            self._table.version(),
        )
        if log is None:
            return True
        path = log / commit_name(version)
        if not path.exists():
            return path.with_suffix(".checkpoint.parquet").exists()
        seen, checksum = self._seen
        return seen != version or checksum is None or self._checksum(version) == checksum

    def _look_at_newest(self) -> None:
        if (version := self._table.version()) != self._seen[0]:
            self._seen = version, self._checksum(version)

    def _checksum(self, version: int) -> int | None:
        """Return the crc32 of a commit's file; ``None`` if it is gone, or on an object store."""
        if self._storage.local is None:
            return None
        try:
            return zlib.crc32(
                (self._storage.local / "_delta_log" / commit_name(version)).read_bytes()
            )
        except FileNotFoundError:
            return None

    def append_unless_restored(
        self, tables: Iterator[pa.Table], positions: Mapping[tuple[str, str], int], restores: int
    ) -> int:
        """Append rows as :meth:`append` does, unless the queue manager was restored again.

        ``restores`` is how often it had been restored when its data directory was created. Raises
        :class:`PublishConflictError` if it was restored since, also at the same moment.
        """
        if self.restores > restores:
            raise PublishConflictError(
                f"{self._storage.uri}: queue manager {self._queue_manager} was restored meanwhile"
            )
        return self._append(tables, positions, {appends_id(self._queue_manager): self.appends + 1})

    @property
    def moves(self) -> int:
        """Return a number that grows when a position of this queue manager was written.

        The notes of restores about the queue manager count, too (:attr:`.TablePositions.moves`).
        """
        return self._positions.moves

    def lacks_rows(self) -> bool:
        """Return whether rows of this queue manager were removed by others; update the counts."""
        return self._rows.lacks()

    @property
    def rows_gone(self) -> int:
        """Return how many rows were missing at the last :meth:`lacks_rows`."""
        return self._rows.expected - self._rows.found

    def is_as_put(self) -> bool:
        """Return whether the table has exactly the file of the last :meth:`put`.

        Before the first :meth:`put` of this handle, the result is whether no row is missing.
        """
        if self._put_path is None:
            return not self._rows.lacks()
        return [file.path for file in self.own_files()] == [self._put_path]

    def append_again(self, tables: Iterator[pa.Table]) -> int:
        """Append rows that other programs had removed, in one durable commit.

        Return their number. Positions and the expected count of rows do not change.
        """
        file = write_file(self._storage, self._spec, self._queue_manager, tables)
        if file is None:
            return 0
        with self.discarding(file):
            self._commit(
                [add_action(file, self._queue_manager)],
                {appends_id(self._queue_manager): self.appends + 1},
                {},
            )
        self._appends += 1
        return file.rows

    def accept_count(self) -> None:
        """Commit the number of existing rows as the expected one, so that none counts as missing.

        Call this when the missing rows cannot be recovered, and were reported.
        """
        name = f"{self._queue_manager}:counted"
        number = (self._positions.get(name) or 0) + 1
        self._commit([], {name: number}, {}, rows=self._count_rows())

    def append(self, tables: Iterator[pa.Table], positions: Mapping[tuple[str, str], int]) -> int:
        """Append rows and move the positions in one durable commit; return the number of rows.

        ``positions`` has the last sequence by (epoch, queue). Without rows nothing is committed.
        Raises :class:`PublishConflictError` if another process moved one of the positions.
        """
        return self._append(tables, positions, {})

    def _append(
        self,
        tables: Iterator[pa.Table],
        positions: Mapping[tuple[str, str], int],
        more: Mapping[str, int],
    ) -> int:
        file = write_file(self._storage, self._spec, self._queue_manager, tables)
        if file is None:
            return 0
        transactions = {
            application_id(self._queue_manager, *key): last for key, last in positions.items()
        } | dict(more)
        with self.discarding(file):
            self._commit(
                [add_action(file, self._queue_manager)],
                transactions,
                {},
                rows=self._rows.expected + file.rows,
            )
        self._appends += 1
        return file.rows

    def replace(self, tables: Iterator[pa.Table], position: int, digest: str) -> int:
        """Replace all rows of this queue manager in one durable commit.

        Return the number of new rows. ``position`` is the number of the queue manager's commit that
        the rows show, and ``digest`` is that of the rows (:func:`.digest_of`). Raises
        :class:`PublishConflictError` if another process published for this queue manager.
        """
        return self.put(self.write(tables), position, digest)

    def put(self, file: DataFile | None, position: int, digest: str) -> int:
        """Replace all rows of this queue manager by a file that :meth:`write` has written.

        ``None`` removes all rows. Otherwise this is :meth:`replace`, with its result and errors.
        """
        actions: list[AddAction | RemoveAction] = [
            remove_action(old, self._queue_manager, data_change=True) for old in self.own_files()
        ]
        if file:
            actions.append(add_action(file, self._queue_manager))
        if actions:
            with self.discarding(file):
                position_of = {f"{self._queue_manager}:position": position}
                self._commit(
                    actions, position_of, {_DIGEST_KEY: digest}, rows=file.rows if file else 0
                )
            self._put_path = file.path if file else None
        return file.rows if file else 0

    def write(
        self, tables: Iterator[pa.Table], notes: Mapping[str, str] | None = None
    ) -> DataFile | None:
        """Write a durable data file that no commit names yet, for :meth:`put` or :meth:`swap`.

        Return ``None`` if there was no row.
        """
        return write_file(self._storage, self._spec, self._queue_manager, tables, notes)

    def notes(self, file: LiveFile) -> dict[str, str]:
        """Return the notes that :meth:`write` stored in a file, by name."""
        return read_notes(self._storage, file.path)

    def swap(
        self,
        removed: Sequence[LiveFile],
        added: Sequence[DataFile],
        positions: Mapping[tuple[str, str], int],
    ) -> None:
        """Replace files and move positions in one durable commit.

        The files ``removed`` are replaced by the files ``added``. Raises
        :class:`PublishConflictError`, and deletes the files ``added``, if another process published
        for this queue manager meanwhile.
        """
        actions: list[AddAction | RemoveAction] = [
            remove_action(file, self._queue_manager, data_change=True) for file in removed
        ]
        actions += [add_action(file, self._queue_manager) for file in added]
        rows = (
            self._rows.expected
            + sum(file.rows for file in added)
            - sum(file.rows for file in removed)
        )
        transactions = {
            application_id(self._queue_manager, *key): last for key, last in positions.items()
        }
        with self.discarding(*added):
            self._commit(actions, transactions, {}, rows=rows)

    def written_digest(self) -> str | None:
        """Return the digest of what :meth:`replace` wrote last, if that still is the content.

        Return ``None`` if the content is unknown: the commit is not among the last
        HISTORY_LOOKBACK, a file is damaged, or a program that is no queue manager has committed
        since.
        """
        if self._storage.local and self.lost_files():
            return None
        for entry in self._table.history(HISTORY_LOOKBACK):
            if _QUEUE_MANAGER_KEY not in entry:
                return None
            if entry.get(_QUEUE_MANAGER_KEY) == self._queue_manager and _DIGEST_KEY in entry:
                return str(entry[_DIGEST_KEY])
        return None

    # Damage

    def lost_files(self) -> list[LiveFile]:
        """Return the data files of this queue manager that are missing or cut short.

        Only local tables are checked; object stores are trusted.
        """
        root = self._storage.local
        return [
            file
            for file in self.own_files()
            if root and not looks_whole(root / file.path, file.size)
        ]

    def sequences_left(self, lost: LiveFile) -> Iterator[pa.Table]:
        """Yield epoch, queue and sequence of the rows in whole files that may overlap ``lost``."""
        return self.columns_left(lost, "sequence", ["epoch", "queue", "sequence"])

    def columns_left(self, lost: LiveFile, by: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield ``columns`` of the rows in whole files that may overlap ``lost``.

        Files overlap if their ranges of the column ``by`` do. ``lost`` itself is left out.
        """
        gone = {file.path for file in self.lost_files()}
        for file in self.own_files():
            if file.path in gone or not overlap(file, lost, by):
                continue
            yield from self._columns_of(file, columns)

    def own_columns(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield ``columns`` of all rows of this queue manager, one table for each row group."""
        for file in self.own_files():
            yield from self._columns_of(file, columns)

    def _columns_of(self, file: LiveFile, columns: Sequence[str]) -> Iterator[pa.Table]:
        with contextlib.closing(self._storage.open_input(file.path)) as stream:
            parquet = pq.ParquetFile(stream)
            for group in range(parquet.num_row_groups):
                yield parquet.read_row_group(group, columns=list(columns))

    def _count_rows(self) -> int:
        """Return the number of rows of this queue manager; a file without a count is read."""
        return sum(
            file.rows or sum(table.num_rows for table in self._columns_of(file, ["position"]))
            for file in self.own_files()
        )

    def restore_rows(self, lost: LiveFile, tables: Iterator[pa.Table]) -> int:
        """Replace a lost file by the rows of ``tables`` in one commit; return their number.

        ``dataChange`` is false, so nothing changes for streaming readers.
        """
        file = write_file(self._storage, self._spec, self._queue_manager, tables)
        actions: list[AddAction | RemoveAction] = [remove_action(lost, self._queue_manager)]
        if file:
            actions.append(add_action(file, self._queue_manager, data_change=False))
        with self.discarding(file):
            self._commit(
                actions, {}, {}, rows=self._rows.expected - lost.rows + (file.rows if file else 0)
            )
        return file.rows if file else 0

    # Housekeeping

    def maintain(self, now: float) -> None:
        """Run compaction, checkpoint with log clean-up, and vacuum, each when it is due.

        Compaction is for tables whose rows are only added. :mod:`.state_table_limits` has the
        limits. ``now`` is in seconds of the monotonic clock. Raises the errors of the store.
        """
        if self._spec.append_only and self._appends >= COMPACT_FILES_MIN:
            self._compact()
        if (
            self._table.version() >= self._checkpointed + CHECKPOINT_COMMITS
            and self._storage.spare() >= CHECKPOINT_ROOM_BYTES
        ):
            self._checkpoint()
        self.vacuum(now)

    def vacuum(self, now: float) -> None:
        """Delete files that no version within the time-travel span names.

        Files are deleted at most once in VACUUM_INTERVAL_S seconds; the first call only starts that
        interval. ``now`` is in seconds of the monotonic clock.
        """
        if self._vacuumed_at is None:
            # No vacuum at the start, because publishing is more urgent then.
            self._vacuumed_at = now
        elif now >= self._vacuumed_at + VACUUM_INTERVAL_S:
            self._vacuumed_at = now
            properties = self._properties({}, {}, None)
            hours = self._spec.kept_hours
            removed = self._table.vacuum(
                hours,
                dry_run=False,
                full=True,
                commit_properties=properties,
                post_commithook_properties=_NO_HOOKS,
            )
            self._settle()
            _log.info("delta.vacuumed table=%s files=%d", self._spec.name, len(removed))

    def _compact(self) -> None:
        """Join up to COMPACT_FILES_MAX small files, in commit order, into one, if there is room.

        The rows do not change (``dataChange`` is false). Raises :class:`StoreDamagedError` if the
        number of read rows differs from the log.
        """
        chosen: list[LiveFile] = []
        size = 0
        for file in self.own_files():
            if (
                file.size >= COMPACT_FILE_BYTES
                or len(chosen) == COMPACT_FILES_MAX
                or size + file.size > COMPACT_TARGET_BYTES
            ):
                continue
            chosen.append(file)
            size += file.size
        self._appends = 0
        # Until the vacuum the rows take the room twice.
        if len(chosen) < 2 or size > self._storage.spare():
            return
        joined = write_file(
            self._storage, self._spec, self._queue_manager, self._row_groups(chosen)
        )
        if joined is None or joined.rows != sum(file.rows for file in chosen):
            if joined is not None:
                self.discard([joined])
            raise StoreDamagedError(
                f"{self._storage.uri}: a compaction read a different number of rows than the "
                "log states; nothing was changed"
            )
        removes: list[AddAction | RemoveAction] = [
            remove_action(file, self._queue_manager) for file in chosen
        ]
        with self.discarding(joined):
            self._commit(
                [*removes, add_action(joined, self._queue_manager, data_change=False)], {}, {}
            )
        _log.info("delta.compacted table=%s files=%d bytes=%d", self._spec.name, len(chosen), size)

    def _row_groups(self, files: Iterable[LiveFile]) -> Iterator[pa.Table]:
        for file in files:
            with contextlib.closing(self._storage.open_input(file.path)) as stream:
                parquet = pq.ParquetFile(stream)
                for group in range(parquet.num_row_groups):
                    yield parquet.read_row_group(group).select(self._spec.file_schema.names)

    def _checkpoint(self) -> None:
        self._checkpointed = version = self._table.version()
        if self._shadow:
            self._shadow.checkpoint_begins(version)
        self._table.create_checkpoint()
        if self._shadow and not self._shadow.checkpoint_ended(version):
            # The next checkpoint cleans up.
            return
        self._table.cleanup_metadata()

    # Commits

    def _commit(
        self,
        actions: Sequence[AddAction | RemoveAction],
        transactions: Mapping[str, int],
        metadata: Mapping[str, str],
        *,
        rows: int | None = None,
    ) -> None:
        """Make one Delta commit, which is durable when the method returns.

        ``rows`` is how many rows of this queue manager the commit leaves; ``None`` means as many as
        before. After a commit of another queue manager it is tried again. Raises
        :class:`PublishConflictError` if another process published for this one, or after
        COMMIT_RETRIES attempts.
        """
        version = self._table.version()
        noted = {ROWS_KEY: str(self._rows.expected if rows is None else rows)}
        properties = self._properties(
            transactions, {**metadata, **noted}, len(actions) + len(transactions)
        )
        before = {application: self._positions.get(application) for application in transactions}
        removed = {action.path for action in actions if isinstance(action, RemoveAction)}
        for attempt in range(COMMIT_RETRIES):
            try:
                self._table.create_write_transaction(
                    list(actions),
                    "append",
                    self._spec.schema,
                    [PARTITION],
                    commit_properties=properties,
                    post_commithook_properties=_NO_HOOKS,
                )
                break
            except CommitFailedError as error:
                self._table.update_incremental()
                moved = any(
                    self._positions.get(name) != version for name, version in before.items()
                )
                if moved or not removed <= {file.path for file in self.own_files()}:
                    raise PublishConflictError(
                        f"{self._storage.uri}: another process published meanwhile ({error})"
                    ) from error
                time.sleep(COMMIT_RETRY_WAIT_S * attempt)
        else:
            raise PublishConflictError(
                f"{self._storage.uri}: {COMMIT_RETRIES} attempts of a commit failed, because "
                "other processes committed first"
            )
        self._table.update_incremental()
        self._look_at_newest()
        self._rows.committed(rows, version)
        self._settle()

    def discard(self, files: Iterable[DataFile]) -> None:
        """Delete written data files whose commit failed or was never tried.

        After an error it is unknown whether the commit exists. So the table is read first, and
        files that it names stay. If the table cannot be read, nothing is deleted or raised.
        """
        paths = {file.path for file in files}
        try:
            self._table.update_incremental()
            paths -= {file.path for file in self.own_files()}
        except Exception:
            # The table's log cannot be read. The vacuum deletes files that no commit names.
            _log.debug("delta.not_discarded table=%s", self._storage.uri, exc_info=True)
            return
        for path in paths:
            self._storage.discard(path)

    @contextlib.contextmanager
    def discarding(self, *files: DataFile | None) -> Iterator[None]:
        """Delete ``files`` if the ``with`` block raises an error (:meth:`discard`)."""
        try:
            yield
        except BaseException:
            self.discard(file for file in files if file is not None)
            raise

    def _settle(self) -> None:
        """Make every commit that this handle has seen durable; only then it may be reported."""
        if self._shadow:
            self._shadow.record(self._table.version())

    def _properties(
        self, transactions: Mapping[str, int], metadata: Mapping[str, str], actions: int | None
    ) -> CommitProperties:
        own = {**self._own, **metadata}
        if actions is not None:
            own[ACTIONS_KEY] = str(actions)
        return CommitProperties(
            custom_metadata=own,
            max_commit_retries=COMMIT_RETRIES,
            app_transactions=[
                Transaction(application, version) for application, version in transactions.items()
            ],
        )

    def _open_or_create(self) -> DeltaTable:
        if self._storage.local:
            # The folders must be as durable as the rows that will be reported in them.
            for folder in (self._storage.local.parent, self._storage.local):
                make_directory(folder, SHARED_FOLDER_MODE)
        try:
            return DeltaTable(self._storage.uri, storage_options=self._storage.options or None)
        except TableNotFoundError:
            pass
        except DeltaError as error:
            raise StoreDamagedError(
                f"the state table at {self._storage.uri} cannot be read ({error}); move "
                "the folder away: "
                "the queue manager then writes what its own log still holds"
            ) from error
        try:
            return self._create()
        except CommitFailedError:
            # Another queue manager that shares the state was first.
            return DeltaTable(self._storage.uri, storage_options=self._storage.options or None)

    def _create(self) -> DeltaTable:
        return DeltaTable.create(
            self._storage.uri,
            self._spec.schema,
            mode="ignore",
            partition_by=[PARTITION],
            name=self._spec.name,
            configuration=self._spec.configuration,
            storage_options=self._storage.options or None,
            # Delta does not know the property srmp.format.
            raise_if_key_not_exists=False,
            commit_properties=CommitProperties(custom_metadata=self._own),
            post_commithook_properties=_NO_HOOKS,
        )

    def _check_format(self) -> None:
        check_format(self._table, self._storage.uri)
        missing = self._missing_columns()
        of_format = self._spec.schema.names[: self._spec.schema.names.index(LAST_OF_FORMAT) + 1]
        lost = [name for name in of_format if name in missing]
        if lost:
            raise StoreDamagedError(
                f"{self._storage.uri} lacks columns of format {FORMAT}: "
                f"{', '.join(lost)}; put them back (RESTORE the table to "
                "the version before they went), or move the folder away: the queue "
                "manager then writes what its log still holds"
            )

    def _missing_columns(self) -> list[str]:
        """Return the specified columns that the table does not have.

        Columns that other programs added are ignored, wherever they stand.
        """
        present = {field.name for field in self._table.schema().fields}
        return [name for name in self._spec.schema.names if name not in present]

    def _add_new_columns(self) -> None:
        """Add the specified columns that the table lacks, because an older version created it.

        Existing rows have no value in them, which reads as null.
        """
        missing = self._missing_columns()
        if not missing:
            return
        fields = [
            field for field in Schema.from_arrow(self._spec.schema).fields if field.name in missing
        ]
        try:
            properties = self._properties({}, {}, None)
            self._table.alter.add_columns(
                fields, commit_properties=properties, post_commithook_properties=_NO_HOOKS
            )
        except CommitFailedError:
            # Another queue manager that shares the state was first.
            self._table.update_incremental()
            self._check_format()
            if self._missing_columns():
                raise
        self._table.update_incremental()

    def own_files(self) -> list[LiveFile]:
        """Return the live files of this queue manager, in commit order."""
        return live_files(self._table, self._spec, self._queue_manager)
