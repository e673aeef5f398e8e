"""The call ``POST queues/{q}/messages``: put messages into a local queue.

``srmp-spark send`` uses this call. Each message becomes an SRMP message with this queue manager's
identity and is written as Windows would write it. Then the message passes through the engine like a
message that was received over the network: same checks, same commit, same row. The transport of the
message is ``api`` (:mod:`srmp_spark.queue_manager.queues.own_messages`).

A list is written and read back as a whole before its first message is submitted. So the engine gets
exactly the message that readers will decode, and a 400 means that nothing was stored. All of this
is done in slices (:mod:`..slices`). So a caller with an API token for one queue delays other users
of the loop by milliseconds only.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

from srmp_spark.errors import ApiError, LocalProtocolError, RemoteProtocolError
from srmp_spark.message import Message
from srmp_spark.names import FORWARD_QUEUE
from srmp_spark.queue_manager.api.port_side.base64_text import decoded_base64
from srmp_spark.queue_manager.api.port_side.http import (
    REQUEST_BODY_MAX,
    Request,
    Response,
    field_integer,
    field_text,
    usage,
)
from srmp_spark.queue_manager.api.port_side.json_items import json_items
from srmp_spark.queue_manager.queues.own_messages import (
    OwnMessage,
    own_positions,
    refusal,
    stored,
    submit,
)
from srmp_spark.srmp.codec.decoder import decode
from srmp_spark.srmp.codec.encoder import encode, http_head
from srmp_spark.srmp.codec.http_head import content_type_of
from srmp_spark.srmp.codec.values import NEVER_AT
from srmp_spark.srmp.limits import BODY_MAX, PRIORITY_MAX
from srmp_spark.srmp.receiving.effects import Refused

if TYPE_CHECKING:
    from srmp_spark.queue_manager.queues.catalogue import Queue
    from srmp_spark.queue_manager.service import QueueManager
    from srmp_spark.queue_manager.slices import Work

MESSAGES_MAX = 10_000
"""Most messages in one call; more raise a 400.

A short list is committed at once, a long list in chunks, in order.
"""
ANSWERS_AT_ONCE = 500
"""Answers that are written as JSON in one step. One step takes a millisecond."""
LABEL_MAX = 8_192
"""Longest label, in characters. A longer label raises a 400.

