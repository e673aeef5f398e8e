"""One multicast address in the gateway: its sockets, its receiving engine, its messages.

Theory of operation. The loop reports that packets are readable. Up to READ_MAX datagrams are read,
decoded and given to the engine (:class:`.PgmReceiver`). Each output of the engine is sent to the
network or crosses to the main process, in order. One timer calls the engine at the time that the
engine asks for. Octets of APDUs (units of data that a source sent) may wait for their commit. While
more than PENDING_BYTES_MAX octets wait, or the channel is congested, nothing is read and no repair
is requested. During that time the kernel's buffer and PGM's later repairs must suffice.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from random import SystemRandom
from typing import Protocol

from srmp_spark.errors import ConfigurationError, RemoteProtocolError
from srmp_spark.names import MulticastAddress
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
from srmp_spark.pgm.receiving.receiver import PgmReceiver
from srmp_spark.pgm.token_bucket import TokenBucket
from srmp_spark.pgm.wire.addresses import SessionKey, nla_of, text_of
from srmp_spark.pgm.wire.decoder import decode
from srmp_spark.queue_manager.admission.faults import REASON as INTERNAL
from srmp_spark.queue_manager.admission.faults import FaultLog
from srmp_spark.queue_manager.alarm import Alarm
from srmp_spark.queue_manager.multicast.crossing import (
    ApduRefused,
    Figures,
    Hearing,
    Lost,
    MulticastArrived,
    ResumePlace,
    SourceEnded,
    SourceFigures,
    SourceOpened,
    ToMain,
)
from srmp_spark.queue_manager.multicast.groups import GroupSockets, open_group
from srmp_spark.queue_manager.multicast.interfaces import InterfaceWatch
from srmp_spark.queue_manager.multicast.reading import ReadApdu, UnreadApdu, read_apdu
from srmp_spark.queue_manager.multicast.settings import PgmSettings
from srmp_spark.queue_manager.multicast.sockets import READ_FIRST_SECONDS

PENDING_BYTES_MAX = 8_388_608
"""Octets of one group's APDUs waiting for their commit above which the group is not read."""
LINES_PER_SECOND = 20.0
"""Most log lines about sessions per second. Losses have another limit (:mod:`.losses`)."""
REFUSED_SECONDS = 60.0
"""Seconds between two warnings about refused sources.

One warning covers all sources, because 64 bits of TSI allow any number of fabricated sources.
"""
INTERFACE_SECONDS = 2.0
"""Interval of the check whether the interface is still the one whose group was joined, in seconds.
"""
FIGURES_AT_ONCE = 128
"""Sources in one message of figures. The main process handles these in a quarter of a millisecond.
"""

log = logging.getLogger(__name__)


class ToMainProcess(Protocol):
    """The gateway's end of the channel, as far as a listener uses it."""

    is_congested: bool
    """Whether the listener must send nothing more until the main process has caught up."""

    def send(self, message: ToMain) -> object:
        """Send ``message`` after all earlier ones."""


