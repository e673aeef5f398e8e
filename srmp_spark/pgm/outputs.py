"""Outputs of a source and a receiver: packets to send and events to report.

Outputs are values, never actions. A receiver reports every number of a session, from the first one,
in exactly one :class:`Apdu` or one :class:`DataLost`, in order. This is the promise "never a silent
gap" in one sentence, and the simulator verifies it.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from srmp_spark.pgm.wire.addresses import Nla, SessionKey
from srmp_spark.pgm.wire.sequence import span


class Multicast(NamedTuple):
    """Order to the caller: send ``packet`` to the multicast group."""

    packet: bytes
    router_alert: bool = False
    """Whether to set the IP Router Alert option.

    RFC 3208 4: "SPMs, NCFs, and RDATA MUST be transmitted with" it.
    """


class Unicast(NamedTuple):
    """Order to the caller: send ``packet`` to one address."""

    to: Nla
    packet: bytes


class LossReason(Enum):
    """Reasons why data are finally lost. The values are texts for the user."""

    TRAIL = "the source's window moved on"
    RETRIES = "no repair was received"
    LIMIT = "a limit of this receiver was exceeded"
    RESET = "the source aborted the session"
    SILENT = "the source became silent"
    INCOMPLETE = "another part of its APDU is lost"
    BROKEN = "the fragments form no APDU"
    TOO_LARGE = "the APDU is larger than 64 kilobytes"
    JOINED = "its APDU began before we joined"
    RESTARTED = "the source was restarted under its old identifier"


class SessionOpened(NamedTuple):
    """Event: a new source was found.

    Data that the source sent before number ``first`` are not requested.
    """

    session: SessionKey
    first: int


class Apdu(NamedTuple):
    """Event: one block of data that the application of a source sent at once is complete.

    ``first`` and ``last`` are the numbers of its packets, both included.
    """

    session: SessionKey
    first: int
    last: int
    data: bytes


class DataLost(NamedTuple):
    """Event: the packets ``first`` to ``last``, both included, are lost.

    No :class:`Apdu` will contain them.
    """

    session: SessionKey
    first: int
    last: int
    reason: LossReason

    @property
    def packets(self) -> int:
        """Return the number of lost packets, from ``first`` to ``last``."""
        return span(self.first, self.last)


class EndReason(Enum):
    """Reasons why a session ended. The values are texts for the user."""

    FINISHED = "finished"
    """OPT_FIN was received, and all data before it were delivered or reported as lost."""
    RESET = "reset"
    SILENT = "silent"
    RESTARTED = "restarted"
    """Another source sends under the same address and TSI: its process was restarted.

    The session of the new source follows.
    """


class SessionEnded(NamedTuple):
    """Event: a session ended; nothing more of it is reported."""

    session: SessionKey
    reason: EndReason
    error_code: int = 0
    """Error code of OPT_RST; 0 without one. The sending application defines its meaning."""


class SourceRefused(NamedTuple):
    """Event: a new source is ignored because SESSIONS_MAX sessions exist."""

    session: SessionKey


Event = SessionOpened | Apdu | DataLost | SessionEnded
Output = Multicast | Unicast | Event | SourceRefused
