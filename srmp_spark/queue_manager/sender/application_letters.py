"""Hand over dead letters for which the application named a local queue to the main process.

See [MC-MQSRM] 3.1.5.2.1.2. These letters are in the outbox, in the table of all dead letters. Only
the main process writes queues. The main process asks which queues have letters, and then for the
letters of each queue, one group at a time. The main process stores the rows, and confirms the group
with the next question for that queue. Then the queue's cursor is moved
(:mod:`~srmp_spark.store.outbox.tables.letter_cursors`). If either process ends in between, the
group is handed over again, under the same identifiers. The engine knows the identifiers that
already have rows.
"""

from __future__ import annotations

import logging
import shlex
import sqlite3
from functools import partial
from pathlib import Path

from srmp_spark.errors import LocalProtocolError, StoreError
from srmp_spark.log_once import OncePerKey
from srmp_spark.message import Message, StreamId, StreamPosition
from srmp_spark.queue_manager.sender.crossing import (
    ApplicationLetter,
    FindLetterQueues,
    LetterGroup,
    LetterQueues,
    NextLetters,
)
from srmp_spark.queue_manager.sender.store_thread import StoreThread
from srmp_spark.srmp.codec.encoder import encode, http_head
from srmp_spark.store.database.schema import connect_reader
from srmp_spark.store.directory import DATABASE_FILE
from srmp_spark.store.outbox.messages.ends import class_of_end
from srmp_spark.store.outbox.messages.waiting import MovedRow
from srmp_spark.store.outbox.outbox import Outbox
from srmp_spark.store.outbox.tables.letter_cursors import LetterCursors

_BOUNDARY = "MSMQ - SOAP boundary, 1"

log = logging.getLogger(__name__)

_MISSING = "there is no such queue"
_NOT_TRANSACTIONAL = "it is not transactional"
_REMEDIES = {
    _MISSING: "To make it: srmp-spark queue create {queue} --transactional",
    # The kind of a queue is fixed: `serve --queue` and `queue create` refuse to change it.
    _NOT_TRANSACTIONAL: "Name another queue, or make one: "
    "srmp-spark queue create NAME --transactional",
}


def takes_dead_letters(data_dir: Path, queue: str) -> bool:
    """Return whether ``queue`` exists in this queue manager now and is transactional.

    If not, or if the catalogue of queues cannot be read, the result is ``False`` and a warning is
    logged. The caller then keeps the letter as a dead letter of the system.
    """
    why = _refuses_letters(data_dir, queue)
    if why is not None:
        log.warning(
            'dead_letters.queue_refused queue=%s reason="%s": kept as a dead letter of the system',
            queue,
            why,
        )
    return why is None


class LetterQueueWarnings:
    """Warns about a queue that cannot take dead letters.

    The warning is given when rows are staged, not when the first message becomes a dead letter.
    """

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._logged: OncePerKey[tuple[str, str]] = OncePerKey()

    def warning(self, queue: str) -> str | None:
        """Return the problem of ``queue`` and its remedy, or ``None`` if there is no problem.

        Each pair of queue and problem is logged the first time, for at most KEYS_MAX pairs. The
        text is returned every time.
        """
        why = _refuses_letters(self._data_dir, queue)
        if why is None:
            return None
        text = (
            f"deadLetterQueue {queue}: {why}; dead letters are kept by --state alone "
            f"until there is one. {_REMEDIES.get(why, '').format(queue=shlex.quote(queue))}"
        ).rstrip()
        if self._logged.is_new((queue, why)):
            log.warning("dead_letters.queue_missing %s", text)
        return text


def _refuses_letters(data_dir: Path, queue: str) -> str | None:
    """Return why ``queue`` cannot take dead letters now, or ``None`` if it can.

    An unreadable catalogue of queues is such a reason, and raises no error.
    """
    try:
        connection = connect_reader(data_dir / DATABASE_FILE)
        try:
            sql = "SELECT transactional FROM queues WHERE name = ? AND deleted_at IS NULL"
            row = connection.execute(sql, (queue,)).fetchone()
        finally:
            connection.close()
    except (StoreError, sqlite3.Error) as error:
        return f"the catalogue of queues cannot be read ({error})"
    if row is None:
        return _MISSING
    return None if row[0] else _NOT_TRANSACTIONAL


class ApplicationLetters:
    """Handles the commands about dead letters of the main process (:mod:`.crossing`)."""

    def __init__(self, outbox: Outbox, store: StoreThread) -> None:
        self._outbox = outbox
        self._store = store
        self._known: LetterCursors | None = None

    async def queues(self, command: FindLetterQueues) -> LetterQueues:
        """Return the names of local queues for which dead letters wait."""
        return await self._store.run(partial(self._queues, command.after), later=True)

    async def next(self, command: NextLetters) -> LetterGroup:
        """Return the next group of dead letters for a queue.

        The queue's cursor first moves to the group that the main process stored last. Damaged
        messages, and messages that cannot be encoded, are left out.
        """
        return await self._store.run(partial(self._next, command.queue, command.handed), later=True)

    @property
    def _cursors(self) -> LetterCursors:
        """Return the cursors of the letters, which are read from the outbox at the first call.

        Call this in the thread of the outbox.
        """
        if self._known is None:
            self._known = LetterCursors(self._outbox.database, self._outbox.waiting.letters_for)
        return self._known

    def _queues(self, after: str) -> LetterQueues:
        return LetterQueues(self._cursors.queues(after))

    def _next(self, queue: str, handed: int) -> LetterGroup:
        self._cursors.handed(queue, handed)
        number = self._cursors.next(queue)
        if number is None:
            return LetterGroup(None, [])
        moved, messages, _ = next(self._outbox.waiting.moved_groups(number - 1, 1))
        letters = []
        # Damaged messages have no entry: the damage was reported when they were read.
        for stored in messages or []:
            try:
                letters.append(_letter(moved, stored.serial, stored.message))
            except LocalProtocolError as error:  # noqa: PERF203
                # The same error kept the message from being sent. The table of dead letters
                # contains the message.
                log.warning('dead_letters.unwritable id=%s reason="%s"', stored.message.id, error)
        return LetterGroup(moved.id, letters)


def _letter(moved: MovedRow, serial: int, message: Message) -> ApplicationLetter:
    """Return a dead letter as the POST request that would have sent the message.

    The request has the message's stream position, and the message class that states why the message
    became a dead letter. Raises :class:`LocalProtocolError` if the message cannot be encoded.
    """
    ordinal, position = int(moved.stream_ordinal), serial - moved.base
    stream = (
        StreamPosition(StreamId(message.lineage, ordinal), position, position - 1)
        if ordinal and position > 0
        else None
    )
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
    return ApplicationLetter(head + content, len(head))
