"""Rows of the outbox that cannot be read: set aside with their bytes when the outbox is opened.

**Theory of operation.** One bad row must stop its own destination and nothing else. So each row is
checked before anything reads it. A row that fails the check is moved, whole, into the table
``set_aside``. The following takes its place:

===================== =============================================================================
table                 in place of a row that cannot be read
===================== =============================================================================
``queues``            a row that is made from the serials that wait: the destination is held, all
                      waiting messages count as in doubt, and a stream begins anew, as in a copy
                      (:mod:`.copies`)
``reliable_sessions`` no row: the destination is held, and all waiting messages count as in doubt
``parts``, ``groups`` no row: their messages are not sent, and their destination is held, so that
                      no later message overtakes them without notice
``stages``            no row: its batch is refused when it is committed, and its client stages it
                      again
``moved``             no row: its dead letters, or journal copies, are not shown
``meta``              the two counters continue beyond every number in use; without the cursor of
                      ``private$/forward$`` forwarding is held
                      (:func:`.forward_place.held_because`); the other cursors begin again, because
                      what they read twice counts once
others                no row: what the row knew of a batch is forgotten
===================== =============================================================================

An operator decides about a destination that is held: ``srmp-spark streams resend`` or ``drop``.
``status`` and ``doctor`` report the rows in ``set_aside`` until their destination is dropped. Rows
that belong to no destination stay.
"""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from srmp_spark.errors import SrmpSparkError
from srmp_spark.srmp.sending.outgoing_effects import QueueKey
from srmp_spark.srmp.sending.outgoing_ledger import OutgoingLedger
from srmp_spark.store.database.set_aside import REASON_MAX, TOLD_MAX, SetAside, tell_set_aside
from srmp_spark.store.database.sqlite_file import TEXT_IS_UTF8, add_is_utf8
from srmp_spark.store.outbox.tables.copies import ORDINAL_GAP
from srmp_spark.store.outbox.tables.damage import PREFIX as DAMAGE_PREFIX
from srmp_spark.store.outbox.tables.damage import noted_damage
from srmp_spark.store.outbox.tables.forward_place import READ_TO, cursor_of, hold_forwarding
from srmp_spark.store.outbox.tables.incarnations import PREFIX as INCARNATION_PREFIX
from srmp_spark.store.outbox.tables.queue_rows import COLUMNS, KINDS, row_of_queue
from srmp_spark.store.outbox.tables.schema import OFFSET_BITS
from srmp_spark.store.outbox.tables.sessions import COLUMNS as SESSION_COLUMNS
from srmp_spark.store.outbox.tables.sessions import row_of_session

DDL = """
CREATE TABLE IF NOT EXISTS set_aside(
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, key TEXT NOT NULL, reason TEXT NOT NULL, \
content TEXT NOT NULL,
    destination TEXT, kind TEXT, at INTEGER NOT NULL
)
"""
SERIAL_GAP = 1 << 20
"""Serials that are skipped after the highest known serial of a queue.

The gap is needed if the row with the last assigned serial cannot be read.
"""

