"""From an APDU to the acceptor: a multicast message is judged and stored like one that was POSTed, and nobody is answered.

Whatever would be a 4xx or 5xx is lost here, for no sender hears of it: it is logged, counted in
``srmp_messages_refused_total`` and told as a loss, so there is no gap that nobody knows of.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from srmp_spark.errors import ProcessMustEndError, RemoteProtocolError
from srmp_spark.names import MulticastAddress
from srmp_spark.pgm.addresses import text_of
from srmp_spark.pgm.outputs import Apdu
from srmp_spark.queue_manager.request_head import RequestHead
from srmp_spark.srmp.apdu import post_of

if TYPE_CHECKING:
    from srmp_spark.message import Transport
    from srmp_spark.queue_manager.acceptor import Acceptor
    from srmp_spark.srmp.effects import Ok

PENDING_BYTES_MAX = 8_388_608
"""Of APDUs that wait for their commit: above, nothing is read from the group, and the kernel's buffer and the repairs of PGM
have to do."""


log = logging.getLogger(__name__)


class Refusal(NamedTuple):
    """An APDU that made no row."""

    apdu: Apdu
    status: int
    reason: str
    section: str


class Delivery:
    """One APDU on its way into the log: what a connection is for a POST."""

    __slots__ = ("_inbox", "apdu", "is_over", "peer", "read_at")

    scheme: Transport = "pgm"
    sender_name: str | None = None
    """Nothing in PGM says who sent."""

    def __init__(self, inbox: MulticastInbox, apdu: Apdu) -> None:
        self._inbox = inbox
        self.apdu = apdu
        self.peer = f"{text_of(apdu.session.source)}:{apdu.session.tsi.source_port}"
        self.read_at = time.perf_counter()
        self.is_over = False

    def acknowledge(self, ok: Ok) -> None:
        """It is stored. PGM has no word for it."""
        self._inbox.ended(self)

    def refuse(self, status: int, reason: str, section: str, retry_after: int | None = None) -> None:
        """It is not."""
        self._inbox.ended(self, Refusal(self.apdu, status, reason, section))


class MulticastInbox:
    """What comes to one address."""

    def __init__(self, acceptor: Acceptor, address: MulticastAddress, on_refusal: Callable[[Refusal], object]) -> None:
        self._acceptor = acceptor
        self._address = address
        self._on_refusal = on_refusal
        self.pending_bytes = 0
        self.on_room: Callable[[], object] = lambda: None
        """Called when :attr:`is_full` ends."""

    @property
    def is_full(self) -> bool:
        """Whether reading must wait."""
        return self.pending_bytes > PENDING_BYTES_MAX

    def take(self, apdu: Apdu) -> None:
        """Judge and store. Raises :class:`ProcessMustEndError` when the process is about to end."""
        delivery = Delivery(self, apdu)
        self.pending_bytes += len(apdu.data)
        try:
            content_type, post, head_length = post_of(apdu.data, self._address)
        except RemoteProtocolError as error:
            delivery.refuse(400, "malformed", error.section)
            return
        head = RequestHead()
        head.headers = {b"content-type": content_type}
        try:
            self._acceptor.accept(delivery, head, post, head_length, only_to=self._address)
        except ProcessMustEndError:
            return  # the process ends; nothing may be told of this one
        except Exception as error:  # the last line of defence, as at the SRMP port: our bug must not stop all others
            self._acceptor.faults.note(error, f"multicast message of {len(apdu.data)} bytes")
            if not delivery.is_over:
                delivery.refuse(503, "internal", "srmp-spark")

    def ended(self, delivery: Delivery, refusal: Refusal | None = None) -> None:
        """It is stored, or refused."""
        was_full = self.is_full
        delivery.is_over = True
        self.pending_bytes -= len(delivery.apdu.data)
        if refusal is not None:
            self._on_refusal(refusal)
        if was_full and not self.is_full:
            self.on_room()
