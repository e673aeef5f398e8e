"""One incoming session: the data of one source at one receiver (RFC 3208 6, 9)."""

from __future__ import annotations

from collections import Counter

from srmp_spark.pgm.outputs import (
    EndReason,
    LossReason,
    Multicast,
    Output,
    SessionEnded,
    SessionOpened,
    Unicast,
)
from srmp_spark.pgm.receiving.assembler import Assembler
from srmp_spark.pgm.receiving.receive_window import DELIVERED_AT_ONCE, Budget, ReceiveWindow
from srmp_spark.pgm.receiving.repair_states import RepairEvent
from srmp_spark.pgm.receiving.repairs import Repairs, Uniform
from srmp_spark.pgm.receiving.session_states import TRANSITIONS, SessionEvent, SessionState
from srmp_spark.pgm.receiving.spm_sequence import SpmPlace, SpmSequence
from srmp_spark.pgm.settings import PgmReceiverSettings
from srmp_spark.pgm.wire.addresses import Nla, SessionKey, is_unicast
from srmp_spark.pgm.wire.encoder import encode
from srmp_spark.pgm.wire.packets import NO_OPTIONS, Data, Nak, Options, PacketType, Spm
from srmp_spark.pgm.wire.sequence import unwrap, wrap
from srmp_spark.transitions import next_state

_NEVER = float("inf")


