"""Carry out an operator's decisions about an outgoing queue.

The decisions are pause, resume, resend, reset and drop. A call is answered when the decision is
stored.
"""

from __future__ import annotations

import logging

from srmp_spark.canonical_url import canonical_outgoing
from srmp_spark.clock import Clock
from srmp_spark.errors import ApiError, ConfigurationError
from srmp_spark.queue_manager.sender.crossing import Operate, Operated
from srmp_spark.queue_manager.sender.dispatcher import Dispatcher
from srmp_spark.srmp.sending.outgoing_effects import Kind, QueueKey
from srmp_spark.srmp.sending.outgoing_states import OutgoingState
from srmp_spark.srmp.sending.outgoing_stream import OutgoingStream

KINDS: tuple[Kind, ...] = ("stream", "plain")
ACTIONS = ("pause", "resume", "resend", "reset", "drop")
RELEASING = ("resume", "resend")
"""Actions that let the outgoing queue of a held copy send, although the copy is not activated."""

log = logging.getLogger(__name__)


def canonical_name(destination: str) -> str:
    """Return the canonical form of a destination: all names of one queue that are equal get it.

    Raises :class:`ApiError` (400) for a text that is no destination.
    """
    try:
        return canonical_outgoing(destination)
    except ConfigurationError as error:
        raise ApiError(400, "usage", str(error)) from None


def keys_of(dispatcher: Dispatcher, destination: str) -> list[QueueKey]:
    """Return the outgoing queues of a destination, whose name may be in any form.

    There is at most one of each kind. Raises :class:`ApiError`: 400 for a text that is no
    destination, 404 if no queue exists.
    """
    name = canonical_name(destination)
    # A spelling of an older version may exist alongside today's spelling, if both have messages.
    for spelling in dict.fromkeys((destination, name)):
        keys = [
            key
            for kind in KINDS
            if dispatcher.sender.get(*(key := QueueKey(spelling, kind))) is not None
        ]
        if keys:
            break
    else:
        hint = "`srmp-spark streams` lists the destinations"
        raise ApiError(
            404,
            "unknown-destination",
            f"nothing waits for {name}, and no message was sent to it recently",
            hint,
        )
    return keys


async def operate(dispatcher: Dispatcher, clock: Clock, command: Operate) -> Operated:
    """Carry out one decision, wait until it is stored, and return the answer.

    ``action`` in the command is one of ACTIONS, and ``destination`` names the outgoing queues.
    ``stream`` in the command limits the decision to this stream. Raises :class:`ApiError`: 409 if
    another stream is live, or if ``reset`` finds no stream; 404 if the destination has no queue;
    400 for an unknown action. ``drop`` also forgets the records of the queues.
    """
    action, destination = command.action, command.destination
    try:
        keys = keys_of(dispatcher, destination)
    except ApiError:
        # The command may repeat a `drop` that is being stored.
        await dispatcher.written()
        raise
    wanted = command.stream
    if wanted is not None:
        stream = dispatcher.sender.get(*keys[0])
        live = str(stream.id) if isinstance(stream, OutgoingStream) and stream.ordinal else None
        if live is None or live.lower() != wanted.lower():
            raise ApiError(
                409, "another-stream", f"the live stream to {destination} is {live}, not {wanted}"
            )
        keys = keys[:1]
    has_session = keys[0].transport.rules.numbers_in_session
    if action == "reset" and keys[0].kind != "stream" and not has_session:
        raise ApiError(
            409,
            "no-stream",
            f"there is no stream to {destination}: only streams and sessions can be reset",
        )
    for key in keys:
        _apply(dispatcher, clock, action, key)
        if action in RELEASING:
            await dispatcher.release(key)
    log.warning("sender.operated action=%s destination=%s", action, keys[0].destination)
    await dispatcher.written()
    if action == "drop":
        for key in keys:
            if dispatcher.sender.forget(*key):
                dispatcher.transports.of(key).forget(key)
                dispatcher.errors.pop(key, None)
        await dispatcher.written()
    return Operated(keys[0].destination, action)


def _apply(dispatcher: Dispatcher, clock: Clock, action: str, key: QueueKey) -> None:
    sender, transport = dispatcher.sender, dispatcher.transports.of(key)
    if action == "pause":
        sender.pause(*key)
        transport.close(key)
    elif action == "resume":
        sender.resume(*key)
    elif action == "resend":
        queue = sender.get(*key)
        if queue is not None and queue.state is OutgoingState.ON_HOLD:
            # The queue was held after a restore, or paused. Now it is to send.
            sender.resume(*key)
        sender.retry(*key)
        transport.hurry(key)
    elif action == "reset":
        if key.kind == "stream":
            sender.reset(key.destination)
        else:
            transport.reset(key)
    elif action == "drop":
        transport.close(key)
        # The sequence would wait for the missing numbers.
        transport.give_up(key)
        sender.drop(*key, clock.utc())
    else:
        raise ApiError(400, "usage", f"unknown action {action!r}", f"known: {', '.join(ACTIONS)}")
