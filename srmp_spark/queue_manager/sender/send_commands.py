"""Send messages that ``srmp-spark send`` passes for other queue managers, and return states.

These messages are handled like a batch: the same checks, identities and transaction. Each message
with a ``key`` is a batch of its own. So a repeat of a message with a ``key`` is recognized, without
effect on the other messages. Messages without a key are one batch, the last. So a caller that
receives an error may send all messages again. All messages that were committed before the error
have a key, and are recognized.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from functools import partial
from typing import Any, cast

import numpy as np

from srmp_spark.canonical_url import canonical_outgoing
from srmp_spark.errors import ApiError
from srmp_spark.names import format_names, message_id
from srmp_spark.queue_manager.sender.crossing import (
    FindStates,
    KnownMessageState,
    MessageState,
    MessageStates,
    SendMessages,
)
from srmp_spark.queue_manager.sender.dispatcher import CommittedBatch, Dispatcher
from srmp_spark.queue_manager.sender.operations import canonical_name, keys_of
from srmp_spark.queue_manager.sender.store_thread import StoreThread
from srmp_spark.srmp.sending.outgoing_effects import Enqueued, Kind, QueueKey
from srmp_spark.srmp.sending.outgoing_queue import OutgoingQueue
from srmp_spark.srmp.sending.outgoing_room import origin_of_token
from srmp_spark.srmp.sending.outgoing_stream import OutgoingStream
from srmp_spark.store.outbox.errors import BatchError
from srmp_spark.store.outbox.identity.known import SEND_APPLICATION, find_known
from srmp_spark.store.outbox.outbox import Outbox

APPLICATION = SEND_APPLICATION
"""Name of the application under which the keys of these messages are stored in the outbox."""
MESSAGES_MAX = 10_000
"""Most messages in one ``send`` command. More raise a 400."""
SERIAL_MAX = (1 << 63) - 1
"""Highest serial (number of a message in its outgoing queue) that the outbox can store.

A caller may ask for any number; a higher one is unknown.
"""
WAIT_SECONDS_MAX = 10.0
"""Longest wait for the end of messages in one call of ``state``, in seconds.

