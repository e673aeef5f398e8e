"""Store the subscriptions that were added while the queue manager ran.

``srmp-spark subscribe`` and ``format("mqrr")`` add such subscriptions. The password of a
subscription is a file of its own in the data directory, which only the owner of the directory can
read. Everything else is a database row.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

from srmp_spark.private_files import FOLDER_MODE
from srmp_spark.store.database.durable import sync_directory, write_durably
from srmp_spark.store.database.set_aside import REASON_MAX, SetAside, typed
from srmp_spark.store.tables import cutovers

FOLDER = "subscriptions"
"""Folder in the data directory for passwords, and for the marks of sent Ends (:mod:`.sent_marks`).
"""


class AddedRow(NamedTuple):
    """One subscription that was added at run time, as stored."""

    name: str
    """Name of the subscription: :attr:`.subscriptions.Subscription.name`."""
    entry: dict[str, Any]
    """The keys that ``[[subscription]]`` would have, without a password."""
    removing: bool
    """Whether the subscription is being removed. Some of its messages are not settled yet."""


class Added(NamedTuple):
    """All subscriptions that were added at run time: those that can be read, and the others."""

    rows: list[AddedRow]
    unreadable: list[SetAside]
    """The database rows that cannot be read as a subscription, with the reason."""


def load_added(connection: sqlite3.Connection) -> Added:
    """Read all subscriptions that were added at run time from the database.

    A row that cannot be read is returned in ``unreadable`` and raises nothing.
    """
    added = Added([], [])
    for name, text, removing in connection.execute(
        "SELECT name, entry, removing FROM subscriptions ORDER BY name"
    ):
        try:
            typed((name, text, removing), (str, str, int))
            entry = json.loads(text)
        except (ValueError, TypeError, RecursionError) as error:
            added.unreadable.append(SetAside("subscriptions", str(name), str(error)[:REASON_MAX]))
            continue
        if not isinstance(entry, dict):
            added.unreadable.append(
                SetAside("subscriptions", name, f"an entry is a table, not {text[:40]!r}")
            )
            continue
        added.rows.append(AddedRow(name, entry, bool(removing)))
    return added


def store_added(connection: sqlite3.Connection, row: AddedRow) -> None:
    """Write a subscription to the database. It replaces one of the same name."""
    connection.execute(
        "INSERT OR REPLACE INTO subscriptions(name, entry, removing) VALUES (?, ?, ?)",
        (row.name, json.dumps(row.entry, sort_keys=True), int(row.removing)),
    )


def remove_added(connection: sqlite3.Connection, name: str) -> None:
    """Mark a subscription as being removed. :func:`forget_added` deletes it when all is settled."""
    connection.execute("UPDATE subscriptions SET removing = 1 WHERE name = ?", (name,))


def forget_added(connection: sqlite3.Connection, name: str) -> None:
    """Delete a subscription, and the records of its copies and its cut-over, from the database.

    If the subscription is added again, it copies the remote queue from its beginning.
    """
    connection.execute("DELETE FROM subscriptions WHERE name = ?", (name,))
    cutovers.forget_all(connection, name)


def names_of_pulled(connection: sqlite3.Connection) -> tuple[dict[str, int], list[SetAside]]:
    """Return the number of unpublished messages of each subscription, by its name.

    These messages are stored in the table ``pulled`` and are no rows of a queue yet. The second
    value lists those whose subscription's name cannot be read.
    """
    names: dict[str, int] = {}
    nameless: list[SetAside] = []
    for name, count in connection.execute(
        "SELECT subscription, COUNT(*) FROM pulled GROUP BY subscription"
    ):
        if isinstance(name, str):
            names[name] = count
        else:
            nameless.append(
                SetAside(
                    "pulled",
                    f"{name!r:.50}",
                    f"{count} messages of a subscription whose name is no text",
                )
            )
    return names, nameless


def subscription_file(data_directory: Path, name: str, kind: str) -> Path:
    """Return the path of a subscription's file; ``kind`` is the suffix of its name.

    The folder of the file is created durably if it is missing. Only its owner can read the folder.
    Raises :class:`OSError` if it cannot be created.
    """
    folder = data_directory / FOLDER
    if not folder.exists():
        folder.mkdir(mode=FOLDER_MODE)
        sync_directory(data_directory)
    return folder / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.{kind}"


class Passwords:
    """Reads and writes the passwords of subscriptions that were added at run time."""

    def __init__(self, data_directory: Path) -> None:
        self._directory = data_directory

    def _path(self, name: str) -> Path:
        return subscription_file(self._directory, name, "password")

    def read(self, name: str) -> str | None:
        """Return the stored password of a subscription, or None if it has none.

        Raises :class:`OSError` if the file exists and cannot be read.
        """
        try:
            return self._path(name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def write(self, name: str, password: str | None) -> None:
        """Store the password of a subscription durably, or delete it if ``password`` is None.

        Call this before the subscription itself is stored. Raises :class:`OSError` if that fails.
        """
        path = self._path(name)
        if password is None:
            path.unlink(missing_ok=True)
            return
        write_durably(path, password.encode())
