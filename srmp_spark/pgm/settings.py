"""The constants of [MC-MQSRM] 2.1.3.1 with its names and values, and the settings.

The settings are those that an operator may change. Invalid settings raise
:class:`ConfigurationError`. Times are in seconds, sizes in octets.
"""

from __future__ import annotations

from dataclasses import dataclass

from srmp_spark.errors import ConfigurationError
from srmp_spark.pgm.wire.limits import APDU_MAX, TPDU_MAX, TXW_SQNS_MAX

TXW_MAX_RTE = 70_000
"""Highest sending rate in octets a second: "70 kilobytes per second"."""
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
"""Size of the token bucket: the octets of this time at TXW_MAX_RTE, in seconds.

The document says "40 milliseconds".
"""
NAK_RB_IVL = (0.01, 0.05)
"""Range of the random back-off before a NAK, in seconds.

The document says "Chosen randomly from the interval [0.05, 0.01] seconds".
"""
AMBIENT_SPM_PACKETS = 50
AMBIENT_SPM_IVL = 0.5
"""Time after which an ambient SPM is sent, in seconds.

The SPM is sent earlier after AMBIENT_SPM_PACKETS packets. "When either 50 data packets (ODATA or
RDATA packets) have been transmitted, or 0.5 seconds have passed".
"""
RDATA_DELAY = 0.06
"""Longest delay of a repair (RDataDelayTime), in seconds: "60 msecs"."""

TPDU_DEFAULT = 1_472
"""Largest packet in octets unless configured: Ethernet's 1,500 without IPv4 and UDP headers.

Raw IP with the Router Alert option needs 4 octets less than UDP.
"""
QUEUE_BYTES_MAX = 1_048_576
"""Most octets of APDUs that may wait for the token bucket: 15 s at TXW_MAX_RTE.

When the queue is full, the caller must keep further APDUs.
"""
TXW_BYTES_MAX = 268_435_456
"""Most memory of a transmit window in octets, which matters at higher rates.

When the window is full, sending waits until the trail moves.
"""
NCF_RATE_MAX = 1_000.0
"""Highest rate of NCFs a second; further NAKs are not confirmed.

NCFs do not count for TXW_MAX_RTE, so without a limit a storm of NAKs would cause as many multicast
packets.
"""
NCF_REPEAT_IVL = 0.02
"""Time between two NCFs for identical NAKs, in seconds.

RFC 3208 5.2: "send the first NCF immediately in response to a NAK and then delay the generation of
further NCFs (for identical NAKs) by a small interval". Windows has no such defence ([MC-MQSRM]
<3>).
"""

NAK_RATE_MAX = 100.0
"""Highest rate of NAKs a second for one session; further NAKs wait.

Each NAK has up to 63 numbers. The rate is far above the losses possible at 70 KB/s, and far below a
storm.
"""
NAK_RATE_ALL_MAX = 200.0
"""Highest rate of NAKs a second for all sessions of a receiver together; further NAKs wait.

One packet is enough to create a session. Without a common rate, SESSIONS_MAX forged sessions would
send 6,400 packets a second to the addresses that the forged packets name.
"""
REPAIR_SECS = TXW_SECS + TXW_ADV_SECS
"""Longest time for which a missing number is requested, in seconds.

Then the number is reported as lost. By the RFC each NCF or NAK that is received restarts the wait,
so others could make the receiver wait forever. After this time no window holds the number.
"""
SESSION_IDLE = TXW_SECS
"""Time without a packet after which a session ends, in seconds.

An SPM is sent twice a second.
"""
RXW_SQNS_MAX = 16_384
"""Most numbers from the first missing one to the last, in one session.

Beyond the limit the oldest missing numbers are declared lost, and the losses are reported. The
numbers hold TXW_SECS at TXW_MAX_RTE in packets of 1,280 octets. Without the limit one forged packet
would create a list of 2^31 numbers.
"""
RXW_BYTES_MAX = 33_554_432
"""Most octets that one session may buffer after a missing number.

Beyond the limit the oldest missing numbers are declared lost. The limit is 1.5 times TXW_SECS at
TXW_MAX_RTE.
"""
BUFFER_BYTES_MAX = 134_217_728
"""Most octets that all sessions of a receiver may buffer together.

In the session that exceeds the limit the oldest missing numbers are declared lost.
"""
REPLACED_AFTER = 2 * IHB_MAX
"""Silence after which a session may be replaced if SESSIONS_MAX sessions exist, in seconds.

A living source would have lost two heartbeats by then; a source that follows 2.1.3.1 would have
lost sixty SPMs.
"""
SESSIONS_MAX = 64
"""Most sources at the same time in one group and port; further sources are ignored.

A limit is needed because a TSI is 64 bits that anybody can invent.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PgmSourceSettings:
    """The settings of one source. Times are in seconds, sizes in octets.

    Raises :class:`ConfigurationError` if a value is out of range.
    """

    txw_max_rte: float = TXW_MAX_RTE
    txw_secs: float = TXW_SECS
    txw_adv_secs: float = TXW_ADV_SECS
    txw_adv_ivl: float = TXW_ADV_IVL
    advance_delay_max: float = TXW_ADV_SECS
    """Longest time for which the trail waits for pending NAKs, in seconds.

    2.1.3.1 sets no end; a receiver that sends NAKs again and again would stop the source.
    """
    ihb_min: float = IHB_MIN
    ihb_max: float = IHB_MAX
    token_bucket: float = TOKEN_BUCKET_S
    ambient_spm_packets: int = AMBIENT_SPM_PACKETS
    ambient_spm_ivl: float = AMBIENT_SPM_IVL
    rdata_delay: float = RDATA_DELAY
    join_percent: int = 0
    """Percentage of the window that late receivers may request (OPT_JOIN).

    Windows sends no OPT_JOIN ([MC-MQSRM] <3>).
    """
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
                "late receivers may request 0 to 75 percent; ambient SPMs are sent after at "
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
class PgmReceiverSettings:
    """The settings of one receiver. Times are in seconds, sizes in octets, rates per second.

    Raises :class:`ConfigurationError` if a value is out of range.
    """

    nak_rb_ivl: tuple[float, float] = NAK_RB_IVL
    nak_rpt_ivl: float = NAK_RPT_IVL
    nak_rdata_ivl: float = NAK_RDATA_IVL
    nak_ncf_retries: int = NAK_NCF_RETRIES
    nak_data_retries: int = NAK_DATA_RETRIES
    nak_rate_max: float = NAK_RATE_MAX
    nak_rate_all_max: float = NAK_RATE_ALL_MAX
    trust_spm_path: bool = False
    """Whether NAKs are sent to the network element that an SPM names, if it is not the source.

    With this setting a forged SPM chooses who receives this receiver's NAKs. Set it only if PGM
    routers stand between source and receiver, in a network to which no other party can send.
    """
    repair_secs: float = REPAIR_SECS
    session_idle: float = SESSION_IDLE
    multicast_naks: bool = True
    """Whether each NAK is also multicast with TTL 1, in addition to the one to the source.

    Windows always does so ([MC-MQSRM] <3>, of RFC 3208 6.3).
    """
    honour_join: bool = True
    """Whether a late receiver requests the data that OPT_JOIN allows (RFC 3208 9.4.2)."""
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
