"""Calls of ``queues`` and ``queues/{q}``: list, create, delete, purge, trim, pause and resume."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from srmp_spark.errors import ApiError
from srmp_spark.names import FORWARD_QUEUE, canonical_queue_name
from srmp_spark.queue_manager.api.port_side.http import Request, Response, usage
from srmp_spark.queue_manager.api.port_side.queue_page import Page
from srmp_spark.queue_manager.api.port_side.sliced_json import sliced_json
from srmp_spark.queue_manager.api.status import disk_free_bytes, everything, queue_status
from srmp_spark.queue_manager.queues.administration import Only
from srmp_spark.queue_manager.queues.in_use import IN_USE
from srmp_spark.queue_manager.trimming import Trimming, TrimRequest

if TYPE_CHECKING:
    from srmp_spark.queue_manager.queues.catalogue import Queue
    from srmp_spark.queue_manager.queues.remote_queues import RemoteQueues
    from srmp_spark.queue_manager.service import QueueManager

T = TypeVar("T")


class QueuesApi:
    """Handles the calls of ``queues`` and ``queues/{q}``."""

    def __init__(self, manager: QueueManager, remote_queues: RemoteQueues | None) -> None:
        self._manager = manager
        self._remote_queues = remote_queues
        self._trimming = Trimming(manager)

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
        """Answer ``PUT queues/{q}[?only=create|change]``: create a queue, or change its settings.

        The body is ``{"transactional": bool, "journal": bool}``. The status is 201 if the queue was
        created, and 200 if the queue existed. A setting that is not named keeps its value, which is
        false for a new queue. With ``only=create`` an existing queue is not changed: it must have
        the settings that are named, else the call raises a 409. With ``only=change`` a missing
        queue is not created: the call raises a 404. Raises a 400 for an invalid name or body, and
        the errors of :meth:`.QueueAdministration.create`.
        """
        body = await request.json_object()
        unknown = body.keys() - {"transactional", "journal"}
        if unknown:
            raise usage(
                f"unknown setting {sorted(unknown)[0]!r} of a queue",
                "known: transactional, journal",
            )
        transactional, journal = _setting(body, "transactional"), _setting(body, "journal")
        only = _one_of(request, "only", {each.value: each for each in Only}, Only.BOTH)
        try:
            name = canonical_queue_name(request.parameters["queue"])
        except ValueError as error:
            raise ApiError(
                400, "queue-name", str(error), section="INTERFACE.md section 1"
            ) from None
        created = await self._manager.queues.create(
            name,
            transactional=transactional,
            journal=journal,
            is_restricted=not request.sees_all,
            only=only,
        )
        return Response.json(
            queue_status(self._manager.catalogue.find(name), self._manager), 201 if created else 200
        )

    async def delete(self, request: Request) -> Response:
        """Answer ``DELETE queues/{q}[?unused=1]``: delete the queue and its journal, with rows.

        The answer is ``{"queue","rows","configured"}``: the name, how many rows the consumer
        ``default`` had not received, and whether the configuration names the queue, so that the
        next start creates it again. With ``unused=1`` a queue in use stays, and the call raises a
        409. Raises the errors of :meth:`.QueueAdministration.delete`.
        """
        unused = request.text("unused", "0") == "1"
        if unused:
            self._check_not_filled(self._manager.catalogue.find_base(request.parameters["queue"]))
        self._manager.disk.use_reserve()
        deleted = await self._manager.queues.delete(request.parameters["queue"], unused=unused)
        config = self._manager.config
        names = {each.name for each in config.queue} | {each.to for each in config.subscription}
        return Response.json(
            {
                "queue": deleted.name,
                "rows": deleted.rows,
                "configured": deleted.name in names,
            }
        )

    def _check_not_filled(self, queue: Queue) -> None:
        """Raise a 409 if a subscription reads a remote queue into ``queue``."""
        remote = self._remote_queues
        for each in [] if remote is None or not remote.is_ready else remote.status():
            if each["to"] == queue.name:
                raise ApiError(
                    409,
                    IN_USE,
                    f"queue {queue.name} is filled from {each['queue']} of {each['host']}",
                    f"first: srmp-spark subscribe remove --host {each['host']} "
                    f"--queue '{each['queue']}'",
                )

    async def trim(self, request: Request) -> Response:
        """Answer ``POST queues/{q}/trim``: delete rows that are no longer needed, and free room.

        The query is ``?received=1`` for rows that every consumer has received, or
        ``?before=SEQUENCE`` or ``?before_time=MICROSECONDS`` for those of them with a lower
        sequence, or that arrived before that time. With ``force=1`` and one of the last two, rows
        are deleted that a consumer has not received, or that the Delta state does not have. Whole
        segments and groups are deleted, so some rows may stay with their neighbours. The answer is
        ``{"queue","trimmed","first","last","lost","kept_for","disk_free_bytes"}``, and is sent when
        the room is free, or after 20 seconds. ``lost`` states who had not received how many of the
        rows. ``kept_for`` is null, or ``{"name","received"}`` of whoever needs the next rows.
        Raises a 400 for an invalid query, a journal, or a queue of this queue manager's own.
        """
        received = request.text("received", "0") == "1"
        before, before_time = request.integer("before"), request.integer("before_time")
        forced = request.text("force", "0") == "1"
        if received + (before is not None) + (before_time is not None) != 1:
            raise usage("trim takes one of received=1, before=SEQUENCE, before_time=MICROSECONDS")
        if forced and received:
            raise usage("received=1 never deletes rows that a consumer has not received")
        asked = TrimRequest(before, before_time, forced)
        # The trim is completed even if the caller disconnects.
        done = await asyncio.shield(self._trimming.trim(request.parameters["queue"], asked))
        queue = self._manager.catalogue.find_base(request.parameters["queue"])
        return Response.json(
            {
                "queue": queue.name,
                "trimmed": done.rows,
                "first": done.first,
                "last": queue.end,
                "lost": done.lost,
                "kept_for": None if done.kept_for is None else done.kept_for._asdict(),
                "disk_free_bytes": disk_free_bytes(self._manager),
            }
        )

    async def purge(self, request: Request) -> Response:
        """Answer ``POST queues/{q}/purge``: delete the waiting rows, and answer their number.

        The answer ``{"queue","purged"}`` is sent when the deletion is stored. The rows of a journal
        are only marked as received. Senders that requested it are notified. While
        ``private$/forward$`` is purged, forwarding is held.
        """
        queue = self._manager.catalogue.find(request.parameters["queue"])
        self._manager.disk.use_reserve()
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
        """Answer ``POST queues/{q}/pause[?direction=in|out]``: pause one direction of the queue.

        ``in``, the default: new messages are refused with 503 from now on. ``out``: readers that
        receive find no further rows. The pause is stored before the answer, which is
        ``{"queue","paused","paused_out"}``. Raises a 400 for ``out`` of a queue of this queue
        manager's own.
        """
        directions = {"in": (True, None), "out": (None, True)}
        return await self._pause(request, *_one_of(request, "direction", directions, (True, None)))

    async def resume(self, request: Request) -> Response:
        """Answer ``POST queues/{q}/resume[?direction=in|out]``: end the pause of the queue.

        Without ``direction`` both pauses end. That is stored before the answer, which is that of
        ``pause``.
        """
        directions = {"in": (False, None), "out": (None, False)}
        return await self._pause(
            request, *_one_of(request, "direction", directions, (False, False))
        )

    async def _pause(
        self, request: Request, paused: bool | None, paused_out: bool | None
    ) -> Response:
        queue = self._manager.catalogue.find_base(request.parameters["queue"])
        await self._manager.queues.pause(queue.name, paused=paused, paused_out=paused_out)
        return Response.json(
            {"queue": queue.name, "paused": queue.state.paused, "paused_out": queue.paused_out}
        )


def _setting(body: Mapping[str, object], name: str) -> bool | None:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise usage(f"{name} is true or false")
    return value


def _one_of(request: Request, name: str, values: Mapping[str, T], default: T) -> T:
    """Return the value of a query parameter; raise a 400 for one that ``values`` does not have."""
    text = request.text(name)
    if text is None:
        return default
    if text not in values:
        raise usage(f"{name} is one of {', '.join(values)}, not {text[:50]!r}")
    return values[text]