_NUMBER, _TEXT, _BYTES = "integer", "text", "blob"
_WANTED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "parts": {
        **dict.fromkeys(("batch_no", "rows", "final", "journal"), (_NUMBER,)),
        **dict.fromkeys(
            ("queue_id", "first", "last", "ids_first", "enqueued_at"), (_NUMBER, "null")
        ),
        **dict.fromkeys(("application", "batch", "dead_letter_queue"), (_TEXT, "null")),
    },
    "groups": {
        **dict.fromkeys(("first", "bytes", "data_id"), (_NUMBER,)),
        "gone": (_BYTES, "null"),
    },
    "stages": {
        **dict.fromkeys(("application", "batch", "attempt", "file", "order_by"), (_TEXT,)),
        **dict.fromkeys(("partition", "rows", "bytes", "dead_letter", "staged_at"), (_NUMBER,)),
    },
    "batches": {
        **dict.fromkeys(("application", "batch"), (_TEXT,)),
        **dict.fromkeys(("new", "known", "at", "committed"), (_NUMBER,)),
        "stages": (_BYTES,),
    },
    "scopes": {
        **dict.fromkeys(("application", "destination", "batch"), (_TEXT,)),
        "batch_no": (_NUMBER,),
    },
    "sources": dict.fromkeys(("queue_manager", "epoch", "queue"), (_TEXT,)),
    "positions": {
        **dict.fromkeys(("scope_id", "source_id", "block", "at"), (_NUMBER,)),
        "known": (_BYTES,),
    },
    "position_contents": {
        **dict.fromkeys(("scope_id", "source_id", "block", "batch_no"), (_NUMBER,)),
        **dict.fromkeys(("known", "contents"), (_BYTES,)),
    },
    "batch_conflicts": {"conflicts": (_NUMBER,)},
    "batch_bad_rows": {"rows": (_NUMBER,), "first": (_TEXT,)},
    "letter_cursors": {"queue": (_TEXT,), "handed_to": (_NUMBER,)},
    "identity_log": {**dict.fromkeys(("batch_no", "scope_id"), (_NUMBER,)), "hashes": (_BYTES,)},
    "moved": {
        **dict.fromkeys(
            (
                "fate",
                "destination",
                "kind",
                "stream_ordinal",
                "application",
                "batch",
                "reason",
                "target",
            ),
            (_TEXT,),
        ),
        **dict.fromkeys(
            (
                "base",
                "ids_base",
                "enqueued_at",
                "in_doubt",
                "moved_at",
                "rows",
                "bytes",
                "position",
                "data_id",
            ),
            (_NUMBER,),
        ),
        **dict.fromkeys(("status", "message_class"), (_NUMBER, "null")),
        "serials": (_BYTES,),
        "sent": (_TEXT, "null"),
    },
}
"""Storage classes of the columns by table, because SQLite stores values of any class.

The mapping has every column that readers use without a check.
"""
_META_NUMBERS = ("order_queue_read_to", "dead_letters_handed_to", "retention_clock")
"""Keys of ``meta`` with a number that may begin again.

Receipts and dead letters that are read twice count once, and the retention clock continues from the
newest batch.
"""
_KEYS = {
    "batches": "no",
    "positions": "scope_id, source_id, block",
    "position_contents": "scope_id, source_id, block, batch_no",
    "batch_conflicts": "batch_no",
    "batch_bad_rows": "batch_no",
    "letter_cursors": "queue",
}
"""Columns that identify a row, for the tables without ``id``."""
_COUNTERS = ("last_stream_ordinal", "serials_after")


class Problem(NamedTuple):
    """One database row that cannot be read, and the reason."""

    table: str
    where: Mapping[str, Any]
    """The values that identify the row in its table, by column."""
    reason: str
    queue_id: int | None = None
    """The outgoing queue that the row belongs to, if it is known."""


def set_unreadable_aside(connection: sqlite3.Connection, at: int) -> list[SetAside]:
    """Move each database row that cannot be read into the table ``set_aside``.

    Return reports on the rows in that table, also of earlier starts, newest first, at most
    TOLD_MAX. They are also logged. Destinations are held as the module's table says. All changes
    are made in the caller's transaction. ``at`` is the wall clock, in microseconds since 1970, UTC.
    """
    connection.execute(DDL)
    add_is_utf8(connection)
    _repair_counters(connection, at)
    _hold_forwarding_without_place(connection, at)
    for problem in [*_of_types(connection), *_of_moved(connection), *_of_meta(connection)]:
        _move(connection, problem, at)
        if problem.queue_id is not None:
            _hold(connection, problem.queue_id)
    for problem in list(_of_sessions(connection)):
        _move(connection, problem, at)
        if problem.queue_id is not None:
            _hold(connection, problem.queue_id)
    for problem in list(_of_queues(connection)):
        values = _move(connection, problem, at)
        _make_anew(connection, values, at)
    return [*tell_set_aside(rows_set_aside(connection))]


