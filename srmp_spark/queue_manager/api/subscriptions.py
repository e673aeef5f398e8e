"""Calls of ``subscriptions``: remote queues that are read into local ones.

Subscriptions are added and removed while the queue manager runs
(:mod:`srmp_spark.queue_manager.puller`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from srmp_spark.errors import ApiError
from srmp_spark.queue_manager.api.port_side.http import Request, Response, field_text, usage
from srmp_spark.queue_manager.configuration.subscriptions import KEYS

if TYPE_CHECKING:
    from srmp_spark.queue_manager.queues.remote_queues import RemoteQueues

PASSWORD = "password"  # noqa: S105  # the name of a field
_FIELDS = (*(key for key in KEYS if key != "password_file"), PASSWORD)
"""Fields that the body of a call may have. None of them names a file.

The caller may be on another machine, and must not choose a file of the queue manager's machine to
be read.
"""


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
        Raises :class:`ApiError` if it cannot be removed.
        """
        host, queue, unused = (
            request.text("host"),
            request.text("queue"),
            request.text("unused") == "1",
        )
        return Response.json(
            await asyncio.shield(self._remote().remove(host, queue, unused=unused))
        )

    async def resume(self, request: Request) -> Response:
        """Answer ``POST subscriptions/resume {"host","queue"}``: take a subscription off hold.

        The answer is the status of the subscription. It was on hold because the data directory is a
        copy. A subscription that is not on hold does not change. Raises :class:`ApiError` if the
        subscription is unknown.
        """
        body = await request.json_object()
        host, queue = field_text(body, "host"), field_text(body, "queue")
        return Response.json(await asyncio.shield(self._remote().resume(host, queue)))
