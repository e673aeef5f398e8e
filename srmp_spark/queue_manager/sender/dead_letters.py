"""Store dead letters of streams in the queue that an application chose.

[MC-MQSRM] 3.1.5.2.1.2 defines these letters. The sender process has them in its outbox and hands
over one group of one queue at a time (:mod:`.sender.application_letters`). The queues take turns,
one group each. A queue that accepts nothing at present (paused, full, or a bug) is held, which
means left out, for :data:`RETRY_SECONDS`, so it delays its own letters and no others.

Each letter becomes a row of that queue. Its post is the message as it was sent, with the class that
states what became of the message. For the engine it is a message of this queue manager's own stream
to that queue. The identifier of the row is that of the message, under a lineage that nothing else
has. So a group that is handed over again, after either process ended, makes no second row. The row
sends no receipt about its end: the sender was notified when the message became a dead letter.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from srmp_spark.errors import ApiError, RemoteProtocolError
from srmp_spark.queue_manager.child.ending import end
from srmp_spark.queue_manager.queues.own_messages import OwnMessage, own_positions, stored, submit
from srmp_spark.queue_manager.sender.crossing import (
    ApplicationLetter,
    FindLetterQueues,
    LetterGroup,
    LetterQueues,
    NextLetters,
)
from srmp_spark.srmp.codec.decoder import decode
from srmp_spark.srmp.codec.http_head import content_type_of

if TYPE_CHECKING:
    from srmp_spark.queue_manager.service import QueueManager

RETRY_SECONDS = 5.0
"""Seconds for which a queue that was full or paused is left out.

All queues are left out for that long when the disk is full or the sender process does not answer.
The letters wait in the outbox for as long as dead letters are kept.
"""
SENDER_AWAY = "sender-unavailable"
"""Code of the error while no sender process answers. No queue gets its dead letters then."""
ASK_SECONDS = 60.0
"""Longest wait for an answer of the sender process, in seconds.

