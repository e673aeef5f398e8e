"""Open a database of the data directory, for its owner or for readers, and translate its errors.

There are two databases, the inbox (``store.db``) and the outbox (``outbox.db``), with one owner
process each. A :class:`Database` states how they differ. ``synchronous=FULL`` is set and then
*asserted* at every open. SQLite builds differ in their default. With ``NORMAL`` a commit makes no
sync at all (measured: 0 syncs in 100 commits), and no test that kills the process can detect that.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from srmp_spark.errors import StoreDamagedError, StoreError, StoreSyncError
from srmp_spark.private_files import create_private

BUSY_TIMEOUT_S = 5.0
"""Longest wait for the database, in seconds.

Only a checkpoint's last step or a foreign tool makes a connection wait. After this time something
holds the database, and SQLite raises an error.
"""

DURABLE = ("journal_mode", "synchronous", "secure_delete", "wal_autocheckpoint")
"""Settings (PRAGMA) on which the durability or the duration of a commit depends."""

_READ_ONLY = "readonly database"
_DISK_REFUSES = ("disk is full", "disk I/O error", _READ_ONLY)
"""SQLite's error texts for a disk that is full, broken or read-only.

Before Python 3.11 its errors have no number.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """The properties of one kind of database: the inbox or the outbox."""

    format: int
    """Highest format number that is accepted. A higher number in the file is refused (exit code 6).
    """
    format_of_new: int | None = None
    """Format number of a new database; ``None`` means :attr:`format`.

    A lower number is given if the additions of the highest format are not used from the start.
    """
    ddl: str
    """SQL statements that create the tables."""
    pragmas: Mapping[str, object]
    """Settings (PRAGMA) of the connection that writes, by name."""
    promise: str
    """Promise that needs durable commits, such as "a 200", for the text of an error."""
    restore_hint: str
    """Advice for an operator who has lost the database."""


def text_or_bytes(stored: bytes) -> str | bytes:
    """Return stored text as ``str``, or as bytes if it is not valid UTF-8.

    Such a value then makes only its own row unreadable. By default Python's sqlite3 fails at such a
    text, and with it the whole statement fails.
    """
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored


TEXT_IS_UTF8 = (
    "(length({0}) = length(CAST({0} AS BLOB)) AND {0} NOT GLOB '*[^ -~]*' OR "
    "is_utf8(CAST({0} AS BLOB)))"
)
"""SQL condition: whether the text in column ``{0}`` is valid UTF-8.

SQLite accepts any bytes as text. The condition needs :func:`add_is_utf8`. Printable ASCII, which
nearly all text is, is recognized without a call of Python for each value.
"""


def add_is_utf8(connection: sqlite3.Connection) -> None:
    """Define the SQL function ``is_utf8`` for this connection (:data:`TEXT_IS_UTF8` needs it)."""
    connection.create_function("is_utf8", 1, _is_utf8)


def _is_utf8(stored: bytes | None) -> bool:
    return stored is not None and isinstance(text_or_bytes(stored), str)


def pragma(connection: sqlite3.Connection, name: str) -> object:
    """Return the present value of ``PRAGMA name``, or ``None`` if SQLite returns no row."""
    row = connection.execute(f"PRAGMA {name}").fetchone()
    return row[0] if row else None


def assert_durable(connection: sqlite3.Connection, database: Database) -> None:
    """Raise :class:`StoreError` unless the settings of the connection make commits durable.

    A durable commit reaches the disk before it returns. The settings in :data:`DURABLE` are
    compared with those of ``database``.
    """
    for name in DURABLE:
        found = pragma(connection, name)
        if found != database.pragmas[name]:
            raise StoreError(
                f"the database runs with {name}={found}, but {database.promise} promises "
                f"{name}={database.pragmas[name]}; "
                "this SQLite build or this file system cannot keep the promise: use a local disk"
            )


