"""Subscriptions that were added while the queue manager ran (``srmp-spark subscribe``, ``format("mqrr")``), as they are stored.

The password of one is a file of its own in the data directory that only its owner can read; everything else is a row.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

from srmp_spark.private_files import FOLDER_MODE
from srmp_spark.store.durable import sync_directory, write_durably
from srmp_spark.store.set_aside import REASON_MAX, SetAside, typed

FOLDER = "subscriptions"
"""Below the data directory: passwords, and of which messages End was sent."""


class AddedRow(NamedTuple):
    """One of them."""

    name: str
    """:attr:`.subscriptions.Subscription.name`."""
    entry: dict[str, Any]
    """As ``[[subscription]]`` would have it, without a password."""
    removing: bool
    """It was removed, and what is pending is not settled yet."""


class Added(NamedTuple):
    """All subscriptions that were added."""

    rows: list[AddedRow]
    unreadable: list[SetAside]
    """By name, those whose row cannot be read."""


def load_added(connection: sqlite3.Connection) -> Added:
    """Load all of them."""
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
    """Make it, or change it."""
    connection.execute(
        "INSERT OR REPLACE INTO subscriptions(name, entry, removing) VALUES (?, ?, ?)",
        (row.name, json.dumps(row.entry, sort_keys=True), int(row.removing)),
    )


def remove_added(connection: sqlite3.Connection, name: str) -> None:
    """Nothing more is taken; it is forgotten when what is pending is settled."""
    connection.execute("UPDATE subscriptions SET removing = 1 WHERE name = ?", (name,))


def forget_added(connection: sqlite3.Connection, name: str) -> None:
    """It is gone, and with it what is known of what it copied: added again it begins anew."""
    connection.execute("DELETE FROM subscriptions WHERE name = ?", (name,))
    connection.execute("DELETE FROM copied WHERE subscription = ?", (name,))


def names_of_pulled(connection: sqlite3.Connection) -> tuple[dict[str, int], list[SetAside]]:
    """Of which subscriptions messages are stored that are no rows yet, and how many; and those of which nobody can tell."""
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
    """The file of a subscription, in a folder that only its owner can read, which is made."""
    folder = data_directory / FOLDER
    if not folder.exists():
        folder.mkdir(mode=FOLDER_MODE)
        sync_directory(data_directory)
    return folder / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.{kind}"


class Passwords:
    """What was given with them."""

    def __init__(self, data_directory: Path) -> None:
        self._directory = data_directory

    def _path(self, name: str) -> Path:
        return subscription_file(self._directory, name, "password")

    def read(self, name: str) -> str | None:
        """Of one subscription; ``None``: none was given."""
        try:
            return self._path(name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def write(self, name: str, password: str | None) -> None:
        """Before the subscription is stored; ``None``: it has none."""
        path = self._path(name)
        if password is None:
            path.unlink(missing_ok=True)
            return
        write_durably(path, password.encode())