The sender process may have to finish writing a large batch first.
"""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Held:
    """States that a queue accepts nothing at present, and why."""

    until: float
    """Time of the next attempt, in seconds on the monotonic clock."""
    why: str


class DeadLetters:
    """Moves dead letters from the sender process into local queues, as a background task."""

    def __init__(self, manager: QueueManager) -> None:
        self._manager = manager
        self._is_woken = manager.outgoing.dead_came
        self._held: dict[str, _Held] = {}
        """The queues that were held in the last pass, by name.

        There are no more entries than queues.
        """
        self._handed: dict[str, int] = {}
        """For each queue the group that is stored, until the sender process is notified of that."""
        self._gate_told = ""
        self._task: asyncio.Task[None] | None = None
        self._lineage = str(uuid.uuid5(uuid.UUID(manager.directory.queue_manager), "dead letters"))

    def __repr__(self) -> str:
        return f"<DeadLetters came={self._is_woken.is_set()} held={len(self._held)}>"

    def start(self) -> None:
        """Start the task that moves dead letters."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """End the task. Letters that were not taken over wait in the outbox for the next start."""
        await end([self._task])

    async def _run(self) -> None:
        while True:
            await self._wait()
            self._is_woken.clear()
            try:
                is_done = await self._take_all()
            except Exception:
                log.exception("dead_letters.failed")
                is_done = False
            if not is_done:
                self._is_woken.set()
                await asyncio.sleep(RETRY_SECONDS)

    async def _wait(self) -> None:
        """Wait for dead letters, or for the time at which a held queue is tried again."""
        at = min((held.until for held in self._held.values()), default=None)
        seconds = None if at is None else max(0.0, at - asyncio.get_running_loop().time())
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._is_woken.wait(), seconds)

    async def _take_all(self) -> bool:
        """Store all dead letters of the outbox, except those of held queues.

        Return ``False`` if letters may be left because the gate is closed, or the sender process
        refused or did not answer. Then the caller tries again later.
        """
        took = True
        try:
            while took and not self._gate_is_shut():
                took = await self._take_turns()
        except ApiError as error:
            log.info('dead_letters.waiting reason="%s"', error)
            return False
        return not self._gate_is_shut()

    async def _take_turns(self) -> bool:
        """Store one group of letters for each queue while the gate is open.

        Return whether any group was finished (:meth:`_take_group`). Held queues are left out.
        Raises :class:`ApiError` if the sender process does not answer.
        """
        took, after, seen = False, "", set[str]()
        link = self._manager.outgoing.link
        while names := (
            await link.ask_long(FindLetterQueues(after), LetterQueues, seconds=ASK_SECONDS)
        ).queues:
            for name in names:
                if self._gate_is_shut():
                    return took
                held = self._held.get(name)
                if held is None or held.until <= asyncio.get_running_loop().time():
                    took = await self._take_group_or_hold(name) or took
            seen.update(names)
            after = names[-1]
        self._held = {name: held for name, held in self._held.items() if name in seen}
        return took

    async def _take_group_or_hold(self, name: str) -> bool:
        """Store the next group of a queue, and return the result of :meth:`_take_group`.

        After an error with the letters of one queue, even a bug, that queue and no other is held,
        and the result is ``False``. Raises :class:`ApiError` if the sender process does not answer.
        """
        try:
            return await self._take_group(name)
        except ApiError as error:
            if error.code == SENDER_AWAY:
                raise
            return self._not_yet(name, str(error))
        except Exception as error:
            held = self._held.get(name)
            if held is None or held.why != repr(error):
                log.exception("dead_letters.failed queue=%s: please report this", name)
            return self._not_yet(name, repr(error))

    async def _take_group(self, name: str) -> bool:
        """Get the next group of a queue from the sender process, and store it.

        Return whether there was a group and it is finished. The request also reports the group
        before it as stored. Raises :class:`ApiError` as :meth:`.link.ChildLink.ask_long`.
        """
        found = await self._manager.outgoing.link.ask_long(
            NextLetters(name, self._handed.get(name, 0)), LetterGroup, seconds=ASK_SECONDS
        )
        self._handed.pop(name, None)
        if found.id is None:
            self._held.pop(name, None)
            return False
        if not await self._take(name, found.letters):
            return False
        self._held.pop(name, None)
        self._handed[name] = found.id
        return True

    def _gate_is_shut(self) -> bool:
        gate = self._manager.gate.closed
        told = "" if gate is None else gate.message
        if told and told != self._gate_told:  # Log the reason once, not every few seconds.
            log.warning('dead_letters.not_stored reason="%s": tried again', told)
        self._gate_told = told
        return bool(told)

    async def _take(self, name: str, letters: list[ApplicationLetter]) -> bool:
        """Store a group of letters in the queue ``name``. Return whether the group is finished.

        Letters that the queue cannot have are logged and finished too; they stay in the outbox
        alone. ``False`` means that the queue is held.
        """
        manager = self._manager
        queue = manager.catalogue.get(name)
        if queue is None or not queue.state.transactional:
            told = (
                "dead_letters.no_queue queue=%s rows=%d: the queue was deleted; the "
                "letters stay in the outbox alone"
            )
            log.error(told, name, len(letters))
            return True
        left = [message for each in letters if (message := self._message(name, each)) is not None]
        while left:
            async with manager.own_order.order(name):
                positions = own_positions(manager, name)
                placed = [
                    each._replace(message=each.message._replace(stream=next(positions)))
                    for each in left
                ]
                waiting = await submit(manager, placed)
            stored_in, error = await stored(waiting)
            log.info("dead_letters.stored queue=%s rows=%d", name, len(stored_in))
            left = left[len(stored_in) :]
            if error is not None:
                if error.status == 503:
                    return self._not_yet(name, error.message)
                told = (
                    'dead_letters.refused queue=%s id=%s reason="%s": it stays among '
                    "the dead letters of the outbox alone"
                )
                log.error(told, name, left[0].message.id, error.message)
                left = left[1:]  # The refused letter would hold up all others.
        return True

    def _message(self, name: str, letter: ApplicationLetter) -> OwnMessage | None:
        """Return the message of a letter, without its position in the stream to the queue.

        If the letter cannot be decoded, log that and return ``None``.
        """
        post, head_length = letter.post, letter.head_length
        try:
            message = decode(content_type_of(post[:head_length]), post[head_length:])
        except RemoteProtocolError as error:
            told = (
                'dead_letters.unreadable queue=%s reason="%s": it stays among the dead '
                "letters of the outbox alone"
            )
            log.error(told, name, error)  # noqa: TRY400  # the reason says it all
            return None
        url = f"{self._manager.public_base}/msmq/{quote(name, safe='/$')}"
        return OwnMessage(
            message._replace(
                destination=url,
                lineage=self._lineage,
                time_to_reach_queue=None,
                expires_at=None,
                delivery_receipt_to=None,
                commitment_receipt_to=None,
                dead_letter=False,
            ),
            post,
            head_length,
        )

    def _not_yet(self, name: str, why: str) -> bool:
        held = self._held.get(name)
        if held is None or held.why != why:  # Log the reason once, not every few seconds.
            log.warning('dead_letters.not_stored queue=%s reason="%s": tried again', name, why)
        self._held[name] = _Held(asyncio.get_running_loop().time() + RETRY_SECONDS, why)
        return False
