"""Dead letters whose application named a queue of ours for them ([MC-MQSRM] 3.1.5.2.1.2): handed to the main process.

They lie in the outbox, in the table of all dead letters. The main process, which alone writes queues, asks for them a group at
a time, stores the rows, and says so with its next question; that is noted here. If either process ends in between, the group
is handed over again, under the same identifiers: the engine knows those that have their rows.
"""

from __future__ import annotations

import base64
import logging
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

from srmp_spark.errors import LocalProtocolError, StoreError
from srmp_spark.message import Message, StreamId, StreamPosition
from srmp_spark.queue_manager.sender.store_thread import StoreThread
from srmp_spark.srmp.encoder import encode, http_head
from srmp_spark.store.directory import DATABASE_FILE
from srmp_spark.store.outbox.ends import class_of_end
from srmp_spark.store.outbox.outbox import Outbox
from srmp_spark.store.outbox.waiting import MovedRow
from srmp_spark.store.schema import connect_reader

HANDED_TO = "dead_letters_handed_to"
"""Key in the table ``meta``: the number of the last group of dead letters that the main process has stored."""
TOLD_MAX = 1_000
"""Names that the log warns of: an application chooses them."""
_BOUNDARY = "MSMQ - SOAP boundary, 1"

log = logging.getLogger(__name__)


def takes_dead_letters(data_dir: Path, queue: str) -> bool:
    """Whether there is such a transactional queue here now. If nobody can tell, it goes to the system's dead letters."""
    why = _refuses_letters(data_dir, queue)
    if why is not None:
        log.warning('dead_letters.queue_refused queue=%s reason="%s": kept as a dead letter of the system', queue, why)
    return why is None


class LetterQueueWarnings:
    """Who names a queue that cannot have dead letters is told when rows are staged, and not when the first is dead."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._told: set[tuple[str, str]] = set()

    def warning(self, queue: str) -> str | None:
        """What is wrong with ``queue`` now and how to make it right; in the log once. ``None``: nothing is wrong."""
        why = _refuses_letters(self._data_dir, queue)
        if why is None:
            return None
        make = f"srmp-spark serve --queue '{queue}:transactional'"
        text = f"deadLetterQueue {queue}: {why}; dead letters are kept by --state alone until it is there. To make it: {make}"
        if (queue, why) not in self._told and len(self._told) < TOLD_MAX:
            self._told.add((queue, why))
            log.warning("dead_letters.queue_missing %s", text)
        return text


def _refuses_letters(data_dir: Path, queue: str) -> str | None:
    """Why no dead letters go there now; ``None``: they may."""
    try:
        connection = connect_reader(data_dir / DATABASE_FILE)
        try:
            sql = "SELECT transactional FROM queues WHERE name = ? AND deleted_at IS NULL"
            row = connection.execute(sql, (queue,)).fetchone()
        finally:
            connection.close()
    except (StoreError, sqlite3.Error) as error:
        return f"nobody can tell whether it is there ({error})"
    if row is None:
        return "there is no such queue"
    return None if row[0] else "it is not transactional"


class ApplicationLetters:
    """The handler of the command ``dead_letters``."""

    def __init__(self, outbox: Outbox, store: StoreThread) -> None:
        self._outbox = outbox
        self._store = store
        self._handed_to: int | None = None

    async def next(self, command: dict[str, Any]) -> dict[str, Any]:
        """The next group, ``id`` null if there is none; ``handed`` is the group that is stored now, 0 for none."""
        return await self._store.run(partial(self._next, int(command["handed"])), later=True)

    def _next(self, handed: int) -> dict[str, Any]:
        database = self._outbox.database
        if self._handed_to is None:
            row = database.connection.execute("SELECT value FROM meta WHERE key = ?", (HANDED_TO,)).fetchone()
            self._handed_to = 0 if row is None else int(row[0])
        if handed > self._handed_to:
            with database.transaction() as connection:
                connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (HANDED_TO, str(handed)))
            self._handed_to = handed
        found = self._outbox.waiting.next_for_application(self._handed_to)
        if found is None:
            return {"id": None}
        moved, messages, _ = found
        letters = []
        for stored in messages or []:  # damaged: it was told where it was read
            try:
                letters.append(_letter(moved, stored.serial, stored.message))
            except LocalProtocolError as error:  # noqa: PERF203  # it is why it could not be sent either; the table of dead letters has it
                log.warning('dead_letters.unwritable id=%s reason="%s"', stored.message.id, error)
        return {"id": moved.id, "queue": moved.target, "messages": letters}


def _letter(moved: MovedRow, serial: int, message: Message) -> dict[str, Any]:
    """The message as it was sent, with its place in its stream, and with the class that says what became of it."""
    ordinal, position = int(moved.stream_ordinal), serial - moved.base
    stream = StreamPosition(StreamId(message.lineage, ordinal), position, position - 1) if ordinal and position > 0 else None
    number = class_of_end(moved)
    message = message._replace(
        stream=stream,
        message_class=message.message_class if number is None else number,
        first_in_transaction=message.first_in_transaction and stream is not None,
        last_in_transaction=message.last_in_transaction and stream is not None,
    )
    content_type, content = encode(message, boundary=_BOUNDARY)
    host, _, path = message.destination.partition("://")[2].partition("/")
    head = http_head(f"/{path}", host, content_type, len(content))
    return {"post_base64": base64.b64encode(head + content).decode(), "head_length": len(head)}
