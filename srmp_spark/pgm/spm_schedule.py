"""When a source sends SPMs (RFC 3208 5.1.4 to 5.1.6, [MC-MQSRM] 2.1.3.1).

*Ambient* ones count down in real time and by packets: after 50 of data, or 0.5 s after the last, whichever is sooner.
*Heartbeats* measure the silence: IHB_MIN after the last packet of data, then twice as long each time, to IHB_MAX. The two are
configured independently, as 5.1.6 wants. With the constants of 2.1.3.1 a heartbeat never comes: the interval is counted from
"the most recent packet (ODATA, RDATA, or SPM)", and an ambient SPM is always sooner. Read literally, 2.1.3.1 says so.
"""

from __future__ import annotations

from srmp_spark.pgm.settings import SourceSettings

SPMS_AT_START = 3
"""As many as OpenPGM sends. Nobody may ask for repairs before an SPM came (RFC 3208 6.2), and whoever hears data first does not
know of those before: one lost SPM would hold up the first repairs for half a second, and lose the first data for good."""


class SpmSchedule:
    """The first ones are due at once: before any data, or a receiver that misses the first packet never knows of it."""

    def __init__(self, settings: SourceSettings, now: float) -> None:
        self._settings = settings
        self._packets = 0
        self._first_ones = SPMS_AT_START
        self._ihb = settings.ihb_min
        self._ambient_at = now
        self._heartbeat_at = now + self._ihb

    def data_sent(self, now: float) -> None:
        """ODATA or RDATA left."""
        self._packets += 1
        if self._packets >= self._settings.ambient_spm_packets:
            self._ambient_at = min(self._ambient_at, now)
        self._ihb = self._settings.ihb_min
        self._heartbeat_at = now + self._ihb

    def spm_sent(self, now: float) -> None:
        """One left, whatever it was due for."""
        if now >= self._heartbeat_at:
            self._ihb = min(2 * self._ihb, self._settings.ihb_max)
        self._heartbeat_at = now + self._ihb
        self._packets = 0
        self._first_ones = max(0, self._first_ones - 1)
        if self._first_ones:
            return
        self._ambient_at = now + self._settings.ambient_spm_ivl

    def at_once(self, now: float) -> None:
        """There is something to tell: OPT_FIN, OPT_RST, an SPMR ("resetting the SPM heartbeat timer", 9.7.2)."""
        self._ambient_at = min(self._ambient_at, now)
        self._ihb = self._settings.ihb_min

    def is_due(self, now: float) -> bool:
        """Whether one is to be sent now."""
        return now >= self._ambient_at or now >= self._heartbeat_at

    def next(self) -> float:
        """When the next one is due."""
        return min(self._ambient_at, self._heartbeat_at)
