"""The transmit window (RFC 3208 3.3): data that were sent and can still be repaired.

The window is advanced with time (RFC 3208 16.3), "every TXW_ADV_IVL" ([MC-MQSRM] 2.1.3.1). Data
older than TXW_SECS - TXW_ADV_SECS are removed, so a window holds between that and TXW_SECS of data.

In one point this code follows the text of 2.1.3.1 and not Windows' note on RFC 3208 2.1 ("does not
delay the window advancement based on NAK silence"): the trail stops at the first number with a
pending NAK, but only for ``advance_delay_max`` seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from srmp_spark.pgm.settings import PgmSourceSettings
from srmp_spark.pgm.wire.packets import Fragment

ENTRY_COST = 300
"""Octets that a packet of the window needs in addition to its payload."""


class Sent(NamedTuple):
    """One packet of the transmit window. ``payload_sum`` is the checksum's sum of the payload."""

    payload: bytes
    payload_sum: int
    fragment: Fragment | None
    """The place of the packet in its APDU, or ``None`` if the packet is a whole APDU."""
    at: float
    """Time of sending, in seconds of the monotonic clock."""


class TransmitWindow:
    """The packets of one source from number :attr:`trail` to number :attr:`lead`, both included.

    The window is empty if :attr:`lead` is :attr:`trail` - 1. Numbers are unbounded
    (:mod:`..wire.sequence`).
    """

    def __init__(self, first: int, settings: PgmSourceSettings, now: float) -> None:
        self.trail = first
        self.lead = first - 1
        self.octets = 0
        """Memory that this window takes now, in octets."""
        self.advance_at = now + settings.txw_adv_ivl
        self._settings = settings
        self._sent: dict[int, Sent] = {}

    @property
    def is_full(self) -> bool:
        """Return whether no packet can be added, by number or by memory.

        RFC 3208 16.2: "further transmissions would be suspended until the transmit window can be
        advanced".
        """
        settings = self._settings
        return len(self._sent) >= settings.txw_sqns_max or self.octets >= settings.txw_bytes_max

    def append(self, sent: Sent) -> None:
        """Add the packet ``sent``, whose number is the next one: :attr:`lead` rises by 1.

        The caller has checked :attr:`is_full`.
        """
        self.lead += 1
        self._sent[self.lead] = sent
        self.octets += len(sent.payload) + ENTRY_COST

    def get(self, number: int) -> Sent | None:
        """Return the packet that was sent as ``number``, or ``None`` if it has left the window.

        Return ``None`` too if the number was never sent.
        """
        return self._sent.get(number)

    def advance(self, now: float, is_pending: Callable[[int], bool]) -> None:
        """Remove old packets from the window, if TXW_ADV_IVL has passed since the last time.

        ``now`` is in seconds of the monotonic clock. ``is_pending`` returns whether a number has a
        NAK whose repair was not sent. The trail stops at such a number, but only for
        ``advance_delay_max`` seconds.
        """
        if now < self.advance_at:
            return
        settings = self._settings
        self.advance_at = now + settings.txw_adv_ivl
        keep_after = now - (settings.txw_secs - settings.txw_adv_secs)
        wait_after = now - (settings.txw_secs + settings.advance_delay_max)
        while self.trail <= self.lead:
            sent = self._sent[self.trail]
            if sent.at > keep_after or (sent.at > wait_after and is_pending(self.trail)):
                break
            del self._sent[self.trail]
            self.octets -= len(sent.payload) + ENTRY_COST
            self.trail += 1

    def __len__(self) -> int:
        return len(self._sent)

    def __repr__(self) -> str:
        return f"<TransmitWindow {self.trail}-{self.lead} {self.octets} octets>"
