"""The table ``reliable_sessions``: outgoing sequences of WS-ReliableMessaging.

Each destination has one sequence. A message number must mean one message for ever. So before a
message is sent for the first time, its number and its serial are written here. A number is deleted
no earlier than in the transaction that finishes its message. After a restart, numbers whose
messages still wait are unacknowledged, and the others are acknowledged. So an acknowledgement needs
no write of its own.

One case is different. If a message is acknowledged while its queue is held, the message still
waits, and its serial is stored under a number below 0 from then on.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from srmp_spark.errors import ConfigurationError, StoreDamagedError
from srmp_spark.srmp.sending.outgoing_effects import QueueKey
from srmp_spark.store.database.set_aside import typed
from srmp_spark.wsrm.codec.elements import ABSENT
from srmp_spark.wsrm.codec.versions import Versions

DDL = """
CREATE TABLE IF NOT EXISTS reliable_sessions(
    queue_id INTEGER PRIMARY KEY, create_id TEXT NOT NULL, identifier TEXT NOT NULL, \
versions TEXT NOT NULL,
    assigned INTEGER NOT NULL, numbers TEXT NOT NULL, buffer_remaining INTEGER NOT NULL, \
ending INTEGER NOT NULL,
    lost TEXT NOT NULL, begun_at INTEGER NOT NULL
)
"""


class NumberRun(NamedTuple):
    """Consecutive message numbers of messages with consecutive serials."""

    number: int
    serial: int
    length: int


class SessionRow(NamedTuple):
    """The outgoing sequence of one destination (WS-ReliableMessaging), as stored.

    ``versions`` names the versions of the protocols, and ``buffer_remaining`` is the last
    BufferRemaining that the destination stated.
    """

    create_id: str
    """MessageID of its CreateSequence.

    If it is empty, there is no sequence, and only ``numbers`` counts.
    """
    identifier: str
    """Identifier of the sequence.

    The text is empty until the destination has assigned an identifier.
    """
    versions: str
    assigned: int
    """The highest message number that was assigned."""
    numbers: tuple[NumberRun, ...]
    """Numbers and serials of the messages that are not finished.

    Numbers below 0 are those of messages that the destination accepted, perhaps in an earlier
    sequence.
    """
    buffer_remaining: int = ABSENT
    ending: bool = False
    """Whether the sequence ends.

    Then it gets no more messages, is closed and terminated, and is forgotten at last.
    """
    lost: str = ""
    """Why the destination no longer knows the sequence; empty if it knows the sequence.

    The messages of a lost sequence are in doubt, and are held until an operator resends or drops
    them.
    """
    begun_at: int = 0
    """Time when the sequence began, in microseconds since 1970, UTC."""

    @property
    def last_serial(self) -> int:
        """Return the highest serial that may have been sent, or 0 if there is none."""
        return max((run.serial + run.length - 1 for run in self.numbers), default=0)


def runs_of(serials: Mapping[int, int]) -> tuple[NumberRun, ...]:
    """Return the runs of message numbers and serials in ``serials``, ascending.

    ``serials`` maps each message number to a serial.
    """
    runs: list[NumberRun] = []
    for number in sorted(serials):
        serial, last = serials[number], runs[-1] if runs else None
        if last is not None and number - last.number == serial - last.serial == last.length:
            runs[-1] = last._replace(length=last.length + 1)
        else:
            runs.append(NumberRun(number, serial, 1))
    return tuple(runs)


def serials_of(runs: Iterable[NumberRun]) -> dict[int, int]:
    """Return the serial of each message number in the runs: the inverse of :func:`runs_of`."""
    return {run.number + each: run.serial + each for run in runs for each in range(run.length)}


COLUMNS = (
    "create_id, identifier, versions, assigned, numbers, buffer_remaining, ending, lost, begun_at"
)
"""The columns that :func:`row_of_session` reads, in this order."""


def load_sessions(connection: sqlite3.Connection) -> dict[QueueKey, SessionRow]:
    """Return all stored sequences, by outgoing queue.

    Raises :class:`StoreDamagedError` for a row that cannot be read (:mod:`.unreadable`).
    """
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
    """Return the stored sequence from the values of its :data:`COLUMNS`.

    Raises :class:`TypeError`, :class:`ValueError` or :class:`ConfigurationError` if the values are
    no valid row.
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
    """Store the sequence of a queue, or delete it if ``row`` is ``None``.

    The function runs in the caller's transaction. ``queue_id`` is the id in the table ``queues``.
    """
    if row is None:
        connection.execute("DELETE FROM reliable_sessions WHERE queue_id = ?", (queue_id,))
        return
    connection.execute(
        "INSERT OR REPLACE INTO reliable_sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (queue_id, *row[:4], json.dumps(row.numbers), *row[5:]),
    )
