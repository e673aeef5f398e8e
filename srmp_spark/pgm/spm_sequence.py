"""The sequence of SPMs of one source (RFC 3208 6.2), and how a source is known that begins anew under its old TSI.

"An SPM is in sequence if its sequence number is greater than that of the most recent in-sequence SPM and within half the PGM
number space." A process that was restarted counts from 0 again: taken literally, all that it says is out of sequence for ever,
and its data are duplicates of what its predecessor sent. The RFC says only that a TSI is of "one source at a time" (3.1).

Theory of operation. As long as one source speaks, its SPM_SQN and its SPM_LEAD grow together. An SPM that is older in one of
them is ``LATE``: a copy that the network held back, or the first word of somebody else. It is told by time: SPMs come twice a
second, and no copy is as late as that. So a successor is believed (``ANEW``) when SUCCESSOR_SPMS late ones, ascending among
themselves, came after SUCCESSOR_SILENCE_S without any in sequence. Whatever is in sequence meanwhile proves that the old source
lives, and begins the count anew. The first of the late ones is kept: what the successor sent behind it can be asked for.

Whoever forges two SPMs can end a session so, as by one OPT_RST; that is told, and the true source is the next successor.
"""

from __future__ import annotations

from enum import Enum, auto

from srmp_spark.pgm.packets import Spm
from srmp_spark.pgm.sequence import unwrap

SUCCESSOR_SPMS = 2
"""One alone could be a copy from anywhere; a source begins with three."""
SUCCESSOR_SILENCE_S = 0.5
"""How long the last SPM in sequence is ago: the ambient interval of [MC-MQSRM] 2.1.3.1. A network that holds packets back for
longer reorders whole sessions."""


class SpmPlace(Enum):
    """Where an SPM stands."""

    NEXT = auto()
    """In sequence."""
    LATE = auto()
    """"Out-of-sequence SPMs MUST be discarded"."""
    ANEW = auto()
    """A successor speaks, since :attr:`SpmSequence.successor`."""


class SpmSequence:
    """What is known of the SPMs of one TSI."""

    def __init__(self) -> None:
        self.successor: Spm | None = None
        """The first of the late ones that ascend since the last one in sequence."""
        self._number: int | None = None
        self._lead: int | None = None
        """SPM_SQN and SPM_LEAD of the most recent in sequence, unbounded (:mod:`.sequence`)."""
        self._heard_at = 0.0
        self._late_number = 0
        self._late_lead: int | None = None
        self._late_count = 0

    def place(self, spm: Spm, now: float) -> SpmPlace:
        """Where ``spm`` stands, which came at ``now``."""
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
            return SpmPlace.LATE  # the same once more: the network doubles packets
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
    """SPM_LEAD, unbounded; ``None``: the SPM tells of no window."""
    if not spm.has_window:
        return None
    return spm.lead if near is None else unwrap(spm.lead, near)
