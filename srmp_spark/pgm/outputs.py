"""What comes out of a source and a receiver: packets to send, and events to tell. Values, never actions.

Of a receiver every number of a session, from its first one, is in exactly one :class:`Apdu` or one :class:`DataLost`, in order.
That is the promise "never a silent gap" in one sentence, and what the simulator checks.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from srmp_spark.pgm.addresses import Nla, SessionKey
from srmp_spark.pgm.sequence import span


class Multicast(NamedTuple):
    """Send ``packet`` to the group."""

    packet: bytes
    router_alert: bool = False
    """With the IP Router Alert option: "SPMs, NCFs, and RDATA MUST be transmitted with" it (RFC 3208 4)."""
    is_local: bool = False
    """With a TTL of 1 (RFC 3208 6.3)."""


class Unicast(NamedTuple):
    """Send ``packet`` to one address."""

    to: Nla
    packet: bytes


class LossReason(Enum):
    """Why data are lost for good."""

    TRAIL = "the source's window moved on"
    RETRIES = "nobody repaired it"
    LIMIT = "a limit of ours was passed"
    RESET = "the source aborted the session"
    SILENT = "the source fell silent"
    INCOMPLETE = "another part of its APDU is lost"
    BROKEN = "the fragments make no APDU"
    TOO_LARGE = "the APDU is larger than 64 kilobytes"
    JOINED = "its APDU began before we joined"
    RESTARTED = "the source began anew under its old identifier"


class SessionOpened(NamedTuple):
    """A source is heard. What it sent before ``first`` is not asked for."""

    session: SessionKey
    first: int


class Apdu(NamedTuple):
    """What the application of a source sent at once."""

    session: SessionKey
    first: int
    last: int
    data: bytes


class DataLost(NamedTuple):
    """``first`` to ``last`` will never be told by an :class:`Apdu`."""

    session: SessionKey
    first: int
    last: int
    reason: LossReason

    @property
    def packets(self) -> int:
        """How many packets."""
        return span(self.first, self.last)


class EndReason(Enum):
    """How a session ended."""

    FINISHED = "finished"
    """OPT_FIN, and all that came before it is delivered or told as lost."""
    RESET = "reset"
    SILENT = "silent"
    RESTARTED = "restarted"
    """Another source speaks under its address and TSI: the process was started again. Its session follows."""


class SessionEnded(NamedTuple):
    """Nothing more comes of this session."""

    session: SessionKey
    reason: EndReason
    error_code: int = 0
    """Of OPT_RST; its meaning is the sending application's."""


class SourceRefused(NamedTuple):
    """SESSIONS_MAX sources are heard already: nothing of this one is taken."""

    session: SessionKey


Event = SessionOpened | Apdu | DataLost | SessionEnded
Output = Multicast | Unicast | Event | SourceRefused
