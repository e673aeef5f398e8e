"""``POST activate``: let a copied data directory act outside."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from srmp_spark.errors import ApiError
from srmp_spark.queue_manager.api.port_side.http import Request, Response

if TYPE_CHECKING:
    from srmp_spark.queue_manager.queues.remote_queues import RemoteQueues
    from srmp_spark.queue_manager.service import QueueManager


class ActivationApi:
    """Handles the call ``activate``."""

    def __init__(self, manager: QueueManager, remote_queues: RemoteQueues | None) -> None:
        self._manager = manager
        self._remote_queues = remote_queues

    async def post(self, request: Request) -> Response:
        """Answer ``POST activate``: end the hold of a copied data directory, for good.

        The answer is ``{"activated","because"}``. ``activated`` states whether the data directory
        was held, and ``because`` why. It is sent when the decision is stored. A call that is
        repeated does what is left to do. Outgoing queues whose messages may have been sent by the
        original stay on hold, each by itself. Raises a 503 while the queue manager starts.
        """
        del request
        remote = self._remote_queues
        if remote is None or not remote.is_ready:
            raise ApiError(503, "not-ready", "the queue manager is starting", "try again")
        # The decision is completed even if the caller disconnects.
        held = await asyncio.shield(self._manager.activation.activate(remote))
        return Response.json(
            {"activated": held is not None, "because": None if held is None else held.because}
        )
