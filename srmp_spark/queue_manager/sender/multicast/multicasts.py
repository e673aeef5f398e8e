"""All PGM sessions of the sender process, by destination.

All sessions share one UDP port, and the kernel gives a packet for this port to any
socket of the sessions. So each received packet is passed to the session that the packet names,
whichever socket received the packet.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from typing import Any, Final

from srmp_spark.errors import ConfigurationError, RemoteProtocolError
from srmp_spark.names import multicast_address
from srmp_spark.pgm.wire.addresses import GSI_LENGTH, Tsi
from srmp_spark.pgm.wire.decoder import decode
from srmp_spark.queue_manager.alarm import Alarm
from srmp_spark.queue_manager.multicast.interfaces import Interface, find_interface
from srmp_spark.queue_manager.multicast.settings import PgmSettings
from srmp_spark.queue_manager.multicast.sockets import UPSTREAM, Inlet
from srmp_spark.queue_manager.posting.http_answer import PeerAnswer
from srmp_spark.queue_manager.sender.multicast.multicast_wire import MulticastWire
from srmp_spark.queue_manager.sender.sending_transport import SendingTransport
from srmp_spark.srmp.sending.outgoing_effects import QueueKey, Send

SESSIONS_MAX = 64
"""Most multicast sessions at one time, including ending sessions.

A message that needs one more session fails and is tried again. Each session has three sockets and a
window: 21 MB of messages at the rate of [MC-MQSRM], never more than ``txw_bytes_max``.
"""
QUIET_SECONDS = 1.0
"""Time without a request for a repair after which a stop closes the sockets, in seconds.

A receiver that misses the last packet receives OPT_FIN twice in this time, and asks for a repair
within 50 ms.
"""
QUIET_SECONDS_MAX = 2.5
"""Longest wait of a stop for QUIET_SECONDS without a request, in seconds.

The main process waits 5 s.
"""
LOOK_SECONDS = 1.0
"""Interval of the check for ended sessions and a new interface, in seconds."""

_TYPE_AT: Final = 4
_LEFT = PeerAnswer(200, "", None)
"""The answer that is reported for a message that was sent completely.

