"""Queues that listen to a multicast address: sockets, the receiving engine, the inbox (DESIGN: "PGM listeners").

Theory of operation, per address. The loop says that packets are there; up to READ_MAX datagrams are read, decoded and given to
the engine; what comes out of it is sent, stored or told, in order. One timer does what the engine wants later. All of it is in
the main process: MSMQ's own limit is 50 packets a second, and a pack of 64 costs the loop about a millisecond. While
PENDING_BYTES_MAX wait for their commit nothing is read and nothing asked for.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from random import SystemRandom
from typing import TYPE_CHECKING, Any, NamedTuple

from srmp_spark.errors import ConfigurationError, RemoteProtocolError
from srmp_spark.names import MulticastAddress
from srmp_spark.pgm.addresses import SessionKey, nla_of, text_of
from srmp_spark.pgm.decoder import decode
from srmp_spark.pgm.outputs import (
    Apdu,
    DataLost,
    Multicast,
    Output,
    SessionEnded,
    SessionOpened,
    SourceRefused,
    Unicast,
)
from srmp_spark.pgm.receiver import Receiver
from srmp_spark.pgm.token_bucket import TokenBucket
from srmp_spark.queue_manager.multicast.inbox import MulticastInbox, Refusal
from srmp_spark.queue_manager.multicast.interfaces import Interface, InterfaceWatch, find_interface
from srmp_spark.queue_manager.multicast.settings import PgmSettings
from srmp_spark.queue_manager.multicast.sockets import READ_FIRST_SECONDS, Inlet, Outlet

if TYPE_CHECKING:
    from srmp_spark.queue_manager.acceptor import Acceptor
    from srmp_spark.queue_manager.multicast.losses import Losses

NAK_TTL = 1
"""RFC 3208 6.3: what receivers multicast stays in their network."""
LINES_PER_SECOND = 20.0
"""About sessions in the log. Losses have a limit of their own (:mod:`.losses`)."""
REFUSED_SECONDS = 60.0
"""One warning in this time for all sources that find no room: 64 bits of TSI make as many as somebody likes."""
INTERFACE_SECONDS = 2.0
"""How often it is looked whether the interface is still the one whose group was joined."""
_ANY_GROUP = "224.0.0.1"
REFUSED = "refused"
"""Reason of a message that came whole and was not taken; ``detail`` says why."""

log = logging.getLogger(__name__)


class GroupSockets(NamedTuple):
    """What a listener needs of the system. Opened before the loop runs, so that a wrong flag ends the start."""

    address: MulticastAddress
    interface: Interface
    inlet: Inlet
    outlet: Outlet

    def close(self) -> None:
        """Leave the group."""
        self.inlet.close()
        self.outlet.close()


def check_multicast(settings: PgmSettings) -> None:
    """Whether this process may speak PGM as it was told. Raises :class:`ConfigurationError`."""
    interface = find_interface(settings.interface)
    Outlet(settings.encapsulation, interface, _ANY_GROUP, settings.ttl, is_source=True).close()


def open_groups(settings: PgmSettings, addresses: Iterable[MulticastAddress]) -> list[GroupSockets]:
    """Join every group. Raises :class:`ConfigurationError`, and has joined none then."""
    interface = find_interface(settings.interface)
    opened: list[GroupSockets] = []
    try:
        for address in addresses:
            outlet = Outlet(settings.encapsulation, interface, address.group, NAK_TTL, is_source=False)
            try:
                inlet = Inlet.of_group(settings.encapsulation, interface, address.group)
            except BaseException:
                outlet.close()
                raise
            opened.append(GroupSockets(address, interface, inlet, outlet))
    except BaseException:
        for each in opened:
            each.close()
        raise
    return opened


class Listener:
    """One address and the queue that it is for."""

    def __init__(
        self, queue: str, sockets: GroupSockets, settings: PgmSettings, acceptor: Acceptor, losses: Losses,
        count_refusal: Callable[[int, str], object],
    ) -> None:  # fmt: skip
        self.queue = queue
        self.sockets = sockets
        self.counts: Counter[str] = Counter()
        """Packets that no session counts."""
        self._losses = losses
        self._count_refusal = count_refusal
        self._inbox = MulticastInbox(acceptor, sockets.address, self._refused)
        self._inbox.on_room = self._read_again
        address = sockets.address
        self.engine = Receiver(address.port, nla_of(address.group), SystemRandom().uniform, settings.receiver)
        self._settings = settings
        self.watch = InterfaceWatch(settings.interface, sockets.interface)
        self._watcher: asyncio.TimerHandle | None = None
        self._deaf_because: str | None = None
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._is_reading = False
        self._lines = TokenBucket(LINES_PER_SECOND, LINES_PER_SECOND, time.monotonic())
        self._refusals = 0
        """Packets of sources that were refused since that was told."""
        self._refusals_told_at = -REFUSED_SECONDS

    def __repr__(self) -> str:
        return f"<Listener {self.queue} on {self.sockets.address} sessions={len(self.engine)}>"

    def start(self) -> None:
        """Begin to hear."""
        self._is_reading = True
        self._loop.add_reader(self.sockets.inlet.fileno(), self._readable)
        self._watcher = self._loop.call_later(INTERFACE_SECONDS, self._watch)
        log.info(
            "pgm.listening queue=%s address=%s interface=%s", self.queue, self.sockets.address, self.sockets.interface.name
        )

    def stop(self) -> None:
        """Leave the group; sessions that are open are not told as lost, for the next start may hear them again."""
        self._hold()
        for timer in (self._timer, self._watcher):
            if timer is not None:
                timer.cancel()
        self.sockets.close()

    @property
    def deaf_because(self) -> str | None:
        """Why nothing can be heard now."""
        return self._deaf_because

    def _watch(self) -> None:
        """Join the group again where the interface was made anew: the kernel has forgotten what the old one had joined."""
        self._watcher = self._loop.call_later(INTERFACE_SECONDS, self._watch)
        found = self.watch.look()
        why = self.watch.why_gone
        if found is not None:
            try:
                (fresh,) = open_groups(self._settings, (self.sockets.address,))
            except ConfigurationError as error:
                why = str(error)
            else:
                self._hear_by(fresh)
        if why is not None and self._deaf_because is None:
            log.warning('pgm.deaf queue=%s address=%s reason="%s"', self.queue, self.sockets.address, why)
        self._deaf_because = why

    def _hear_by(self, fresh: GroupSockets) -> None:
        """Sessions go on: what they missed meanwhile is asked for, and told as lost if it is in no window any more."""
        was_reading = self._is_reading
        self._hold()
        self.sockets.close()
        self.sockets = fresh
        self.watch.uses(fresh.interface)
        if was_reading:
            self._read_again()
        log.warning(
            'pgm.joined_again queue=%s address=%s interface=%s because="the interface was made anew"',
            self.queue, fresh.address, fresh.interface.name,
        )  # fmt: skip

    def _hold(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self.sockets.inlet.fileno())

    def _read_again(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self._loop.add_reader(self.sockets.inlet.fileno(), self._readable)
            self._arm(time.monotonic())

    # --- packets --------------------------------------------------------------------------------------------------------

    def _readable(self) -> None:
        now = time.monotonic()
        self._take_what_came(now)
        self._arm(now)

    def _take_what_came(self, now: float) -> None:
        for octets, source in self.sockets.inlet.read():
            try:
                packet = decode(octets)
            except RemoteProtocolError as error:
                self.counts["malformed"] += 1
                log.debug("pgm.malformed queue=%s source=%s: %s", self.queue, text_of(source), error)
                continue
            try:
                self._do(self.engine.receive(packet, source, now))
            except Exception:  # the last line of defence, as at the SRMP port: our bug must not stop what came with it
                self.counts["internal error"] += 1
                if self._may_log(now):
                    log.exception("pgm.packet_failed queue=%s source=%s type=%d", self.queue, text_of(source), octets[4])

    def _due(self) -> None:
        self._timer = None
        when = self.engine.next_timer()
        self._take_what_came(time.monotonic())  # first: what lies in the kernel's buffer must not be asked for
        now = time.monotonic()
        if when is None or not self.sockets.inlet.is_behind or now >= when + READ_FIRST_SECONDS:
            self._do(self.engine.poll(now))
        self._arm(now)

    def _arm(self, now: float) -> None:
        if self._inbox.is_full:
            self._hold()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        when = self.engine.next_timer()
        if when is not None and self._is_reading:
            self._timer = self._loop.call_later(max(0.0, when - now), self._due)

    def _do(self, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, Apdu):
                self._count(output.session, "message", 1)
                self._inbox.take(output)
            elif isinstance(output, Unicast):
                self.sockets.outlet.unicast(output.packet, output.to)
            elif isinstance(output, Multicast):
                self.sockets.outlet.multicast((output.packet,))
            elif isinstance(output, DataLost):
                self._count(output.session, "lost", output.packets)
                reason = output.reason.name.lower()
                self._note(output.session, output.first, output.last, output.packets, reason, output.reason.value)
            elif isinstance(output, SessionOpened):
                if self._may_log(time.monotonic()):
                    log.info("pgm.session_opened queue=%s session=%s first=%d", self.queue, output.session, output.first)
            elif isinstance(output, SourceRefused):
                self._source_refused(output)
            else:
                self._session_ended(output)

    def _count(self, key: SessionKey, what: str, count: int) -> None:
        session = self.engine.get(key)
        if session is not None:
            session.counts[what] += count

    def _session_ended(self, ended: SessionEnded) -> None:
        if self._may_log(time.monotonic()):
            log.info("pgm.session_ended queue=%s session=%s reason=%s", self.queue, ended.session, ended.reason.value)

    def _may_log(self, now: float) -> bool:
        """Sessions can be made up with every packet; how many lines were left out is counted."""
        may = self._lines.take(1, now)
        if not may:
            self.counts["not logged"] += 1
        return may

    def _source_refused(self, refused: SourceRefused) -> None:
        """A warning at once, then one for all that come in a while: each of their packets is refused."""
        self._refusals += 1
        now = time.monotonic()
        if now < self._refusals_told_at + REFUSED_SECONDS:
            return
        self._refusals_told_at = now
        log.warning(
            "pgm.source_refused queue=%s address=%s session=%s packets=%d: SESSIONS_MAX = %d sources are heard already, which "
            "status names; what others send is not taken until one ends. To hear more: sessions_max in [pgm_constants]",
            self.queue, self.sockets.address, refused.session, self._refusals, self.engine.settings.sessions_max,
        )  # fmt: skip
        self._refusals = 0

    # --- losses ---------------------------------------------------------------------------------------------------------

    def _refused(self, refusal: Refusal) -> None:
        self._count_refusal(refusal.status, refusal.reason)
        apdu = refusal.apdu
        packets = ((apdu.last - apdu.first) & 0xFFFFFFFF) + 1
        detail = f"{refusal.status} {refusal.reason} ({refusal.section})"
        self._note(apdu.session, apdu.first, apdu.last, packets, REFUSED, detail)

    def _note(self, session: SessionKey, first: int, last: int, packets: int, reason: str, detail: str) -> None:
        source, address = text_of(session.source), str(self.sockets.address)
        self._losses.note(self.queue, address, source, str(session.tsi), first, last, packets, reason, detail)

    # --- what people ask ------------------------------------------------------------------------------------------------

    def sources(self) -> Iterator[dict[str, Any]]:
        """The sessions that are known, for ``status``."""
        now = time.monotonic()
        for session in self.engine:
            window = session.window
            yield {
                "queue": self.queue, "address": str(self.sockets.address), "source": text_of(session.key.source),
                "tsi": str(session.key.tsi), "state": session.state.name.lower(),
                "messages": session.counts["message"], "packets": session.counts["odata"],
                "repairs": session.counts["rdata"], "duplicates": session.counts["duplicate"],
                "naks": session.counts["nak"], "missing": 0 if window is None else window.missing,
                "lost": session.counts["lost"], "buffered_bytes": 0 if window is None else window.octets,
                "silent_seconds": now - session.heard_at,
            }  # fmt: skip

    def totals(self) -> Counter[str]:
        """Packets since the start, by kind."""
        found = Counter(self.counts)
        found.update(self.engine.counts)
        found.update(self.engine.forgotten)
        for session in self.engine:
            found.update(session.counts)
        return found
