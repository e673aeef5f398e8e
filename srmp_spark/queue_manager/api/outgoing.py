"""Calls of ``outgoing``: messages for other queue managers, and decisions about them.

``srmp-spark send`` and the commands of an operator use these calls.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from srmp_spark.queue_manager.api.port_side.http import (
    REQUEST_BODY_MAX,
    SERIALS_BODY_MAX,
    Request,
    Response,
    field_text,
    usage,
)
from srmp_spark.queue_manager.api.port_side.json_items import json_item_texts
from srmp_spark.queue_manager.child.encoding import ItemTexts
from srmp_spark.queue_manager.sender.crossing import (
    FindStates,
    MessageStates,
    Operate,
    Operated,
    SendMessages,
)

if TYPE_CHECKING:
    from srmp_spark.queue_manager.service import QueueManager

ACTIONS = ("pause", "resume", "resend", "reset", "drop")
MESSAGES_MAX = 10_000
"""Most messages in one call of ``outgoing/messages``. More raise a 400."""
SERIALS_MAX = 10_000
"""Most messages whose states one call of ``outgoing/states`` may ask for. More raise a 400."""


class OutgoingApi:
    """Handles the calls below ``outgoing``."""

    def __init__(self, manager: QueueManager) -> None:
        self._manager = manager

    async def messages(self, request: Request) -> Response:
        """Answer ``POST outgoing/messages``: take messages for destinations elsewhere.

        The body is one message, or a list of at most MESSAGES_MAX messages, as for
        ``queues/{q}/messages`` and with ``destination``, ``key``, ``journal``, ``response_queue``,
        ``admin_queue``. The answer is sent when all messages are in the outbox, on stable storage.
        It lists for each message
        ``{"message_id","destination","stream_id","stream_sequence","state", "kind","serial"}``.
        Raises a 400 for invalid messages, a 413 for too many bytes, a 503 while no messages are
        accepted, and the errors by which the sender process refuses messages.
        """
        pieces = await request.pieces(REQUEST_BODY_MAX)
        self._manager.gate.check()
        messages = ItemTexts()
        async with self._manager.slices.work() as work:
            async for text in json_item_texts(pieces, work):
                if len(messages) == MESSAGES_MAX:
                    raise usage(f"1 to {MESSAGES_MAX} messages")
                messages.append(text)
        if not messages:
            raise usage(f"1 to {MESSAGES_MAX} messages")
        command = SendMessages(request.caller, messages)
        answers = await self._manager.outgoing.ask_for_text(command)
        return Response(body=answers + b"\n")

    async def states(self, request: Request) -> Response:
        """Answer ``POST outgoing/states``: the states of messages, in the order of ``serials``.

        The body is ``{"destination","kind","serials":[…],"wait"}``, and the answer is
        ``{"states":[…]}``. A *serial* is the number of a message in its outgoing queue, which
        ``outgoing/messages`` answered. The call waits up to ``wait`` seconds until all these
        messages have ended. A state is ``queued``, ``sent``, ``acknowledged`` or ``dead``. Raises a
        400 for an invalid body, and a 404 for an unknown destination or serial.
        """
        body = await request.json_object(SERIALS_BODY_MAX)
        serials = body.get("serials")
        if (
            not isinstance(serials, list)
            or len(serials) > SERIALS_MAX
            or not all(type(each) is int for each in serials)
        ):
            raise usage(f"serials is a list of at most {SERIALS_MAX} whole numbers")
        wait = body.get("wait", 0)
        if not isinstance(wait, int | float) or isinstance(wait, bool) or not wait >= 0:
            raise usage("wait is a number of seconds")
        command = FindStates(
            field_text(body, "destination") or "",
            field_text(body, "kind") or "stream",
            serials,
            wait,
        )
        found = await self._manager.outgoing.ask_long(command, MessageStates)
        return Response.json({"states": found.states})

    async def decide(self, request: Request) -> Response:
        """Answer ``POST outgoing/{destination}/{action}?stream=ID``: decide what is sent.

        ``pause`` holds the destination, and ``resume`` sends again. ``resend`` sends all that is
        not acknowledged, without a pause. ``reset`` sends the rest in a new stream. ``drop`` makes
        dead letters of it. The answer ``{"destination","action"}`` is sent when the decision is
        stored. ``stream`` names the stream that the caller saw. Raises a 409 if another one is live
        now. Raises a 404 if nothing is known of the destination.
        """
        command = Operate(
            request.path.rpartition("/")[2],
            request.parameters["destination"],
            request.text("stream"),
        )
        return Response.json(asdict(await self._manager.outgoing.ask(command, Operated)))
