"""The RPC port from its start to its end."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from functools import partial
from typing import TYPE_CHECKING

from srmp_spark.mqrr.rpc.security import SecurityContext
from srmp_spark.queue_manager.remote_read.endpoint import RpcEndpoint
from srmp_spark.queue_manager.remote_read.service import RemoteReadService
from srmp_spark.queue_manager.sockets import BACKLOG
from srmp_spark.signing_in.accounts import Accounts
from srmp_spark.signing_in.credentials import LEVELS

if TYPE_CHECKING:
    from srmp_spark.queue_manager.config import ServeConfig
    from srmp_spark.queue_manager.service import QueueManager

NETBIOS_NAME_MAX = 15

log = logging.getLogger(__name__)


class RpcPort:
    """Serves remote read on one listening socket, which stays its owner's."""

    def __init__(self, endpoint: RpcEndpoint, server: asyncio.Server) -> None:
        self._endpoint = endpoint
        self._server = server

    @classmethod
    async def start(cls, manager: QueueManager, config: ServeConfig, listening: socket.socket, port: int) -> RpcPort:
        """Listen."""
        endpoint = RpcEndpoint(
            RemoteReadService(manager, port), port, min_auth_level=LEVELS[config.rpc_auth_level],
            accept_security=None if config.rpc_accounts is None else partial(_acceptor, config.rpc_accounts, manager),
        )  # fmt: skip
        server = await endpoint.loop.create_server(endpoint.connection, sock=listening, backlog=BACKLOG)
        return cls(endpoint, server)

    async def close(self) -> None:
        """Take no more, end all connections, finish what is being stored."""
        self._server.close()
        self._endpoint.close()
        await self._endpoint.service.stop()


def _acceptor(accounts: Accounts, manager: QueueManager, auth_type: int, level: int) -> SecurityContext | None:
    """One side of a negotiation, for a connection that asks for it; ``None``: that protocol is not spoken here."""
    from srmp_spark.signing_in.ntlm import AUTH_TYPE, NtlmAcceptor

    if auth_type != AUTH_TYPE:
        log.warning("mqrr.protocol_refused auth_type=%d: NTLM (%d) is what is spoken here", auth_type, AUTH_TYPE)
        return None
    return NtlmAcceptor(
        level, accounts.passwords_of, challenge=secrets.token_bytes(8),
        name=socket.gethostname().partition(".")[0].upper()[:NETBIOS_NAME_MAX], utc=manager.clock.utc(),
        told=lambda what: log.warning('mqrr.signing_in who_and_why="%s"', what),
    )  # fmt: skip
