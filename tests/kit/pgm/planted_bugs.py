"""Planted bugs which the simulator must find (``tests/pgm``).

Each class is a source or a receiver, or a part of one, with one fault. The docstring of the class
states the faulty behaviour. :mod:`tests.kit.pgm` explains the words.
"""
# ruff: noqa: D102  # the docstring of each class states what its methods do wrong

from __future__ import annotations

from collections.abc import Callable

from srmp_spark.pgm.outputs import DataLost, LossReason, Multicast, Output
from srmp_spark.pgm.receiving.assembler import Assembler
from srmp_spark.pgm.receiving.receive_window import ReceiveWindow
from srmp_spark.pgm.receiving.receiver import PgmReceiver
from srmp_spark.pgm.receiving.repair_states import RepairEvent
from srmp_spark.pgm.receiving.repairs import Repair, Repairs
from srmp_spark.pgm.receiving.session import IncomingSession
from srmp_spark.pgm.sending.repair_queue import RepairQueue
from srmp_spark.pgm.sending.source import PgmSource
from srmp_spark.pgm.sending.transmit_window import Sent, TransmitWindow
from srmp_spark.pgm.wire.packets import Data, Nak, Packet
from srmp_spark.pgm.wire.sequence import wrap

# --- receivers ------------------------------------------------------------------------------------


class SilentGap(Assembler):
    """Skips lost packets without reporting a loss."""

    def flush(self) -> None:
        self._loss = None


class LossOneShort(Assembler):
    """Leaves out the last number of a lost range."""

    def flush(self) -> None:
        super().flush()
        last = self._out[-1] if self._out else None
        if isinstance(last, DataLost) and last.first != last.last:
            self._out[-1] = last._replace(last=wrap(last.last - 1))


class HalfAnApdu(Assembler):
    """Reports a loss within an APDU, and then delivers the rest of the APDU as a whole one."""

    def add_loss(self, first: int, last: int, reason: LossReason) -> None:
        of, octets = self._of, bytes(self._octets)
        super().add_loss(first, last, reason)
        self._of, self._begin = of, last + 1
        self._octets += octets


class AnyOrder(ReceiveWindow):
    """Delivers each packet when it arrives, and again when it is its turn."""

    def receive(self, number: int, trail: int, data: Data, now: float) -> bool:
        taken = super().receive(number, trail, data, now)
        if number in self._packets:
            self._assembler.received(number, data)
        return taken


class LateCopiesKept(ReceiveWindow):
    """Keeps in memory a late copy of a packet that was delivered already."""

    def receive(self, number: int, trail: int, data: Data, now: float) -> bool:
        taken = super().receive(number, trail, data, now)
        if not taken:
            self._packets[number] = data
            self._charge(len(data.payload))
        return taken


class TrailTooFar(ReceiveWindow):
    """Discards the packet at the trail, the oldest packet that can still be repaired."""

    def move(self, trail: int, lead: int, now: float) -> None:
        super().move(min(trail + 1, max(lead, self.lead) + 1), lead, now)


class NeverForgets(ReceiveWindow):
    """Never reduces the memory charge after delivery, so that the limits fill up."""

    def _charge(self, octets: int) -> None:
        super()._charge(max(octets, 0))


class GivesUpAtOnce(Repairs):
    """Treats a number as lost after a single time-out."""

    def _timed_out(self, number: int, repair: Repair, now: float, back_off_until: float) -> None:
        repair.ncf_retries = repair.data_retries = 100
        super()._timed_out(number, repair, now, back_off_until)


class NeverAsks(Repairs):
    """Counts NAKs and sends none."""

    def due(self, now: float) -> list[list[int]]:
        super().due(now)
        return []


class AsksForWhatCame(Repairs):
    """Sends a NAK for packets that were received."""

    came: tuple[int, ...] = ()

    def complete(self, number: int) -> bool:
        self.came = (*self.came, number)
        return super().complete(number)

    def due(self, now: float) -> list[list[int]]:
        again, self.came = self.came, ()
        return super().due(now) + [[number] for number in again]


class ConfirmedIsReceived(Repairs):
    """Stops the timer of a number when an NCF confirms it, and waits forever."""

    def on_nak_or_ncf(self, number: int, event: RepairEvent, now: float) -> None:
        super().on_nak_or_ncf(number, event, now)
        if event is RepairEvent.NCF:
            self._timers.set(number, None)


class NakFlood(Repairs):
    """Sends NAKs without a rate limit, one NAK packet for each number."""

    def due(self, now: float) -> list[list[int]]:
        self._bucket.rate = self._bucket.size = 1e9
        return [[number] for numbers in super().due(now) for number in numbers]


