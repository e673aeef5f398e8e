"""Answer a restore that asks whether this queue manager is alive, and end when it was given up.

**Theory of operation.** ``srmp-spark restore`` makes a second queue manager with the same GUID. If
the first one is alive, the messages that it acknowledges from then on are never read. Clocks cannot
decide whether it is alive, and an idle queue manager writes nothing to the Delta state. So the two
communicate through application transactions of the table ``inbox``. Every restore and every queue
manager with ``--state`` can reach this table, on a local disk, a network file system or an object
store (docs/adr/0021):

==================== ================ ===========================================================
application          written by       meaning
==================== ================ ===========================================================
``GUID:answers``     queue manager    1: its version answers questions
``GUID:asked``       restore          the number of the last question: are you alive?
``GUID:answered``    queue manager    the last question that it has answered
``GUID:appends``     both             moved by every append of rows and by the end of every
                                      restore: of two at one moment the log of the table
                                      accepts one, and refuses the other
``GUID:restores``    restore          how often it was restored: an earlier data directory is
                                      given up
==================== ================ ===========================================================

The watch has its own thread and handle. So it answers within :data:`LOOK_SECONDS` whatever the
publisher does: writing millions of identifiers, waiting for an unavailable store, or ended by a
damaged table.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import TableNotFoundError

from srmp_spark.store.database.schema import connect_reader
from srmp_spark.store.delta.tables.actions import answered_id, answers_id, asked_id, restores_id
from srmp_spark.store.delta.tables.cycles import ENDED_REMEDY, GivenUpError
from srmp_spark.store.delta.tables.data_files import storage_of
from srmp_spark.store.delta.tables.events import Notify, PublisherFailed
from srmp_spark.store.delta.tables.shadow import ACTIONS_KEY
from srmp_spark.store.delta.tables.table_specs import PARTITION, inbox
from srmp_spark.store.directory import DATABASE_FILE

LOOK_SECONDS = 5.0
"""Seconds between two looks at the table, or ``--state-interval`` if that is less.

