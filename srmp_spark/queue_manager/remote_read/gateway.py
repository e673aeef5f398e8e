"""Run the gateway process of remote read: the RPC port and the endpoint mapper.

All work that a client's bytes can cause is done in this process: connections, sign-in, fragments,
the seals of 4 MB of answers, and the decoding of stubs. The main process gets whole calls whose
stubs can be decoded (:mod:`.crossing`), and answers with stubs. It decodes each stub again, which
takes some 50 µs, because the encoding of the stub is one that both processes know anyway. This
process answers the calls of the endpoint mapper itself.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import Any

from srmp_spark.clock import SystemClock
from srmp_spark.mqrr.errors import BadStubError
from srmp_spark.mqrr.ndr.methods import METHODS
from srmp_spark.mqrr.ndr.transfer_syntax import NDR, NDR64
from srmp_spark.mqrr.rpc.associations import Association
from srmp_spark.mqrr.rpc.binding import REMOTE_READ
from srmp_spark.mqrr.rpc.endpoint_mapper import ENDPOINT_MAPPER, EPT_MAP
from srmp_spark.mqrr.rpc.security import SecurityContext
from srmp_spark.mqrr.rpc.server_connection import ServerSettings
from srmp_spark.mqrr.rpc.server_events import CallReceived
from srmp_spark.mqrr.status import Status
from srmp_spark.queue_manager.gateway.channel import Channel
from srmp_spark.queue_manager.gateway.process import Gateway, Served, run_gateway
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
    ToGateway,
    ToMain,
)
from srmp_spark.queue_manager.remote_read.endpoint import CallReplies, RpcEndpoint
from srmp_spark.queue_manager.remote_read.mapper import MapperService
from srmp_spark.queue_manager.srmp_port.sockets import BACKLOG
from srmp_spark.signing_in.accounts import Account, Accounts
from srmp_spark.signing_in.delays import SignInDelays
from srmp_spark.signing_in.ntlm import AUTH_TYPE, NtlmAcceptor
from srmp_spark.srmp.receiving.stream_room import holder_of

REQUEST_MAX = 65_536
"""Most bytes of a request.

