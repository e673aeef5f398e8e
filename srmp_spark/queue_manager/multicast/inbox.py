"""Turn a message that crossed from the gateway into a row, in the main process.

The source is never answered. A message that would get a 4xx or 5xx over HTTP is lost, because its
sender learns nothing of the refusal. The refusal is logged, counted in
``srmp_messages_refused_total`` and recorded as a loss. So no gap is unexplained.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from srmp_spark.errors import ProcessMustEndError, RemoteProtocolError
from srmp_spark.message import Arrival
from srmp_spark.pgm.wire.addresses import SessionKey, text_of
from srmp_spark.queue_manager.admission.faults import REASON as INTERNAL
from srmp_spark.queue_manager.admission.requester import answer
from srmp_spark.queue_manager.multicast.crossing import ApduRefused as GatewayRefused
from srmp_spark.queue_manager.multicast.crossing import MulticastArrived, Settled
from srmp_spark.srmp.receiving.effects import Refused

if TYPE_CHECKING:
    import asyncio

    from srmp_spark.message import Transport
    from srmp_spark.queue_manager.admission.acceptor import Acceptor
    from srmp_spark.queue_manager.admission.admission import Admission
    from srmp_spark.srmp.receiving.effects import Ok

log = logging.getLogger(__name__)


def peer_of(session: SessionKey) -> str:
    """Return ``host:port`` of a session's source: its IP address and its PGM source port."""
    return f"{text_of(session.source)}:{session.tsi.source_port}"


class Settlement:
    """Reports to one gateway how many octets of APDUs no longer wait for their commit.

    The octets are summed, and one message for each group is sent in a turn of the loop.
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
        """Add ``octets`` of a group to the next report, because their message is stored or refused.

        ``group`` is the index of the group.
        """
        if not self._octets:
            self._loop.call_soon(self._tell)
        self._octets[group] = self._octets.get(group, 0) + octets

    def _tell(self) -> None:
        octets, self._octets = self._octets, {}
        for group, count in octets.items():
            self._send(Settled(group, count))


class UndecidedMulticast:
    """One message that crossed from the gateway and is not decided yet (stored or refused).

    For the acceptor (:class:`.Acceptor`) a delivery has the role that a connection has for a POST.
    ``is_over`` is True when the message is decided.
    """

    __slots__ = ("_on_refusal", "_settlement", "arrived", "is_over", "peer", "read_at")

    scheme: Transport = "pgm"
    sender_name: str | None = None
    """Always ``None``, because PGM does not authenticate the sender."""

    def __init__(
        self,
        arrived: MulticastArrived,
        settlement: Settlement,
        on_refusal: Callable[[GatewayRefused], object],
    ) -> None:
        self.arrived = arrived
        self.peer = peer_of(arrived.session)
        self.read_at = time.perf_counter()
        self.is_over = False
        self._settlement = settlement
        self._on_refusal = on_refusal

    def acknowledge(self, ok: Ok) -> None:
        """End the delivery, because the message is stored. PGM has no acknowledgement to send."""
        self._end()

    def refuse(
        self, status: int, reason: str, section: str, retry_after: int | None = None
    ) -> None:
        """End the delivery, and report the message as refused to ``on_refusal``.

        ``status`` is the HTTP status that an SRMP client would get. ``retry_after`` has no effect,
        because the source is never answered.
        """
        self._end()
        arrived = self.arrived
        self._on_refusal(
            GatewayRefused(
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


class MulticastInbox:
    """Judges and stores the messages that cross from the gateway."""

    def __init__(self, admission: Admission, acceptor: Acceptor, utc: Callable[[], int]) -> None:
        """Prepare to judge. ``utc`` returns microseconds since 1970."""
        self._admission = admission
        self._acceptor = acceptor
        self._utc = utc

    def accept(self, delivery: UndecidedMulticast, destination: str) -> None:
        """Judge a message that crossed from the gateway, and store or refuse it.

        ``destination`` is the format name of the group, for the log. An exception that is a bug of
        srmp-spark is logged, and the message is refused with status 503. If the process must end,
        nothing is reported about the message.
        """
        try:
            self._accept(delivery, destination)
        except ProcessMustEndError:
            # The process ends, and nothing may be reported about this message.
            return
        except Exception as error:
            # This is the last line of defence, as at the SRMP port: an internal error must not stop
            # all other messages.
            shape = f"multicast message of {delivery.arrived.octets} bytes"
            self._acceptor.faults.note(error, shape)
            if not delivery.is_over:
                delivery.refuse(503, INTERNAL, "srmp-spark")

    def _accept(self, delivery: UndecidedMulticast, destination: str) -> None:
        if (closed := self._admission.gate.closed) is not None:
            answer(delivery, closed)
            return
        given = delivery.arrived
        try:
            verdict = self._admission.judge(
                delivery, given.message, given.parts, given.post, given.head_length
            )
        except RemoteProtocolError as error:
            verdict = self._admission.malformed(delivery, destination, error)
        if isinstance(verdict, Refused):
            answer(delivery, verdict)
            return
        arrival = Arrival(self._utc(), delivery.scheme, delivery.peer)
        self._acceptor.take(verdict, arrival, given.post, given.head_length, delivery)

    def tell(self, session: SessionKey, destination: str, refused: GatewayRefused) -> None:
        """Log why the gateway refused a message, if it states that."""
        if refused.because is not None:
            peer = peer_of(session)
            self._admission.log.tell(
                refused.status, refused.reason, destination, peer, None, refused.because
            )
