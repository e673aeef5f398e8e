"""The RPC port from its start to its end."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from srmp_spark.mqrr.ndr.transfer_syntax import NDR
from srmp_spark.mqrr.rpc.binding import REMOTE_READ
from srmp_spark.mqrr.rpc.endpoint_mapper import ENDPOINT_MAPPER, EPT_MAP
from srmp_spark.mqrr.rpc.security import SecurityContext
from srmp_spark.mqrr.rpc.server_connection import ServerSettings
from srmp_spark.mqrr.server.remote_read import OPNUMS
from srmp_spark.queue_manager.remote_read.endpoint import RpcEndpoint
from srmp_spark.queue_manager.remote_read.mapper import MapperService
from srmp_spark.queue_manager.remote_read.service import RemoteReadService
from srmp_spark.queue_manager.sockets import BACKLOG, Descriptors
from srmp_spark.signing_in.accounts import Accounts
from srmp_spark.signing_in.credentials import LEVELS
from srmp_spark.signing_in.delays import SignInDelays
from srmp_spark.srmp.stream_room import holder_of

if TYPE_CHECKING:
    from srmp_spark.queue_manager.config import ServeConfig
    from srmp_spark.queue_manager.service import QueueManager

REQUEST_MAX = 65_536
"""Bytes of a request: the longest, R_OpenQueue and ept_map, carry a name and have less than 3,000. With the PDU that comes in
it is what a connection holds of its reader's bytes, 2,000 of them 256 MB at worst."""
NETBIOS_NAME_MAX = 15

log = logging.getLogger(__name__)


class RpcPort:
    """Serves remote read, and where it is, on listening sockets that stay their owner's."""

    def __init__(self, service: RemoteReadService) -> None:
        self._service = service
        self._listening: list[tuple[asyncio.Server, RpcEndpoint]] = []

    @classmethod
    async def start(
        cls, manager: QueueManager, config: ServeConfig, listening: socket.socket, mapper: socket.socket | None,
        descriptors: Descriptors,
    ) -> RpcPort:  # fmt: skip
        """Listen. ``mapper``: the socket of the endpoint mapper, if we are one."""
        number = listening.getsockname()[1]
        accounts = config.all_rpc_accounts()
        accept = partial(_acceptor, accounts.accounts, SignInDelays(), manager) if accounts else None
        if config.rpc_accounts is not None:
            log.warning(
                'mqrr.accounts_of_all_queues accounts=%d because="--rpc-accounts gives each account every queue; '
                '[[rpc_account]] names queues and verbs"', len(config.rpc_accounts),
            )  # fmt: skip
        if config.rpc_auth_level == "connect":
            log.warning(
                'mqrr.calls_unprotected because="--rpc-min-auth connect neither signs nor seals calls: a server in between can '
                'relay a sign-in and change what follows; privacy protects them"'
            )
        settings = ServerSettings(
            interfaces={REMOTE_READ: OPNUMS}, port=number, min_auth_level=LEVELS[config.rpc_auth_level], accept_security=accept,
            stub_max=REQUEST_MAX,
        )  # fmt: skip
        port = cls(RemoteReadService(manager, number, accounts=accounts))
        await port._listen(RpcEndpoint(port._service, settings, descriptors.rpc), listening)
        if mapper is not None:
            at = mapper.getsockname()[1]
            mapping = ServerSettings(
                interfaces={ENDPOINT_MAPPER: frozenset({EPT_MAP})}, port=at, syntaxes=(NDR,), stub_max=REQUEST_MAX
            )
            await port._listen(RpcEndpoint(MapperService({REMOTE_READ: number}), mapping, descriptors.mapper), mapper)
        return port

    async def _listen(self, endpoint: RpcEndpoint, listening: socket.socket) -> None:
        server = await endpoint.loop.create_server(endpoint.connection, sock=listening, backlog=BACKLOG)
        self._listening.append((server, endpoint))

    async def close(self) -> None:
        """Take no more, end all connections, finish what is being stored."""
        for server, endpoint in self._listening:
            server.close()
            endpoint.close()
        await self._service.stop()


class _PeerGate:
    """Holds back the attempts of one address: the port of :class:`srmp_spark.signing_in.ntlm.Gate`."""

    def __init__(self, delays: SignInDelays, peer: str) -> None:
        self._delays = delays
        self._address = holder_of(f"{peer}:0", None)
        self._now = asyncio.get_running_loop().time

    def seconds_to_wait(self, accounts: Sequence[str]) -> float:
        """Return how long an attempt must wait."""
        return self._delays.seconds_to_wait(self._address, accounts, self._now())

    def failed(self, accounts: Sequence[str]) -> None:
        """Count an attempt that failed."""
        self._delays.failed(self._address, accounts, self._now())

    def succeeded(self, account: str) -> None:
        """Count an attempt that did not fail."""
        self._delays.succeeded(self._address, account)


def _acceptor(
    accounts: Accounts, delays: SignInDelays, manager: QueueManager, auth_type: int, level: int, peer: str
) -> SecurityContext | None:
    """One side of a negotiation, for a connection that asks for it; ``None``: that protocol is not spoken here."""
    from srmp_spark.signing_in.ntlm import AUTH_TYPE, NtlmAcceptor

    if auth_type != AUTH_TYPE:
        log.warning("mqrr.protocol_refused auth_type=%d: NTLM (%d) is what is spoken here", auth_type, AUTH_TYPE)
        return None
    return NtlmAcceptor(
        level, accounts.of, challenge=secrets.token_bytes(8),
        name=socket.gethostname().partition(".")[0].upper()[:NETBIOS_NAME_MAX], utc=manager.clock.utc(),
        told=lambda what: log.warning('mqrr.signing_in peer=%s who_and_why="%s"', peer, what),
        gate=_PeerGate(delays, peer),
    )  # fmt: skip
