"""States what must hold of a PGM session, judged from its packets and events alone.

- *Once and in order*: every number from the first on is in exactly one APDU or one loss, and no
  other number is reported.
- *True*: an APDU is what the application sent, octet by octet, under the numbers that the source
  used for it.
- *Justified*: a loss has a reason that is true: the source's window has passed the number, the
  retries were made, and so on.
- *Complete*: at the end everything is reported, and no memory is kept.
- *Bounded*: no rate and no window is exceeded, SPMs are sent in time, and the trail waits for
  pending NAKs.

``now`` is in seconds of the simulated clock. Each broken rule is a text in ``problems``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from srmp_spark.pgm.outputs import (
    Apdu,
    DataLost,
    LossReason,
    Multicast,
    Output,
    SessionEnded,
    SessionOpened,
    SourceRefused,
    Unicast,
)
from srmp_spark.pgm.settings import PgmReceiverSettings, PgmSourceSettings
from srmp_spark.pgm.wire.decoder import decode
from srmp_spark.pgm.wire.packets import Data, Nak, PacketType, Spm
from srmp_spark.pgm.wire.sequence import unwrap, wrap

ROUNDING = 1e-6


class Meter:
    """A second implementation of a token bucket, which detects that a rate is exceeded.

    ``rate`` is in units a second, ``size`` is the most units at once.
    """

    def __init__(self, rate: float, size: float) -> None:
        self._rate, self._size = rate, size
        self._level = 0.0
        self._at = 0.0

    def add(self, count: float, now: float) -> bool:
        """Count ``count`` units at ``now``, and return whether the rate is still kept."""
        self._level = max(0.0, self._level - (now - self._at) * self._rate) + count
        self._at = now
        return self._level <= self._size + self._rate * ROUNDING


class SourceLedger:
    """Records what the source sent, and checks it.

    ``lead`` and ``trail`` are unwrapped numbers. ``pending`` has the numbers for which a NAK waits.
    """

    def __init__(self, settings: PgmSourceSettings, first: int) -> None:
        self.settings = settings
        self.problems: list[str] = []
        self.apdus: list[bytes] = []
        """APDUs in the order in which the application sent them."""
        self.ranges: list[tuple[int, int]] = []
        """First and last sequence number of each APDU that was sent completely."""
        self.apdu_of: dict[int, int] = {}
        self.sent_at: dict[int, float] = {}
        self.lead = first - 1
        self.trail = first
        self.pending: set[int] = set()
        self.healed_at: float | None = None
        """Time at which the faults ended, in seconds, or ``None``."""
        self.octets = 0
        """Octets of all data packets and SPMs together."""
        self._begin = first
        self._octets = 0
        size = max(settings.txw_max_rte * settings.token_bucket, settings.tpdu_max)
        self._rate = Meter(settings.txw_max_rte, size)
        self._ncfs = Meter(settings.ncf_rate_max, max(1.0, settings.ncf_rate_max * 0.1))
        self._spm_at: float | None = None
        self._data_since_spm = 0
        self.slack_s = 3 * size / settings.txw_max_rte
        """Seconds that an SPM may be late because it waits for tokens."""

    def packet(self, octets: bytes, now: float) -> None:
        """Check and record a packet that the source multicast at ``now``."""
        packet = decode(octets)
        if isinstance(packet, Nak):
            if not self._ncfs.add(1, now):
                self.problems.append("NCF_RATE_MAX is passed")
            return
        if not self._rate.add(len(octets), now):
            self.problems.append("TXW_MAX_RTE is passed")
        self.octets += len(octets)
        if isinstance(packet, Spm):
            self._spm(packet, now)
        elif isinstance(packet, Data):
            self._data(packet, now)

    def _spm(self, spm: Spm, now: float) -> None:
        last, limit = self._spm_at, self.settings.ambient_spm_ivl + self.slack_s
        if last is not None and now - last > limit:
            self.problems.append(f"{now - last:.3f} s without an SPM")
        self._spm_at, self._data_since_spm = now, 0
        if wrap(self.lead) != spm.lead:
            self.problems.append(f"an SPM says lead {spm.lead}, sent was {wrap(self.lead)}")
        self._trail(unwrap(spm.trail, self.trail), now)

    def _data(self, data: Data, now: float) -> None:
        self._data_since_spm += 1
        if self._data_since_spm > self.settings.ambient_spm_packets:
            self.problems.append("more than 50 data packets without an SPM")
        number = unwrap(data.sequence_number, self.lead)
        self._trail(unwrap(data.trail, self.trail), now)
        if data.is_repair:
            if number not in self.pending:
                self.problems.append(f"RDATA {number} that nobody asked for")
            self.pending.discard(number)
            return
        if number != self.lead + 1:
            self.problems.append(f"ODATA {number} after {self.lead}")
        self.lead = number
        self.sent_at[number] = now
        place = len(self.ranges)
        self.apdu_of[number] = place
        if data.payload != self.apdus[place][self._octets : self._octets + len(data.payload)]:
            self.problems.append(f"ODATA {number} is not what the application sent")
        self._octets += len(data.payload)
        if self._octets == len(self.apdus[place]):
            self.ranges.append((self._begin, number))
            self._begin, self._octets = number + 1, 0

    def _trail(self, trail: int, now: float) -> None:
        if trail < self.trail or trail > self.lead + 1:
            self.problems.append(f"the trail is {trail} after {self.trail}, sent was {self.lead}")
        settings = self.settings
        overdue = now - (settings.txw_secs + settings.advance_delay_max)
        for number in range(self.trail, trail):
            age = now - self.sent_at.get(number, 0.0)
            if number in self.pending and self.sent_at[number] > overdue + ROUNDING:
                self.problems.append(f"the trail passed {number}, for which a NAK is pending")
            elif age < settings.txw_secs - settings.txw_adv_secs - ROUNDING:
                self.problems.append(f"{number} was dropped after {age:.3f} s")
            self.pending.discard(number)
        self.trail = max(self.trail, trail)

    def asked(self, numbers: Sequence[int], trail: int) -> None:
        """Record that a NAK reached the source, for ``numbers`` as they are in the packet.

        The window of the source begins at ``trail``. Numbers outside the window are ignored.
        """
        for number in (unwrap(each, self.lead) for each in numbers):
            if trail <= number <= self.lead:
                self.pending.add(number)


class ReceiverLedger:
    """Records what one receiver reported and sent, and checks it.

    ``first`` and ``next`` are unwrapped numbers: the first of the session, and the next to be
    reported.
    """

    def __init__(self, name: str, source: SourceLedger, settings: PgmReceiverSettings) -> None:
        self.name = name
        self.settings = settings
        self.told: Counter[str] = Counter()
        self.ended: SessionEnded | None = None
        self.first: int | None = None
        self.next = 0
        self.allowed: set[LossReason] = {
            LossReason.TRAIL,
            LossReason.RETRIES,
            LossReason.INCOMPLETE,
            LossReason.JOINED,
        }
        """Reasons for a loss that this run may have."""
        self.problems: list[str] = []
        self._source = source
        self._lost: dict[int, LossReason] = {}
        self._naks = Meter(settings.nak_rate_max, max(1.0, settings.nak_rate_max * 0.1))

    def output(self, output: Output, now: float) -> None:
        """Check and record one output of the receiver."""
        if isinstance(output, Unicast):
            self._nak(output.packet, now)
        elif isinstance(output, SessionOpened):
            if self.first is not None:
                self.problems.append("the session began twice")
            self.first = self.next = unwrap(output.first, self._source.lead)
        elif isinstance(output, SessionEnded):
            self.ended = output
        elif not isinstance(output, Multicast | SourceRefused):
            self._step(output, now)

    def _nak(self, octets: bytes, now: float) -> None:
        if not self._naks.add(1, now):
            self.problems.append("NAK_RATE_MAX is passed")
        packet = decode(octets)
        if not isinstance(packet, Nak) or packet.type is not PacketType.NAK:
            self.problems.append(f"{packet} went upstream")
        elif len(set(packet.numbers)) != len(packet.numbers):
            self.problems.append(f"a NAK with a number twice: {packet.numbers}")
        elif any(
            not self.next <= unwrap(number, self.next) <= self._source.lead
            for number in packet.numbers
        ):
            self.problems.append(
                f"a NAK for {packet.numbers}, next is {wrap(self.next)}, sent was "
                f"{wrap(self._source.lead)}"
            )

    def _step(self, event: Apdu | DataLost, now: float) -> None:
        if self.ended is not None:
            self.problems.append("something was told after the end")
        if self.first is None or event.first != wrap(self.next):
            self.problems.append(f"{event.first} was told, {wrap(self.next)} was next")
            return
        first, last = self.next, unwrap(event.last, self.next)
        if last < first or last > self._source.lead:
            self.problems.append(f"{first} to {last} was told, sent was {self._source.lead}")
            return
        self.next = last + 1
        if isinstance(event, DataLost):
            self.told[f"lost: {event.reason.value}"] += 1
            for number in range(first, last + 1):
                self._lost[number] = event.reason
                self._check_loss(number, event.reason, now)
            return
        self.told["apdu"] += 1
        place = self._source.apdu_of[first]
        if place >= len(self._source.ranges) or self._source.ranges[place] != (first, last):
            self.problems.append(f"an APDU of {first} to {last} was told, and none was sent so")
        elif self._source.apdus[place] != event.data:
            self.problems.append(f"the APDU of {first} to {last} is not what was sent")

    def _check_loss(self, number: int, reason: LossReason, now: float) -> None:
        settings = self.settings
        if reason not in self.allowed:
            self.problems.append(f"{number} is lost because {reason.value}: not in this run")
        elif reason is LossReason.TRAIL and number >= self._source.trail:
            self.problems.append(f"{number} is lost by the trail, which is {self._source.trail}")
        elif reason is LossReason.TRAIL and self._was_there_long_enough(number, now):
            self.problems.append(
                f"{number} could be repaired long after the faults ended, and was not"
            )
        elif reason is LossReason.RETRIES:
            cycles = min(settings.nak_ncf_retries, settings.nak_data_retries) + 1
            least = min(
                settings.repair_secs, cycles * min(settings.nak_rpt_ivl, settings.nak_rdata_ivl)
            )
            if now - self._source.sent_at[number] < least - ROUNDING:
                self.problems.append(
                    f"{number} was given up after {now - self._source.sent_at[number]:.3f} s"
                )

    def _was_there_long_enough(self, number: int, now: float) -> bool:
        """Return whether the packet ``number`` could have been repaired since the faults ended.

        The time needed for this is 5 seconds, three cycles of NAK generation, and the time to send
        everything twice.
        """
        source, settings = self._source, self.settings
        healed_at = source.healed_at
        if healed_at is None:
            return False
        cycle = settings.nak_rb_ivl[1] + settings.nak_rpt_ivl + settings.nak_rdata_ivl
        return (
            now - max(healed_at, source.sent_at[number])
            > 5.0 + 3 * cycle + 2 * source.octets / source.settings.txw_max_rte
        )

    def verdict(self) -> list[str]:
        """Return all problems of this receiver, one text each. Call this method after the run."""
        problems = list(dict.fromkeys(self.problems))
        if self.first is not None and self.ended is None:
            problems.append(
                f"the session never ended; next is {self.next}, sent was {self._source.lead}"
            )
        if (
            self.ended is not None
            and self.next != self._source.lead + 1
            and LossReason.SILENT not in self.allowed
        ):
            problems.append(f"told up to {self.next - 1}, sent was {self._source.lead}")
        for number, reason in self._lost.items():
            if reason in (LossReason.INCOMPLETE, LossReason.JOINED):
                problems += self._check_part(number, reason)
        return [f"{self.name}: {problem}" for problem in problems]

    def _check_part(self, number: int, reason: LossReason) -> list[str]:
        """Check a number that was lost because its APDU is incomplete or began before the join.

        Another packet of the same APDU must be lost, or must have been sent before the first packet
        of the session. Return the problems.
        """
        place = self._source.apdu_of[number]
        if place >= len(self._source.ranges):
            return []
        begin, end = self._source.ranges[place]
        if reason is LossReason.JOINED:
            return (
                []
                if self.first is not None and begin < self.first
                else [f"{number} joined nothing"]
            )
        others = (self._lost.get(other) for other in range(begin, end + 1))
        if any(other not in (None, LossReason.INCOMPLETE) for other in others):
            return []
        return [f"{number} is lost as a part, and all of its APDU came"]