def rows_set_aside(connection: sqlite3.Connection) -> list[SetAside]:
    """Return reports on the rows in ``set_aside``, newest first, at most :data:`TOLD_MAX`."""
    rows = connection.execute(
        "SELECT name, key, reason FROM set_aside ORDER BY id DESC LIMIT ?", (TOLD_MAX,)
    )
    return [SetAside(*row) for row in rows]


def set_fact_aside(connection: sqlite3.Connection, key: str, reason: str, at: int) -> None:
    """Move the row ``key`` of ``meta``, which its reader cannot parse, into ``set_aside``.

    The function runs in the caller's transaction. ``at`` is the wall clock, in microseconds since
    1970, UTC.
    """
    _move(connection, Problem("meta", {"key": key}, reason), at)


def forget(connection: sqlite3.Connection, key: QueueKey) -> list[SetAside]:
    """Delete the rows of a forgotten destination from ``set_aside``; report the others.

    At most TOLD_MAX of the remaining rows are returned, newest first. The change is made in the
    caller's transaction.
    """
    connection.execute("DELETE FROM set_aside WHERE destination = ? AND kind = ?", key)
    return rows_set_aside(connection)


# --- finding --------------------------------------------------------------------------------------


def _of_types(connection: sqlite3.Connection) -> Iterator[Problem]:
    for table, columns in _WANTED.items():
        wrong = " OR ".join(
            f"typeof({name}) NOT IN ({', '.join(repr(each) for each in classes)})"
            + (
                f" OR typeof({name}) = 'text' AND NOT {TEXT_IS_UTF8.format(name)}"
                if _TEXT in classes
                else ""
            )
            for name, classes in columns.items()
        )
        key = _KEYS.get(table, "id")
        found = connection.execute(f"SELECT {key}, {', '.join(columns)} FROM {table} WHERE {wrong}")  # noqa: S608  # our own names
        names = key.split(", ")
        for row in found.fetchall():
            values = dict(zip(columns, row[len(names) :], strict=True))
            reason = "; ".join(
                f"{name} is {_class_of(value)}"
                for name, value in values.items()
                if _class_of(value) not in columns[name]
            )
            where = dict(zip(names, row[: len(names)], strict=True))
            yield Problem(table, where, reason, _queue_of(connection, table, where, values))


def _queue_of(
    connection: sqlite3.Connection, table: str, where: Mapping[str, Any], values: Mapping[str, Any]
) -> int | None:
    if table == "groups":
        row = connection.execute(
            "SELECT queue_id FROM parts WHERE id = ?", (where["id"] >> OFFSET_BITS,)
        ).fetchone()
        return row[0] if row is not None and isinstance(row[0], int) else None
    queue = values.get("queue_id") if table == "parts" else None
    return queue if isinstance(queue, int) else None


def _of_moved(connection: sqlite3.Connection) -> Iterator[Problem]:
    """Yield the rows of the table ``moved`` whose list of serials has the wrong length."""
    for (number,) in connection.execute(
        "SELECT id FROM moved WHERE length(serials) IS NOT 8 * rows"
    ).fetchall():
        yield Problem("moved", {"id": number}, "the length of serials does not fit rows")


def _of_meta(connection: sqlite3.Connection) -> Iterator[Problem]:
    """Yield the rows of the table ``meta`` that cannot be read.

    Checked are the numbers of :data:`_META_NUMBERS`, the incarnations (:mod:`.incarnations`) and
    the notes of damage (:mod:`.damage`).
    """
    facts = dict(connection.execute("SELECT key, value FROM meta"))
    for key, value in facts.items():
        reason = None
        if not isinstance(key, str):
            reason = f"its key is {key!r:.50}"
        elif key in _META_NUMBERS or key.startswith(INCARNATION_PREFIX):
            reason = None if str(value).isdecimal() else f"it is no number: {value!r:.50}"
        elif key == "incarnation":
            # An incarnation without a beginning is replaced by a new one with another name.
            begun = facts.get(f"{INCARNATION_PREFIX}{value}")
            reason = (
                None
                if str(begun).isdecimal()
                else f"incarnation {value!r:.50} begins at {begun!r:.50}"
            )
        elif key.startswith(DAMAGE_PREFIX):
            reason = _reason(lambda value=value: noted_damage(value))  # type: ignore[misc]  # bound at once
        if reason is not None:
            yield Problem("meta", {"key": key}, reason)


