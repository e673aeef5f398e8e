"""The source of a session (RFC 3208 5, 9, 16; [MC-MQSRM] 2.1.3), without any I/O.

Theory of operation, for the owner of the socket. ``send(apdu)`` queues an APDU. ``poll(now)``
returns the packets to multicast now, as far as the token bucket allows, in the order of RFC 3208
5.1.3: NCFs, then SPMs, then data. Repairs and new data take turns when both wait. ``receive(packet,
now)`` processes a received packet and returns NCFs, which never wait. Call ``poll`` again at
``next_timer()``, and after ``send``.

TXW_MAX_RTE counts the octets of SPM, ODATA and RDATA packets ("Windows does not use any other
definition", [MC-MQSRM] <3>), without their IP headers.

A packet gets its number when it is sent for the first time. An APDU that does not fit into one
packet is cut (9.2). An APDU that fits carries no OPT_FRAGMENT, because OpenPGM's receiver would
crash.
"""

from __future__ import annotations

from collections import Counter, deque

from srmp_spark.errors import LocalProtocolError
from srmp_spark.pgm.outputs import Multicast
from srmp_spark.pgm.sending.confirmations import Confirmations, Numbers
from srmp_spark.pgm.sending.repair_queue import RepairQueue
from srmp_spark.pgm.sending.source_states import (
    ANSWERS,
    ENDING,
    TRANSITIONS,
    PgmSourceEvent,
    PgmSourceState,
)
from srmp_spark.pgm.sending.spm_schedule import SpmSchedule
from srmp_spark.pgm.sending.transmit_window import Sent, TransmitWindow
from srmp_spark.pgm.settings import PgmSourceSettings
from srmp_spark.pgm.token_bucket import TokenBucket
from srmp_spark.pgm.wire.addresses import Nla, Tsi
from srmp_spark.pgm.wire.checksum import sum_of
from srmp_spark.pgm.wire.encoder import DataEncoder, encode
from srmp_spark.pgm.wire.limits import APDU_SENT_MAX
from srmp_spark.pgm.wire.packets import (
    NO_OPTIONS,
    Fragment,
    Nak,
    Options,
    Packet,
    PacketType,
    Reset,
    Spm,
    Spmr,
)
from srmp_spark.pgm.wire.sequence import SPACE, unwrap, wrap
from srmp_spark.transitions import next_state

SPM_OCTETS_MAX = 68
"""Largest SPM in octets: with an IPv6 address, OPT_LENGTH, OPT_JOIN, OPT_FIN and OPT_RST."""
DATA_HEADER = 24
"""Octets of an ODATA or RDATA packet before its options or its data."""
_MASK = SPACE - 1
FRAGMENT_OPTIONS = 20
"""Octets that the options OPT_LENGTH and OPT_FRAGMENT take in a packet."""


