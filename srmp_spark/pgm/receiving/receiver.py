"""The receiver of one group and port (RFC 3208 6; [MC-MQSRM] 2.1.3), without any I/O.

Theory of operation, for the owner of the socket. ``receive(packet, source, now)`` processes a
decoded packet and the address of its sender. ``poll(now)`` is called at ``next_timer()``. Both
methods return packets to send and events to report, in order (:mod:`..outputs`). ``uniform`` draws
the back-offs.

Each source has a session of its own, identified by its address and its TSI. PGM does not
authenticate the sender of a packet. So a party that can send to the group can end a session, skip
its window or fill the receiver's buffers. Such a party cannot cause a gap that is not reported, or
exceed a limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from srmp_spark.pgm.outputs import Output, SourceRefused
from srmp_spark.pgm.receiving.receive_window import Budget
from srmp_spark.pgm.receiving.repairs import Uniform
from srmp_spark.pgm.receiving.session import IncomingSession
from srmp_spark.pgm.receiving.session_states import SessionState
from srmp_spark.pgm.settings import REPLACED_AFTER, PgmReceiverSettings
from srmp_spark.pgm.wire.addresses import Nla, SessionKey
from srmp_spark.pgm.wire.packets import Data, Nak, Packet, PacketType, Spm
from srmp_spark.timers import Timers

SESSIONS_AT_ONCE = 4
"""Most sessions that one call of :meth:`PgmReceiver.poll` processes.