def _of_sessions(connection: sqlite3.Connection) -> Iterator[Problem]:
    for row in connection.execute(
        f"SELECT queue_id, {SESSION_COLUMNS} FROM reliable_sessions"  # noqa: S608  # our own names
    ).fetchall():
        reason = _reason(lambda row=row: row_of_session(row[1:]))  # type: ignore[misc]  # bound at once
        if reason is not None:
            yield Problem("reliable_sessions", {"queue_id": row[0]}, reason, row[0])


def _of_queues(connection: sqlite3.Connection) -> Iterator[Problem]:
    for number, *values in connection.execute(f"SELECT id, {COLUMNS} FROM queues").fetchall():  # noqa: S608  # our own names
        reason = _reason(lambda values=values: row_of_queue(values))  # type: ignore[misc]  # bound at once
        if reason is not None:
            yield Problem("queues", {"id": number}, reason)


def _reason(read: Callable[[], object]) -> str | None:
    try:
        read()
    except (
        SrmpSparkError,
        ArithmeticError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        RecursionError,
    ) as error:
        return f"{type(error).__name__}: {error}"
    return None


def _class_of(value: Any) -> str:  # noqa: ANN401  # a value of SQLite
    return {int: "integer", float: "real", str: "text", bytes: "blob"}.get(type(value), "null")


# --- setting aside --------------------------------------------------------------------------------


def _move(connection: sqlite3.Connection, problem: Problem, at: int) -> dict[str, object]:
    """Move a database row into the table ``set_aside``; return its values by column.

    The function runs in the caller's transaction. ``at`` is the present time, in microseconds since
    1970, UTC. The result is empty if the row no longer exists, because it was moved before.
    """
    condition = " AND ".join(f"{name} = ?" for name in problem.where)
    place = (*problem.where.values(),)
    cursor = connection.execute(f"SELECT * FROM {problem.table} WHERE {condition}", place)  # noqa: S608  # our own names
    row = cursor.fetchone()
    if row is None and any(isinstance(each, bytes) for each in place):
        # Text that is no UTF-8 was read as bytes, and bytes never equal a text.
        condition = " AND ".join(
            f"{name} = CAST(? AS TEXT)" if isinstance(each, bytes) else f"{name} = ?"
            for name, each in problem.where.items()
        )
        cursor = connection.execute(f"SELECT * FROM {problem.table} WHERE {condition}", place)  # noqa: S608  # our own names
        row = cursor.fetchone()
    if row is None:
        # The row was already set aside for another reason.
        return {}
    values = dict(zip((column[0] for column in cursor.description), row, strict=True))
    destination, kind = values.get("destination"), values.get("kind")
    if problem.queue_id is not None:
        row = connection.execute(
            "SELECT destination, kind FROM queues WHERE id = ?", (problem.queue_id,)
        ).fetchone()
        destination, kind = row if row is not None else (None, None)
    is_named = problem.table != "moved" and isinstance(destination, str) and isinstance(kind, str)
    key = " ".join(str(each) for each in ((destination, kind) if is_named else place))
    connection.execute(
        "INSERT INTO set_aside(name, key, reason, content, destination, kind, at) VALUES "
        "(?, ?, ?, ?, ?, ?, ?)",
        (
            problem.table,
            key,
            problem.reason[:REASON_MAX],
            json.dumps(values, default=_as_base64),
            destination if is_named else None,
            kind if is_named else None,
            at,
        ),
    )
    connection.execute(f"DELETE FROM {problem.table} WHERE {condition}", place)  # noqa: S608  # our own names
    return values


def _as_base64(value: bytes) -> dict[str, str]:
    return {"base64": base64.b64encode(value).decode()}


def _hold(connection: sqlite3.Connection, queue_id: int) -> None:
    """Hold an outgoing queue until an operator decides, in the caller's transaction.

    All of its messages then count as in doubt.
    """
    connection.execute("UPDATE queues SET paused = 1, released_to = end WHERE id = ?", (queue_id,))


