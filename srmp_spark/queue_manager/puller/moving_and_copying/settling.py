"""Decide each copied message while its queue is moved: is it ours, or was it received there?

Theory of operation. :mod:`srmp_spark.mqrr.copied_states`. The mover receives from the head of the
remote queue. A message that it locks and that is a row already, from ``mode = "copy"``, is only
ended: its state becomes MOVED when the server carried the End out. When the queue is empty, or the
mover meets no more copied messages, the others are looked up by a peek. One that is gone was
received there. One that another reader has locked is looked up again later, because that reader may
give it back. Nothing else decides. So neither the moment at which the readers there stop nor a
message that one of them takes at the last moment makes a difference.

After a kill or a power loss, "gone" means MOVED if an End was sent, and RECEIVED_THERE if not. So
the Ends of a batch are stored durably before they are sent, and their results after they were
answered: two commits for a batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from srmp_spark.errors import RemoteLostError, RemoteReadError
from srmp_spark.mqrr.client.failures import NotSentError
from srmp_spark.mqrr.client.queue_calls import Ended
from srmp_spark.mqrr.copied_states import TRANSITIONS, CopiedEvent, CopiedState
from srmp_spark.queue_manager.puller.gateway_side.answers import ReadableQueue
from srmp_spark.queue_manager.puller.gateway_side.pulled import Pulled, PulledKey
from srmp_spark.queue_manager.puller.moving_and_copying.gone import LOOKUPS_OF_A_COMMIT, find_gone
from srmp_spark.transitions import next_state

_EVENTS = {
    Ended.CARRIED_OUT: CopiedEvent.END_OK,
    Ended.NOT: CopiedEvent.END_REFUSED,
    Ended.UNCLEAR: CopiedEvent.END_UNCLEAR,
}


class DecisionStore(Protocol):
    """Stores decisions. Each asynchronous call waits until its result is on stable storage."""

    async def sending_copied_ends(self, keys: Collection[PulledKey]) -> None:
        """Store that R_EndReceive is about to be sent for these copied messages."""
        ...

    async def copied_ends_answered(
        self, moved: Collection[PulledKey], not_removed: Collection[PulledKey]
    ) -> None:
        """Store which copied messages this queue manager removed there, and which it did not."""
        ...

    async def received_there(self, keys: Collection[PulledKey]) -> None:
        """Store that other readers received the originals of these copied messages."""
        ...


class Settling:
    """Decides the copied messages of one subscription that moves."""

    def __init__(
        self,
        store: DecisionStore,
        copied: Collection[PulledKey],
        ends: Collection[PulledKey] = (),
    ) -> None:
        """Begin with ``copied``, the messages that are not decided yet.

        For those in ``ends`` an earlier process may have sent an End.
        """
        self._store = store
        self._states = dict.fromkeys(copied, CopiedState.THERE)
        for key in ends:
            if key in self._states:
                self._states[key] = CopiedState.UNANSWERED
        self._in_flight = {
            key for key, state in self._states.items() if state is CopiedState.UNANSWERED
        }
        self.moved = 0
        """Number of copied messages whose originals this process removed."""
        self.received_there = 0
        """Number of copied messages that this process found to be received there."""
        self.in_doubt = 0
        """Number of moved messages that were gone after an End without an answer.

        Another reader may have these messages, too.
        """

    def __contains__(self, key: PulledKey) -> bool:
        """Return whether the message was copied and is not decided yet."""
        return key in self._states

    def __len__(self) -> int:
        """Return the number of copied messages that are not decided yet."""
        return len(self._states)

    def __iter__(self) -> Iterator[PulledKey]:
        """Iterate over the copied messages that are not decided yet."""
        return iter(tuple(self._states))

    def forget(self, keys: Collection[PulledKey]) -> None:
        """Forget that these messages were copied: each makes a new row when it is moved."""
        for key in keys:
            self._states.pop(key, None)
            self._in_flight.discard(key)

    def on_connection_lost(self) -> None:
        """Record that the connection is gone: an End without an answer stays without one."""
        for key in tuple(self._in_flight):
            if self._states[key] is CopiedState.ENDING:
                self._move(key, CopiedEvent.END_UNCLEAR)

    async def remove(self, queue: ReadableQueue, locked: Sequence[Pulled], width: int) -> None:
        """End copied messages that are locked, at most ``width`` at a time, and store the result.

        A message whose End was not carried out stays undecided, and is met again or looked up.
        Raises :class:`RemoteLostError` if the connection ends before every End is answered, and
        :class:`RemoteReadError`.
        """
        keys = [each.key for each in locked]
        await self._store.sending_copied_ends(keys)
        try:
            for at in range(0, len(locked), width):
                await self._end(queue, locked[at : at + width])
        finally:
            states = {key: self._states[key] for key in keys}
            await self._answered(
                [key for key, state in states.items() if state is CopiedState.MOVED],
                [key for key, state in states.items() if state is CopiedState.THERE],
            )

    async def _end(self, queue: ReadableQueue, together: Sequence[Pulled]) -> None:
        """Send the Ends of ``together``, and change the states by their answers."""
        keys = [each.key for each in together]
        for key in keys:
            self._move(key, CopiedEvent.SHOWN)
            self._move(key, CopiedEvent.END_SENT)
        failed: BaseException | None = None
        ends = [queue.end(each.request) for each in together]
        answers = await asyncio.gather(*ends, return_exceptions=True)
        for key, answer in zip(keys, answers, strict=True):
            self._move(key, _event(answer))
            if not isinstance(answer, Ended | RemoteReadError):
                failed = failed or answer
        if isinstance(failed, RemoteLostError):
            raise RemoteLostError("the connection ended before every message was acknowledged")
        if failed is not None:
            raise failed

    async def look_up(self, queue: ReadableQueue) -> None:
        """Look up every copied message that is not decided, and store which ones are gone.

        Raises :class:`RemoteLostError` and :class:`RemoteReadError`; what was found before is
        stored.
        """
        waiting = list(self._states)
        for at in range(0, len(waiting), LOOKUPS_OF_A_COMMIT):
            gone: list[PulledKey] = []
            try:
                await find_gone(queue, waiting[at : at + LOOKUPS_OF_A_COMMIT], gone)
            finally:
                await self._decide_gone(gone)

    async def _decide_gone(self, gone: Sequence[PulledKey]) -> None:
        """Decide messages that are gone, and wait until the decisions are stored."""
        for key in gone:
            if self._states[key] is CopiedState.UNANSWERED:
                self.in_doubt += 1
            self._move(key, CopiedEvent.GONE)
        await self._answered([key for key in gone if self._states[key] is CopiedState.MOVED], ())
        theirs = [key for key in gone if key in self._states]
        if theirs:
            await self._store.received_there(theirs)
            self.received_there += len(theirs)
            self.forget(theirs)

    async def _answered(
        self, moved: Collection[PulledKey], not_removed: Collection[PulledKey]
    ) -> None:
        if moved or not_removed:
            await self._store.copied_ends_answered(moved, not_removed)
            self.moved += len(moved)
            self.forget(moved)

    def _move(self, key: PulledKey, event: CopiedEvent) -> None:
        state = next_state(TRANSITIONS, self._states[key], event, "a copied message")
        self._states[key] = state
        if state in (CopiedState.ENDING, CopiedState.UNANSWERED):
            self._in_flight.add(key)
        else:
            self._in_flight.discard(key)


def _event(answer: Ended | BaseException) -> CopiedEvent:
    """Return the event that the answer to an End means."""
    if isinstance(answer, Ended):
        return _EVENTS[answer]
    is_refused = isinstance(answer, NotSentError) or (
        isinstance(answer, RemoteReadError) and not answer.perhaps_done
    )
    return CopiedEvent.END_REFUSED if is_refused else CopiedEvent.END_UNCLEAR
