"""Simulated destinations, and the connections to them.

A peer takes messages as [MC-MQSRM] has it: a message outside a stream when it arrives, a stream message when it is the next one
or ``<previous>`` allows the gap, with a stream receipt half a second later. What it does beside that is its :class:`Manner`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from srmp_spark.message import Message
from srmp_spark.srmp.sending.outgoing_effects import Send

RECEIPT_S = 0.5
"""[MC-MQSRM] 3.1.6.3: a stream receipt waits this long after a message."""
BODY_BYTES = 100


@dataclass(slots=True)
class Manner:
    """How a destination behaves. Every field has the value of a good one."""

    latency_s: float = 0.01
    """From here to there."""
    answer_s: float = 0.02
    """From the last byte of a request to its answer."""
    bytes_per_s: float = 10e6
    """What its line takes."""
    connects: str = "yes"
    """``yes``; ``refused``: nobody listens there; ``never``: packets are swallowed."""
    answers: bool = True
    """False: it takes everything and says nothing."""
    status: Callable[[str], int] = field(default=lambda row: 200)
    """The answer to each row; only a row that is answered 200 is taken."""


@dataclass(slots=True)
class Peer:
    """One destination: all queues of one address."""

    manner: Manner
    taken: list[tuple[str, float]] = field(default_factory=list)
    """Rows in the order in which they were taken, with the time."""
    seen: dict[str, int] = field(default_factory=dict)
    """How often each row arrived as a whole."""
    refused: set[str] = field(default_factory=set)
    """Rows that were answered 400."""
    ordinal: int = 0
    number: int = 0
    owes_receipt: bool = False


class Net:
    """All peers, by address."""

    def __init__(self, on_receipt: Callable[[Peer, Message], object]) -> None:
        """``on_receipt``: a stream receipt is sent, half a second after this message of a stream."""
        self.peers: dict[str, Peer] = {}
        self.sizes: dict[str, int] = {}
        """Bytes of the rows that do not have :data:`BODY_BYTES`."""
        self._on_receipt = on_receipt
        self._on_the_way: dict[int, Message] = {}
        self._number = 0

    def request(self, send: Send) -> bytes:
        """Return the POST of a message: its head says which, its body is as long as the message's."""
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
        """Connect to a peer; raises :class:`OSError` where nobody listens."""
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
        """Judge a whole request: return the status of the answer and when it begins its way back, or ``None`` for silence."""
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
            return  # a late copy
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
    """Our end of a simulated connection."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, net: Net, peer: Peer, protocol: asyncio.Protocol
    ) -> None:
        super().__init__()
        self._loop, self._net, self._peer, self._protocol = loop, net, peer, protocol
        self._written_at = loop.time()
        """When the line has taken everything."""
        self._closed = False

    @property
    def unsent_bytes(self) -> int:
        """What the line has not taken."""
        return int(max(0.0, self._written_at - self._loop.time()) * self._peer.manner.bytes_per_s)

    def write(self, data: Any) -> None:  # noqa: ANN401  # asyncio's
        """Send one request, as the exchange writes it."""
        manner = self._peer.manner
        self._written_at = max(self._written_at, self._loop.time()) + len(data) / manner.bytes_per_s
        self._loop.call_at(self._written_at + manner.latency_s, self._arrive, bytes(data))

    def _arrive(self, data: bytes) -> None:
        if self._closed:
            return  # the rest of it never left
        found = self._net.arrived(self._peer, data)
        if found is not None:
            status, after = found
            answer = b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % status
            self._loop.call_later(after + self._peer.manner.latency_s, self._deliver, answer)

    def _deliver(self, answer: bytes) -> None:
        if not self._closed:
            self._protocol.data_received(answer)

    def is_closing(self) -> bool:
        """Whether it is closed."""
        return self._closed

    def abort(self) -> None:
        """Close; the exchange hears nothing of it, as it wants."""
        self._closed = True

    close = abort

    def get_write_buffer_size(self) -> int:
        """Nothing is kept here: it is on the line."""
        return 0
