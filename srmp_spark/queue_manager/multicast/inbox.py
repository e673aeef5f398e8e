"""Turn a message that crossed from the gateway into a row, in the main process.

The source is never answered. A message that would get a 4xx or 5xx over HTTP is lost here, because
its sender learns nothing of the refusal. The refusal is logged, counted in
``srmp_messages_refused_total`` and recorded as a loss. So no gap is unexplained.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from srmp_spark.errors import ProcessMustEndError
from srmp_spark.pgm.wire.addresses import SessionKey, text_of
from srmp_spark.queue_manager.multicast.crossing import Arrived, Refused, Settled
from srmp_spark.queue_manager.srmp_port.faults import REASON as INTERNAL

if TYPE_CHECKING:
    import asyncio

    from srmp_spark.message import Transport
    from srmp_spark.queue_manager.srmp_port.acceptor import Acceptor
    from srmp_spark.srmp.receiving.effects import Ok

log = logging.getLogger(__name__)


def peer_of(session: SessionKey) -> str:
    """Return ``host:port`` of a source: its address and its PGM source port."""
    return f"{text_of(session.source)}:{session.tsi.source_port}"


class Settlement:
    """Reports to one gateway process the octets that no longer wait for their commit.

    The octets are summed, and sent once in a turn of the loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, send: Callable[[Settled], object]) -> None:
        """Prepare to report by ``send``, which sends to one gateway.

        Settled octets of a gateway that has ended are dropped with that gateway.
        """
        self._loop = loop
        self._send = send
        self._octets: dict[int, int] = {}
        """Settled octets by group that were not reported yet."""

    def settle(self, group: int, octets: int) -> None:
        """Note that ``octets`` of a group are stored or refused."""
        if not self._octets:
            self._loop.call_soon(self._tell)
        self._octets[group] = self._octets.get(group, 0) + octets

    def _tell(self) -> None:
        octets, self._octets = self._octets, {}
        for group, count in octets.items():
            self._send(Settled(group, count))


class Delivery:
    """One message on the way from the gateway into the log.

    For the acceptor a delivery has the role that a connection has for a POST.
    """

    __slots__ = ("_on_refusal", "_settlement", "arrived", "is_over", "peer", "read_at")

    scheme: Transport = "pgm"
    sender_name: str | None = None
    """Always ``None``, because PGM does not authenticate the sender."""

    def __init__(
        self, arrived: Arrived, settlement: Settlement, on_refusal: Callable[[Refused], object]
    ) -> None:
        self.arrived = arrived
        self.peer = peer_of(arrived.session)
        self.read_at = time.perf_counter()
        self.is_over = False
        self._settlement = settlement
        self._on_refusal = on_refusal

    def acknowledge(self, ok: Ok) -> None:
        """End the delivery: the message is stored. PGM has no acknowledgement to send."""
        self._end()

    def refuse(
        self, status: int, reason: str, section: str, retry_after: int | None = None
    ) -> None:
        """End the delivery and report the message as refused."""
        self._end()
        arrived = self.arrived
        self._on_refusal(
            Refused(
                arrived.group,
                arrived.session,
                arrived.first,
                arrived.last,
                status,
                reason,
                section,
                None,
            )
        )

    def _end(self) -> None:
        self.is_over = True
        self._settlement.settle(self.arrived.group, self.arrived.octets)


def accept(acceptor: Acceptor, delivery: Delivery, destination: str) -> None:
    """Judge and store a message that crossed.

    ``destination`` is the format name of the group, for the log. An exception that is our own bug
    is logged, and the message is refused with status 503.
    """
    arrived = delivery.arrived
    try:
        acceptor.accept_decoded(
            delivery, arrived.message, arrived.parts, arrived.post, arrived.head_length, destination
        )
    except ProcessMustEndError:
        # The process ends, and nothing may be reported about this message.
        return
    except Exception as error:
        # This is the last line of defence, as at the SRMP port: a bug of ours must not stop all
        # other messages.
        acceptor.faults.note(error, f"multicast message of {arrived.octets} bytes")
        if not delivery.is_over:
            delivery.refuse(503, INTERNAL, "srmp-spark")