class GroupListener:
    """Receives the packets of one group, and sends its messages to the main process.

    All times are in seconds of ``time.monotonic``.
    """

    def __init__(
        self,
        group: int,
        queue: str,
        address: MulticastAddress,
        settings: PgmSettings,
        main: ToMainProcess,
    ) -> None:
        """Prepare to receive messages to ``address`` for ``queue``, without opening a socket.

        ``group`` is the index by which the main process names the address.
        """
        self.queue = queue
        self.address = address
        self.sockets: GroupSockets | None = None
        """Sockets of the group, or ``None`` while the group cannot be joined."""
        self.counts: Counter[str] = Counter()
        """Number of packets, by kind, that belong to no session."""
        self._group = group
        self._main = main
        self._settings = settings
        self._faults = FaultLog()
        self.engine = PgmReceiver(
            address.port, nla_of(address.group), SystemRandom().uniform, settings.receiver
        )
        self.watch = InterfaceWatch(settings.interface)
        self._deaf_because: str | None = None
        self._loop = asyncio.get_running_loop()
        self._watcher = Alarm(self._loop, self._watch)
        self._alarm = Alarm(self._loop, self._due, time.monotonic)
        self._is_reading = False
        self._has_begun = False
        self.pending_bytes = 0
        """Octets of APDUs that crossed and are not settled yet."""
        self._reported_figures: dict[SessionKey, SourceFigures] = {}
        """For each session the figures that were sent to the main process last."""
        self._reported_totals: dict[str, int] = {}
        self._lines = TokenBucket(LINES_PER_SECOND, LINES_PER_SECOND, time.monotonic())
        self._refusals = 0
        """Packets of refused sources since the last warning about refused sources."""
        self._refusals_told_at = -REFUSED_SECONDS

    def __repr__(self) -> str:
        return f"<Listener {self.queue} on {self.address} sessions={len(self.engine)}>"

    def join(self) -> None:
        """Open the sockets, and report to the main process whether that succeeded.

        From now on, the interface is checked every INTERFACE_SECONDS, and a group that could not be
        joined is tried again.
        """
        try:
            self._hear_by(open_group(self._settings, self.address))
        except ConfigurationError as error:
            self._deaf_because = str(error)
        self._main.send(Hearing(self._group, self._deaf_because))
        self._watcher.within(INTERFACE_SECONDS)

    def begin(self, places: Iterable[ResumePlace]) -> None:
        """Begin to read from the group, and log it.

        The sessions in ``places`` resume at their numbers. If the group is not joined, log the
        reason.
        """
        self._has_begun = True
        now = time.monotonic()
        for place in places:
            self._do(self.engine.resume(place.session, place.next, now))
        if self.sockets is not None:
            self._read_again()
            name = self.sockets.interface.name
            log.info(
                "pgm.listening queue=%s address=%s interface=%s", self.queue, self.address, name
            )
        else:
            log.warning(
                'pgm.deaf queue=%s address=%s reason="%s"',
                self.queue,
                self.address,
                self._deaf_because,
            )

    def stop(self) -> None:
        """Leave the group and stop all timers.

        Open sessions are not reported as lost, because the next start may receive them again.
        """
        self._hold()
        self._alarm.stop()
        self._watcher.stop()
        if self.sockets is not None:
            self.sockets.close()

    # --- sockets ----------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Join the group again if the interface was created again, and repeat this check later.

        The kernel has dropped the memberships that the old interface had. A change is reported to
        the main process.
        """
        self._watcher.within(INTERFACE_SECONDS)
        found = self.watch.look()
        why = self.watch.why_gone
        if found is not None:
            try:
                fresh = open_group(self._settings, self.address)
            except ConfigurationError as error:
                why = str(error)
            else:
                self._hear_by(fresh)
                log.warning(
                    'pgm.joined_again queue=%s address=%s interface=%s because="the '
                    'interface was made anew"',
                    self.queue,
                    self.address,
                    fresh.interface.name,
                )
        if why is not None and self._deaf_because is None:
            log.warning('pgm.deaf queue=%s address=%s reason="%s"', self.queue, self.address, why)
        if why != self._deaf_because:
            self._deaf_because = why
            self._main.send(Hearing(self._group, why))

    def _hear_by(self, fresh: GroupSockets) -> None:
        """Replace the sockets by ``fresh``, close the old ones, and read from the new ones.

        Sessions continue. Packets that a session missed meanwhile are requested. Such a packet is
        reported as lost if the source's window no longer contains the packet.
        """
        self._hold()
        if self.sockets is not None:
            self.sockets.close()
        self.sockets = fresh
        self.watch.uses(fresh.interface)
        self._read_again()

    @property
    def _must_wait(self) -> bool:
        return (
            not self._has_begun or self.pending_bytes > PENDING_BYTES_MAX or self._main.is_congested
        )

    def _hold(self) -> None:
        if self._is_reading and self.sockets is not None:
            self._is_reading = False
            self._loop.remove_reader(self.sockets.inlet.fileno())

    def _read_again(self) -> None:
        if not self._is_reading and self.sockets is not None and not self._must_wait:
            self._is_reading = True
            self._loop.add_reader(self.sockets.inlet.fileno(), self._readable)
            self._arm()

    def settled(self, octets: int) -> None:
        """Subtract ``octets`` from :attr:`pending_bytes`, and read again if no limit forbids it.

        Called when the main process reports that these octets no longer wait for their commit.
        """
        self.pending_bytes -= octets
        self.on_room()

    def on_room(self) -> None:
        """Read from the group again if no limit forbids it.

        Called when the channel to the main process has room again.
        """
        self._read_again()

    # --- packets ----------------------------------------------------------------------------------

    def _readable(self) -> None:
        now = time.monotonic()
        self._take_what_came(now)
        self._arm()

    def _take_what_came(self, now: float) -> None:
        assert self.sockets is not None
        for octets, source in self.sockets.inlet.read():
            try:
                packet = decode(octets)
            except RemoteProtocolError as error:
                self.counts["malformed"] += 1
                log.debug(
                    "pgm.malformed queue=%s source=%s: %s", self.queue, text_of(source), error
                )
                continue
            try:
                self._do(self.engine.receive(packet, source, now))
            except Exception:
                # This is the last line of defence, as at the SRMP port: an internal error must not
                # stop the packets that were read with this one.
                self.counts["internal error"] += 1
                if self._may_log(now):
                    log.exception(
                        "pgm.packet_failed queue=%s source=%s type=%d",
                        self.queue,
                        text_of(source),
                        octets[4],
                    )

    def _due(self) -> None:
        assert self.sockets is not None
        when = self.engine.next_timer()
        # Read first: packets in the kernel's buffer must not be requested again.
        self._take_what_came(time.monotonic())
        now = time.monotonic()
        if when is None or not self.sockets.inlet.is_behind or now >= when + READ_FIRST_SECONDS:
            self._do(self.engine.poll(now))
        self._arm()

    def _arm(self) -> None:
        if self._must_wait:
            self._hold()
        self._alarm.at(self.engine.next_timer() if self._is_reading else None)

    def _do(self, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, Apdu):
                self._count(output.session, "message", 1)
                self._take(output)
            elif isinstance(output, Unicast):
                if self.sockets is not None:
                    self.sockets.outlet.unicast(output.packet, output.to)
            elif isinstance(output, Multicast):
                if self.sockets is not None:
                    self.sockets.outlet.multicast((output.packet,))
            elif isinstance(output, DataLost):
                self._count(output.session, "lost", output.packets)
                reason, why = output.reason.name.lower(), output.reason.value
                self._main.send(
                    Lost(
                        self._group,
                        output.session,
                        output.first,
                        output.last,
                        output.packets,
                        reason,
                        why,
                    )
                )
            elif isinstance(output, SessionOpened):
                self._main.send(SourceOpened(self._group, output.session, output.first))
                if self._may_log(time.monotonic()):
                    log.info(
                        "pgm.session_opened queue=%s session=%s first=%d",
                        self.queue,
                        output.session,
                        output.first,
                    )
            elif isinstance(output, SourceRefused):
                self._source_refused(output)
            else:
                self._session_ended(output)

    def _take(self, apdu: Apdu) -> None:
        """Send an APDU to the main process: :class:`MulticastArrived` or :class:`ApduRefused`.

        The octets of a message that arrived are added to :attr:`pending_bytes`. An internal error
        is logged and sent as a refusal.
        """
        try:
            found = read_apdu(apdu.data, self.address)
            if isinstance(found, ReadApdu):
                self._cross(apdu, found)
                return
        except Exception as error:
            # This is the last line of defence: an internal error must not stop the others.
            refused = self._faults.refusal(error, f"multicast message of {len(apdu.data)} bytes")
            found = UnreadApdu(refused.status, INTERNAL, "srmp-spark", None)
        self._main.send(ApduRefused(self._group, apdu.session, apdu.first, apdu.last, *found))

    def _cross(self, apdu: Apdu, read: ReadApdu) -> None:
        octets, post = len(apdu.data), read.post
        self._main.send(
            MulticastArrived(
                self._group,
                apdu.session,
                apdu.first,
                apdu.last,
                octets,
                post.post,
                post.head_length,
                read.message,
                read.parts,
            )
        )
        self.pending_bytes += octets

    def _count(self, key: SessionKey, what: str, count: int) -> None:
        session = self.engine.get(key)
        if session is not None:
            session.counts[what] += count

    def _session_ended(self, ended: SessionEnded) -> None:
        self._main.send(SourceEnded(self._group, ended.session))
        if self._may_log(time.monotonic()):
            log.info(
                "pgm.session_ended queue=%s session=%s reason=%s",
                self.queue,
                ended.session,
                ended.reason.value,
            )

    def _may_log(self, now: float) -> bool:
        """Return whether a line about a session may be logged now, and count that line as logged.

        There are LINES_PER_SECOND lines, because a source can fabricate a session with every
        packet. A line that may not be logged is counted in :attr:`counts`. ``now`` is in seconds of
        ``time.monotonic``.
        """
        may = self._lines.take(1, now)
        if not may:
            self.counts["not logged"] += 1
        return may

    def _source_refused(self, refused: SourceRefused) -> None:
        """Log a warning about a refused source, at most once in REFUSED_SECONDS.

        Every packet of a refused source is refused, so the warning states the number of packets
        since the last warning.
        """
        self._refusals += 1
        now = time.monotonic()
        if now < self._refusals_told_at + REFUSED_SECONDS:
            return
        self._refusals_told_at = now
        log.warning(
            "pgm.source_refused queue=%s address=%s session=%s packets=%d: SESSIONS_MAX = "
            "%d sources are heard already (see status). Packets of further sources are "
            "refused until one source ends. To hear more sources, raise sessions_max in "
            "[pgm_constants]",
            self.queue,
            self.address,
            refused.session,
            self._refusals,
            self.engine.settings.sessions_max,
        )
        self._refusals = 0

    # --- figures ----------------------------------------------------------------------------------

    def figures(self) -> Iterator[Figures]:
        """Yield messages with the figures that changed since the last call.

        One message holds at most FIGURES_AT_ONCE sources. Nothing is yielded if nothing changed.
        """
        sources, totals = self._sources(), self._totals()
        changed = [each for key, each in sources.items() if self._reported_figures.get(key) != each]
        gone = [key for key in self._reported_figures if key not in sources]
        if not changed and not gone and totals == self._reported_totals:
            return
        self._reported_figures, self._reported_totals = sources, totals
        for at in range(0, max(1, len(changed)), FIGURES_AT_ONCE):
            yield Figures(
                self._group, totals, changed[at : at + FIGURES_AT_ONCE], gone if at == 0 else []
            )

    def _sources(self) -> dict[SessionKey, SourceFigures]:
        found = {}
        for session in self.engine:
            window, counts = session.window, session.counts
            found[session.key] = SourceFigures(
                session.key,
                session.state.name.lower(),
                counts["message"],
                counts["odata"],
                counts["rdata"],
                counts["duplicate"],
                counts["nak"],
                0 if window is None else window.missing,
                counts["lost"],
                0 if window is None else window.octets,
                session.heard_at,
            )
        return found

    def _totals(self) -> dict[str, int]:
        """Return the number of packets by kind, since this process began."""
        found = Counter(self.counts)
        found.update(self.engine.counts)
        found.update(self.engine.forgotten)
        for session in self.engine:
            found.update(session.counts)
        return dict(found)