def connect_writer(path: Path, database: Database) -> sqlite3.Connection:
    """Open the one connection that writes, and create the tables in an empty database.

    The file is created if it is missing. The connection may be handed from thread to thread, but
    never be used by two at once. Raises :class:`StoreDamagedError` (exit code 6) if a newer version
    or another program made the file. Raises :class:`StoreError` if the settings do not make commits
    durable. An SQLite error is raised as :func:`store_error` returns it.
    """
    # SQLite gives its WAL the mode of the database file.
    with suppress(FileExistsError):
        os.close(create_private(path))
    connection = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )
    connection.text_factory = text_or_bytes
    try:
        # This comes before the first write: a database of a newer version must not be changed.
        found = check_format(connection, database)
        for name, value in database.pragmas.items():
            connection.execute(f"PRAGMA {name} = {value}")
        assert_durable(connection, database)
        if found == 0:
            _create(connection, database)
    except sqlite3.DatabaseError as error:
        connection.close()
        raise store_error(path, error, database.restore_hint) from error
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def readable(path: Path, restore_hint: str) -> Iterator[None]:
    """Raise SQLite errors of a ``with`` block as :func:`store_error` returns them.

    The block opens and loads the database ``path``. ``restore_hint`` is advice for the text of an
    error.
    """
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise store_error(path, error, restore_hint) from error


def connect_reader(path: Path, database: Database) -> sqlite3.Connection:
    """Open a connection to an existing database that cannot write, for one thread.

    Raises :class:`StoreDamagedError` if the file is missing, empty or not a database of srmp-spark,
    or has a newer format. Other SQLite errors are raised as :func:`store_error` returns them.
    """
    try:
        uri = f"{path.absolute().as_uri()}?mode=ro"
        connection = sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    except sqlite3.OperationalError as error:
        raise store_error(path, error, database.restore_hint) from error
    connection.text_factory = text_or_bytes
    try:
        if check_format(connection, database) == 0:
            message = f"{path} is empty: start srmp-spark serve on this data directory first"
            # The connection is closed below in every case.
            raise StoreDamagedError(message)  # noqa: TRY301
    except sqlite3.DatabaseError as error:
        connection.close()
        raise store_error(path, error, database.restore_hint) from error
    except BaseException:
        connection.close()
        raise
    return connection


def check_format(connection: sqlite3.Connection, database: Database) -> int:
    """Return the format number of the database; 0 if it is empty.

    Raises :class:`StoreDamagedError` if a newer version or another program wrote the database.
    """
    found = pragma(connection, "user_version")
    assert isinstance(found, int)
    if found > database.format:
        raise StoreDamagedError(
            f"the data directory has format {found}, this version of srmp-spark knows "
            f"{database.format}: "
            "start the newer version"
        )
    if found == 0 and connection.execute("SELECT 1 FROM sqlite_master").fetchone() is not None:
        raise StoreDamagedError(
            "the data directory holds a database of another program: give --data-dir another folder"
        )
    return found


def check_file(path: Path, database: Database) -> None:
    """Check the format of an existing file that another process will open to write.

    Raises the errors of :func:`check_format`, and SQLite's errors, also if the file is missing. The
    file is only read, with one exception. A process that was killed while it created the file,
    before the WAL existed, left a rollback journal. Then the file cannot be read until a process
    with write access has rolled the journal back, so the file is opened for writing.
    """
    for mode in ("ro", "rw"):
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=BUSY_TIMEOUT_S
        )
        try:
            check_format(connection, database)
        except sqlite3.OperationalError as error:
            if mode == "rw" or _READ_ONLY not in str(error):
                raise
        else:
            return
        finally:
            connection.close()


def _create(connection: sqlite3.Connection, database: Database) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for statement in database.ddl.split(";"):
        connection.execute(statement)
    connection.execute("INSERT INTO head VALUES (1, 0, 0)")
    connection.execute(f"PRAGMA user_version = {database.format_of_new or database.format}")
    connection.execute("COMMIT")


def store_error(path: Path, error: sqlite3.Error, restore_hint: str) -> StoreError:
    """Return the error of srmp-spark for an SQLite error of the file ``path``.

    The error is :class:`StoreSyncError` for a disk that is full or refuses (exit code 1),
    :class:`StoreDamagedError` for damage or a missing file (6), or :class:`StoreError` if another
    process uses the file (2). ``restore_hint`` is advice for its text.
    """
    said = str(error)
    if isinstance(error, sqlite3.OperationalError):
        if any(words in said for words in _DISK_REFUSES):
            return StoreSyncError(
                f"{path} cannot be written ({said}): make room or repair the disk, then start again"
            )
        if "unable to open" not in said:
            return StoreError(f"{path}: {said}")
    return StoreDamagedError(f"{path} cannot be read ({said}). {restore_hint}")
