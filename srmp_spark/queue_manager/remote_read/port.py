"""The RPC port from its start to its end."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from srmp_spark.mqrr.rpc.pdu import AuthLevel
from srmp_spark.queue_manager.remote_read.endpoint import RpcEndpoint
from srmp_spark.queue_manager.remote_read.service import RemoteReadService
from srmp_spark.queue_manager.sockets import BACKLOG

if TYPE_CHECKING:
    from srmp_spark.queue_manager.config import ServeConfig
    from srmp_spark.queue_manager.service import QueueManager

LEVELS = {
    "none": AuthLevel.NONE,
    "connect": AuthLevel.CONNECT,
    "integrity": AuthLevel.PKT_INTEGRITY,
    "privacy": AuthLevel.PKT_PRIVACY,
}


class RpcPort:
    """Serves remote read on one listening socket, which stays its owner's."""

    def __init__(self, endpoint: RpcEndpoint, server: asyncio.Server) -> None:
        self._endpoint = endpoint
        self._server = server

    @classmethod
    async def start(cls, manager: QueueManager, config: ServeConfig, listening: socket.socket, port: int) -> RpcPort:
        """Listen."""
        endpoint = RpcEndpoint(
            RemoteReadService(manager, port), port, min_auth_level=LEVELS[config.rpc_auth_level], accept_security=None
        )
        server = await endpoint.loop.create_server(endpoint.connection, sock=listening, backlog=BACKLOG)
        return cls(endpoint, server)

    async def close(self) -> None:
        """Take no more, end all connections, finish what is being stored."""
        self._server.close()
        self._endpoint.close()
        await self._endpoint.service.stop()