Multicast has no answers, so sending counts as success.
"""
NO_PGM = (
    "PGM is not spoken here: start serve with --pgm raw (what Windows speaks) or --pgm udp:PORT"
)

log = logging.getLogger(__name__)


class Multicasts(SendingTransport):
    """Sends multicast messages: all PGM sessions of one sender process."""

    def __init__(
        self,
        settings: PgmSettings | None,
        identity: str,
        *,
        on_answer: Callable[[Send, PeerAnswer], object],
        on_failure: Callable[[Send, str, bool], object],
        on_trouble: Callable[[QueueKey, str | None], object],
    ) -> None:
        """Prepare the sessions; without ``settings`` there is no multicast.

        ``identity`` is the GUID of this queue manager. The callbacks are those of
        :class:`.Connections`.
        """
        self._settings = settings
        self._gsi = bytes.fromhex(identity.replace("-", ""))[:GSI_LENGTH]
        self._on_answer = on_answer
        self._on_failure = on_failure
        self._on_trouble = on_trouble
        self._loop = asyncio.get_running_loop()
        self._open: dict[QueueKey, MulticastWire] = {}
        self._sessions: dict[Tsi, MulticastWire] = {}
        """All sessions, including those that are ending."""
        self._looker = Alarm(self._loop, self._look)

    def __repr__(self) -> str:
        return f"<Multicasts open={len(self._open)} sessions={len(self._sessions)}>"

    def post(self, send: Send) -> None:
        """Send a message, in a new session if its destination has none.

        The end of the message is reported once, later: by ``on_answer`` when it was sent
        completely, or by ``on_failure``. Raises :class:`LocalProtocolError` for a message that
        cannot be encoded, or is too large for multicast.
        """
        wire = self._open.get(send.key)
        if wire is None or not wire.is_open:
            try:
                wire = self._begin(send.key)
            except (ConfigurationError, ValueError) as error:
                self._loop.call_soon(self._on_failure, send, str(error), False)
                return
        wire.post(send)

    def _begin(self, key: QueueKey) -> MulticastWire:
        address = multicast_address(key.destination)
        if self._settings is None or address is None:
            raise ConfigurationError(NO_PGM)
        if len(self._sessions) >= SESSIONS_MAX:
            raise ConfigurationError(
                f"there are SESSIONS_MAX = {SESSIONS_MAX} multicast sessions already; a "
                "session ends 10 minutes after its last message"
            )
        ports = {tsi.source_port for tsi in self._sessions}
        port = next(
            each for each in iter(lambda: 1 + secrets.randbelow(65_535), 0) if each not in ports
        )
        tsi = Tsi(self._gsi, port)
        wire = MulticastWire(
            key, address, self._settings, tsi, on_left=self._left, on_trouble=self._on_trouble
        )
        self._open[key] = self._sessions[tsi] = wire
        for inlet in (wire.outlet.inlet, wire.inlet):
            self._loop.add_reader(inlet.fileno(), self._read, inlet)
        self._looker.within(LOOK_SECONDS)
        log.info("pgm.session_begins destination=%s tsi=%s", key.destination, tsi)
        return wire

    def _left(self, send: Send) -> None:
        self._on_answer(send, _LEFT)

    def _read(self, inlet: Inlet) -> None:
        for octets, _ in inlet.read():
            if len(octets) <= _TYPE_AT or octets[_TYPE_AT] not in UPSTREAM:
                # These are data packets of this process. The group returns them where the kernel
                # cannot filter.
                continue
            try:
                packet = decode(octets)
            except RemoteProtocolError as error:
                log.debug("pgm.malformed %s", error)
                continue
            wire = self._sessions.get(packet.tsi)
            if wire is not None:
                wire.receive_request(packet)

    def _look(self) -> None:
        """Forget sessions that have ended, and reopen sockets if the interface was created again.

        This runs each LOOK_SECONDS while there are sessions.
        """
        self._follow_interface()
        for tsi, wire in list(self._sessions.items()):
            if wire.is_over:
                self._close(tsi, wire)
        if self._sessions:
            self._looker.within(LOOK_SECONDS)

    def _follow_interface(self) -> None:
        """Reopen the sockets if the interface was created again.

        The kernel has forgotten the interface that the old sockets were bound to. While there is no
        interface, packets wait. An interface with another address is another source. Then the
        session ends, and the messages of the session are sent in a new session.
        """
        if self._settings is None or not self._sessions:
            return
        try:
            found = find_interface(self._settings.interface)
        except ConfigurationError:
            # Sending fails meanwhile, and the destination's status shows why.
            return
        for tsi, wire in list(self._sessions.items()):
            if wire.interface.address != found.address:
                for send in self._close(tsi, wire):
                    self._on_failure(send, f"the address of {found.name} has changed", True)
            elif wire.interface.number != found.number:
                self._reopen(wire, found)

    def _reopen(self, wire: MulticastWire, interface: Interface) -> None:
        old = (wire.outlet.inlet, wire.inlet)
        for inlet in old:
            self._loop.remove_reader(inlet.fileno())
        try:
            wire.reopen(interface)
        except ConfigurationError as error:
            log.info('pgm.not_reopened destination=%s reason="%s"', wire.key.destination, error)
        else:
            log.warning(
                'pgm.sends_again destination=%s because="the interface was made anew"',
                wire.key.destination,
            )
        for inlet in (wire.outlet.inlet, wire.inlet):
            self._loop.add_reader(inlet.fileno(), self._read, inlet)

    def _close(self, tsi: Tsi, wire: MulticastWire) -> list[Send]:
        for inlet in (wire.outlet.inlet, wire.inlet):
            self._loop.remove_reader(inlet.fileno())
        del self._sessions[tsi]
        if self._open.get(wire.key) is wire:
            del self._open[wire.key]
        log.info("pgm.session_over destination=%s tsi=%s", wire.key.destination, tsi)
        return wire.take_back()

    def close(self, key: QueueKey) -> None:
        """Begin to end the session of an outgoing queue.

        Messages that were not sent completely are reported as failed. Repairs of sent messages
        continue.
        """
        wire = self._open.pop(key, None)
        if wire is not None:
            for send in wire.withdraw():
                self._on_failure(send, "we closed the session", True)

    forget = close
    """End the session of a queue that no longer exists, in the same way as :meth:`close`."""

    def status(self, key: QueueKey) -> dict[str, Any] | None:
        """Return the status of a destination's session, or ``None`` if it has none."""
        wire = self._open.get(key)
        return None if wire is None else wire.status()

    async def stop(self) -> None:
        """Announce the end of all sessions, close their sockets, and report nothing.

        The sockets are closed after QUIET_SECONDS without a request for a repair, or after
        QUIET_SECONDS_MAX. Repairs that are requested before are still sent.
        """
        began = time.monotonic()
        wires = list(self._sessions.values())
        for wire in wires:
            wire.end()
        while wires and time.monotonic() - began < QUIET_SECONDS_MAX:
            if time.monotonic() - max(began, *(wire.asked_at for wire in wires)) > QUIET_SECONDS:
                break
            await asyncio.sleep(0.02)
        self._looker.stop()
        for tsi, wire in list(self._sessions.items()):
            self._close(tsi, wire)
