"""Decides when a source sends SPMs (RFC 3208 5.1.4 to 5.1.6, [MC-MQSRM] 2.1.3.1).

*Ambient* SPMs depend on time and on packets: one is sent after 50 data packets, or 0.5 s after the
last SPM, whichever is sooner. *Heartbeats* depend on silence: the first one is sent IHB_MIN after
the last data packet, and each interval is twice the one before, up to IHB_MAX. The two are
configured independently, as 5.1.6 demands. With the constants of 2.1.3.1 a heartbeat is never sent:
its interval counts from "the most recent packet (ODATA, RDATA, or SPM)", and an ambient SPM is
always sooner. A literal reading of 2.1.3.1 gives this result.
"""

from __future__ import annotations

from srmp_spark.pgm.settings import PgmSourceSettings

SPMS_AT_START = 3
"""Number of SPMs that a source sends at first, one after the other, as OpenPGM does.

A receiver must not request repairs before it has an SPM (RFC 3208 6.2), and a receiver that
receives data first does not know of earlier data. One lost SPM would delay the first repairs by
half a second and lose the first data.
"""


class SpmSchedule:
    """Decides when one source sends its next SPM.

    The first SPMs are due at once, before any data. Otherwise a receiver that misses the first
    packet would never know of that packet. ``now`` is in seconds of the monotonic clock.
    """

    def __init__(self, settings: PgmSourceSettings, now: float) -> None:
        self._settings = settings
        self._packets = 0
        self._first_ones = SPMS_AT_START
        self._ihb = settings.ihb_min
        self._ambient_at = now
        self._heartbeat_at = now + self._ihb

    def data_sent(self, now: float) -> None:
        """Record that ODATA or RDATA was sent at ``now``, which may make an SPM due."""
        self._packets += 1
        if self._packets >= self._settings.ambient_spm_packets:
            self._ambient_at = min(self._ambient_at, now)
        self._ihb = self._settings.ihb_min
        self._heartbeat_at = now + self._ihb

    def spm_sent(self, now: float) -> None:
        """Record that an SPM was sent at ``now``, for whatever reason."""
        if now >= self._heartbeat_at:
            self._ihb = min(2 * self._ihb, self._settings.ihb_max)
        self._heartbeat_at = now + self._ihb
        self._packets = 0
        self._first_ones = max(0, self._first_ones - 1)
        if self._first_ones:
            return
        self._ambient_at = now + self._settings.ambient_spm_ivl

    def at_once(self, now: float) -> None:
        """Make an SPM due now, because of OPT_FIN, OPT_RST or a received SPMR.

        9.7.2 calls this "resetting the SPM heartbeat timer".
        """
        self._ambient_at = min(self._ambient_at, now)
        self._ihb = self._settings.ihb_min

    def is_due(self, now: float) -> bool:
        """Return whether an SPM is to be sent by ``now``."""
        return now >= self._ambient_at or now >= self._heartbeat_at

    def next(self) -> float:
        """Return the time at which the next SPM is due, in seconds of the monotonic clock."""
        return min(self._ambient_at, self._heartbeat_at)
