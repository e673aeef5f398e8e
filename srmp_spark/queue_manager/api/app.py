"""The ASGI application: checks the caller, finds the route, and calls the handler.

Every error becomes an answer in JSON, whose form INTERFACE.md describes.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from srmp_spark.errors import ApiError, StoreError
from srmp_spark.queue_manager.api.activation import ActivationApi
from srmp_spark.queue_manager.api.consumers import ConsumersApi
from srmp_spark.queue_manager.api.give_up import GiveUpApi
from srmp_spark.queue_manager.api.health import HealthApi
from srmp_spark.queue_manager.api.messages import MessagesApi
from srmp_spark.queue_manager.api.outbox import OutboxApi
from srmp_spark.queue_manager.api.outgoing import ACTIONS, OutgoingApi
from srmp_spark.queue_manager.api.port_side.connection import EXTENSION, OWNER
from srmp_spark.queue_manager.api.port_side.guard import Guard, authorize
from srmp_spark.queue_manager.api.port_side.http import (
    Bodies,
    Receive,
    Request,
    Response,
    Scope,
    Send,
    parse_query,
)
from srmp_spark.queue_manager.api.port_side.router import Access, ApiRoute, Extent, Router
from srmp_spark.queue_manager.api.queues import QueuesApi
from srmp_spark.queue_manager.api.rows import RowsApi
from srmp_spark.queue_manager.api.streams import StreamsApi
from srmp_spark.queue_manager.api.subscriptions import SubscriptionsApi
from srmp_spark.queue_manager.queues.catalogue import Catalogue, NoSuchQueueError
from srmp_spark.queue_manager.srmp_port.port_limits import API_CONNECTIONS_MAX
from srmp_spark.queue_manager.trust.tokens import Token

if TYPE_CHECKING:
    from srmp_spark.queue_manager.queues.remote_queues import RemoteQueues
    from srmp_spark.queue_manager.service import QueueManager

CALLS_OF_TOKEN_MAX = API_CONNECTIONS_MAX // 2
"""Most calls of one API token that are not answered completely. One more is answered 503.