def _make_anew(connection: sqlite3.Connection, values: Mapping[str, Any], at: int) -> None:
    """Insert a row of ``queues`` in place of one that was set aside, from the serials that wait.

    The queue is held. ``values`` has the columns of the unreadable row. Without a readable
    destination no row is made.
    """
    number, destination, kind = values["id"], values["destination"], values["kind"]
    if not isinstance(destination, str) or kind not in KINDS:
        return
    first, last = connection.execute(
        "SELECT min(first), max(last) FROM parts WHERE queue_id = ?", (number,)
    ).fetchone()
    end, acknowledged_to = values["end"], values["acknowledged_to"]
    if not isinstance(end, int) or end < (last or 0):
        end = _serial_beyond(connection, number)
    if not isinstance(acknowledged_to, int) or not 0 <= acknowledged_to <= end:
        acknowledged_to = end if first is None else first - 1
    ordinal, (noted,) = (
        0,
        connection.execute("SELECT value FROM meta WHERE key = 'last_stream_ordinal'").fetchone()
        or (0,),
    )
    if kind == "stream":
        ledger = OutgoingLedger(int(noted) + ORDINAL_GAP)
        ordinal = ledger.new_stream_ordinal(at)
        connection.execute(
            "INSERT OR REPLACE INTO meta VALUES ('last_stream_ordinal', ?)",
            (str(ledger.last_stream_ordinal),),
        )
    receipts = values["receipts_url"] if isinstance(values["receipts_url"], str) else ""
    connection.execute(
        "INSERT INTO queues(id, destination, kind, stream_ordinal, base, end, "
        "acknowledged_to, released_to, receipts_url, "
        "begun_after, resend_interval_index, paused, started_at, last_acknowledged_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 1, ?, 0)",
        (
            number,
            destination,
            kind,
            str(ordinal),
            acknowledged_to,
            end,
            acknowledged_to,
            end,
            receipts,
            acknowledged_to,
            at,
        ),
    )


def _serial_beyond(connection: sqlite3.Connection, number: int) -> int:
    """Return a serial SERIAL_GAP above all serials that the tables show for the queue.

    ``number`` is the id of the queue. The ends of all other queues count too, because the end of
    this one is lost.
    """
    (last,) = connection.execute(
        "SELECT coalesce(max(last), 0) FROM parts WHERE queue_id = ?", (number,)
    ).fetchone()
    (highest,) = connection.execute(
        "SELECT coalesce(max(end), 0) FROM queues WHERE typeof(end) = 'integer'"
    ).fetchone()
    return int(max(last, highest)) + SERIAL_GAP


def _repair_counters(connection: sqlite3.Connection, at: int) -> None:
    """Set aside each counter that is no number, and store a number beyond all in use.

    The counters are the last stream ordinal, and the serials of forgotten queues.
    """
    for key in _COUNTERS:
        row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        if row is None or str(row[0]).isdecimal():
            continue
        _move(connection, Problem("meta", {"key": key}, f"it is no number: {row[0]!r:.50}"), at)
        if key == "serials_after":
            (found,) = connection.execute("SELECT coalesce(max(last), 0) FROM parts").fetchone()
            value = int(found) + SERIAL_GAP
        else:
            ordinals: Sequence[tuple[Any]] = connection.execute(
                "SELECT stream_ordinal FROM queues"
            ).fetchall()
            value = (
                max((int(each) for (each,) in ordinals if str(each).isdecimal()), default=0)
                + ORDINAL_GAP
            )
        connection.execute("INSERT INTO meta VALUES (?, ?)", (key, str(value)))


def _hold_forwarding_without_place(connection: sqlite3.Connection, at: int) -> None:
    """Set aside an unreadable cursor of ``private$/forward$``, and hold forwarding.

    With a wrong cursor messages would be forwarded twice or never.
    """
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (READ_TO,)).fetchone()
    reason = None if row is None else _reason(lambda: cursor_of(row[0]))
    if reason is not None:
        set_fact_aside(connection, READ_TO, reason, at)
        hold_forwarding(connection, f"{READ_TO} cannot be read: {reason}")
