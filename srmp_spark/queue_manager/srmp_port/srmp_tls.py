"""Serve the SRMP port over TLS (``--listen-https``), with the connections of plain HTTP.

Limits and answers are the same; only a handshake is added.

    accept ──▶ handshake, at most HANDSHAKE_SECONDS ──▶ TlsConnection: as over plain HTTP,
             │                                          and it knows who the peer is
             └─ refused, too slow, gone ──▶ closed and counted, never logged with a traceback

Connections are accepted by this module and not by ``create_server(ssl=…)``, for two reasons. Each
handshake uses the context of that moment, so a renewed certificate is used at once (:mod:`.tls`).
And a handshake counts as a connection: unauthenticated clients that connect and send nothing can
hold no more connections than over plain HTTP. Handshakes take turns (:mod:`.handshake_turns`).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from srmp_spark.queue_manager.alarm import Alarm
from srmp_spark.queue_manager.child.ending import end
from srmp_spark.queue_manager.srmp_port.handshake_turns import HandshakeTurns
from srmp_spark.queue_manager.srmp_port.srmp_endpoint import (
    ConnectionState,
    SrmpConnection,
    SrmpEndpoint,
)
from srmp_spark.queue_manager.trust.tls import ServerTls, sender_name_of

if TYPE_CHECKING:
    from srmp_spark.message import Transport

ACCEPTS_AT_ONCE = 64
"""Most connections that are accepted in one turn of the loop.

Other connections must have their turns.
"""
NO_DESCRIPTOR_SECONDS = 1.0
"""Seconds without accepting after the system had no descriptor or memory for a connection.

Clients wait meanwhile and are not refused.
"""
LOG_SECONDS = 1.0
"""Seconds in which at most one refused handshake is logged. All are counted."""

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
        """Create the connection before its handshake.

        ``on_shaken`` is called when the handshake is done, before the connection itself is counted.
        """
        super().__init__(endpoint)
        self._on_shaken = on_shaken

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection after its handshake, and store the name of the peer.

        asyncio calls this method. If the peer has shown a certificate, the handshake has verified
        it.
        """
        self._on_shaken()
        tls = cast("ssl.SSLObject", transport.get_extra_info("ssl_object"))
        self.sender_name = sender_name_of(tls.getpeercert(), tls.getpeercert(binary_form=True))
        super().connection_made(transport)

    def eof_received(self) -> bool:
        """End the connection, because TLS has no half-closed connections. Return ``False``.

        asyncio calls this method. A sender that ends the connection gets no answer, and sends
        unanswered messages again.
        """
        super().eof_received()
        return False

    def drain(self) -> None:
        """Close the connection at SIGTERM if it is idle. A request in progress is still answered.

        A peer that does not answer the end of TLS is disconnected by the sweep, after
        LINGER_SECONDS.
        """
        if self._state is ConnectionState.IDLE:
            self._linger()

    def _end_writing(self) -> None:
        """Send the bytes that were written, then the end of TLS.

        Bytes that still arrive are dropped. :meth:`sweep` aborts the connection if it has not ended
        after LINGER_SECONDS.
        """
        self._transport.close()


def refusal_of(error: BaseException) -> str:
    """Return the reason why a handshake failed, for the metric.

    The result is one of "certificate", "no-certificate", "version", "protocol", "too-slow" and
    "gone".
    """
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
    """Accepts connections from one socket. After a handshake they belong to ``endpoint``."""

    def __init__(
        self,
        endpoint: SrmpEndpoint,
        tls: ServerTls,
        listening: socket.socket,
        *,
        count_failure: HandshakeCounter,
        connection_class: type[TlsConnection] | None = None,
    ) -> None:
        """Prepare the port without accepting.

        ``listening`` is bound and does not block. The caller must close it. ``count_failure`` is
        called with the reason of each handshake that failed.
        """
        self._endpoint = endpoint
        self._connection_class = connection_class or TlsConnection
        self._tls = tls
        self._socket = listening
        self._count_failure = count_failure
        self._loop = endpoint.loop
        self._handshakes: set[asyncio.Task[None]] = set()
        self._turns = HandshakeTurns()
        self._again = Alarm(self._loop, self._resume)
        self._logged_at = float("-inf")

    def __repr__(self) -> str:
        return f"<TlsPort handshakes={len(self._handshakes)}>"

    def start(self) -> None:
        """Begin to accept connections from the socket, which must listen already."""
        self._loop.add_reader(self._socket, self._accept)

    async def close(self) -> None:
        """Accept no more connections, cancel the handshakes in progress, and wait for their end.

        The endpoint drains the connections.
        """
        self._again.stop()
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
                continue  # The client has disconnected again.
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
        """Give the place of a handshake back, because it has ended.

        After a handshake that succeeded, its own connection takes the place.
        """
        self._endpoint.handshakes.pop(task, None)
        self._endpoint.room.leave(task)

    def _made(self, task: asyncio.Task[None]) -> TlsConnection:
        return self._connection_class(self._endpoint, lambda: self._leave(task))

    def _pause(self) -> None:
        """Stop accepting for NO_DESCRIPTOR_SECONDS, because there is no descriptor or memory.

        A socket that is always readable would keep the loop busy.
        """
        self._loop.remove_reader(self._socket)
        self._again.within(NO_DESCRIPTOR_SECONDS)

    def _resume(self) -> None:
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
        except (OSError, asyncio.TimeoutError) as error:  # ssl.SSLError is an OSError.
            accepted.close()
            self._refused(peer, error)

    def _refused(self, peer: str, error: BaseException) -> None:
        why = refusal_of(error)
        self._count_failure(why)
        now = self._loop.time()
        if now - self._logged_at >= LOG_SECONDS:
            self._logged_at = now
            log.info('tls.refused peer=%s why=%s reason="%s"', peer, why, error)
