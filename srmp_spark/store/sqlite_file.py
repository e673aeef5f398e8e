"""How a database of the data directory is opened: by its owner, by readers, and what its errors mean.

There are two, the inbox (``store.db``) and the outbox (``outbox.db``), with one owner process each. A :class:`Database` says
what differs. ``synchronous=FULL`` is set and then *asserted* at every open: SQLite builds differ in their default, and with
``NORMAL`` a commit makes no sync at all (measured: 0 syncs in 100 commits), which no test that kills the process can see.
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
"""Only a checkpoint's last step or a foreign tool makes a connection wait; past this something holds the database."""

DURABLE = ("journal_mode", "synchronous", "secure_delete", "wal_autocheckpoint")
"""The settings on which the promise rests, or the time a commit takes."""

_READ_ONLY = "readonly database"
_DISK_REFUSES = ("disk is full", "disk I/O error", _READ_ONLY)
"""SQLite's words; before Python 3.11 its errors have no number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """One kind of database."""

    format: int
    """A higher number in the file is refused (exit code 6)."""
    format_of_new: int | None = None
    """Of a database that is made now, if what the highest format adds is not used from the start."""
    ddl: str
    """Statements that make its tables."""
    pragmas: Mapping[str, object]
    """Of the connection that writes."""
    promise: str
    """What its commits promise, for the error when they cannot."""
    restore_hint: str
    """What there is against its loss."""


def text_or_bytes(stored: bytes) -> str | bytes:
    """Return a text as such; bytes that are no UTF-8 stay bytes, as if they were a blob, and cost their row alone.

    By itself Python's sqlite3 fails at such a text, and with it fails the whole statement.
    """
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored


TEXT_IS_UTF8 = (
    "(length({0}) = length(CAST({0} AS BLOB)) AND {0} NOT GLOB '*[^ -~]*' OR "
    "is_utf8(CAST({0} AS BLOB)))"
)
"""Whether the text in column ``{0}`` is one, where :func:`add_is_utf8` was called: SQLite takes any bytes for text. Printable
ASCII, which nearly all is, is seen without a call of Python for each value."""


def add_is_utf8(connection: sqlite3.Connection) -> None:
    """Make the function of :data:`TEXT_IS_UTF8` for this connection."""
    connection.create_function("is_utf8", 1, _is_utf8)


def _is_utf8(stored: bytes | None) -> bool:
    return stored is not None and isinstance(text_or_bytes(stored), str)


def pragma(connection: sqlite3.Connection, name: str) -> object:
    """The present value of a setting."""
    row = connection.execute(f"PRAGMA {name}").fetchone()
    return row[0] if row else None


def assert_durable(connection: sqlite3.Connection, database: Database) -> None:
    """Raise :class:`StoreError` unless a commit on this connection reaches the disk before it returns."""
    for name in DURABLE:
        found = pragma(connection, name)
        if found != database.pragmas[name]:
            raise StoreError(
                f"the database runs with {name}={found}, but {database.promise} promises "
                f"{name}={database.pragmas[name]}; "
                "this SQLite build or this file system cannot keep the promise: use a local disk"
            )


def connect_writer(path: Path, database: Database) -> sqlite3.Connection:
    """The one connection that writes. It may be handed from thread to thread, never used by two at once.

    Creates the tables in an empty database. Raises :class:`StoreDamagedError` (exit code 6) for a newer format or damage.
    """
    with suppress(FileExistsError):  # SQLite gives its WAL the mode of the database
        os.close(create_private(path))
    connection = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )
    connection.text_factory = text_or_bytes
    try:
        found = check_format(
            connection, database
        )  # before the first write: a newer version's database is not ours to touch
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
    """Around whatever opens and loads the database: its errors as ours, :func:`store_error` says which."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise store_error(path, error, restore_hint) from error


def connect_reader(path: Path, database: Database) -> sqlite3.Connection:
    """A connection that cannot write, for one thread.

    Raises :class:`StoreDamagedError` when there is no database of ours.
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
            raise StoreDamagedError(message)  # noqa: TRY301  # the connection is closed below in every case
    except sqlite3.DatabaseError as error:
        connection.close()
        raise store_error(path, error, database.restore_hint) from error
    except BaseException:
        connection.close()
        raise
    return connection


def check_format(connection: sqlite3.Connection, database: Database) -> int:
    """The format found, 0 for an empty database.

    Raises :class:`StoreDamagedError` for a database of a newer version, or of another program.
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
    """:func:`check_format` of a file that another process will open to write. Raises what SQLite raises, too.

    It is only read, with one exception: whoever was killed while it made the file, before the WAL was there, left a rollback
    journal, and nobody can read the file until somebody who may write has rolled it back.
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
    """What SQLite says as an error of ours: a disk that refuses (exit code 1), damage (6), or another user of the file (2)."""
    said = str(error)
    if isinstance(error, sqlite3.OperationalError):
        if any(words in said for words in _DISK_REFUSES):
            return StoreSyncError(
                f"{path} cannot be written ({said}): make room or repair the disk, then start again"
            )
        if "unable to open" not in said:
            return StoreError(f"{path}: {said}")
    return StoreDamagedError(f"{path} cannot be read ({said}). {restore_hint}")
