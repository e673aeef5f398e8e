"""Put messages into a local queue without a network connection.

These are the messages of ``srmp-spark send``, and dead letters that an application wants in its own
queue. The engine (:mod:`srmp_spark.srmp.receiving`) handles them like those that were received from
the network. A transactional message continues this queue manager's *own* stream to that queue. Its
position is the engine's own count, which is committed with the row, so a restart continues where
the log stands. Its stream receipts would be sent to this queue manager itself, and are settled
without a connection. No message from the network can belong to that stream, even if a sender writes
this queue manager's GUID into a ``<start>`` (:mod:`~srmp_spark.srmp.receiving.stream_name`). So the
count of no other sender changes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from srmp_spark.errors import ApiError
from srmp_spark.message import Arrival, Message, StreamId, StreamPosition, Transport
from srmp_spark.names import ORDER_QUEUE
from srmp_spark.srmp.limits import SEQUENCE_NUMBER_MAX
from srmp_spark.srmp.receiving.effects import Refused
from srmp_spark.srmp.receiving.stream_name import name_of_house_stream

if TYPE_CHECKING:
    from srmp_spark.queue_manager.service import QueueManager
    from srmp_spark.srmp.receiving.effects import Ok

_TRANSPORT: Transport = "api"

CHUNK_MESSAGES = 100
"""Most messages that are submitted in one turn of the loop: some milliseconds."""
CHUNK_BYTES = 2 * 1_048_576
"""Most bytes of the posts that are submitted in one turn of the loop, unless one post alone has
more.
"""


class OwnMessage(NamedTuple):
    """A message that can be submitted: the message for the engine, and its post for readers.

    The first ``head_length`` bytes of ``post`` are the HTTP head.
    """

    message: Message
    post: bytes
    head_length: int


class OwnMessageAnswer:
    """Takes the place of the connection of one own message, and holds the engine's answer."""

    __slots__ = ("done", "read_at")

    def __init__(self) -> None:
        self.done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Future of the name of the queue in which the message is stored.

        A redirection may have led to another queue. If the message is refused, the future has the
        error.
        """
        self.read_at = time.perf_counter()

    def acknowledge(self, ok: Ok) -> None:
        """Complete the future, because the message is stored. The engine calls this."""
        if not self.done.done():
            self.done.set_result(ok.pending.queue)

    def refuse(
        self, status: int, reason: str, section: str, retry_after: int | None = None
    ) -> None:
        """Fail the future with the error that :func:`refusal` makes. The engine calls this.

        ``retry_after`` has no effect.
        """
        self.done.set_exception(refusal(status, reason, section))


def refusal(status: int, reason: str, section: str) -> ApiError:
    """Return the error of the API for a refusal of the engine: 503, or 409 for other statuses.

    ``reason`` becomes its code and a part of its message, ``section`` is the section of the
    specification.
    """
    hint = (
        "try again"
        if status == 503
        else "see `srmp-spark queues` for the kind and state of the queue"
    )
    return ApiError(
        503 if status == 503 else 409,
        reason,
        f"the queue refuses the message: {reason}",
        hint,
        section,
    )


def own_positions(manager: QueueManager, queue: str) -> Iterator[StreamPosition]:
    """Yield the next positions in this queue manager's own stream to a transactional queue.

    They continue the engine's count, without end; when a stream is full, the next position begins a
    new one. The caller must hold the lock of the stream (:meth:`.own_order.OwnOrder.order`) until
    the messages are submitted.
    """
    guid = manager.directory.queue_manager
    stream = manager.receiver.streams.get(name_of_house_stream(queue), guid)
    ordinal, number = (
        (0, SEQUENCE_NUMBER_MAX) if stream is None else (stream.ordinal, stream.sequence_number)
    )
    while True:
        if number < SEQUENCE_NUMBER_MAX:
            number += 1
            yield StreamPosition(StreamId(guid, ordinal), number, number - 1)
        else:
            ordinal = max(manager.clock.utc() // 1_000_000 << 32, ordinal) + 1
            number = 1
            receipts = f"{manager.public_base}/msmq/{ORDER_QUEUE}"
            yield StreamPosition(
                StreamId(guid, ordinal), 1, 0, start=True, send_receipts_to=receipts
            )


async def submit(
    manager: QueueManager, messages: Sequence[OwnMessage]
) -> list[asyncio.Future[str]]:
    """Submit messages to the engine in their order, one chunk in each turn of the loop.

    Return a future for each submitted message (:attr:`OwnMessageAnswer.done`). Waits for room
    (:meth:`.OwnOrder.room`) before each chunk, and not for the commits. The messages after one that
    the engine refuses are not submitted: in a stream they would stand after a gap, be answered 200,
    and be stored nowhere. If the gate closes between two chunks, the rest is not submitted, and one
    more future holds that error. So only the last future may hold an error.
    """
    waiting: list[asyncio.Future[str]] = []
    at = 0
    while at < len(messages):
        chunk = _chunk(messages, at)
        size = sum(len(each.post) for each in chunk)
        await manager.own_order.room(len(chunk), size)
        gate = manager.gate.closed
        if gate is not None and at:
            manager.own_order.written(len(chunk), size)
            refused: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            refused.set_exception(ApiError(503, gate.reason, gate.message, "try again"))
            return [*waiting, refused]
        try:
            found, is_refused = _submit_chunk(manager, chunk)
        except BaseException:
            # A bug in one message must not take the room of all callers.
            manager.own_order.written(len(chunk), size)
            raise
        waiting += found
        found[-1].add_done_callback(partial(_give_back, manager, len(chunk), size))
        if is_refused:
            break
        at += len(chunk)
        if at < len(messages):
            await asyncio.sleep(0)
    return waiting


def _submit_chunk(
    manager: QueueManager, chunk: Sequence[OwnMessage]
) -> tuple[list[asyncio.Future[str]], bool]:
    """Submit messages to the engine in this turn, until one is refused.

    Return a future for each submitted message, and whether the last of them was refused.
    """
    waiting: list[asyncio.Future[str]] = []
    for each in chunk:
        requester = OwnMessageAnswer()
        arrival = Arrival(manager.clock.utc(), _TRANSPORT, "")
        outcome = manager.acceptor.take(
            each.message, arrival, each.post, each.head_length, requester
        )
        waiting.append(requester.done)
        if isinstance(outcome, Refused):
            return waiting, True
    return waiting, False


def _give_back(manager: QueueManager, messages: int, size: int, _done: asyncio.Future[str]) -> None:
    manager.own_order.written(messages, size)


def _chunk(messages: Sequence[OwnMessage], at: int) -> Sequence[OwnMessage]:
    end, size = at, 0
    while (
        end < len(messages)
        and end - at < CHUNK_MESSAGES
        and (end == at or size + len(messages[end].post) <= CHUNK_BYTES)
    ):
        size += len(messages[end].post)
        end += 1
    return messages[at:end]


async def stored(waiting: Sequence[asyncio.Future[str]]) -> tuple[list[str], ApiError | None]:
    """Wait for the futures that :func:`submit` returned. There is no time-out.

    Return the names of the queues of the messages that are on stable storage, and the error of the
    message after them, or ``None`` if all are stored.
    """
    stored_in: list[str] = []
    try:
        for done in waiting:
            stored_in.append(await done)  # noqa: PERF401  # those before an error count
    except ApiError as error:
        assert len(stored_in) == len(waiting) - 1, "nothing is submitted behind a refusal"
        return stored_in, error
    return stored_in, None