class PgmSource:
    """Sends the APDUs of one session to one group and port.

    ``now`` and all times are in seconds of the monotonic clock. ``first`` is the number of the
    first data packet.
    """

    window_class: type[TransmitWindow] = TransmitWindow
    """Class of the transmit window.

    The simulator sets a faulty class, to check that the fault is detected.
    """
    repairs_class: type[RepairQueue] = RepairQueue

    def __init__(
        self,
        tsi: Tsi,
        destination_port: int,
        *,
        source: Nla,
        group: Nla,
        now: float,
        settings: PgmSourceSettings | None = None,
        first: int = 0,
    ) -> None:
        self.tsi = tsi
        self.destination_port = destination_port
        self.settings = settings = settings or PgmSourceSettings()
        self.state = PgmSourceState.OPEN
        self.counts: Counter[str] = Counter()
        """Numbers of sent and received packets by kind, for metrics."""
        self._source, self._group = source, group
        self._encoder = DataEncoder(tsi, destination_port)
        self.window = self.window_class(first, settings, now)
        self.repairs = self.repairs_class(self.window, settings.rdata_delay)
        self._waiting: deque[bytes] = deque()
        self._waiting_octets = 0
        self._room = settings.tpdu_max - DATA_HEADER
        """Size in octets of the largest APDU that fits into one packet."""
        self._cut_at = self._cut_first = 0
        """Octets of the first waiting APDU that were already sent.

        ``_cut_first`` is the number of its first packet.
        """
        self._spms = SpmSchedule(settings, now)
        self._spm_number = 0
        self._last_spmr = now - settings.ihb_min
        self._confirmations = Confirmations(settings, now)
        # The bucket is not smaller than any packet, or that packet would never be sent.
        size = max(settings.txw_max_rte * settings.token_bucket, settings.tpdu_max, SPM_OCTETS_MAX)
        self._bucket = TokenBucket(settings.txw_max_rte, size, now)
        self._blocked = 0
        """Octets of the packet that waits for tokens; 0 if none waits."""
        self._spm_waits = False
        """Whether the packet that waits for tokens is an SPM."""
        self._repair_is_next = True
        self._reset: Reset | None = None
        self._closed_at = 0.0

    # --- methods for the application --------------------------------------------------------------

    def has_room(self, octets: int) -> bool:
        """Return whether an APDU of ``octets`` octets can be queued now.

        The APDUs that wait have at most ``queue_bytes_max`` octets together. If there is no room,
        ask again after the next packets were sent.
        """
        return self._waiting_octets + octets <= self.settings.queue_bytes_max

    @property
    def waiting(self) -> int:
        """Return the number of APDUs that were not sent completely, including those not begun."""
        return len(self._waiting)

    def send(self, apdu: bytes) -> None:
        """Queue an APDU, which :meth:`poll` sends.

        Raises :class:`LocalProtocolError` if the APDU is empty or has more than APDU_SENT_MAX
        octets, if the queue has no room, or if the source is not open.
        """
        self._move(PgmSourceEvent.SEND)
        if not 1 <= len(apdu) <= APDU_SENT_MAX:
            raise LocalProtocolError(
                f"an APDU has 1 to {APDU_SENT_MAX} octets ([MC-MQSRM] 2.1.3.1), got {len(apdu)}"
            )
        if not self.has_room(len(apdu)):
            raise LocalProtocolError(
                "the queue of the source is full: ask has_room() before send()"
            )
        self._waiting.append(apdu)
        self._waiting_octets += len(apdu)

    def close(self, now: float) -> None:
        """Begin to close the session: first the waiting APDUs are sent (RFC 3208 9.7.2).

        Then OPT_FIN is announced, and repairs continue for TXW_SECS. The call itself sends nothing:
        the packets are those of :meth:`poll`. A second call does nothing.
        """
        self._move(PgmSourceEvent.CLOSE)
        self._drained(now)

    def reset(self, now: float, error_code: int = 0) -> None:
        """Abort the session and discard the waiting APDUs (RFC 3208 9.8.2).

        :meth:`poll` then announces OPT_RST for TXW_SECS. ``error_code`` is sent in OPT_RST; the
        application defines its meaning. A second call, or one after the end, does nothing.
        """
        was_reset = self._reset is not None
        self._move(PgmSourceEvent.RESET)
        if was_reset or self.state is PgmSourceState.CLOSED:
            return
        self._reset = Reset(True, error_code)
        self._waiting.clear()
        self._waiting_octets = self._cut_at = 0
        self.repairs.clear()
        self._announce_end(now)

    def _drained(self, now: float) -> None:
        if self.state is PgmSourceState.DRAINING and not self._waiting:
            self._move(PgmSourceEvent.DRAINED)
            self._announce_end(now)

    def _announce_end(self, now: float) -> None:
        self._spms.at_once(now)
        self._closed_at = now + self.settings.txw_secs

    def _move(self, event: PgmSourceEvent) -> None:
        self.state = next_state(TRANSITIONS, self.state, event, self)

    # --- packets from the group -------------------------------------------------------------------

    def receive(self, packet: Packet, now: float) -> list[Multicast]:
        """Process a received packet, and return NCFs to multicast at once.

        A NAK also queues repairs, which :meth:`poll` sends. Packets that are not for this session
        are counted and ignored.
        """
        if packet.tsi != self.tsi or packet.destination_port != self.destination_port:
            self.counts["of another session"] += 1
        elif isinstance(packet, Nak) and packet.type is PacketType.NAK:
            return self._nak(packet, now)
        elif isinstance(packet, Spmr):
            self._spmr(now)
        else:
            # NNAKs are for local repairers, POLRs for pollers (RFC 3208 7 and 14). Other packets
            # are those of this source, or forged.
            self.counts["passed over"] += 1
        return []

    def _nak(self, nak: Nak, now: float) -> list[Multicast]:
        if nak.source != self._source or nak.group != self._group:
            self.counts["nak for another"] += 1
            return []
        self.counts["nak"] += 1
        if self.state not in ANSWERS:
            return []
        for number in nak.numbers:
            if not self.repairs.request(unwrap(number, self.window.lead), now):
                self.counts["nak outside the window"] += 1
        if not self._confirmations.confirm(nak.numbers, now):
            self.counts["ncf held back"] += 1
            return []
        return [self._ncf(nak.numbers)]

    def _spmr(self, now: float) -> None:
        """Process a request for an SPM: make an SPM due now, at most once per IHB_MIN.

        RFC 3208 13.4: "rate limited to once per IHB_MIN per TSI". [MC-MQSRM] does not require
        answers, but OpenPGM sends such requests.
        """
        if (
            now - self._last_spmr >= self.settings.ihb_min
            and self.state is not PgmSourceState.CLOSED
        ):
            self._last_spmr = now
            self._spms.at_once(now)

    def poll(self, now: float) -> list[Multicast]:
        """Return the packets to multicast now, and count them as sent.

        The token bucket limits the packets, and those without tokens wait for a later call. The
        window advances, and a session whose time is over closes.
        """
        if self.state in ENDING and now >= self._closed_at:
            self._move(PgmSourceEvent.EXPIRED)
        if self.state is PgmSourceState.CLOSED:
            return []
        self.window.advance(now, self.repairs.__contains__)
        # This is called in every state, because NCFs that are due would otherwise be due forever.
        again = self._confirmations.due(now)
        out = [self._ncf(numbers) for numbers in again] if self.state in ANSWERS else []
        while True:
            packet = self._spm(now) if self._spms.is_due(now) else self._data(now)
            if packet is None:
                return out
            out.append(packet)

    def next_timer(self) -> float | None:
        """Return the time at which :meth:`poll` has something to do.

        The time may have passed. Return ``None`` if the source is closed.
        """
        if self.state is PgmSourceState.CLOSED:
            return None
        times: list[float | None] = [self.window.advance_at, self._confirmations.next()]
        if self._blocked:
            times.append(self._bucket.when(self._blocked))
        # If an SPM waits, data wait for that SPM (5.1.3), and so do repairs that are due.
        if not self._spm_waits:
            times += (self._spms.next(), self.repairs.next())
        if self.state in ENDING:
            times.append(self._closed_at)
        return min(time for time in times if time is not None)

    # --- packets to send --------------------------------------------------------------------------

    def _take(self, octets: int, now: float) -> bool:
        """Take the tokens for a packet of ``octets`` octets; return whether there were enough.

        If not, ``octets`` is kept in :attr:`_blocked`, and this packet and all packets after it
        wait.
        """
        self._blocked = 0 if self._bucket.take(octets, now) else octets
        return not self._blocked

    def _ncf(self, numbers: Numbers) -> Multicast:
        """Build the NCF that confirms a NAK of ``numbers``.

        RFC 3208 9.3.4: "an identical NCF containing the same NAK list as the NAK itself".
        """
        self.counts["ncf"] += 1
        options = Options(nak_list=numbers[1:]) if len(numbers) > 1 else NO_OPTIONS
        nak = Nak(
            PacketType.NCF,
            self.tsi,
            self.destination_port,
            numbers[0],
            self._source,
            self._group,
            options,
        )
        return Multicast(encode(nak), router_alert=True)

    def _spm(self, now: float) -> Multicast | None:
        window = self.window
        join = None
        if self.settings.join_percent and len(window):
            join = wrap(window.lead + 1 - len(window) * self.settings.join_percent // 100)
        options = Options(join=join, fin=self.state is PgmSourceState.FINISHING, reset=self._reset)
        spm = Spm(
            self.tsi,
            self.destination_port,
            wrap(self._spm_number),
            wrap(window.trail),
            wrap(window.lead),
            self._source,
            options if options != NO_OPTIONS else NO_OPTIONS,
        )
        packet = encode(spm)
        self._spm_waits = not self._take(len(packet), now)
        if self._spm_waits:
            return None
        self._spm_number += 1
        self._spms.spm_sent(now)
        self.counts["spm"] += 1
        return Multicast(packet, router_alert=True)

    def _data(self, now: float) -> Multicast | None:
        """Return the next repair or new data packet, in turns, or ``None`` if none can be sent now.

        Neither a stream of NAKs nor a busy application can stop the other.
        """
        number = self.repairs.ready(now) if self.repairs else None
        has_new = bool(self._waiting) and not self.window.is_full
        if number is not None and (self._repair_is_next or not has_new):
            return self._rdata(number, now)
        if has_new:
            return self._odata(now)
        self._blocked = 0
        return None

    def _rdata(self, number: int, now: float) -> Multicast | None:
        sent = self.window.get(number)
        if sent is None:
            raise LocalProtocolError(f"{number} is to be repaired and not in {self.window!r}")
        if not self._take(_octets(sent.payload, sent.fragment), now):
            return None
        self.repairs.sent()
        return self._data_packet(number, sent, now, is_repair=True)

    def _odata(self, now: float) -> Multicast | None:
        window, apdu, fragment = self.window, self._waiting[0], None
        payload = apdu
        if len(apdu) > self._room:
            payload = apdu[self._cut_at : self._cut_at + self._room - FRAGMENT_OPTIONS]
            first = self._cut_first if self._cut_at else window.lead + 1
            fragment = Fragment(wrap(first), self._cut_at, len(apdu))
            self._cut_first = first
        if not self._take(_octets(payload, fragment), now):
            return None
        self._cut_at += len(payload)
        if self._cut_at == len(apdu):
            self._waiting.popleft()
            self._waiting_octets -= len(apdu)
            self._cut_at = 0
        sent = Sent(payload, sum_of(payload), fragment, now)
        window.append(sent)
        if not self._waiting:
            self._drained(now)
        return self._data_packet(window.lead, sent, now, is_repair=False)

    def _data_packet(self, number: int, sent: Sent, now: float, *, is_repair: bool) -> Multicast:
        self._repair_is_next = not is_repair
        self._spms.data_sent(now)
        self.counts["rdata" if is_repair else "odata"] += 1
        packet = self._encoder.encode(
            number & _MASK,
            self.window.trail & _MASK,
            sent.payload,
            sent.payload_sum,
            sent.fragment,
            is_repair=is_repair,
        )
        return Multicast(packet, is_repair)

    def __repr__(self) -> str:
        return (
            f"<Source {self.tsi} {self.state.name} {self.window!r} "
            f"waiting={len(self._waiting)} pending={len(self.repairs)} "
            f"{self._bucket!r}>"
        )


def _octets(payload: bytes, fragment: Fragment | None) -> int:
    return DATA_HEADER + len(payload) + (0 if fragment is None else FRAGMENT_OPTIONS)