A longer ``wait`` is cut to this time.
"""

_COLUMNS = {
    "destination": "destination",
    "label": "label",
    "body_type": "body_type",
    "delivery": "delivery",
    "priority": "priority",
    "app_specific": "app_specific",
    "response_queue": "response_queue",
    "admin_queue": "admin_queue",
    "key": "key",
    "journal": "journal",
    "soap_action": "soap_action",
    "wsrm_version": "wsrm_version",
    "soap_version": "soap_version",
    "wsa_version": "wsa_version",
}
_BINARY = {
    "body_base64": "body",
    "extension_base64": "extension",
    "correlation_id_base64": "correlation_id",
}


_Row = dict[str, Any]
"""A message as a row of the outbox: the values of its columns."""


def _row(item: object) -> _Row:
    if not isinstance(item, dict):
        raise ApiError(400, "usage", "a message is a JSON object")
    unknown = item.keys() - _COLUMNS.keys() - _BINARY.keys()
    if unknown:
        known = ", ".join(sorted({*_COLUMNS, *_BINARY}))
        raise ApiError(
            400, "usage", f"unknown field {sorted(unknown)[0]!r} of a message", f"known: {known}"
        )
    row = {column: item[name] for name, column in _COLUMNS.items() if item.get(name) is not None}
    for name, column in _BINARY.items():
        text = item.get(name)
        if text is not None:
            try:
                row[column] = base64.b64decode(text, validate=True)
            except (binascii.Error, ValueError, TypeError):
                raise ApiError(400, "usage", f"{name} is not base64") from None
    if not row.get("destination"):
        raise ApiError(400, "usage", "a message needs a destination", "a URL, or DIRECT=URL")
    if "body" not in row:
        hint = 'base64 of its bytes; "" is an empty message'
        raise ApiError(400, "usage", "a message needs a body: body_base64 is missing or null", hint)
    return row


class SendCommands:
    """Handles the commands ``send`` and ``state`` of the main process."""

    def __init__(self, outbox: Outbox, store: StoreThread, dispatcher: Dispatcher) -> None:
        self._outbox = outbox
        self._store = store
        self._dispatcher = dispatcher

    async def send(self, command: SendMessages) -> list[MessageState | KnownMessageState]:
        """Commit the messages of ``command``, and return their states in the same order.

        A message for several queues has one state for each queue. A message whose key was sent
        before is not sent again; its present state is returned. Raises :class:`ApiError` or
        :class:`BatchError` for messages that are refused. Messages with keys before the refused one
        stay committed, and the hint states their number.
        """
        if not 0 < len(command.messages) <= MESSAGES_MAX:
            raise ApiError(400, "usage", f"1 to {MESSAGES_MAX} messages")
        rows = [_row(item) for item in command.messages]
        answers: list[list[MessageState | KnownMessageState]] = [[] for _ in rows]
        repeats: list[int] = []
        unkeyed = [index for index, row in enumerate(rows) if "key" not in row]
        done = 0
        for indices in [[index] for index, row in enumerate(rows) if "key" in row] + (
            [unkeyed] if unkeyed else []
        ):
            batch = secrets.token_hex(16)
            try:
                committed = await self._dispatcher.commit(
                    partial(
                        self._outbox.prepare_rows,
                        APPLICATION,
                        batch,
                        [rows[index] for index in indices],
                    ),
                    origin_of_token(command.token),
                )
            except (BatchError, ApiError) as error:
                if not done:
                    raise
                hint = (
                    f"{error.hint}; {done} of {len(rows)} messages will be sent: send "
                    "all of them again, their keys prevent duplicates"
                )
                raise ApiError(
                    error.status, error.code, error.message, hint.removeprefix("; ")
                ) from error
            done += len(indices)
            if not committed.enqueued:
                repeats += indices
                continue
            for index, state in self._answers(
                [(index, rows[index]) for index in indices], committed
            ):
                answers[index].append(state)
        if repeats:
            for index, known in await self._known([(index, rows[index]) for index in repeats]):
                answers[index].append(known)
        return [answer for each in answers for answer in each]

    def _answers(
        self, rows: list[tuple[int, _Row]], committed: CommittedBatch
    ) -> list[tuple[int, MessageState]]:
        """Return the states of the messages of a batch in which all rows are new.

        Each state is paired with the index of its row. A message for several queues has several.
        """
        places: dict[QueueKey, list[tuple[int, int, Enqueued]]] = {}
        identifier = committed.ids_first
        for given in committed.enqueued:
            places[given.key] = [
                (identifier + offset, given.first + offset, given)
                for offset in range(given.last - given.first + 1)
            ]
            places[given.key].reverse()
            identifier += given.last - given.first + 1
        answers = []
        for index, key in [(index, key) for index, row in rows for key in self._keys(row)]:
            number, serial, given = places[key].pop()
            stream = given.stream_id
            answer = MessageState(
                message_id=message_id(self._outbox.queue_manager, number),
                destination=key.destination,
                stream_id=str(stream) if stream is not None else None,
                stream_sequence=given.first_position + serial - given.first
                if stream is not None
                else None,
                state="dead" if key in committed.without_room else "queued",
                kind=key.kind,
                serial=serial,
            )
            answers.append((index, answer))
        return answers

    def _keys(self, row: _Row) -> list[QueueKey]:
        transactional = row.get("delivery", "transactional") == "transactional"
        return [
            QueueKey.for_messages(canonical_outgoing(name), transactional=transactional)
            for name in format_names(row["destination"])
        ]

    async def _known(self, rows: list[tuple[int, _Row]]) -> list[tuple[int, KnownMessageState]]:
        """Return the states of messages that were sent before under the same keys.

        Each state is paired with the index of its row. A delivered message is known by its key
        alone.
        """
        indices, wanted = [], []
        for index, row in rows:
            for key in self._keys(row):
                indices.append(index)
                wanted.append((key, str(row["key"])))
        # The end of a message may be about to be stored, as in `state`.
        await self._dispatcher.written()
        find = partial(find_known, self._outbox.database.connection, APPLICATION, wanted)
        answers = []
        for index, (key, _), known in zip(
            indices, wanted, await self._store.run(find, later=True), strict=True
        ):
            waiting = known is not None and known.fate == "waiting"
            state = "acknowledged"
            if known is not None and waiting:
                state = self._state(key, known.serial)
            elif known is not None and known.fate == "dead":
                state = "dead"
            answer = KnownMessageState(
                message_id=None,
                known=True,
                known_message_id=None
                if known is None
                else message_id(self._outbox.queue_manager, known.number),
                destination=key.destination,
                stream_id=None,
                stream_sequence=None,
                state=state,
                kind=key.kind,
                serial=known.serial if known is not None and waiting else None,
            )
            answers.append((index, answer))
        return answers

    async def state(self, command: FindStates) -> MessageStates:
        """Return the states of the messages ``serials`` of a queue, in the same order.

        ``destination`` and ``kind`` in the command name the outgoing queue. Wait until all of these
        messages have ended, for at most ``wait`` seconds and WAIT_SECONDS_MAX. Raises
        :class:`ApiError` (404) for an unknown queue or serial, and 400 for a text that is no
        destination.
        """
        serials = command.serials
        # No queue has a kind that is not one of the two.
        kind = cast("Kind", command.kind)
        key, earlier = await self._known_of(command.destination, kind, serials)
        loop = self._dispatcher.loop
        end = loop.time() + min(command.wait, WAIT_SECONDS_MAX)
        while True:
            states = [earlier.get(serial) or self._state(key, serial) for serial in serials]
            left = end - loop.time()
            if left <= 0 or all(state in ("acknowledged", "dead") for state in states):
                break
            await self._dispatcher.wait_for_change(key, left)
        if "acknowledged" in states:
            # The engine is ahead of the disk: a dead letter may be about to be stored.
            await self._dispatcher.written()
            ended = await self._store.run(partial(_ended, self._outbox, key, serials))
            states = [
                ended.get(serial, state) for serial, state in zip(serials, states, strict=True)
            ]
        return MessageStates(states)

    async def _known_of(
        self, destination: str, kind: Kind, serials: list[int]
    ) -> tuple[QueueKey, dict[int, str]]:
        """Return the key of an outgoing queue, and the states of serials that it no longer has.

        These serials belong to dead letters or copies in the journal, so the record of the queue
        does not know them. Raises :class:`ApiError` (404) if a serial is not among these messages
        either. An unknown serial was never assigned to the destination, or all messages of its
        queue had ended and the record was forgotten.
        """
        key = QueueKey(canonical_name(destination), kind)
        queue = self._dispatcher.sender.get(*key)
        foreign = [each for each in serials if queue is None or not _is_of(queue, each)]
        if queue is not None and not foreign:
            return key, {}
        # The end of the last messages of a forgotten record may be about to be stored.
        await self._dispatcher.written()
        earlier = await self._store.run(partial(_ended, self._outbox, key, foreign))
        missing = [serial for serial in foreign if serial not in earlier]
        if (
            queue is None
            and (missing or not serials)
            and kind not in [each.kind for each in keys_of(self._dispatcher, key[0])]
        ):
            message = (
                f"nothing of that kind waits for {destination}, and no message was "
                "sent to it recently"
            )
            raise ApiError(
                404,
                "unknown-destination",
                message,
                "the answer of `outgoing/messages` contains the kinds",
            )
        if missing:
            message = (
                f"{missing[0]} was never given out to {key.destination}, or what "
                "became of it is not known any more"
            )
            raise ApiError(
                404,
                "unknown-serial",
                message,
                "the answer of `outgoing/messages` contains the serials",
            )
        return key, earlier

    def _state(self, key: QueueKey, serial: int) -> str:
        queue = self._dispatcher.sender.get(*key)
        if queue is None:
            # The queue was known a moment ago. It is forgotten when all its messages have ended.
            return "acknowledged"
        if serial <= queue.stored.acknowledged_to and not (
            isinstance(queue, OutgoingStream) and serial in queue.finals
        ):
            return "acknowledged"
        return "sent" if serial <= queue.left_to else "queued"


def _is_of(queue: OutgoingQueue, serial: int) -> bool:
    """Return whether the record of a queue knows the state of the message with ``serial``.

    A restored record also awaits final receipts of serials before its first serial.
    """
    return queue.begun_after < serial <= queue.end or (
        isinstance(queue, OutgoingStream) and serial in queue.finals
    )


def _ended(outbox: Outbox, key: QueueKey, serials: list[int]) -> dict[int, str]:
    """Return a state for each of the ``serials`` that is a dead letter or a journal copy.

    The state is ``dead``, or ``acknowledged`` for a copy in the journal. Other serials are left
    out.
    """
    found: dict[int, str] = {}
    wanted = np.array([each for each in serials if 0 < each <= SERIAL_MAX], np.int64)
    rows = outbox.database.connection.execute(
        "SELECT fate, serials FROM moved WHERE destination = ? AND kind = ? ORDER BY id DESC", key
    )
    for fate, packed in rows:
        state = "dead" if fate == "dead" else "acknowledged"
        found |= dict.fromkeys(
            wanted[np.isin(wanted, np.frombuffer(packed, "<i8"))].tolist(), state
        )
    return found
