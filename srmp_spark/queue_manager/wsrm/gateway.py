"""Gateway process of WS-ReliableMessaging: sockets, TLS, HTTP and SOAP.

All work that a client's bytes can cause is done in this process. A body of 4 MB takes the parser a
tenth of a second, and no sender of SRMP may wait for that. The main process receives decoded
messages and returns complete HTTP answers (:mod:`.crossing`). A request of more than
ASK_FIRST_BYTES is parsed only after the main process has stated that its queue accepts messages of
its client.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from pathlib import Path
from typing import Any, Literal

from srmp_spark.errors import ConfigurationError, RemoteProtocolError
from srmp_spark.log_once import OncePerKey
from srmp_spark.queue_manager.admission.targets import queue_of_wsrm
from srmp_spark.queue_manager.gateway.process import Gateway, Served, run_gateway
from srmp_spark.queue_manager.srmp_port.http_limits import PortBudget
from srmp_spark.queue_manager.srmp_port.request_head import RequestHead, without_credentials
from srmp_spark.queue_manager.srmp_port.sockets import BACKLOG
from srmp_spark.queue_manager.srmp_port.srmp_endpoint import SrmpConnection, SrmpEndpoint
from srmp_spark.queue_manager.srmp_port.srmp_tls import TlsConnection, TlsPort
from srmp_spark.queue_manager.trust.tls import ServerTls
from srmp_spark.queue_manager.wsrm.crossing import (
    Admitted,
    Asked,
    Client,
    Counted,
    Drain,
    Drained,
    HandshakeRefused,
    SoapArrived,
    SoapRefused,
    SoapResponse,
    ToGateway,
    WsrmSettings,
    packed,
)
from srmp_spark.queue_manager.wsrm.replies import SoapReply, reply_of_error
from srmp_spark.wsrm.codec.decoder import decode
from srmp_spark.wsrm.codec.faults import SoapFaultError

ASK_FIRST_BYTES = 65_536
"""Size of a request, in bytes, above which the main process must admit it before it is parsed.

Parsing a shorter request costs less than asking.
"""
BUDGET = PortBudget(
    partial=64 * 1_048_576, submitted_high=32 * 1_048_576, submitted_low=16 * 1_048_576
)
"""Limits for the bytes of requests that this process keeps.

``partial`` is the most for unfinished requests: a client that needs more is answered 503.
``submitted_high`` is the most for requests that wait for their answers. Above it no connection is
read, until fewer than ``submitted_low`` bytes wait.
"""
CONNECTIONS_MAX = 2_000
"""Most connections at one time; a client has one or two.

