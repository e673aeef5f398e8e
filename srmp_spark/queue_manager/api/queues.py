"""Calls of ``queues`` and ``queues/{q}``: list, create, delete, purge, pause and resume."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from srmp_spark.errors import ApiError
from srmp_spark.names import FORWARD_QUEUE, canonical_queue_name
from srmp_spark.queue_manager.api.port_side.http import Request, Response, usage
from srmp_spark.queue_manager.api.port_side.queue_page import Page
from srmp_spark.queue_manager.api.port_side.sliced_json import sliced_json
from srmp_spark.queue_manager.api.status import everything, queue_status

if TYPE_CHECKING:
    from srmp_spark.queue_manager.service import QueueManager


class QueuesApi:
    """Handles the calls of ``queues`` and ``queues/{q}``."""

    def __init__(self, manager: QueueManager) -> None:
        self._manager = manager

    async def list(self, request: Request) -> Response:
        """Answer ``GET queues[?queues=GLOB&limit&after]``: the status of each selected queue.

        The answer is ``{"queues":[…]}``, with ``queues_after`` if there is a further page. Only
        queues that the caller's API token covers are listed. ``queues`` is a name or a glob,
        ``limit`` the most entries of a page, ``after`` the last name of the page before.
        """
        page, sees = Page.of(request), everything if request.sees_all else request.sees
        async with self._manager.slices.work() as work:
            selected = await page.select(self._manager.catalogue, sees, work)
            queues = []
            for queue in selected.queues:
                queues.append(queue_status(queue, self._manager))
                await work.turn()
            after = {} if page.is_everything else {"queues_after": selected.after}
            return await sliced_json({"queues": queues, **after}, work)

    async def get(self, request: Request) -> Response:
        """Answer ``GET queues/{q}``: the status of one queue. Raises a 404 if it does not exist."""
        return Response.json(
            queue_status(self._manager.catalogue.find(request.parameters["queue"]), self._manager)
        )

    async def put(self, request: Request) -> Response:
        """Answer ``PUT queues/{q}``: create a queue, or change its settings.

        The body is ``{"transactional": bool, "journal": bool}``. The status is 201 if the queue was
        created, and 200 if the queue existed. A setting that is not named keeps its value, which is
        false for a new queue. Raises a 400 for an invalid name or body, and the errors of
        :meth:`.QueueAdministration.create`.
        """
        body = await request.json_object()
        unknown = body.keys() - {"transactional", "journal"}
        if unknown:
            raise usage(
                f"unknown setting {sorted(unknown)[0]!r} of a queue",
                "known: transactional, journal",
            )
        transactional, journal = _setting(body, "transactional"), _setting(body, "journal")
        try:
            name = canonical_queue_name(request.parameters["queue"])
        except ValueError as error:
            raise ApiError(
                400, "queue-name", str(error), section="INTERFACE.md section 1"
            ) from None
        created = await self._manager.queues.create(
            name, transactional=transactional, journal=journal, is_restricted=not request.sees_all
        )
        return Response.json(
            queue_status(self._manager.catalogue.find(name), self._manager), 201 if created else 200
        )

    async def delete(self, request: Request) -> Response:
        """Answer ``DELETE queues/{q}``: delete the queue and its journal, with their rows.

        The answer names the queue. Raises the errors of :meth:`.QueueAdministration.delete`.
        """
        return Response.json(
            {"queue": await self._manager.queues.delete(request.parameters["queue"])}
        )

    async def purge(self, request: Request) -> Response:
        """Answer ``POST queues/{q}/purge``: delete the waiting rows, and answer their number.

        The answer ``{"queue","purged"}`` is sent when the deletion is stored. The rows of a journal
        are only marked as received. Senders that requested it are notified. While
        ``private$/forward$`` is purged, forwarding is held.
        """
        queue = self._manager.catalogue.find(request.parameters["queue"])
        held = (
            self._manager.outgoing.forwarding_held()
            if queue.name == FORWARD_QUEUE
            else contextlib.nullcontext()
        )
        async with held:
            return Response.json(
                {"queue": queue.name, "purged": await self._manager.queues.purge(queue.name)}
            )

    async def pause(self, request: Request) -> Response:
        """Answer ``POST queues/{q}/pause``: refuse new messages with 503 from now on.

        The pause is stored before the answer, which is ``{"queue","paused"}``.
        """
        return await self._pause(request, paused=True)

    async def resume(self, request: Request) -> Response:
        """Answer ``POST queues/{q}/resume``: accept new messages again.

        The end of the pause is stored before the answer.
        """
        return await self._pause(request, paused=False)

    async def _pause(self, request: Request, *, paused: bool) -> Response:
        queue = self._manager.catalogue.find_base(request.parameters["queue"])
        await self._manager.queues.pause(queue.name, paused=paused)
        return Response.json({"queue": queue.name, "paused": paused})


def _setting(body: Mapping[str, object], name: str) -> bool | None:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise usage(f"{name} is true or false")
    return value
