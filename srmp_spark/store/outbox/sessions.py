"""The table ``reliable_sessions``: the sequences of WS-ReliableMessaging in which we send, one for a destination.

A number must mean one message for ever. So what is written here, before a message leaves for the first time, is which number is
which serial; and a number is taken out no earlier than in the transaction that finishes its message. After a restart, numbers
whose message still waits are unacknowledged, and the others are acknowledged: an acknowledgement needs no write of its own.
But for that of a message whose queue is on hold: it still waits, and its serial stands under a number below 0 from then on.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from srmp_spark.errors import ConfigurationError, StoreDamagedError
from srmp_spark.srmp.outgoing_effects import QueueKey
from srmp_spark.store.set_aside import typed
from srmp_spark.wsrm.elements import ABSENT
from srmp_spark.wsrm.versions import Versions

DDL = """
CREATE TABLE IF NOT EXISTS reliable_sessions(
    queue_id INTEGER PRIMARY KEY, create_id TEXT NOT NULL, identifier TEXT NOT NULL, versions TEXT NOT NULL,
    assigned INTEGER NOT NULL, numbers TEXT NOT NULL, buffer_remaining INTEGER NOT NULL, ending INTEGER NOT NULL,
    lost TEXT NOT NULL, begun_at INTEGER NOT NULL
)
"""


class NumberRun(NamedTuple):
    """Consecutive numbers of messages with consecutive serials."""

    number: int
    serial: int
    length: int


class SessionRow(NamedTuple):
    """One sequence."""

    create_id: str
    """MessageID of its CreateSequence; empty: there is none, and only ``numbers`` counts."""
    identifier: str
    """Empty until the destination has named it."""
    versions: str
    assigned: int
    """The highest number that a message has."""
    numbers: tuple[NumberRun, ...]
    """Of the messages that are not finished. Below 0: of those that the destination took, perhaps in an earlier sequence."""
    buffer_remaining: int = ABSENT
    ending: bool = False
    """It gets no more messages: closed and terminated, then forgotten."""
    lost: str = ""
    """Why the destination knows it no more; then ``numbers`` are in doubt, and an operator decides."""
    begun_at: int = 0
    """Microseconds since 1970, UTC."""

    @property
    def last_serial(self) -> int:
        """The highest one that may have left; 0: none."""
        return max((run.serial + run.length - 1 for run in self.numbers), default=0)


def runs_of(serials: Mapping[int, int]) -> tuple[NumberRun, ...]:
    """Numbers and their serials as runs."""
    runs: list[NumberRun] = []
    for number in sorted(serials):
        serial, last = serials[number], runs[-1] if runs else None
        if last is not None and number - last.number == serial - last.serial == last.length:
            runs[-1] = last._replace(length=last.length + 1)
        else:
            runs.append(NumberRun(number, serial, 1))
    return tuple(runs)


def serials_of(runs: Iterable[NumberRun]) -> dict[int, int]:
    """The inverse."""
    return {run.number + each: run.serial + each for run in runs for each in range(run.length)}


COLUMNS = (
    "create_id, identifier, versions, assigned, numbers, buffer_remaining, ending, lost, begun_at"
)
"""What :func:`row_of_session` takes, in this order."""


def load_sessions(connection: sqlite3.Connection) -> dict[QueueKey, SessionRow]:
    """Return all of them. Raises :class:`StoreDamagedError` for a row that cannot be read (:mod:`.unreadable`)."""
    rows = connection.execute(
        f"SELECT destination, kind, {COLUMNS} FROM reliable_sessions JOIN queues ON "  # noqa: S608  # our own names
        "queues.id = queue_id "
        "ORDER BY queue_id"
    ).fetchall()
    try:
        return {
            QueueKey(destination, kind): row_of_session(values)
            for destination, kind, *values in rows
        }
    except (ConfigurationError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise StoreDamagedError(
            f"a row of the table reliable_sessions of the outbox cannot be read: {error}"
        ) from error


def row_of_session(values: Sequence[Any]) -> SessionRow:
    """Return the row with these values. Raises :class:`TypeError`, :class:`ValueError` or
    :class:`ConfigurationError` if it is none.
    """
    typed(values, (str, str, str, int, str, int, int, str, int))
    row = SessionRow(*values)
    runs = tuple(NumberRun(*typed(run, (int, int, int))) for run in json.loads(str(row.numbers)))
    if any(run.length < 1 or run.serial < 1 for run in runs):
        raise ValueError(f"numbers {runs!r:.100}")
    if row.versions:
        Versions.load(row.versions)
    return row._replace(numbers=runs, ending=bool(row.ending))


def save_session(connection: sqlite3.Connection, queue_id: int, row: SessionRow | None) -> None:
    """In the caller's transaction; ``None``: there is none any more."""
    if row is None:
        connection.execute("DELETE FROM reliable_sessions WHERE queue_id = ?", (queue_id,))
        return
    connection.execute(
        "INSERT OR REPLACE INTO reliable_sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (queue_id, *row[:4], json.dumps(row.numbers), *row[5:]),
    )
