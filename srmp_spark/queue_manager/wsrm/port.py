"""WS-ReliableMessaging in the main process: queues, inbox, and the link to the gateway."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from srmp_spark.queue_manager.gateway.link import GatewayLink
from srmp_spark.queue_manager.srmp_port.http_limits import DRAIN_SECONDS
from srmp_spark.queue_manager.wsrm.crossing import (
    Admitted,
    Asked,
    Counted,
    Drain,
    Drained,
    HandshakeRefused,
    SoapArrived,
    SoapRefused,
    SoapResponse,
    ToMain,
    WsrmSettings,
    WsrmTls,
)
from srmp_spark.queue_manager.wsrm.inbox import ReliableInbox, SoapRequest
from srmp_spark.queue_manager.wsrm.queues import ReliableQueues
from srmp_spark.queue_manager.wsrm.sending import WsrmSender
from srmp_spark.store.tables import wsrm_sequences
from srmp_spark.wsrm.receiving.destination_effects import DestinationSettings

if TYPE_CHECKING:
    from srmp_spark.queue_manager.configuration.serve_config import ServeConfig
    from srmp_spark.queue_manager.service import QueueManager
    from srmp_spark.queue_manager.trust.tls import ClientTls

log = logging.getLogger(__name__)


class ReliableLink(
    GatewayLink[
        Admitted | SoapResponse | SoapRefused | Drain,
        Asked | SoapArrived | Counted | HandshakeRefused | Drained,
    ]
):
    """Keeps the gateway process of WS-ReliableMessaging running."""

    module = "srmp_spark.queue_manager.wsrm.gateway"
    noun = "wsrm"


class ReliablePort:
    """Holds the sequences of all queues, and the port for their messages, if there is one.

    Sequences are loaded without a port too. The sequences that an earlier run stored are shown in
    ``status``, kept and published.
    """

    def __init__(self, manager: QueueManager, tls: ClientTls, base: str) -> None:
        """Load the stored sequences from the database, without starting the port.

        ``base`` is the URL by which clients reach the port. Database rows that cannot be read are
        logged and set aside.
        """
        stored = wsrm_sequences.load(manager.directory.writer)
        for each in stored.unreadable:
            log.error(
                "store.set_aside table=%s key=%s reason=%s", each.table, each.key, each.reason
            )
        manager.set_aside += stored.unreadable
        self._metrics = manager.metrics
        self._sender = WsrmSender(manager.receipts, tls)
        settings = DestinationSettings(buffer=manager.config.wsrm_buffer)
        self._queues = ReliableQueues(
            manager, self._sender, new_identifier, stored.sequences, settings, base
        )
        self._inbox = ReliableInbox(
            manager.admission, self._queues, self._sender, manager.metrics, manager.clock
        )
        self._link: ReliableLink | None = None
        self._drained = asyncio.Event()

    async def start(
        self, config: ServeConfig, listening: socket.socket, connections_max: int
    ) -> None:
        """Start the gateway on the socket ``listening``, and wait until it listens.

        The caller keeps and closes the socket. Raises :class:`ConfigurationError` as
        :meth:`.GatewayLink.started`.
        """
        assert config.listen_wsrm is not None
        tls = None
        if config.listen_wsrm.is_tls:
            tls = WsrmTls(
                str(config.listen_cert),
                str(config.listen_key),
                None if config.client_ca is None else str(config.client_ca),
                require_client_cert=config.require_client_cert,
            )
        settings = WsrmSettings(tls=tls, connections_max=connections_max)
        self._link = ReliableLink(settings, {"port": listening}, ToMain, self._on_message)
        self._link.start()
        await self._link.started()

    def status(self, sees: Callable[[str], bool]) -> list[dict[str, Any]]:
        """Return the list ``status.incoming_sequences``, with the queues that ``sees`` allows."""
        return self._queues.status(sees)

    def _on_message(
        self, message: Asked | SoapArrived | Counted | HandshakeRefused | Drained
    ) -> None:
        if isinstance(message, Asked | SoapArrived):
            assert self._link is not None
            # Answer by the channel that delivered the request: the next gateway has other requests.
            channel = self._link.channel
            if channel is None:
                return
            request = SoapRequest(message.request, message.client, channel.send)
            try:
                if isinstance(message, SoapArrived):
                    self._inbox.accept(message, request)
                elif self._inbox.admits(message, request):
                    channel.send(Admitted(message.request))
            except Exception:
                request.fail()
                raise
        elif isinstance(message, Counted):
            self._metrics.refuse(message.status, message.reason)
        elif isinstance(message, HandshakeRefused):
            self._metrics.refuse_handshake(message.why)
        else:
            self._drained.set()

    async def drain(self) -> None:
        """Let the gateway finish its requests. Wait at most DRAIN_SECONDS and one second."""
        if self._link is not None and self._link.send(Drain()):
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._drained.wait(), DRAIN_SECONDS + 1)

    async def close(self) -> None:
        """End the gateway, and cancel all sending. Messages in flight are dropped."""
        if self._link is not None:
            await self._link.stop()
        self._queues.close()
        await self._sender.close()


def new_identifier() -> str:
    """Return a random identifier for a new sequence.

    Its 122 random bits cannot be guessed. So only a client that was given the identifier knows it.
    """
    return f"urn:uuid:{uuid.uuid4()}"
