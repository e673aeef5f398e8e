"""Messages between the main process and the gateway of multicast.

See :mod:`srmp_spark.queue_manager.gateway` for the channel that carries the messages::

    gateway                                       main process
    ─────── Hearing: joined, or why not ────────▶ status; at the start, an exit
    ◀────── Begin: where each session resumes ───
    ─────── SourceOpened, MulticastArrived, ────▶ rows and losses, in the order of the
            ApduRefused, Lost, SourceEnded        numbers of a session
    ◀────── Settled: octets no longer wait ──────
    ─────── Figures, when they have changed ────▶ status and metrics
    ◀────── Leave ─────────────────────────────── the end
    ─────── GroupsLeft, after all others ───────▶

A group is named by its index in the settings of the gateway. Numbers are PGM sequence numbers,
which wrap at 2^32.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from srmp_spark.message import Message
from srmp_spark.pgm.wire.addresses import SessionKey
from srmp_spark.queue_manager.gateway.control import GatewaySettings
from srmp_spark.queue_manager.multicast.settings import PgmSettings
from srmp_spark.srmp.codec.mime import Parts


@dataclass(frozen=True, slots=True, kw_only=True)
class MulticastSettings(GatewaySettings):
    """The settings of the gateway of multicast."""

    pgm: PgmSettings
    groups: list[tuple[str, str]]
    """Queue and multicast address of each group."""


class Hearing(msgspec.Struct, tag=True, frozen=True):
    """States whether the gateway receives the packets of a group. The gateway sends this.

    It is sent for each group at the start, and whenever the state changes. ``deaf_because`` is the
    reason why the group cannot be received, or ``None``.
    """

    group: int
    deaf_because: str | None


class SourceOpened(msgspec.Struct, tag=True, frozen=True):
    """States that the gateway receives the session of a source. The gateway sends this.

    A session is the numbered packets of one source to one group. Packets before the number
    ``first`` are not requested.
    """

    group: int
    session: SessionKey
    first: int


class MulticastArrived(msgspec.Struct, tag=True, frozen=True):
    """A whole, decoded message of a source for the group on which it was received.

    The gateway sends this. The message came in the packets ``first`` to ``last``, both included.
    """

    group: int
    session: SessionKey
    first: int
    last: int
    octets: int
    """Octets of the APDU; :class:`Settled` returns this number to the gateway."""
    post: bytes
    """The message in the form in which it is stored."""
    head_length: int
    message: Message
    parts: Parts
    """Positions of the parts in ``post`` after its head, for the check of the signature."""


class ApduRefused(msgspec.Struct, tag=True, frozen=True):
    """States that an APDU (one unit of data of a source) is no message for its group.

    The gateway sends this. The APDU came in the packets ``first`` to ``last``, both included, and
    it waits for no commit.
    """

    group: int
    session: SessionKey
    first: int
    last: int
    status: int
    reason: str
    section: str
    because: str | None
    """A sentence for the log, or ``None`` if nothing is logged."""


class Lost(msgspec.Struct, tag=True, frozen=True):
    """States that packets in the range ``first`` to ``last``, both included, are lost for good.

    The gateway sends this. ``packets`` is the number of lost packets. The source no longer repairs
    them. ``reason`` is a code, ``detail`` a sentence.
    """

    group: int
    session: SessionKey
    first: int
    last: int
    packets: int
    reason: str
    detail: str


class SourceEnded(msgspec.Struct, tag=True, frozen=True):
    """States that a session is over and will bring no more messages. The gateway sends this.

    All its packets were reported before.
    """

    group: int
    session: SessionKey


class SourceFigures(msgspec.Struct, frozen=True, array_like=True):
    """Figures of one source, as ``status`` shows them."""

    session: SessionKey
    state: str
    messages: int
    packets: int
    repairs: int
    duplicates: int
    naks: int
    missing: int
    lost: int
    buffered_bytes: int
    heard_at: float
    """Time of the last packet, in seconds of ``time.monotonic``.

    This clock is the same for all processes of a machine.
    """


class Figures(msgspec.Struct, tag=True, frozen=True):
    """The figures of a group that have changed since the last message of this kind.

    The gateway sends this. ``gone`` are sessions that have no figures any longer.
    """

    group: int
    totals: dict[str, int]
    """Number of packets by kind, since this gateway began."""
    changed: list[SourceFigures]
    gone: list[SessionKey]


class GroupsLeft(msgspec.Struct, tag=True, frozen=True):
    """Answers :class:`Leave`; the gateway sends nothing after this message."""


class ResumePlace(msgspec.Struct, frozen=True, array_like=True):
    """The packet number at which a session resumes. Everything before ``next`` was reported."""

    session: SessionKey
    next: int


class Begin(msgspec.Struct, tag=True, frozen=True):
    """Orders the gateway to read from the groups. The main process sends this."""

    places: list[list[ResumePlace]]
    """For each group, the sessions that an earlier gateway had."""


class Settled(msgspec.Struct, tag=True, frozen=True):
    """States that ``octets`` of a group's APDUs no longer wait for their commit.

    The main process sends this, so that the gateway can read further packets.
    """

    group: int
    octets: int


class Leave(msgspec.Struct, tag=True, frozen=True):
    """Orders the gateway to leave all groups and to answer :class:`GroupsLeft`.

    The main process sends this.
    """


ToMain = (
    Hearing
    | SourceOpened
    | MulticastArrived
    | ApduRefused
    | Lost
    | SourceEnded
    | Figures
    | GroupsLeft
)
ToGateway = Begin | Settled | Leave