Labels of MSMQ end at 249 characters, and rows of other senders may have longer ones. A label of
this length fits into an envelope.
"""
NUMBER_MAX = 2**32 - 1
"""Largest ``body_type`` and ``app_specific``: both are 32-bit properties ([MS-MQMQ] 2.3.1)."""

_FIELDS = frozenset(
    (
        "label",
        "body_base64",
        "body_type",
        "delivery",
        "priority",
        "app_specific",
        "correlation_id_base64",
        "extension_base64",
    )
)
_BOUNDARY = "MSMQ - SOAP boundary, 1"


async def _binary(fields: Mapping[str, object], name: str, work: Work) -> bytes | None:
    text = field_text(fields, name)
    if text is None:
        return None
    try:
        return await decoded_base64(text, work)
    except ValueError:
        raise usage(f"{name} is not base64") from None


class MessagesApi:
    """Handles the call ``POST queues/{q}/messages``."""

    def __init__(self, manager: QueueManager) -> None:
        self._manager = manager

    async def post(self, request: Request) -> Response:
        """Answer ``POST queues/{q}/messages``: store messages in the queue, as if they had arrived.

        The body is one message, or a list of at most MESSAGES_MAX messages. A message is
        ``{"label","body_base64","body_type","delivery","priority","app_specific","correlation_id_base64","extension_base64"}``,
        where every field may be missing. The answer is sent when all messages are on stable
        storage. It lists for each message
        ``{"message_id","destination","stream_id","stream_sequence","state"}``. Raises a 400 for an
        invalid message, and then nothing is stored. Raises a 400 for a journal or an undeclared
        subqueue, a 409 if a message is transactional and the queue is not, or the reverse, a 413
        for too many bytes, and a 503 while no messages are accepted. An error while a list is
        stored may leave its first messages stored; the error states how many.
        """
        queue = self._manager.catalogue.find_base(request.parameters["queue"])
        if not queue.state.declared:
            told = (
                f"{queue.name} is a subqueue that a remote reader created: messages "
                "are moved there, and cannot be sent to it"
            )
            raise ApiError(
                400,
                "undeclared-subqueue",
                told,
                f"declare it: srmp-spark queue create {shlex.quote(queue.name)}",
            )
        pieces = await request.pieces(REQUEST_BODY_MAX)
        self._manager.gate.check()
        drafts = await self._drafts(queue, pieces)
        numbers = [await self._manager.identifiers.take() for _ in drafts]
        # The positions of a stream must follow each other, so hold the order until all messages are
        # submitted.
        async with self._order(queue):
            prepared = await self._prepare(queue, drafts, numbers)
            self._manager.gate.check()
            waiting = await submit(self._manager, prepared)
        stored_in, error = await stored(waiting)
        if error is not None:
            count = len(stored_in)
            error.message = (
                f"message {count + 1} of {len(drafts)}: {error.message} ({count} were stored)"
            )
            raise error
        return await self._answers([each.message for each in prepared], stored_in)

    def _order(self, queue: Queue) -> contextlib.AbstractAsyncContextManager[object]:
        """Return a context that keeps the messages of one transactional queue in order.

        While a caller is in the context, other callers for this queue wait to enter it, because the
        positions of a stream must follow each other. Messages of a queue without transactions have
        no positions, so their context waits for no other call.
        """
        return (
            self._manager.own_order.order(queue.name)
            if queue.state.transactional
            else contextlib.nullcontext()
        )

    async def _drafts(self, queue: Queue, pieces: list[bytes]) -> list[Message]:
        drafts: list[Message] = []
        async with self._manager.slices.work() as work:
            async for item in json_items(pieces, work):
                if len(drafts) == MESSAGES_MAX:
                    raise usage(f"1 to {MESSAGES_MAX} messages")
                drafts.append(await self._draft(queue, item, work))
                await work.turn()
        if not drafts:
            raise usage(f"1 to {MESSAGES_MAX} messages")
        return drafts

    async def _draft(self, queue: Queue, item: object, work: Work) -> Message:
        """Check one item of the body, and return its message.

        The message has no identifier and no stream position yet. Raises :class:`ApiError`: 400 for
        an invalid field, 409 if the message is transactional and the queue is not, or the reverse,
        413 if body and extension are too long.
        """
        if not isinstance(item, dict):
            raise usage("a message is a JSON object")
        unknown = item.keys() - _FIELDS
        if "key" in unknown:
            raise usage(
                "key is for the URLs of other queue managers: messages for local queues carry none"
            )
        if unknown:
            raise usage(
                f"unknown field {sorted(unknown)[0]!r} of a message",
                f"known: {', '.join(sorted(_FIELDS))}",
            )
        kind = "transactional" if queue.state.transactional else "recoverable"
        delivery = field_text(item, "delivery") or kind
        if delivery not in ("express", "recoverable", "transactional"):
            raise usage(f"delivery is express, recoverable or transactional, not {delivery!r}")
        if (delivery == "transactional") is not queue.state.transactional:
            raise ApiError(
                409,
                "queue-kind",
                f"queue {queue.name} takes {kind} messages, not {delivery} ones",
                section="[MC-MQSRM] 3.1.5.1.3",
            )
        content = await _binary(item, "body_base64", work) or b""
        extension = await _binary(item, "extension_base64", work)
        if len(content) + len(extension or b"") > BODY_MAX:
            raise ApiError(
                413,
                "too-large",
                f"body and extension have more than {BODY_MAX} bytes",
                section="[MC-MQSRM] 2.2",
            )
        priority = field_integer(item, "priority", default=3) or 0
        if priority > PRIORITY_MAX:
            raise usage(f"priority is 0 to {PRIORITY_MAX}")
        label = field_text(item, "label") or ""
        if len(label) > LABEL_MAX:
            raise usage(f"a label has at most {LABEL_MAX} characters, not {len(label)}")
        correlation = await _binary(item, "correlation_id_base64", work)
        if correlation is not None and len(correlation) != 20:
            raise usage("correlation_id_base64 holds 20 bytes")
        manager = self._manager
        return Message(
            destination=f"{manager.public_base}/msmq/{quote(queue.name, safe='/$')}",
            action=f"MSMQ:{label}",
            lineage=manager.directory.queue_manager,
            has_msmq=True,
            priority=0 if delivery == "transactional" else priority,
            durable=delivery != "express",
            sent_at=manager.clock.utc() // 1_000_000 * 1_000_000,
            expires_at=NEVER_AT,
            time_to_reach_queue=NEVER_AT,
            body=content,
            body_type=field_integer(item, "body_type", default=0, high=NUMBER_MAX) or 0,
            extension=extension,
            correlation=correlation if correlation is not None else bytes(20),
            app_specific=field_integer(item, "app_specific", default=0, high=NUMBER_MAX) or 0,
            source_qm=manager.directory.queue_manager,
        )

    async def _prepare(
        self, queue: Queue, drafts: list[Message], numbers: list[int]
    ) -> list[OwnMessage]:
        """Encode and decode each message, and return the messages in the form for :func:`.submit`.

        ``numbers`` are the message numbers of ``drafts``, in their order. Each message also gets
        its position in the stream, if the queue is transactional. Nothing is stored. The caller
        holds the order of the stream (:meth:`_order`). Raises a 400 for a message that cannot be
        encoded. Raises the engine's error, as :class:`ApiError`, for a message that the engine
        would refuse.
        """
        positions = own_positions(self._manager, queue.name) if queue.state.transactional else None
        prepared: list[OwnMessage] = []
        async with self._manager.slices.work() as work:
            for n, (draft, number) in enumerate(zip(drafts, numbers, strict=True), 1):
                message = draft._replace(uniquifier=number)
                if positions is not None:
                    message = message._replace(
                        stream=next(positions), first_in_transaction=True, last_in_transaction=True
                    )
                try:
                    prepared.append(_written(message))
                except (LocalProtocolError, RemoteProtocolError) as error:
                    raise usage(
                        f"message {n} of {len(drafts)} cannot be written: {error}",
                        "nothing was stored",
                    ) from None
                refused = self._manager.receiver.judge(prepared[-1].message, own=True)
                if isinstance(refused, Refused):
                    raise refusal(refused.status, refused.reason, refused.section)
                await work.turn()
        return prepared

    async def _answers(self, messages: list[Message], stored_in: list[str]) -> Response:
        parts: list[bytes] = []
        async with self._manager.slices.work() as work:
            for at in range(0, len(messages), ANSWERS_AT_ONCE):
                chunk = zip(
                    messages[at : at + ANSWERS_AT_ONCE],
                    stored_in[at : at + ANSWERS_AT_ONCE],
                    strict=True,
                )
                parts.append(
                    Response.json(
                        [self._answer(message, name) for message, name in chunk]
                    ).body.strip()[1:-1]
                )
                await work.turn()
        return Response(body=b"[%b]\n" % b",".join(parts))

    def _answer(self, message: Message, stored_in: str) -> dict[str, object]:
        if stored_in == FORWARD_QUEUE:
            # A redirection leads the message to another host. The message is stored, and not
            # delivered yet.
            manager = self._manager
            to = manager.config.forwarding.forward_to(message.destination, manager.hosts)
            found: dict[str, object] = {
                "destination": to,
                "stream_id": None,
                "stream_sequence": None,
                "state": "queued",
            }
        else:
            found = {
                "destination": stored_in,
                "stream_id": str(message.stream.id) if message.stream else None,
                "stream_sequence": message.stream.current if message.stream else None,
                "state": "acknowledged",
            }
        return {"message_id": message.id, **found}


def _written(message: Message) -> OwnMessage:
    """Encode a message, and return its POST with the message as a reader decodes it.

    Raises :class:`LocalProtocolError` or :class:`RemoteProtocolError` if the message cannot be
    encoded or decoded.
    """
    content_type, content = encode(message, boundary=_BOUNDARY)
    host, _, path = message.destination.partition("://")[2].partition("/")
    head = http_head(f"/{path}", host, content_type, len(content))
    return OwnMessage(decode(content_type_of(head), content), head + content, len(head))