Further connections are answered 503 and closed.
"""

SECTION = "WS-ReliableMessaging"
_MEDIA_TYPE = re.compile(rb"(?:text/xml|application/soap\+xml)[ \t]*(?:;|\Z)", re.IGNORECASE)
_CHARSET = re.compile(rb"charset[ \t]*=[ \t]*\"?([^\";,\s]+)", re.IGNORECASE)

log = logging.getLogger(__name__)


class _SoapAnswers(SrmpConnection):
    """Base class of connections that are answered with SOAP."""

    __slots__ = ()

    def reply(self, reply: SoapReply) -> None:
        """Write an answer with SOAP to the request in flight.

        A status below 300 proves the connection (:mod:`.srmp_endpoint`).
        """
        self.is_proved = self.is_proved or reply.status < 300
        close = not self._keep_alive or self._endpoint.draining
        answer = self._endpoint.replies.with_content(
            reply.status, reply.fields, reply.content, close=close
        )
        self._finish(answer, close)


class SoapServerConnection(_SoapAnswers):
    """One connection of a client of WS-ReliableMessaging, without TLS."""

    __slots__ = ()


class SoapTlsConnection(TlsConnection, _SoapAnswers):
    """One connection of a client of WS-ReliableMessaging over TLS."""

    __slots__ = ()


class SoapFront:
    """Judges requests without the store, decodes them, and passes them to the main process.

    It is the :class:`.Inbox` of the port.
    """

    def __init__(self, gateway: Gateway[WsrmSettings]) -> None:
        """Build the front with its endpoint, which has no socket yet."""
        channel = self._channel = gateway.channel
        self._request = 0
        self._asked: dict[int, tuple[RequestHead, bytes, int]] = {}
        """Requests that wait for :class:`Admitted`, by number."""
        self._waiting: dict[int, _SoapAnswers] = {}
        """Connections that wait for an answer, by the number of the request."""
        self._refusals: OncePerKey[tuple[str, str]] = OncePerKey()
        self.endpoint = SrmpEndpoint(
            self,
            count_refusal=lambda status, reason: channel.send(Counted(status, reason)),
            utc_seconds=time.time,
            connections_max=min(CONNECTIONS_MAX, gateway.settings.connections_max),
            connection_class=SoapServerConnection,
            budget=BUDGET,
        )

    def check_target(self, target: bytes) -> None:
        """Raise :class:`RemoteProtocolError` for a request target that names no possible queue.

        Its status is 404 for a path that is not ``/wsrm/QUEUE``.
        """
        queue_of_wsrm(target)

    def accept(self, connection: Any, head: RequestHead, post: bytes, head_length: int) -> None:  # noqa: ANN401  # a _SoapAnswers
        """Refuse a whole request, ask the main process about it, or decode it and pass it on.

        The answer may be given later. The first ``head_length`` bytes of ``post`` are the HTTP
        head.
        """
        assert isinstance(connection, _SoapAnswers)
        content_type = head.headers.get(b"content-type", b"")
        charset = _CHARSET.search(content_type)
        is_utf8 = charset is None or charset[1].lower() in (b"utf-8", b"us-ascii")
        if not _MEDIA_TYPE.match(content_type) or not is_utf8:
            connection.refuse(
                415, "media-type", f"{SECTION}: text/xml or application/soap+xml in UTF-8, no MTOM"
            )
            return
        self._request += 1
        request = self._request
        self._waiting[request] = connection
        if len(post) > ASK_FIRST_BYTES:
            self._asked[request] = head, post, head_length
            self._channel.send(
                Asked(request, queue_of_wsrm(head.target), _client(connection, head))
            )
        else:
            self._decode(request, connection, head, post, head_length)

    def _decode(
        self,
        request: int,
        connection: _SoapAnswers,
        head: RequestHead,
        post: bytes,
        head_length: int,
    ) -> None:
        queue = queue_of_wsrm(head.target)
        try:
            message = decode(post[head_length:], len(post))
        except SoapFaultError as error:
            del self._waiting[request]
            self._channel.send(Counted(400, "wsrm"))
            self._tell(queue, connection.peer, str(error))
            connection.reply(reply_of_error(error))
            return
        except RemoteProtocolError as error:
            del self._waiting[request]
            self._tell(queue, connection.peer, str(error))
            connection.refuse(error.status_hint, "malformed", error.section)
            return
        if head.has_credentials:
            post, head_length = without_credentials(post, head_length)
        client = _client(connection, head)
        self._channel.send(SoapArrived(request, queue, client, post, head_length, packed(message)))

    def _tell(self, queue: str, peer: str, why: str) -> None:
        """Log why a request was refused, once for each queue and reason.

        At most KEYS_MAX pairs are logged. A client seldom shows its user the reason.
        """
        if self._refusals.is_new((queue, why)):
            log.warning('wsrm.refused queue=%s peer=%s because="%s"', queue, peer, why)

    # --- from the main process --------------------------------------------------------------------

    def on_message(self, message: Admitted | SoapResponse | SoapRefused | Drain) -> None:
        """Handle one message of the main process (:mod:`.crossing`)."""
        if isinstance(message, Drain):
            self._drains = asyncio.ensure_future(self._drain())
            return
        if isinstance(message, Admitted):
            found, connection = (
                self._asked.pop(message.request, None),
                self._waiting.get(message.request),
            )
            if found is not None and connection is not None:
                self._decode(message.request, connection, *found)
            return
        self._asked.pop(message.request, None)
        connection = self._waiting.pop(message.request, None)
        if connection is None:
            return
        if isinstance(message, SoapResponse):
            connection.reply(SoapReply(message.status, message.fields, message.content))
        else:
            connection.refuse(message.status, message.reason, message.section, message.retry_after)

    def on_room(self) -> None:
        """Read from clients again, because the channel to the main process has room again."""
        self.endpoint.release_reading()

    async def _drain(self) -> None:
        await self.endpoint.drain()
        self._channel.send(Drained())


def _client(connection: SrmpConnection, head: RequestHead) -> Client:
    scheme: Literal["http", "https"] = "https" if connection.scheme == "https" else "http"
    return Client(
        connection.peer, connection.sender_name, scheme, head.headers.get(b"authorization", b"")
    )


async def serve(gateway: Gateway[WsrmSettings]) -> Served:
    """Listen on the socket that the main process passed, and return the callbacks.

    Raises :class:`SystemExit` if the certificate files cannot be loaded.
    """
    front = SoapFront(gateway)
    channel, listening, endpoint = gateway.channel, gateway.listening["port"], front.endpoint
    tls = gateway.settings.tls
    if tls is None:
        await asyncio.get_running_loop().create_server(
            endpoint.connection, sock=listening, backlog=BACKLOG
        )
        return Served(front.on_message, front.on_room)
    try:
        server_tls = ServerTls(
            Path(tls.cert),
            Path(tls.key),
            None if tls.client_ca is None else Path(tls.client_ca),
            require_client_certificate=tls.require_client_cert,
        )
    except ConfigurationError as error:
        # The main process has read the same files before, so this is rare.
        # The reason is enough: a traceback adds nothing.
        log.error("wsrm.tls_failed reason=%s", error)  # noqa: TRY400
        raise SystemExit(2) from None
    port = TlsPort(
        endpoint,
        server_tls,
        listening,
        count_failure=lambda why: channel.send(HandshakeRefused(why)),
        connection_class=SoapTlsConnection,
    )
    port.start()
    return Served(front.on_message, front.on_room)


if __name__ == "__main__":
    run_gateway(ToGateway, WsrmSettings, serve)
