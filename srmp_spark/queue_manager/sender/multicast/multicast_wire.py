"""One PGM session of this queue manager: the source engine with its sockets.

[MC-MQSRM] 3.1.7.9 requires it: "MUST establish a PGM connection".

Theory of operation. An express message is finished when all its packets were sent for the first
time, because receivers do not answer. Until then the message is in the outbox. So after a kill the
message is sent again under the same identifier, by which receivers recognize a repeat. Sent packets
can be repaired as long as the session lives. The session ends with OPT_FIN, after TXW_SECS without
a message or when the process ends.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from srmp_spark.errors import LocalProtocolError
from srmp_spark.names import MulticastAddress
from srmp_spark.pgm.outputs import Multicast
from srmp_spark.pgm.sending.source import PgmSource
from srmp_spark.pgm.sending.source_states import PgmSourceState
from srmp_spark.pgm.wire.addresses import Tsi, nla_of
from srmp_spark.pgm.wire.limits import APDU_SENT_MAX
from srmp_spark.pgm.wire.packets import Packet
from srmp_spark.queue_manager.multicast.interfaces import Interface, find_interface
from srmp_spark.queue_manager.multicast.settings import PgmSettings
from srmp_spark.queue_manager.multicast.sockets import UPSTREAM, Inlet, Outlet, tpdu_of
from srmp_spark.srmp.codec.apdu import apdu_of
from srmp_spark.srmp.sending.outgoing_effects import QueueKey, Send

RETRY_SECONDS = 0.5
"""Pause before packets that the kernel refused are tried again, in seconds.

