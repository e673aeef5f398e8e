"""Look messages up in a remote queue, to find out which of them are gone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.client.queue_calls import REMOVED
from srmp_spark.queue_manager.puller.gateway_side.answers import ReadableQueue, UnreadableMessage
from srmp_spark.queue_manager.puller.gateway_side.pulled import Pulled, PulledKey

LOOKUPS_AT_ONCE = 16
"""Most look-ups in flight, which share one round trip and one turn of the other side."""

LOOKUPS_OF_A_COMMIT = 32 * LOOKUPS_AT_ONCE
"""Messages that are looked up before the results are committed, so that they share a sync."""


async def find_gone(queue: ReadableQueue, keys: Sequence[PulledKey], gone: list[PulledKey]) -> None:
    """Look messages up, several at a time, and add those that are gone to ``gone``.

    At most LOOKUPS_AT_ONCE look-ups are in flight, and no more than the server accepts. Raises
    :class:`RemoteLostError` and :class:`RemoteReadError`; the answers before the error are in
    ``gone``.
    """
    width = max(1, min(queue.calls_at_once, LOOKUPS_AT_ONCE))
    for at in range(0, len(keys), width):
        together = keys[at : at + width]
        done = await asyncio.gather(
            *(is_gone(queue, key) for key in together), return_exceptions=True
        )
        gone += [key for key, is_it in zip(together, done, strict=True) if is_it is True]
        for each in done:
            if isinstance(each, BaseException):
                raise each


async def is_gone(queue: ReadableQueue, key: PulledKey) -> bool:
    """Look a message up in the remote queue, and return whether it is gone.

    It is gone if a peek reports that for each lookup identifier that the message may have. A
    message that is locked is not gone. Raises :class:`RemoteLostError` and
    :class:`RemoteReadError`.
    """
    for lookup_id in key.lookup_ids:
        found = await queue.read(Action.LOOKUP_PEEK_CURRENT, lookup_id=lookup_id)
        if isinstance(found, Pulled):
            if found.key.message_id == key.message_id:
                return False
        elif isinstance(found, UnreadableMessage) or found not in REMOVED:
            return False
    return True