Long polls and unread answers keep their connections. Half of the port stays for the other tokens.
"""

OPEN = Access("none", Extent.NOBODY)
ANY = Access("any", Extent.SEEN)
METRICS = Access("metrics", Extent.SEEN)
BROWSE = Access("browse", Extent.QUEUE)
RECEIVE = Access("read", Extent.QUEUE, default_verb="decide")
ENQUEUE = Access("enqueue", Extent.QUEUE)
ADMIN = Access("admin", Extent.QUEUE)
BROWSE_ALL = Access("browse", Extent.ALL)
ENQUEUE_ALL = Access("enqueue", Extent.ALL)
ADMIN_ALL = Access("admin", Extent.ALL)

log = logging.getLogger(__name__)


def routes(
    manager: QueueManager, health: HealthApi, remote_queues: RemoteQueues | None
) -> list[ApiRoute]:
    """Return every route of the API, with its handler and the permission that its caller needs.

    ``health`` handles ``/healthz``, ``/readyz``, ``/metrics`` and ``status``. A call that changes
    nothing but the mark of a consumer (what it has received) requires ``read``, because a reader
    that receives also marks. The mark of the consumer ``default`` requires ``decide``, because that
    mark decides which receipts are sent.
    """
    queues, consumers, rows, messages = (
        QueuesApi(manager, remote_queues),
        ConsumersApi(manager),
        RowsApi(manager),
        MessagesApi(manager),
    )
    outbox, outgoing, streams = OutboxApi(manager), OutgoingApi(manager), StreamsApi(manager)
    subscriptions = SubscriptionsApi(remote_queues)
    consumer = "/v1/queues/{queue}/consumers/{consumer}"
    return [
        ApiRoute("GET", "/healthz", OPEN, health.healthz),
        ApiRoute("GET", "/readyz", OPEN, health.readyz),
        ApiRoute("GET", "/metrics", METRICS, health.metrics),
        ApiRoute("GET", "/v1/status", ANY, health.status),
        ApiRoute("GET", "/v1/queues", ANY, queues.list),
        ApiRoute("GET", "/v1/queues/{queue}", BROWSE, queues.get),
        ApiRoute("PUT", "/v1/queues/{queue}", ADMIN, queues.put),
        ApiRoute("DELETE", "/v1/queues/{queue}", ADMIN, queues.delete),
        ApiRoute("POST", "/v1/queues/{queue}/purge", ADMIN, queues.purge),
        ApiRoute("POST", "/v1/queues/{queue}/give-up", ADMIN, GiveUpApi(manager).post),
        ApiRoute("POST", "/v1/queues/{queue}/pause", ADMIN, queues.pause),
        ApiRoute("POST", "/v1/queues/{queue}/resume", ADMIN, queues.resume),
        ApiRoute("POST", "/v1/queues/{queue}/trim", ADMIN, queues.trim),
        ApiRoute("POST", "/v1/queues/{queue}/messages", ENQUEUE, messages.post),
        ApiRoute("GET", "/v1/queues/{queue}/range", BROWSE, rows.range),
        ApiRoute("GET", "/v1/queues/{queue}/rows", BROWSE, rows.rows),
        ApiRoute("GET", "/v1/queues/{queue}/holes", BROWSE, rows.holes),
        ApiRoute("GET", "/v1/queues/{queue}/first", BROWSE, rows.first),
        ApiRoute("GET", consumer, BROWSE, consumers.marks),
        ApiRoute("DELETE", consumer, ADMIN, consumers.delete),
        ApiRoute("POST", f"{consumer}/register", RECEIVE, consumers.register),
        ApiRoute("POST", f"{consumer}/received", RECEIVE, consumers.received),
        ApiRoute("POST", f"{consumer}/release", RECEIVE, consumers.release),
        ApiRoute("POST", "/v1/outbox/{application}/{batch}/stage", ENQUEUE_ALL, outbox.stage),
        ApiRoute("POST", "/v1/outbox/{application}/{batch}/commit", ENQUEUE_ALL, outbox.commit),
        ApiRoute("GET", "/v1/outbox/{application}/{batch}", ENQUEUE_ALL, outbox.result),
        ApiRoute("DELETE", "/v1/outbox/{application}/{batch}", ENQUEUE_ALL, outbox.delete),
        ApiRoute("POST", "/v1/outgoing/messages", ENQUEUE_ALL, outgoing.messages),
        ApiRoute("POST", "/v1/outgoing/states", ENQUEUE_ALL, outgoing.states),
        *(
            ApiRoute("POST", f"/v1/outgoing/{{destination}}/{action}", ADMIN_ALL, outgoing.decide)
            for action in ACTIONS
        ),
        ApiRoute("POST", "/v1/streams/{queue}/{action}", ADMIN, streams.post),
        ApiRoute("GET", "/v1/subscriptions", BROWSE_ALL, subscriptions.list),
        ApiRoute("PUT", "/v1/subscriptions", ADMIN_ALL, subscriptions.put),
        ApiRoute("DELETE", "/v1/subscriptions", ADMIN_ALL, subscriptions.delete),
        ApiRoute("POST", "/v1/subscriptions/resume", ADMIN_ALL, subscriptions.resume),
        ApiRoute("POST", "/v1/activate", ADMIN_ALL, ActivationApi(manager, remote_queues).post),
        ApiRoute("GET", "/v1/subscriptions/cutover", ADMIN_ALL, subscriptions.check_cutover),
        ApiRoute("POST", "/v1/subscriptions/cutover", ADMIN_ALL, subscriptions.cut_over),
        ApiRoute(
            "GET", "/v1/subscriptions/received-there", BROWSE_ALL, subscriptions.received_there
        ),
    ]


class ApiApp:
    """Answers the requests of the API. uvicorn calls this ASGI application for each request."""

    def __init__(self, router: Router, guard: Guard, catalogue: Catalogue) -> None:
        self._router = router
        self._guard = guard
        self._catalogue = catalogue
        self._bodies = Bodies()
        self._calls: Counter[str] = Counter()
        """Number of calls that are not answered completely, by name of their API token."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Errors of handlers become answers in JSON.

        A caller that has disconnected gets no answer, and nothing is raised. Raises
        :class:`ValueError` for anything but HTTP, such as a websocket. Raises
        :class:`ConnectionResetError` if an answer that has begun cannot be completed; the server
        then cuts the connection.
        """
        if scope["type"] != "http":
            # This is a websocket: uvicorn answers 403.
            raise ValueError(f"the API speaks HTTP, not {scope['type']}")
        with contextlib.ExitStack() as until_answered:
            try:
                response = await self._respond(scope, receive, until_answered)
            except ConnectionResetError:
                # The caller has disconnected.
                return
            await self._send(response, scope, send)

    async def _send(self, response: Response, scope: Scope, send: Send) -> None:
        try:
            await response.send(send, has_body=scope["method"] != "HEAD")
        except ConnectionResetError as error:
            # The answer had begun. Cut the connection, so that the caller does not take a part for
            # the whole.
            log.warning('api.read_cut path=%s reason="%s"', scope["path"], error)
            raise
        finally:
            if response.stream is not None:
                await response.stream.aclose()

    async def _respond(
        self, scope: Scope, receive: Receive, until_answered: contextlib.ExitStack
    ) -> Response:
        path = scope["path"]
        try:
            return await self._handle(scope, path, receive, until_answered)
        except ConnectionResetError:
            raise
        except StoreError as error:
            # The reason is enough: a traceback adds nothing.
            log.error('api.failed path=%s reason="%s"', path, error)  # noqa: TRY400
            return Response.error(ApiError(503, "store", str(error)))
        except Exception:
            log.exception("api.failed path=%s", path)
            return Response.error(
                ApiError(503, "internal", "the queue manager has a bug; its log has the details")
            )

    @contextlib.contextmanager
    def _counted(self, token: Token) -> Iterator[None]:
        """Count a call of ``token`` while the context lasts, which is until its answer was sent.

        Raises a 503 if CALLS_OF_TOKEN_MAX calls of the token are not answered yet.
        """
        if self._calls[token.name] >= CALLS_OF_TOKEN_MAX:
            raise ApiError(
                503,
                "too-many-calls",
                f"{CALLS_OF_TOKEN_MAX} calls of the token {token.name} are not answered yet",
                "call again when some of them have ended, or give programs that call "
                "often tokens of their own",
            )
        self._calls[token.name] += 1
        try:
            yield
        finally:
            self._calls[token.name] -= 1

    async def _handle(
        self, scope: Scope, path: str, receive: Receive, until_answered: contextlib.ExitStack
    ) -> Response:
        """Check the caller, find the route, call its handler, and return the answer.

        The context that counts the call (:meth:`_counted`) is entered into ``until_answered``. An
        :class:`ApiError` becomes an answer in this method, so that :meth:`_respond` also catches
        errors in writing it. Other errors are raised.
        """
        try:
            headers = {
                name.decode("latin-1").lower(): value.decode("latin-1")
                for name, value in scope["headers"]
            }
            owner = scope.get("extensions", {}).get(OWNER)
            caller = self._guard.check(scope["method"], path, headers, owner)
            if caller is not None:
                until_answered.enter_context(self._counted(caller))
            route, parameters = self._router.find(
                scope["method"], scope.get("raw_path") or path.encode()
            )
            authorize(caller, route.access, parameters)
            query = parse_query(scope.get("query_string", b""))
            connection = scope.get("extensions", {}).get(EXTENSION)
            request = Request(
                scope["method"],
                path,
                parameters,
                headers,
                query,
                receive,
                connection,
                caller,
                self._bodies,
            )
            try:
                return await route.handler(request)
            except NoSuchQueueError as error:
                raise self._catalogue.explained(error, request.sees) from None
            finally:
                request.done()
        except ApiError as error:
            response = Response.error(error)
            if error.status == 401:
                response.headers = (("www-authenticate", "Bearer"),)
            return response
