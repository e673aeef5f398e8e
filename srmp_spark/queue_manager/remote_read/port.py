"""Assemble remote read in the main process: service, readers, and link to the gateway."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from typing import TYPE_CHECKING

from srmp_spark.queue_manager.gateway.link import GatewayLink
from srmp_spark.queue_manager.remote_read.crossing import (
    AnswersTaken,
    AssociationEnded,
    Called,
    CallWasCancelled,
    CallWasOrphaned,
    ClosePort,
    ConnectionEnded,
    PortClosed,
    Responded,
    RespondedWithFault,
    RpcSettings,
    ToMain,
)
from srmp_spark.queue_manager.remote_read.readers import Readers
from srmp_spark.queue_manager.remote_read.service import RemoteReadService
from srmp_spark.queue_manager.srmp_port.sockets import Descriptors
from srmp_spark.queue_manager.trust.rpc_accounts import ALL_QUEUES_ADVICE, UNPROTECTED_ADVICE
from srmp_spark.signing_in.accounts import Accounts
from srmp_spark.signing_in.credentials import LEVELS

if TYPE_CHECKING:
    from srmp_spark.queue_manager.configuration.serve_config import ServeConfig
    from srmp_spark.queue_manager.service import QueueManager

CLOSE_SECONDS = 2.0
"""Longest time for the gateway to end its connections when the queue manager stops, in seconds.

One of the two seconds is for slow readers.
"""

log = logging.getLogger(__name__)

_FromGateway = (
    Called
    | CallWasCancelled
    | CallWasOrphaned
    | AnswersTaken
    | ConnectionEnded
    | AssociationEnded
    | PortClosed
)


class RpcLink(GatewayLink[Responded | RespondedWithFault | ClosePort, _FromGateway]):
    """Keeps the gateway process of remote read running."""

    module = "srmp_spark.queue_manager.remote_read.gateway"
    noun = "rpc"


class RpcPort:
    """Serves remote read and its endpoint mapper through the gateway process.

    The caller keeps and closes the listening sockets.
    """

    def __init__(
        self,
        manager: QueueManager,
        config: ServeConfig,
        listening: socket.socket,
        mapper: socket.socket | None,
        descriptors: Descriptors,
    ) -> None:
        """Prepare the port without starting the gateway.

        ``mapper`` is the socket of the endpoint mapper, or ``None`` without one.
        """
        accounts = config.all_rpc_accounts()
        self._service = RemoteReadService(manager, listening.getsockname()[1], accounts=accounts)
        self._readers = Readers(self._service)
        self._closed = asyncio.Event()
        settings = RpcSettings(
            accounts=settings_of(accounts.accounts),
            min_auth_level=int(LEVELS[config.rpc_auth_level]),
            connections_max=descriptors.rpc,
            mapper_connections_max=descriptors.mapper,
        )
        sockets = {"rpc": listening} if mapper is None else {"rpc": listening, "mapper": mapper}
        self._link = RpcLink(
            settings,
            sockets,
            ToMain,
            self._on_message,
            on_lost=self._readers.on_gateway_lost,
            on_room=self._service.has_room,
        )

    @classmethod
    async def start(
        cls,
        manager: QueueManager,
        config: ServeConfig,
        listening: socket.socket,
        mapper: socket.socket | None,
        descriptors: Descriptors,
    ) -> RpcPort:
        """Start the gateway, wait until it listens, and return the port.

        Logs warnings about settings that protect little. Raises :class:`ConfigurationError` if the
        gateway ends or does not listen within :data:`.gateway.link.START_SECONDS`.
        """
        if config.rpc_accounts is not None:
            log.warning(
                'mqrr.accounts_of_all_queues accounts=%d because="%s"',
                len(config.rpc_accounts),
                ALL_QUEUES_ADVICE,
            )
        if config.rpc_auth_level == "connect":
            log.warning('mqrr.calls_unprotected because="%s"', UNPROTECTED_ADVICE)
        port = cls(manager, config, listening, mapper, descriptors)
        port._link.start()
        await port._link.started()
        return port

    def _on_message(self, message: _FromGateway) -> None:
        readers = self._readers
        if isinstance(message, Called):
            assert self._link.channel is not None, "it brought the message"
            readers.called(message, self._link.channel)
        elif isinstance(message, AnswersTaken):
            readers.answers_taken(message)
        elif isinstance(message, CallWasCancelled):
            readers.cancelled(message)
        elif isinstance(message, CallWasOrphaned):
            readers.orphaned(message)
        elif isinstance(message, ConnectionEnded):
            readers.connection_ended(message)
        elif isinstance(message, AssociationEnded):
            readers.association_ended(message)
        else:
            self._closed.set()

    async def close(self) -> None:
        """Accept no more calls, end all connections, and wait for changes that are being stored.

        The gateway gets at most CLOSE_SECONDS, and the changes get at most STOP_SECONDS.
        """
        if self._link.send(ClosePort()):
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._closed.wait(), CLOSE_SECONDS)
        await self._link.stop()
        self._readers.close()
        await self._service.stop()


def settings_of(accounts: Accounts) -> dict[str, str]:
    """Return accounts as JSON values for the gateway: NT hashes by name. The hashes are secrets."""
    return {account.name: account.nt_hash.hex() for account in accounts}