The kernel refuses packets if there is no route or no link. These packets and all packets after them
wait.
"""


COUNTED = ("odata", "rdata", "spm", "nak", "ncf")
"""Kinds of packets whose numbers ``status`` shows: sent packets, and received NAKs."""


class MulticastWire:
    """Sends the messages of one multicast address in one PGM session.

    Times (``…_at``, ``now``) are in seconds of the monotonic clock.
    """

    def __init__(
        self,
        key: QueueKey,
        address: MulticastAddress,
        settings: PgmSettings,
        tsi: Tsi,
        *,
        on_left: Callable[[Send], object],
        on_trouble: Callable[[QueueKey, str | None], object],
    ) -> None:
        """Open the sockets of the session.

        ``tsi`` identifies the session on the network. ``on_left`` is called for a message when all
        its packets were sent. ``on_trouble`` is called with the reason why nothing can be sent, or
        ``None`` when sending works again. Raises :class:`ConfigurationError` if the sockets cannot
        be opened or the interface does not exist.
        """
        self.key = key
        self._address = address
        self._on_left = on_left
        self._on_trouble = on_trouble
        self._encapsulation = settings.encapsulation
        self.interface = interface = find_interface(settings.interface)
        self.outlet = Outlet(
            settings.encapsulation, interface, address.group, settings.ttl, is_source=True
        )
        try:
            self.inlet = Inlet.of_group(
                settings.encapsulation, interface, address.group, only=UPSTREAM
            )
            """Socket that receives the NAKs that receivers multicast."""
        except BaseException:
            self.outlet.close()
            raise
        chosen = settings.source
        now = time.monotonic()
        self.source = PgmSource(
            tsi,
            address.port,
            source=nla_of(interface.address),
            group=nla_of(address.group),
            now=now,
            settings=replace(
                chosen, tpdu_max=tpdu_of(chosen.tpdu_max, settings.encapsulation, interface)
            ),
        )
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._sends: deque[Send] = deque()
        """Messages given to the PGM source whose packets were not all sent yet, in order."""
        self._trouble: str | None = None
        self.used_at = self.asked_at = now
        """Time of the last message; ``asked_at`` is the time of the last NAK or SPMR."""
        self._idle_after = chosen.txw_secs

    def __repr__(self) -> str:
        return f"<MulticastWire {self.key.destination} {self.source!r}>"

    @property
    def is_open(self) -> bool:
        """Return whether the session accepts messages: its end has not begun."""
        return self.source.state is PgmSourceState.OPEN

    @property
    def is_over(self) -> bool:
        """Return whether the session has ended and sends nothing any longer."""
        return self.source.state is PgmSourceState.CLOSED

    def reopen(self, interface: Interface) -> None:
        """Continue on ``interface``, which has the same address as the old interface.

        The caller must read :attr:`inlet` and that of :attr:`outlet`, which are new objects then.
        Raises :class:`ConfigurationError` if the sockets cannot be opened; then nothing has
        changed.
        """
        inlet = Inlet.of_group(self._encapsulation, interface, self._address.group, only=UPSTREAM)
        try:
            self.outlet.reopen(interface)
        except BaseException:
            inlet.close()
            raise
        self.inlet.close()
        self.inlet, self.interface = inlet, interface
        self._soon()

    def post(self, send: Send) -> None:
        """Give a message to the source, which sends it in a later turn of the loop.

        Raises :class:`LocalProtocolError` if the message cannot be encoded, or has more than
        APDU_SENT_MAX bytes.
        """
        apdu = apdu_of(send.message, self._address)
        if len(apdu) > APDU_SENT_MAX:
            raise LocalProtocolError(
                f"the message has {len(apdu)} octets, a multicast one at most "
                f"{APDU_SENT_MAX} (2.1.3.1)"
            )
        self.source.send(apdu)
        self._sends.append(send)
        self.used_at = time.monotonic()
        self._soon()

    def receive_request(self, packet: Packet) -> None:
        """Handle a NAK (request for a repair) or SPMR (request for an SPM) for this session."""
        now = time.monotonic()
        self.asked_at = now
        self._multicast(self.source.receive(packet, now))
        self._soon()

    def end(self) -> None:
        """Begin to end the session: accept no more messages, and announce the end with OPT_FIN.

        Requested repairs continue.
        """
        if self.is_open:
            self.source.close(time.monotonic())
            self._soon()

    def withdraw(self) -> list[Send]:
        """Begin to end the session, and return the messages that were not sent completely.

        A message whose sending has begun is still sent completely; later messages are not sent.
        """
        self.end()
        unsent = list(self._sends)
        self._sends.clear()
        return unsent

    def take_back(self) -> list[Send]:
        """Close the sockets at once, and return the messages that were not sent completely."""
        if self._timer is not None:
            self._timer.cancel()
        self.outlet.close()
        self.inlet.close()
        unsent = list(self._sends)
        self._sends.clear()
        return unsent

    def status(self) -> dict[str, Any]:
        """Return the session as ``status.outgoing`` shows it (INTERFACE.md section 3)."""
        source = self.source
        return {
            "address": str(self._address),
            "tsi": str(source.tsi),
            "state": source.state.name.lower(),
            "window_packets": len(source.window),
            "window_bytes": source.window.octets,
            "waiting": source.waiting,
            "pending_repairs": len(source.repairs),
            "packets": {what: source.counts[what] for what in COUNTED},
        }

    # --- the loop ---------------------------------------------------------------------------------

    def _soon(self) -> None:
        """Let :meth:`_poll` run at the end of this turn of the loop.

        A direct call would recurse, because the callback of one message posts the next one.
        """
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_soon(self._poll)

    def _poll(self) -> None:
        self._timer = None
        now = time.monotonic()
        if self.outlet.flush():
            self._multicast(self.source.poll(now))
        if self.outlet.error != self._trouble:
            self._trouble = self.outlet.error
            self._on_trouble(self.key, self._trouble)
        if self.outlet.is_blocked:
            self._timer = self._loop.call_later(RETRY_SECONDS, self._poll)
            return
        is_idle = (
            not self._sends
            and not len(self.source.window)
            and now >= self.used_at + self._idle_after
        )
        if is_idle and self.is_open:
            self.source.close(now)
        when = self.source.next_timer()
        if when is not None:
            self._timer = self._loop.call_later(max(0.0, when - now), self._poll)
        while len(self._sends) > self.source.waiting:
            self._on_left(self._sends.popleft())

    def _multicast(self, packets: list[Multicast]) -> None:
        """Send packets in order.

        Packets with the Router Alert option are sent by a socket of their own. A packet that the
        kernel refuses waits in the outlet.
        """
        at = 0
        while at < len(packets):
            end, alert = at + 1, packets[at].router_alert
            while end < len(packets) and packets[end].router_alert is alert:
                end += 1
            self.outlet.multicast([each.packet for each in packets[at:end]], router_alert=alert)
            at = end
