"""The ASGI application: guard, route, handle, and turn every error into the JSON that INTERFACE.md promises."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from srmp_spark.errors import ApiError, StoreError
from srmp_spark.queue_manager.api.connection import EXTENSION
from srmp_spark.queue_manager.api.consumers import ConsumersApi
from srmp_spark.queue_manager.api.give_up import GiveUpApi
from srmp_spark.queue_manager.api.guard import Guard
from srmp_spark.queue_manager.api.http import Receive, Request, Response, Scope, Send, parse_query
from srmp_spark.queue_manager.api.messages import MessagesApi
from srmp_spark.queue_manager.api.outbox import OutboxApi
from srmp_spark.queue_manager.api.outgoing import ACTIONS, OutgoingApi
from srmp_spark.queue_manager.api.queues import QueuesApi
from srmp_spark.queue_manager.api.router import Route, Router
from srmp_spark.queue_manager.api.rows import RowsApi
from srmp_spark.queue_manager.api.status import HealthApi
from srmp_spark.queue_manager.api.streams import StreamsApi

if TYPE_CHECKING:
    from srmp_spark.queue_manager.service import QueueManager

log = logging.getLogger(__name__)


def routes(manager: QueueManager, health: HealthApi) -> list[Route]:
    """Every path of the API."""
    queues, consumers, rows, messages = QueuesApi(manager), ConsumersApi(manager), RowsApi(manager), MessagesApi(manager)
    outbox, outgoing, streams = OutboxApi(manager), OutgoingApi(manager), StreamsApi(manager)
    return [
        Route("GET", "/healthz", health.healthz),
        Route("GET", "/readyz", health.readyz),
        Route("GET", "/metrics", health.metrics),
        Route("GET", "/v1/status", health.status),
        Route("GET", "/v1/queues", queues.list),
        Route("GET", "/v1/queues/{queue}", queues.get),
        Route("PUT", "/v1/queues/{queue}", queues.put),
        Route("DELETE", "/v1/queues/{queue}", queues.delete),
        Route("POST", "/v1/queues/{queue}/purge", queues.purge),
        Route("POST", "/v1/queues/{queue}/give-up", GiveUpApi(manager).post),
        Route("POST", "/v1/queues/{queue}/pause", queues.pause),
        Route("POST", "/v1/queues/{queue}/resume", queues.resume),
        Route("POST", "/v1/queues/{queue}/messages", messages.post),
        Route("GET", "/v1/queues/{queue}/range", rows.range),
        Route("GET", "/v1/queues/{queue}/rows", rows.rows),
        Route("GET", "/v1/queues/{queue}/holes", rows.holes),
        Route("POST", "/v1/queues/{queue}/consumers/{consumer}/register", consumers.register),
        Route("POST", "/v1/queues/{queue}/consumers/{consumer}/received", consumers.received),
        Route("POST", "/v1/queues/{queue}/consumers/{consumer}/release", consumers.release),
        Route("POST", "/v1/outbox/{application}/{batch}/stage", outbox.stage),
        Route("POST", "/v1/outbox/{application}/{batch}/commit", outbox.commit),
        Route("DELETE", "/v1/outbox/{application}/{batch}", outbox.delete),
        Route("POST", "/v1/outgoing/messages", outgoing.messages),
        Route("POST", "/v1/outgoing/states", outgoing.states),
        *(Route("POST", f"/v1/outgoing/{{destination}}/{action}", outgoing.decide) for action in ACTIONS),
        Route("POST", "/v1/streams/{queue}/{action}", streams.post),
    ]


class ApiApp:
    """What uvicorn calls."""

    def __init__(self, router: Router, guard: Guard) -> None:
        self._router = router
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            raise ValueError(f"the API speaks HTTP, not {scope['type']}")  # a websocket: uvicorn answers 403
        try:
            response = await self._respond(scope, receive)
        except ConnectionResetError:
            return  # the caller went away
        try:
            await response.send(send)
        except ConnectionResetError as error:
            # The answer had begun: cut the connection, so that nobody takes the part for the whole.
            log.warning('api.read_cut path=%s reason="%s"', scope["path"], error)
            raise
        finally:
            if response.stream is not None:
                await response.stream.aclose()

    async def _respond(self, scope: Scope, receive: Receive) -> Response:
        path = scope["path"]
        try:
            return await self._handle(scope, path, receive)
        except ConnectionResetError:
            raise
        except StoreError as error:
            log.error('api.failed path=%s reason="%s"', path, error)  # noqa: TRY400  # the reason says it all
            return Response.error(ApiError(503, "store", str(error)))
        except Exception:
            log.exception("api.failed path=%s", path)
            return Response.error(ApiError(503, "internal", "the queue manager has a bug; its log says more"))

    async def _handle(self, scope: Scope, path: str, receive: Receive) -> Response:
        """Guard, route and handler; writing a refusal is still inside of what :meth:`_respond` watches."""
        try:
            headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
            self._guard.check(path, headers)
            handler, parameters = self._router.find(scope["method"], scope.get("raw_path") or path.encode())
            query = parse_query(scope.get("query_string", b""))
            connection = scope.get("extensions", {}).get(EXTENSION)
            request = Request(scope["method"], path, parameters, headers, query, receive, connection)
            return await handler(request)
        except ApiError as error:
            response = Response.error(error)
            if error.status == 401:
                response.headers = (("www-authenticate", "Bearer"),)
            return response