class FinEndsAtOnce(IncomingSession):
    """Ends the session at OPT_FIN even if packets are missing."""

    def _finishing(self, last: int) -> None:
        super()._finishing(last)
        if self.window is not None:
            self.window.finish(LossReason.INCOMPLETE)


class WrapForgotten(IncomingSession):
    """Compares sequence numbers without unwrapping them: the session stops at 2^32."""

    def data(self, data: Data, now: float) -> None:
        if self.window is None or data.sequence_number >= self.window.next:
            super().data(data, now)


class AnySource(PgmReceiver):
    """Identifies a session by its TSI alone, so that another host's packets are accepted."""

    def receive(self, packet: Packet, source: bytes, now: float) -> list[Output]:
        for session in self:
            if session.key.tsi == packet.tsi and not isinstance(packet, Nak):
                source = session.key.source
        return super().receive(packet, source, now)


# --- sources --------------------------------------------------------------------------------------


class PendingForgotten(TransmitWindow):
    """Moves the trail past numbers for which a NAK is pending."""

    def advance(self, now: float, is_pending: Callable[[int], bool]) -> None:
        super().advance(now, lambda number: False)


class WindowTooShort(TransmitWindow):
    """Drops the whole window at each advance."""

    def advance(self, now: float, is_pending: Callable[[int], bool]) -> None:
        super().advance(now + 1e6, is_pending)


class LeadOneAhead(TransmitWindow):
    """Reports, after every 50th packet, a lead that is one packet ahead of what was sent."""

    def append(self, sent: Sent) -> None:
        super().append(sent)
        if self.lead % 50 == 49:
            self.lead += 1
            self._sent[self.lead] = sent


class RepairsEachNak(RepairQueue):
    """Sends a waiting repair once more for each NAK."""

    def request(self, number: int, now: float) -> bool:
        if number in self._pending:
            self._ready.append(number)
        return super().request(number, now)


class RepairsTheNext(RepairQueue):
    """Repairs the packet after the one that is missing."""

    def request(self, number: int, now: float) -> bool:
        return super().request(number + 1 if self._window.get(number + 1) else number, now)


class NoBucket(PgmSource):
    """Sends everything at once, without a token bucket."""

    def _take(self, octets: int, now: float) -> bool:
        return True


class NoSpms(PgmSource):
    """Sends no further SPM for a minute after each SPM."""

    def _spm(self, now: float) -> Multicast | None:
        packet = super()._spm(now)
        self._spms._ambient_at = now + 60.0  # noqa: SLF001
        self._spms._heartbeat_at = now + 60.0  # noqa: SLF001
        return packet


class NakOfTheOtherHalf(PgmSource):
    """Ignores NAKs once the lead has passed number 2^32, so that nothing is repaired."""

    def receive(self, packet: Packet, now: float) -> list[Multicast]:
        if isinstance(packet, Nak) and self.window.lead >= 2**32:
            return []
        return super().receive(packet, now)


class FinWithoutDraining(PgmSource):
    """Discards the waiting data when the source is closed."""

    def close(self, now: float) -> None:
        self._waiting.clear()
        super().close(now)


def _session_with(**parts: type[object]) -> type[PgmReceiver]:
    session = type("Session", (IncomingSession,), dict(parts))
    return type("Faulty", (PgmReceiver,), {"session_class": session})


def _source_with(**parts: type[object]) -> type[PgmSource]:
    return type("Faulty", (PgmSource,), dict(parts))


PLANTED_RECEIVERS: dict[str, type[PgmReceiver]] = {
    **{
        each.__name__: _session_with(assembler_class=each)
        for each in (SilentGap, LossOneShort, HalfAnApdu)
    },
    **{
        each.__name__: _session_with(window_class=each)
        for each in (AnyOrder, LateCopiesKept, TrailTooFar, NeverForgets)
    },
    **{
        each.__name__: _session_with(repairs_class=each)
        for each in (GivesUpAtOnce, NeverAsks, AsksForWhatCame, ConfirmedIsReceived, NakFlood)
    },
    **{
        each.__name__: type("Faulty", (PgmReceiver,), {"session_class": each})
        for each in (FinEndsAtOnce, WrapForgotten)
    },
    "AnySource": AnySource,
}
PLANTED_SOURCES: dict[str, type[PgmSource]] = {
    **{
        each.__name__: _source_with(window_class=each)
        for each in (PendingForgotten, WindowTooShort, LeadOneAhead)
    },
    **{
        each.__name__: _source_with(repairs_class=each) for each in (RepairsEachNak, RepairsTheNext)
    },
    **{each.__name__: each for each in (NoBucket, NoSpms, NakOfTheOtherHalf, FinWithoutDraining)},
}
