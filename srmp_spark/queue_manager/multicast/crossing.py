"""Messages between the main process and the gateway of multicast (:mod:`srmp_spark.queue_manager.gateway`).

    gateway                                       main process
    ─────── Hearing: joined, or why not ────────▶ status; at the start, an exit
    ◀────── Begin: where each session goes on ───
    ─────── Opened, Arrived, Refused, Lost, ────▶ rows and losses, in the order of the numbers of a session
            Ended
    ◀────── Settled: so much waits no longer ────
    ─────── Figures, when they have changed ────▶ status and metrics
    ◀────── Leave ─────────────────────────────── the end
    ─────── Left, after everything else ────────▶

A group is named by its place in the settings of the gateway. Numbers are PGM sequence numbers: they wrap at 2^32.
"""

from __future__ import annotations

import msgspec

from srmp_spark.message import Message
from srmp_spark.pgm.addresses import SessionKey
from srmp_spark.srmp.mime import Parts


class Hearing(msgspec.Struct, tag=True, frozen=True):
    """Whether a group can be heard. Sent for each group at the start, and whenever it changes."""

    group: int
    deaf_because: str | None


class Opened(msgspec.Struct, tag=True, frozen=True):
    """A source is heard; what it sent before ``first`` is not asked for."""

    group: int
    session: SessionKey
    first: int


class Arrived(msgspec.Struct, tag=True, frozen=True):
    """A whole message of a source, decoded, and addressed to the group that it came to."""

    group: int
    session: SessionKey
    first: int
    last: int
    octets: int
    """Of the APDU: what :class:`Settled` gives back."""
    post: bytes
    """The message as it is stored."""
    head_length: int
    message: Message
    parts: Parts
    """Where the parts lie in ``post`` after its head, for the signature."""


class Refused(msgspec.Struct, tag=True, frozen=True):
    """An APDU that is no message for its group. Nothing waits for it."""

    group: int
    session: SessionKey
    first: int
    last: int
    status: int
    reason: str
    section: str
    because: str | None
    """A sentence for the log."""


class Lost(msgspec.Struct, tag=True, frozen=True):
    """Packets that nobody will repair."""

    group: int
    session: SessionKey
    first: int
    last: int
    packets: int
    reason: str
    detail: str


class Ended(msgspec.Struct, tag=True, frozen=True):
    """A session is over: its last number was told."""

    group: int
    session: SessionKey


class SourceFigures(msgspec.Struct, frozen=True, array_like=True):
    """What is told of one source in ``status``."""

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
    """``time.monotonic``, which is one clock for all processes of a machine."""


class Figures(msgspec.Struct, tag=True, frozen=True):
    """What has changed of the figures of a group since they were sent last."""

    group: int
    totals: dict[str, int]
    """Packets by kind, since this gateway began."""
    changed: list[SourceFigures]
    gone: list[SessionKey]


class Left(msgspec.Struct, tag=True, frozen=True):
    """Nothing is sent after this, the answer to :class:`Leave`."""


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Where a session goes on: everything before ``next`` was told."""

    session: SessionKey
    next: int


class Begin(msgspec.Struct, tag=True, frozen=True):
    """Read the groups from now on."""

    places: list[list[Place]]
    """The sessions of each group that an earlier gateway had."""


class Settled(msgspec.Struct, tag=True, frozen=True):
    """APDUs of a group, ``octets`` together, no longer wait for their commit."""

    group: int
    octets: int


class Leave(msgspec.Struct, tag=True, frozen=True):
    """Leave all groups, and answer :class:`Left`."""


ToMain = Hearing | Opened | Arrived | Refused | Lost | Ended | Figures | Left
ToGateway = Begin | Settled | Leave