The call takes about 12 ms if each session has NUMBERS_AT_ONCE numbers to request. The owner of the
socket can do other work between two calls.
"""


class PgmReceiver:
    """Receives the data of all sources of one group and port.

    ``now`` is in seconds of the monotonic clock.
    """

    session_class: type[IncomingSession] = IncomingSession
    """Class of a session.

    The simulator sets a faulty class, to check that the fault is detected.
    """

    def __init__(
        self,
        destination_port: int,
        group: Nla,
        uniform: Uniform,
        settings: PgmReceiverSettings | None = None,
    ) -> None:
        self.settings = settings or PgmReceiverSettings()
        self.counts: Counter[str] = Counter()
        """Numbers of ignored packets by reason, for metrics. Sessions have counters of their own.
        """
        self.forgotten: Counter[str] = Counter()
        """Sums of the counters of all sessions that were removed, for metrics."""
        self.budget = Budget(self.settings)
        self._destination_port = destination_port
        self._group = group
        self._uniform = uniform
        self._sessions: dict[SessionKey, IncomingSession] = {}
        self._timers: Timers[SessionKey] = Timers()
        self._out: list[Output] = []

    def receive(self, packet: Packet, source: Nla, now: float) -> list[Output]:
        """Process ``packet`` from the address ``source``; return packets to send and events.

        Packets that are not for this receiver are counted and ignored.
        """
        if packet.destination_port != self._destination_port:
            self.counts["of another port"] += 1
            return []
        if isinstance(packet, Data):
            session = self._session(SessionKey(source, packet.tsi), now)
            if session is None:
                return self._take_outputs()
            session.data(packet, now)
        elif isinstance(packet, Spm):
            session = self._session(SessionKey(source, packet.tsi), now)
            if session is None:
                return self._take_outputs()
            successor = session.spm(packet, now)
            if successor is not None:
                session = self._succeeded(session, successor, packet, now)
        elif (
            isinstance(packet, Nak)
            and packet.type is not PacketType.NNAK
            and packet.group == self._group
        ):
            if packet.type is PacketType.NCF and packet.source != source:
                # 8.3: "The network-header source address of an NCF is the ODATA source's NLA". This
                # holds for NCFs of network elements too.
                self.counts["ncf from another address"] += 1
                return []
            found = self._sessions.get(SessionKey(packet.source, packet.tsi))
            if found is None:
                self.counts["nak of an unknown session"] += 1
                return []
            session = found
            session.nak(packet, now)
        else:
            # SPMRs and POLRs are for sources. POLLs and NNAKs belong to RFC 3208 14 and 7, which
            # [MC-MQSRM] 2.1.3 does not include.
            self.counts["passed over"] += 1
            return []
        if not session.is_quiet and (when := session.next_timer()) < session.armed_at:
            self._arm(session, when)
        return self._take_outputs()

    def _arm(self, session: IncomingSession, when: float) -> None:
        """Set the timer of ``session`` to the time ``when``.

        After a packet, :meth:`receive` only moves the timer to an earlier time. A timer that fires
        too early costs little: ``poll`` finds nothing to do in the session, and sets the timer
        again.
        """
        session.armed_at = when
        self._timers.set(session.key, when)

    def _session(self, key: SessionKey, now: float) -> IncomingSession | None:
        session = self._sessions.get(key)
        if session is not None and (
            session.state is not SessionState.ENDED or not self._is_over(session, now)
        ):
            return session
        if session is not None:
            # The old session is silent, and this packet belongs to a new session.
            self._forget(key)
        if len(self._sessions) >= self.settings.sessions_max and not self._make_room(now):
            self.counts["session refused"] += 1
            self._out.append(SourceRefused(key))
            return None
        return self._begin(key, now)

    def _begin(self, key: SessionKey, now: float) -> IncomingSession:
        session = self._sessions[key] = self.session_class(
            key,
            self._destination_port,
            self._group,
            self.settings,
            self._uniform,
            self.budget,
            self._out,
            now,
        )
        return session

    def resume(self, key: SessionKey, first: int, now: float) -> list[Output]:
        """Continue a session whose earlier receiver reported everything before ``first``.

        Call before any packet of that session. If there is no room, nothing is done, and the
        session begins with its first packet. Nothing is done either if the session exists. Return
        the events.
        """
        if key not in self._sessions and len(self._sessions) < self.settings.sessions_max:
            session = self._begin(key, now)
            session.resume(first)
            self._arm(session, session.next_timer())
        return self._take_outputs()

    def _succeeded(
        self, session: IncomingSession, successor: Spm, spm: Spm, now: float
    ) -> IncomingSession:
        """Begin a session for a restarted source, in the place of ``session``, and return it.

        The source began with the SPM ``successor``; ``spm`` is its current SPM.
        """
        first = session.first_of(successor)
        self._forget(session.key)
        begun = self._begin(session.key, now)
        if successor.has_window:
            begun.begin(first)
        begun.spm(spm, now)
        return begun

    @staticmethod
    def _is_over(session: IncomingSession, now: float) -> bool:
        return session.state is SessionState.ENDED and now >= session.next_timer()

    def _make_room(self, now: float) -> bool:
        """Remove a session to make room for another one, and return whether one was removed.

        An ended session is removed first. Otherwise the session that is silent for longest is
        removed, if that is longer than REPLACED_AFTER; its end is reported. Without this, forged
        sources would keep true ones out for SESSION_IDLE.
        """
        least = min(
            self._sessions.values(),
            key=lambda session: (session.state is not SessionState.ENDED, session.heard_at),
        )
        if least.state is not SessionState.ENDED and now < least.heard_at + REPLACED_AFTER:
            return False
        least.fell_silent()
        self._forget(least.key)
        return True

    def _forget(self, key: SessionKey) -> None:
        self.forgotten.update(self._sessions.pop(key).counts)
        self._timers.set(key, None)

    def poll(self, now: float) -> list[Output]:
        """Process the sessions that are due by ``now``; return packets to send and events.

        At most SESSIONS_AT_ONCE sessions are processed; further sessions are due again at once.
        """
        for key in self._timers.due(now, SESSIONS_AT_ONCE):
            session = self._sessions[key]
            if self._is_over(session, now):
                self._forget(key)
                continue
            session.poll(now)
            self._arm(session, session.next_timer())
        return self._take_outputs()

    def next_timer(self) -> float | None:
        """Return the time at which :meth:`poll` has something to do, or ``None`` for never.

        The time is in seconds of the monotonic clock, and may have passed.
        """
        return self._timers.next()

    def _take_outputs(self) -> list[Output]:
        out = self._out[:]
        self._out.clear()
        return out

    def get(self, key: SessionKey) -> IncomingSession | None:
        """Return the session with this key, or ``None`` if it is unknown."""
        return self._sessions.get(key)

    def __iter__(self) -> Iterator[IncomingSession]:
        return iter(self._sessions.values())

    def __len__(self) -> int:
        return len(self._sessions)
