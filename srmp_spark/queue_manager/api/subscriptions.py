"""Calls of ``subscriptions``: remote queues that are read into local ones.

Subscriptions are added and removed while the queue manager runs
(:mod:`srmp_spark.queue_manager.puller`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from srmp_spark.errors import ApiError
from srmp_spark.interface import DEFAULT_CONSUMER
from srmp_spark.queue_manager.api.port_side.http import Request, Response, field_text, usage
from srmp_spark.queue_manager.configuration.subscriptions import KEYS
from srmp_spark.queue_manager.queues.remote_queues import CutoverQuestion

if TYPE_CHECKING:
    from srmp_spark.queue_manager.queues.remote_queues import RemoteQueues

PASSWORD = "password"  # noqa: S105  # the name of a field
_FIELDS = (*(key for key in KEYS if key != "password_file"), PASSWORD)
"""Fields that the body of a call may have. None of them names a file.

The caller may be on another machine, and must not choose a file of the queue manager's machine to
be read.
"""


WAIT_SECONDS_MAX = 10.0
"""Longest wait of one call for a comparison, in seconds. A longer ``wait`` is cut to this time."""
CUTOVER_CONSUMERS_MAX = 20
"""Most consumers of one cut-over. Each of them is held and marked, one after the other."""


class SubscriptionsApi:
    """Handles the calls of ``subscriptions``. Each raises a 503 while the queue manager starts."""

    def __init__(self, remote_queues: RemoteQueues | None) -> None:
        self._remote_queues = remote_queues

    def _remote(self) -> RemoteQueues:
        found = self._remote_queues
        if found is None or not found.is_ready:
            raise ApiError(503, "not-ready", "the queue manager is starting")
        return found

    async def list(self, request: Request) -> Response:
        """Answer ``GET subscriptions``: the state of each subscription, as in ``status``.

        The answer is ``{"subscriptions":[…]}``.
        """
        del request
        return Response.json({"subscriptions": self._remote().status()})

    async def put(self, request: Request) -> Response:
        """Answer ``PUT subscriptions``: add or change a subscription, and return its status.

        The body has the keys of ``[[subscription]]``, and ``password``. The status is 201 for a new
        subscription, else 200. The host and the queue identify the subscription. ``to`` cannot be
        changed; mode and credentials can. Raises :class:`ApiError` for an invalid body or change.
        """
        body = await request.json_object()
        unknown = body.keys() - set(_FIELDS)
        if unknown:
            raise usage(
                f"unknown field {sorted(unknown)[0]!r} of a subscription",
                f"known: {', '.join(_FIELDS)}",
            )
        entry = {name: text for name in _FIELDS if (text := field_text(body, name)) is not None}
        password = entry.pop(PASSWORD, None)
        # The change is completed even if the caller disconnects.
        found, is_new = await asyncio.shield(self._remote().add(entry, password))
        return Response.json(found, 201 if is_new else 200)

    async def delete(self, request: Request) -> Response:
        """Answer ``DELETE subscriptions?host&queue[&unused=1]``: stop reading the remote queue.

        The answer is the status of the subscription. The subscription disappears as soon as its
        ``pending`` messages are 0. With ``unused=1`` it is removed only if it never read a message.
        While it is being cut over, ``unsettled=here`` or ``unsettled=there`` must state to whom the
        messages belong that are not decided. Raises :class:`ApiError` if it cannot be removed.
        """
        host, queue, unused = (
            request.text("host"),
            request.text("queue"),
            request.text("unused") == "1",
        )
        unsettled = request.text("unsettled")
        if unsettled not in (None, "here", "there"):
            raise usage("unsettled is here or there")
        return Response.json(
            await asyncio.shield(
                self._remote().remove(host, queue, unused=unused, unsettled=unsettled)
            )
        )

    async def check_cutover(self, request: Request) -> Response:
        """Answer ``GET subscriptions/cutover``: compare a remote queue with its copy.

        The query is ``?host&queue[&consumer=NAME]…[&wait=SECONDS][&walk=N][&accept_received=1]``.
        The answer is a :class:`.CutoverEntry`; nothing is changed. The call waits up to ``wait``
        seconds, and at most WAIT_SECONDS_MAX. If ``compared`` is false, the next call names
        ``walk`` of the answer to wait longer for the same comparison. Raises :class:`ApiError` if
        there is no such subscription.
        """
        asked = CutoverQuestion(
            _consumers(request.query.get("consumer")),
            request.seconds("wait", high=WAIT_SECONDS_MAX),
            request.integer("walk"),
            accepts_received=request.text("accept_received") == "1",
        )
        found = await self._remote().check_cutover(
            request.text("host"), request.text("queue"), asked
        )
        return Response.json(found)

    async def cut_over(self, request: Request) -> Response:
        """Answer ``POST subscriptions/cutover``: let a subscription that copies move from now on.

        The body is ``{"host","queue"[,"consumers"]}``, the answer the status of the subscription.
        The call does not check whether readers there have stopped, and needs not: each message is
        decided by what happens to it. Raises :class:`ApiError` if it cannot be cut over now.
        """
        body = await request.json_object()
        host, queue = field_text(body, "host"), field_text(body, "queue")
        consumers = _consumers(body.get("consumers"))
        return Response.json(await asyncio.shield(self._remote().cut_over(host, queue, consumers)))

    async def received_there(self, request: Request) -> Response:
        """Answer ``GET subscriptions/received-there``: which copied messages were received there.

        The query is ``?host&queue[&lookup_id&message_id]``, with both identifiers of the last
        message of the page before. The answer is ``{"messages":[…]}``, a page of
        :class:`.ReceivedThere`. An empty page is the last one. Raises :class:`ApiError` if there is
        no such subscription.
        """
        lookup_id, message_id = request.text("lookup_id"), request.text("message_id")
        after = None
        if lookup_id is not None and message_id is not None:
            if not lookup_id.isdecimal() or int(lookup_id) >= 2**64:
                raise usage(f"lookup_id is a whole number below 2^64, not {lookup_id[:40]!r}")
            after = int(lookup_id), message_id
        found = await self._remote().received_there(
            request.text("host"), request.text("queue"), after
        )
        return Response.json({"messages": found})

    async def resume(self, request: Request) -> Response:
        """Answer ``POST subscriptions/resume {"host","queue"}``: take a subscription off hold.

        The answer is the status of the subscription. It was on hold because the data directory is a
        copy. A subscription that is not on hold does not change. Raises :class:`ApiError` if the
        subscription is unknown.
        """
        body = await request.json_object()
        host, queue = field_text(body, "host"), field_text(body, "queue")
        return Response.json(await asyncio.shield(self._remote().resume(host, queue)))


def _consumers(value: object) -> tuple[str, ...]:
    """Return the names of consumers of a cut-over, each once; ``default`` if none is given.

    Raises a 400 for anything but a list of at most CUTOVER_CONSUMERS_MAX texts.
    """
    if value is None:
        return (DEFAULT_CONSUMER,)
    if (
        not isinstance(value, list)
        or not 0 < len(value) <= CUTOVER_CONSUMERS_MAX
        or not all(isinstance(each, str) for each in value)
    ):
        raise usage(f"consumers is a list of 1 to {CUTOVER_CONSUMERS_MAX} names")
    return tuple(dict.fromkeys(value))
