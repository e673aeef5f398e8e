"""From a message that crossed to a row, in the main process: nobody is answered.

Whatever would be a 4xx or 5xx is lost here, for no sender hears of it: it is logged, counted in
``srmp_messages_refused_total`` and told as a loss, so there is no gap that nobody knows of.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from srmp_spark.errors import ProcessMustEndError
from srmp_spark.pgm.addresses import SessionKey, text_of
from srmp_spark.queue_manager.faults import REASON as INTERNAL
from srmp_spark.queue_manager.multicast.crossing import Arrived, Refused, Settled

if TYPE_CHECKING:
    import asyncio

    from srmp_spark.message import Transport
    from srmp_spark.queue_manager.acceptor import Acceptor
    from srmp_spark.srmp.effects import Ok

log = logging.getLogger(__name__)


def peer_of(session: SessionKey) -> str:
    """Return ``host:port`` of a source: its address and its PGM source port."""
    return f"{text_of(session.source)}:{session.tsi.source_port}"


class Settlement:
    """Tells one gateway process what no longer waits for its commit, once in a turn of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, send: Callable[[Settled], object]) -> None:
        """``send`` speaks to that gateway; what is settled for one that is gone is dropped with it."""
        self._loop = loop
        self._send = send
        self._octets: dict[int, int] = {}
        """Of each group, not told yet."""

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
    """One message on its way into the log: what a connection is for a POST."""

    __slots__ = ("_on_refusal", "_settlement", "arrived", "is_over", "peer", "read_at")

    scheme: Transport = "pgm"
    sender_name: str | None = None
    """Nothing in PGM says who sent."""

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
        """It is stored. PGM has no word for it."""
        self._end()

    def refuse(
        self, status: int, reason: str, section: str, retry_after: int | None = None
    ) -> None:
        """It is not."""
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
    """Judge and store a message that crossed; ``destination`` is the group's format name, for the log."""
    arrived = delivery.arrived
    try:
        acceptor.accept_decoded(
            delivery, arrived.message, arrived.parts, arrived.post, arrived.head_length, destination
        )
    except ProcessMustEndError:
        return  # the process ends; nothing may be told of this one
    except (
        Exception
    ) as error:  # the last line of defence, as at the SRMP port: our bug must not stop all others
        acceptor.faults.note(error, f"multicast message of {arrived.octets} bytes")
        if not delivery.is_over:
            delivery.refuse(503, INTERNAL, "srmp-spark")
