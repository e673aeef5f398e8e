"""The constants of [MC-MQSRM] 2.1.3.1, in its names and with its values, and what an operator may make of them.

Raises :class:`ConfigurationError` for what makes no sense. Times are seconds, sizes octets.
"""

from __future__ import annotations

from dataclasses import dataclass

from srmp_spark.errors import ConfigurationError
from srmp_spark.pgm.limits import APDU_MAX, TPDU_MAX, TXW_SQNS_MAX

TXW_MAX_RTE = 70_000
"""Octets a second: "70 kilobytes per second"."""
TXW_SECS = 300.0
TXW_ADV_SECS = 0.15 * TXW_SECS
TXW_ADV_IVL = 0.15 * TXW_SECS
IHB_MIN = 1.0
IHB_MAX = 15.0
NAK_RPT_IVL = 0.75
NAK_RDATA_IVL = 2.0
NAK_NCF_RETRIES = 10
NAK_DATA_RETRIES = 10
TOKEN_BUCKET_S = 0.04
"""Token bucket size: "40 milliseconds" of TXW_MAX_RTE."""
NAK_RB_IVL = (0.01, 0.05)
""""Chosen randomly from the interval [0.05, 0.01] seconds"."""
AMBIENT_SPM_PACKETS = 50
AMBIENT_SPM_IVL = 0.5
""""When either 50 data packets (ODATA or RDATA packets) have been transmitted, or 0.5 seconds have passed"."""
RDATA_DELAY = 0.06
"""The longest RDataDelayTime: "60 msecs"."""

TPDU_DEFAULT = 1_472
"""What Ethernet's 1,500 octets leave behind an IPv4 and a UDP header; raw IP with the Router Alert option needs 4 less."""
QUEUE_BYTES_MAX = 1_048_576
"""APDUs that wait for the token bucket: 15 s at TXW_MAX_RTE. Whoever sends keeps the rest."""
TXW_BYTES_MAX = 268_435_456
"""A transmit window of a higher rate is kept in memory, too: 256 MiB. When it is full, sending waits for the trail to move."""
NCF_RATE_MAX = 1_000.0
"""NCFs a second. They are outside TXW_MAX_RTE, so a storm of NAKs is answered by as many multicast packets."""
NCF_REPEAT_IVL = 0.02
"""RFC 3208 5.2: "send the first NCF immediately in response to a NAK and then delay the generation of further NCFs (for
identical NAKs) by a small interval". Windows has no such defence ([MC-MQSRM] <3>)."""