The longest requests, R_OpenQueue and ept_map, carry a name and have less than 3,000 bytes. A
connection holds at most this and one PDU of its reader's bytes: 256 MB for 2,000 connections at
worst. A longer request is refused.
"""
NETBIOS_NAME_MAX = 15

log = logging.getLogger(__name__)


class RpcCaller:
    """One connection of the RPC port, with the number by which the main process knows it."""

    __slots__ = ("association", "number", "replies")

    def __init__(self, number: int, replies: CallReplies) -> None:
        self.number = number
        self.replies = replies
        self.association: Association[Any] | None = None
        """Association of the connection's first call.

        Once set, the main process knows the connection.
        """


class RpcFront:
    """Handles the calls of the RPC port (:class:`.endpoint.Service`).

    It checks the form of each call, and passes the call to the main process.
    """

    def __init__(self, channel: Channel[Any, Any]) -> None:
        self._channel = channel
        self._numbers = 0
        self._callers: dict[Hashable, RpcCaller] = {}
        self._by_number: dict[int, RpcCaller] = {}
        """The connections that the main process knows, by number."""
        self._associations: dict[Association[Any], int] = {}
        """Numbers of the associations that the main process knows.

        An identifier on the wire may be used again.
        """

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def connected(self, key: Hashable, replies: CallReplies) -> None:
        """Record a new connection. The main process is notified of it with its first call."""
        self._callers[key] = RpcCaller(self._next_number(), replies)

    def disconnected(self, key: Hashable) -> None:
        """Forget a connection, and report its end if the main process knows it."""
        caller = self._callers.pop(key)
        if self._by_number.pop(caller.number, None) is not None:
            self._channel.send(ConnectionEnded(caller.number))

    def answers_taken(self, key: Hashable) -> None:
        """Report to the main process how many bytes of answers the reader has taken."""
        caller = self._callers[key]
        self._channel.send(AnswersTaken(caller.number, caller.replies.bytes_taken()))

    def call(self, key: Hashable, received: CallReceived) -> None:
        """Pass a call to the main process, which answers it.

        If the stub of the call cannot be decoded, answer with a fault instead.
        """
        caller, association = self._callers[key], received.association
        try:
            METHODS[received.opnum].decode_request(received.stub, received.syntax)
        except BadStubError:
            caller.replies.fail(received.call_id, Status.RPC_X_BAD_STUB_DATA)
            return
        if caller.association is None:
            caller.association = association
            self._by_number[caller.number] = caller
        number = self._associations.get(association)
        if number is None:
            number = self._associations[association] = self._next_number()
            association.handles_elsewhere = 0
        self._channel.send(
            Called(
                caller.number,
                association.peer,
                number,
                received.call_id,
                received.syntax is NDR64,
                received.opnum,
                received.stub,
                received.identity,
                received.auth_level,
                caller.replies.bytes_taken(),
            )
        )

    def cancelled(self, key: Hashable, call_id: int) -> None:
        """Tell the main process that the caller of a call does not want to wait longer."""
        self._channel.send(CallWasCancelled(self._callers[key].number, call_id))

    def orphaned(self, key: Hashable, call_id: int) -> None:
        """Tell the main process that the caller of a call no longer waits for its answer."""
        self._channel.send(CallWasOrphaned(self._callers[key].number, call_id))

    def run_down(self, association: Association[Any]) -> None:
        """Tell the main process that an association has ended, if it knows the association.

        The main process then closes its handles.
        """
        number = self._associations.pop(association, None)
        if number is not None:
            self._channel.send(AssociationEnded(number))

    # --- from the main process --------------------------------------------------------------------

    def answer(self, message: Responded | RespondedWithFault) -> None:
        """Send an answer of the main process to its client, if the connection still exists."""
        caller = self._by_number.get(message.connection)
        if caller is None:
            return
        if isinstance(message, RespondedWithFault):
            caller.replies.fail(message.call_id, message.status)
            return
        assert caller.association is not None, "it has called"
        caller.association.handles_elsewhere = message.handles
        caller.replies.respond(message.call_id, message.stub)


class Ports:
    """Holds the listening ports of this process until the main process requests their end."""

    def __init__(self, gateway: Gateway[RpcSettings]) -> None:
        self._gateway = gateway
        self._channel: Channel[ToMain, ToGateway] = gateway.channel
        self._front = RpcFront(self._channel)
        self._listening: list[tuple[asyncio.Server, RpcEndpoint]] = []
        self._closing: asyncio.Task[None] | None = None

    async def listen(self) -> None:
        """Listen on the sockets of the RPC port and of the endpoint mapper.

        The main process has bound them.
        """
        settings, sockets = self._gateway.settings, self._gateway.listening
        number = sockets["rpc"].getsockname()[1]
        accounts = accounts_of(settings.accounts)
        accept = (
            partial(_acceptor, accounts, SignInDelays(), SystemClock()) if len(accounts) else None
        )
        reading = ServerSettings(
            interfaces={REMOTE_READ: frozenset(METHODS)},
            port=number,
            min_auth_level=settings.min_auth_level,
            accept_security=accept,
            stub_max=REQUEST_MAX,
        )
        # The property is read at each call.
        is_held = lambda: self._channel.is_congested  # noqa: E731
        await self._listen(
            RpcEndpoint(self._front, reading, settings.connections_max, is_held), sockets["rpc"]
        )
        mapper = sockets.get("mapper")
        if mapper is not None:
            mapping = ServerSettings(
                interfaces={ENDPOINT_MAPPER: frozenset({EPT_MAP})},
                port=mapper.getsockname()[1],
                syntaxes=(NDR,),
                stub_max=REQUEST_MAX,
            )
            service = MapperService({REMOTE_READ: number})
            await self._listen(
                RpcEndpoint(service, mapping, settings.mapper_connections_max), mapper
            )

    async def _listen(self, endpoint: RpcEndpoint, listening: socket.socket) -> None:
        server = await endpoint.loop.create_server(
            endpoint.connection, sock=listening, backlog=BACKLOG
        )
        self._listening.append((server, endpoint))

    def on_message(self, message: Responded | RespondedWithFault | ClosePort) -> None:
        """Send an answer of the main process, or begin to close the ports."""
        if isinstance(message, ClosePort):
            self._closing = asyncio.ensure_future(self._close())
        else:
            self._front.answer(message)

    def on_room(self) -> None:
        """Continue to process calls, because the channel to the main process has room again."""
        for _, endpoint in self._listening:
            endpoint.release()

    async def _close(self) -> None:
        for server, _ in self._listening:
            server.close()
        await asyncio.gather(*(endpoint.close() for _, endpoint in self._listening))
        self._channel.send(PortClosed())


class _PeerGate:
    """Delays the sign-ins of one address: implements :class:`.ntlm.SignInGate`."""

    def __init__(self, delays: SignInDelays, peer: str) -> None:
        self._delays = delays
        self._address = holder_of(f"{peer}:0", None)
        self._now = asyncio.get_running_loop().time

    def seconds_to_wait(self, accounts: Sequence[str]) -> float:
        """Return the seconds that an attempt of this peer at these accounts must still wait.

        The longest wait of the peer's address and of the accounts counts; 0 means no wait. The
        attempt is not counted.
        """
        return self._delays.seconds_to_wait(self._address, accounts, self._now())

    def failed(self, accounts: Sequence[str]) -> None:
        """Count a failed attempt at these accounts, which delays later attempts."""
        self._delays.failed(self._address, accounts, self._now())

    def succeeded(self, account: str) -> None:
        """Count a successful attempt at ``account``."""
        self._delays.succeeded(self._address, account)


def _acceptor(
    accounts: Accounts,
    delays: SignInDelays,
    clock: SystemClock,
    auth_type: int,
    level: int,
    peer: str,
) -> SecurityContext | None:
    """Return the server's side of a sign-in, or None if its protocol is not supported.

    ``auth_type`` is the protocol, ``level`` the authentication level that the client asks for. The
    refusal of a protocol is logged.
    """
    if auth_type != AUTH_TYPE:
        log.warning(
            "mqrr.protocol_refused auth_type=%d: only NTLM (%d) is supported",
            auth_type,
            AUTH_TYPE,
        )
        return None
    return NtlmAcceptor(
        level,
        accounts.of,
        challenge=secrets.token_bytes(8),
        name=socket.gethostname().partition(".")[0].upper()[:NETBIOS_NAME_MAX],
        utc=clock.utc(),
        told=lambda what: log.warning('mqrr.signing_in peer=%s who_and_why="%s"', peer, what),
        gate=_PeerGate(delays, peer),
    )


def accounts_of(settings: Mapping[str, str]) -> Accounts:
    """Return the accounts from the JSON values that :func:`.port.settings_of` returned."""
    return Accounts(Account(name, bytes.fromhex(nt_hash)) for name, nt_hash in settings.items())


async def serve(gateway: Gateway[RpcSettings]) -> Served:
    """Listen on the sockets of the main process, and return the callbacks for its messages."""
    ports = Ports(gateway)
    await ports.listen()
    return Served(ports.on_message, ports.on_room)


if __name__ == "__main__":
    run_gateway(ToGateway, RpcSettings, serve)
