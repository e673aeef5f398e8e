"""The SRMP port over TLS (``--listen-https``): the same connections, limits and answers, behind a handshake.

    accept ──▶ handshake, at most HANDSHAKE_SECONDS ──▶ TlsConnection: as over plain HTTP, and it knows who the peer is
             └─ refused, too slow, gone ──▶ closed and counted, never logged with a traceback

Connections are accepted here and not by ``create_server(ssl=…)``, for two reasons. Each handshake takes the context of that
moment, so a renewed certificate counts at once (:mod:`.tls`). And a handshake counts as a connection: strangers who connect
and say nothing can hold no more of them than over plain HTTP. Handshakes take turns (:mod:`.handshake_turns`).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from srmp_spark.queue_manager.child.ending import end
from srmp_spark.queue_manager.handshake_turns import HandshakeTurns
from srmp_spark.queue_manager.srmp_endpoint import SrmpConnection, SrmpEndpoint, State
from srmp_spark.queue_manager.tls import ServerTls, sender_name_of

if TYPE_CHECKING:
    from srmp_spark.message import Transport

ACCEPTS_AT_ONCE = 64
"""Connections taken in one turn of the loop: others must have theirs."""
NO_DESCRIPTOR_SECONDS = 1.0
"""Pause when the system has no descriptor or memory for another connection; who waits is not refused."""
LOG_SECONDS = 1.0
"""At most one refused handshake is logged in this time; all are counted."""

_OUT_OF_THEM = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))

log = logging.getLogger(__name__)

HandshakeCounter = Callable[[str], object]


class TlsConnection(SrmpConnection):
    """One connection of a sender over TLS."""

    __slots__ = ("_on_shaken", "sender_name")
    scheme: Transport = "https"

    def __init__(
        self, endpoint: SrmpEndpoint, on_shaken: Callable[[], object] = lambda: None
    ) -> None:
        """``on_shaken`` is called when the handshake is done, before the connection is counted for itself."""
        super().__init__(endpoint)
        self._on_shaken = on_shaken

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is done; a certificate that the peer has shown was verified in it."""
        self._on_shaken()
        tls = cast("ssl.SSLObject", transport.get_extra_info("ssl_object"))
        self.sender_name = sender_name_of(tls.getpeercert(), tls.getpeercert(binary_form=True))
        super().connection_made(transport)

    def eof_received(self) -> bool:
        """TLS knows no half-closed connection: who ends it hears nothing more, and sends again what was not answered."""
        super().eof_received()
        return False

    def drain(self) -> None:
        """SIGTERM: close if nothing is under way; a peer that does not answer the end of TLS is cut off soon."""
        if self._state is State.IDLE:
            self._linger()

    def _end_writing(self) -> None:
        """What was written goes out, then the end of TLS; what still comes is dropped, until the sweep cuts it off."""
        self._transport.close()


def refusal_of(error: BaseException) -> str:
    """Why a handshake failed, short and from a fixed set, for the metric."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return "certificate"
    if isinstance(error, ssl.SSLError):
        if error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
            return "no-certificate"
        return (
            "version"
            if error.reason in ("UNSUPPORTED_PROTOCOL", "WRONG_VERSION_NUMBER", "VERSION_TOO_LOW")
            else "protocol"
        )
    if "longer than" in str(error) or isinstance(error, TimeoutError | asyncio.TimeoutError):
        return "too-slow"
    return "gone"


class TlsPort:
    """Takes connections from one listening socket and hands them to ``endpoint`` when their handshake is done."""

    def __init__(
        self,
        endpoint: SrmpEndpoint,
        tls: ServerTls,
        listening: socket.socket,
        *,
        count_failure: HandshakeCounter,
        connection_class: type[TlsConnection] | None = None,
    ) -> None:
        """``listening`` is bound and does not block; it stays its owner's."""
        self._endpoint = endpoint
        self._connection_class = connection_class or TlsConnection
        self._tls = tls
        self._socket = listening
        self._count_failure = count_failure
        self._loop = endpoint.loop
        self._handshakes: set[asyncio.Task[None]] = set()
        self._turns = HandshakeTurns()
        self._again: asyncio.TimerHandle | None = None
        self._logged_at = float("-inf")

    def __repr__(self) -> str:
        return f"<TlsPort handshakes={len(self._handshakes)}>"

    def start(self) -> None:
        """Accept from the socket, which listens already."""
        self._loop.add_reader(self._socket, self._accept)

    async def close(self) -> None:
        """Take no more, and give up the handshakes under way. Connections are the endpoint's to drain."""
        if self._again is not None:
            self._again.cancel()
        self._loop.remove_reader(self._socket)
        await end(tuple(self._handshakes))

    def _accept(self) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _OUT_OF_THEM:
                    self._pause()
                    return
                continue  # the one that came is gone again
            endpoint, host = self._endpoint, str(address[0])
            if not endpoint.has_place(host):
                endpoint.count_refusal(503, "too-many-connections")
                accepted.close()
                continue
            accepted.setblocking(False)
            task = self._loop.create_task(self._shake_hands(accepted, host))
            endpoint.handshakes[task] = endpoint.now
            endpoint.room.enter(task, host)
            self._handshakes.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._handshakes.discard(task)
        self._leave(task)

    def _leave(self, task: asyncio.Task[None]) -> None:
        """Give the place of a handshake back: to its own connection when it is done."""
        self._endpoint.handshakes.pop(task, None)
        self._endpoint.room.leave(task)

    def _made(self, task: asyncio.Task[None]) -> TlsConnection:
        return self._connection_class(self._endpoint, lambda: self._leave(task))

    def _pause(self) -> None:
        """The system is out of descriptors or memory: a reader that is always ready would keep the loop busy."""
        self._loop.remove_reader(self._socket)
        self._again = self._loop.call_later(NO_DESCRIPTOR_SECONDS, self._resume)

    def _resume(self) -> None:
        self._again = None
        self._loop.add_reader(self._socket, self._accept)

    async def _shake_hands(self, accepted: socket.socket, peer: str) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            async with self._turns.turn(accepted, peer) as seconds:
                try:
                    await self._loop.connect_accepted_socket(
                        lambda: self._made(task),
                        accepted,
                        ssl=self._tls.context(),
                        ssl_handshake_timeout=seconds,
                    )
                except asyncio.CancelledError:
                    if self._turns.was_slow():
                        self._refused(peer, asyncio.TimeoutError("others waited"))
                    raise
        except asyncio.CancelledError:
            accepted.close()
            raise
        except (OSError, asyncio.TimeoutError) as error:  # ssl.SSLError is an OSError
            accepted.close()
            self._refused(peer, error)

    def _refused(self, peer: str, error: BaseException) -> None:
        why = refusal_of(error)
        self._count_failure(why)
        now = self._loop.time()
        if now - self._logged_at >= LOG_SECONDS:
            self._logged_at = now
            log.info('tls.refused peer=%s why=%s reason="%s"', peer, why, error)
