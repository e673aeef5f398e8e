"""Simulated destinations, and the connections to them.

A peer accepts messages as [MC-MQSRM] describes. A message outside a stream is accepted when it
arrives. A stream message is accepted if it is the next one or if ``<previous>`` allows the gap, and
a stream receipt follows half a second later. All other behaviour is set by the peer's
:class:`Manner`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from srmp_spark.message import Message
from srmp_spark.srmp.sending.outgoing_effects import Send

RECEIPT_S = 0.5
"""Seconds after a stream message until its receipt is sent ([MC-MQSRM] 3.1.6.3)."""
BODY_BYTES = 100


@dataclass(slots=True)
class Manner:
    """How a destination behaves. The defaults are those of a good destination."""

    latency_s: float = 0.01
    """Seconds from the sender to the destination, one way."""
    answer_s: float = 0.02
    """Seconds from the last byte of a request to its answer."""
    bytes_per_s: float = 10e6
    """Bytes a second that the line transfers."""
    connects: str = "yes"
    """``yes``: connects. ``refused``: no process listens. ``never``: packets are swallowed."""
    answers: bool = True
    """Whether the destination answers. Otherwise it reads everything and never answers."""
    status: Callable[[str], int] = field(default=lambda row: 200)
    """Returns the status of the answer to a row. Only a row that is answered 200 is accepted."""


@dataclass(slots=True)
class Peer:
    """One destination: all queues of one address.

    ``ordinal`` and ``number`` are the stream and the position that were accepted last.
    """

    manner: Manner
    taken: list[tuple[str, float]] = field(default_factory=list)
    """Accepted rows and their times, in the order of acceptance."""
    seen: dict[str, int] = field(default_factory=dict)
    """Row → how many times the row arrived as a whole."""
    refused: set[str] = field(default_factory=set)
    """Rows that were answered 400."""
    ordinal: int = 0
    number: int = 0
    owes_receipt: bool = False


class Net:
    """The network: all peers by address, and the messages in flight."""

    def __init__(self, on_receipt: Callable[[Peer, Message], object]) -> None:
        """Create a network without peers.

        ``on_receipt`` is called with a peer and a stream message when the peer sends its receipt,
        half a second after the message.
        """
        self.peers: dict[str, Peer] = {}
        self.sizes: dict[str, int] = {}
        """Row → size in bytes, for rows whose size is not :data:`BODY_BYTES`."""
        self._on_receipt = on_receipt
        self._on_the_way: dict[int, Message] = {}
        self._number = 0

    def request(self, send: Send) -> bytes:
        """Return the bytes of the POST that carries the message of ``send``.

        Its head names the message by a number, for :meth:`arrived`. The body has only its size.
        """
        self._number += 1
        self._on_the_way[self._number] = send.message
        body = bytes(self.sizes.get(send.message.body.decode(), BODY_BYTES))
        return b"POST / HTTP/1.1\r\nX-Row: %d\r\nContent-Length: %d\r\n\r\n%b" % (
            self._number,
            len(body),
            body,
        )

    async def connect(
        self, protocol_factory: Callable[[], asyncio.Protocol], address: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Connect to the peer at ``address``, and return the transport and the protocol.

        Raises :class:`OSError` if no process listens there. Waits forever if packets are swallowed.
        """
        peer = self.peers[address]
        loop = asyncio.get_running_loop()
        if peer.manner.connects == "never":
            await loop.create_future()
        await asyncio.sleep(2 * peer.manner.latency_s)
        if peer.manner.connects == "refused":
            raise ConnectionRefusedError(f"{address}:{port} refuses")
        protocol = protocol_factory()
        transport = SimTransport(loop, self, peer, protocol)
        protocol.connection_made(transport)
        return transport, protocol

    def arrived(self, peer: Peer, data: bytes) -> tuple[int, float] | None:
        """Handle a complete request ``data`` that arrives at a peer.

        Return the status of the answer and the seconds until it is sent, or ``None`` for no answer.
        """
        number = int(data.partition(b"X-Row: ")[2].partition(b"\r\n")[0])
        message = self._on_the_way.pop(number)
        row = message.body.decode()
        peer.seen[row] = peer.seen.get(row, 0) + 1
        if not peer.manner.answers:
            return None
        status = peer.manner.status(row)
        if status == 200:
            self._take(peer, message, row)
        elif status == 400:
            peer.refused.add(row)
        return status, peer.manner.answer_s

    def _take(self, peer: Peer, message: Message, row: str) -> None:
        loop = asyncio.get_running_loop()
        place = message.stream
        if place is None:
            peer.taken.append((row, loop.time()))
            return
        if place.id.ordinal > peer.ordinal and place.start:
            peer.ordinal, peer.number = place.id.ordinal, 0
        if place.id.ordinal != peer.ordinal:
            # The message is a late copy of an earlier stream.
            return
        if not peer.owes_receipt:
            peer.owes_receipt = True
            loop.call_later(RECEIPT_S, self._receipt, peer, message)
        if place.current > peer.number and place.previous <= peer.number:
            peer.number = place.current
            peer.taken.append((row, loop.time()))

    def _receipt(self, peer: Peer, message: Message) -> None:
        peer.owes_receipt = False
        self._on_receipt(peer, message)


class SimTransport(asyncio.Transport):
    """The sender's end of a simulated connection.

    The line transfers bytes at the speed of the peer, and keeps all bytes that wait.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, net: Net, peer: Peer, protocol: asyncio.Protocol
    ) -> None:
        super().__init__()
        self._loop, self._net, self._peer, self._protocol = loop, net, peer, protocol
        self._written_at = loop.time()
        """Time at which the line will have transferred everything that was written."""
        self._closed = False

    @property
    def unsent_bytes(self) -> int:
        """Return the number of bytes that the line has not transferred."""
        return int(max(0.0, self._written_at - self._loop.time()) * self._peer.manner.bytes_per_s)

    def write(self, data: Any) -> None:  # noqa: ANN401  # asyncio's
        """Send one complete request, which arrives when the line has transferred it."""
        manner = self._peer.manner
        self._written_at = max(self._written_at, self._loop.time()) + len(data) / manner.bytes_per_s
        self._loop.call_at(self._written_at + manner.latency_s, self._arrive, bytes(data))

    def _arrive(self, data: bytes) -> None:
        if self._closed:
            # The connection was closed before the whole request was transferred.
            return
        found = self._net.arrived(self._peer, data)
        if found is not None:
            status, after = found
            answer = b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % status
            self._loop.call_later(after + self._peer.manner.latency_s, self._deliver, answer)

    def _deliver(self, answer: bytes) -> None:
        if not self._closed:
            self._protocol.data_received(answer)

    def is_closing(self) -> bool:
        """Return whether the connection is closed."""
        return self._closed

    def abort(self) -> None:
        """Close the connection. The protocol is not notified, because it expects no call."""
        self._closed = True

    close = abort

    def get_write_buffer_size(self) -> int:
        """Return 0, because the simulated line holds all bytes."""
        return 0
