"""The receiver of one group and port (RFC 3208 6; [MC-MQSRM] 2.1.3), without any I/O.

Theory of operation, for whoever owns the socket. ``receive(packet, source, now)`` takes a decoded packet and the address that
it came from; ``poll(now)`` is called at ``next_timer()``. Both give out, in order, packets to send and events to tell
(:mod:`.outputs`). ``uniform`` draws the back-offs.

Each source has a session of its own, known by its address and its TSI. Nothing in PGM proves who sent a packet: whoever can
send to the group can end a session, skip its window or fill ours. What they cannot do is make a gap that is not told, or pass
a limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from srmp_spark.pgm.addresses import Nla, SessionKey
from srmp_spark.pgm.outputs import Output, SourceRefused
from srmp_spark.pgm.packets import Data, Nak, Packet, PacketType, Spm
from srmp_spark.pgm.receive_window import Budget
from srmp_spark.pgm.repairs import Uniform
from srmp_spark.pgm.session import IncomingSession
from srmp_spark.pgm.session_states import SessionState
from srmp_spark.pgm.settings import REPLACED_AFTER, ReceiverSettings
from srmp_spark.timers import Timers

SESSIONS_AT_ONCE = 4
"""Sessions that one call of :meth:`Receiver.poll` works on: about 12 ms, if each has NUMBERS_AT_ONCE numbers to ask
for. Whoever owns the socket does something else in between."""


class Receiver:
    """All sources of a group and port."""

    session_class: type[IncomingSession] = IncomingSession
    """What a session is made of; the simulator puts a faulty one here to see that it is caught."""

    def __init__(
        self,
        destination_port: int,
        group: Nla,
        uniform: Uniform,
        settings: ReceiverSettings | None = None,
    ) -> None:
        self.settings = settings or ReceiverSettings()
        self.counts: Counter[str] = Counter()
        """What was passed over, for metrics."""
        self.forgotten: Counter[str] = Counter()
        """What the sessions had counted that are forgotten."""
        self.budget = Budget(self.settings)
        self._destination_port = destination_port
        self._group = group
        self._uniform = uniform
        self._sessions: dict[SessionKey, IncomingSession] = {}
        self._timers: Timers[SessionKey] = Timers()
        self._out: list[Output] = []

    def receive(self, packet: Packet, source: Nla, now: float) -> list[Output]:
        """``packet`` came from ``source``."""
        if packet.destination_port != self._destination_port:
            self.counts["of another port"] += 1
            return []
        if isinstance(packet, Data):
            session = self._session(SessionKey(source, packet.tsi), now)
            if session is None:
                return self._taken()
            session.data(packet, now)
        elif isinstance(packet, Spm):
            session = self._session(SessionKey(source, packet.tsi), now)
            if session is None:
                return self._taken()
            successor = session.spm(packet, now)
            if successor is not None:
                session = self._succeeded(session, successor, packet, now)
        elif (
            isinstance(packet, Nak)
            and packet.type is not PacketType.NNAK
            and packet.group == self._group
        ):
            if packet.type is PacketType.NCF and packet.source != source:
                # 8.3: "The network-header source address of an NCF is the ODATA source's NLA", from network elements too.
                self.counts["ncf from another address"] += 1
                return []
            found = self._sessions.get(SessionKey(packet.source, packet.tsi))
            if found is None:
                self.counts["nak of an unknown session"] += 1
                return []
            session = found
            session.nak(packet, now)
        else:  # SPMRs and POLRs are for sources, POLLs and NNAKs belong to RFC 3208 14 and 7, which 2.1.3 leaves out
            self.counts["passed over"] += 1
            return []
        if not session.is_quiet and (when := session.next_timer()) < session.armed_at:
            self._arm(session, when)
        return self._taken()

    def _arm(self, session: IncomingSession, when: float) -> None:
        """Wake up at ``when``. A later time than the one before is not told: who wakes up too early looks, and sleeps again.
        With each packet the session's silence begins anew, and all else is rare."""
        session.armed_at = when
        self._timers.set(session.key, when)

    def _session(self, key: SessionKey, now: float) -> IncomingSession | None:
        session = self._sessions.get(key)
        if session is not None and (
            session.state is not SessionState.ENDED or not self._is_over(session, now)
        ):
            return session
        if session is not None:
            self._forget(key)  # it fell silent, and what comes now is of a new one
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
        """Go on with a session whose earlier receiver told everything before ``first``.

        Call before any packet of that session. One for which there is no room begins anew when it is heard.
        """
        if key not in self._sessions and len(self._sessions) < self.settings.sessions_max:
            session = self._begin(key, now)
            session.resume(first)
            self._arm(session, session.next_timer())
        return self._taken()

    def _succeeded(
        self, session: IncomingSession, successor: Spm, spm: Spm, now: float
    ) -> IncomingSession:
        """A session of its own for the source that began anew with ``successor`` and says ``spm`` now."""
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
        """Forget a session that has ended, or the one that is silent for longest, if that is longer than SPMs stay away: or
        sources that somebody made up would keep true ones out for SESSION_IDLE."""
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
        """Return what has become due, of SESSIONS_AT_ONCE sessions: others are due at once again."""
        for key in self._timers.due(now, SESSIONS_AT_ONCE):
            session = self._sessions[key]
            if self._is_over(session, now):
                self._forget(key)
                continue
            session.poll(now)
            self._arm(session, session.next_timer())
        return self._taken()

    def next_timer(self) -> float | None:
        """When :meth:`poll` has something to do, on the caller's monotonic clock."""
        return self._timers.next()

    def _taken(self) -> list[Output]:
        out = self._out[:]
        self._out.clear()
        return out

    def get(self, key: SessionKey) -> IncomingSession | None:
        """A session that is known."""
        return self._sessions.get(key)

    def __iter__(self) -> Iterator[IncomingSession]:
        return iter(self._sessions.values())

    def __len__(self) -> int:
        return len(self._sessions)