class IncomingSession:
    """Receives the data of one source: processes its packets and timers.

    Packets to send and events are appended to ``out``. ``now`` and all times are in seconds of the
    monotonic clock.
    """

    repairs_class: type[Repairs] = Repairs
    """Class of the repairs.

    The simulator sets faulty classes in this and the next two attributes, to check that the faults
    are detected.
    """
    window_class: type[ReceiveWindow] = ReceiveWindow
    assembler_class: type[Assembler] = Assembler

    def __init__(
        self,
        key: SessionKey,
        destination_port: int,
        group: Nla,
        settings: PgmReceiverSettings,
        uniform: Uniform,
        budget: Budget,
        out: list[Output],
        now: float,
    ) -> None:
        self.key = key
        self.state = SessionState.JOINING
        self.window: ReceiveWindow | None = None
        self.heard_at = now
        self.armed_at = _NEVER
        """Time of the timer that the receiver has set for this session; infinite if there is none.
        """
        self.counts: Counter[str] = Counter()
        """Numbers of received packets and of sent NAKs by kind, for metrics.

        The code that handles the events adds its numbers to this counter too.
        """
        self._destination_port = destination_port
        self._group = group
        self._settings = settings
        self._budget = budget
        self._out = out
        self._repairs = self.repairs_class(settings, uniform, now, budget.naks)
        self._assembler = self.assembler_class(key, 0, out)
        self._spms = SpmSequence()
        self._behind: int | None = None
        """Number of the first duplicate ODATA since the last SPM in sequence, or ``None``.

        The packet may belong to a restarted source.
        """
        self._path: Nla | None = None
        """Address to which NAKs are sent, from the newest SPM (6.2), or ``None`` before the first.
        """
        self._last: int | None = None
        """Last number of the session, once OPT_FIN stated it, or ``None`` before."""
        self._resumed_at: int | None = None
        """Number at which an earlier receiver stopped, or ``None``.

        The number is kept until an SPM shows that the source is still the same.
        """

    # --- received packets -------------------------------------------------------------------------

    def begin(self, first: int) -> None:
        """Open the window at the 32-bit number ``first``, because this source replaces another one.

        Call before any packet.
        """
        self._open(first, first, None)

    def resume(self, first: int) -> None:
        """Open the window at ``first``, because an earlier receiver reported everything before it.

        Call before any packet. This receiver does not know the SPMs that the earlier receiver had.
        So the first SPM is compared with ``first``: no source has sent less than was received from
        it. A source that states less was restarted meanwhile.
        """
        self._open(first, first, None)
        self._resumed_at = first

    def _is_another(self, spm: Spm) -> bool:
        """Return whether the first SPM of a resumed session belongs to a restarted source.

        The comparison is made once; later calls return ``False``.
        """
        if self._resumed_at is None or not spm.has_window:
            return False
        first, self._resumed_at = self._resumed_at, None
        return unwrap(spm.lead, first) + 1 < first

    def spm(self, spm: Spm, now: float) -> Spm | None:
        """Process an SPM: one in sequence is used, any other is discarded (RFC 3208 6.2).

        Return ``None``, or the first SPM of a restarted source. In the latter case this session is
        over, its end is reported, and :meth:`first_of` returns the number at which the next session
        begins.
        """
        self.heard_at = now
        place = self._spms.place(spm, now)
        if place is SpmPlace.ANEW:
            return self._succeeded(self._spms.successor or spm)
        if place is SpmPlace.LATE:
            return None
        if self.state is SessionState.ENDED:
            if not spm.options.fin and spm.options.reset is None:
                # A source that announced its end sends no other SPM, so this is a restarted one.
                return self._succeeded(spm)
            self._behind = None
            return None
        if self._is_another(spm):
            return self._succeeded(spm)
        self._behind = None
        is_first = self._path is None
        self._path = self._reachable(spm.path)
        if spm.has_window:
            window = self.window or self._open(spm.lead + 1, spm.trail, spm.options.join)
            lead = unwrap(spm.lead, window.lead)
            window.move(lead + 1 - ((spm.lead - spm.trail + 1) & 0xFFFFFFFF), lead, now)
            if spm.options.fin:
                self._finishing(lead)
        if is_first:
            self._repairs.may_ask(now)
        if spm.options.reset is not None:
            self._end(
                SessionEvent.RST,
                LossReason.RESET,
                SessionEnded(self.key, EndReason.RESET, spm.options.reset.error_code),
            )
        self._end_if_delivered()
        return None

    def _reachable(self, path: Nla) -> Nla:
        """Return the address for NAKs: the source, or SPM_PATH if ``trust_spm_path`` is set.

        SPM_PATH is "the NLA of the interface on the network element" (8.1). A forged SPM can
        contain a third party, a group, or the broadcast address. A source with two stacks may write
        IPv6 although this receiver uses IPv4. The rest of such an SPM is used, but NAKs are sent to
        the same address as before, or to the source.
        """
        if path == self.key.source:
            return path
        if self._settings.trust_spm_path and len(path) == len(self.key.source) and is_unicast(path):
            return path
        self.counts["path passed over"] += 1
        return self._path or self.key.source

    def first_of(self, successor: Spm) -> int:
        """Return the first number of a restarted source that is requested, as a 32-bit number.

        ``successor`` is the source's first SPM. The number is the one after its lead. If data that
        may be of the restarted source came before the SPM, it is their first number if that is
        lower, but not below the trail of the SPM.
        """
        first = wrap(successor.lead + 1)
        if self._behind is None:
            return first
        behind = unwrap(self._behind, first)
        return wrap(min(first, max(behind, unwrap(successor.trail, first))))

    def _succeeded(self, successor: Spm) -> Spm:
        if self.state is not SessionState.ENDED:
            self._end(
                SessionEvent.ANEW, LossReason.RESTARTED, SessionEnded(self.key, EndReason.RESTARTED)
            )
        return successor

    def data(self, data: Data, now: float) -> None:
        """Process ODATA or RDATA (RFC 3208 6.1).

        Complete APDUs and losses are appended to ``out``. A duplicate is counted and ignored.
        """
        self.heard_at = now
        if self.state is SessionState.ENDED:
            self._note_behind(data)
            return
        window = self.window or self._open(data.sequence_number, data.trail, data.options.join)
        number = unwrap(data.sequence_number, window.lead)
        trail = number - ((data.sequence_number - data.trail) & 0xFFFFFFFF)
        is_new = window.receive(number, trail, data, now)
        if not is_new:
            self._note_behind(data)
        self.counts["duplicate" if not is_new else "rdata" if data.is_repair else "odata"] += 1
        if self._last is not None:
            # OpenPGM sends and accepts data after OPT_FIN.
            self._last = max(self._last, number)
        if data.options.fin:
            self._finishing(number)
        self._end_if_delivered()

    def _note_behind(self, data: Data) -> None:
        if self._behind is None and not data.is_repair:
            self._behind = data.sequence_number

    def nak(self, nak: Nak, now: float) -> None:
        """Process an NCF, or a NAK that another receiver multicast (6.3).

        Missing numbers that it names are not requested by this receiver for a while.
        """
        if self.window is None or self.state is SessionState.ENDED:
            return
        event = RepairEvent.NCF if nak.type is PacketType.NCF else RepairEvent.NAK
        for number in nak.numbers:
            self._repairs.on_nak_or_ncf(unwrap(number, self.window.lead), event, now)

    def _open(self, first: int, trail: int, join: int | None) -> ReceiveWindow:
        """Open the window at number ``first`` (6.1: RXW_TRAIL_INIT), and return it.

        The window begins earlier if OPT_JOIN (``join``) allows it and the data are still in the
        source's window, which begins at ``trail``. The event :class:`.SessionOpened` is appended to
        ``out``.
        """
        first = wrap(first)
        if join is not None and self._settings.honour_join:
            earliest = max(
                unwrap(join, first), unwrap(trail, first), first - self._settings.rxw_sqns_max + 1
            )
            first = min(first, earliest)
        self._move(SessionEvent.WINDOW)
        self._assembler = self.assembler_class(self.key, first, self._out)
        self.window = self.window_class(
            first, self._settings, self._repairs, self._assembler, self._budget
        )
        self._out.append(SessionOpened(self.key, wrap(first)))
        return self.window

    def _finishing(self, last: int) -> None:
        self._move(SessionEvent.FIN)
        self._last = last if self._last is None else max(self._last, last)

    # --- timers -----------------------------------------------------------------------------------

    def poll(self, now: float) -> None:
        """Send due NAKs, declare expired numbers lost, and deliver data that wait.

        A source that is silent for ``session_idle`` seconds ends the session.
        """
        if self.state is SessionState.ENDED:
            return
        naks = self._repairs.due(now)
        for numbers in naks:
            self._ask(numbers)
        if self.window is not None:
            self.window.deliver(DELIVERED_AT_ONCE)
        if now >= self.heard_at + self._settings.session_idle:
            self.fell_silent()
        else:
            self._end_if_delivered()

    def fell_silent(self) -> None:
        """End the session because its source is silent. Missing numbers are reported as lost."""
        if self.state is not SessionState.ENDED:
            self._end(
                SessionEvent.SILENT, LossReason.SILENT, SessionEnded(self.key, EndReason.SILENT)
            )

    @property
    def is_quiet(self) -> bool:
        """Return whether only the timer for silence runs, and the receiver has set that timer."""
        window = self.window
        return (
            window is not None
            and not window.has_ready
            and not self._repairs
            and self.armed_at != _NEVER
        )

    def next_timer(self) -> float:
        """Return the time at which :meth:`poll` has something to do.

        The time is in seconds of the monotonic clock, and may have passed. For an ended session it
        is the time at which the session can be removed.
        """
        idle_at = self.heard_at + self._settings.session_idle
        if self.state is SessionState.ENDED:
            return idle_at
        if self.window is not None and self.window.has_ready:
            # This time has passed, so the timer is due at once.
            return self.heard_at
        repair_at = self._repairs.next()
        return idle_at if repair_at is None else min(idle_at, repair_at)

    def _ask(self, numbers: list[int]) -> None:
        if self._path is None:
            return
        wire = [wrap(number) for number in numbers]
        options = Options(nak_list=tuple(wire[1:])) if len(wire) > 1 else NO_OPTIONS
        nak = Nak(
            PacketType.NAK,
            self.key.tsi,
            self._destination_port,
            wire[0],
            self.key.source,
            self._group,
            options,
        )
        packet = encode(nak)
        self.counts["nak"] += 1
        self._out.append(Unicast(self._path, packet))
        if self._settings.multicast_naks:
            self._out.append(Multicast(packet))

    # --- the end of the session -------------------------------------------------------------------

    def _end_if_delivered(self) -> None:
        """End the session if all its data up to OPT_FIN are delivered, and report losses now.

        Called after each step.
        """
        window = self.window
        if (
            self.state is SessionState.FINISHING
            and window is not None
            and self._last is not None
            and window.next > self._last
        ):
            self._end(
                SessionEvent.COMPLETE,
                LossReason.INCOMPLETE,
                SessionEnded(self.key, EndReason.FINISHED),
            )
        self._assembler.flush()

    def _move(self, event: SessionEvent) -> None:
        self.state = next_state(TRANSITIONS, self.state, event, "a session")

    def _end(self, event: SessionEvent, loss: LossReason, ended: SessionEnded) -> None:
        self._move(event)
        if self.window is not None:
            self.window.finish(loss)
            self._out.append(ended)

    def __repr__(self) -> str:
        return f"<IncomingSession {self.key} {self.state.name} {self.window!r}>"
