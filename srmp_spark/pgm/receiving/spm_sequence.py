"""Orders the SPMs of one source (RFC 3208 6.2), and recognises a restart under its old TSI.

"An SPM is in sequence if its sequence number is greater than that of the most recent in-sequence
SPM and within half the PGM number space." A process that was restarted counts from 0 again. Taken
literally, all its SPMs are out of sequence forever, and its data are duplicates of its
predecessor's data. The RFC says only that a TSI belongs to "one source at a time" (3.1).

Theory of operation. While one source sends, its SPM_SQN and its SPM_LEAD grow together. An SPM that
is older in one of the two is ``LATE``: either a copy that the network delayed, or the first SPM of
another source. Time tells the difference: SPMs are sent twice a second, and no copy is that late.
So a successor is accepted (``ANEW``) after SUCCESSOR_SPMS late SPMs with ascending numbers, if
SUCCESSOR_SILENCE_S passed without an SPM in sequence. An SPM in sequence proves that the old source
is alive and restarts the count. The first late SPM is kept: data that the successor sent after that
SPM can be requested.

An attacker who forges two SPMs can end a session this way, as with one OPT_RST. The end is
reported, and the true source becomes the next successor.
"""

from __future__ import annotations

from enum import Enum, auto

from srmp_spark.pgm.wire.packets import Spm
from srmp_spark.pgm.wire.sequence import unwrap

SUCCESSOR_SPMS = 2
"""Number of late SPMs at which a successor (a restarted source) is accepted.

One SPM alone could be a copy from anywhere. A source begins with three SPMs.
"""
SUCCESSOR_SILENCE_S = 0.5
"""Time since the last SPM in sequence after which late SPMs count, in seconds.

The value is the ambient interval of [MC-MQSRM] 2.1.3.1. A network that delays packets for longer
reorders whole sessions.
"""


class SpmPlace(Enum):
    """Result for an SPM: its place in the sequence of its source."""

    NEXT = auto()
    """The SPM is in sequence."""
    LATE = auto()
    """The SPM is discarded: "Out-of-sequence SPMs MUST be discarded"."""
    ANEW = auto()
    """A restarted source sends, beginning with :attr:`SpmSequence.successor`."""


class SpmSequence:
    """Tracks the SPMs of one TSI and decides whether each is in sequence."""

    def __init__(self) -> None:
        self.successor: Spm | None = None
        """First of the late SPMs with ascending numbers, or ``None``.

        Only SPMs since the last SPM in sequence count.
        """
        self._number: int | None = None
        self._lead: int | None = None
        """SPM_LEAD of the most recent SPM in sequence, unbounded (:mod:`..wire.sequence`).

        ``_number`` is its SPM_SQN, unbounded too.
        """
        self._heard_at = 0.0
        self._late_number = 0
        self._late_lead: int | None = None
        self._late_count = 0

    def place(self, spm: Spm, now: float) -> SpmPlace:
        """Decide whether ``spm``, which was received at ``now``, is in sequence, and remember it.

        Return the decision as a :class:`SpmPlace`.
        """
        number = (
            spm.sequence_number
            if self._number is None
            else unwrap(spm.sequence_number, self._number)
        )
        lead = _lead(spm, self._lead)
        is_newer = self._number is None or number > self._number
        if is_newer and (lead is None or self._lead is None or lead >= self._lead):
            self._number, self._heard_at = number, now
            self._lead = self._lead if lead is None else lead
            self.successor, self._late_count = None, 0
            return SpmPlace.NEXT
        if number == self._number and lead == self._lead:
            # This SPM is a copy of the last one, because a network may double packets.
            return SpmPlace.LATE
        return self._late(spm, now)

    def _late(self, spm: Spm, now: float) -> SpmPlace:
        number, lead = unwrap(spm.sequence_number, self._late_number), _lead(spm, self._late_lead)
        goes_back = lead is not None and self._late_lead is not None and lead < self._late_lead
        if self.successor is not None and number == self._late_number and not goes_back:
            return SpmPlace.LATE
        if self.successor is None or number < self._late_number or goes_back:
            self.successor, self._late_count = spm, 0
            number, lead = spm.sequence_number, _lead(spm, None)
        self._late_number = number
        self._late_lead = self._late_lead if lead is None and self._late_count else lead
        if now - self._heard_at >= SUCCESSOR_SILENCE_S:
            self._late_count += 1
        return SpmPlace.ANEW if self._late_count >= SUCCESSOR_SPMS else SpmPlace.LATE


def _lead(spm: Spm, near: int | None) -> int | None:
    """Return SPM_LEAD as an unbounded number, or ``None`` if the SPM states no window."""
    if not spm.has_window:
        return None
    return spm.lead if near is None else unwrap(spm.lead, near)