A restore waits for four looks (:data:`srmp_spark.store.restore.alive.ANSWER_SECONDS`).
"""

_QUEUE_MANAGER_KEY = "srmp.queue_manager"
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
_log = logging.getLogger(__name__)


def given_up_error(uri: str, unpublished: str = "") -> GivenUpError:
    """Return the error that ends this queue manager because it was restored elsewhere.

    ``unpublished`` names rows that exist in this data directory only.
    """
    alone = (
        f" Accepted here and in no table, so the restored one does not have them: {unpublished}."
        if unpublished
        else ""
    )
    return GivenUpError(
        f"the queue manager was restored from {uri} into another data directory, and this one "
        "was given up: messages that it accepts now would never be read. Use the restored "
        f"one; do not start this one again.{alone}"
    )


def restores_of(data_dir: Path) -> int:
    """Return how often the queue manager was restored before its directory was created.

    Return 0 if the directory has no database. Raises the errors of :func:`.schema.connect_reader`.
    """
    if not (data_dir / DATABASE_FILE).exists():
        return 0
    connection = connect_reader(data_dir / DATABASE_FILE)
    try:
        (found,) = connection.execute(
            "SELECT coalesce(max(value), 0) FROM meta WHERE key = 'restores'"
        ).fetchone()
    finally:
        connection.close()
    return int(found)


class RestoreNotes:
    """Reads and writes the application transactions about restores in the table ``inbox``.

    An instance has its own handle of the table.
    """

    def __init__(
        self, state_uri: str, queue_manager: str, options: Mapping[str, str] | None = None
    ) -> None:
        self._storage = storage_of(state_uri, inbox().name, options or {})
        self._queue_manager = queue_manager
        self._table: DeltaTable | None = None
        self._versions: dict[str, int] = {}
        """Versions that were read from the commit that the handle shows.

        They are kept so that the log of an idle table is not read again.
        """

    def refresh(self) -> bool:
        """Read new commits of the table, and return whether there are any.

        Commits of this object count, too. Return ``False`` also if there is no table yet. Raises
        the errors of the store.
        """
        seen = None if self._table is None else self._table.version()
        table, self._table = self._table, None
        with suppress(TableNotFoundError):
            self._table = self._opened() if table is None else self._updated(table)
        is_new = self._table is not None and self._table.version() != seen
        if is_new or self._table is None:
            self._versions.clear()
        return is_new

    def _opened(self) -> DeltaTable:
        return DeltaTable(self._storage.uri, storage_options=self._storage.options or None)

    def _updated(self, table: DeltaTable) -> DeltaTable:
        try:
            table.update_incremental()
        except TableNotFoundError:
            raise
        except Exception:
            # The table may have been deleted and created again, which is no failure. Any other
            # failure shows when the table is opened.
            return self._opened()
        return table

    def version(self, application: str) -> int:
        """Return the version of the Delta application ``application``, as of :meth:`refresh`.

        Return 0 if the table has no such application.
        """
        if self._table is None:
            return 0
        if application not in self._versions:
            self._versions[application] = int(self._table.transaction_version(application) or 0)
        return self._versions[application]

    @property
    def restores(self) -> int:
        """Return how often the queue manager was restored, as of the last :meth:`refresh`."""
        return self.version(restores_id(self._queue_manager))

    def write(self, transactions: Mapping[str, int]) -> None:
        """Make a Delta commit with these application transactions and nothing else.

        ``transactions`` maps names of applications to their new versions. The commit is durable
        after the next commit of the publisher. Call :meth:`refresh` before. Raises the errors of
        the store.
        """
        assert self._table is not None, "refreshed"
        # The next look opens the table again, whether this commit succeeds or fails.
        table, self._table = self._table, None
        properties = CommitProperties(
            custom_metadata={
                _QUEUE_MANAGER_KEY: self._queue_manager,
                ACTIONS_KEY: str(len(transactions)),
            },
            app_transactions=[
                Transaction(application, version) for application, version in transactions.items()
            ],
        )
        table.create_write_transaction(
            [],
            "append",
            table.schema(),
            [PARTITION],
            commit_properties=properties,
            post_commithook_properties=_NO_HOOKS,
        )


class RestoreWatch:
    """Answers the questions of restores while the queue manager runs, in a thread of its own.

    The watch looks at the table ``inbox`` every few seconds (:data:`LOOK_SECONDS`).
    """

    def __init__(
        self,
        data_dir: str | Path,
        state_uri: str,
        queue_manager: str,
        interval_s: float,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self._data_dir = Path(data_dir)
        self._uri = state_uri
        self._queue_manager = queue_manager
        self._wait_s = min(interval_s, LOOK_SECONDS)
        self._notes = RestoreNotes(state_uri, queue_manager, options)
        self._own: int | None = None
        self._failure = ""

    def __repr__(self) -> str:
        return f"<RestoreWatch {self._queue_manager} at {self._uri} every {self._wait_s} s>"

    def run(self, stop: threading.Event, notify: Notify) -> None:
        """Call :meth:`look` every few seconds, until ``stop`` is set or this directory is given up.

        ``notify`` is called once, with a fatal failure, if the queue manager was restored
        elsewhere. Other errors are logged, and the next look tries again.
        """
        while True:
            try:
                self.look()
            except GivenUpError as error:
                name = inbox().name
                notify(PublisherFailed(name, str(error), ENDED_REMEDY, fatal=True, older_copy=True))
                return
            except Exception as error:
                # A store or a network may raise anything. The next look may succeed.
                if (failure := f"{type(error).__name__}: {error}") != self._failure:
                    self._failure = failure
                    told = (
                        'state.not_watched reason="%s": a restore would not learn that this '
                        "queue manager is alive"
                    )
                    _log.warning(told, failure)
            else:
                self._failure = ""
            if stop.wait(self._wait_s):
                return

    def look(self) -> None:
        """Read new commits of the table once, and answer a question of a restore if there is one.

        The answer is a commit. If there is no question, and the table does not state yet that this
        queue manager answers, that is committed. Raises :class:`GivenUpError` if the queue manager
        was restored elsewhere, and the errors of the store.
        """
        if self._own is None:
            self._own = restores_of(self._data_dir)
        if not self._notes.refresh():
            # Nothing was committed since the last look, so there is no new question.
            return
        if self._notes.restores > self._own:
            raise given_up_error(self._uri)
        asked = self._notes.version(asked_id(self._queue_manager))
        if asked > self._notes.version(answered_id(self._queue_manager)):
            self._notes.write({answered_id(self._queue_manager): asked})
            told = (
                "restore.answered question=%d uri=%s: a restore asked whether this queue "
                "manager is alive"
            )
            _log.warning(told, asked, self._uri)
        elif not self._notes.version(answers_id(self._queue_manager)):
            self._notes.write({answers_id(self._queue_manager): 1})