NAK_RATE_MAX = 100.0
"""NAKs a second for one session, each of up to 63 numbers: far above what 70 KB/s can lose, far below a storm."""
NAK_RATE_ALL_MAX = 200.0
"""NAKs a second for all sessions of a receiver together: sessions are made up with one packet each, and without a
common rate SESSIONS_MAX of them would be 6,400 packets a second to whomever their packets name."""
REPAIR_SECS = TXW_SECS + TXW_ADV_SECS
"""How long a number is asked for at most. By the RFC each NCF or NAK that is heard begins the wait anew, so others could keep
us waiting for ever; by then no window holds it."""
SESSION_IDLE = TXW_SECS
"""A session that is not heard of for so long is over: an SPM comes twice a second."""
RXW_SQNS_MAX = 16_384
"""Numbers from the first that is missing to the last: what TXW_SECS at TXW_MAX_RTE hold in packets of 1,280 octets. A number
farther ahead gives up the oldest, and that is reported; one forged packet would otherwise cost us a list of 2^31."""
RXW_BYTES_MAX = 33_554_432
"""What one session may hold behind a missing number: half as much again as TXW_SECS at TXW_MAX_RTE."""
BUFFER_BYTES_MAX = 134_217_728
"""What all sessions may hold together. The session that passes it pays: its oldest missing numbers are given up."""
REPLACED_AFTER = 2 * IHB_MAX
"""Where SESSIONS_MAX are heard, one that is silent for so long, seconds, makes room: of a source that lives two heartbeats are
lost then, and of one that keeps to 2.1.3.1 sixty SPMs."""
SESSIONS_MAX = 64
"""Sources at once in one group and port. A TSI is 64 bits that anybody can make up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """What a source goes by."""

    txw_max_rte: float = TXW_MAX_RTE
    txw_secs: float = TXW_SECS
    txw_adv_secs: float = TXW_ADV_SECS
    txw_adv_ivl: float = TXW_ADV_IVL
    advance_delay_max: float = TXW_ADV_SECS
    """How long the trail waits for pending NAKs. 2.1.3.1 names no end; somebody who asks again and again would stop us."""
    ihb_min: float = IHB_MIN
    ihb_max: float = IHB_MAX
    token_bucket: float = TOKEN_BUCKET_S
    ambient_spm_packets: int = AMBIENT_SPM_PACKETS
    ambient_spm_ivl: float = AMBIENT_SPM_IVL
    rdata_delay: float = RDATA_DELAY
    join_percent: int = 0
    """Of the window that late receivers may ask for (OPT_JOIN). Windows sends none ([MC-MQSRM] <3>)."""
    tpdu_max: int = TPDU_DEFAULT
    queue_bytes_max: int = QUEUE_BYTES_MAX
    txw_bytes_max: int = TXW_BYTES_MAX
    txw_sqns_max: int = TXW_SQNS_MAX
    ncf_rate_max: float = NCF_RATE_MAX
    ncf_repeat_ivl: float = NCF_REPEAT_IVL

    def __post_init__(self) -> None:
        rates = (
            self.txw_max_rte,
            self.txw_secs,
            self.txw_adv_secs,
            self.txw_adv_ivl,
            self.token_bucket,
            self.ambient_spm_ivl,
            self.ihb_min,
            self.ncf_rate_max,
        )
        if (
            min(rates) <= 0
            or min(self.advance_delay_max, self.rdata_delay, self.ncf_repeat_ivl) < 0
        ):
            raise ConfigurationError("the rates and times of a PGM source are above 0")
        if self.txw_adv_secs >= self.txw_secs or self.ihb_max < self.ihb_min:
            raise ConfigurationError(
                "TXW_ADV_SECS is less than TXW_SECS, IHB_MAX is at least IHB_MIN"
            )
        if not 64 <= self.tpdu_max <= TPDU_MAX:
            raise ConfigurationError(f"a PGM packet has between 64 and {TPDU_MAX} octets")
        if not 0 <= self.join_percent <= 75 or self.ambient_spm_packets < 1:
            raise ConfigurationError(
                "late receivers may ask for 0 to 75 percent; ambient SPMs come after at "
                "least 1 packet"
            )
        if (
            self.queue_bytes_max < APDU_MAX
            or self.txw_bytes_max < APDU_MAX
            or not 1 <= self.txw_sqns_max <= TXW_SQNS_MAX
        ):
            raise ConfigurationError(
                "the queue and the window of a PGM source hold at least one APDU of 64 KB"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverSettings:
    """What a receiver goes by."""

    nak_rb_ivl: tuple[float, float] = NAK_RB_IVL
    nak_rpt_ivl: float = NAK_RPT_IVL
    nak_rdata_ivl: float = NAK_RDATA_IVL
    nak_ncf_retries: int = NAK_NCF_RETRIES
    nak_data_retries: int = NAK_DATA_RETRIES
    nak_rate_max: float = NAK_RATE_MAX
    nak_rate_all_max: float = NAK_RATE_ALL_MAX
    trust_spm_path: bool = False
    """Send NAKs to the network element that an SPM names, where it is not the source itself. Whoever forges an SPM
    chooses then whom our NAKs reach: only where routers of PGM stand between, in a network that nobody else writes to."""
    repair_secs: float = REPAIR_SECS
    session_idle: float = SESSION_IDLE
    multicast_naks: bool = True
    """With TTL 1, beside the one to the source: Windows does so always ([MC-MQSRM] <3>, of RFC 3208 6.3)."""
    honour_join: bool = True
    """Ask for what OPT_JOIN allows when we come late (RFC 3208 9.4.2)."""
    rxw_sqns_max: int = RXW_SQNS_MAX
    rxw_bytes_max: int = RXW_BYTES_MAX
    buffer_bytes_max: int = BUFFER_BYTES_MAX
    sessions_max: int = SESSIONS_MAX

    def __post_init__(self) -> None:
        low, high = self.nak_rb_ivl
        if not 0 <= low <= high:
            raise ConfigurationError("NAK_RB_IVL is drawn between two times, the smaller one first")
        rates = (self.nak_rate_max, self.nak_rate_all_max)
        if (
            min(self.nak_rpt_ivl, self.nak_rdata_ivl, self.repair_secs, self.session_idle, *rates)
            <= 0
        ):
            raise ConfigurationError("the rates and times of a PGM receiver are above 0")
        if min(self.nak_ncf_retries, self.nak_data_retries) < 0 or self.sessions_max < 1:
            raise ConfigurationError("retries are at least 0, sessions at least 1")
        if (
            not 2 <= self.rxw_sqns_max <= TXW_SQNS_MAX
            or min(self.rxw_bytes_max, self.buffer_bytes_max) < APDU_MAX
        ):
            raise ConfigurationError(
                "the window of a PGM receiver holds at least two numbers and one APDU of 64 KB"
            )
