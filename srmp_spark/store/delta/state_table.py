"""One state table as its publisher sees it: open, append with positions, replace, and housekeeping.

Exactly once: an append carries, in the same commit as its rows, one application transaction per (queue manager, epoch, queue)
with the last sequence as its version. ``deltalake`` does not deduplicate by them (a lower version is accepted, measured); it
refuses a commit through a handle that has not seen the newest one of the same application. So: read the positions from the
handle, append through that same handle, take a refusal as "somebody else published; read again".
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
from srmp_spark.store.delta.actions import (
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
from srmp_spark.store.delta.cycles import TableGoneError
from srmp_spark.store.delta.data_files import DataFile, Storage, looks_whole, read_notes, write_file
from srmp_spark.store.delta.live_files import check_format, live_files
from srmp_spark.store.delta.positions import Positions
from srmp_spark.store.delta.row_count import ROWS_KEY, RowCount
from srmp_spark.store.delta.shadow import ACTIONS_KEY, Shadow, commit_name
from srmp_spark.store.delta.table_specs import FORMAT, LAST_OF_FORMAT, PARTITION, TableSpec
from srmp_spark.store.durable import SHARED_FOLDER_MODE, make_directory

COMMIT_RETRIES = 20
"""Attempts of one commit while other queue managers commit to the same table; each attempt looks at the newest version."""
COMMIT_RETRY_WAIT_S = 0.01
"""Wait after the n-th attempt: n times this."""
CHECKPOINT_COMMITS = 100
"""Commits between two checkpoints: a reader that opens the table reads at most so many commit files."""
CHECKPOINT_ROOM_BYTES = 16 << 20
"""A checkpoint waits for that much to spare: it names each data file, some hundred bytes each."""
COMPACT_FILES_MIN = 100
"""Small files that start a compaction: eight minutes of traffic at the default interval."""
COMPACT_FILES_MAX = 1_000
"""Files of one compaction, so that one commit file stays below a megabyte."""
COMPACT_FILE_BYTES = 32 << 20
"""A file below this size is small."""
COMPACT_TARGET_BYTES = 256 << 20
"""Bytes of small files that one compaction joins, so that a cycle is not held up for long."""
VACUUM_INTERVAL_S = 3600
"""Seconds between two removals of files that no version within the time-travel span names."""
HISTORY_LOOKBACK = 50
"""Commits that are searched for the digest of what this queue manager wrote last; not found: written once more."""

RESTORE_KEY = "srmp.restore"
"""In a commit of a restore: it says nothing about whether the queue manager is alive."""
_QUEUE_MANAGER_KEY = "srmp.queue_manager"
_DIGEST_KEY = "srmp.digest"
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
_log = logging.getLogger(__name__)


class PublishConflictError(StoreError):
    """Another process published for this queue manager in the meantime: positions must be read again."""


class StateTable:
    """One of the tables below ``--state``, written for one queue manager.

    Raises :class:`StoreDamagedError` when the table is of a newer format, is not a state table, or cannot be read.
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
        """``by_restore``: it is a restore that writes, and no sign that the queue manager lives."""
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
        """The newest commit that was looked at and the checksum of its file, by which another log is known; of local tables."""
        self._positions = Positions(self._table, storage, f"{queue_manager}:")
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
        """The file that :meth:`put` wrote last; ``None``: none since the table was opened."""
        self._look_at_newest()
        self._settle()

    def __repr__(self) -> str:
        return (
            f"<StateTable {self._spec.name} version={self._table.version()} at {self._storage.uri}>"
        )

    @property
    def spec(self) -> TableSpec:
        """Which table it is."""
        return self._spec

    @property
    def version(self) -> int:
        """The newest commit that this handle has seen."""
        version: int = self._table.version()
        return version

    def published(self, epoch: str, queue: str) -> int:
        """The last sequence of a queue that the table holds, by the table's own word; 0 if none."""
        return self._positions.get(application_id(self._queue_manager, epoch, queue)) or 0

    @property
    def restores(self) -> int:
        """How often this queue manager was restored from the tables; only ``inbox`` tells (:meth:`note_restore`)."""
        return self._positions.get(restores_id(self._queue_manager)) or 0

    @property
    def appends(self) -> int:
        """How often rows were appended by :meth:`append_unless_restored`, or their reading ended by :meth:`note_restore`."""
        return self._positions.get(appends_id(self._queue_manager)) or 0

    def ask(self) -> int:
        """Ask whether the queue manager lives; the number of the question (:mod:`.restore_watch`)."""
        name = asked_id(self._queue_manager)
        number = (self._positions.get(name) or 0) + 1
        self._commit([], {name: number}, {RESTORE_KEY: f"asked {number}"})
        return number

    @property
    def answered(self) -> int:
        """The last question that the queue manager has answered; 0 if none."""
        return self._positions.get(answered_id(self._queue_manager)) or 0

    @property
    def answers(self) -> bool:
        """Whether the queue manager is of a version that answers."""
        return bool(self._positions.get(answers_id(self._queue_manager)))

    def note_restore(self, number: int, appends: int) -> None:
        """Give up every data directory of before restore ``number``: its publisher ends as soon as it sees this commit.

        ``appends``: :attr:`appends` as it was when the rows were read. The log of the table decides between this commit and an
        append at the same moment: whichever comes second is refused, so no row is in the table and not in what was restored.
        Raises :class:`PublishConflictError` if rows were appended since, or if there was a restore of that number: two
        directories with one number would both go on, under one GUID.
        """
        if self.restores >= number:
            raise PublishConflictError(
                f"{self._storage.uri}: restore {number} of queue manager "
                f"{self._queue_manager} is taken"
            )
        if self.appends != appends:
            raise PublishConflictError(
                f"{self._storage.uri}: queue manager {self._queue_manager} appended rows meanwhile"
            )
        asked = self._positions.get(asked_id(self._queue_manager)) or 0
        # The question is closed by the same commit: of it and an answer at the same moment one is refused.
        answer = {answered_id(self._queue_manager): asked} if asked > self.answered else {}
        transactions = {
            restores_id(self._queue_manager): number,
            appends_id(self._queue_manager): appends + 1,
            **answer,
        }
        self._commit([], transactions, {RESTORE_KEY: str(number)})

    def note_restores(self, number: int) -> None:
        """Note how often this queue manager was restored, in a table that was deleted since and knows of fewer times.

        Otherwise the next restore gets a number that was given already, and no data directory is given up by it.
        """
        if self.restores < number:
            self._commit([], {restores_id(self._queue_manager): number}, {})

    def refresh(self) -> None:
        """See what others committed. Raises :class:`TableGoneError` if they deleted the table."""
        if not self._is_log_of_ours():
            raise TableGoneError(
                f"{self._storage.uri} was deleted while the queue manager ran; it is made "
                "anew of what the log still holds"
            )
        self._table.update_incremental()
        self._look_at_newest()

    def _is_log_of_ours(self) -> bool:
        """Whether the log has the newest commit that this handle has seen: one that was made anew may have its number too."""
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
        """Of a commit's file; ``None``: it was cleaned up, or lies on an object store."""
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
        """:meth:`append`, for a queue manager that was restored ``restores`` times when its data directory was made.

        Raises :class:`PublishConflictError` if it was restored again, also if that happens at the same moment.
        """
        if self.restores > restores:
            raise PublishConflictError(
                f"{self._storage.uri}: queue manager {self._queue_manager} was restored meanwhile"
            )
        return self._append(tables, positions, {appends_id(self._queue_manager): self.appends + 1})

    @property
    def moves(self) -> int:
        """Another number than before says that a position of this queue manager, or what restores note of it, was written."""
        return self._positions.moves

    def lacks_rows(self) -> bool:
        """Return whether rows that our commits left are gone, as of the last :meth:`refresh`."""
        return self._rows.lacks()

    @property
    def rows_gone(self) -> int:
        """How many rows that is."""
        return self._rows.expected - self._rows.found

    def is_as_put(self) -> bool:
        """Return whether the rows are those of the last :meth:`put`, as of the last :meth:`refresh`."""
        if self._put_path is None:
            return not self._rows.lacks()
        return [file.path for file in self.own_files()] == [self._put_path]

    def append_again(self, tables: Iterator[pa.Table]) -> int:
        """Add rows that were there before: positions and the count that is expected stay. Return their number."""
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
        """Expect from now on what is there: the rest cannot be had again, and was told."""
        name = f"{self._queue_manager}:counted"
        number = (self._positions.get(name) or 0) + 1
        self._commit([], {name: number}, {}, rows=self._count_rows())

    def append(self, tables: Iterator[pa.Table], positions: Mapping[tuple[str, str], int]) -> int:
        """Add rows and move the positions {(epoch, queue): last sequence} in one durable commit; the number of rows.

        Raises :class:`PublishConflictError` when another process moved one of the positions.
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
        """Put these rows in place of all rows of this queue manager, in one durable commit; the number of rows."""
        return self.put(self.write(tables), position, digest)

    def put(self, file: DataFile | None, position: int, digest: str) -> int:
        """:meth:`replace` by a file that was written before (:meth:`write`)."""
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
        """A durable data file that no commit names yet, for :meth:`put` or :meth:`swap`; ``None`` if there was no row."""
        return write_file(self._storage, self._spec, self._queue_manager, tables, notes)

    def notes(self, file: LiveFile) -> dict[str, str]:
        """What :meth:`write` noted in a file."""
        return read_notes(self._storage, file.path)

    def swap(
        self,
        removed: Sequence[LiveFile],
        added: Sequence[DataFile],
        positions: Mapping[tuple[str, str], int],
    ) -> None:
        """Put the rows of ``added`` in the place of those of ``removed``, in one durable commit.

        Raises :class:`PublishConflictError` when another process published for this queue manager meanwhile.
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
        """Return the digest of what :meth:`replace` wrote last, if it is still the table's content.

        Whether it is nobody knows once a program that is no queue manager has committed: RESTORE and UPDATE may leave as many
        rows as there were.
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
        """Data files of this queue manager that are gone or cut short (local tables; object stores are believed)."""
        root = self._storage.local
        return [
            file
            for file in self.own_files()
            if root and not looks_whole(root / file.path, file.size)
        ]

    def sequences_left(self, lost: LiveFile) -> Iterator[pa.Table]:
        """Epoch, queue and sequence of the rows in whole files that may lie between those of ``lost``."""
        return self.columns_left(lost, "sequence", ["epoch", "queue", "sequence"])

    def columns_left(self, lost: LiveFile, by: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Columns of the rows in whole files that may lie, by ``by``, between those of ``lost``."""
        gone = {file.path for file in self.lost_files()}
        for file in self.own_files():
            if file.path in gone or not overlap(file, lost, by):
                continue
            yield from self._columns_of(file, columns)

    def own_columns(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Columns of all rows, a row group at a time."""
        for file in self.own_files():
            yield from self._columns_of(file, columns)

    def _columns_of(self, file: LiveFile, columns: Sequence[str]) -> Iterator[pa.Table]:
        with contextlib.closing(self._storage.open_input(file.path)) as stream:
            parquet = pq.ParquetFile(stream)
            for group in range(parquet.num_row_groups):
                yield parquet.read_row_group(group, columns=list(columns))

    def _count_rows(self) -> int:
        """Rows of this queue manager; a file whose writer did not count them is asked."""
        return sum(
            file.rows or sum(table.num_rows for table in self._columns_of(file, ["position"]))
            for file in self.own_files()
        )

    def restore_rows(self, lost: LiveFile, tables: Iterator[pa.Table]) -> int:
        """Put ``tables`` in the place of a lost file. For streaming readers nothing changes: ``dataChange`` is false."""
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
        """Compaction, checkpoint, log clean-up and vacuum, each when its limit is reached. ``now`` is monotonic seconds."""
        if self._spec.append_only and self._appends >= COMPACT_FILES_MIN:
            self._compact()
        if (
            self._table.version() >= self._checkpointed + CHECKPOINT_COMMITS
            and self._storage.spare() >= CHECKPOINT_ROOM_BYTES
        ):
            self._checkpoint()
        self.vacuum(now)

    def vacuum(self, now: float) -> None:
        """Delete, once in VACUUM_INTERVAL_S, what no version within the time-travel span names. ``now``: monotonic seconds."""
        if self._vacuumed_at is None:
            self._vacuumed_at = now  # not at the start: what matters then is to publish
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
        """Join small files, in commit order, into one; the rows stay what they are (``dataChange`` false)."""
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
        if (
            len(chosen) < 2 or size > self._storage.spare()
        ):  # it needs the room twice, until the vacuum
            return
        joined = write_file(
            self._storage, self._spec, self._queue_manager, self._row_groups(chosen)
        )
        if joined is None or joined.rows != sum(file.rows for file in chosen):
            if joined is not None:
                self.discard([joined])
            raise StoreDamagedError(
                f"{self._storage.uri}: a compaction read other rows than the log counts; "
                "nothing was done"
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
            return  # the next one cleans up
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
        """One commit, durable when this returns. What other queue managers commit meanwhile is no conflict of ours.

        ``rows``: how many of ours it leaves; ``None``: as many as before.
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
                f"{self._storage.uri}: {COMMIT_RETRIES} attempts of a commit were overtaken"
            )
        self._table.update_incremental()
        self._look_at_newest()
        self._rows.committed(rows, version)
        self._settle()

    def discard(self, files: Iterable[DataFile]) -> None:
        """Delete files that were written for a commit that failed, or was never tried.

        After an error of a commit nobody knows whether it is there: the table is asked first, and what it names stays.
        """
        paths = {file.path for file in files}
        try:
            self._table.update_incremental()
            paths -= {file.path for file in self.own_files()}
        except Exception:  # whatever hides the table's log: the vacuum deletes what no commit names
            _log.debug("delta.not_discarded table=%s", self._storage.uri, exc_info=True)
            return
        for path in paths:
            self._storage.discard(path)

    @contextlib.contextmanager
    def discarding(self, *files: DataFile | None) -> Iterator[None]:
        """Delete ``files`` if what is done with them fails."""
        try:
            yield
        except BaseException:
            self.discard(file for file in files if file is not None)
            raise

    def _settle(self) -> None:
        """Make every commit that this handle has seen durable; only then may it be reported."""
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
            for folder in (
                self._storage.local.parent,
                self._storage.local,
            ):  # as durable as what will be reported to lie in it
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
        except CommitFailedError:  # another queue manager that shares the state was first
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
            raise_if_key_not_exists=False,  # srmp.format is ours, Delta does not know it
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
        """Our columns that the table does not have. Those that others added are theirs, wherever they stand."""
        present = {field.name for field in self._table.schema().fields}
        return [name for name in self._spec.schema.names if name not in present]

    def _add_new_columns(self) -> None:
        """The columns that came after the version that made the table; its rows have none of them, which reads as null."""
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
        except CommitFailedError:  # another queue manager that shares the state was first
            self._table.update_incremental()
            self._check_format()
            if self._missing_columns():
                raise
        self._table.update_incremental()

    def own_files(self) -> list[LiveFile]:
        """The live files of this queue manager, in commit order."""
        return live_files(self._table, self._spec, self._queue_manager)
