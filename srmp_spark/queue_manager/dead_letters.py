"""Dead letters of streams that an application wants in a queue of its own ([MC-MQSRM] 3.1.5.2.1.2), from the sender process.

That has them in its outbox and hands over a group at a time (:mod:`.sender.application_letters`). Here each becomes a row: the
post is the message as it was sent, with the class that says what became of it; to the engine it is a message of our own stream
to that queue. Its identifier is that of the message under a lineage that nothing else has, so a group that is handed over once
more, after either process ended, makes no second row. Nobody is told of its end: that was told when it became a dead letter.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from srmp_spark.errors import ApiError, RemoteProtocolError
from srmp_spark.queue_manager.child.ending import end
from srmp_spark.queue_manager.own_messages import OwnMessage, own_positions, stored, submit
from srmp_spark.srmp.decoder import decode
from srmp_spark.srmp.http_head import content_type_of

if TYPE_CHECKING:
    from srmp_spark.queue_manager.service import QueueManager

RETRY_SECONDS = 5.0
"""After the queue was full or paused, or the disk: the letters wait in the outbox for as long as dead letters are kept."""
ASK_SECONDS = 60.0
"""What the sender process gets to read a group: a large batch may be written before."""

log = logging.getLogger(__name__)


class DeadLetters:
    """Takes them over while the queue manager runs."""

    def __init__(self, manager: QueueManager) -> None:
        self._manager = manager
        self._came = asyncio.Event()
        self._told = ""
        self._task: asyncio.Task[None] | None = None
        self._lineage = str(uuid.uuid5(uuid.UUID(manager.directory.queue_manager), "dead letters"))

    def __repr__(self) -> str:
        return f"<DeadLetters came={self._came.is_set()}>"

    def wake(self) -> None:
        """There may be some. The sender process says so when it starts, too."""
        self._came.set()

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop; what was not taken over is at the next start."""
        await end([self._task])

    async def _run(self) -> None:
        while True:
            await self._came.wait()
            self._came.clear()
            try:
                is_done = await self._take_all()
            except Exception:
                log.exception("dead_letters.failed")
                is_done = False
            if not is_done:
                self._came.set()
                await asyncio.sleep(RETRY_SECONDS)

    async def _take_all(self) -> bool:
        """Whether there are no more; False: try again later."""
        handed = 0
        while True:
            try:
                command = {"op": "dead_letters", "handed": handed}
                found = await self._manager.outgoing.link.ask_long(command, seconds=ASK_SECONDS)
            except ApiError as error:
                log.info('dead_letters.waiting reason="%s"', error)
                return False
            if found["id"] is None:
                return True
            if not await self._take(found["queue"], found["messages"]):
                return False
            handed = found["id"]

    async def _take(self, name: str, letters: list[dict[str, Any]]) -> bool:
        """Whether they are done with: rows, or for no queue that could have them."""
        manager = self._manager
        queue = manager.catalogue.get(name)
        if queue is None or not queue.state.transactional:
            told = "dead_letters.no_queue queue=%s rows=%d: deleted meanwhile; they stay in the outbox alone"
            log.error(told, name, len(letters))
            return True
        gate = manager.acceptor.gate
        if gate is not None:
            return self._not_yet(name, gate.message)
        left = [message for each in letters if (message := self._message(name, each)) is not None]
        while left:
            async with manager.own_order.order(name):
                positions = own_positions(manager, name)
                placed = [each._replace(message=each.message._replace(stream=next(positions))) for each in left]
                waiting = await submit(manager, placed)
            stored_in, error = await stored(waiting)
            log.info("dead_letters.stored queue=%s rows=%d", name, len(stored_in))
            left = left[len(stored_in) :]
            if error is not None:
                if error.status == 503:
                    return self._not_yet(name, error.message)
                told = 'dead_letters.refused queue=%s id=%s reason="%s": it stays among the dead letters of the outbox alone'
                log.error(told, name, left[0].message.id, error.message)
                left = left[1:]  # it would hold all others
        self._told = ""
        return True

    def _message(self, name: str, letter: dict[str, Any]) -> OwnMessage | None:
        """The row, but for its place in our stream; ``None`` for what is no message (any more)."""
        post, head_length = base64.b64decode(letter["post_base64"]), int(letter["head_length"])
        try:
            message = decode(content_type_of(post[:head_length]), post[head_length:])
        except RemoteProtocolError as error:
            told = 'dead_letters.unreadable queue=%s reason="%s": it stays among the dead letters of the outbox alone'
            log.error(told, name, error)  # noqa: TRY400  # the reason says it all
            return None
        url = f"{self._manager.public_base}/msmq/{quote(name, safe='/$')}"
        return OwnMessage(
            message._replace(
                destination=url, lineage=self._lineage, time_to_reach_queue=None, expires_at=None,
                delivery_receipt_to=None, commitment_receipt_to=None, dead_letter=False,
            ),
            post, head_length,
        )  # fmt: skip

    def _not_yet(self, name: str, why: str) -> bool:
        if self._told != why:  # once, and not every few seconds
            self._told = why
            log.warning('dead_letters.not_stored queue=%s reason="%s": tried again', name, why)
        return False
